#!/bin/sh
# A run that is killed at any moment keeps what it measured, and resumes.
# DFGNN_SOAK=N kills N times.
. "$(dirname "$0")/lib.sh"

kills=${DFGNN_SOAK:-8}
unset DFGNN_SOAK
[ "$kills" -gt 0 ] || {
  echo "DFGNN_SOAK is $kills, expected a number above 0"
  exit 99
}
store=$work/kill.db
rows() { [ ! -e "$store" ] || dfgnn-tune export --store "$store" | sort; }

promise "what was kept before a kill is there after it"
seed=$(date +%s)
echo "seed $seed"
: >"$work/before"
i=0
while [ $i -lt "$kills" ]; do
  i=$((i + 1))
  seed=$(((seed * 1103515245 + 12345) % 2147483648))
  # shellcheck disable=SC2086
  dfgnn-tune run "$small" $quick --again all --dim 1,2,3,4 --store "$store" \
    >/dev/null 2>&1 &
  pid=$!
  sleep "0.$(printf %03d $((seed / 65536 % 900)))"
  kill -9 $pid 2>/dev/null
  wait $pid 2>/dev/null
  rows >"$work/after" || fail "kill $i: the store cannot be read"
  [ -z "$(comm -23 "$work/before" "$work/after")" ] ||
    fail "kill $i: rows are lost"
  mv "$work/after" "$work/before"
done
echo "$kills kills, $(wc -l <"$work/before") rows"
[ -s "$work/before" ] || fail "no run kept a row before it was killed"
status 0 dfgnn-tune verify "$store"

promise "the same command resumes"
# shellcheck disable=SC2086
status 0 dfgnn-tune run "$small" $quick --dim 1 --store "$store" --json
# shellcheck disable=SC2086
status 0 dfgnn-tune run "$small" $quick --dim 1 --store "$store" --json
holds '.[0].resumed > 0'

finish
