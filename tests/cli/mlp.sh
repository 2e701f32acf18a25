#!/bin/sh
# MLPs on edges are problems like others: tuned, stored, explained and timed.
. "$(dirname "$0")/lib.sh"

mesh=edge=8,width=16x16x8,activation=silu,norm=layer,residual=1
conv=edge=0,width=16x8,activation=relu,reduce=max,out=0
graph=uniform:nodes=60,edges=300
tuned() {
  status 0 "$@" $graph --mlp $mesh,$conv --device cpu --store "$work/mlps.db"
}

promise "an MLP is tuned as any problem, each candidate checked"
tuned dfgnn-tune run --pass forward,backward --dtype f32,f16 --budget 0.2
prints 'edge_mlp *forward .*f32 .*cpu.mlp.tiles/'
prints 'edge_mlp *backward .*f16'

promise "a graph that is checked by a part of it is tuned, too"
status 0 dfgnn-tune run knn:nodes=300,k=16 --device cpu --budget 0.2 \
  --mlp edge=128,width=128x128,activation=silu --pass forward,backward \
  --store "$work/part.db"
prints 'edge_mlp *forward'
prints 'edge_mlp *backward'

promise "its measurements answer, with its text"
tuned dfgnn-tune explain
prints 'source *exact'
prints 'edge=8,width=16x16x8,activation=silu,norm=layer,residual=1'
prints 'edge=0,width=16x8,activation=relu,reduce=max,out=0'
prints 'with hash [0-9a-f]\{16\}'

promise "stores keep, show, move and prune MLPs"
status 0 dfgnn-tune show --store "$work/mlps.db" --mlp $mesh --json
prints '"program_text": "edge=8,width=16x16x8,activation=silu,'
! grep -q 'edge=0,width=16x8' "$work/out" || fail "--mlp chose another's rows"
status 0 dfgnn-tune export --store "$work/mlps.db"
cp "$work/out" "$work/rows.jsonl"
status 0 dfgnn-tune import "$work/rows.jsonl" --store "$work/imported.db"
status 0 dfgnn-tune merge "$work/merged.db" "$work/imported.db" "$work/mlps.db"
for db in mlps merged; do
  status 0 dfgnn-tune export --store "$work/$db.db"
  sort "$work/out" >"$work/$db.rows"
done
cmp "$work/mlps.rows" "$work/merged.rows" || fail "merging lost rows"
status 0 dfgnn-tune prune --store "$work/merged.db"
status 0 dfgnn-tune doctor $graph --mlp $mesh --device cpu \
  --store "$work/mlps.db"
status 0 dfgnn-tune report --store "$work/mlps.db" -o "$work/page.html"
grep -q "$mesh" "$work/page.html" || fail "the page lacks the MLP"

promise "other widths, and other tensors, are other problems"
for other in edge=8,width=16x8 $mesh,parts=dst $mesh,out=0; do
  status 0 dfgnn-tune explain $graph --mlp $other --device cpu \
    --store "$work/mlps.db"
  prints 'source *rule'
done

promise "texts come from files and from job files"
printf '# a mesh\n%s\n' $mesh >"$work/mlps.txt"
status 0 dfgnn-tune explain $graph --mlp "$work/mlps.txt" --device cpu \
  --store "$work/mlps.db"
prints 'source *exact'
prints "mlp *$mesh"
cat >"$work/job.yaml" <<TEXT
graphs: ["$graph"]
mlps: ["$mesh", "$conv"]
devices: [cpu]
budget: 0.1
store: $work/job.db
TEXT
status 0 dfgnn-tune run --job "$work/job.yaml"
prints 'edge_mlp *forward'

promise "a wrong text is refused, and what was expected is said"
status 2 dfgnn-tune explain $graph --mlp edge=8,width=16x0
says "width is '16x0', expected 1 to 4 numbers"
status 2 dfgnn-tune explain $graph --mlp edge=8,width=4,activation=swish
says "activation is 'swish', expected one of none, relu, silu"
status 2 dfgnn-tune explain $graph --mlp edge=8,width=4,residual=1
says 'mlp.edge_dim is 8, expected 4'
status 2 dfgnn-tune explain $graph --mlp edge=8,width=4,depth=3
says "there is no 'depth'"
status 2 dfgnn-tune explain $graph --mlp none.txt
says 'none.txt: cannot be opened'
status 2 dfgnn-tune explain $graph --mlp "$work"
says "$work: Is a directory"
printf '# nothing\n' >"$work/empty.txt"
status 2 dfgnn-tune explain $graph --mlp "$work/empty.txt"
says 'names no MLP'

promise "a stored text that is no MLP, or another's, answers nothing"
sed 's/edge=8,width=16x16x8/edge=8,width=16x32x8/' "$work/rows.jsonl" \
  >"$work/forged.jsonl"
status 0 dfgnn-tune import "$work/forged.jsonl" --store "$work/forged.db"
status 0 dfgnn-tune explain $graph --device cpu --store "$work/forged.db" \
  --mlp edge=8,width=16x32x8,activation=silu,norm=layer,residual=1
prints 'source *rule'

promise "variants of MLPs are listed"
status 0 dfgnn-tune variants --op edge_mlp
prints 'cuda.mlp.resident/warps='
prints 'cuda.mlp.streamed/columns='
prints 'cpu.mlp.tiles/simd='

promise "dfgnn-bench checks and times an MLP"
status 0 dfgnn-bench $graph --mlp $mesh --device cpu --store "$work/mlps.db" \
  --rounds 3 --variants tuned,rule
prints 'cpu.mlp.tiles'

finish
