#!/bin/sh
# Tunes a job file with an array of tasks, one GPU and one store for each task,
# and merges the stores at the end:
#
#   export JOB=/shared/tune.job STORES=/shared/stores
#   sbatch --array=1-8 --gpus-per-task=1 --time=02:00:00 slurm.sh
#
# Each task measures every 8th problem into a store on its own disk, copies it
# to $STORES whole, and the task that finds all of them there merges and
# publishes.  A task that was stopped resumes when the array is submitted again.
#SBATCH --job-name=dfgnn-tune
#SBATCH --ntasks=1
#SBATCH --signal=B:TERM@120
set -eu

job=${JOB:?set it to the job file}
stores=${STORES:?set it to a directory that all tasks share}
task=${SLURM_ARRAY_TASK_ID:?submit it with --array=1-N}
first=${SLURM_ARRAY_TASK_MIN:-1}
tasks=${SLURM_ARRAY_TASK_COUNT:?}
shard=$((task - first + 1))/$tasks
local=${SLURM_TMPDIR:-${TMPDIR:-/tmp}}/dfgnn-$task.db
kept=$stores/shard-$task.db

mkdir -p "$stores"
[ ! -e "$kept" ] || dfgnn-tune merge "$local" "$kept" --quiet

# run ends in good order at the first TERM, which sbatch sends to this shell
dfgnn-tune run --job "$job" --shard "$shard" --store "$local" \
  ${LIMIT:+--time-limit "$LIMIT"} ${DEVICE:+--device "$DEVICE"} &
pid=$!
trap 'kill -TERM $pid' TERM
status=0
wait $pid || status=$?
while kill -0 $pid 2>/dev/null; do
  wait $pid || status=$?
done

# publish writes a whole file or none: locks of network file systems are not
# trusted
dfgnn-tune publish "$kept" --store "$local" --quiet
[ "$status" -eq 0 ] || exit "$status"
: >"$stores/done-$task"
if [ "$(find "$stores" -name 'done-*' | wc -l)" -eq "$tasks" ]; then
  all=${local%.db}-all.db
  rm -f "$all"
  dfgnn-tune merge "$all" "$stores"/shard-*.db
  dfgnn-tune publish "$stores/tuning.db" --store "$all"
fi
