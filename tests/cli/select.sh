#!/bin/sh
# Where a choice comes from, as a user sees it: measured, near, for a GPU that is
# not here, locked, and what programs met.
. "$(dirname "$0")/lib.sh"
package=${top_builddir:-build}/data/stores/tuning.db
store=$work/own.db

promise "what was tuned is exact, and only its portfolio was measured"
status 0 dfgnn-tune run "$small" --device cpu --op gat --heads 4 --dim 7 \
  --budget 20s --store "$store" --json -q
holds '.[0] | .source == "exact" and .candidates <= 16 and
  .measured + .failed == .candidates'
status 0 dfgnn-tune explain "$small" --device cpu --op gat --heads 4 --dim 7 \
  --store "$store" --json
holds '.[0] | .source == "exact" and (.candidates | length <= 16) and
  .candidates[0].variant == .variant and .candidates[0].reason == "chosen"'
status 0 dfgnn-tune run "$small" --device cpu --op gat --heads 4 --dim 7 \
  --budget 20s --store "$store" --json -q
holds '.[0].measured == 0'

promise "a paper's kernel that is a member is measured as the others are"
status 0 dfgnn-tune explain "$small" --device cpu --op gt --dim 128 \
  --store "$work/paper.db" --json
if grep -q 'fwd[.]pmf' "$work/out"; then # its portfolio is that of AVX-512
  status 0 dfgnn-tune run "$small" --device cpu --op gt --dim 128 --budget 20s \
    --store "$work/paper.db" --json -q
  holds '.[0] | .source == "exact" and .measured + .failed == .candidates'
  dfgnn-tune show --store "$work/paper.db" --all --json |
    grep -q 'fwd[.]pmf' || fail "none was measured"
fi

promise "a graph near to one that was tuned here gets its variant"
for again in 1 2 3 4; do # a busy machine needs more than one
  status 0 dfgnn-tune run "$top/data/cora.npz" --device cpu --op gat --heads 4 \
    --dim 7 --budget 20s --store "$store" --json -q
  grep -q '"exact"' "$work/out" && break
done
[ "$again" -lt 4 ] || holds '.[0].source == "exact"'
chosen=$(jq -r '.[0].variant' "$work/out")
status 0 dfgnn-tune explain "$top/data/citeseer.npz" --device cpu --op gat \
  --heads 4 --dim 7 --store "$store" --json
holds ".[0] | .source == \"near\" and .variant == \"$chosen\" and
  .distance > 0.2 and .distance < 0.5"

promise "the tuning of a moment is no worse than none"
status 0 dfgnn-tune explain "$small" --device cpu --op gt --dim 33 \
  --store "$work/moment.db" --json
before=$(jq -r '.[0].variant' "$work/out")
status 0 dfgnn-tune run "$small" --device cpu --op gt --dim 33 --budget 1ms \
  --store "$work/moment.db" --json -q
dfgnn-tune export --store "$work/moment.db" -q |
  jq -r '.variant, .anchor' | grep -qxF "$before" ||
  fail "$before was not measured"

promise "the choices for a GPU that is not here need no GPU"
[ -e "$package" ] || package=$store
status 0 dfgnn-tune explain "$small" --for sm_90 --store "$package" --json
holds '.[0] | .arch == "sm_90" and .backend == "cuda" and (.variant | startswith("cuda."))'
holds '.[0].candidates | map(select(.variant | startswith("cpu."))) | length == 0'
DFGNN_STORE= status 0 dfgnn-tune explain "$small" --for sm_90,H200 --json
holds '.[0] | .source == "model" and (.variant | startswith("cuda."))'
DFGNN_STORE= status 0 dfgnn-tune explain "$small" --for sm_80,A100 --json
holds '.[0].variant | startswith("cuda.")'
DFGNN_STORE= status 2 dfgnn-tune explain "$small" --for sm_90,H300
says "H300" "in no table"
status 2 dfgnn-tune explain "$small" --for H200
says "found 'H200', expected an architecture"

promise "a lock tells what changed"
set -- "$small" --device cpu --op gat,gt --heads 2 --dim 8 --store "$work/l.db"
status 0 dfgnn-tune explain "$@" --lock "$work/choices.lock"
prints '^[0-9a-f]\{32\}  2 choices$'
status 0 dfgnn-tune explain "$@" --check "$work/choices.lock"
prints 'as they were locked'
status 0 dfgnn-tune explain "$@" --json
loser=$(jq -r '[.[0].candidates[] | select(.reason != "chosen")][0].variant' \
  "$work/out")
status 0 dfgnn-tune pin "$loser" --op gat --store "$work/l.db"
status 1 dfgnn-tune explain "$@" --check "$work/choices.lock"
says "found $loser"
printf '{}' >"$work/none.lock"
status 1 dfgnn-tune explain "$@" --check "$work/none.lock"
says none.lock "no lock"
echo "my thesis" >"$work/thesis.txt"
status 1 dfgnn-tune explain "$@" --lock "$work/thesis.txt"
says thesis.txt "not a lock of choices" "'my thesis.'"
[ "$(cat "$work/thesis.txt")" = "my thesis" ] || fail "the thesis is gone"
status 1 dfgnn-tune explain "$@" --check /dev/zero
says "/dev/zero: found a device, expected a lock"
status 0 dfgnn-tune explain "$@" --lock "$work/choices.lock"

promise "a banned variant is chosen no more, until its ban ends"
set -- "$small" --device cpu --op gt --dim 16 --store "$work/b.db"
status 0 dfgnn-tune explain "$@" --json
first=$(jq -r '.[0].variant' "$work/out")
status 0 dfgnn-tune ban "$first" --store "$work/b.db"
status 0 dfgnn-tune ban --store "$work/b.db" --json
holds "length == 1 and .[0].variant == \"$first\" and .[0].variants == 1"
status 0 dfgnn-tune explain "$@" --json
holds ".[0].variant != \"$first\" and all(.[0].candidates[]; .variant != \"$first\")"
status 0 dfgnn-tune ban "$first" --remove --store "$work/b.db"
status 0 dfgnn-tune explain "$@" --json
holds ".[0].variant == \"$first\""

promise "nor does the paper's rule choose it, and nothing runs where all is banned"
DFGNN_EFFORT=paper status 0 dfgnn-tune explain "$@" --json
paper=$(jq -r '.[0].variant' "$work/out")
status 0 dfgnn-tune ban "${paper%%/*}" --store "$work/b.db"
DFGNN_EFFORT=paper status 1 dfgnn-tune explain "$@"
says "no variant applies"
for family in $(dfgnn-tune variants --op gt --pass forward --json |
  jq -r '.[] | select(.backend == "cpu") | .variant | sub("/.*"; "")' | sort -u); do
  dfgnn-tune ban "$family" --store "$work/b.db" -q
done
status 1 dfgnn-tune run "$@" --budget 1ms
says "no variant applies"
status 1 dfgnn-tune run "$@" --budget 1ms --exhaustive
says "no variant applies"
status 2 dfgnn-tune ban no.such --store "$work/b.db"
says no.such

promise "a race is over before its plan is timed"
status 0 dfgnn-bench "$small" --device cpu --op gt --dim 16 --effort race \
  --variants tuned --rounds 3 --store "$work/race.db" --json -q
raced=$(jq -r '.[0].variant' "$work/out")
status 0 dfgnn-tune show --store "$work/race.db" --all --json
holds "length >= 3 and (map(.median_ms) | min) as \$least |
  any(.[]; .variant == \"$raced\" and .median_ms == \$least)"
status 0 dfgnn-tune explain "$small" --device cpu --op gt --dim 16 \
  --store "$work/race.db" --json
holds ".[0] | .source == \"near\" and .distance == 0 and
  any(.candidates[]; .variant == \"$raced\")"

promise "a process notes what no measurement answered, once"
DFGNN_RECORD=$work/met
export DFGNN_RECORD
status 0 dfgnn-bench "$small" --device cpu --op gat --heads 2 --dim 8 --rounds 2 \
  --store "$work/r.db" -q
status 0 dfgnn-bench "$small" --device cpu --op gat,gt --heads 2 --dim 8 \
  --rounds 2 --store "$work/r.db" -q
unset DFGNN_RECORD
[ "$(find "$work/met" -name '*.jsonl' | wc -l)" -eq 2 ] ||
  fail "not a file for each process"
[ "$(find "$work/met" -name '*.npz' | wc -l)" -eq 1 ] ||
  fail "not one file for the graph"
printf '{"file": "half' >>"$(find "$work/met" -name '*.jsonl' | head -n 1)"

promise "run --recorded merges and measures it, and then it is exact"
status 0 dfgnn-tune run --recorded "$work/met" --device cpu --budget 10s \
  --store "$work/r.db" --json -q
holds 'length == 2 and ([.[].op] | sort) == ["gat", "gt"] and
  all(.source == "exact")'
DFGNN_RECORD=$work/again
export DFGNN_RECORD
status 0 dfgnn-bench "$small" --device cpu --op gat --heads 2 --dim 8 --rounds 2 \
  --store "$work/r.db" -q
unset DFGNN_RECORD
[ ! -e "$work/again" ] || fail "what was exact is noted"
mkdir "$work/empty"
status 1 dfgnn-tune run --recorded "$work/empty" --store "$work/r.db"
says empty recording.json DFGNN_RECORD
finish
