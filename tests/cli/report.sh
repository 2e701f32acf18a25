#!/bin/sh
# The tables of docs/performance*.md and README.md are what the figures say.
. "$(dirname "$0")/lib.sh"

[ -e "$top/docs/performance.md" ] || {
  echo "no documents here: skipped"
  exit 77
}

promise "the documents are what the figures say"
status 0 sh "$top/bench/report.sh" --check

promise "a table that is not is told"
mkdir "$work/docs"
cp -R "$top/bench" "$work/bench"
cp "$top"/docs/performance*.md "$work/docs/"
cp "$top/README.md" "$work/"
chmod -R u+w "$work"
status 0 sh "$work/bench/report.sh" --check
sed -i 's/"median_ms":0.0/"median_ms":0.1/' "$work/bench/results/h200/f32_1x128.json"
status 1 sh "$work/bench/report.sh" --check
says "performance.md"

promise "rows of several commits are not mixed silently"
# a file whose rows are of one commit
one=$(for file in f32_8x16 bf16_1x128 gather_128 modes; do
  grep -q "^h200/$file[.]json" "$top/bench/results/mixed.tsv" || echo "h200/$file.json"
done | head -n 1)
cp "$top/bench/results/h200/f32_1x128.json" "$work/bench/results/h200/"
status 0 sh "$work/bench/report.sh" --check
jq '.[0].commit = "0123456789ab"' "$top/bench/results/$one" >"$work/bench/results/$one"
status 1 sh "$work/bench/report.sh" --check
says "the rows of $one are of 0123456789ab (1), [0-9a-f]* ([0-9]*):"
printf '%s\tone row was measured again\n' "$one" >>"$work/bench/results/mixed.tsv"
status 1 sh "$work/bench/report.sh" --check
says "the tables of docs/performance[a-z-]*.md differ"

promise "a file that is of one commit again is not called mixed"
cp "$top/bench/results/$one" "$work/bench/results/$one"
status 1 sh "$work/bench/report.sh" --check
says "$one is of one commit now"
finish
