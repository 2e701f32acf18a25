#!/bin/sh
# Every tool knows the backward pass.
. "$(dirname "$0")/lib.sh"
store=$work/t.db
both="--pass forward,backward"

promise "run measures both passes, and show keeps them apart"
# shellcheck disable=SC2086
status 0 dfgnn-tune run "$small" $quick $both --op gt,gat --store "$store"
status 0 dfgnn-tune show --store "$store" --json
holds '[.[].pass] | unique == ["backward", "forward"]'
holds 'all(.status == "ok")'
holds '[.[] | select(.pass == "backward") | .variant] |
       length >= 2 and all(test("^cpu.attention.bwd"))'
status 0 dfgnn-tune show --store "$store" --pass backward --json
holds '[.[].pass] | unique == ["backward"]'

promise "explain answers a backward problem from what was measured"
# shellcheck disable=SC2086
status 0 dfgnn-tune explain "$small" --device cpu --dim 8 --pass backward \
  --op gt,gat --store "$store" --json
holds 'length == 2 and all(.pass == "backward" and .source == "exact")'
holds 'all(.candidates | map(.variant) | all(test("attention.bwd")))'

promise "without measurements there is a rule, and the paper's"
# shellcheck disable=SC2086
status 0 dfgnn-tune explain "$small" --device cpu --dim 8 --pass backward \
  --op gt,agnn,gat,gatv2 --store "$work/none.db" --json
holds 'length == 4 and all(.source == "rule")'
DFGNN_EFFORT=paper status 0 dfgnn-tune explain "$small" --device cpu --dim 8 \
  --pass backward --store "$store" --json
holds '.[0] | .source == "paper" and (.variant | test("bwd.spill"))'

promise "variants lists a pass"
status 0 dfgnn-tune variants --pass backward --op gatv2 --json
holds 'length > 10 and all(.pass == "backward" and .op == "gatv2")'

promise "bench times and checks backward, and counts what forward keeps"
# shellcheck disable=SC2086
status 0 dfgnn-bench "$small" $quick $both --rounds 5 --json --store "$store"
holds '[.[].pass] | unique == ["backward", "forward"]'
holds 'all(.status == "ok" and .rel_error < 3e-5)'
holds 'all(.saved_bytes == .destinations * 4)'
# the transposed view: offsets, rows and edges of the columns
holds '[.[] | select(.pass == "backward")] |
       all(.graph_bytes >= 4 * (.sources + 1 + 2 * .edges))'
# shellcheck disable=SC2086
status 0 dfgnn-bench "$small" $quick --op spmm-sum --rounds 5 --json \
  --store "$store"
holds 'all(.saved_bytes == 0)'

promise "a job names its passes"
cat >"$work/tune.job" <<END
$small
--op gat
--pass forward,backward
--dim 8
END
status 0 dfgnn-tune run --job "$work/tune.job" --device cpu --budget 300ms \
  --quiet --store "$work/job.db"
status 0 dfgnn-tune show --store "$work/job.db" --json
holds '[.[].pass] | unique == ["backward", "forward"]'

promise "a pass that is none is refused"
# shellcheck disable=SC2086
status 2 dfgnn-tune run "$small" $quick --pass sideways --store "$store"
says "forward"

finish
