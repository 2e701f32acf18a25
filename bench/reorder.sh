#!/bin/sh
# Measures the gain of reordering the nodes, by kernel mapping (gather-per-edge or
# feature-parallel): for every graph and order the time before over the time after,
# and the number of calls after which the order is earned back.
#
#   bench/reorder.sh OUT GRAPH... [OPTIONS OF dfgnn-bench]
#
# Makes OUT.json, unless it is there, OUT.svg, if there is node, and prints a
# Markdown table.  A bar, and a cell, is the geometric mean over the variants of
# the mapping; OPTIONS such as --op, --pass, --dim, --device and --variants choose
# the problem and the variants.  ORDERS=LIST names orders instead of all.
. "$(dirname "$0")/lib.sh"
needs jq

[ $# -ge 1 ] || {
  sed -n '2,12s/^# \{0,1\}//p' "$0" >&2
  exit 2
}
out=$1
shift
[ -s "$out.json" ] || needs dfgnn-bench
once "$out.json" dfgnn-bench "$@" --reorder "${ORDERS:-all}" --json

figures='
def mean: if length == 0 then null else (map(log) | add / length | exp) end;
def rows: map(select(.status == "ok" and .ratio != null and .role == ""));
def median: sort | if length == 0 then null else .[length / 2 | floor] end;
'
jq -r "$figures"'
def figure: if . == null then "-" else . * 100 | round / 100 end;
rows |
"| order | mapping | graphs | faster (geometric mean) | least | most | pays back after (median of calls, where it does) |",
"|---|---|---|---|---|---|---|",
(group_by([.reorder, .mapping])[] |
 "| \(.[0].reorder) | \(.[0].mapping) | \(map(.graph) | unique | length) " +
 "| \(map(1 / .ratio) | mean | figure) | \(map(1 / .ratio) | min | figure) " +
 "| \(map(1 / .ratio) | max | figure) " +
 "| \(map(.payback_calls // empty) | median // "never") |")' "$out.json"

command -v node >/dev/null || {
  say "node is not found: no $out.svg"
  exit 0
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
orders=$(jq -r '[.[].reorder] | unique | join(" ")' "$out.json")
for mapping in gather-per-edge feature-parallel; do
  jq -r --arg mapping "$mapping" --arg orders "$orders" "$figures"'
($orders | split(" ")) as $orders | rows | map(select(.mapping == $mapping)) |
"graph " + ($orders | join(" ")),
(group_by(.graph)[] | . as $rows | "\"\(.[0].graph)\" " + ($orders | map(. as $o |
 $rows | map(select(.reorder == $o) | 1 / .ratio) | mean // "nan" | tostring) |
 join(" ")))' "$out.json" >"$work/$mapping"
done
title=$(jq -r '.[0] | "\(.op) \(.pass), \(.heads) x \(.dim), \(.dtype), \(.device)"' \
  "$out.json")
dfgnn-plot bars -y "what reordering gains: $title" '' 'time before / after' \
  "$work/gather-per-edge" "$work/feature-parallel" >"$out.svg.new"
mv "$out.svg.new" "$out.svg"
say "made $out.svg"
