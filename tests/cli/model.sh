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
says "sums.model holds 1 forest, one a kind of operator"
says "nothing is judged: no problem has 12 measured variants"
status 0 dfgnn-tune model train "$store" -o "$work/again.model" --json -q
holds 'length == 0'
[ "$(wc -c <"$model")" -lt 300000 ] || fail "the model is larger than 300 KB"

promise "the same rows give the same bytes"
cmp "$model" "$work/again.model" || fail "two models of one store differ"

promise "show lists what it was fitted to and what mattered"
status 0 dfgnn-tune model show "$model" --json
holds 'all(.fitted_to | test("measurements of [0-9]+ problems on [0-9]+ graphs"))'
holds '[.[].importance] | add > 0.5 and all(. >= 0)'
holds '[.[].model] | unique | length == 1'

promise "with DFGNN_MODEL a context reads it, and a file that is none stops it"
DFGNN_MODEL=$model
status 0 dfgnn-tune model show --json
holds '[.[].file] | unique | length == 1 and (.[0] | test("sums.model"))'
printf 'no model\n' >"$work/junk"
DFGNN_MODEL=$work/junk
status 1 dfgnn-tune explain "$small" --device cpu
says "junk: expected a model, whose first line is 'dfgnn-model 1'"
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

promise "what cannot be fitted is said, and nothing is written"
status 1 dfgnn-tune model train "$work/none.db" -o "$work/none.model"
says "none.db"
[ ! -e "$work/none.model" ] || fail "a model was written"
status 1 dfgnn-tune model train "$store" -o "$store/x.model" -q
says "sums.db/x.model"
status 2 dfgnn-tune model
says "train"

finish
