#!/bin/sh
# Edge programs are checked, timed and tuned as operators are.
. "$(dirname "$0")/lib.sh"

cat >"$work/attention.txt" <<'END'
dst q[H,D]; src k[H,D], v[H,D]
out = sum_in(softmax_in(sum(q * k) * 0.25) * v)
END

promise "a wrong program is refused with line and column"
echo 'dst q[D]; out = sofmax_in(q)' >"$work/wrong.txt"
status 2 dfgnn-bench uniform:nodes=20,edges=90 --program "$work/wrong.txt"
says wrong.txt "line 1, column 17" sofmax_in

promise "a file that is missing is named"
status 2 dfgnn-bench uniform:nodes=20,edges=90 --program "$work/none.txt"
says 'none.txt: cannot open'
status 2 dfgnn-bench uniform:nodes=20,edges=90 --program "$work"
says "$work: found a directory"

promise "a program is tuned as any problem, each candidate checked"
cat >"$work/gated.txt" <<'TEXT'
dst q[D]; src k[D]; edge w
out = sum_in(w * sigmoid(q + k) * tanh(k))
TEXT
graph=uniform:nodes=60,edges=300
tuned() {
  status 0 "$@" $graph --program "$work/gated.txt" --dim 8 --device cpu \
    --store "$work/programs.db"
}
tuned dfgnn-tune run --pass forward,backward --budget 0.2
prints 'program *forward .*cpu.program.blocks/'
prints 'program *backward'

promise "its measurements answer, with its text"
tuned dfgnn-tune explain
prints 'source *exact'
prints 'sum_in'
prints 'with hash [0-9a-f]\{16\}'

promise "stores keep, show, move and prune programs"
status 0 dfgnn-tune show --store "$work/programs.db" --json
prints '"program": "[0-9a-f]\{16\}"'
prints '"program_text": "dst q\[8\]; src k\[8\]'
status 0 dfgnn-tune export --store "$work/programs.db"
prints '"program":"[0-9a-f]\{16\}"'
cp "$work/out" "$work/rows.jsonl"
status 0 dfgnn-tune import "$work/rows.jsonl" --store "$work/imported.db"
status 0 dfgnn-tune merge "$work/merged.db" "$work/imported.db" \
  "$work/programs.db"
for db in programs merged; do
  status 0 dfgnn-tune export --store "$work/$db.db"
  sort "$work/out" >"$work/$db.rows"
done
cmp "$work/programs.rows" "$work/merged.rows" || fail "merging lost rows"
status 0 dfgnn-tune prune --store "$work/merged.db"
status 0 dfgnn-tune doctor $graph --program "$work/gated.txt" --dim 8 \
  --device cpu --store "$work/programs.db"

promise "rows of measurements have the whole text"
status 0 dfgnn-tune show --store "$work/programs.db" --json
holds 'any(.program_text | test("dst q.8.; src k.8..*tanh.k."))'

promise "other programs, and other sizes, are other problems"
status 0 dfgnn-tune explain $graph --program "$work/gated.txt" --dim 16 \
  --device cpu --store "$work/programs.db"
prints 'source *rule'

promise "a program that is an operator is tuned as that, and says so"
status 0 dfgnn-tune explain $graph --program "$work/attention.txt" --dim 8 \
  --heads 2 --device cpu --store "$work/programs.db"
says 'operator gt, forward'
prints 'gt forward f32'

promise "a job file names programs"
cat >"$work/tune.job" <<TEXT
$graph
--program $work/gated.txt
--dim 8
--device cpu
--budget 0.1
--store $work/job.db
TEXT
status 0 dfgnn-tune run --job "$work/tune.job"
prints 'program *forward'

promise "variants of programs are listed, and compiled without a GPU"
status 0 dfgnn-tune variants --op program
prints 'cuda.program.walks/lanes='
prints 'cpu.program.blocks/'

promise "sources of many edges are divided, where rows have few"
DFGNN_STORE= status 0 dfgnn-tune explain bipartite:nodes=9000 --dim 64 \
  --program "$work/gated.txt" --pass forward,backward --for sm_90,H200 --json
holds 'all(.variant | contains("long=64,"))'

promise "--op takes names of programs, beside operators"
status 0 dfgnn-tune explain $graph --op film,gat --dim 8 --device cpu \
  --store "$work/programs.db" --json
holds '[.[].op] == ["gat", "program"]'

promise "a user's text of the same formula is the same problem"
cat >"$work/film.txt" <<'TEXT'
dst by[D], more[D]; src x[D]
m = relu(more + x * by)
out = mean_in(m)
TEXT
status 0 dfgnn-tune run $graph --program "$work/film.txt" --dim 8 \
  --device cpu --budget 0.1 --store "$work/film.db" --json
holds '.[0].op == "program"'
status 0 dfgnn-tune explain $graph --op film --dim 8 --device cpu \
  --store "$work/film.db" --json
holds '.[0].source == "exact"'
status 0 dfgnn-tune show --op film --dim 8 --store "$work/film.db" --json
holds 'length > 0 and all(.op == "program")'
status 0 dfgnn-tune show --op cgcnn --store "$work/film.db" --json
holds 'length == 0'

promise "rows of a program are shown and exported by its name, of whatever size"
status 0 dfgnn-tune run $graph --op gt-edges,supergat --heads 1,2 --dim 5 \
  --dtype f64 --pass backward --device cpu --budget 0.01 \
  --store "$work/film.db" --json
holds 'length == 8'
status 0 dfgnn-tune show --op film --store "$work/film.db" --json
holds 'length == 1 and .[0].dim == 8'
status 0 dfgnn-tune show --op supergat --store "$work/film.db" --json
holds 'length == 4 and all(.op == "program" and .dim == 5)'
status 0 dfgnn-tune stat --op supergat --heads 2 --store "$work/film.db" --json
holds 'length == 2 and all(.problems == 1)'
status 0 dfgnn-tune show --op gt-edges --store "$work/film.db" --json
holds 'length == 4 and all(.op == "gt")'
status 0 dfgnn-tune show --op gt-edge-keys --store "$work/film.db" --json
holds 'length == 0'
says 'nothing of that is measured'

promise "programs that differ in edge features or messages alone are all meant"
status 0 dfgnn-tune explain $graph --op gt,gt-edges,gt-edge-keys,relu-sum \
  --dim 8 --device cpu --store "$work/film.db" --json
holds 'map(.edge_use) == [null, null, "keys", null]'
status 0 dfgnn-tune explain $graph --op relu-sum,gate-sum,gate-sum --dim 8 \
  --device cpu --store "$work/film.db" --json
holds 'map(.message) == ["relu", "gate"]'
promise "a program that is an operator beside it is one problem"
status 0 dfgnn-tune explain $graph --op gt,dotgat --dim 8 --device cpu \
  --store "$work/film.db" --json
holds 'length == 1'

promise "a name that is unknown, or that an option is not for, is told"
status 0 dfgnn-bench $graph --op fagcn,gen --dim 8 --device cpu --rounds 2 \
  --variants rule
prints ' program fagcn '
prints ' program gen '
status 0 dfgnn-tune explain $graph --op gat,fagcn --heads 2 --dim 8 --device cpu
says "op fagcn: the program has no size H"
status 0 dfgnn-tune explain $graph --op fagcn,supergat --dim 8 --device cpu
! grep -q "no size H" "$work/err" || fail "--heads was not given"
status 2 dfgnn-tune run $graph --op supergatt
says "unknown operator 'supergatt', expected one of: gt" \
  'did you mean supergat?'
for option in --bias --dropout --weights '--message relu' '--edge-dim 3' \
  '--edge-use keys' '--layout ndh' '--math tf32'; do
  status 2 dfgnn-tune run $graph --op gt,supergat $option
  says "${option%% *}: found program supergat, expected operators of the library"
  status 2 dfgnn-bench $graph --program "$work/film.txt" $option
  says "found program $work/film.txt"
done
status 2 dfgnn-tune run $graph --op program
says '--op: found program, expected --program FILE or the name of a program'
status 2 dfgnn-tune pin cpu.program.blocks --op supergat
says 'found the program supergat'

promise "dfgnn-bench checks and times a program"
status 0 dfgnn-bench $graph --program "$work/gated.txt" --dim 8 --device cpu \
  --store "$work/programs.db" --rounds 3 --variants tuned,rule \
  --pass forward,backward --json
holds 'length >= 2 and all(.status == "ok" and .rel_error < 1e-4)'

finish
