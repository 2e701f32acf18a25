#!/bin/sh
# Compares the tuned backward pass with the tuned forward pass, by operator and graph.
#
#   bench/backward.sh OUT.json GRAPH... [PROBLEM OPTIONS OF dfgnn-tune]
#
#   STORE=FILE   measurements (default OUT.db; what is there is not repeated)
#   BUDGET=TIME  of a problem's tuning (default 10s)
#   LIMIT=TIME   of all tuning (default 1h); it resumes when called again
#   ROUNDS=N     samples of each choice (default 30)
. "$(dirname "$0")/lib.sh"
needs dfgnn-tune dfgnn-bench jq

[ $# -ge 2 ] || {
  sed -n '2,10s/^# \{0,1\}//p' "$0" >&2
  exit 2
}
out=$1
shift
store=${STORE:-${out%.json}.db}
say "tuning into $store"
dfgnn-tune run "$@" --pass forward,backward --store "$store" \
  --budget "${BUDGET:-10s}" --time-limit "${LIMIT:-1h}" >/dev/null
say "timing the choices"
dfgnn-bench "$@" --pass forward,backward --store "$store" --variants tuned \
  --rounds "${ROUNDS:-30}" --json |
  jq '[group_by(.graph, .op)[] | (map({(.pass): .}) | add) as $p |
    $p.backward + {forward_ms: $p.forward.median_ms,
                   forward_variant: $p.forward.variant,
                   over_forward: ($p.backward.median_ms / $p.forward.median_ms)}]' \
    >"$out.new"
mv "$out.new" "$out"
jq -r '.[] | "\(.graph) \(.op): \(.forward_ms) ms, backward \(.median_ms) ms, " +
  "\(.over_forward * 100 | round / 100) times"' "$out"
