#!/bin/sh
# Times training steps of whole PyG models on the CPU, as PyG has them and after
# dfgnn.accelerate(), in turns, on one and on two threads; prints the table of
# docs/performance.md.  The load average stands in every row.
#
#   bench/cpu_models.sh OUT.json [PART...]     models whose names have a part
#
#   THREADS="1 2"                 numbers of threads
#   SECONDS_EACH=10               of steps for a model
#   LIMIT=150                     seconds of steps for all models on a number of
#                                 threads, at most
#   PYTHON=python3                one that has torch and torch_geometric
#   DFGNN_LIBRARY=FILE            (default: what the package finds)
. "$(dirname "$0")/lib.sh"
needs jq

[ $# -ge 1 ] || {
  sed -n '2,13s/^# \{0,1\}//p' "$0" >&2
  exit 2
}
out=$1
shift
python=${PYTHON:-python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for threads in ${THREADS:-1 2}; do
  say "$threads threads, load $(cut -d' ' -f1 /proc/loadavg 2>/dev/null)"
  OMP_NUM_THREADS=$threads PYTHONPATH="$bench/../python:$bench:${PYTHONPATH:-}" \
    "$python" "$bench/cpu_models.py" --threads "$threads" \
    --seconds "${SECONDS_EACH:-10}" --limit "${LIMIT:-150}" -o "$work/$threads.json" \
    --models "${@:-}"
done
jq -s add "$work"/*.json >"$out"
"$python" "$bench/cpu_models.py" --table "$out"
