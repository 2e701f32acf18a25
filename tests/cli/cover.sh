#!/bin/sh
# Measurements planned by coverage, the coverage of stores and models, and the
# choices for a GPU that is not here.
. "$(dirname "$0")/lib.sh"
package=${top_builddir:-build}/data/stores/tuning.db
store=$work/cover.db

promise "a plan of coverage measures every family, whatever a model says, and the rule's choice"
status 0 dfgnn-tune run "$small" --device cpu --op spmm-sum --dim 16 --plan cover:1 --budget 2s --store "$store" --json
holds 'length == 1 and .[0].measured >= 1'
says "at the end: [0-9]* families" " 0 on none"
status 0 dfgnn-tune show --store "$store" --json --all
families=$(jq '[.[].variant | split("/")[0]] | unique | length' "$work/out")
[ "$families" -ge 1 ] || fail "no family was measured"

promise "the same command again measures nothing"
status 0 dfgnn-tune run "$small" --device cpu --op spmm-sum --dim 16 --plan cover:1 --budget 2s --store "$store" --json -q
holds 'length == 0'

promise "a plan that is none is refused"
status 2 dfgnn-tune run "$small" --plan cover:0
says 'cover:0' search cover:N

promise "the coverage of a store names the first empty cell"
status 1 dfgnn-tune model coverage "$store" --json
holds 'length > 100 and all(.graphs == 0)'
says "no graph" "run --plan cover"

promise "the choices for a GPU that is not here need no GPU"
status 0 dfgnn-tune explain "$small" --for sm_90,H200 --store "$package" --json
holds '.[0] | .arch == "sm_90" and .backend == "cuda" and (.variant | startswith("cuda."))'
holds '.[0].candidates | map(select(.variant | startswith("cpu."))) | length == 0'
status 2 dfgnn-tune explain "$small" --for sm_90,B200 --store "$package"
says sm_90 "'B200'"
status 2 dfgnn-tune explain "$small" --for H200
says "found 'H200', expected an architecture"
finish
