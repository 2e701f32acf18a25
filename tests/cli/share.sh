#!/bin/sh
# Stores are shared: merged, filtered, exported, compared and pruned.
. "$(dirname "$0")/lib.sh"

export_of() { dfgnn-tune export --store "$1"; }

# A real row, and from it a run of five variants, of which one wins.
# shellcheck disable=SC2086
status 0 dfgnn-tune run "$small" $quick --store "$work/run.db"
export_of "$work/run.db" >"$work/run.jsonl"
dfgnn-tune variants --json >"$work/variants.json"
names=$(dfgnn-tune explain "$small" --device cpu --dim 8 --store "$work/none.db" \
  --json | jq -c --slurpfile all "$work/variants.json" '.[0].candidates |
  [.[].variant] as $members | [$members[] as $v | first($all[0][] |
    select(.variant == $v))] + ([$all[0][] | select(.backend == "cpu" and
    .algorithm == "online" and (.variant | IN($members[]) | not))] |
    unique_by(.variant)[:3]) | map({variant, revision})')
members=$(echo "$names" | jq length) # and three others, the fastest
jq -c --argjson names "$names" 'select(.status == "ok" and .variant == .anchor)
  | . as $row | $names | to_entries[] | (1 - .key / 64) as $ratio
  | $row + .value + {anchor: $names[0].variant,
    anchor_revision: $names[0].revision, ratio: $ratio,
    ratio_low: ($ratio * 0.999), ratio_high: ($ratio * 1.001)}' \
  "$work/run.jsonl" >"$work/made.jsonl"
status 0 dfgnn-tune import "$work/made.jsonl" --store "$work/base.db" -q
export_of "$work/base.db" >"$work/base.jsonl"
[ "$(wc -l <"$work/base.jsonl")" = "$members" ] && [ "$members" -gt 4 ] ||
  fail "no row to begin with"

# Three stores that overlap: measurements of other runs, devices and days.
make_store() { # NAME JQ
  jq -c "$2" "$work/base.jsonl" >"$work/$1.jsonl"
  status 0 dfgnn-tune import "$work/$1.jsonl" --store "$work/$1.db"
}
make_store a '.'
make_store b '., (.seed = "00000000000000aa" | .time -= 86400)'
make_store c '(.arch = "sm_90" | .model = "NVIDIA H200" | .backend = "cuda"
  | .variant |= sub("^cpu"; "cuda") | .anchor |= sub("^cpu"; "cuda")
  | .time = 1000000000), .'

promise "import and export lose nothing"
export_of "$work/a.db" | cmp -s - "$work/base.jsonl" || fail "the text differs"
jq -c . "$work/c.jsonl" | sort >"$work/sorted" # as jq writes numbers
export_of "$work/c.db" | jq -c . | sort | cmp -s - "$work/sorted" ||
  fail "the rows differ"

promise "merges in any order, any number of times, give the same export"
first=
for order in "a b c" "a c b" "b a c" "b c a" "c a b" "c b a"; do
  m="$work/merged-$(echo "$order" | tr -d ' ').db"
  for twice in 1 2; do
    for s in $order; do
      status 0 dfgnn-tune merge "$m" "$work/$s.db" --quiet
    done
    sum=$(export_of "$m" | cksum)
    [ "${first:-$sum}" = "$sum" ] || fail "order $order, time $twice"
    first=$sum
  done
done
status 0 dfgnn-tune merge "$work/all.db" "$work/a.db" "$work/b.db" "$work/c.db"
[ "$(export_of "$work/all.db" | cksum)" = "$first" ] || fail "at once"
[ "$(export_of "$work/all.db" | wc -l)" -gt "$(wc -l <"$work/base.jsonl")" ] ||
  fail "nothing came of the others"

promise "what was added, known and skipped is told"
n=$(wc -l <"$work/base.jsonl")
status 0 dfgnn-tune merge "$work/told.db" "$work/a.db" "$work/c.db" --json
holds ".[0].added == $n and .[0].known == 0 and .[0].skipped == 0"
holds ".[1].added == $n and .[1].known == $n"
status 0 dfgnn-tune merge "$work/arch.db" "$work/c.db" --from-arch sm_90 --json
holds ".[0].added == $n and .[0].skipped == $n"
holds '.[0].why | test("another architecture")'
status 0 dfgnn-tune merge "$work/since.db" "$work/c.db" --since 2020-01-01 \
  --json
holds ".[0].added == $n and (.[0].why | test(\"measured earlier\"))"
status 0 dfgnn-tune merge "$work/win.db" "$work/a.db" --best 1 --json
holds ".[0].added >= 1 and .[0].added < $n"
holds '.[0].why | test("not of a winner")'
winners=$(jq '.[0].added' "$work/out")
status 0 dfgnn-tune merge "$work/best.db" "$work/a.db" --best 2 --json
holds ".[0].added > $winners and .[0].added < $n"
status 0 dfgnn-tune merge "$work/every.db" "$work/a.db" --best 1000 --json
holds ".[0].added == $n"
status 2 dfgnn-tune merge "$work/win.db" "$work/a.db" --best 0
status 2 dfgnn-tune merge "$work/win.db" "$work/a.db" --since yesterday
says "yesterday.*2026-11-30"

promise "winners alone decide as all rows do"
for some in win best; do
  status 0 dfgnn-tune diff "$work/a.db" "$work/$some.db" --json
  holds 'length == 0'
  says "1 are decided alike"
done

promise "a merge adds all sources or none"
echo text >"$work/bad.db"
status 5 dfgnn-tune merge "$work/none.db" "$work/a.db" "$work/bad.db"
[ ! -e "$work/none.db" ] || fail "the target is made"

promise "an import adds all files or none"
{ cat "$work/b.jsonl"; head -n 1 "$work/base.jsonl" | head -c 300; } \
  >"$work/cut.jsonl"
status 1 dfgnn-tune import "$work/b.jsonl" "$work/cut.jsonl" --store "$work/cut.db"
says "cut.jsonl:$(($(wc -l <"$work/b.jsonl") + 1)): "
[ ! -e "$work/cut.db" ] || fail "the store is made"
status 0 dfgnn-tune import "$work/cut.jsonl" --store "$work/cut.db" \
  --skip-invalid --json
holds '.[0].skipped == 1 and .[0].why == "1 invalid" and .[0].added > 0'
status 0 dfgnn-tune import - --store "$work/cut.db" --json <"$work/b.jsonl"
holds '.[0].added == 0 and .[0].known > 0'

promise "a value out of range is shown with the range"
jq -c '.time = -1' "$work/b.jsonl" >"$work/early.jsonl"
status 1 dfgnn-tune import "$work/early.jsonl" --store "$work/cut.db"
says "early.jsonl:1: .*time: .*found -1, expected 0"

promise "diff tells what two stores decide differently, and by how much"
winner=$(dfgnn-tune show --store "$work/a.db" --json | jq -r '.[0].variant')
jq -c --arg w "$winner" 'if .variant == $w and .status == "ok" then
  .ratio *= 9 | .ratio_low *= 9 | .ratio_high *= 9 else . end
  | .run = "0123456789abcdef0123456789abcdef"' \
  "$work/base.jsonl" >"$work/slow.jsonl"
status 0 dfgnn-tune import "$work/slow.jsonl" --store "$work/slow.db" --quiet
status 1 dfgnn-tune diff "$work/a.db" "$work/slow.db" --json
holds "length == 1 and .[0].a == \"$winner\" and .[0].b != .[0].a"
holds '.[0].a_loss_in_b > 1 and .[0].b_loss_in_a >= 1'

promise "prune removes what no library can use, and nothing else"
jq -c '.variant |= sub("fwd"; "gone")' "$work/base.jsonl" >"$work/gone.jsonl"
jq -c '.revision = 0 | .seed = "00000000000000bb"' "$work/base.jsonl" \
  >"$work/older.jsonl"
# Store c is left out: a library with CUDA knows that it has no such variants.
status 0 dfgnn-tune merge "$work/prune.db" "$work/a.db" "$work/b.db" --quiet
usable=$(export_of "$work/prune.db" | cksum)
status 0 dfgnn-tune import "$work/gone.jsonl" "$work/older.jsonl" \
  --store "$work/prune.db"
status 0 dfgnn-tune verify "$work/prune.db" --json
holds ".[0].state == \"valid\" and .[0].unknown == $n and .[0].older == $n"
status 0 dfgnn-tune prune "$work/prune.db" --dry-run --json
cp "$work/out" "$work/foretold"
status 0 dfgnn-tune prune --store "$work/prune.db" --json
diff "$work/out" "$work/foretold" >&2 || fail "--dry-run counts others"
holds ".[0].unknown == $n and .[0].older == $n and .[0].invalid == 0"
[ "$(export_of "$work/prune.db" | cksum)" = "$usable" ] ||
  fail "other rows than those are gone"
status 0 dfgnn-tune prune --store "$work/prune.db" --json
holds '.[0].unknown == 0 and .[0].older == 0 and .[0].kept > 0'

promise "verify finds a damaged file and invalid rows"
head -c 3000 "$work/a.db" >"$work/short.db"
status 5 dfgnn-tune verify "$work/a.db" "$work/short.db" --json
holds '.[0].state == "valid" and .[1].state == "unusable"'
says "short.db.*truncated"

if command -v python3 >/dev/null && python3 -c 'import sqlite3' 2>/dev/null; then
  promise "a row that was tampered with is found, not used, and pruned"
  cp "$work/a.db" "$work/forged.db"
  python3 -c 'import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
db.execute("update measurement set ratio = ratio_low where hash = "
           "(select min(hash) from measurement)")
db.commit()' "$work/forged.db"
  status 5 dfgnn-tune verify "$work/forged.db" --json
  rest=$((members - 1))
  holds ".[0].state == \"has invalid rows\" and .[0].invalid == 1 and
    .[0].rows == $rest"
  status 0 dfgnn-tune merge "$work/clean.db" "$work/forged.db" --json
  holds ".[0].added == $rest and .[0].why == \"1 invalid\""
  status 0 dfgnn-tune prune --store "$work/forged.db" --json
  holds ".[0].invalid == 1 and .[0].kept == $rest"
  status 0 dfgnn-tune verify "$work/forged.db"
fi

promise "a pin overrides measurements, and stays in its store"
cp "$work/a.db" "$work/pin.db"
loser=$(dfgnn-tune show --all --store "$work/pin.db" --json |
  jq -r '[.[] | select(.status == "ok")] | last | .variant')
status 0 dfgnn-tune pin "$loser" "$small" --store "$work/pin.db"
status 0 dfgnn-tune pin --store "$work/pin.db" --json
holds "length == 1 and .[0].variant == \"$loser\" and .[0].known"
status 0 dfgnn-tune explain "$small" --device cpu --dim 8 --json \
  --store "$work/pin.db"
holds ".[0].variant == \"$loser\" and .[0].source == \"pinned\" and
  .[0].stores == [\"$work/pin.db\"]"
status 0 dfgnn-tune merge "$work/unpinned.db" "$work/pin.db" --quiet
status 0 dfgnn-tune pin --store "$work/unpinned.db" --json
holds 'length == 0'
export_of "$work/pin.db" | cmp -s - "$work/base.jsonl" || fail "it is exported"
status 0 dfgnn-tune pin --remove "$small" --store "$work/pin.db"
status 0 dfgnn-tune pin --store "$work/pin.db" --json
holds 'length == 0'
status 2 dfgnn-tune pin no.such/variant=1 --store "$work/pin.db"
for word in "pin --remove" "ban --remove $loser"; do
  status 1 dfgnn-tune $word --store "$work/missing.db"
  says "$work/missing.db" "no such file"
done
[ ! -e "$work/missing.db" ] || fail "a store is made to remove from it"

promise "a pin is for what the variant computes, and replaces no other pin"
row=$(dfgnn-tune variants --json | jq -r '[.[].variant | select(
  startswith("cpu.spmm.fwd.row/"))][0]')
status 0 dfgnn-tune pin "$loser" --store "$work/pin.db"
status 2 dfgnn-tune pin "$row" --store "$work/pin.db"
says "$row computes no gt forward of f32"
status 2 dfgnn-tune pin "$row" --op spmm-sum --bias --store "$work/none.db"
says "computes no spmm-sum forward of f32 with a bias"
[ ! -e "$work/none.db" ] || fail "a store was made"
status 0 dfgnn-tune pin "$row" --op gt,spmm-sum --pass forward,backward \
  --store "$work/pin.db"
status 0 dfgnn-tune pin --store "$work/pin.db" --json
holds "[.[] | [.op, .pass, .variant]] | sort ==
  [[\"gt\", \"forward\", \"$loser\"], [\"spmm-sum\", \"forward\", \"$row\"]]"

promise "doctor says why a call would miss"
status 0 dfgnn-tune doctor "$small" --device cpu --dim 8 --json \
  --store "$work/a.db"
holds 'any(.kind == "call" and .verdict == "exact")'
holds 'any(.kind == "device" and .verdict == "measured")'
holds 'any(.kind == "calls" and .verdict == "all hit" and
  .why == "1 exact, 0 near, 0 predicted, 0 pinned, 0 misses")'
status 0 dfgnn-tune doctor "$small" --device cpu --dim 8 --dtype f64 --json \
  --store "$work/a.db"
holds 'any(.kind == "call" and .verdict == "miss" and
  (.why | test("dtype f32 .here f64")))'
status 0 dfgnn-tune doctor "$small" --device cpu --json --store "$work/none.db"
holds 'any(.kind == "store" and .verdict == "absent")'
holds 'any(.kind == "device" and .verdict == "unmeasured")'
status 0 dfgnn-tune doctor --device cpu --json --store "$work/gone.db"
status 0 dfgnn-tune import "$work/older.jsonl" --store "$work/old.db" --quiet
status 0 dfgnn-tune doctor --device cpu --json --store "$work/old.db"
holds 'any(.kind == "revision" and .verdict == "stale")'
status 5 dfgnn-tune doctor --device cpu --json --store "$work/bad.db"
holds 'any(.kind == "store" and .verdict == "broken")'

promise "shards are disjoint and together the whole"
problems="--device cpu --op gt,gat --dim 4,8 --heads 1,2 --dry-run --json"
# shellcheck disable=SC2086
dfgnn-tune run "$small" $problems --store "$work/none.db" 2>/dev/null |
  jq -c '.[]' | sort >"$work/whole"
: >"$work/shards"
for i in 1 2 3; do
  # shellcheck disable=SC2086
  dfgnn-tune run "$small" $problems --store "$work/none.db" --shard $i/3 \
    2>/dev/null | jq -c '.[]' >"$work/shard"
  [ -s "$work/shard" ] || fail "shard $i is empty"
  cat "$work/shard" >>"$work/shards"
done
sort "$work/shards" | cmp -s - "$work/whole" || fail "the shards differ"
# shellcheck disable=SC2086
dfgnn-tune run "$small" $problems --store "$work/none.db" --shard 0/3 \
  2>/dev/null | jq -c '.[]' | cmp -s - "$work/shard" || fail "0/3 is not 3/3"
status 2 dfgnn-tune run "$small" --shard 4/3
says "4/3"

promise "layers answer together, and the first is the one written"
cp "$work/a.db" "$work/lower.db"
DFGNN_STORE=$work/upper.db:$work/lower.db
export DFGNN_STORE
status 0 dfgnn-tune info --device cpu --json
holds "[.[] | select(.kind == \"store\")] | length == 2 and
  .[0].writable and (.[0].exists | not) and .[1].rows == $members and
  (.[1].writable | not)"
status 0 dfgnn-tune explain "$small" --device cpu --dim 8 --json
holds ".[0].source == \"exact\" and .[0].stores == [\"$work/lower.db\"]"
status 0 dfgnn-tune explain "$small" --device cpu --dim 9 --json
holds ".[0].source == \"near\" and .[0].stores == [\"$work/lower.db\"]"
status 0 dfgnn-tune explain "$small" --device cpu --dim 9 --dtype f64 --json
holds '.[0].source == "rule" and .[0].stores == []'
status 0 dfgnn-tune info --device cpu --json
holds '[.[] | select(.kind == "store") | [.answers, .problems]] ==
  [[0, 1], [1, 1]]'
# shellcheck disable=SC2086
status 0 dfgnn-tune run "$small" --device cpu --dim 5 --budget 100ms --quiet
status 0 dfgnn-tune info --device cpu --json
holds '[.[] | select(.kind == "store")] | .[0].rows > 0 and .[1].rows > 5 and
  .[0].answers == 1 and .[1].answers == 1 and .[0].problems == 2'
export_of "$work/lower.db" | cmp -s - "$work/base.jsonl" ||
  fail "the second layer was written"
unset DFGNN_STORE

promise "anonymous runs and exports hold no names"
status 0 dfgnn-tune run "$small" --device cpu --dim 5 --budget 100ms --quiet \
  --anonymous --store "$work/anonymous.db"
status 0 dfgnn-tune export --store "$work/anonymous.db"
[ -s "$work/out" ] || fail "nothing was measured"
[ "$(jq -r '.graph + .family + .host' "$work/out" | sort -u)" = "" ] ||
  fail "there are names"
status 0 env DFGNN_HOST=node7 dfgnn-tune run "$small" --device cpu --dim 6 \
  --budget 100ms --quiet --store "$work/alias.db"
dfgnn-tune export --store "$work/alias.db" >"$work/out"
[ "$(jq -r .host "$work/out" | sort -u)" = node7 ] || fail "no alias"

promise "devices of one model share the problems, a process each"
# shellcheck disable=SC2086
status 0 dfgnn-tune run "$small" --device cpu,cpu --threads 1 --dim 2,3,4 \
  --budget 200ms --store "$work/fleet.db" --json
holds '[.[].dim] | sort == [2, 3, 4]'
dfgnn-tune export --store "$work/fleet.db" | jq -s '[.[].dim] | unique' -c |
  grep -q -x '\[2,3,4\]' || fail "the store lacks a problem"
status 0 dfgnn-tune run "$small" --device all --dim 2 --budget 100ms --json \
  --store "$work/fleet.db" --quiet
status 1 dfgnn-tune run "$small" --device cpu,cuda:99 --store "$work/none.db"
says "cuda:99"

finish
