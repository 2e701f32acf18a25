#!/bin/sh
# Makes the measurements that a model learns from, within minutes: of problems drawn
# evenly from the product of graphs, operators, passes and shapes, each in a budget.
#
#   bench/train_campaign.sh STORE SECONDS GRAPH...
#
# GRAPHs are files or folders, used beside the generated graphs below.  Each round
# measures other problems of all shapes, so that it may be stopped at any time;
# every third round measures candidates in random order, the others in the order
# of the model in use, so that its mistakes are stored.  Stored measurements are
# not repeated: a call with more SECONDS goes on.
#
#   DEVICE=cuda   any device that the tools know
#   BUDGET=TIME   per problem (default 1s)
#   PART=N        a round is an N-th of all problems (default 29)
#   SHAPES=LINES  what is measured on each graph in place of the list below: a
#                 line has options of dfgnn-tune run
. "$(dirname "$0")/lib.sh"
needs dfgnn-tune

[ $# -ge 3 ] || {
  sed -n '2,17s/^# \{0,1\}//p' "$0" >&2
  exit 2
}
store=$1
end=$(($(date +%s) + $2))
shift 2
part=${PART:-29}
both="--pass forward,backward"
attention="--op gt,gat,gatv2 $both"
sums="--op spmm-sum,reduce-max $both"
shapes=${SHAPES:-"
$attention --heads 1 --dim 32,128
$sums --heads 1 --dim 32,64,128
--op spmm-mean,reduce-mean,reduce-pna $both --heads 1 --dim 16,64,256
$attention --heads 8 --dim 8,16
$attention --heads 16 --dim 32
$attention --heads 4 --dim 24
$attention --heads 2 --dim 16,64
$attention --heads 4 --dim 32,64
$attention --heads 8 --dim 32
$attention --heads 8 --dim 8,16 --dtype f16
--op gt,gatv2 $both --heads 16 --dim 32,64 --dtype bf16
--op gt,gatv2 $both --heads 4 --dim 32 --edge-dim 11
--op gt,gatv2 $both --heads 8 --dim 8 --edge-dim 8
--op gt $both --heads 16 --dim 32 --edge-dim 11 --dtype f16
--op gt,gatv2 $both --heads 4 --dim 16 --edge-dim 64"}
generated="
rmat:scale=10,edges=30000,seed=1
rmat:scale=13,edges=120000,seed=2
rmat:scale=15,edges=500000,seed=3
powerlaw:nodes=20000,edges=200000,max-degree=3000,seed=1
powerlaw:nodes=3000,edges=150000,max-degree=200,columns=local,seed=2
powerlaw:nodes=60000,edges=400000,max-degree=12000,seed=3
uniform:nodes=4000,sources=30000,edges=120000,seed=1
uniform:nodes=30000,sources=800,edges=120000,seed=2
uniform:nodes=2000,edges=240000,seed=3
bipartite:nodes=20000,sources=3000,edges=150000,heavy=4,share=0.5,seed=1
bipartite:nodes=3000,sources=20000,edges=300000,heavy=50,share=0.2,seed=2
stars:nodes=20000,centres=4
stars:nodes=5000,centres=200
icosphere:level=4
icosphere:level=6
grid:rows=4,columns=8000
grid:rows=200,columns=200,neighbours=8
knn:nodes=20000,k=12,seed=1
knn:nodes=20000,k=40,seed=2
knn:nodes=5000,k=64,seed=3
knn:nodes=71,k=8,batch=256,seed=1
region:nodes=479,batch=64,seed=1
sbm-cluster:batch=64,seed=1
sbm-pattern:batch=24,seed=2"

# measured SHARD OPTIONS...: a shard of the problems that the options name
measured() {
  shard=$1
  shift
  left=$((end - $(date +%s)))
  [ $left -gt 2 ] || return 1
  code=0
  # shellcheck disable=SC2086
  dfgnn-tune run "$@" --shard "$shard/$part" --store "$store" -q \
    --device "${DEVICE:-cuda}" --budget "${BUDGET:-1s}" \
    --time-limit "${left}s" </dev/null >/dev/null || code=$?
  [ $code -eq 0 ] || [ $code -eq 3 ] || say "dfgnn-tune exits with $code"
}

round=1
# shellcheck disable=SC2086
while [ $round -le "$part" ]; do
  say "round $round of $part"
  [ $((round % 3)) -ne 0 ] || export DFGNN_MODEL=none
  echo "$shapes" | while read -r shape; do
    [ -z "$shape" ] || measured $round "$@" $generated $shape || exit 1
  done || break
  unset DFGNN_MODEL
  round=$((round + 1))
done
