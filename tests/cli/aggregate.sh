#!/bin/sh
# SpMM and reductions on the command line: every operator and both passes.
. "$(dirname "$0")/lib.sh"

ops=spmm-sum,spmm-mean,spmm-weighted,reduce-min,reduce-max,reduce-mean,reduce-var,reduce-std,reduce-pna
passes=forward,backward

promise "every operator and pass has variants of two algorithms or more"
status 0 dfgnn-tune variants --op "$ops" --pass "$passes" --json
holds '[.[] | .variant | select(startswith("cpu.spmm.fwd.")) ] | length > 10'
for kind in spmm reduce; do
  for pass in fwd bwd; do
    holds "[.[] | select(.variant | startswith(\"cpu.$kind.$pass.\"))
            .algorithm] | unique | contains([\"balanced\", \"row\"])"
  done
done

promise "each is tuned, shown and explained"
# shellcheck disable=SC2086
status 0 dfgnn-tune run "$small" $quick --op "$ops" --pass "$passes" --json \
  --store "$work/t.db" --budget 2s
holds 'length == 18'
holds '[.[] | .op + .pass] | unique | length == 18'
holds 'all(.[] | .variant; type == "string")'
status 0 dfgnn-tune show --store "$work/t.db" --json
holds 'length == 18 and all(.status == "ok")'
# shellcheck disable=SC2086
status 0 dfgnn-tune explain "$small" --device cpu --dim 8 --op "$ops" --pass "$passes" \
  --json --quiet --store "$work/t.db"
holds 'length == 18 and all(.source == "exact")'
holds 'all(.candidates | length > 1)'

promise "bench compares with the plain row loop where nothing is fused"
# shellcheck disable=SC2086
status 0 dfgnn-bench "$small" $quick --op "$ops" --pass "$passes" --rounds 5 \
  --json --store "$work/t.db"
holds '[.[] | .op + .pass] | unique | length == 18'
holds 'all(.[] | .floor_ms, .floor_share, .gather_floor_ms; type == "number")'
holds 'all(.status == "ok" and .rel_error < 3e-5 and .speedup_unfused > 0)'
holds '[.[] | select(.role | split(",") | index("unfused")).variant |
        test("[.]row/")] | length == 18 and all'

promise "an operator that does not exist lists those that do"
# shellcheck disable=SC2086
status 2 dfgnn-tune explain "$small" --op spmm
says "spmm-weighted"

finish
