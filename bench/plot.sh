#!/bin/sh
# Draws figures of dfgnn-bench --json by dfgnn-plot.
#
#   bench/plot.sh FILE.json OUT.svg TITLE X [LINE [Y]]
#
# X, LINE and Y are filters of jq on a row: X gives a number, LINE the name of the
# line (default: the row's roles), Y a number (default .median_ms).  Both axes are
# logarithmic.  Rows without a LINE or a Y are left out.
. "$(dirname "$0")/lib.sh"
needs jq dfgnn-plot node

[ $# -ge 4 ] || {
  sed -n '2,9s/^# \{0,1\}//p' "$0" >&2
  exit 2
}
file=$1
out=$2
title=$3
x=$4
line=${5:-}
[ -n "$line" ] || line='.role | split(",")[]'
y=${6:-.median_ms}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

jq -r "[.[] | {x: ($x), line: ($line), y: ($y), label: \"$y\"} |
  select(.y != null and .line != null and .line != \"\")] |
  group_by(.line)[] | \"\\\"\" + .[0].line + \"\\\"\",
  (sort_by(.x)[] | \"\\(.x) \\(.y)\"), \"\", \"\"" "$file" >"$work/data"
grep -q '^"' "$work/data" || {
  echo "$0: no rows to draw in $file" >&2
  exit 1
}
dfgnn-plot lines -x -y "$title" "${XLABEL-$x}" "${YLABEL-$y}" "$work/data" \
  >"$out.new"
mv "$out.new" "$out"
