#!/bin/sh
# Compares the tuned choice on the CPU with the same layer composed of torch's CPU
# operators as PyG composes it.  One run tunes, then times each graph by dfgnn-bench
# and by torch, twice, and keeps the better time of each.
#
#   bench/cpu_vs_torch.sh OUT.json GRAPH.npz...
#
#   OPTIONS='--op gt --dim 128'   the problem; several operators are allowed
#   THREADS=2                     threads of both
#   STORE=FILE                    (default OUT.db)
#   PYTHON=python3                one that has torch, numpy and scipy
. "$(dirname "$0")/lib.sh"
needs dfgnn-tune dfgnn-bench jq

[ $# -ge 2 ] || {
  sed -n '2,11s/^# \{0,1\}//p' "$0" >&2
  exit 2
}
out=$1
shift
options=${OPTIONS:---op gt --dim 128}
threads=${THREADS:-2}
store=${STORE:-${out%.json}.db}
python=${PYTHON:-python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

say "tuning"
# shellcheck disable=SC2086
dfgnn-tune run "$@" $options --device cpu --threads "$threads" \
  --store "$store" --budget "${BUDGET:-10s}" >/dev/null
for turn in 1 2; do
  say "turn $turn: dfgnn-bench"
  # shellcheck disable=SC2086
  dfgnn-bench "$@" $options --device cpu --threads "$threads" \
    --store "$store" --json >"$work/bench$turn.json"
  for graph; do
    name=$(basename "$graph" .npz)
    say "turn $turn: torch on $name"
    # shellcheck disable=SC2086
    "$python" "$bench/torch_cpu.py" "$graph" $options --threads "$threads" \
      >"$work/torch.$name.$turn.json"
  done
done
for graph; do
  name=$(basename "$graph" .npz)
  jq -s 'add | group_by(.op) | map({key: (.[0].graph + " " + .[0].op),
    value: (map(.median_ms) | min)}) | from_entries' "$work/torch.$name".*.json
done | jq -s add >"$work/torch.json"
jq -s --slurpfile torch "$work/torch.json" '
  [.[][] | select(.median_ms != null)] | group_by([.graph, .op, .variant]) |
  map(min_by(.median_ms)) | map($torch[0][.graph + " " + .op] as $ms |
    . + {torch_ms: $ms, speedup_torch: ($ms / .median_ms)})' \
  "$work"/bench?.json >"$out"
jq -r '.[] | select(.role | split(",") | index("tuned")) |
  "\(.graph), \(.op): \(.speedup_torch) times as fast as torch, " +
  "\(.speedup_unfused) as unfused"' "$out"
