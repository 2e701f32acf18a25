# DFGNN_CUDA
# ----------
# --with-cuda[=DIR], --with-cuda-arch=LIST, NVCC, NVCCFLAGS.
# Sets have_cuda, CUDA_CPPFLAGS, CUDA_GENCODE, CUDA_LIBS, NVCC_LTFLAGS and the
# conditional WITH_CUDA.  Call after LT_INIT (it reads $enable_shared).
AC_DEFUN([DFGNN_CUDA], [
AC_REQUIRE([LT_INIT])
AC_ARG_WITH([cuda],
  [AS_HELP_STRING([--with-cuda@<:@=DIR@:>@],
    [build the CUDA kernels (default: if nvcc is found)])],
  [], [with_cuda=auto])
AC_ARG_WITH([cuda-arch],
  [AS_HELP_STRING([--with-cuda-arch=LIST],
    [compute capabilities, the last also as PTX @<:@80,86,90@:>@])],
  [], [with_cuda_arch=80,86,90])
AC_ARG_VAR([NVCC], [CUDA compiler])
AC_ARG_VAR([NVCCFLAGS], [CUDA compiler flags (default -O3; -lineinfo, for
profilers and compute-sanitizer, makes the library three times as large)])
: ${NVCCFLAGS="-O3"}

have_cuda=no
AS_IF([test "x$with_cuda" != xno], [
  AS_CASE([$with_cuda],
    [auto|yes], [dfgnn_cuda_path=$PATH$PATH_SEPARATOR/usr/local/cuda/bin],
    [dfgnn_cuda_path=$with_cuda/bin])
  AC_PATH_PROG([NVCC], [nvcc], [], [$dfgnn_cuda_path])
  AS_IF([test -n "$NVCC"], [
    # nvcc may be a link or wrapper far from its toolkit: ask it
    dfgnn_cuda_home=`"$NVCC" --dryrun -x cu /dev/null 2>&1 | sed -n 's/^#\\$ TOP=//p'`
    AS_IF([test -z "$dfgnn_cuda_home" || test ! -d "$dfgnn_cuda_home"], [
      dfgnn_cuda_home=`AS_DIRNAME(["$NVCC"])`
      dfgnn_cuda_home=`AS_DIRNAME(["$dfgnn_cuda_home"])`])
    dfgnn_cuda_home=`cd "$dfgnn_cuda_home" && pwd -P`
    CUDA_CPPFLAGS="-DHAVE_CUDA=1 -isystem $dfgnn_cuda_home/include"
    CUDA_LIBS="-lcudart_static -lstdc++ -lpthread -ldl -lrt"
    for dfgnn_dir in lib64 lib targets/x86_64-linux/lib targets/sbsa-linux/lib; do
      AS_IF([test -f "$dfgnn_cuda_home/$dfgnn_dir/libcudart_static.a"],
        [CUDA_LIBS="-L$dfgnn_cuda_home/$dfgnn_dir $CUDA_LIBS"; break])
    done
    # one -gencode per entry, in the one-word form (libtool keeps words whole)
    CUDA_GENCODE=
    for dfgnn_arch in `AS_ECHO(["$with_cuda_arch"]) | tr ',' ' '`; do
      AS_VAR_APPEND([CUDA_GENCODE],
        [" -gencode=arch=compute_$dfgnn_arch,code=sm_$dfgnn_arch"])
    done
    AS_VAR_APPEND([CUDA_GENCODE],
      [" -gencode=arch=compute_$dfgnn_arch,code=compute_$dfgnn_arch"])

    AC_MSG_CHECKING([whether $NVCC builds for $with_cuda_arch])
    AC_LANG_CONFTEST([AC_LANG_SOURCE([[
__global__ void k(void) {} int main(void) { k<<<1, 1>>>(); return 0; }]])])
    mv conftest.$ac_ext conftest.cu
    AS_IF([$NVCC -ccbin "$CXX" $CUDA_GENCODE $NVCCFLAGS -forward-unknown-to-host-compiler -fPIC -c conftest.cu -o conftest.o >&AS_MESSAGE_LOG_FD 2>&1],
      [have_cuda=yes])
    rm -f conftest.cu conftest.o
    AC_MSG_RESULT([$have_cuda])
  ])
  AS_IF([test "x$have_cuda" = xyes], [
    dfgnn_save_LIBS=$LIBS; LIBS="$CUDA_LIBS $LIBS"
    AC_LINK_IFELSE([AC_LANG_CALL([], [cudaGetDeviceCount])], [], [have_cuda=no])
    LIBS=$dfgnn_save_LIBS
  ])
  AS_IF([test "x$have_cuda" = xno && test "x$with_cuda" != xauto],
    [AC_MSG_FAILURE([--with-cuda=$with_cuda was given, but no working CUDA toolkit was found])])
])
AS_IF([test "x$have_cuda" = xyes],
  [AC_DEFINE([HAVE_CUDA], [1], [Define to 1 to build the CUDA kernels.])
   with_cuda=$dfgnn_cuda_home],
  [CUDA_CPPFLAGS= CUDA_LIBS= CUDA_GENCODE= with_cuda=no])
# With -shared libtool makes only the PIC object and puts that same object in
# the archive: one compilation a file.  Under --disable-shared libtool refuses
# the flag, and compiles once anyway.
COMPILE_ONCE=
AS_IF([test "x$enable_shared" = xyes], [COMPILE_ONCE=-shared])
AC_SUBST([CUDA_CPPFLAGS]) AC_SUBST([CUDA_LIBS]) AC_SUBST([CUDA_GENCODE])
AC_SUBST([COMPILE_ONCE]) AC_SUBST([with_cuda]) AC_SUBST([with_cuda_arch])
AM_CONDITIONAL([WITH_CUDA], [test "x$have_cuda" = xyes])
])
