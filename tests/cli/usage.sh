#!/bin/sh
# Wrong usage exits with 2 and says what was expected.
. "$(dirname "$0")/lib.sh"

wrong() { # PATTERN COMMAND...
  pattern=$1
  shift
  promise "'$*' is wrong usage"
  status 2 "$@"
  says "$pattern"
  [ ! -s "$work/out" ] || fail "it prints on standard output"
}

wrong "no command" dfgnn-tune
wrong "unknown command 'tune'" dfgnn-tune tune
wrong "unknown or ambiguous option --nonsense" dfgnn-tune run --nonsense x
wrong "unknown option -z" dfgnn-tune run -z x
wrong "--dim needs a value" dfgnn-tune run x --dim
wrong "takes no value" dfgnn-tune run x --cold=3
wrong "found 'x', expected a whole number" dfgnn-tune run x --dim 8,x
wrong "expected a whole number from 1" dfgnn-tune run x --dim 0
wrong "expected a whole number from 1" dfgnn-tune run x --heads -3
wrong "empty" dfgnn-tune run x --dtype ""
wrong "dtype" dfgnn-tune run x --dtype f31
wrong "gatv2" dfgnn-tune run x --op spmm-median
wrong "forward" dfgnn-tune run x --pass sideways
wrong "expected auto, cpu, cuda" dfgnn-tune run x --device tpu
wrong "expected auto, cpu, cuda" dfgnn-tune run x --device cuda:x
wrong "expected a time above zero" dfgnn-tune run x --budget 10x
wrong "expected a time above zero" dfgnn-tune run x --time-limit -1
wrong "no operand, expected GRAPH" dfgnn-tune explain
wrong "unexpected operand" dfgnn-tune variants x
wrong "too few operands" dfgnn-tune merge a.db
wrong "no graph" dfgnn-tune run
wrong "no operand" dfgnn-bench
wrong "exclude each other" dfgnn-bench x --dispatch --regret
# shellcheck disable=SC2154,SC2086
wrong "is no variant" dfgnn-bench "$small" $quick --variants tuned,nonsense

promise "a graph that is not there is a failure, not wrong usage"
status 1 dfgnn-tune explain "$work/none.mtx" --device cpu
says "none.mtx"
status 1 dfgnn-tune explain "$work/*.mtx" --device cpu
says "no file matches"
mkdir "$work/empty"
status 1 dfgnn-tune explain "$work/empty" --device cpu
says "no graph files"

promise "a file of a directory that is no graph is passed over"
mkdir "$work/mixed"
echo "this is no graph" >"$work/mixed/notes.txt"
printf '%%%%MatrixMarket matrix coordinate pattern general\n2 2 1\n1 2\n' \
  >"$work/mixed/a.mtx"
status 0 dfgnn-tune explain "$work/mixed" --device cpu
says "notes.txt"
prints "^a, gt"
rm "$work/mixed/a.mtx"
status 1 dfgnn-tune explain "$work/mixed" --device cpu

promise "an unknown DFGNN_ variable is reported"
DFGNN_STROE=x
export DFGNN_STROE
status 0 dfgnn-tune info --device cpu
says "DFGNN_STROE"

finish
