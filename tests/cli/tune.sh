#!/bin/sh
# From run to explain: measurements are stored and shown, and decide the choice.
. "$(dirname "$0")/lib.sh"
store=$work/t.db

promise "variants lists every variant with the frozen keys"
status 0 dfgnn-tune variants --json
holds 'length > 10'
holds 'all(.[] | .variant, .algorithm, .backend, .op, .pass, .parameters;
           type == "string")'
holds 'all(.[] | .revision; type == "number" and . >= 1)'
holds '[.[].algorithm] | unique | contains(["online", "unfused"])'
holds '[.[] | .variant + .op + .pass] | length == (unique | length)'
holds '[.[].op] | unique | contains(["agnn", "gat", "gatv2", "gt"])'
status 0 dfgnn-tune variants --op gat --json
holds '[.[].op] | unique == ["gat"]'

promise "without measurements the rule answers"
status 0 dfgnn-tune explain "$small" --device cpu --dim 8 --store "$store" --json
holds 'length == 1 and .[0].source == "rule"'
holds '.[0] | (.graph, .op, .pass, .dtype, .device, .backend, .variant, .because
       | type == "string") and (.dim == 8) and (.heads == 1)'
holds '.[0].distance | type == "number"'
holds '.[0].candidates | length > 1 and length <= 32 and all(.[] | .variant, .reason;
       type == "string" and . != "")'
holds '[.[0].candidates[] | select(.reason == "chosen")] | length == 1'
status 0 dfgnn-tune explain "$small" --device cpu --dim 64 --store "$store" --json
holds '.[0].candidates | length > 1 and length <= 16' # of one portfolio, its own

promise "a dry run measures nothing"
# shellcheck disable=SC2086
status 0 dfgnn-tune run "$small" $quick --store "$store" --dry-run --json
holds '.[0] | .candidates > 5 and .measured == 0 and .estimate_s > 0'
[ ! -e "$store" ] || fail "it makes a store"

promise "run measures and stores"
# shellcheck disable=SC2086
status 0 dfgnn-tune run "$small" --device cpu --dim 8 --budget 2s \
  --store "$store" --json
holds 'length == 1 and .[0].source == "exact" and .[0].resumed == 0'
holds '.[0].before == "rule" and (.[0].payback_calls | . == null or . > 0)'
says "choices before this run: 1 rule"
holds '.[0] | .measured >= 1 and .median_ms > 0 and .ratio > 0 and .kept'
winner=$(jq -r '.[0].variant' "$work/out")

promise "explain then answers from the store"
status 0 dfgnn-tune explain "$small" --device cpu --dim 8 --store "$store" --json
holds ".[0].source == \"exact\" and .[0].variant == \"$winner\""
holds '.[0].distance == 0'

promise "show has the winner with the frozen keys"
status 0 dfgnn-tune show --store "$store" --json
holds "length == 1 and .[0].variant == \"$winner\" and .[0].source == \"exact\""
holds '.[0] | (.median_ms, .ci_low_ms, .ci_high_ms, .ratio, .rel_error, .dim,
       .heads, .distance, .workspace_bytes | type == "number")'
holds '.[0] | .ci_low_ms <= .median_ms and .median_ms <= .ci_high_ms'
holds '.[0] | .status == "ok" and has("floor_ms") and has("floor_share") and
       has("speedup_unfused") and has("saved_bytes") and has("graph_bytes")'
dfgnn-tune export --store "$store" | jq -c '.copy_gbps = 10' >"$work/rate.jsonl"
status 0 dfgnn-tune import "$work/rate.jsonl" --store "$work/rate.db"
status 0 dfgnn-tune show --store "$work/rate.db" --json
holds '.[0] | (.floor_ms * 1e7 - .bytes | fabs) < 1 and
       (.floor_share * .median_ms / .floor_ms - 1 | fabs) < 1e-6'
status 0 dfgnn-tune show --store "$store" --dim 9 --json
holds 'length == 0'
status 0 dfgnn-tune show "$store" --json
holds 'length > 0'
status 1 dfgnn-tune show 'no-such-*' "$store" --json
says "nothing is measured of no-such"
holds 'length == 0'
status 0 dfgnn-tune show 'powerlaw*' --store "$store" --json
holds 'length == 1'

promise "what is measured is not measured again"
# shellcheck disable=SC2086
status 0 dfgnn-tune run "$small" $quick --budget 20s --store "$store" --json
# shellcheck disable=SC2086
status 0 dfgnn-tune run "$small" $quick --budget 20s --store "$store" --json
holds '.[0] | .resumed > 5 and .measured == 0 or .resumed == .candidates'
holds '.[0].seconds < 5 and .[0].before == "exact"'
status 0 dfgnn-tune show --store "$store" --all --json
holds 'length > 5 and all(.[]; .status != "ok" or .median_ms > 0)'

promise "export and import keep every row"
status 0 dfgnn-tune export --store "$store" -o "$work/rows.jsonl"
rows=$(wc -l <"$work/rows.jsonl")
[ "$rows" -gt 5 ] || fail "export has $rows rows"
status 0 dfgnn-tune import "$work/rows.jsonl" --store "$work/copy.db" --json
holds ".[0].added == $rows and .[0].known == 0"
status 0 dfgnn-tune import "$work/rows.jsonl" --store "$work/copy.db" --json
holds ".[0].added == 0 and .[0].known == $rows"
status 0 dfgnn-tune export --store "$work/copy.db" -o "$work/again.jsonl"
cmp -s "$work/rows.jsonl" "$work/again.jsonl" || fail "they differ"

promise "a merge is a union"
head -n 3 "$work/rows.jsonl" >"$work/head.jsonl"
status 0 dfgnn-tune import "$work/head.jsonl" --store "$work/part.db"
status 0 dfgnn-tune merge "$work/all.db" "$work/part.db" "$store" "$work/part.db"
status 0 dfgnn-tune merge "$work/all2.db" "$store" "$work/part.db"
dfgnn-tune export --store "$work/all.db" >"$work/a"
dfgnn-tune export --store "$work/all2.db" >"$work/b"
cmp -s "$work/a" "$work/b" || fail "the order matters"
[ "$(wc -l <"$work/a")" -eq "$rows" ] || fail "rows are lost or doubled"

promise "winners alone answer like the whole store"
status 0 dfgnn-tune merge "$work/winners.db" "$store" --best 1
status 0 dfgnn-tune stat --store "$work/winners.db" --json
holds ".[0].rows >= 1 and .[0].rows <= $rows"
status 0 dfgnn-tune explain "$small" --device cpu --dim 8 \
  --store "$work/winners.db" --json
holds ".[0].source == \"exact\" and .[0].variant == \"$(
  dfgnn-tune show --store "$store" --json | jq -r '.[0].variant')\""

promise "an anonymous export names no graph and no host"
dfgnn-tune export --store "$store" --anonymous >"$work/out"
jq -s -e 'all(.graph == "" and .host == "")' "$work/out" >/dev/null ||
  fail "it does"

promise "a bad line of an import is named"
echo '{"op": 3}' >"$work/bad.jsonl"
status 1 dfgnn-tune import "$work/bad.jsonl" --store "$work/x.db"
says "bad.jsonl:1:"
sed 's/"dim":8/"dim":"8"/' "$work/head.jsonl" >"$work/bad.jsonl"
status 1 dfgnn-tune import "$work/bad.jsonl" --store "$work/x.db"
says "'dim': found .*, expected a whole number"

promise "an architecture without rows gets the rule"
jq -c '.arch = "x86_64-other"' "$work/rows.jsonl" >"$work/other.jsonl"
status 0 dfgnn-tune import "$work/other.jsonl" --store "$work/other.db" --json
holds ".[0].added == $rows"
status 0 dfgnn-tune explain "$small" --device cpu --dim 8 \
  --store "$work/other.db" --json
holds '.[0].source == "rule"'

promise "lists are a product"
status 0 dfgnn-tune explain "$small" --device cpu --op gt,gat --dim 4,8 \
  --heads 1,2 --dtype f32,f64 --layout nhd,ndh --store "$store" --json
holds 'length == 32'
holds '[.[] | [.op, .dim, .heads, .dtype, .layout]] | unique | length == 32'

finish
