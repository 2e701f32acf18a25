# DFGNN_METIS
# -----------
# --with-metis: sets have_metis, METIS_CPPFLAGS and METIS_LIBS.  METIS has no
# pkg-config module.
AC_DEFUN([DFGNN_METIS], [
AC_ARG_WITH([metis],
  [AS_HELP_STRING([--with-metis@<:@=DIR@:>@],
    [order graphs by METIS too (default: if it is found)])],
  [], [with_metis=auto])
have_metis=no
METIS_CPPFLAGS= METIS_LIBS=
AS_IF([test "x$with_metis" != xno], [
  dfgnn_save_CPPFLAGS=$CPPFLAGS dfgnn_save_LIBS=$LIBS
  dfgnn_metis_include= dfgnn_metis_lib=
  AS_CASE([$with_metis], [auto|yes], [],
    [dfgnn_metis_include="-I$with_metis/include"
     dfgnn_metis_lib="-L$with_metis/lib"])
  CPPFLAGS="$CPPFLAGS $dfgnn_metis_include"
  LIBS="$dfgnn_metis_lib -lmetis $LIBS"
  AC_MSG_CHECKING([for METIS with 32-bit indices])
  AC_LINK_IFELSE([AC_LANG_PROGRAM([[#include <metis.h>
#if IDXTYPEWIDTH != 32
#error 64-bit indices
#endif
]], [[idx_t options[METIS_NOPTIONS]; return METIS_SetDefaultOptions(options);]])],
    [have_metis=yes
     METIS_CPPFLAGS="$dfgnn_metis_include -DHAVE_METIS=1"
     METIS_LIBS="$dfgnn_metis_lib -lmetis"])
  AC_MSG_RESULT([$have_metis])
  CPPFLAGS=$dfgnn_save_CPPFLAGS LIBS=$dfgnn_save_LIBS
  AS_IF([test "x$have_metis$with_metis" != xnoauto &&
         test "x$have_metis" = xno],
    [AC_MSG_ERROR([METIS is not found; on Debian: apt install libmetis-dev])])
])
AC_SUBST([METIS_CPPFLAGS])
AC_SUBST([METIS_LIBS])
])
