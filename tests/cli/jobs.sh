#!/bin/sh
# Job files: the problems of a job are measured; errors name a file and a line.
. "$(dirname "$0")/lib.sh"

job=$work/job.yaml

promise "a job says what to measure, options override it"
mkdir "$work/graphs"
printf '3 3 4\n1 1\n1 2\n2 3\n3 1\n' >"$work/body"
for i in a b; do
  { echo '%%MatrixMarket matrix coordinate pattern general'; cat "$work/body"; } \
    >"$work/graphs/$i.mtx"
done
cat >"$job" <<END
graphs: [graphs/*.mtx, "$small"]
operators: [gt, gat]
passes: [forward]
widths: [4, 8]
heads: [1, 2]
dtypes: [f32, f64]
devices: [cpu]
layouts: [nhd]
budget: 100ms
store: job.db
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
  printf "$3" >"$job"
  promise "line $1 of '$3' is wrong"
  status 1 dfgnn-tune run --job "$job" --quiet
  says "job.yaml:$1: .*$2"
}

wrong 2 "widths: found 'abc', expected a whole number" 'graphs: [a]\nwidths: [3, abc]\n'
wrong 2 "widths: found a single value, expected a list" 'graphs: [a]\nwidths: 3\n'
wrong 4 "operators: unknown operator 'foo', expected one of: gt" 'graphs: [a]\noperators:\n  - gt\n  - foo\n'
wrong 3 "10x" 'graphs: [a]\n\nbudget: 10x\n'
wrong 2 "found '-3', expected a whole number from 1 to" 'graphs: [a]\nwidths: [-3]\n'
wrong 2 "cold: found 'maybe', expected true, false, yes or no" 'graphs: [a]\ncold: maybe\n'
wrong 1 "found a list, expected a mapping" '[a, b]\n'
wrong 1 "graphs: found a mapping, expected a list" 'graphs: {a: b}\n'
wrong 1 "empty" ''
wrong 2 "expected" 'graphs: [a]\ndevices: [tpu]\n'
wrong 2 "did not find expected .*, while parsing .* that begins on line 1" \
  'graphs: [a\n'
wrong 2 "found the key 'width', expected .*; did you mean widths" \
  'graphs: [a]\nwidth: [3]\n'
wrong 3 "widths: found a second time" 'widths: [1]\nseed: 1\nwidths: [2]\n'
wrong 1 "widths: found no entry" 'widths: []\n'
wrong 2 "widths: found a list, expected a single value" 'widths: [1,\n  [2]]\n'
wrong 1 "found lists 9 deep" "$(head -c 100000 /dev/zero | tr '\0' '[')"
wrong 1 "graphs: found 257 entries, expected at most 256" \
  "graphs: [$(seq -s, 1 257)]\n"
wrong 2 "budget: empty, expected TIME" 'graphs: [a]\nbudget:\n'
wrong 1 "found a list, expected a single value" '? [a]\n: b\n'
wrong 2 "found character that cannot start any token" 'graphs: [a]\n\tseed: 3\n'
wrong 1 "passes: unknown pass 'gt', expected one of: forward, backward" \
  'passes: [gt]\n'
wrong 3 "found a second document" 'widths: [1]\n\n---\nwidths: [2]\n'
wrong 1 "budget: found '1e300h', expected a time .* at most 10000h" \
  'budget: 1e300h\n'
wrong 2 "time-limit: found 'inf'" 'seed: 3\ntime-limit: inf\n'
wrong 1 "seed: found '-1', expected a whole number from 0" 'seed: -1\n'
wrong 1 "seed: found '18446744073709551616'" 'seed: 18446744073709551616\n'
wrong 2 "threads: found '100000000', expected .* from 1 to 4096" \
  'seed: 0\nthreads: 100000000\n'
wrong 3 "found a NUL" 'widths:\n  - 3\n  - "a\\0b"\n'
wrong 1 "found a NUL" 'store: "a\\0b"\n'
wrong 1 "widths: found 257 entries, expected at most 256" \
  "widths: [$(seq -s, 1 257)]\n"
wrong 3 "dtypes: unknown dtype 'f8'" 'dtypes:\n  - f32\n  - f8\n'

promise "a value may be an alias of another"
echo 'widths: &some [&four 4, 8]
heads: *some
seed: *four' >"$job"
status 0 dfgnn-tune run "$small" --job "$job" --dry-run --json --quiet
holds 'length == 4'

promise "a NUL byte is no text"
printf 'widths: [1]\0\n' >"$job"
status 1 dfgnn-tune run --job "$job" --quiet
says "job.yaml: found a NUL byte, expected YAML text"

promise "lists may be long"
echo "widths: [$(seq -s, 1 256)]" >"$job"
status 0 dfgnn-tune run "$small" --job "$job" --dry-run --json --quiet
holds 'length == 256'

promise "a job file that cannot be read is named"
status 1 dfgnn-tune run --job "$work/none.yaml"
says "none.yaml"
status 1 dfgnn-tune run --job "$work"
says "directory"

promise "the example jobs are good"
checked=0
for j in "$top"/docs/examples/jobs/*.yaml; do
  ! grep -q "^apiVersion:" "$j" || continue # a Kubernetes Job
  case $j in # graphs of a hundred million edges
  */h200.yaml) set -- "$small" ;;
  *) set -- ;;
  esac
  status 0 dfgnn-tune run "$@" --job "$j" --dry-run --json --quiet --device cpu
  holds 'length > 1'
  checked=$((checked + 1))
done
[ $checked -gt 0 ] || fail "there is no example"

promise "the Slurm script tunes by shards, merges and publishes"
cat >"$work/slurm.yaml" <<EOF
graphs: ["$small"]
operators: [gt]
widths: [4, 8]
heads: [1]
dtypes: [f32]
budget: 100ms
EOF
for i in 1 2; do
  status 0 env JOB="$work/slurm.yaml" STORES="$work/stores" DEVICE=cpu \
    TMPDIR="$work" SLURM_ARRAY_TASK_ID=$i SLURM_ARRAY_TASK_MIN=1 \
    SLURM_ARRAY_TASK_COUNT=2 sh "$top/docs/examples/jobs/slurm.sh"
done
status 0 dfgnn-tune show --store "$work/stores/tuning.db" --json
holds '[.[].dim] | unique == [4, 8]'

promise "the Kubernetes script does as much in each pod"
sed -n '/^            - |$/,/^          env:/s/^              //p' \
  "$top/docs/examples/jobs/kubernetes.yaml" |
  sed "s#/job/job.yaml#$work/slurm.yaml --device cpu#
    s#/stores/#$work/pods/#; s#/scratch/#$work/scratch-#" >"$work/pod.sh"
mkdir "$work/pods"
for again in 1 2; do
  status 0 env JOB_COMPLETION_INDEX=1 SHARDS=2 sh -euc "$(cat "$work/pod.sh")"
done
status 0 dfgnn-tune show --store "$work/pods/shard-1.db" --json
holds '[.[].dim] | unique == [4]'

finish
