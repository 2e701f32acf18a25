#!/bin/sh
# dfgnn-graph: its output, the files that it writes, the input that it refuses.
. "$(dirname "$0")/lib.sh"

same() { cmp "$1" "$2" >&2 || fail "$1 and $2 differ"; }

promise "the manual has every kind, format, limit and status, and no mistakes"
dfgnn-graph --manual >"$work/manual"
for word in sbm-pattern sbm-cluster knn region powerlaw uniform grid \
  icosphere sphere era_to_h edge-attr \
  reddit_rand .npz .mtx .graph .csv DFGNN_MAX_FILE 'wrong usage' preset scale \
  output; do
  escaped=$(echo "$word" | sed 's/-/\\-/g')
  grep -q -F -e "$escaped" "$work/manual" || fail "it lacks $word"
done
if command -v man >/dev/null; then
  LC_ALL=C.UTF-8 MANWIDTH=80 man --warnings -l "$work/manual" \
    >/dev/null 2>"$work/err"
  [ ! -s "$work/err" ] || fail "$(head -n 1 "$work/err")"
fi

promise "info shows a graph with its histogram"
compare dfgnn-graph-cora.txt dfgnn-graph info "$top/data/cora.npz"

promise "info shows several graphs as a table"
compare dfgnn-graph-data.txt dfgnn-graph info "$top/data"

promise "info --json is one flat array"
status 0 dfgnn-graph info --json "$top/data/cora.npz" "$top/data/nell.npz" \
  grid:rows=3,columns=3
holds 'length == 3 and all(.[]; type == "object")'
holds '.[0].graph == "cora" and .[0].edges == 10556 and .[0].symmetric'
holds '.[1].max_degree == 4549 and .[2].destinations == 9'
holds 'all(.[]; (.histogram | add) > 0.999 and (.histogram | add) < 1.001)'

promise "generate writes the attributes of edges beside a mesh"
status 0 dfgnn-graph generate icosphere level=2 -o "$work/m.npz" \
  --edge-attr "$work/e.npz"
unzip -p "$work/e.npz" edge_attr.npy | head -c 128 | grep -a -q \
  "'<f4', 'fortran_order': False, 'shape': (1260, 3)" || fail "no edge_attr"
status 2 dfgnn-graph generate grid -o "$work/g.npz" --edge-attr "$work/e.npz"
says --edge-attr "'grid'" icosphere

promise "info reports what it cannot read and shows the rest"
echo "0 x" >"$work/bad.txt"
status 1 dfgnn-graph info "$work/bad.txt" "$top/data/cora.npz"
says bad.txt "line 1" "'x'" destination
prints "^cora "

promise "every format keeps the graph"
for f in mtx mtx.gz graph graph.gz txt txt.gz csv csv.gz tsv tsv.gz; do
  status 0 dfgnn-graph convert "$top/data/cora.npz" "$work/a.$f"
  status 0 dfgnn-graph convert "$work/a.$f" "$work/b.npz"
  [ -e "$work/first.npz" ] || cp "$work/b.npz" "$work/first.npz"
  same "$work/first.npz" "$work/b.npz"
done

promise "npz keeps the graphs of a batch, text says that it does not"
status 0 dfgnn-graph convert "$top/data/batch_ptc.npz" "$work/p.npz"
dfgnn-graph info --json "$work/p.npz" >"$work/out"
holds '.[0].graphs == 344'
status 0 dfgnn-graph convert "$work/p.npz" "$work/p.mtx"
says note p.mtx "344 graphs"
status 0 dfgnn-graph convert -q "$work/p.npz" "$work/p.mtx"
[ ! -s "$work/err" ] || fail "-q is not quiet"

promise "a file is replaced whole or not at all"
echo "1 0" >"$work/old.graph"
status 2 dfgnn-graph convert "$top/data/wiki_vote.npz" "$work/old.graph"
says "not symmetric, expected an undirected one"
[ "$(cat "$work/old.graph")" = "1 0" ] || fail "the old file is gone"
[ "$(find "$work" -name 'old.graph*' | wc -l)" -eq 1 ] || fail "leftovers"

promise "settings may be options, operands or one specification"
status 0 dfgnn-graph generate sbm-pattern --batch 4 --seed 3 -o "$work/1.npz"
status 0 dfgnn-graph generate sbm-pattern batch=4 seed=3 -o "$work/2.npz"
status 0 dfgnn-graph generate --output="$work/3.npz" \
  sbm-pattern:batch=4 --seed=3
same "$work/1.npz" "$work/2.npz"
same "$work/1.npz" "$work/3.npz"
status 0 dfgnn-graph generate --preset mnist --scale 0.01 -o "$work/m.npz"
dfgnn-graph info --json "$work/m.npz" preset=mnist,scale=0.01 >"$work/out"
holds '.[0].fingerprint == .[1].fingerprint and .[0].graphs == 10'

promise "threads do not change what is generated"
OMP_NUM_THREADS=1 dfgnn-graph generate powerlaw -o "$work/t1.npz"
OMP_NUM_THREADS=3 dfgnn-graph generate powerlaw -o "$work/t3.npz"
same "$work/t1.npz" "$work/t3.npz"

promise "reorder shows what each method changes"
status 0 dfgnn-graph reorder --method degree,rcm,community --json \
  "$top/data/cora.npz"
holds '[.[].method] == ["degree", "rcm", "community"]'
holds 'all(.graph == "cora" and .destinations == 2708 and .sources == 2708 and
           .edges == 10556 and .reorder_ms > 0)'
holds 'all(.bandwidth_before == 2657 and .reuse_before > 0.9)'
holds '(.[1].bandwidth <= 741) and (.[2].reuse < 0.65) and (.[2].locality > 0.9)'
status 0 dfgnn-graph reorder "$top/data/cora.npz"
prints "^cora  *community "

promise "reorder writes the graph of one method, and its map"
status 0 dfgnn-graph reorder --method rcm "$top/data/airfoil1.npz" \
  "$work/r.npz" --map "$work/map.npz" --json
cp "$work/out" "$work/reordered"
dfgnn-graph info --json "$work/r.npz" "$top/data/airfoil1.npz" >"$work/out"
holds '.[0].histogram == .[1].histogram and .[0].edges == .[1].edges and
       .[0].symmetric and .[0].fingerprint != .[1].fingerprint'
jq -s '.[0][0].reuse == .[1][0].reuse and .[0][0].locality == .[1][0].locality' \
  "$work/reordered" "$work/out" | grep -q true || fail "its figures differ"
if command -v unzip >/dev/null; then
  unzip -l "$work/map.npz" >"$work/out"
  for a in rows columns edges; do prints " $a.npy"; done
fi
status 0 dfgnn-graph reorder --method rcm "$top/data/airfoil1.npz" "$work/s.npz"
same "$work/r.npz" "$work/s.npz"
[ ! -s "$work/err" ] || fail "it is not quiet"

promise "reorder writes no graph whose map it cannot write"
status 1 dfgnn-graph reorder "$top/data/airfoil1.npz" "$work/lost.npz" \
  --map "$work/none/map.npz"
says "none/map.npz"
[ ! -e "$work/lost.npz" ] || fail "the graph is there without its map"

promise "reorder keeps the graphs of a batch, and orders both sides of a matrix"
status 0 dfgnn-graph reorder "$top/data/batch_ptc.npz" "$work/q.npz"
dfgnn-graph info --json "$work/q.npz" >"$work/out"
holds '.[0].graphs == 344'
status 0 dfgnn-graph reorder --method all --json "$top/data/bip_cora_words.npz"
holds 'length >= 3 and all(.destinations == 2708 and .sources == 1433)'

promise "a library without METIS says so, one with it orders by it"
dfgnn-graph reorder --method metis --json "$top/data/cora.npz" \
  >"$work/out" 2>"$work/err"
case $? in
0) holds '.[0].method == "metis" and .[0].locality > 0.9' ;;
1) says "cora: metis: this library was built without METIS" ;;
*) fail "reorder --method metis is neither done nor unsupported" ;;
esac

wrong_usage "no command" dfgnn-graph
wrong_usage "unknown command 'draw'" dfgnn-graph draw
wrong_usage "no operand, expected GRAPH" dfgnn-graph info
wrong_usage "too few operands, expected IN OUT" dfgnn-graph convert a
wrong_usage "no file to write" dfgnn-graph generate knn
wrong_usage "no kind and no --preset" dfgnn-graph generate -o "$work/x.npz"
wrong_usage "expected one kind or preset" dfgnn-graph generate knn grid -o x.npz
wrong_usage "batch needs a value" dfgnn-graph generate knn -o "$work/x.npz" --batch
wrong_usage "unknown or ambiguous option --size" \
  dfgnn-graph generate knn --size 4 -o "$work/x.npz"
wrong_usage "found the kind 'mesh', expected preset=NAME or one of sbm-pattern" \
  dfgnn-graph generate mesh -o "$work/x.npz"
wrong_usage "knn: found the setting 'drop', expected one of nodes=71" \
  dfgnn-graph generate knn --drop .1 -o "$work/x.npz"
wrong_usage "found no known extension" dfgnn-graph convert "$top/data/cora.npz" x.y

wrong_usage "--method: unknown order 'rabbit', expected one of: degree, rcm" \
  dfgnn-graph reorder --method degree,rabbit "$top/data/cora.npz"
wrong_usage "found several methods, expected one with OUT or --map" \
  dfgnn-graph reorder --method degree,rcm "$top/data/cora.npz" "$work/x.npz"
wrong_usage "found several methods, expected one with OUT or --map" \
  dfgnn-graph reorder --method degree,rcm "$top/data/cora.npz" --map x.npz
wrong_usage "found no known extension" \
  dfgnn-graph reorder "$top/data/cora.npz" "$work/x.y"
wrong_usage "unexpected operand 'c'" dfgnn-graph reorder a b c

promise "files that are no graphs are failures"
status 1 dfgnn-graph reorder "$work/none.npz"
says "none.npz: cannot open: No such file"
status 1 dfgnn-graph reorder "$top/data/cora.npz" "$work/none/x.npz"
says "none/x.npz: cannot write"
status 1 dfgnn-graph reorder "$top/data/cora.npz" --map "$work/none/x.npz"
says "none/x.npz: cannot write"
head -c 200000 /dev/zero | tr '\0' '\n' >"$work/large.txt"
DFGNN_MAX_FILE=100K status 1 dfgnn-graph reorder "$work/large.txt"
says "found more than 102400 bytes"
status 1 dfgnn-graph convert "$work/none.npz" "$work/x.npz"
says "none.npz: cannot open: No such file"
head -c 3000 "$top/data/cora.npz" >"$work/cut.npz"
status 1 dfgnn-graph info "$work/cut.npz"
says "cut.npz: found no zip directory"
head -c 300000 /dev/zero | tr '\0' '\n' | gzip >"$work/bomb.txt.gz"
DFGNN_MAX_FILE=100K status 1 dfgnn-graph info "$work/bomb.txt.gz"
says "found more than 102400 bytes"
[ ! -e "$work/x.npz" ] || fail "an output was written"

promise "partition writes a part a rank, whose nodes and edges are the graph's"
status 0 dfgnn-graph partition "$top/data/cora.npz" 3 "$work/parts" --json
for r in 0 1 2; do
  [ -s "$work/parts/part-$r-of-3.npz" ] || fail "part $r is missing"
done
sum=$(jq '[.[].nodes] | add' "$work/out")
[ "$sum" = 2708 ] || fail "the parts have $sum nodes, expected 2708"
jq -e '([.[].halo] | add) == ([.[].sends] | add)' "$work/out" >/dev/null ||
  fail "what is sent is not what is received"
jq -e 'all(.[]; .balance < 1.1 and .cut_share < 0.2)' "$work/out" >/dev/null ||
  fail "the parts are not balanced, or METIS cuts too much"
status 0 dfgnn-graph partition "$top/data/cora.npz" 3 "$work/again" -q --json
for r in 0 1 2; do
  same "$work/parts/part-$r-of-3.npz" "$work/again/part-$r-of-3.npz"
done

promise "partition takes at most 2.5 times the memory of the graph"
dfgnn-graph generate powerlaw --nodes 200000 --edges 20000000 \
  --max-degree 3000 --columns local -q -o "$work/large.npz"
status 0 dfgnn-graph partition "$work/large.npz" 4 "$work/large"
awk '/the graph takes/ { n++
  if ($11 > 2.5 * $6) exit 1 } END { exit !n }' "$work/err" ||
  fail "$(cat "$work/err")"
rm -rf "$work/large" "$work/large.npz"

promise "partition takes a file of owners, and names what is wrong"
awk 'BEGIN { for (i = 0; i < 2708; i++) print i % 2 }' >"$work/owner.part"
status 0 dfgnn-graph partition "$top/data/cora.npz" 2 "$work/given" \
  --by "$work/owner.part" --json
jq -e 'all(.[]; .nodes == 1354)' "$work/out" >/dev/null ||
  fail "the parts are not those of the file"
sed -i '7s/.*/2/' "$work/owner.part"
status 1 dfgnn-graph partition "$top/data/cora.npz" 2 "$work/given" \
  --by "$work/owner.part"
says "line 7: found '2', expected a part, 0..1"
status 2 dfgnn-graph partition "$top/data/cora.npz" none "$work/given"
says "found 'none', expected a number of parts"
parts() { # PATTERN TEXT
  printf "$2" >"$work/owner.part"
  status 1 dfgnn-graph partition stars:nodes=3,centres=1 2 "$work/given" \
    --by "$work/owner.part"
  says "owner.part: $1"
}
parts "line 4: found '5', expected a part, 0..1" '0\n\n\n5\n1\n'
parts "line 2: found '1.5'" '0\n1.5\n1\n'
parts "line 1: found '0 1 0'" '0 1 0\n'
parts "line 2: found '99999999999999999999'" '0\n99999999999999999999\n'
parts "found 2 numbers, expected the part of each of 3 nodes" '0\n1\n\n'
parts "line 4: found one more number, expected 3" '0\n1\n1\n0\n'
status 1 dfgnn-graph partition "$top/data/cora.npz" 2 "$work/given" --by random
says "random: cannot open" metis

finish
