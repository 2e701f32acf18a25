#!/bin/sh
# Writes the device sources named on the command line, which lie below the
# folder $1, to standard output: each behind a line "name bytes", compressed.
set -eu
top=$1
shift
for file; do
  printf '%s %d\n' "$file" "$(wc -c <"$top/$file")"
  cat "$top/$file"
done | gzip -9n
