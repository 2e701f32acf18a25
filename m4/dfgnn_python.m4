# DFGNN_PYTHON
# ------------
# --with-python-headers: sets have_python_headers, PYTHON_CPPFLAGS and, for
# automake, HAVE_EXTENSION.  One file serves each Python from 3.10 on.
AC_DEFUN([DFGNN_PYTHON], [
AC_ARG_WITH([python-headers],
  [AS_HELP_STRING([--with-python-headers@<:@=DIR@:>@],
    [where Python.h of Python 3.10 or newer is, for the extension that makes
     calls of the package without ctypes (default: where python3 says)])],
  [], [with_python_headers=auto])
have_python_headers=no
PYTHON_CPPFLAGS=
dfgnn_python_headers=$with_python_headers
AS_CASE([$with_python_headers], [auto|yes],
  [dfgnn_python_headers=`python3 -c 'import sysconfig; print(sysconfig.get_path("include"))' 2>/dev/null`])
AS_IF([test "x$with_python_headers" != xno && test -n "$dfgnn_python_headers"], [
  AC_MSG_CHECKING([for Python.h of Python 3.10 or newer])
  dfgnn_save_CPPFLAGS=$CPPFLAGS
  # Debian's pyconfig.h includes another from the folder above its own, which a
  # compiler for an older glibc does not look into
  for dfgnn_more in "" " -idirafter `dirname "$dfgnn_python_headers"`"; do
    AS_IF([test $have_python_headers = no], [
      PYTHON_CPPFLAGS="-isystem $dfgnn_python_headers$dfgnn_more"
      CPPFLAGS="$dfgnn_save_CPPFLAGS $PYTHON_CPPFLAGS"
      AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[
#define Py_LIMITED_API 0x030A0000
#include <Python.h>
#if PY_VERSION_HEX < 0x030A0000 || defined Py_GIL_DISABLED
#error too old, or without a stable ABI
#endif
]])], [have_python_headers=yes])])
  done
  CPPFLAGS=$dfgnn_save_CPPFLAGS
  AC_MSG_RESULT([$have_python_headers])
])
AS_IF([test "x$have_python_headers" = xno], [
  AS_CASE([$with_python_headers], [auto|no], [],
    [AC_MSG_ERROR([Python.h of Python 3.10 or newer is not found; on Debian: apt install python3-dev])])])
AC_SUBST([PYTHON_CPPFLAGS])
AM_CONDITIONAL([HAVE_EXTENSION],
  [test "x$have_python_headers$enable_shared" = xyesyes])
])
