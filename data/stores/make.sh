#!/bin/sh
# The store that the package brings, from the rows that are kept in git:
#
#   make.sh DFGNN-TUNE OUT.db ROWS.jsonl.gz...
#
# The rows pass through a store in TMPDIR, since SQLite must not write on network
# file systems, where a build folder may be.
set -eu

tune=$1 out=$2
shift 2
"$tune" --version >/dev/null 2>&1 || {
  echo "$0: $tune does not run here; when cross compiling, name one that does:" \
    "make TUNE_FOR_BUILD=dfgnn-tune" >&2
  exit 1
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for rows; do
  gzip -dc "$rows" >"$work/rows.jsonl"
  "$tune" import "$work/rows.jsonl" --store "$work/all.db" --quiet
done
"$tune" publish "$out" --store "$work/all.db" --quiet
