#!/bin/sh
# Models that rank variants: fitted from stores, the same bytes for the same
# rows, listed, and refused where a file is none.
. "$(dirname "$0")/lib.sh"
package=${top_builddir:-build}/data/stores/tuning.db
store=$work/sums.db
model=$work/sums.model

promise "a model is fitted to the rows of a store, and it says what is not judged"
status 0 dfgnn-tune export --store "$package" --op spmm-sum -q -o "$work/rows.jsonl"
status 0 dfgnn-tune import "$work/rows.jsonl" --store "$store" -q
status 0 dfgnn-tune model train "$store" -o "$model"
says sums.model "1 forest"
says "nothing is judged" "12 measured"
status 0 dfgnn-tune model train "$store" -o "$work/unjudged.model" --no-check -q
cmp -s "$model" "$work/unjudged.model" || fail "a model that is not judged is another"
status 0 dfgnn-tune model train "$store" -o "$work/again.model" --json -q
holds 'length == 0'
[ "$(wc -c <"$model")" -lt 300000 ] || fail "the model is larger than 300 KB"

promise "the same rows give the same bytes"
cmp "$model" "$work/again.model" || fail "two models of one store differ"

promise "show lists what it was fitted to and what mattered"
status 0 dfgnn-tune model show "$model" --json --all
holds 'all(.fitted_to | test("measurements of [0-9]+ problems on [0-9]+ graphs"))'
holds '[.[].importance] | add > 0.99 and add < 1.01 and all(. >= 0)'
holds '[.[].model] | unique | length == 1'

promise "with DFGNN_MODEL a context reads it, and a file that is none stops it"
DFGNN_MODEL=$model
status 0 dfgnn-tune model show --json
holds '[.[].file] | unique | length == 1 and (.[0] | test("sums.model"))'
printf 'no model\n' >"$work/junk"
DFGNN_MODEL=$work/junk
status 1 dfgnn-tune explain "$small" --device cpu
says junk: "'dfgnn-model 2'"
DFGNN_MODEL=none

promise "a damaged file is named, whatever was done to it"
size=$(wc -c <"$model")
for bytes in 0 5 40 "$((size / 2))" "$((size - 1))"; do
  head -c "$bytes" "$model" >"$work/cut.model"
  status 1 dfgnn-tune model show "$work/cut.model"
  says "cut.model"
done
for at in 20 "$((size / 3))" "$((size - 5))"; do
  cp "$model" "$work/flipped.model"
  printf '\377\000\377' | dd of="$work/flipped.model" bs=1 seek="$at" \
    conv=notrunc 2>/dev/null
  status 1 dfgnn-tune model show "$work/flipped.model"
  says "flipped.model"
done

promise "graphs, shapes and most of the graphs are left out to judge"
own=$work/own.db
arch=$(dfgnn-tune info --json --device cpu |
  jq -r '.[] | select(.kind == "cpu" and .name == "architecture") | .value')
dfgnn-tune variants --op spmm-sum --json |
  jq -c '[.[] | select(.backend == "cpu" and .pass == "forward" and
    (.messages | not) and (.parameters | test("simd=(portable|avx2)"))) |
    {variant, revision}] | unique' >"$work/variants.json"
# Twelve graphs at two widths; which variant is fast follows the width.
head -n 1 "$work/rows.jsonl" | jq -c --arg arch "$arch" \
  --slurpfile variants "$work/variants.json" '
  . as $row | range(12) as $g | (8, 32) as $dim |
  ($variants[0] | length) as $n | range($n) as $i |
  ($variants[0][0]) as $anchor | ((($i + $dim) * 7) % $n / $n) as $slow |
  $row + $variants[0][$i] + {backend: "cpu", arch: $arch, dim: $dim,
    graph: "g\($g)", fingerprint: "00000000000000\(10 + $g)",
    edges: (1000 + 500 * $g), mean_degree: (3 + $g), units: 1,
    anchor: $anchor.variant, anchor_revision: $anchor.revision,
    ratio: (if $i == 0 then 1 else 1 + $slow end), median_ms: (1 + $slow),
    rel_error: 0} |
  .ratio_low = .ratio | .ratio_high = .ratio | .ci_low_ms = .median_ms |
  .ci_high_ms = .median_ms' >"$work/own.jsonl"
status 0 dfgnn-tune import "$work/own.jsonl" --store "$own" -q
status 0 dfgnn-tune model judge "$own" --json -q
holds '[.[] | select(.share)] | length == 3 and all(.problems == 24 and .model >= 1)'
holds '[.[] | select(.dim)] | length == 2 and all(.problems == 12 and
  .shape >= 1 and .shape_race <= .shape and .model >= .race and
  has("paper"))'

promise "the same graph and model give the same choice in every process"
status 0 dfgnn-tune model train "$own" -o "$work/own.model" -q
DFGNN_MODEL=$work/own.model
set -- uniform:nodes=900,edges=30000,seed=77 --op spmm-sum --dim 16 \
  --device cpu --store "$work/nothing.db" --json
status 0 dfgnn-tune explain "$@" --threads 1
holds '.[0].source == "model"'
holds '[.[0].candidates[] | select(.predicted)] | length > 4 and any(.predicted == 1)'
chosen='[.[0].variant, [.[0].candidates[] | [.variant, .predicted]]]'
first=$(jq -c "$chosen" "$work/out")
for process in 2 3 4; do
  status 0 dfgnn-tune explain "$@" --threads 1
  [ "$(jq -c "$chosen" "$work/out")" = "$first" ] ||
    fail "process $process predicts otherwise than the first"
done
DFGNN_MODEL=none

promise "what cannot be fitted is said, and nothing is written"
status 1 dfgnn-tune model train "$work/none.db" -o "$work/none.model"
says "none.db"
[ ! -e "$work/none.model" ] || fail "a model was written"
status 1 dfgnn-tune model train "$store" -o "$store/x.model" -q
says "sums.db/x.model"
status 2 dfgnn-tune model
says "train"

finish
