#!/bin/sh
# bench/campaign.sh: what it measures, what it leaves, and what it calls stale.
. "$(dirname "$0")/lib.sh"

table=$work/table.tsv results=$work/results code=$work/code
mkdir "$code"
printf '#include "%s/part.cuh"\nint one; // a comment\n' "$code" >"$code/one.cuh"
echo 'int part;' >"$code/part.cuh"
row() { # FILE SECONDS PARTS PROBLEMS OPTIONS
  printf '%s\t%s\t%s\t%s\t%s\t%s\n' "$1" "$2" "$code" "$3" "$4" "$5"
}
{
  echo '# a comment'
  row one.json 60 cora '--op gt --dim 16' '--variants tuned,rule --rounds 2 --no-check'
  row two.json 60 'knn:nodes=60,k=4,seed=1 knn:nodes=70,k=4,seed=1' '--op gt --dim 8' -
  row none.json 5 - no_such_script.py -
} >"$table"

campaign() { # COMMIT STATUS ARGUMENTS
  commit=$1 code_of_exit=$2
  shift 2
  status "$code_of_exit" env TABLE="$table" COMMIT="$commit" DEVICE=cpu BUDGET=100ms \
    GRAPHS="$top/data" sh "$top/bench/campaign.sh" "$@"
}

promise "a campaign measures what is missing, and says what it could not"
campaign 0123456789ab 0 "$results" 5
prints '^one.json  *current '
prints '^two.json  *current '
prints '^none.json  *missing '
says 'no_such_script.py exits'
[ "$(jq length "$results/two.json")" -ge 2 ] || fail "two.json lacks a graph"
jq -e 'all(.commit == "0123456789ab" and (.digest | length == 12) and .part == "cora")' \
  "$results/one.json" >/dev/null || fail "rows do not say their commit, digest and part"

promise "a script begins only if its seconds are left"
row slow.json 600 - python_steps.py - >"$work/slow.tsv"
status 0 env TABLE="$work/slow.tsv" DEVICE=cpu sh "$top/bench/campaign.sh" \
  "$results" 0.5
says 'slow.json: .* s are left, and it takes 600'
prints '^slow.json  *missing '

promise "what is current is not measured again"
cp "$results/one.json" "$work/before"
campaign 0123456789ab 0 "$results" 1
cmp -s "$work/before" "$results/one.json" || fail "one.json was made anew"

promise "a later commit that leaves the code as it is, or changes comments, is none of its"
grep -v none "$table" >"$work/less" && cp "$work/less" "$table"
campaign fedcba987654 0 --status "$results"
printf '/* two\n lines */\n#include "%s/part.cuh"\n int  one;\n' "$code" >"$code/one.cuh"
campaign fedcba987654 0 --status "$results"
prints '^one.json  *current '

promise "code that is another makes its rows stale, each of a file by itself"
jq '.[0].digest = "ba9876543210"' "$results/two.json" >"$work/mixed"
cp "$results/two.json" "$work/two"
cp "$work/mixed" "$results/two.json"
campaign fedcba987654 1 --status "$results"
prints '^one.json  *current '
prints '^two.json  *stale 1 '
cp "$work/two" "$results/two.json"
echo 'int another;' >>"$code/part.cuh"
campaign fedcba987654 1 --status "$results"
prints '^one.json  *stale 1 '
echo 'int part;' >"$code/part.cuh"

promise "a row that names its device code is judged by that and what it includes"
digest=$(work=$work/digests top=$top && mkdir "$work" &&
  . "$top/bench/campaign_state.sh" && digest_of closure_of "$code/one.cuh")
jq --arg code "$code/one.cuh" --arg digest "$digest" 'map(. + {$code, $digest})' \
  "$work/before" >"$results/one.json"
echo 'int other;' >"$code/other.cuh"
campaign fedcba987654 1 --status "$results"
prints '^one.json  *current '
prints '^two.json  *stale '
rm "$code/other.cuh"
echo 'int part[2];' >"$code/part.cuh"
campaign fedcba987654 1 --status "$results"
prints '^one.json  *stale '
echo 'int part;' >"$code/part.cuh"

promise "so is one of a variant whose revision was raised, or that is gone"
jq 'map(.revision -= 1)' "$work/before" >"$results/one.json"
campaign 0123456789ab 1 --status "$results"
prints '^one.json  *stale '
jq 'map(.variant = "cpu.attention.fwd.nameless/x=1")' "$work/before" >"$results/one.json"
campaign 0123456789ab 1 --status "$results"
prints '^one.json  *stale '

promise "rows without a digest are of their commit alone, and of none unknown"
jq 'map(del(.digest))' "$work/before" >"$results/one.json"
campaign 0123456789ab 0 --status "$results"
campaign fedcba987654 1 --status "$results"
prints '^one.json  *stale '
jq 'map(del(.commit, .digest))' "$work/before" >"$results/one.json"
campaign fedcba987654 1 --status "$results"
prints '^one.json  *unknown '

promise "the coverage is counted where it was measured"
echo '[{"graphs": 0}, {"graphs": 2}, {"graphs": 5}]' >"$results/coverage.json"
campaign fedcba987654 1 --status "$results"
prints 'coverage: 3 families in cells, 1 of them on no graph, 2 on fewer than 3'

promise "two devices share the parts, and all rows are in one file and one store"
rm -rf "$results"
row many.json 60 'cora citeseer' '--op gt --dim 4' '--variants rule --rounds 2' >"$table"
status 0 env TABLE="$table" COMMIT=0123456789ab DEVICE=cpu DEVICES=0,1 BUDGET=100ms \
  GRAPHS="$top/data" sh "$top/bench/campaign.sh" "$results" 5
prints '^many.json  *current '
says '2 parts on 2 lists, 100ms a problem'
[ "$(jq -r '[.[].part] | unique | join(" ")' "$results/many.json")" = "citeseer cora" ] ||
  fail "many.json lacks a graph"
[ "$(dfgnn-tune export --store "$results/tuning.db" | jq -r 'select(.dim == 4) | .graph' |
  sort -u | wc -l)" -eq 2 ] || fail "the store lacks a graph"

promise "budgets are smaller where minutes are too few"
row big.json 6000 cora '--op gt --dim 4' - >"$work/big.tsv"
status 0 env TABLE="$work/big.tsv" COMMIT=0123456789ab DEVICE=cpu BUDGET=10s \
  GRAPHS="$top/data" sh "$top/bench/campaign.sh" "$results" 0.05
says '1 parts on 1 lists, 1000ms a problem'

promise "a file that lacks a part says so, and that part alone is measured"
jq 'map(select(.part == "cora"))' "$results/many.json" >"$work/half"
cp "$work/half" "$results/many.json"
campaign 0123456789ab 1 --status "$results"
prints '^many.json  *partial 1 '
campaign 0123456789ab 0 "$results" 5
prints '^many.json  *current '

promise "what a script wrote until its time was over is kept"
mkdir "$work/bin"
cat >"$work/bin/python" <<'END'
#!/bin/sh
[ "$1" != -c ] || exit 1
echo '[{"ms": 1}]' >"$2"
[ "$3" = fast ] || exec sleep 60
END
chmod +x "$work/bin/python"
row script.json 2 'fast slow' any.py '@FILE @PART' >"$table"
status 0 env TABLE="$table" COMMIT=0123456789ab DEVICE=cpu PYTHON="$work/bin/python" \
  sh "$top/bench/campaign.sh" "$results" 5
prints '^script.json  *partial '
jq -e 'length == 2 and map(.partial // false) == [false, true]' "$results/script.json" \
  >/dev/null || fail "script.json has not the rows that were written"

promise "a number of minutes that is none is refused"
campaign 0123456789ab 2 "$results" soon
says "found 'soon' minutes" 'expected a number'
finish
