#!/bin/sh
# No model of the package may have a cell of problems in which a legal family was
# measured on no graph, save those that tests/data/holes.txt lists.  The list
# only shrinks: a hole that was filled has to leave it.
#
#   REGENERATE=1 tests/cli/holes.sh      writes the list anew, with today's date
. "$(dirname "$0")/lib.sh"
holes=$top/tests/data/holes.txt
models=$top/data/models

# holes_of MODEL: "MODEL: FAMILY: CELL" of each; of the models of CPUs, which
# have hundreds, "MODEL: FAMILY: N cells"
holes_of() {
  dfgnn-tune model coverage "$1" --json -q 2>/dev/null >"$work/coverage"
  jq -r --arg m "$(basename "$1")" 'map(select(.graphs == 0)) |
    if all(.[]; .family | startswith("cpu."))
    then group_by(.family)[] | "\($m): \(.[0].family): \(length) cells"
    else .[] | "\($m): \(.family): \(.cell)" end' "$work/coverage"
}

promise "the models of the package are here"
found=0
for model in "$models"/*.model; do
  found=$((found + 1))
  holes_of "$model" >>"$work/unsorted"
  [ -s "$work/coverage" ] || fail "$model says nothing of its coverage"
done
[ "$found" -ge 3 ] || fail "$found models in $models, expected 3 or more"
LC_ALL=C sort "$work/unsorted" >"$work/found"

if [ -n "${REGENERATE:-}" ]; then
  {
    sed -n '/^#/p' "$holes" 2>/dev/null | sed '/^# [0-9-]*: /d'
    echo "# $(date -u +%Y-%m-%d): $(grep -c . "$work/found") holes"
    cat "$work/found"
  } >"$work/holes" && cp "$work/holes" "$holes"
fi

promise "the list of known holes says when it was made"
grep -q '^# 20[0-9][0-9]-[0-9][0-9]-[0-9][0-9]: [0-9]* holes$' "$holes" ||
  fail "$holes has no line '# YYYY-MM-DD: N holes'"
sed '/^#/d' "$holes" | LC_ALL=C sort >"$work/known"
said=$(sed -n 's/^# 20.*: \([0-9]*\) holes$/\1/p' "$holes")
[ "$said" = "$(grep -c . "$work/known")" ] ||
  fail "it says $said holes and lists $(grep -c . "$work/known")"

promise "no family is new to a cell of a model that is released"
LC_ALL=C comm -13 "$work/known" "$work/found" >"$work/new"
[ -s "$work/new" ] && {
  fail "measured on no graph, and not known to be: $(head -n 1 "$work/new") \
($(grep -c . "$work/new") in all); 'dfgnn-tune run --plan cover' measures it"
}

promise "a hole that is filled leaves the list"
LC_ALL=C comm -23 "$work/known" "$work/found" >"$work/filled"
[ -s "$work/filled" ] && {
  fail "filled: $(head -n 1 "$work/filled") ($(grep -c . "$work/filled") in \
all); take it out of $holes, or run this with REGENERATE=1"
}
finish
