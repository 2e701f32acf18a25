# DFGNN_COMPILER
# --------------
# WARN_CFLAGS, and --enable-werror for those who work on the library.
AC_DEFUN([DFGNN_COMPILER], [
AC_ARG_ENABLE([werror],
  [AS_HELP_STRING([--enable-werror], [warnings of the C compiler are errors])],
  [], [enable_werror=no])
WARN_CFLAGS="-Wall -Wextra"
AS_IF([test "x$enable_werror" = xyes], [WARN_CFLAGS="$WARN_CFLAGS -Werror"])
AC_SUBST([WARN_CFLAGS])
])

# DFGNN_OPENMP
# ------------
# OPENMP_CFLAGS to compile, OPENMP_LIBS for who links the static library,
# perhaps with another compiler.
AC_DEFUN([DFGNN_OPENMP], [
AC_OPENMP
AS_IF([test "x$ac_cv_prog_c_openmp" = xunsupported || test -z "$OPENMP_CFLAGS"],
  [AC_MSG_ERROR([$CC cannot link OpenMP programs; on Debian: apt install gcc, or libomp-dev for clang])])
AC_MSG_CHECKING([for the OpenMP runtime of $CC])
AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[
#ifndef __clang__
#error gcc
#endif
]])], [OPENMP_LIBS=-lomp], [OPENMP_LIBS=-lgomp])
AC_MSG_RESULT([$OPENMP_LIBS])
AC_SUBST([OPENMP_LIBS])
])

# DFGNN_SANITIZERS
# ----------------
# --enable-sanitizers[=LIST] instruments host code.
AC_DEFUN([DFGNN_SANITIZERS], [
AC_ARG_ENABLE([sanitizers],
  [AS_HELP_STRING([--enable-sanitizers@<:@=LIST@:>@],
    [instrument host code: thread, or by default address,undefined])],
  [], [enable_sanitizers=no])
AS_CASE([$enable_sanitizers],
  [no], [SANITIZE_CFLAGS=],
  [AS_IF([test "x$enable_sanitizers" = xyes],
     [enable_sanitizers=address,undefined])
   SANITIZE_CFLAGS="-g -fsanitize=$enable_sanitizers -fno-omit-frame-pointer"
   AS_CASE([$enable_sanitizers], [*undefined*],
     [AS_VAR_APPEND([SANITIZE_CFLAGS], [" -fno-sanitize-recover=undefined"])])
   dfgnn_save_CFLAGS=$CFLAGS
   CFLAGS="$CFLAGS $SANITIZE_CFLAGS"
   AC_LINK_IFELSE([AC_LANG_PROGRAM([], [])], [],
     [AC_MSG_ERROR([$CC cannot link with $SANITIZE_CFLAGS; for clang on Debian: apt install libclang-rt-14-dev])])
   CFLAGS=$dfgnn_save_CFLAGS])
AC_SUBST([SANITIZE_CFLAGS])
AM_CONDITIONAL([SANITIZERS], [test "x$enable_sanitizers" != xno])
])
