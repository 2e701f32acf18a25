#!/bin/sh
# The store that the package brings is sound, names hosts by alias, and is made
# of the rows in git and of nothing else.
. "$(dirname "$0")/lib.sh"

rows=$top/data/stores
store=data/stores/tuning.db
[ -e "$store" ] || {
  echo "no $store here: skipped"
  exit 77
}

promise "the package's store is sound"
status 0 dfgnn-tune verify "$store" --json
holds '.[0].invalid == 0 and .[0].rows > 0'

promise "no row in git is lost"
rows_in_git=$(cat "$rows"/*.jsonl.gz | gzip -dc | wc -l)
[ "$rows_in_git" -ge 9297 ] || fail "git has $rows_in_git rows, expected at least 9297"
holds ".[0].rows == $rows_in_git"

promise "its rows are of variants there are (else: data/stores/update.sh FILE)"
holds '.[0].older == 0 and .[0].unknown == 0'

promise "it was measured, and only what was right is kept"
status 0 dfgnn-tune stat --store "$store" --json
holds 'length > 0 and all(.problems > 0 and .wrong == 0 and .failed == 0)'

promise "it names no host"
status 0 dfgnn-tune export --store "$store"
hosts=$(sed 's/.*"host":"\([^"]*\)".*/\1/' "$work/out" | sort -u)
[ -n "$hosts" ] || fail "no row has a host"
for host in $hosts; do
  [ -e "$rows/$host.jsonl.gz" ] || fail "host $host is no alias: git has no $host.jsonl.gz"
done

promise "it has the rows in git, in their order"
cat "$rows"/*.jsonl.gz | gzip -dc | LC_ALL=C sort >"$work/kept"
LC_ALL=C sort "$work/out" >"$work/sorted"
cmp -s "$work/kept" "$work/sorted" || fail "the rows differ"

promise "the same rows give the same bytes"
status 0 sh "$rows/make.sh" dfgnn-tune "$work/again.db" "$rows"/*.jsonl.gz
cmp -s "$store" "$work/again.db" || fail "the bytes differ"

promise "every problem of it keeps variants to fall back on"
status 0 dfgnn-tune export --store "$store" --best 1
few=$(wc -l <"$work/out")
[ "$few" -lt "$(wc -l <"$work/kept")" ] || fail "it has winners alone"

promise "its maker says what it needs"
status 1 sh "$rows/make.sh" "$work/no-such-tool" "$work/x.db"
says "TUNE_FOR_BUILD"
finish
