#!/bin/sh
# Measures the PyTorch package on a GPU, inside the bundle of `make gpu-bundle` or
# in a build; writes JSON under OUT.
#
#   bench/python_campaign.sh OUT GRAPHDIR [STEP...]
#
# Steps: overhead minibatch layers steps cora pattern sampled weather, in about
# nine minutes at most; tests only if it is named.  A result that is there is not
# made again.
#
#   DFGNN_LIBRARY=FILE  the library (default: the bundle's, or BUILD's)
#   STORE=FILE          the store to choose by (default: the package's)
#   PYTHON=PROGRAM      one that has torch, torch_geometric, scipy (python3)
#   DEVICE=cuda         cuda or cpu
#   GRAPHS=...          names in GRAPHDIR (default: the presets, small first)
#   SECONDS_A_ROW=0.15  LIMIT=90  step layers: seconds of a row, and of all rows
#   COMMIT=...          the commit that the library was built from
#   SEEDS=10            seeds of cora.py's GAT;  EPOCHS=200
. "$(dirname "$0")/lib.sh"

[ $# -ge 2 ] || {
  sed -n '2,18s/^# \{0,1\}//p' "$0" >&2
  exit 2
}
out=$1 graphs=$2
shift 2
steps=${*:-overhead minibatch layers steps cora pattern sampled weather}
top=$bench/..
python=${PYTHON:-python3}
device=${DEVICE:-cuda}
mkdir -p "$out"

if [ -z "${DFGNN_LIBRARY-}" ]; then
  for file in "$top/lib/libdfgnn_bundle.so" "${BUILD-$top}/.libs/libdfgnn.so"
  do
    [ ! -e "$file" ] || DFGNN_LIBRARY=$file
  done
fi
[ -e "${DFGNN_LIBRARY-}" ] || {
  echo "$0: libdfgnn.so is not found; DFGNN_LIBRARY=FILE names it" >&2
  exit 1
}
export DFGNN_LIBRARY PYTHONPATH="$top/python" PYTHONDONTWRITEBYTECODE=1

# the package's store, which a bundle has as JSON Lines
if [ -z "${STORE-}" ]; then
  STORE=$out/package.db
  for tune in "$top/tools/dfgnn-tune" "${BUILD-$top}/tools/dfgnn-tune"; do
    [ ! -e "$STORE" ] && [ -x "$tune" ] || continue
    sh "$top/data/stores/make.sh" "$tune" "$STORE" \
      "$top"/data/stores/*.jsonl.gz || say "no store: exit status $?"
  done
fi
[ ! -e "$STORE" ] || export DFGNN_PACKAGE_STORE="$STORE"

# made SECONDS FILE COMMAND...: makes FILE; a failure does not end the campaign
made() {
  limit=$1
  shift
  name=$(basename "$1")
  file=$1
  shift
  once "$file" timeout "$limit" "$@" 2>"$out/$name.log" ||
    say "$name: exit status $?; $(tail -n 1 "$out/$name.log")"
}

step_minibatch() {
  made 90 "$out/python_minibatch.json" "$python" \
    "$bench/python_minibatch.py" --device "$device"
  made 40 "$out/python_minibatch_parts.json" "$python" \
    "$bench/python_minibatch.py" --device "$device" --parts
}

step_overhead() {
  made 40 "$out/python_overhead.json" "$python" "$bench/python_overhead.py" \
    --device "$device" --json
}

step_layers() {
  set --
  for name in ${GRAPHS:-cora pattern arxiv mnist voc pubmed cluster ppa \
    reddit_comm citeseer cifar10 coco proteins reddit_rand}; do
    for file in "$graphs/$name.npz" "$top/data/$name.npz"; do
      [ -e "$file" ] && set -- "$@" "$file" && break
    done
  done
  say "layers of $# graphs"
  # -o writes after each graph, so that a stop loses one
  timeout $((${LIMIT:-90} + 20)) "$python" "$bench/python_layers.py" \
    --device "$device" -o "$out/python_layers.json" \
    --seconds "${SECONDS_A_ROW:-0.15}" --time-limit "${LIMIT:-90}" \
    ${COMMIT:+--commit "$COMMIT"} "$@" 2>"$out/python_layers.log" ||
    say "layers: exit status $?; $(tail -n 1 "$out/python_layers.log")"
  [ ! -s "$out/python_layers.json" ] ||
    "$python" "$bench/python_layers.py" --table "$out/python_layers.json" \
      >"$out/python_layers.md"
}

example() { # SECONDS NAME SCRIPT OPTIONS
  limit=$1 name=$2 script=$3
  shift 3
  made "$limit" "$out/$name.json" "$python" "$top/examples/$script" \
    --device "$device" --json "$@"
}

# times whole training steps, eager, compiled and captured
step_steps() {
  [ -e "$out/python_steps.json" ] ||
    timeout "${STEPS_LIMIT:-240}" "$python" "$bench/python_steps.py" \
      --device "$device" --data "$top/data" --seconds 0.3 \
      --time-limit $((${STEPS_LIMIT:-240} - 40)) \
      ${COMMIT:+--commit "$COMMIT"} -o "$out/python_steps.json" \
      2>"$out/python_steps.log" ||
    say "steps: exit status $?; $(tail -n 1 "$out/python_steps.log")"
}

step_cora() {
  example 70 cora_gat cora.py --model gat --seeds "${SEEDS:-10}" \
    --epochs "${EPOCHS:-200}"
  example 40 cora_transformer cora.py --model transformer --seeds 3 \
    --epochs "${EPOCHS:-200}"
  example 40 cora_captured cora.py --capture --seeds 3 \
    --epochs "${EPOCHS:-200}"
}

step_pattern() {
  example 60 pattern pattern.py --epochs 15 --batch "${BATCH:-128}"
  example 60 pattern_captured pattern.py --epochs 30 \
    --batch "${BATCH:-128}" --capture
}

step_sampled() {
  example 120 minibatch minibatch.py --epochs 2
}

step_weather() {
  example 90 weather weather.py --level 5 --grid 181x360 --width 512 \
    --heads 16 --steps 300 --flows 40 --rate 3e-4
}

# runs the CUDA tests alone, in eight processes where pytest has xdist
step_tests() {
  "$python" -c 'import xdist' 2>/dev/null && workers='-n 8' || workers=
  # shellcheck disable=SC2086
  timeout "${TESTS_LIMIT:-180}" "$python" -m pytest -p no:cacheprovider -q \
    $workers -k "${TESTS:-cuda}" "$top/python/tests" \
    >"$out/python_tests.log" 2>&1 || say "tests: exit status $?"
  tail -n 1 "$out/python_tests.log" >&2
}

for step in $steps; do
  say "step $step"
  "step_$step"
done
