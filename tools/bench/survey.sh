#!/bin/sh
# Surveys the cells of data/portfolios/cells.txt on the graphs of data/portfolios/split.tsv: on all GPUs of this
# machine, and on cores of its own meanwhile.
#
#   tools/bench/survey.sh OUT MINUTES
#
# OUT gets gpu.csv, cpu1.csv and cpu2.csv (one and two threads); the same command goes on
# with what is there, also where it is compressed (gpu.csv.xz). Graphs are generated in
# OUT/graphs. The last lines say what is complete.
#
#   GRAPHS="DIR ..."   folders of real graphs (default data)
#   USES=fit,judge     parts of the split
#   DEVICE=all         GPUs; "": none
#   SHARDS=4           processes for each number of CPU threads; 0: no CPU survey
#   CPU_CELLS=LIST     cells that CPUs survey; CPU_EDGES=250000: on graphs up to so many edges
set -eu
[ $# -eq 2 ] || {
  sed -n '2,16s/^# \{0,1\}//p' "$0" >&2
  exit 2
}
out=$1
seconds=$(awk -v m="$2" 'BEGIN {printf "%d", 60 * m}')
began=$(date +%s)
top=$(cd "$(dirname "$0")/../.." && pwd)
say() { echo "$(date -u +%H:%M:%S) $*" >&2; }
shards=${SHARDS:-4}
mkdir -p "$out/graphs"
left() { echo $((seconds - $(date +%s) + began)); }

for name in gpu cpu1 cpu2; do
  [ -e "$out/$name.csv" ] || [ ! -e "$out/$name.csv.xz" ] || xz -dk "$out/$name.csv.xz"
  [ -e "$out/$name.csv" ] || [ ! -e "$out/$name.csv.gz" ] || gzip -dk "$out/$name.csv.gz"
done
# shellcheck disable=SC2086 # folders are separated by blanks
"$top/data/portfolios/graphs.sh" "${USES:-fit,judge}" "$out/graphs" ${GRAPHS:-"$top/data"} >"$out/list"
say "$(wc -l <"$out/list") graphs after $(($(date +%s) - began)) s"

# Each process of the CPU survey has physical cores of its own, the last ones.
cores=$(lscpu -p=CPU,CORE | awk -F, '!/^#/ && !seen[$2]++ {print $1}')
wanted=$((3 * shards))
[ "$(echo "$cores" | wc -l)" -gt $((wanted + 2)) ] || shards=0
all=$(lscpu -p=CPU | grep -v '^#' | paste -sd, -)
gpu_cores=$all
if [ "$shards" -gt 0 ]; then
  quiet=$(echo "$cores" | tail -n "$wanted")
  # the siblings of quiet cores stay idle, too
  gpu_cores=$(lscpu -p=CPU,CORE | awk -F, -v quiet="$(echo "$quiet" | paste -sd' ' -)" '
    BEGIN {n = split(quiet, q, " "); for (i = 1; i <= n; i++) is_quiet[q[i]] = 1}
    !/^#/ {core[$1] = $2; if ($1 in is_quiet) taken[$2] = 1}
    END {for (c in core) if (!(core[c] in taken)) print c}' | sort -n | paste -sd, -)
  small=$(dfgnn-graph info $(cat "$out/list") |
    awk -v most="${CPU_EDGES:-250000}" 'NR > 1 && $4 <= most {print $1}')
  for name in $small; do grep "/${name}[.]npz\$" "$out/list"; done >"$out/small"
fi

survey() { # NAME CORES OPTION...
  name=$1 on=$2
  shift 2
  taskset -c "$on" dfgnn-tune survey --cells "${CELLS:-$top/data/portfolios/cells.txt}" -o "$out/$name.csv" \
    --time-limit "$(left)s" "$@" 2>>"$out/$name.log" || true
}

k=0
while [ $k -lt "$shards" ]; do
  k=$((k + 1))
  one=$(echo "$quiet" | sed -n "${k}p")
  two=$(echo "$quiet" | sed -n "$((shards + 2 * k - 1)),$((shards + 2 * k))p" | paste -sd, -)
  for threads in 1 2; do
    on=$one
    [ $threads -eq 1 ] || on=$two
    OMP_NUM_THREADS=$threads survey cpu$threads "$on" $(cat "$out/small") --device cpu \
      --threads $threads --shard $k/"$shards" ${CPU_CELLS:+--only "$CPU_CELLS"} &
  done
done
if [ -n "${DEVICE-all}" ]; then
  OMP_NUM_THREADS=8 OMP_WAIT_POLICY=passive survey gpu "$gpu_cores" $(cat "$out/list") \
    --device "${DEVICE-all}" || true
fi
wait
for name in gpu cpu1 cpu2; do
  [ -e "$out/$name.csv" ] || continue
  xz -T0 -5 -kf "$out/$name.csv" || gzip -kf "$out/$name.csv"
  graphs=$out/list
  [ $name = gpu ] || graphs=$out/small
  say "$name: $(grep 'measured in' "$out/$name.log" | tail -n 1)"
  dfgnn-tune survey $(cat "$graphs") --cells "${CELLS:-$top/data/portfolios/cells.txt}" -o "$out/$name.csv" --status
done
