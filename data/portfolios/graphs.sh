#!/bin/sh
# Prints the files of a part of the split, which surveys and judges take.
#
#   data/portfolios/graphs.sh USE[,USE...] FOLDER...     USE: fit, judge, large or paper, as split.tsv has it
#
# Real graphs are looked for in the folders, in that order.  Generated graphs are made
# in the first folder, as many at a time as there are cores, where they are missing.
# Graphs that no folder has are named on standard error.
set -eu
[ $# -ge 2 ] || {
  sed -n '2,8s/^# \{0,1\}//p' "$0" >&2
  exit 2
}
split=$(dirname "$0")/split.tsv
uses=$1
shift
first=$1
wanted() {
  awk -F'\t' -v uses=",$uses," '!/^#/ && index(uses, "," $2 ",") {print $1 "\t" $3}' "$split"
}
wanted | awk -F'\t' '$2 != "-" {print $1; print $2}' |
  xargs -n 2 -P "$(nproc)" sh -c \
    '[ -e "$0/$1.npz" ] || { dfgnn-graph generate "$2" -o "$0/.$1.npz" && mv "$0/.$1.npz" "$0/$1.npz"; }' \
    "$first" >&2
wanted | while read -r name _; do
  for folder in "$@"; do
    [ ! -e "$folder/$name.npz" ] || {
      echo "$folder/$name.npz"
      continue 2
    }
  done
  echo "$name: in none of the folders" >&2
done
