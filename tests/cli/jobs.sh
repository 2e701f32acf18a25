#!/bin/sh
# Job files: the problems of a job are measured; errors name a file and a line.
. "$(dirname "$0")/lib.sh"

job=$work/tune.job

promise "a job says what to measure, options override it"
mkdir "$work/some graphs"
printf '3 3 4\n1 1\n1 2\n2 3\n3 1\n' >"$work/body"
for i in a b; do
  { echo '%%MatrixMarket matrix coordinate pattern general'; cat "$work/body"; } \
    >"$work/some graphs/$i.mtx"
done
cat >"$job" <<END
# two graphs, and one more
some graphs/*.mtx
	$small

--op gt,gat	# a comment
--pass forward
--dim 4,8
--heads 1,2
--dtype f32,f64
--device cpu
--layout nhd
--budget 100ms
--store job.db
END
status 0 dfgnn-tune run --job "$job" --dry-run --json --quiet
holds 'length == 48'
holds '[.[].graph] | unique | length == 3'
status 0 dfgnn-tune run --job "$job" --dry-run --json --quiet --dim 3 --op gatv2
holds 'length == 12 and all(.dim == 3 and .op == "gatv2")'
status 0 dfgnn-tune run "$small" --job "$job" --dry-run --json --quiet
holds 'length == 16'

promise "its store is beside it"
status 0 dfgnn-tune run --job "$job" --dim 4 --op gt --heads 1 --dtype f32 --quiet
[ -e "$work/job.db" ] || fail "no job.db"

wrong() { # LINE PATTERN TEXT
  printf -- "$3" >"$job"
  promise "line $1 of '$3' is wrong"
  status 1 dfgnn-tune run --job "$job" --quiet
  says "tune.job:$1: .*$2"
}

wrong 2 "dim: found 'abc', expected a whole number" 'a\n--dim 3,abc\n'
wrong 3 "unknown operator 'foo', expected one of: gt" '# a job\na\n--op gt,foo\n'
wrong 3 "10x" 'a\n\n--budget 10x\n'
wrong 2 "found '-3', expected a whole number from 1 to" 'a\n--dim -3\n'
wrong 2 "cold: found 'maybe', expected no value" 'a\n--cold maybe\n'
wrong 2 "budget: found '', expected TIME" 'a\n--budget\n'
wrong 2 "device: found 'tpu', expected auto" 'a\n--device tpu\n'
wrong 2 "found --dims, expected .*; did you mean --dim" 'a\n--dims 3\n'
wrong 2 "found --json, expected" 'a\n--json\n'
wrong 1 "found 'a --dim 3', expected a graph" 'a --dim 3\n'
wrong 2 "found 'op supergat', expected a graph or --op" 'a\nop supergat\n'
wrong 2 "a: no such file" '--device cpu\na\n'
wrong 2 "no file matches" '\n*.none\n'
wrong 3 "dim: found a second time" '--dim 1\n--seed 1\n--dim 2\n'
wrong 1 "dim: more than 256 values in a list" "--dim $(seq -s, 1 257)\n"
wrong 1 "unknown pass 'gt', expected one of: forward, backward" '--pass gt\n'
wrong 1 "found '1e300h', expected a time .* at most 10000h" '--budget 1e300h\n'
wrong 2 "found 'inf'" '--seed 3\n--time-limit inf\n'
wrong 1 "found '-1', expected a whole number from 0" '--seed -1\n'
wrong 1 "found '18446744073709551616'" '--seed 18446744073709551616\n'
wrong 2 "found '100000000', expected .* from 1 to 4096" \
  '--seed 0\n--threads 100000000\n'

promise "a NUL byte is no text"
printf -- '--dim 1\0\n' >"$job"
status 1 dfgnn-tune run --job "$job" --quiet
says "tune.job: found a NUL byte, expected text"

promise "lists may be long"
echo "--dim $(seq -s, 1 256)" >"$job"
status 0 dfgnn-tune run "$small" --job "$job" --dry-run --json --quiet
holds 'length == 256'

promise "a job file that cannot be read is named"
status 1 dfgnn-tune run --job "$work/none.job"
says "none.job"
status 1 dfgnn-tune run --job "$work"
says "directory"

promise "the example jobs are good"
checked=0
for j in "$top"/docs/examples/jobs/*.job; do
  case $j in # graphs of a hundred million edges
  */h200.job) set -- "$small" ;;
  *) set -- ;;
  esac
  status 0 dfgnn-tune run "$@" --job "$j" --dry-run --json --quiet --device cpu
  holds 'length > 1'
  checked=$((checked + 1))
done
[ $checked -gt 0 ] || fail "there is no example"

promise "the Slurm script tunes by shards, merges and publishes"
cat >"$work/slurm.job" <<EOF
$small
--op gt
--dim 4,8
--budget 100ms
EOF
for i in 1 2; do
  status 0 env JOB="$work/slurm.job" STORES="$work/stores" DEVICE=cpu \
    TMPDIR="$work" SLURM_ARRAY_TASK_ID=$i SLURM_ARRAY_TASK_MIN=1 \
    SLURM_ARRAY_TASK_COUNT=2 sh "$top/docs/examples/jobs/slurm.sh"
done
status 0 dfgnn-tune show --store "$work/stores/tuning.db" --json
holds '[.[].dim] | unique == [4, 8]'

promise "the Kubernetes script does as much in each pod"
sed -n '/^            - |$/,/^          env:/s/^              //p' \
  "$top/docs/examples/jobs/kubernetes.yaml" |
  sed "s#/job/tune.job#$work/slurm.job --device cpu#
    s#/stores/#$work/pods/#; s#/scratch/#$work/scratch-#" >"$work/pod.sh"
mkdir "$work/pods"
for again in 1 2; do
  status 0 env JOB_COMPLETION_INDEX=1 SHARDS=2 sh -euc "$(cat "$work/pod.sh")"
done
status 0 dfgnn-tune show --store "$work/pods/shard-1.db" --json
holds '[.[].dim] | unique == [4]'

finish
