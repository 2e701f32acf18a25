#!/bin/sh
# Wrong usage exits with 2 and says what was expected.
. "$(dirname "$0")/lib.sh"

wrong_usage "no command" dfgnn-tune
wrong_usage "unknown command 'tune'" dfgnn-tune tune
wrong_usage "unknown or ambiguous option --nonsense" dfgnn-tune run --nonsense x
wrong_usage "did you mean --dim?" dfgnn-tune run --dims 8 x
wrong_usage "did you mean --time-limit?" dfgnn-tune run --timelimit=5 x
wrong_usage "did you mean explain?" dfgnn-tune explian x
wrong_usage "did you mean generate?" dfgnn-graph genrate x
wrong_usage "unknown option -z" dfgnn-tune run -z x
wrong_usage "--dim needs a value" dfgnn-tune run x --dim
wrong_usage "takes no value" dfgnn-tune run x --cold=3
wrong_usage "found 'x', expected a whole number" dfgnn-tune run x --dim 8,x
wrong_usage "expected a whole number from 1" dfgnn-tune run x --dim 0
wrong_usage "expected a whole number from 1" dfgnn-tune run x --heads -3
wrong_usage "empty" dfgnn-tune run x --dtype ""
wrong_usage "dtype" dfgnn-tune run x --dtype f31
wrong_usage "gatv2" dfgnn-tune run x --op spmm-median
wrong_usage "forward" dfgnn-tune run x --pass sideways
wrong_usage "expected auto, cpu, cuda" dfgnn-tune run x --device tpu
wrong_usage "expected auto, cpu, cuda" dfgnn-tune run x --device cuda:x
wrong_usage "expected a time above zero" dfgnn-tune run x --budget 10x
wrong_usage "expected a time above zero" dfgnn-tune run x --time-limit -1
wrong_usage "no graph, expected GRAPH operands or --recorded" dfgnn-tune explain
wrong_usage "unexpected operand" dfgnn-tune variants x
wrong_usage "too few operands" dfgnn-tune merge a.db
wrong_usage "no graph" dfgnn-tune run
wrong_usage "no operand" dfgnn-bench
wrong_usage "exclude each other" dfgnn-bench x --dispatch --regret
wrong_usage "--lock and --check exclude each other" \
  dfgnn-tune explain x --check a --lock a
wrong_usage "--kernels and --store exclude each other" \
  dfgnn-tune prune --kernels --store a.db
wrong_usage "found --kernels and 'a.db', expected one of the two" \
  dfgnn-tune stat --kernels a.db
# shellcheck disable=SC2154,SC2086
wrong_usage "is no variant" dfgnn-bench "$small" $quick --variants tuned,nonsense

promise "a name that is near none is suggested nothing"
status 2 dfgnn-tune run --nonsense x
! grep -q "did you mean" "$work/err" || fail "$(cat "$work/err")"

promise "types and devices may be named as torch names them"
status 0 dfgnn-tune explain "$small" --device cpu --dtype float16,bfloat16
prints "f16"
prints "bf16"
status 1 env CUDA_VISIBLE_DEVICES= dfgnn-tune explain "$small" --device gpu
says "cuda\\|CUDA\\|GPU"

promise "a store in a folder that does not exist is an error"
status 5 dfgnn-tune run "$small" --device cpu --op gat --budget 0.05 \
  --store "$work/no/folder/t.db"
says "there is no folder $work/no/folder"
[ ! -e "$work/no" ] || fail "the folder was made"

promise "a store whose name has a colon is refused by it"
status 2 dfgnn-tune stat --store "$work/12:30.db"
says "12:30.db', expected one file without a colon"

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
prints "^graph  *a$"
rm "$work/mixed/a.mtx"
status 1 dfgnn-tune explain "$work/mixed" --device cpu

promise "an unknown DFGNN_ variable is reported"
DFGNN_STROE=x
export DFGNN_STROE
status 0 dfgnn-tune info --device cpu
says "DFGNN_STROE"
unset DFGNN_STROE

promise "a variable that takes a word says which words it takes"
status 0 env DFGNN_PROGRAMS=x DFGNN_LOG=loud DFGNN_CHECK=edges DFGNN_MEASURE= \
  dfgnn-tune info --device cpu
says "DFGNN_PROGRAMS is 'x', expected own"
says "DFGNN_LOG is 'loud', expected none, error, warn, info or debug"
! grep -e DFGNN_CHECK -e DFGNN_MEASURE "$work/err" ||
  fail "it warns of variables that are right"

finish
