#!/bin/sh
# A variant that fails its check is planted in programs that are otherwise the
# tools (tests/cli/planted.c).  No portfolio knows its family, so it is measured
# beside the members.
. "$(dirname "$0")/lib.sh"
planted=cpu.attention.fwd.planted
tune=$top_builddir/tests/cli/planted-tune
bench=$top_builddir/tests/cli/planted-bench
store=$work/wrong.db

promise "run tells by exit status 4, keeps a right winner and the reason"
status 4 "$tune" run "$small" --device cpu --dim 8 --budget 5s --quiet --store "$store" --json
holds ".[0] | .wrong == 1 and .kept and .variant != \"$planted\""
"$tune" export --store "$store" >"$work/rows.jsonl"
jq -s -e "map(select(.variant == \"$planted\")) | length == 1 and
  (.[0] | .status == \"wrong\" and .samples == 0 and
   (.reason | test(\"^out of row [0-9]+ .*an error of .* where rounding allows\")))" \
  "$work/rows.jsonl" >/dev/null || fail "no row says why"

promise "a variant that is known to be wrong is not run again"
status 4 "$tune" run "$small" --device cpu --dim 8 --budget 5s --quiet --store "$store" --json
"$tune" export --store "$store" | jq -s -e "map(select(.variant == \"$planted\")) |
  length == 1" >/dev/null || fail "it was"

promise "a store that calls it the fastest does not make it right"
jq -c "select(.variant == .anchor and .status == \"ok\") |
  .variant = \"$planted\" | .revision = 1 | .ratio = 0.01 | .time += 1000 |
  .ratio_low = 0.0099 | .ratio_high = 0.0101" "$work/rows.jsonl" |
  head -n 1 >"$work/forged.jsonl"
[ -s "$work/forged.jsonl" ] || fail "nothing to forge"
status 0 "$tune" import "$work/forged.jsonl" --store "$store"
status 0 "$tune" explain "$small" --device cpu --dim 8 --store "$store" --json
holds ".[0] | .source == \"exact\" and .variant != \"$planted\""

promise "bench tells by exit status 4 as well, and times it not"
status 4 "$bench" "$small" --device cpu --dim 8 --variants "$planted" --json \
  --rounds 3 --store "$work/none.db"
holds ".[0] | .variant == \"$planted\" and .status == \"wrong\" and
  .median_ms == null and (.reason | test(\"row\"))"
status 0 "$bench" "$small" --device cpu --dim 8 --variants rule --json \
  --rounds 3 --store "$work/none.db"
holds 'all(.status == "ok")'

finish
