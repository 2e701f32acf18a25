#!/bin/sh
# Measures the figures of bench/results on any GPU, or says which are stale.
#
#   bench/campaign.sh OUT [MINUTES]       measures into the folder OUT; 8.5 is a number
#   bench/campaign.sh --status [RESULTS]  a line for each file of campaign.tsv: its
#                                         state and the commits of its rows; RESULTS
#                                         is bench/results/h200 unless it is named
#
# What is missing is measured first, then what is stale: a file is stale if a commit
# after those of its rows changed the sources that campaign.tsv names.  A file of this
# commit is not made again, stored measurements are not repeated, and each graph is
# timed apart, so that a campaign that was stopped goes on where it was.  Older results
# in OUT are judged, too.  The exit status of --status is 1 unless all are current.
# With MINUTES a script of Python begins only if the SECONDS of its row are left.
# The last line says how many families of kernels were measured in each cell of
# problems, if the row coverage.json was: `dfgnn-tune model coverage` lists them.
#
#   ONLY=FILE,...  these files alone;  DEVICE=cuda;  BUDGET=3s to tune a problem
#   GRAPHS=DIR     real graphs as .npz (default data/); with paper_graphs.py beside them
#                  (needs torch) the presets are the graphs that peers were measured on
#   STORE=FILE     measurements (default OUT/tuning.db)
#   COMMIT=ID      of the programs (default: the checkout's, else that of the bundle)
#   PYTHON=python3 one that has torch and torch_geometric
#   TABLE=FILE     in place of bench/campaign.tsv
. "$(dirname "$0")/lib.sh"
needs jq

top=$(cd "$bench/.." && pwd)
table=${TABLE:-$bench/campaign.tsv}
tab=$(printf '\t')
papers="cora citeseer pubmed pattern cluster mnist cifar10 voc coco arxiv ppa proteins \
reddit_comm reddit_rand"

in_git() { git -C "$top" rev-parse --git-dir >/dev/null 2>&1; }
commit=${COMMIT:-}
[ -n "$commit" ] || ! in_git || commit=$(git -C "$top" describe --always \
  --dirty --abbrev=12 --exclude '*')
[ -n "$commit" ] || commit=$(cat "$top/COMMIT" 2>/dev/null || echo unknown)

# ---- what is stale -----------------------------------------------------------

commits_of() { jq -r '[.[] | objects | .commit // empty] | unique[]' "$1"; }

# state_of FILE SOURCES: current, missing, mixed, unknown (which commit) or "stale N",
# by N commits.  A bundle knows no history: what is of another commit is stale there.
state_of() {
  [ -s "$1" ] || {
    echo missing
    return
  }
  found=$(commits_of "$1" 2>/dev/null) || found=
  # shellcheck disable=SC2086
  set -- "$2" $found
  sources=$1
  case $# in
  1) echo unknown && return ;;
  2) ;;
  *) echo mixed && return ;;
  esac
  [ "${2%"${2#???????}"}" != "${commit%"${commit#???????}"}" ] || {
    echo current
    return
  }
  # shellcheck disable=SC2086
  if in_git && later=$(git -C "$top" rev-list --count "$2..HEAD" -- $sources \
    2>/dev/null); then
    [ "$later" -eq 0 ] && echo current || echo "stale $later"
  else
    echo "stale 1"
  fi
}

# The rows of the table that ONLY names, or all.
rows() {
  grep -v '^#' "$table" | while IFS=$tab read -r file rest; do
    case ",${ONLY:-$file}," in
    *",$file,"*) printf '%s\t%s\n' "$file" "$rest" ;;
    esac
  done
}

status() { # RESULTS
  all=0
  rows >"$work/rows"
  while IFS=$tab read -r file seconds sources rest; do
    state=$(state_of "$1/$file" "$sources")
    [ "$state" = current ] || all=1
    made=$([ ! -s "$1/$file" ] || commits_of "$1/$file" 2>/dev/null | tr '\n' ' ')
    printf '%-28s %-10s %5s s  %s\n' "$file" "$state" "$seconds" "$made"
  done <"$work/rows"
  [ ! -s "$1/coverage.json" ] || jq -r '"coverage: \(length) families in cells, \(
    map(select(.graphs == 0)) | length) of them on no graph, \(
    map(select(.graphs < 3)) | length) on fewer than 3"' "$1/coverage.json"
  return $all
}

# The rows of the table that are not current: missing and unknown ones first, then
# those that most commits changed.
due() { # OUT
  rows | while IFS=$tab read -r file seconds sources rest; do
    state=$(state_of "$1/$file" "$sources")
    case $state in
    current) continue ;;
    stale*) order=${state#stale } ;;
    *) order=1000000 ;;
    esac
    printf '%s\t%s\t%s\t%s\t%s\n' "$order" "$file" "$seconds" "$sources" "$rest"
  done | sort -s -t "$tab" -k 1,1nr | cut -f 2-
}

# ---- measuring ---------------------------------------------------------------

# graph NAME: prints its file, which is made if it is not here.
graph() {
  case $1 in
  *[=:]*) echo "$1" && return ;;
  REAL) echo "$graphs" && return ;;
  esac
  for file in "$out/graphs/$1.npz" "$graphs/$1.npz" "$top/data/$1.npz"; do
    [ ! -e "$file" ] || {
      echo "$file"
      return
    }
  done
  mkdir -p "$out/graphs"
  file=$out/graphs/$1.npz
  if [ -e "$graphs/paper_graphs.py" ] &&
    "$python" -c 'import torch; assert torch.cuda.is_available()' 2>/dev/null; then
    "$python" "$graphs/paper_graphs.py" "$out/graphs" "$1" >&2
  else
    dfgnn-graph generate "preset=$1" -o "$file" >&2
  fi
  if [ -e "$file" ]; then echo "$file"; else say "no graph $1"; fi
}

left() { echo $((end - $(date +%s))); }

# left_of_row: seconds until the row's SECONDS or the campaign are over
left_of_row() { least "$((row_end - $(date +%s)))" "$(left)"; }

# least A B
least() { [ "$1" -lt "$2" ] && echo "$1" || echo "$2"; }

# told FILE: adds to each row what says when and with what it was made.
told() {
  jq -c --arg commit "$commit" --argjson clocks "$clocks" \
    '[(if type == "array" then .[] else . end)
      | if type == "object" then . + {commit: $commit} + $clocks else . end]' "$1"
}

# by_graph FILE SECONDS GRAPHS PROBLEMS OPTIONS: tunes and times with dfgnn-bench.
by_graph() {
  file=$1 seconds=$2 names=$3 problems=$4 options=$5
  parts=$out/parts/$commit/$file
  mkdir -p "$parts"
  [ "$names" != PAPERS ] || names=$papers
  case $names in
  *=*) names=$(echo "$names" | tr ' ' '|') ;; # one run of all
  esac
  [ "$options" != - ] || options=
  for name in $names; do
    part=$parts/$(echo "$name" | tr -c 'A-Za-z0-9_\n-' _ | cut -c 1-60).json
    [ ! -s "$part" ] || continue
    [ "$(left_of_row)" -gt 5 ] || return 1
    set -f # options have stars
    # shellcheck disable=SC2046
    set -- $(echo "$name" | tr '|' '\n' | while read -r one; do graph "$one"; done)
    [ $# -gt 0 ] || return 1
    limit=$(($(left_of_row) * 2 / 3)) # the rest is for dfgnn-bench
    # shellcheck disable=SC2086
    dfgnn-tune run "$@" $problems --device "$device" --store "$store" -q \
      --budget "${BUDGET:-3s}" --time-limit "${limit}s" </dev/null >>"$out/tune.log" ||
      say "dfgnn-tune exits with $?"
    # shellcheck disable=SC2086
    timeout "$(($(left_of_row) + 5))" dfgnn-bench "$@" $problems $options \
      --device "$device" --store "$store" -q --json </dev/null >"$part.new" || {
      say "dfgnn-bench fails on $name"
      return 1
    }
    set +f
    mv "$part.new" "$part"
  done
  jq -s add "$parts"/*.json >"$out/$file.raw"
}

# by_script FILE SECONDS GRAPHS SCRIPT OPTIONS
by_script() {
  file=$1 seconds=$2 names=$3 script=$4 options=$5
  [ "$(left)" -ge "$seconds" ] || {
    say "$file: $(left) s are left, and it takes $seconds"
    return 1
  }
  [ "$names" != PAPERS ] || names=$papers
  files=
  for name in $names; do
    [ "$name" = - ] || files="$files $(graph "$name")"
  done
  options=$(echo "$options" | sed "s|@GRAPHS|$files|; s|@FILE|$out/$file.raw|
    s|@DEVICE|$device|; s|@DATA|$top/data|")
  # shellcheck disable=SC2086
  timeout "$(least "$seconds" "$(left)")" "$python" "$bench/$script" $options \
    </dev/null >"$work/printed" 2>"$out/$file.log" || {
    say "$script exits with $?: $(tail -n 1 "$out/$file.log")"
    rm -f "$out/$file.raw"
    return 1
  }
  [ -s "$out/$file.raw" ] || mv "$work/printed" "$out/$file.raw"
}

# by_plan FILE: raises the coverage of cells of problems, and says what it is
by_plan() {
  sh "$bench/train_campaign.sh" "$store" "$(left_of_row)" "$graphs" >"$out/$1.log" 2>&1
  dfgnn-tune model coverage "$store" --for "${FOR:-sm_90}" --json \
    >"$out/$1.raw" 2>>"$out/$1.log" || true # it fails where a family is on no graph
  [ -s "$out/$1.raw" ]
}

measure() { # FILE SECONDS SOURCES GRAPHS PROBLEMS OPTIONS
  say "$1"
  rm -f "$out/$1.raw"
  row_end=$(($(date +%s) + $2))
  case $5 in
  PLAN) by_plan "$1" ;;
  *.py) by_script "$1" "$2" "$4" "$5" "$6" ;;
  *) by_graph "$1" "$2" "$4" "$5" "$6" ;;
  esac || return 0
  if told "$out/$1.raw" >"$out/$1.new"; then
    mv "$out/$1.new" "$out/$1" && rm -f "$out/$1.raw"
  else
    say "$1: what was printed is no JSON"
  fi
}

# The library and the package's store, which a bundle has as JSON Lines, for scripts
# of Python.
find_library() {
  for file in "$top/lib/libdfgnn_bundle.so" "${BUILD-$top}/.libs/libdfgnn.so"; do
    [ -n "${DFGNN_LIBRARY-}" ] || [ ! -e "$file" ] || DFGNN_LIBRARY=$file
  done
  export DFGNN_LIBRARY PYTHONPATH="$top/python${PYTHONPATH:+:$PYTHONPATH}"
  export PYTHONDONTWRITEBYTECODE=1
  [ -e "$out/package.db" ] || sh "$top/data/stores/make.sh" "$(command -v dfgnn-tune)" \
    "$out/package.db" "$top"/data/stores/*.jsonl.gz >&2
  export DFGNN_PACKAGE_STORE="$out/package.db"
  # What the package knows is not measured again, and never chosen worse.
  [ -e "$store" ] || dfgnn-tune merge "$store" "$out/package.db" >/dev/null
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
case ${1-} in
--status)
  status "${2:-$bench/results/h200}"
  exit $?
  ;;
"" | -*)
  sed -n '2,24s/^# \{0,1\}//p' "$0" >&2
  exit 2
  ;;
esac
needs dfgnn-tune dfgnn-bench dfgnn-graph
case ${2:-100000} in
*[!0-9.]*)
  echo "campaign.sh: found '$2' minutes, expected a number" >&2
  exit 2
  ;;
esac
mkdir -p "$1"
out=$(cd "$1" && pwd)
end=$(awk -v now="$(date +%s)" -v minutes="${2:-100000}" \
  'BEGIN { printf "%d", now + 60 * minutes }')
device=${DEVICE:-cuda} python=${PYTHON:-python3} graphs=${GRAPHS:-$top/data}
store=${STORE:-$out/tuning.db}
find_library
clocks=$(nvidia-smi --query-gpu=clocks.sm,clocks.mem --format=csv,noheader,nounits \
  2>/dev/null | head -n 1 | jq -R -c 'split(", ") | map(tonumber?)
    | {clock_sm_mhz: .[0], clock_memory_mhz: .[1]}') || clocks=
[ -n "$clocks" ] || clocks='{}'

due "$out" >"$work/due"
while IFS=$tab read -r file seconds sources names problems options <&3; do
  [ "$(left)" -gt 10 ] || break
  measure "$file" "$seconds" "$sources" "$names" "$problems" "$options"
done 3<"$work/due"
status "$out" || true
