#!/bin/sh
# bench/campaign.sh: what it measures, what it leaves, and what it calls stale.
. "$(dirname "$0")/lib.sh"

table=$work/table.tsv results=$work/results
{
  echo '# a comment'
  printf '%s\t' one.json 60 kernels cora '--op gt --dim 16'
  echo '--variants tuned,rule --rounds 2 --no-check'
  printf '%s\t' two.json 60 kernels \
    'knn:nodes=60,k=4,seed=1 knn:nodes=70,k=4,seed=1' '--op gt --dim 8'
  echo -
  printf '%s\t' none.json 5 python - no_such_script.py
  echo -
} >"$table"

campaign() { # COMMIT STATUS ARGUMENTS
  commit=$1 code=$2
  shift 2
  status "$code" env TABLE="$table" COMMIT="$commit" DEVICE=cpu BUDGET=100ms \
    GRAPHS="$top/data" sh "$top/bench/campaign.sh" "$@"
}

promise "a campaign measures what is missing, and says what it could not"
campaign 0123456789ab 0 "$results" 5
prints '^one.json  *current '
prints '^two.json  *current '
prints '^none.json  *missing '
says 'no_such_script.py exits'
[ "$(jq length "$results/two.json")" -ge 2 ] || fail "two.json lacks a graph"
jq -e 'all(.commit == "0123456789ab")' "$results/one.json" >/dev/null ||
  fail "rows do not say their commit"

promise "a script begins only if its seconds are left"
printf '%s\t' slow.json 600 python - python_steps.py >"$work/slow.tsv"
echo - >>"$work/slow.tsv"
status 0 env TABLE="$work/slow.tsv" DEVICE=cpu sh "$top/bench/campaign.sh" \
  "$results" 0.5
says 'slow.json: .* s are left, and it takes 600'
prints '^slow.json  *missing '

promise "what is current is not measured again"
cp "$results/one.json" "$work/before"
campaign 0123456789ab 0 "$results" 1
cmp -s "$work/before" "$results/one.json" || fail "one.json was made anew"

promise "results of several commits are told from those of one"
jq '.[0].commit = "ba9876543210"' "$results/two.json" >"$work/mixed"
cp "$work/mixed" "$results/two.json"
campaign 0123456789ab 1 --status "$results"
prints '^two.json  *mixed '

promise "results of another commit are stale, and of none unknown"
campaign fedcba987654 1 --status "$results"
prints '^one.json  *stale '
jq 'map(del(.commit))' "$work/before" >"$results/one.json"
campaign fedcba987654 1 --status "$results"
prints '^one.json  *unknown '

promise "the coverage is counted where it was measured"
echo '[{"graphs": 0}, {"graphs": 2}, {"graphs": 5}]' >"$results/coverage.json"
campaign fedcba987654 1 --status "$results"
prints 'coverage: 3 families in cells, 1 of them on no graph, 2 on fewer than 3'

promise "a number of minutes that is none is refused"
campaign 0123456789ab 2 "$results" soon
says "found 'soon' minutes" 'expected a number'
finish
