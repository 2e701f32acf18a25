#!/bin/sh
# Measures the figures of a GPU, inside the bundle of `make gpu-bundle` or in a
# build: makes the graphs, tunes, benches, and writes JSON under OUT.
#
#   bench/h200_campaign.sh OUT [STEP...]
#
# Steps: graphs tune bench heads bf16 ablation widths batches dispatch reorder
# regret;
# all of them if none is named.  A result that is there is not made again and
# stored measurements are not repeated, so a campaign that was stopped goes on.
#
#   GRAPHS=DIR    real graphs as .npz; with paper_graphs.py beside them (needs
#                 torch) the presets are the very graphs that peers were measured
#                 on, else dfgnn-graph generates graphs of the same kinds
#   PRESETS=...   names (default: the eleven below)
#   STORE=FILE    measurements (default OUT/tuning.db)
#   BUDGET=TIME   per problem (default 10s);  LIMIT=TIME  per step's tuning (8m)
#   DEVICE=cuda   any device that the tools know
#   PACK=FILE     a .tar.gz of all results, written after each step
. "$(dirname "$0")/lib.sh"
needs dfgnn-tune dfgnn-bench dfgnn-graph

[ $# -ge 1 ] || {
  sed -n '2,20s/^# \{0,1\}//p' "$0" >&2
  exit 2
}
out=$1
shift
case ${PACK-} in
"" | /*) ;;
*) PACK=$PWD/$PACK ;;
esac
steps=${*:-graphs tune bench heads bf16 ablation widths batches dispatch reorder regret}
graphs=${GRAPHS:-$bench/../data}
presets=${PRESETS:-pattern cluster mnist cifar10 voc coco arxiv ppa proteins \
reddit_comm reddit_rand}
device=${DEVICE:-cuda}
store=${STORE:-$out/tuning.db}
made=$out/graphs
mkdir -p "$made"
tune="--device $device --store $store --budget ${BUDGET:-10s}"
tune="$tune --time-limit ${LIMIT:-8m}"
all_ops="gt,agnn,gat,gatv2"

# tuned OPTIONS...: tunes every graph that is made; a time limit is no failure,
# the next call goes on
tuned() {
  code=0
  # shellcheck disable=SC2086
  dfgnn-tune run "$made" $tune "$@" >>"$out/tune.log" || code=$?
  [ $code -eq 0 ] || say "dfgnn-tune exits with $code"
}

timed() { # FILE GRAPH... OPTIONS
  file=$1
  shift
  # shellcheck disable=SC2086
  once "$out/$file" dfgnn-bench "$@" --device "$device" --store "$store" --json ||
    say "dfgnn-bench fails on $file"
}

# each_timed NAME OPTIONS: a file for each graph, so that a stop loses one
each_timed() {
  result=$1
  shift
  for graph in "$made"/*.npz; do
    timed "${result}_$(basename "$graph" .npz).json" "$graph" "$@"
  done
}

step_graphs() {
  for name in cora citeseer pubmed; do
    [ -e "$made/$name.npz" ] || cp "$graphs/$name.npz" "$made/"
  done
  for name in $presets; do
    [ ! -e "$made/$name.npz" ] || continue
    say "graph $name"
    if python3 -c 'import torch; assert torch.cuda.is_available()' 2>/dev/null &&
      [ -e "$graphs/paper_graphs.py" ]; then
      python3 "$graphs/paper_graphs.py" "$made" "$name"
    else
      dfgnn-graph generate "preset=$name" -o "$made/$name.npz"
    fi
  done
}

step_tune() { tuned --op $all_ops --dim 128; }

step_bench() { each_timed bench --op $all_ops --dim 128; }

step_heads() {
  tuned --op $all_ops --dim 16 --heads 8
  each_timed heads --op $all_ops --dim 16 --heads 8
}

step_bf16() {
  tuned --op gt,gat --dim 128 --dtype bf16
  each_timed bf16 --op gt,gat --dim 128 --dtype bf16
}

# times each optimisation of the paper on its own: the variants of its two kernels
step_ablation() {
  for name in cora pattern arxiv; do
    [ ! -e "$made/$name.npz" ] ||
      timed "ablation_$name.json" "$made/$name.npz" --op gt --dim 128 \
        --variants 'tuned,rule,unfused,*.smmf/*,*.pmf/*'
  done
}

step_widths() {
  for name in cora pubmed pattern arxiv; do
    [ -e "$made/$name.npz" ] || continue
    # shellcheck disable=SC2086
    dfgnn-tune run "$made/$name.npz" $tune --op gt --dim 16,32,48,64,96,128 \
      >>"$out/tune.log" || say "dfgnn-tune exits with $?"
    timed "widths_$name.json" "$made/$name.npz" --op gt --dim 16,32,48,64,96,128
    plot "widths_$name" "GT by width, $name" .dim
  done
}

step_batches() {
  set --
  for n in 64 128 256 512 1024 2048; do
    set -- "$@" "preset=pattern,batch=$n"
  done
  # shellcheck disable=SC2086
  dfgnn-tune run "$@" $tune --op gt --dim 128 >>"$out/tune.log" ||
    say "dfgnn-tune exits with $?"
  timed batches.json "$@" --op gt --dim 128
  plot batches "GT 1 x 128 by graphs in a batch of PATTERN" \
    '.graph | capture("batch=(?<n>[0-9]+)").n | tonumber'
}

step_dispatch() {
  timed dispatch.json "$made/cora.npz" "$made/pubmed.npz" --op gt,gat --dim 128 \
    --dispatch
}

# bench/reorder.sh OUT/reorder_OP draws the figure
step_reorder() {
  set --
  for name in arxiv pattern nell deezer_hu github wing soc_epinions1 pubmed; do
    for folder in "$made" "$graphs"; do
      [ ! -e "$folder/$name.npz" ] || {
        set -- "$@" "$folder/$name.npz"
        break
      }
    done
  done
  for op in gt spmm-sum reduce-max; do
    timed "reorder_$op.json" "$@" --op $op --dim 128 --reorder all --no-check \
      --rounds 7
  done
}

step_regret() {
  # shellcheck disable=SC2086
  dfgnn-tune run "$graphs" $tune --op gt --dim 32,128 >>"$out/tune.log" ||
    say "dfgnn-tune exits with $?"
  timed regret.json "$graphs" --op gt --dim 32,128 --regret
}

plot() { # NAME TITLE X
  command -v node >/dev/null && command -v jq >/dev/null &&
    [ -s "$out/$1.json" ] || return 0
  sh "$bench/plot.sh" "$out/$1.json" "$out/$1.svg" "$2" "$3" ||
    say "no picture of $1"
}

once "$out/info.json" dfgnn-tune info --device "$device" --json
for step in $steps; do
  say "step $step"
  "step_$step"
  [ -z "${PACK-}" ] || (cd "$out" && tar czf "$PACK" --exclude=graphs .)
done
dfgnn-tune stat --store "$store"
