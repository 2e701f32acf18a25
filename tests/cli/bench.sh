#!/bin/sh
# dfgnn-bench: its keys, named variants, the cost of dispatch, orders of nodes.
. "$(dirname "$0")/lib.sh"

promise "rows have the frozen keys"
# shellcheck disable=SC2086
status 0 dfgnn-bench "$small" $quick --rounds 6 --json --store "$work/t.db"
holds 'length >= 2'
holds 'all(.[] | .graph, .op, .pass, .dtype, .device, .backend, .variant, .source,
           .status, .role, .commit, .version; type == "string")'
holds 'all(.[] | .dim, .heads, .distance, .median_ms, .ci_low_ms, .ci_high_ms, .ratio,
           .rel_error, .speedup_unfused, .floor_ms, .floor_share,
           .gather_floor_ms, .workspace_bytes, .saved_bytes, .graph_bytes,
           .bytes, .copy_gbps, .revision; type == "number")'
holds 'all(.status == "ok" and has("code") == (.backend == "cuda"))'
holds 'all(.prepare_ms >= 0 and has("payback_calls"))'
holds '[.[] | select(.answer)] | length == 1 and .[0].answer == "rule" and
  (.[0].role | test("tuned"))'
holds 'all(.rel_error < 1e-5)'
holds 'all(.ci_low_ms <= .median_ms and .median_ms <= .ci_high_ms)'
holds 'any(.role | split(",") | index("rule")) and
       any(.role | split(",") | index("unfused"))'
holds '[.[] | select(.role | split(",") | index("rule")) | .ratio] == [1]'
holds 'all((.floor_share * .median_ms / .floor_ms - 1) | fabs < 1e-6)'

promise "named variants are run, whatever the rule says"
name=$(dfgnn-tune variants --json |
  jq -r 'map(select(.algorithm == "unfused" and .backend == "cpu"))[0].variant')
# shellcheck disable=SC2086
status 0 dfgnn-bench "$small" $quick --rounds 6 --json \
  --variants "tuned,$name" --no-check
holds "any(.variant == \"$name\")"
holds 'all(.rel_error == null)'
# shellcheck disable=SC2086
status 0 dfgnn-bench "$small" $quick --rounds 6 --json --variants '*.unfused*'
holds 'length >= 1 and all(.variant | test("unfused"))'

promise "dispatch costs are given in nanoseconds"
# shellcheck disable=SC2086
status 0 dfgnn-bench "$small" $quick --dispatch --json --store "$work/t.db"
holds '.[0] | (.cached_plan_ns, .new_plan_ns, .new_graph_ns, .new_graph_ns_edge,
       .execute_ns | type == "number" and . > 0)'
holds '.[0] | .cached_plan_ns < .new_plan_ns'

finish
