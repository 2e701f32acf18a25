#!/bin/sh
# Surveys: complete, resumable, shared out; and the judge that stands on them.
. "$(dirname "$0")/lib.sh"
command -v python3 >/dev/null || { echo "python3 is missing: skipped"; exit 77; }
mesh=grid:rows=12,columns=12
star=stars:nodes=60,centres=2
cells=$work/cells.txt
survey=$work/survey.csv
cat >"$cells" <<'END'
# two problems
sum8   --op spmm-sum --dim 8
gat4x2b --op gat --heads 4 --dim 2 --pass backward # a gradient
END
run="dfgnn-tune survey --cells $cells -o $survey --device cpu --threads 1 -q"

# complete N: the file has N blocks, each with as many rows as it says, all different
complete() {
  python3 - "$survey" "$1" >&2 <<'END' || fail "the blocks are not complete"
import collections, csv, math, sys
rows = list(csv.DictReader(open(sys.argv[1])))
blocks = collections.defaultdict(list)
for row in rows:
    blocks[row["cell"], row["graph"]].append(row)
assert len(blocks) == int(sys.argv[2]), f"{len(blocks)} blocks"
for key, block in blocks.items():
    times = [float(row["ms"]) for row in block]
    assert len(block) == int(block[0]["variants"]) > 5, (key, len(block))
    assert len({row["variant"] for row in block}) == len(block), key
    assert times == sorted(times) and times[0] > 0, key
    assert int(block[0]["rounds"]) > 1 and all(int(row["revision"]) > 0 for row in block), key
    assert all(row["variant"].startswith("cpu.") and "1 thread" in row["device"] for row in block)
END
}

promise "a survey has every variant of each cell on each graph"
status 0 $run "$small" "$mesh"
complete 4
status 0 dfgnn-tune survey "$small" "$mesh" "$star" --cells "$cells" -o "$survey" --status --json
holds 'length == 2 and all(.complete == 2 and .missing == 1 and .variants > 5)'

promise "the same command measures what is missing and nothing else"
cp "$survey" "$work/before.csv"
status 0 $run "$small" "$mesh"
cmp -s "$survey" "$work/before.csv" || fail "it measured again"
status 0 $run "$small" "$mesh" "$star"
complete 6
head -c "$(wc -c <"$work/before.csv")" "$survey" | cmp -s - "$work/before.csv" ||
  fail "it changed what was there"

promise "a block that was cut off is measured again, wherever it is"
grep -v "gat4x2b,\"*stars.*parameters=none" "$survey" >"$work/whole.csv"
awk -F, 'NR == 4 {next} {print}' "$work/whole.csv" >"$survey" # a row of the first block is lost
status 0 dfgnn-tune survey "$small" "$mesh" "$star" --cells "$cells" -o "$survey" --status --json
holds '[.[].complete] | add == 5'
head -c -37 "$work/whole.csv" >"$survey"
status 0 $run "$small" "$mesh" "$star"
complete 6

promise "a line that is no row costs its block alone"
for line in "$(printf 'y%.0s' $(seq 3000))" '\\000'; do
  sed "3i $line" "$work/whole.csv" | python3 -c 'import sys
sys.stdout.write(sys.stdin.read().replace("\\000", "\0"))' >"$survey"
  status 0 $run "$small" "$mesh" "$star" --only gat4x2b
  status 0 dfgnn-tune survey "$small" "$mesh" "$star" --cells "$cells" -o "$survey" --status --json
  holds '[.[].complete] | add == 5'
done

promise "rows that tell another size begin another block"
cp "$work/whole.csv" "$survey"
echo 'sum8,other,cpu.a/b=1,1,8,2,1,cpu' >>"$survey"
for _ in $(seq 5000); do
  echo 'sum8,other,cpu.a/b=1,1,8,5000,1,cpu'
done >>"$survey"
status 0 dfgnn-tune survey "$mesh" --cells "$cells" -o "$survey" --status --json
holds 'length == 2 and all(.complete == 1 and .missing == 0)'
cp "$work/whole.csv" "$survey"

promise "a block whose kernels changed since is measured again, and its last rows count"
sed 's/^\(sum8,"*stars.*\),[0-9]*,\("[^"]*"\)$/\1,99,\2/' "$work/whole.csv" >"$survey"
status 0 dfgnn-tune survey "$small" "$mesh" "$star" --cells "$cells" -o "$survey" --status --json
holds '[.[].complete] | add == 5'
status 0 $run "$small" "$mesh" "$star"
status 0 dfgnn-tune survey "$small" "$mesh" "$star" --cells "$cells" -o "$survey" --status --json
holds '[.[].complete] | add == 6'
cp "$work/whole.csv" "$survey"

promise "a survey that is killed loses one block at most"
rm "$survey"
$run "$small" "$mesh" "$star" "uniform:nodes=3000,edges=60000" 2>/dev/null &
killed=$!
tries=0
while [ ! -s "$survey" ] || [ "$(wc -l <"$survey")" -lt 8 ]; do
  tries=$((tries + 1))
  [ $tries -lt 600 ] || break
  sleep 0.05
done
kill -9 $killed
wait $killed 2>/dev/null
sleep 0.3 # its process ends with it
status 0 $run "$small" "$mesh" "$star"
complete 6

promise "shards share the graphs"
rm "$survey"
status 0 $run "$small" "$mesh" "$star" --shard 1/2
complete 4
status 0 $run "$small" "$mesh" "$star" --shard 2/2
complete 6

promise "--only surveys some cells, and a time limit ends with 3"
rm "$survey"
status 0 $run "$mesh" --only sum8
complete 1
status 3 $run "uniform:nodes=30000,edges=900000" --time-limit 0.01s
says "time limit reached"
complete 1

promise "results are compared where that is asked"
status 0 $run "$star" --only gat4x2b --check
complete 2

promise "wrong tables are refused with their line"
printf 'a --op gt\nb --op nothing\n' >"$work/wrong.txt"
status 1 dfgnn-tune survey "$mesh" --cells "$work/wrong.txt" -o "$survey" --device cpu
says "wrong.txt:2" nothing
printf 'a --budget 3s\n' >"$work/wrong.txt"
status 1 dfgnn-tune survey "$mesh" --cells "$work/wrong.txt" -o "$survey" --device cpu
says "wrong.txt:1" "--budget"
printf 'a --op gt\na --op gat\n' >"$work/wrong.txt"
status 1 dfgnn-tune survey "$mesh" --cells "$work/wrong.txt" -o "$survey" --device cpu
says "wrong.txt:2" "second time"
wrong() { # PATTERN TEXT
  printf -- "$2" >"$work/wrong.txt"
  status 1 dfgnn-tune survey "$mesh" --cells "$work/wrong.txt" -o "$survey" --device cpu
  says "wrong.txt:$1"
}
wrong "1: found --dim a second time" 'a --op gt --dim 4 --dim 5\n'
wrong "2: found a NUL byte" 'a --op gt\nb --op gt\0 --dim 7\n'
wrong "1: found the name xxx.* at most 63" "$(printf 'x%.0s' $(seq 64)) --op gt\n"
wrong "2: found 'second'" "# $(printf 'x%.0s' $(seq 1100)) a --op gt\nb second\n"
printf 'a --op gt\n' >"$work/wrong.txt"
status 1 dfgnn-tune survey "$mesh" --cells "$work/wrong.txt" --only a,typo -o "$survey" --device cpu
says "found no cell 'typo'"
printf 'a,b\n1,2\n' >"$work/other.csv"
status 1 dfgnn-tune survey "$mesh" --cells "$cells" -o "$work/other.csv" --device cpu
says other.csv "no survey"
[ "$(wc -l <"$work/other.csv")" -eq 2 ] || fail "it wrote into another file"
wrong_usage "cells" dfgnn-tune survey "$mesh" -o "$survey"
wrong_usage "output" dfgnn-tune survey "$mesh" --cells "$cells"

promise "the judge times choices beside the best of all variants"
rm "$survey"
status 0 $run "$small" "$mesh"
judge="dfgnn-bench $small $mesh --regret --cells $cells --survey $survey --device cpu --threads 1 --rounds 3 -q"
status 0 $judge --store "$work/none.db" --json
holds 'map(select(.graph)) | length == 4 and all(.gone == 0 and .best_ms > 0 and .source != "exact")'
holds 'map(select(.graph)) | all([.choice_regret, .rule_regret, .tuned_50ms_regret, .tuned_300ms_regret, .raced_regret] | min >= 1)'
holds 'map(select(.graphs)) | length == 3 and .[2].cell == "all" and .[2].graphs == 4 and all(.choice_worst >= .choice_mean and .exact == 0)'

promise "the judge says which choices the stores knew"
status 0 dfgnn-tune run "$small" --device cpu --threads 1 --op spmm-sum --dim 8 --budget 300ms -q --store "$work/known.db"
status 0 $judge --store "$work/known.db" --json
holds 'map(select(.graph and .source == "exact")) | length == 1 and .[0].cell == "sum8"'
holds 'map(select(.graphs) | .exact) == [1, 0, 1]'

promise "a best variant that is gone counts with the time that it would have"
python3 - "$survey" <<'END'
import csv, sys
rows = list(csv.reader(open(sys.argv[1])))
out = csv.writer(open(sys.argv[1], "w"), lineterminator="\n")
out.writerow(rows[0])
first = True
for row in rows[1:]:
    if first and row[0] == "sum8":
        row[2], row[3], first = row[2].replace("cpu.", "cpu.gone."), str(float(row[3]) / 10), False
    out.writerow(row)
END
status 0 $judge --store "$work/none.db" --json
holds 'map(select(.gone == 1)) | length == 1 and .[0].choice_regret > 3'

promise "the judge needs a survey that has the problems"
status 1 dfgnn-bench "$star" --regret --cells "$cells" --survey "$survey" --device cpu -q
says "none of the problems" "dfgnn-tune survey"
wrong_usage "survey" dfgnn-bench "$star" --regret --cells "$cells"
wrong_usage "for --regret" dfgnn-bench "$star" --cells "$cells"

promise "a judge that is out of time says what it has"
status 3 $judge --time-limit 0.001s
says "time limit"
finish
