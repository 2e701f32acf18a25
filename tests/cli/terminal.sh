#!/bin/sh
# Tables fit a terminal of 80 columns: what all rows share stands above them once,
# and nothing sticks to the progress line.  A pipe gets every column.
. "$(dirname "$0")/lib.sh"

command -v script >/dev/null || { echo "script is missing: skipped"; exit 77; }
store=$work/t.db

# terminal COMMAND...: standard output of the command on a terminal, as lines
terminal() {
  script -qec "stty cols 80 && $* 2>$work/err" /dev/null </dev/null |
    tr -d '\r' >"$work/out"
}
# fits COMMAND...: no line is wider than the terminal, and there are some
fits() {
  terminal "$@"
  [ -s "$work/out" ] || fail "'$*' prints nothing: $(cat "$work/err")"
  awk 'length > 80' "$work/out" >"$work/long"
  [ ! -s "$work/long" ] || fail "'$*' is wider: $(head -n 1 "$work/long")"
}

promise "tables fit the terminal"
problems="--device cpu --op gt,gat --dim 8,16 --store $store"
fits dfgnn-tune run "$small" $problems --budget 0.2s --pass forward,backward
for c in show "show --all" stat "explain $small --device cpu --dim 8" info \
  doctor variants "run $small --device cpu --dry-run" "verify $store" \
  "prune --dry-run"; do
  case $c in
  info | variants | verify*) fits dfgnn-tune $c ;;
  *) fits dfgnn-tune $c --store $store ;;
  esac
done
fits dfgnn-bench "$small" $problems --rounds 2
fits dfgnn-graph info "$small" uniform:nodes=20,edges=90
fits dfgnn-graph info "$small"

promise "what all rows share is a heading, and variants have no prefix"
terminal dfgnn-tune show --store "$store" --op gt --pass forward
tr -s '\n' ' ' <"$work/out" | grep -q 'op gt, pass forward, dtype f32' ||
  fail "no heading: $(head -n 3 "$work/out")"
grep -q 'cpu\.attention' "$work/out" && fail "a variant has its prefix"

promise "--wide and --columns choose"
terminal dfgnn-tune show --store "$store" --wide
prints 'cpu\.attention\.fwd\..*MEASURED\|VARIANT'
terminal dfgnn-tune show --store "$store" --columns dim,median_ms
[ "$(awk 'NF {print NF; exit}' "$work/out")" = 2 ] || fail "not two columns"
wrong_usage "found 'colour', expected names of graph" \
  dfgnn-tune show --store "$store" --columns colour

promise "a wrong name of --columns is refused before anything is measured"
for wrong in "tune run" "bench" "bench --dispatch"; do
  # shellcheck disable=SC2086
  wrong_usage "found 'colour', expected names of graph" \
    dfgnn-$wrong "$small" --device cpu --store "$work/none.db" --columns colour
done
[ ! -e "$work/none.db" ] || fail "a store was made"

promise "--columns of explain are those of its candidates"
status 0 dfgnn-tune explain "$small" --device cpu --dim 8 --columns reason
prints '^variant '
prints '^REASON$'

promise "a pipe gets every column with whole names"
status 0 dfgnn-tune show --store "$store"
prints '^GRAPH  *OP .*MEASURED'
prints 'cpu\.attention\.fwd\.'

promise "messages do not stick to the progress line"
script -qec "stty cols 80 && dfgnn-tune run $small nothere.mtx --device cpu \
  --dim 24 --budget 0.4s --store $store" /dev/null </dev/null >"$work/out"
clear=$(printf '\r\033[K')
grep -aqF "${clear}dfgnn-tune run: nothere.mtx" "$work/out" ||
  fail "the progress line stays: $(grep -a nothere.mtx "$work/out")"

finish
