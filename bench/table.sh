#!/bin/sh
# Prints a Markdown table of figures of dfgnn-bench --json: for each graph and
# problem the tuned variant, its time, its shares of the floors, and how many times
# as fast it is as the rule's choice, the paper's, the better of the paper's two
# kernels, and unfused.  The rows of several files are put together.
#
#   bench/table.sh FILE.json...
. "$(dirname "$0")/lib.sh"
needs jq

[ $# -ge 1 ] || {
  sed -n '2,7s/^# \{0,1\}//p' "$0" >&2
  exit 2
}
jq -r -s '
def time: if . == null then "-" elif . < 1 then "\(. * 1000 | . * 10 | round
  / 10) us" else "\(. * 1000 | round / 1000) ms" end;
def share: if . == null then "-" else "\(. * 100 | round) %" end;
def times: if . == null then "-" else "\(. * 100 | round / 100)" end;
def of($role): map(select(.role | split(",") | index($role)))[0];
def over($other): if $other.median_ms == null or .median_ms == null then null
  else $other.median_ms / .median_ms end;
"| graph | problem | tuned variant | source | time | floor | gather | rule | paper | smmf, pmf | unfused |",
"|---|---|---|---|---|---|---|---|---|---|---|",
(add | group_by([.graph, .op, .dtype, .heads, .dim])[] | . as $rows |
 ($rows | of("tuned")) | select(. != null) |
 "| \(.graph) | \(.op) \(.dtype) \(.heads)x\(.dim) | `\(.variant)` | \(.source) " +
 "| \(.median_ms | time) | \(.floor_share | share) | \(.gather_share | share) " +
 "| \(over($rows | of("rule")) | times) | \(over($rows | of("paper")) | times) " +
 "| \(over($rows | of("smmf-pmf")) | times) " +
 "| \(over($rows | of("unfused")) | times) |")' "$@"
