#!/bin/sh
# openmp-symbols.sh OBJECT...: prints the symbols of OpenMP that objects or
# libraries need and that a torch since 2.0 may not bring: its oldest runtime is
# that of the first releases of GCC 7.
openmp='GOMP_parallel|GOMP_loop_(nonmonotonic_)?(dynamic|guided)_(start|next)'
openmp="$openmp|GOMP_loop_end(_nowait)?|GOMP_(critical|atomic)_(name_)?(start|end)"
openmp="$openmp|GOMP_loop_ordered_static_(start|next)|GOMP_ordered_(start|end)"
openmp="$openmp|GOMP_barrier|omp_[gs]et_[a-z_]*"
readelf -s -W "$@" |
  awk '$7 == "UND" && $5 != "WEAK" && $8 ~ /^(GOMP|GOACC|omp)_/ { sub(/@.*/, "", $8); print $8 }' |
  sort -u | grep -Evx "$openmp"
[ $? -le 1 ]
