#!/bin/sh
# Puts what a campaign measured among the results that documents are made of:
#
#   bench/campaign_put.sh OUT [RESULTS]      RESULTS is bench/results/h200
#
# A file of OUT takes the place of that of RESULTS.  Of a file that lacks parts (graphs,
# models) the older rows of these stay, and bench/results/mixed.tsv then says which are
# older; a script's file that is no more than begun is left alone.  New files enter
# bench/bench.am.  bench/report.sh makes the tables anew afterwards.
. "$(dirname "$0")/lib.sh"
needs jq

[ $# -ge 1 ] || {
  sed -n '2,10s/^# \{0,1\}//p' "$0" >&2
  exit 2
}
out=$1
results=$(cd "${2:-$bench/results/h200}" && pwd)
folder=$(basename "$results")
mixed=$bench/results/mixed.tsv
tab=$(printf '\t')
# the name of what a row is of, among those that are measured apart
name='(.part // .graph // .model // .case // "")'

# lines: one row a line, so that changes can be read, without the sums of a part's rows
lines() {
  jq -c '.[] | objects | select(.part == null or .graph == null
      or (.graph | IN("geometric mean", "worst") | not)) | del(.partial)' |
    awk 'BEGIN { print "[" } NR > 1 { print line "," } { line = $0 } END { print line; print "]" }'
}

# put FILE: the file of RESULTS from that of OUT
put() {
  new=$out/$1 old=$results/$1
  jq -e 'length > 0 and all(.[] | objects; .partial | not)' "$new" >/dev/null 2>&1 || {
    jq -e 'any(.[] | objects; .part)' "$new" >/dev/null 2>&1 || {
      say "$1 is not whole: left as it is"
      return 0
    }
  }
  [ -s "$old" ] || echo '[]' >"$old"
  jq -n --slurpfile new "$new" --slurpfile old "$old" \
    "[\$new[0][] | objects | select(.partial | not)] as \$new
    | [\$new[] | $name] as \$done
    | if any(\$new[]; .part) then [\$old[0][] | objects | select($name != \"\"
        and (.graph | IN(\"geometric mean\", \"worst\") | not)
        and ([.part, .graph, .model, .case, .dtype] | any(IN(\$done[])) | not))]
      else [] end + \$new" |
    lines >"$old.new" && mv "$old.new" "$old"
  grep -q "results/$folder/$1\b" "$bench/bench.am" ||
    sed -i "s|^\tbench/results/$folder/python_accelerate.json|\tbench/results/$folder/$1 \\\\\n&|" \
      "$bench/bench.am"
}

# remark FILE: its line of mixed.tsv is what its rows are
remark() {
  grep -v "^$folder/$1$tab" "$mixed" >"$mixed.new"
  jq -r --arg file "$folder/$1" "[.[] | objects] | group_by(.commit) | sort_by(-length)
    | if length > 1 then [\$file, ([.[1:][][] | $name] | unique | join(\", \"))
        + \" of another commit\"] | @tsv
      elif .[0][0].commit == null then [\$file, \"its program does not say it\"] | @tsv
      else empty end" "$results/$1" >>"$mixed.new"
  mv "$mixed.new" "$mixed"
}

for file in "$out"/*.json; do
  file=$(basename "$file")
  [ "$file" != coverage.json ] || continue
  put "$file"
  [ ! -s "$results/$file" ] || ! grep -q "results/$folder/$file$" "$bench/report.sh" ||
    remark "$file"
done
