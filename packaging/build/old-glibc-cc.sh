#!/bin/sh
# old-glibc-cc.sh ARGUMENT...: a compiler driver whose programs and libraries run
# with an old glibc.  GCC compiles, as always; zig links, against the symbols
# that the old glibc had.
#
#   OLD_GLIBC_ZIG=FILE    the zig program (PyPI: ziglang)
#   OLD_GLIBC=2.28        the oldest glibc that shall do
#   OLD_GLIBC_CPU=x86_64  or aarch64, whose cross compiler must be installed
#
# A shared library is linked without an OpenMP runtime: the process that loads it
# brings one (torch does).
set -eu

cpu=${OLD_GLIBC_CPU:-x86_64}
target=$cpu-linux-gnu.${OLD_GLIBC:-2.28}
gcc=$cpu-linux-gnu-gcc
links=yes shared=no openmp=no
for argument; do
  case $argument in
  -c | -E | -S | -M | -MM | --version | -dump* | -print*) links=no ;;
  -shared) shared=yes ;;
  -fopenmp) openmp=yes ;;
  esac
done
[ $links = yes ] || exec "$gcc" "$@"
case $* in
-v | -V | -qversion | -version) exec "$gcc" "$@" ;;
esac

# Sources among the arguments, as configure's tests have, are compiled first.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
count=$#
i=0
while [ $i -lt $count ]; do
  argument=$1
  shift
  i=$((i + 1))
  case $argument in
  *.c)
    "$gcc" ${flags-} -c -o "$work/$i.o" "$argument"
    set -- "$@" "$work/$i.o"
    continue
    ;;
  -fopenmp)
    flags="${flags-} $argument"
    continue
    ;;
  -lgomp) continue ;;
  -I* | -D* | -O* | -f* | -std=*) flags="${flags-} $argument" ;;
  esac
  set -- "$@" "$argument"
done
if [ $openmp = yes ] && [ $shared = no ]; then
  set -- "$@" "$("$gcc" -print-file-name=libgomp.so)" -Wl,--allow-shlib-undefined
fi
# GCC's own runtime comes first: what zig has for __builtin_cpu_supports() says of
# every processor that it has no AVX.
"$OLD_GLIBC_ZIG" cc -target "$target" "$@" "$("$gcc" -print-libgcc-file-name)"
