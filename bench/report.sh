#!/bin/sh
# Writes the tables of docs/performance*.md and README.md anew from the figures of
# bench/results, and the pictures of docs/figures.
#
#   bench/report.sh [--check | --tables]
#
# A file whose rows are of several commits, or say none, is refused unless
# bench/results/mixed.tsv names it and says why; the table "commits" lists all.
# A table stands between the lines <!-- table NAME --> and <!-- end -->.  Pictures
# need node.  With --check nothing is written: the script exits
# with 1 if a table differs from the figures; --tables prints all tables as JSON.
. "$(dirname "$0")/lib.sh"
needs jq

mode=${1-}
top=$bench/..
figures=$top/docs/figures
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# objects FILE: prints the rows of JSON, or of a table with tabs, one object a line
objects() {
  case $1 in
  *.json) jq -c '.[]' "$1" ;;
  *) grep -v '^#' "$1" | jq -R -s -c '[split("\n")[] | select(length > 0)
    | split("\t")] | .[0] as $names | .[1:][] | [$names, .] | transpose
    | map({(.[0]): (.[1] | tonumber? // .)}) | add' ;;
  esac
}

# commits_of ROWS FILE: prints which commits the rows of a file are of, and why the file
# may have several or none
commits_of() {
  why=$(awk -F '\t' -v file="${2#results/}" '$1 == file { print $2 }' \
    "$bench/results/mixed.tsv")
  jq -s -c --arg file "${2#results/}" --arg why "$why" '
    {$file, rows: length, $why, commits: (map(.commit // empty) | group_by(.)
      | map({commit: .[0], rows: length}))}
    | if .commits == [] then .commits = [{commit: null, rows}] else . end' "$1"
}

set --
: >"$work/of_commits"
while read -r name file; do
  : >"$work/$name" # a file that was not made yet has no rows
  if [ -e "$bench/$file" ]; then
    objects "$bench/$file" >"$work/$name"
    case $file in
    results/*) commits_of "$work/$name" "$file" >>"$work/of_commits" ;;
    esac
  fi
  set -- "$@" --slurpfile "$name" "$work/$name"
done <<END
peers peers.tsv
goals goals.tsv
goals_tensor goals_tensor.tsv
goals_heads goals_heads.tsv
goals_edges goals_edges.tsv
f32 results/h200/f32_1x128.json
eight results/h200/f32_8x16.json
bf16 results/h200/bf16_1x128.json
backward results/h200/backward_1x128.json
gather results/h200/gather_128.json
tensor results/h200/tensor_cores.json
regret results/h200/regret.json
ablation_cora results/h200/ablation_cora.json
ablation_pattern results/h200/ablation_pattern.json
ablation_arxiv results/h200/ablation_arxiv.json
widths_cora results/h200/widths_cora.json
widths_pubmed results/h200/widths_pubmed.json
widths_pattern results/h200/widths_pattern.json
widths_arxiv results/h200/widths_arxiv.json
heads results/h200/heads.json
heads_weather results/h200/heads_weather.json
heads_more results/h200/heads_more.json
modes results/h200/modes.json
edge_features results/h200/edge_features.json
python_minibatch results/h100/python_minibatch.json
batches results/h200/batches.json
dispatch results/h100/dispatch.json
regret_gather results/h200/regret_gather.json
regret_unseen results/h200/regret_unseen.json
python results/h200/python_layers.json
accelerate results/h100/python_accelerate.json
forces results/h200/python_forces.json
spmm results/h100/python_spmm.json
heads_f32 results/h200/heads_f32.json
heads_f16 results/h200/heads_f16.json
edges_f32 results/h200/edges_f32.json
edges_f16 results/h200/edges_f16.json
messages results/h200/messages_1x64.json
python_messages results/h100/python_messages.json
block results/h100/block.json
cora_gat results/h100/cora_gat.json
cora_transformer results/h100/cora_transformer.json
cora_captured results/h200/cora_captured.json
pattern results/h200/pattern.json
pattern_captured results/h200/pattern_captured.json
minibatch results/h200/minibatch.json
weather results/h100/weather.json
steps results/h100/python_steps.json
overhead results/h100/python_overhead.json
mlp results/h200/python_mlp.json
mlp_models results/h100/python_mlp_models.json
cpu_mlp results/cpu_mlp.json
regret_cpu results/regret_cpu.json
cpu results/cpu_1x128.json
torch results/cpu_vs_torch.json
cost results/tuning_cost_cpu.json
dispatch_cpu results/dispatch_cpu.json
END
jq -r 'select((.commits | length > 1 or .[0].commit == null) != (.why != ""))
  | if .why != "" then "\(.file) is of one commit now: take it out of mixed.tsv"
    else "the rows of \(.file) are of \(.commits | map("\(.commit // "no commit") (\(.rows))")
      | join(", ")): expected one commit, or a line of bench/results/mixed.tsv" end' \
  "$work/of_commits" >"$work/unsaid"
[ ! -s "$work/unsaid" ] || {
  sed "s|^|$0: |" "$work/unsaid" >&2
  exit 1
}
jq -n "$@" --slurpfile commits "$work/of_commits" -f "$bench/report.jq" >"$work/tables"
[ "$mode" != --tables ] || exec cat "$work/tables"

# writes each table into a file of its own
mkdir "$work/table"
jq -r 'keys[]' "$work/tables" | while read -r name; do
  jq -r --arg name "$name" '.[$name]' "$work/tables" >"$work/table/$name"
done

# filled FILE: prints the text with its tables anew
filled() {
  awk -v tables="$work/table" '
    /^<!-- table [a-z0-9_]+ -->$/ {
      print; print ""; file = tables "/" $3; lines = 0
      while ((getline line <file) > 0) { print line; lines++ }
      if (!lines) { print "no table " $3 >"/dev/stderr"; exit 1 }
      print ""; inside = 1
    }
    /^<!-- end -->$/ { inside = 0 }
    !inside && !/^<!-- table [a-z0-9_]+ -->$/ { print }' "$1"
}

for file in docs/performance.md docs/performance-graphs.md docs/performance-cpu.md README.md; do
  filled "$top/$file" >"$work/filled"
  if [ "$mode" = --check ]; then
    diff -u "$top/$file" "$work/filled" || {
      echo "$0: the tables of $file differ from the figures; bench/report.sh writes them" >&2
      exit 1
    }
  elif ! cmp -s "$work/filled" "$top/$file"; then
    cat "$work/filled" >"$top/$file"
    say "$file"
  fi
done
[ "$mode" != --check ] || exit 0

needs dfgnn-plot node
mkdir -p "$figures"
h200=$bench/results/h200
export XLABEL YLABEL=ms
for graph in cora pubmed pattern arxiv; do
  XLABEL='features a head'
  sh "$bench/plot.sh" "$h200/widths_$graph.json" "$figures/widths_$graph.svg" \
    "GT forward, one head, f32, H200: $graph" .dim
done
XLABEL='graphs in the batch'
sh "$bench/plot.sh" "$h200/batches.json" "$figures/batches.svg" \
  "GT forward, 1 x 128, f32, H200: batches of PATTERN" \
  '.graph | capture("batch=(?<n>[0-9]+)").n | tonumber'

# bars NAME TITLE YLABEL KEY...: draws a group of bars for each line of table NAME
bars() {
  name=$1 title=$2 label=$3
  shift 3
  {
    printf graph
    printf ' "%s"' "$@"
    echo
    cat "$work/table/$name"
  } >"$work/bars"
  dfgnn-plot bars "$title" '' "$label" "$work/bars" >"$figures/$name.svg.new"
  mv "$figures/$name.svg.new" "$figures/$name.svg"
}

# curves NAME TITLE FILE...: draws accuracy against seconds of training, a line
# for each library and file
curves() {
  name=$1 title=$2
  shift 2
  for file in "$@"; do
    jq -r '.[] | "\"\(.library)\(if .captured then ", captured" else "" end)\"",
      (.curve[] | "\(.[0]) \(.[1])"), "", ""' "$h200/$file.json"
  done >"$work/curves"
  dfgnn-plot lines -x "$title" 'seconds of training' 'accuracy (%)' \
    "$work/curves" >"$figures/$name.svg.new"
  mv "$figures/$name.svg.new" "$figures/$name.svg"
}

curves pattern "PATTERN, 1024 graphs, graph transformer, H200" \
  pattern pattern_captured
curves cora "Cora, GAT, validation nodes, H200" cora_captured

bars speedup "GT forward, 1 x 128, f32, one H200: speed-up of the tuned choice" \
  "times as fast" "over unfused" "over the best f32 peer"
bars optimisations "GT forward, 1 x 128, f32, H200: optimisations of the paper" \
  "times as fast as without any" cora pattern arxiv
