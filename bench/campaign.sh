#!/bin/sh
# Measures the figures of bench/results on any GPU, or says which are stale.
#
#   bench/campaign.sh OUT [MINUTES]       measures into the folder OUT; 8.5 is a number
#   bench/campaign.sh --status [RESULTS]  a line for each file of campaign.tsv: its
#                                         state and the commits of its rows; RESULTS
#                                         are those of bench/results/h200 unless they are
#                                         named, or of h100 where these are current
#
# What is missing is measured first, then what is stale (campaign_state.sh says when that
# is), in the order of campaign.tsv.  Each part of a file (a graph, a model) is measured
# apart, so that the GPUs of a host share the work, and a campaign that was stopped goes
# on where it was; stored measurements are not repeated.  Older results in OUT are judged,
# too.  The exit status of --status is 1 unless all are current.  MINUTES that are too few
# for all make budgets smaller; a script of Python begins only if its seconds are left, is
# ended after twice as many, and what it wrote until then is kept as part of the file.
# The last line says how many families of kernels were measured in each cell of
# problems, if the row coverage.json was: `dfgnn-tune model coverage` lists them.
#
#   ONLY=FILE,...  these files alone;  DEVICE=cuda;  BUDGET=3s to tune a problem at most
#   DEVICES=0,1    GPUs, each with a list of its own (default: all that can be seen)
#   GRAPHS=DIR     real graphs as .npz (default data/); with paper_graphs.py beside them
#                  (needs torch) the presets are the graphs that peers were measured on
#   STORE=FILE     measurements (default OUT/tuning.db)
#   COMMIT=ID      of the programs (default: the checkout's, else that of the bundle)
#   PYTHON=python3 one that has torch and torch_geometric
#   TABLE=FILE     in place of bench/campaign.tsv
. "$(dirname "$0")/lib.sh"
needs jq dfgnn-tune

top=$(cd "$bench/.." && pwd)
table=${TABLE:-$bench/campaign.tsv}
tab=$(printf '\t')
papers="cora citeseer pubmed pattern cluster mnist cifar10 voc coco arxiv ppa proteins \
reddit_comm reddit_rand"
. "$bench/campaign_state.sh"

commit=${COMMIT:-}
[ -n "$commit" ] || ! in_git || commit=$(git -C "$top" describe --always \
  --dirty --abbrev=12 --exclude '*')
[ -n "$commit" ] || commit=$(cat "$top/COMMIT" 2>/dev/null || echo unknown)

# ---- what is to be done ------------------------------------------------------

# The rows of the table that ONLY names, or all: FILE SECONDS CODE PARTS PROBLEMS OPTIONS
rows() {
  grep -v '^#' "$table" | while IFS=$tab read -r file seconds code names rest; do
    [ "$names" != PAPERS ] || names=$papers
    [ "$names" != REAL ] || names=$(find -L "$graphs" -name '*.npz' | sed 's|.*/||; s|[.]npz$||' |
      LC_ALL=C sort | tr '\n' ' ' | sed 's/ $//')
    case ",${ONLY:-$file}," in
    *",$file,"*) printf '%s\t%s\t%s\t%s\t%s\n' "$file" "$seconds" "$code" "$names" "$rest" ;;
    esac
  done
}

status() { # RESULTS [OTHERS, which count where they are current and these are not]
  all=0
  rows >"$work/rows"
  while IFS=$tab read -r file seconds code names rest; do
    state=$(state_of "$1/$file" "$code" "$names") of=$1 card=
    if [ "$state" != current ] && [ -n "${2-}" ] && [ -s "$2/$file" ] &&
      [ "$(state_of "$2/$file" "$code" "$names")" = current ]; then
      state=current of=$2 card=" of $(basename "$2")"
    fi
    [ "$state" = current ] || all=1
    made=$([ ! -s "$of/$file" ] || commits_of "$of/$file" 2>/dev/null | tr '\n' ' ')
    printf '%-28s %-10s %5s s  %s%s\n' "$file" "$state" "$seconds" "$made" "$card"
  done <"$work/rows"
  [ ! -s "$1/coverage.json" ] || jq -r '"coverage: \(length) families in cells, \(
    map(select(.graphs == 0)) | length) of them on no graph, \(
    map(select(.graphs < 3)) | length) on fewer than 3"' "$1/coverage.json"
  return $all
}

# The rows of the table that are not current, missing and unknown ones first.
due() { # OUT
  rows >"$work/rows"
  while IFS=$tab read -r file seconds code names rest; do
    state=$(state_of "$out/$file" "$code" "$names")
    case $state in
    current) continue ;;
    stale*) order=1 ;;
    *) order=0 ;;
    esac
    printf '%s\t%s\t%s\t%s\t%s\t%s\n' "$order" "$file" "$seconds" "$code" "$names" "$rest"
  done <"$work/rows" | sort -s -t "$tab" -k 1,1n | cut -f 2-
}

# The parts of the rows that are due: NUMBER FILE SECONDS CODE PART PROBLEMS OPTIONS.  A
# script has parts if its options say @GRAPHS or @PART.
parts_due() {
  due | while IFS=$tab read -r file seconds code names problems options; do
    case $problems@$options in
    *.py@*@GRAPHS* | *.py@*@PART*) ;;
    *.py@* | PLAN@*) names=- ;;
    esac
    # shellcheck disable=SC2086
    set -- $names
    for part; do
      printf '%s\t%s\t%s\t%s\t%s\t%s\n' "$file" $(((seconds + $# - 1) / $#)) "$code" \
        "$part" "$problems" "$options"
    done
  done | awk -v OFS='\t' '{ print NR, $0 }'
}

# The graphs that the parts need and that are not here.
lacking() {
  awk -F '\t' '$5 !~ /[=:]/ && $5 != "-" && $6 != "PLAN" &&
    ($6 !~ /[.]py$/ || $7 ~ /@GRAPHS/) { print $5 }' "$1" | sort -u |
    while read -r name; do
      kept_graph "$name" >/dev/null || echo "$name"
    done
}

# ---- measuring ---------------------------------------------------------------

left() { echo $((end - $(date +%s))); }

# least A B
least() { [ "$1" -lt "$2" ] && echo "$1" || echo "$2"; }

# left_of_part: seconds until the part's share or the campaign are over
left_of_part() { least "$((part_end - $(date +%s)))" "$(left)"; }

# kept_graph NAME: prints its file if it is here
kept_graph() {
  for file in "$out/graphs/$1.npz" "$graphs/$1.npz" "$top/data/$1.npz"; do
    [ ! -e "$file" ] || {
      echo "$file"
      return
    }
  done
  return 1
}

# make_graphs NAME...
make_graphs() {
  made=$(mktemp -d) known=
  for name; do
    case " $papers " in *" $name "*) known="$known $name" ;; esac
  done
  if [ -n "$known" ] && [ -e "$graphs/paper_graphs.py" ] &&
    "$python" -c 'import torch; assert torch.cuda.is_available()' 2>/dev/null; then
    # shellcheck disable=SC2086
    "$python" "$graphs/paper_graphs.py" "$made" $known >&2 || true
  fi
  for name; do
    [ -e "$made/$name.npz" ] || dfgnn-graph generate "preset=$name" -o "$made/$name.npz" >&2 ||
      say "no graph $name"
    [ ! -e "$made/$name.npz" ] || cp "$made/$name.npz" "$out/graphs"
  done
  rm -rf "$made"
}

# graph NAME: prints its file
graph() {
  case $1 in
  *[=:]*) echo "$1" ;;
  *) kept_graph "$1" ;;
  esac
}

# clocks: of the GPU that has just worked, in MHz
clocks() {
  nvidia-smi ${CUDA_VISIBLE_DEVICES:+-i "$CUDA_VISIBLE_DEVICES"} \
    --query-gpu=clocks.sm,clocks.mem --format=csv,noheader,nounits 2>/dev/null |
    head -n 1 | jq -R -c 'split(", ") | map(tonumber?)
      | {clock_sm_mhz: .[0], clock_memory_mhz: .[1]}'
}

# budget_of SECONDS OPTION...: for each of the problems that options name, so that
# all are tuned in the seconds
budget_of() {
  seconds=$1
  shift
  echo "$@" | awk -v seconds="$seconds" -v most="${budget%ms}" '{
    count = 1
    for (i = 2; i <= NF; i++)
      if ($(i - 1) ~ /^--/ && $i !~ /^--/) count *= split($i, list, ",")
    each = 800 * seconds / count
    printf "%dms", (each > most ? most : each < 60 ? 60 : each) }'
}

# by_graph PART PROBLEMS OPTIONS: tunes and times with dfgnn-bench, each of the problems
# between bars by itself
by_graph() {
  one=$(graph "$1") || return 1 # a file or a text
  options=$3
  [ "$options" != - ] || options=
  echo "$2" | tr '|' '\n' >"$raw.problems"
  each=$(($(left_of_part) / $(wc -l <"$raw.problems")))
  set -f # options have stars
  while read -r problems; do
    limit=$((each * 2 / 3 + 1)) # the rest is for dfgnn-bench
    # shellcheck disable=SC2086
    dfgnn-tune run "$one" $problems --device "$device" --store "$store" -q \
      --budget "$(budget_of "$limit" $problems)" --time-limit "$((2 * limit))s" \
      </dev/null >>"$out/tune.log" 2>>"$log" ||
      [ $? -eq 3 ] || say "dfgnn-tune fails on $one: $(tail -n 1 "$log")"
    # shellcheck disable=SC2086
    timeout "$(($(left) + 5))" dfgnn-bench "$one" $problems $options \
      --device "$device" --store "$store" -q --json </dev/null >>"$raw.each" 2>>"$log" || {
      say "dfgnn-bench fails on $one: $(tail -n 1 "$log")"
      return 1
    }
  done <"$raw.problems"
  set +f
  jq -s 'add | map(select(.status != "refused"))' "$raw.each" >"$raw"
}

# by_script SECONDS PART SCRIPT OPTIONS
by_script() {
  [ "$(left)" -ge "$1" ] || {
    say "$file: $(left) s are left, and it takes $1"
    return 1
  }
  files=
  for name in $2; do
    case $4 in
    *@GRAPHS*) files="$files $(graph "$name")" || return 1 ;;
    esac
  done
  options=$(echo "$4" | sed "s|@GRAPHS|$files|; s|@FILE|$raw|; s|@PART|$2|
    s|@DEVICE|$device|; s|@DATA|$top/data|")
  # shellcheck disable=SC2086
  timeout "$(least "$((2 * $1))" "$(left)")" "$python" "$bench/$3" $options \
    </dev/null >"$raw.printed" 2>"$log" || {
    say "$3 exits with $?: $(tail -n 1 "$log" | cut -c 1-200)"
    jq '[.[] | . + {partial: true}]' "$raw" >"$raw.new" 2>/dev/null && [ -s "$raw.new" ] &&
      mv "$raw.new" "$raw"
    return
  }
  [ -s "$raw" ] || mv "$raw.printed" "$raw"
}

# by_plan SECONDS: raises the coverage of cells of problems, and says what it is
by_plan() {
  sh "$bench/train_campaign.sh" "$store" "$(left_of_part)" "$graphs" >"$log" 2>&1
  dfgnn-tune model coverage "$store" --for "${FOR:-sm_90}" --json \
    >"$raw" 2>>"$log" || true # it fails where a family is on no graph
  [ -s "$raw" ]
}

# assemble FILE: its parts of this commit, and of older ones what these do not have
assemble() {
  set -- "$1" "$out/parts/$commit/$1"/*.json
  [ -e "$2" ] || return 0
  file=$1
  shift
  [ -s "$out/$file" ] || echo '[]' >"$out/$file"
  jq -s -c '.[0] as $old | (.[1:] | add) as $new | [$new[].part // empty] as $parts
    | (if $parts == [] then [] else [$old[] | select(objects)
        | select(.part // .graph // empty | IN($parts[]) | not)] end) + $new' \
    "$out/$file" "$@" >"$out/$file.$$.new" && mv "$out/$file.$$.new" "$out/$file"
}

measure() { # FILE SECONDS CODE PART PROBLEMS OPTIONS
  file=$1 seconds=$2 code=$3 part=$4
  name=$(echo "$part" | tr -c 'A-Za-z0-9_\n-' _ | cut -c 1-60)
  mkdir -p "$out/parts/$commit/$file"
  kept=$out/parts/$commit/$file/$name.json
  [ ! -s "$kept" ] || return 0
  say "$file $part"
  raw=$work/raw.$file.$name log=$out/logs/$file.$name.log
  part_end=$(($(date +%s) + seconds))
  case $5 in
  PLAN) by_plan "$seconds" ;;
  *.py) by_script "$seconds" "$part" "$5" "$6" ;;
  *) by_graph "$part" "$5" "$6" ;;
  esac || return 0
  clocks=$(clocks) && [ -n "$clocks" ] || clocks='{}'
  if told "$raw" "$code" "$part" >"$kept.new"; then
    mv "$kept.new" "$kept"
  else
    say "$file: what was printed is no JSON"
    rm -f "$kept.new"
  fi
}

# kernels: compiles what the parts' problems will choose, while graphs are made, so that
# lists do not wait for it; what is not ready in time is compiled when it is needed
kernels() {
  [ "$device" = cuda ] || return 0
  awk -F '\t' '$6 !~ /[.]py$/ && $6 != "PLAN" { print $6 }' "$work/parts" | tr '|' '\n' |
    sort -u >"$work/problems"
  while read -r problems; do
    # shellcheck disable=SC2086
    timeout 40 dfgnn-tune compile $problems --store "$store" --threads 8 -q </dev/null \
      >>"$out/compile.log" 2>&1 &
  done <"$work/problems"
  wait
}

# pinned NUMBER: keeps this process on its share of the processors, if there are many, so
# that lists side by side disturb each other's host less
pinned() {
  share=$(($(nproc) / count))
  [ "$count" -gt 1 ] && [ "$share" -ge 4 ] && command -v taskset >/dev/null || return 0
  taskset -cp "$(($1 * share))-$(($1 * share + share - 1))" \
    "$(exec sh -c 'echo $PPID')" >/dev/null 2>&1 || true
}

# worker NUMBER: takes parts that nobody has until none is left
worker() {
  pinned "$1"
  main=$store
  if [ "$count" -gt 1 ]; then
    store=$work/store_$1.db
    dfgnn-tune merge "$store" "$main" >/dev/null
  fi
  common=$work work=$work/of_$1 # for files of this process
  mkdir "$work"
  while IFS=$tab read -r number file seconds code part problems options <&3; do
    [ "$(left)" -gt 10 ] || break
    mkdir "$common/taken/$number" 2>/dev/null || continue
    measure "$file" "$seconds" "$code" "$part" "$problems" "$options"
  done 3<"$common/parts"
  : # what was left over is no failure
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

graphs=${GRAPHS:-$top/data} work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
case ${1-} in
--status)
  if [ -n "${2-}" ]; then status "$2"; else
    status "$bench/results/h200" "$bench/results/h100"
  fi
  exit $?
  ;;
"" | -*)
  sed -n '2,29s/^# \{0,1\}//p' "$0" >&2
  exit 2
  ;;
esac
needs dfgnn-bench dfgnn-graph
case ${2:-100000} in
*[!0-9.]*)
  echo "campaign.sh: found '$2' minutes, expected a number" >&2
  exit 2
  ;;
esac
mkdir -p "$1/graphs" "$1/logs"
out=$(cd "$1" && pwd)
end=$(awk -v now="$(date +%s)" -v minutes="${2:-100000}" \
  'BEGIN { printf "%d", now + 60 * minutes }')
device=${DEVICE:-cuda} python=${PYTHON:-python3}
store=${STORE:-$out/tuning.db}
find_library
devices=${DEVICES:-${CUDA_VISIBLE_DEVICES:-}}
[ -n "$devices" ] || [ "$device" != cuda ] ||
  devices=$(nvidia-smi -L 2>/dev/null | sed -n 's/^GPU \([0-9]*\):.*/\1/p')
devices=$(echo "${devices:--}" | tr ',\n' '  ')
count=$(echo "$devices" | wc -w)

# ---- budgets that fit, graphs, and a list for each GPU -----------------------

mkdir "$work/taken"
parts_due >"$work/all"
share=$(awk -F '\t' -v room=$(($(left) * count)) '
  $6 ~ /[.]py$/ { room -= $3; next } # scripts do not shrink
  { sum += $3 }
  END { share = sum ? room / sum : 1
    printf "%.3f", (share > 1 ? 1 : share < .1 ? .1 : share) }' "$work/all")
budget=$(awk -v text="${BUDGET:-3s}" -v share="$share" 'BEGIN {
  most = text ~ /ms$/ ? text / 1000 : text + 0
  seconds = most * share < .3 ? .3 : most * share
  printf "%dms", (1000 * (seconds < most ? seconds : most)) }')
awk -F '\t' -v OFS='\t' -v share="$share" '$6 !~ /[.]py$/ {
  $3 = int($3 * share < 10 ? 10 : $3 * share) } { print }' "$work/all" >"$work/parts"
say "$(wc -l <"$work/parts") parts on $count lists, $budget a problem"
lacking "$work/parts" >"$work/lacking"
each_device() { # FUNCTION: in a process for each device, until all background is done
  number=0
  for one in $devices; do
    ([ "$one" = - ] || export CUDA_VISIBLE_DEVICES="$one"
      "$1" "$number") &
    number=$((number + 1))
  done
  wait
}
share_of_graphs() { # NUMBER
  # shellcheck disable=SC2046
  set -- $(awk -v n="$1" -v of="$count" 'NR % of == n' "$work/lacking")
  [ $# -eq 0 ] || make_graphs "$@"
}
kernels &
each_device share_of_graphs
each_device worker
for one in "$work"/store_*.db; do
  [ ! -e "$one" ] || dfgnn-tune merge "$store" "$one" >/dev/null || say "$one is not merged"
done
cut -f 2 "$work/parts" | sort -u | while read -r file; do
  assemble "$file"
done
status "$out" || true
