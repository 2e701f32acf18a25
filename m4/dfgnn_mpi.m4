# DFGNN_MPI
# ---------
# --with-mpi: the processes of mpirun share the problems of dfgnn-tune run.
# Looks for Open MPI, then MPICH; MPI_CFLAGS and MPI_LIBS name any other.
AC_DEFUN([DFGNN_MPI], [
AC_ARG_WITH([mpi],
  [AS_HELP_STRING([--with-mpi],
    [share the problems of `mpirun dfgnn-tune run` through MPI-3 (default: no)])],
  [], [with_mpi=no])
have_mpi=no
AS_IF([test "x$with_mpi" != xno], [
  PKG_CHECK_MODULES([MPI], [ompi-c], [have_mpi=yes], [
    PKG_CHECK_MODULES([MPI], [mpich], [have_mpi=yes], [
      AC_MSG_ERROR([--with-mpi: neither Open MPI (pkg-config module ompi-c) nor MPICH (mpich) is found; on Debian: apt install libopenmpi-dev openmpi-bin; or set MPI_CFLAGS and MPI_LIBS])])])
  MPI_CPPFLAGS="-DHAVE_MPI $MPI_CFLAGS"])
AC_SUBST([MPI_CPPFLAGS])
])
