#!/bin/sh
# Measures the regret over a folder of graphs, exact and leaving one graph out, by
# the protocol of dfgnn-bench --regret: after selection the choices and the stored
# best five are timed again, interleaved, on fresh samples.
#
#   bench/regret.sh FOLDER OUT.json [PROBLEM OPTIONS OF dfgnn-tune]
#
#   STORE=FILE   measurements (default OUT.db; what is there is not repeated)
#   BUDGET=TIME  of a problem's tuning (default 5s)
#   LIMIT=TIME   of all tuning (default 1h); it resumes when called again
. "$(dirname "$0")/lib.sh"
needs dfgnn-tune dfgnn-bench jq

[ $# -ge 2 ] || {
  sed -n '2,11s/^# \{0,1\}//p' "$0" >&2
  exit 2
}
folder=$1
out=$2
shift 2
store=${STORE:-${out%.json}.db}

say "tuning $folder into $store"
code=0
dfgnn-tune run "$folder" "$@" --store "$store" --budget "${BUDGET:-5s}" \
  --time-limit "${LIMIT:-1h}" >/dev/null || code=$?
case $code in
0 | 4) ;; # 4: a wrong candidate is recorded and passed over
3) say "some problems are not tuned yet; call again to go on" && exit 3 ;;
*) exit $code ;;
esac
say "timing the choices again"
dfgnn-bench "$folder" "$@" --store "$store" --regret --json >"$out.new"
mv "$out.new" "$out"
jq -r '.[] | select(.graph == "geometric mean" or .graph == "worst") |
  "\(.graph): exact \(.exact_regret), left out \(.left_out_regret), " +
  "rule \(.rule_regret), paper \(.paper_regret), spread \(.spread), " +
  "variants \(.candidates)"' "$out"
