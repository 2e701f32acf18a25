#!/bin/sh
# Makes the measurements that a model learns from, where coverage is thinnest:
# every family that is legal in a cell of problems is measured with a few
# settings on several kinds of graphs, whatever a model predicts.
#
#   bench/train_campaign.sh STORE SECONDS [GRAPH...]
#
# GRAPHs are files or folders, used beside the generated graphs below.  A pass
# raises each family to one graph in each cell, the next to two, then to four and
# so on, so that the campaign may be stopped at any time; a call with more SECONDS
# goes on.  The coverage is printed before and after.
#
#   DEVICE=cuda   any device that the tools know
#   BUDGET=TIME   per problem (default 5s)
#   SHARD=I/N     this machine's share of the problems
#   FOR=ARCH      whose coverage is printed (default sm_90)
#   SHAPES=LINES  what is measured in place of the list below: a line has options
#                 of dfgnn-tune run
. "$(dirname "$0")/lib.sh"
needs dfgnn-tune

[ $# -ge 2 ] || {
  sed -n '2,19s/^# \{0,1\}//p' "$0" >&2
  exit 2
}
store=$1
end=$(($(date +%s) + $2))
shift 2
both="--pass forward,backward"
shapes=${SHAPES:-"
--op gt $both --heads 16 --dim 32 --dtype f16
--op gt,gatv2 $both --heads 4 --dim 32 --edge-dim 11
--op gt $both --heads 16 --dim 32 --dtype f16 --edge-dim 11
--op gt,gat,gatv2 $both --heads 8 --dim 16
--op gt,gat,gatv2,agnn $both --heads 1 --dim 128
--op gt,gat,gatv2,agnn $both --heads 4 --dim 32
--op agnn $both --heads 8 --dim 8
--op spmm-sum,spmm-weighted,reduce-max,reduce-mean,reduce-pna $both --dim 64
--op gt,gatv2 $both --heads 8 --dim 16 --edge-dim 11
--op gatv2 $both --heads 8 --dim 16 --dtype f16 --edge-dim 11
--op gt,gat,gatv2,agnn $both --heads 1 --dim 64 --dtype f16
--op gt,gat,gatv2,agnn $both --heads 4 --dim 32 --dtype f16
--op gat,gatv2,agnn $both --heads 8 --dim 16 --dtype f16
--op spmm-sum,spmm-weighted,reduce-max,reduce-mean,reduce-pna $both --dim 128 --dtype f16
--op gt,gat,gatv2 $both --heads 4 --dim 32 --edge-dim projected
--op gt,gat,gatv2 $both --heads 8 --dim 16 --edge-dim projected --dtype f32,f16
--op gt,gat,gatv2 $both --heads 1 --dim 64 --edge-dim projected --dtype f32,f16
--op gt,gat,gatv2 $both --heads 4 --dim 32 --edge-dim projected --dtype f16
--op gt,gatv2 $both --heads 4 --dim 32 --edge-dim 11,64 --dtype f16
--op gt,gatv2 $both --heads 1 --dim 64 --edge-dim 11,64 --dtype f32,f16
--op gt,gatv2 $both --heads 4 --dim 32 --edge-dim 64
--op gt,gatv2 $both --heads 8 --dim 16 --edge-dim 64 --dtype f32,f16
--op spmm-sum,reduce-max,reduce-mean,reduce-pna $both --dim 64 --message gate --dtype f32,f16
--op spmm-sum,reduce-max,reduce-mean,reduce-pna $both --dim 64 --message relu --edge-dim 11,64,projected --dtype f32,f16
--op spmm-sum,reduce-max,reduce-mean,reduce-pna $both --dim 64 --message gate --edge-dim 11,64,projected --dtype f32,f16
--op spmm-sum,reduce-max,reduce-mean,reduce-pna $both --dim 64 --message gate-value --edge-dim 11,64 --dtype f32,f16"}
generated="
icosphere:level=5
powerlaw:nodes=20000,edges=200000,max-degree=3000,seed=1
sbm-pattern:batch=24,seed=2
knn:nodes=20000,k=12,seed=1
bipartite:nodes=20000,sources=3000,edges=150000,heavy=4,share=0.5,seed=1
rmat:scale=13,edges=120000,seed=2
uniform:nodes=4000,sources=30000,edges=120000,seed=1
knn:nodes=71,k=8,batch=256,seed=1
stars:nodes=5000,centres=200
grid:rows=200,columns=200,neighbours=8
powerlaw:nodes=60000,edges=400000,max-degree=12000,seed=3
icosphere:level=6
knn:nodes=5000,k=64,seed=3
bipartite:nodes=3000,sources=20000,edges=300000,heavy=50,share=0.2,seed=2
uniform:nodes=30000,sources=800,edges=120000,seed=2
region:nodes=479,batch=64,seed=1
sbm-cluster:batch=64,seed=1
rmat:scale=15,edges=500000,seed=3
uniform:nodes=2000,edges=240000,seed=3"

coverage() {
  [ ! -e "$store" ] || dfgnn-tune model coverage "$store" --for "${FOR:-sm_90}" ||
    true # an empty cell is what the campaign is for
}

# covered GRAPHS OPTIONS...: raises the problems that the options name
covered() {
  plan=cover:$1
  shift
  left=$((end - $(date +%s)))
  [ $left -gt 2 ] || return 1
  code=0
  # shellcheck disable=SC2086
  dfgnn-tune run "$@" --plan "$plan" ${SHARD:+--shard "$SHARD"} \
    --store "$store" -q --device "${DEVICE:-cuda}" --budget "${BUDGET:-5s}" \
    --time-limit "${left}s" </dev/null >/dev/null || code=$?
  [ $code -eq 0 ] || [ $code -eq 3 ] || say "dfgnn-tune exits with $code"
}

coverage
graphs=1
# shellcheck disable=SC2086
while [ $graphs -le 64 ]; do
  say "up to $graphs graphs of each family in each cell"
  echo "$shapes" | while read -r shape; do
    [ -z "$shape" ] || covered $graphs "$@" $generated $shape || exit 1
  done || break
  graphs=$((2 * graphs))
done
coverage
