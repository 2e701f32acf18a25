#!/bin/sh
# Times dispatch on the host: a cached plan, a new plan, a new graph.
#
#   bench/dispatch.sh OUT.json GRAPH... [OPTIONS OF dfgnn-bench]
. "$(dirname "$0")/lib.sh"
needs dfgnn-bench jq

[ $# -ge 2 ] || {
  sed -n '2,4s/^# \{0,1\}//p' "$0" >&2
  exit 2
}
out=$1
shift
dfgnn-bench "$@" --dispatch --json >"$out.new"
mv "$out.new" "$out"
jq -r '.[] | "\(.graph): cached plan \(.cached_plan_ns | round) ns, new plan " +
  "\(.new_plan_ns | round) ns, new graph \(.new_graph_ns | round) ns " +
  "(20 us + 2 ns an edge: \(20000 + 2 * .edges)), execute \(.execute_ns | round) ns"' "$out"
