# DFGNN_LZMA
# ----------
# --with-lzma: sets have_lzma, LZMA_CFLAGS, LZMA_LIBS, and LZMA_MODULE, the
# pkg-config module that dfgnn.pc then needs.
AC_DEFUN([DFGNN_LZMA], [
AC_ARG_WITH([lzma],
  [AS_HELP_STRING([--with-lzma],
    [compress packs of kernels by xz (default: if liblzma is found)])],
  [], [with_lzma=auto])
have_lzma=no
LZMA_MODULE=
AS_IF([test "x$with_lzma" != xno], [
  PKG_CHECK_MODULES([LZMA], [liblzma],
    [have_lzma=yes
     LZMA_CFLAGS="$LZMA_CFLAGS -DHAVE_LZMA=1"
     LZMA_MODULE=liblzma],
    [AS_IF([test "x$with_lzma" != xauto],
      [AC_MSG_ERROR([liblzma is not found; on Debian: apt install liblzma-dev])])])
])
AC_SUBST([LZMA_MODULE])
])
