# DFGNN_NEED(VARIABLE, MODULE, DEBIAN-PACKAGE)
# --------------------------------------------
# PKG_CHECK_MODULES that goes on, so that DFGNN_NEED_REPORT can name everything
# that is missing at once.
AC_DEFUN([DFGNN_NEED], [
PKG_CHECK_MODULES([$1], [$2], [], [
  AC_MSG_RESULT([no])
  AS_VAR_APPEND([dfgnn_missing], ["
  m4_bpatsubst([$2], [ .*])	$3"])
  AS_VAR_APPEND([dfgnn_packages], [" $3"])])
])

AC_DEFUN([DFGNN_NEED_REPORT], [
AS_IF([test -n "$dfgnn_missing"], [
  AC_MSG_ERROR([libraries are missing or too old (pkg-config module, Debian package):$dfgnn_missing
On Debian: apt install$dfgnn_packages, or run tools/setup.sh])])
])
