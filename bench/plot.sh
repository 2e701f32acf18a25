#!/bin/sh
# A picture of figures of dfgnn-bench --json, by gnuplot.
#
#   bench/plot.sh FILE.json OUT.svg TITLE X [LINE [Y]]
#
# X, LINE and Y are filters of jq on a row: X a number, LINE what the rows of
# one line share (default its roles), Y a number (default .median_ms).  Both axes
# are logarithmic.  Rows without a LINE or a Y are left out.
. "$(dirname "$0")/lib.sh"
needs jq gnuplot

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
lines=$(grep -c '^"' "$work/data")
[ "$lines" -gt 0 ] || {
  echo "$0: no rows to draw in $file" >&2
  exit 1
}
gnuplot >"$out.new" <<END
set terminal svg size 800,500 font "sans-serif,13" background "white"
set title "$title" noenhanced
set logscale x 2
set logscale y
set autoscale xfix
set xlabel "${XLABEL-$x}" noenhanced
set ylabel "${YLABEL-$y}" noenhanced
set grid
set key outside right noenhanced
plot for [i=0:$((lines - 1))] "$work/data" index i using 1:2 \
  with linespoints lw 2 title columnheader(1)
END
mv "$out.new" "$out"
