#!/bin/sh
# The choices that the package's store, model and rule make for an H200, beside
# those of the last release: a change of any of them shows here what it moves.
# REGENERATE=1 writes the file anew.
. "$(dirname "$0")/lib.sh"
package=${top_builddir:-build}/data/stores/tuning.db
data=$top/data
[ -e "$package" ] || {
  echo "no $package here: skipped"
  exit 77
}
unset DFGNN_MODEL

graphs="$data/cora.npz $data/bcsstk16.npz $data/batch_enzymes.npz $data/wiki_vote.npz
icosphere:level=5 powerlaw:nodes=20000,edges=200000,max-degree=3000,seed=1
bipartite:nodes=20000,sources=3000,edges=150000,heavy=4,share=0.5,seed=1"
both="--pass forward,backward"
choices() {
  # shellcheck disable=SC2086
  dfgnn-tune explain $graphs --for sm_90,H200 --store "$package" --json -q "$@" |
    jq -r '.[] | [.graph, .op, .pass, .dtype, "\(.heads)x\(.dim)",
      (if .edge_dim then "edges \(.edge_dim)" else "-" end), .source, .variant] | join(" ")'
}
{
  choices --op gt,gat $both --heads 1 --dim 128
  choices --op gat,gatv2 $both --heads 8 --dim 8
  choices --op gt $both --heads 16 --dim 32 --dtype f16
  choices --op gt $both --heads 8 --dim 16 --dtype f32,f16
  choices --op gatv2 $both --heads 4 --dim 32 --edge-dim 11
  choices --op gt $both --heads 16 --dim 32 --dtype f16 --edge-dim 11
  choices --op spmm-sum,reduce-max,reduce-pna $both --dim 64
} >"$work/choices" 2>"$work/err" || fail "explain --for failed: $(cat "$work/err")"

promise "about two hundred choices are those of the golden table"
count=$(wc -l <"$work/choices")
[ "$count" -gt 150 ] || fail "$count choices, expected above 150"
compare choices.txt cat "$work/choices"
finish
