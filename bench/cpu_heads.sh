#!/bin/sh
# Times attention of the same 64 features in one head of 64, four of 16 and eight
# of 8 on one thread of a CPU, forward and backward; prints the table of
# docs/performance.md.  The shapes take turns, and a number is the least median
# of all serial variants of an instruction set in all turns.
#
#   bench/cpu_heads.sh OUT.json GRAPH.npz
#
#   BUILD=DIR                the build folder
#   OPS="gt gat gatv2 agnn"
#   DTYPES="f32"             and f64, f16, bf16
#   SIMD=avx512              the instruction set
#   TURNS=3
. "$(dirname "$0")/lib.sh"
needs jq dfgnn-bench

[ $# -eq 2 ] || {
  sed -n '2,14s/^# \{0,1\}//p' "$0" >&2
  exit 2
}
simd=${SIMD:-avx512}
graph=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export OMP_NUM_THREADS=1
time_one() { # DTYPE OP PASS HEADS TURN
  dfgnn-bench "$graph" --op "$2" --pass "$3" --heads "$4" --dim $((64 / $4)) \
    --dtype "$1" --device cpu --threads 1 --no-check --json -q \
    --store "$work/store.db" --variants "*simd=$simd*schedule=serial*" \
    >"$work/$1-$2-$3-$4-$5.json"
}
for dtype in ${DTYPES:-f32}; do
  for op in ${OPS:-gt gat gatv2 agnn}; do
    for pass in forward backward; do
      say "$dtype $op $pass, load $(cut -d' ' -f1 /proc/loadavg 2>/dev/null)"
      for turn in $(seq "${TURNS:-3}"); do
        for heads in 1 4 8; do
          time_one "$dtype" "$op" "$pass" "$heads" "$turn"
        done
      done
    done
  done
done
jq -s 'add | map(select(.status == "ok")) | group_by([.dtype, .op, .pass, .heads]) |
  map(min_by(.median_ms) |
    {dtype, op, pass, heads, dim, median_ms, variant, device})' \
  "$work"/*.json >"$1"
echo "| type | operator | pass | 1 x 64 | 4 x 16 | 8 x 8 | 4 x 16 over it | 8 x 8 over it |"
echo "| --- | --- | --- | --- | --- | --- | --- | --- |"
jq -r 'group_by([.dtype, .op, .pass])[] | map(.median_ms * 1000) as $us |
  "| \(.[0].dtype) | \(.[0].op) | \(.[0].pass) | " + ([$us[] | "\(round) us"] | join(" | ")) +
  ([$us[1:][] | " | \(. / $us[0] * 100 | round / 100)"] | join("")) + " |"' "$1"
