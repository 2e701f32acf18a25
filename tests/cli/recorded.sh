#!/bin/sh
# Recordings of a step of a model: each graph's own problems are measured, under
# its name; what is wrong in one is named.
. "$(dirname "$0")/lib.sh"

step=$work/step
mkdir "$step"
dfgnn-graph generate "$small" -o "$step/graph-0.npz" || fail "no graph"
dfgnn-graph generate grid:rows=9,columns=9 -o "$step/graph-1.npz" ||
  fail "no second graph"
cp "$step/graph-1.npz" "$work/other.npz"

# problem GRAPH OP PASS [FILTER]: a problem of a recording
problem() {
  jq -n --argjson graph "$1" --arg op "$2" --arg pass "$3" \
    "{graph: \$graph, calls: 1, ms: 0.5, problem: {op: \$op, pass: \$pass,
      dtype: \"f32\", math: \"f32\", layout: \"nhd\", index: \"i32\",
      heads: 2, dim: 4, deterministic: 1, weights: 0, bias: 0, dropout: 0,
      edge_dim: 0, edge_use: 0, message: 0}} | ${4:-.}"
}

# recording [FILTER]: writes the recording, altered by a filter
recording() {
  {
    problem 0 gat forward '.problem.dropout = 1'
    problem 0 gat backward '.problem.dropout = 1'
    problem 1 spmm-mean forward '.problem.heads = 1 | .problem.dim = 16'
  } | jq -s "{dfgnn_recording: 1, graphs: [
      {file: \"graph-0.npz\", name: \"ring\", family: \"rings\"},
      {file: \"graph-1.npz\", name: \"\", family: \"\"}], problems: .} |
      ${1:-.}" >"$step/recording.json"
}

promise "a recording's problems are measured, each on its graph"
recording
status 0 dfgnn-tune run --recorded "$step" --store "$work/s.db" --device cpu \
  --budget 100ms --json -q
holds 'length == 3'
holds '[.[] | select(.graph == "ring")] | length == 2 and all(.op == "gat" and
  .dropout)'
holds '[.[] | select(.graph == "graph-1")] | length == 1 and
  .[0].op == "spmm-mean" and .[0].dim == 16'
status 0 dfgnn-tune export --store "$work/s.db" -o "$work/rows.jsonl" -q
grep '"graph":"ring"' "$work/rows.jsonl" | grep -q '"family":"rings"' ||
  fail "the family is lost"

promise "the same command resumes, and the file's name serves"
status 0 dfgnn-tune run --recorded "$step/recording.json" \
  --store "$work/s.db" --device cpu --dry-run --json -q
holds 'length == 3 and all(.measured > 0)'

promise "graphs and problems beside it are refused"
status 2 dfgnn-tune run "$small" --recorded "$step"
says "found a GRAPH beside it"
status 2 dfgnn-tune run --recorded "$step" --op gt
says "found options of problems beside it"

wrong() { # FILTER TEXT
  recording "$1"
  promise "wrong: $1"
  status 1 dfgnn-tune run --recorded "$step" --store "$work/s.db" \
    --device cpu -q
  says "$2"
}
promise "a folder of processes that met no problem is no wrong usage"
mkdir "$work/nothing"
: >"$work/nothing/1.jsonl"
status 1 dfgnn-tune run --recorded "$work/nothing" --device cpu
says "$work/nothing: found no problem"

wrong '.dfgnn_recording = 2' "found no recording of format 1"
wrong '.problems = []' "found no recording of format 1"
wrong '.graphs[0].file = "../other.npz"' "graph 0: found the file '../other"
wrong '.graphs[0].file = "absent.npz"' "absent.npz"
wrong '.problems[1].graph = 2' "problem 1: 'graph' must be a number from 0 to 1"
wrong '.problems[1].graph = "x"' "problem 1: 'graph' must be a number"
wrong '.problems[2].problem.op = "gcn2"' "problem 2: "
wrong '.problems[0].problem.heads = "two"' \
  "problem 0: 'heads': found \"two\", expected a whole number"
wrong 'del(.problems[0].problem.dim)' "problem 0: 'dim' is missing"
wrong '.problems[0].problem.depth = 3' "problem 0: 'problem': found 16 keys"
wrong '.problems[0].problem.dim = -4' "problem 0: "
wrong '.problems[0].problem.op = "spmm-sum" |
  .problems[0].problem.dropout = 1' "problem 0: "
status 1 dfgnn-tune run --recorded "$work/absent" --store "$work/s.db"
says "absent"
echo '{' >"$step/recording.json"
status 1 dfgnn-tune run --recorded "$step" --store "$work/s.db"
says "recording.json: line"
finish
