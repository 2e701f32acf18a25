#!/bin/sh
# The objects of the library and the tools need of OpenMP what a wheel finds in
# the runtime of the process that loads it.
. "$(dirname "$0")/lib.sh"

command -v readelf >/dev/null || exit 77
cd "${top_builddir:-.}" || exit 1
[ -e config.status ] || { echo "there is no build here: skipped"; exit 77; }
find lib kernels db graph tuner select tools -name '*.o' >"$work/objects"
[ "$(wc -l <"$work/objects")" -gt 100 ] || fail "there are no objects"
xargs readelf -s -W <"$work/objects" | grep -c " GOMP_parallel$" >/dev/null ||
  { echo "this compiler's OpenMP is not GCC's: skipped"; exit 77; }

promise "no object needs more of OpenMP than the wheel's runtime has"
# shellcheck disable=SC2046
status 0 "$top/packaging/build/openmp-symbols.sh" $(cat "$work/objects")
[ ! -s "$work/out" ] || fail "needed: $(tr '\n' ' ' <"$work/out")"

promise "'omp single' is found"
printf 'void f(void);\nvoid g(void) {\n#pragma omp parallel\n#pragma omp single\nf();\n}\n' \
  >"$work/single.c"
if ${CC:-gcc} -fopenmp -c -o "$work/single.o" "$work/single.c" 2>/dev/null; then
  status 0 "$top/packaging/build/openmp-symbols.sh" "$work/single.o"
  prints '^GOMP_single_start$'
fi

finish
