#!/bin/sh
# Compares two builds on a GPU: the choices of each one's package store, over the
# problems of bench/results/h200/engine.json and edge_features.json.
#
#   bench/skeleton.sh OUT BEFORE AFTER [STEP...]
#
# BEFORE and AFTER are build folders.  The builds take turns, ROUNDS times; a
# problem's time is the least of its medians.  The table goes to OUT/table.txt
# and its rows to OUT/table.json.  The script fails if a problem is missing on
# one side, if the geometric mean of after / before exceeds MEAN, or if the
# worst ratio exceeds WORST.  What OUT holds already is not measured again.
#
# Steps: attention heads bf16 sums narrow wide; all of them if none is named.
# (narrow and wide have edge features.)
#
#   GRAPHS=DIR  graphs as .npz (default OUT/graphs); the missing are generated,
#               but cora and pubmed, which are real
#   PLAIN=...   graphs of the first four steps (default: those of engine.json)
#   WEATHER=... graphs of the last two (default: those of edge_features.json)
#   ROUNDS=N    turns of each build (default 3);  SAMPLES=N of a turn (default 9)
#   DEVICE=cuda any device that the tools know
#   MEAN, WORST limits of the ratios (default 1.005 and 1.03: the geometric mean
#               of two runs of one build differs from 1 by up to .005)
. "$(dirname "$0")/lib.sh"
needs jq

[ $# -ge 3 ] || {
  sed -n '2,26s/^# \{0,1\}//p' "$0" >&2
  exit 2
}
out=$1 before=$2 after=$3
shift 3
steps=${*:-attention heads bf16 sums narrow wide}
graphs=${GRAPHS:-$out/graphs}
plain=${PLAIN:-arxiv cora mnist pattern ppa pubmed reddit_comm voc}
weather=${WEATHER:-o96_proc h_to_h o96_knn16 era_to_h dop_enc h_to_era}
mkdir -p "$out" "$graphs"

# files_of NAME...: files of graphs, which are made where they are missing
files_of() {
  files=
  for name; do
    file=$graphs/$name.npz
    [ -e "$file" ] ||
      "$after/tools/dfgnn-graph" generate "preset=$name" -o "$file" || {
      say "no graph $name"
      continue
    }
    files="$files $file"
  done
}

# measure SIDE BUILD ROUND STEP OPTIONS...
measure() {
  side=$1 build=$2 round=$3 step=$4
  shift 4
  store=$out/$side.db
  [ -e "$store" ] || cp "$build/data/stores/tuning.db" "$store"
  # shellcheck disable=SC2086
  once "$out/$step.$side.$round.json" env \
    DFGNN_KERNEL_CACHE="$out/kernels_$side.db" \
    "$build/tools/dfgnn-bench" $files --store "$store" --device "${DEVICE:-cuda}" "$@" \
    --variants tuned --no-check --rounds "${SAMPLES:-9}" --quiet --json ||
    say "dfgnn-bench of $build fails on $step"
}

# The builds take turns in beginning a round.
turns() {
  step=$1
  shift
  if [ $((round % 2)) -eq 0 ]; then
    measure before "$before" "$round" "$step" "$@"
    measure after "$after" "$round" "$step" "$@"
  else
    measure after "$after" "$round" "$step" "$@"
    measure before "$before" "$round" "$step" "$@"
  fi
}

all=gt,agnn,gat,gatv2
edges="--op gt --pass forward,backward --heads 16 --dtype f16 --edge-dim 11"
round=0
while [ $round -lt "${ROUNDS:-3}" ]; do
  for this in $steps; do
    # shellcheck disable=SC2086
    case $this in
    narrow | wide) files_of $weather ;;
    *) files_of $plain ;;
    esac
    # shellcheck disable=SC2086
    case $this in
    attention) turns "$this" --op $all --pass forward,backward --dim 128 ;;
    heads) turns "$this" --op gt,gat --heads 8 --dim 16 ;;
    bf16) turns "$this" --op gt,gat --dim 128 --dtype bf16 ;;
    sums)
      turns "$this" --op reduce-max,reduce-pna,spmm-sum,spmm-weighted --dim 128
      ;;
    narrow) turns "$this" $edges --dim 32 ;;
    wide) turns "$this" $edges --dim 64 ;;
    *)
      say "unknown step $this"
      exit 2
      ;;
    esac
  done
  round=$((round + 1))
done

# gathered SIDE: the least time of each problem, by problem
gathered() {
  cat "$out"/*."$1".*.json | jq -s '[.[][] | select(.median_ms != null) |
    {problem: ("\(.graph) \(.op) \(.pass) \(.dtype) \(.heads)x\(.dim)" +
       if (.edge_dim // 0) != 0 then " e\(.edge_dim)" else "" end),
     ms: .median_ms, variant}] |
    group_by(.problem) | map(min_by(.ms) | {(.problem): .}) | add // {}'
}

gathered before >"$out/before.all"
gathered after >"$out/after.all"
jq -n --slurpfile b "$out/before.all" --slurpfile a "$out/after.all" '
  [($b[0] + $a[0] | keys[]) as $p | $b[0][$p] as $x | $a[0][$p] as $y |
   {problem: $p, before_ms: $x.ms, after_ms: $y.ms,
    ratio: (if $x and $y then $y.ms / $x.ms else null end),
    variant: $y.variant,
    before_variant: (if $x.variant == $y.variant then null else $x.variant end)}
  ] | sort_by(-(.ratio // 1e9))' >"$out/table.json"
rm -f "$out/before.all" "$out/after.all"

jq -r --argjson mean "${MEAN:-1.005}" --argjson worst "${WORST:-1.03}" '
  def cut(d): if . == null then "-" else . * d | round / d end;
  (["problem", "before ms", "after ms", "ratio", "variant"] | @tsv),
  (.[] | [.problem, (.before_ms | cut(1e5)), (.after_ms | cut(1e5)),
          (.ratio | cut(1e3)),
          (.variant // "none") +
          (if .before_variant then " (before: \(.before_variant))" else "" end)]
       | @tsv),
  (map(.ratio | values) as $r | map(select(.ratio == null)) as $missing |
   if ($r | length) == 0 then "FAILED: no problem was measured twice"
   else (($r | map(log) | add) / ($r | length) | exp) as $g |
     (if $g > $mean or ($r | max) > $worst or ($missing | length) > 0
      then "FAILED" else "ok" end) +
     ": \($r | length) problems, geometric mean \($g | cut(1e4)), worst " +
     "\($r | max | cut(1e3)), \($missing | length) on one side only" end)
' "$out/table.json" >"$out/table.txt"
cat "$out/table.txt"
tail -n 1 "$out/table.txt" | grep -q '^ok'
