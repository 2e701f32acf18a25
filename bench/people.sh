#!/bin/sh
# Measures the shapes that people use on all graphs, or says which problems have no row.
#
#   bench/people.sh OUT SECONDS     goes on with the queue in the folder OUT
#   bench/people.sh --status STORE  problems with a row in the store (a .db or .jsonl.gz),
#                                   of bench/campaign.tsv and of the queue, and what is
#                                   missing
#
# The queue has heads and widths of 8x16, 4x32, 16x32, 8x32 and 16x64 in f32, bf16 and
# f16, plain, with dropout and with 11 features an edge, forward and backward, on every
# graph.  A job is one such group on a share of the graphs; jobs are ordered so that
# after each round every graph has been in another group, and every group has had as many
# graphs: a queue that ends early has some of everything.  What a job measured is kept,
# and jobs that were done are not repeated.  The rows are in OUT/people.db.
#
#   DEVICES=0,1   GPUs, each with a list of its own (default: all that can be seen)
#   DEVICE=cuda   or cpu
#   GRAPHS=DIR    real graphs as .npz (default data/)
#   MADE=TEXTS    generated ones beside them, for dfgnn-graph generate (default: weather,
#                 meshes, points, molecules and the graphs of the tables)
#   BUDGET=20ms   of a problem
#   SHARES=9      of the graphs, one of which is a job's
#   STORE=FILE    what is known already, besides the package's store
#   FOR=sm_90     rows of which architecture --status counts
. "$(dirname "$0")/lib.sh"
needs jq dfgnn-tune dfgnn-graph

top=$(cd "$bench/.." && pwd)
graphs=${GRAPHS:-$top/data} shares=${SHARES:-9}
made=${MADE-preset=o96_proc preset=h_to_h preset=o96_knn16 preset=era_to_h preset=dop_enc \
preset=h_to_era preset=arxiv preset=mnist preset=pattern preset=voc icosphere:level=6 \
knn:nodes=50000,k=16,seed=5 knn:nodes=36,k=6,batch=1024,seed=6 \
rmat:scale=16,edges=1500000,seed=7}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# name_of TEXT: the name of a generated graph's file
name_of() { echo "${1#preset=}" | tr -c 'A-Za-z0-9_\n-' _; }

# The names of all graphs, real ones first.
names() {
  find -L "$graphs" -name '*.npz' | sed 's|.*/||; s|[.]npz$||' | LC_ALL=C sort
  for text in $made; do name_of "$text"; done
}

# groups: NAME OPTIONS, those that most models have first
groups() {
  for mode in plain dropout edges; do
    case $mode in
    plain) ops=gt,gat,gatv2 more= ;;
    dropout) ops=gt,gat,gatv2 more=' --dropout' ;;
    edges) ops=gt,gatv2 more=' --edge-dim 11' ;;
    esac
    for type in f32 bf16 f16; do
      for shape in 8x16 4x32 16x32 8x32 16x64; do
        printf '%s\t%s\n' "$shape $type $mode" "--op $ops --pass forward,backward \
--heads ${shape%x*} --dim ${shape#*x} --dtype $type$more"
      done
    done
  done
}

# queue: NUMBER GROUP OPTIONS NAME...: a Latin order of groups and shares of the graphs
queue() {
  names >"$work/names"
  groups | awk -F '\t' -v OFS='\t' -v shares="$shares" '
    NR == FNR { graph[n + 0] = $1; n++; next }
    { group[m + 0] = $1; options[m++] = $2 }
    END {
      for (i = 0; i < n; i++) of[(i * 7) % shares] = of[(i * 7) % shares] " " graph[i]
      for (turn = 0; turn < shares; turn++)
        for (k = 0; k < m; k++) {
          g = (k * 7) % m # neighbours differ in everything
          print ++number, group[g], options[g], substr(of[(k + turn) % shares], 2)
        }
    }' "$work/names" -
}

# wanted: GRAPH OPTIONS of all problems of the tables, then of the queue
wanted() {
  grep -v '^#' "$bench/campaign.tsv" | while IFS=$(printf '\t') read -r _ _ _ parts problems _; do
    case $problems in --op*) ;; *) continue ;; esac
    case $parts in
    PAPERS) parts="cora citeseer pubmed pattern cluster mnist cifar10 voc coco arxiv ppa \
proteins reddit_comm reddit_rand" ;;
    REAL) parts=$(find -L "$graphs" -name '*.npz' | sed 's|.*/||; s|[.]npz$||') ;;
    esac
    for part in $parts; do
      echo "$problems" | tr '|' '\n' | sed "s|^ *|tables	$part	|; s| *\$||"
    done
  done
  groups | while IFS=$(printf '\t') read -r group options; do
    names | sed "s|\$|	$options|; s|^|$group	|"
  done
}

# status STORE
status() {
  case $1 in
  *.jsonl.gz) gzip -dc "$1" ;;
  *) dfgnn-tune export --store "$1" ;;
  esac | jq -r --arg arch "${FOR:-sm_90}" 'select(.arch == $arch and .status == "ok")
    | [.graph, .op, .pass, .dtype, .math, .heads, .dim, .edge_dim // 0, .dropout // 0,
       .message // 0] | map(tostring) | join(" ")' | LC_ALL=C sort -u >"$work/have"
  wanted | jq -R -r '
    def list($words; $name; $default): ($words | index($name)) as $i
      | if $i then $words[$i + 1] | split(",") else [$default] end;
    split("\t") as [$group, $graph, $text] | ($text | split(" ") | map(select(. != ""))) as $w
    | {copy: 0, relu: 1, gate: 2, "gate-value": 3} as $messages
    | list($w; "--op"; "gt")[] as $op | list($w; "--pass"; "forward")[] as $pass
    | list($w; "--dtype"; "f32")[] as $dtype | list($w; "--math"; "f32")[] as $math
    | list($w; "--heads"; "1")[] as $heads | list($w; "--dim"; "64")[] as $dim
    | list($w; "--edge-dim"; "0")[] as $edges | list($w; "--message"; "copy")[] as $message
    | [$group, $graph, ([$graph, $op, $pass, $dtype, $math, $heads, $dim, $edges,
       (if $w | index("--dropout") then "1" else "0" end), ($messages[$message] // 0 | tostring)]
       | join(" "))] | join("\t")' | awk -F '\t' '
    NR == FNR { have[$1] = 1; next }
    !($1 in all) { order[++groups] = $1 }
    { all[$1]++; total++; of[$1, $2]++
      if (!(($1, $2) in seen)) { seen[$1, $2] = 1; list[$1] = list[$1] " " $2 } }
    $3 in have { found[$1]++; sum++; got[$1, $2]++ }
    END {
      for (i = 1; i <= groups; i++) {
        g = order[i]; n = split(list[g], graph, " "); lacking = ""; lacks = 0
        for (k = 1; k <= n; k++)
          if (got[g, graph[k]] < of[g, graph[k]] && ++lacks <= 4) lacking = lacking " " graph[k]
        more = lacks ? "; missing on " lacks " graphs:" lacking : ""
        printf "%-20s %5d of %5d problems have a row%s%s\n", g, found[g], all[g], more,
          (lacks > 4 ? " ..." : "")
      }
      printf "%-20s %5d of %5d problems have a row\n", "all", sum, total
    }' "$work/have" -
}

case ${1-} in
--status)
  [ -n "${2-}" ] || { sed -n '2,26s/^# \{0,1\}//p' "$0" >&2; exit 2; }
  status "$2"
  exit
  ;;
"" | -*)
  sed -n '2,26s/^# \{0,1\}//p' "$0" >&2
  exit 2
  ;;
esac
case ${2-} in
"" | *[!0-9]*)
  echo "people.sh: found '${2-}' seconds, expected a whole number" >&2
  exit 2
  ;;
esac

# ---- measuring ---------------------------------------------------------------

mkdir -p "$1/graphs" "$1/done" "$1/taken"
out=$(cd "$1" && pwd)
end=$(($(date +%s) + $2))
left() { echo $((end - $(date +%s))); }
device=${DEVICE:-cuda}
devices=${DEVICES:-${CUDA_VISIBLE_DEVICES:-}}
[ -n "$devices" ] || [ "$device" != cuda ] ||
  devices=$(nvidia-smi -L 2>/dev/null | sed -n 's/^GPU \([0-9]*\):.*/\1/p')
devices=$(echo "${devices:--}" | tr ',\n' '  ')
count=$(echo "$devices" | wc -w)
[ -s "$out/package.db" ] || sh "$top/data/stores/make.sh" "$(command -v dfgnn-tune)" \
  "$out/package.db" "$top"/data/stores/*.jsonl.gz >&2
known=$out/package.db${STORE:+:$STORE}

make_graphs() {
  for text in $made; do
    file=$out/graphs/$(name_of "$text").npz
    [ -e "$file" ] || { dfgnn-graph generate "$text" -q -o "$file.new.npz" &&
      mv "$file.new.npz" "$file"; } &
  done
  wait
}

files_of() { # NAME...
  for name; do
    for file in "$out/graphs/$name.npz" "$graphs/$name.npz"; do
      [ ! -e "$file" ] || { echo "$file" && break; }
    done
  done
}

# kernels: compiles what jobs will choose, in their order, on processors that wait
kernels() {
  all=$(files_of $(cut -f 4 "$out/queue" | tr ' ' '\n' | LC_ALL=C sort -u))
  awk -F '\t' '!seen[$2]++ { print $3 }' "$out/queue" | while read -r options; do
    [ "$(left)" -gt 20 ] || break
    # shellcheck disable=SC2086
    DFGNN_STORE=$known timeout "$(left)" nice -n 19 dfgnn-tune compile $all $options -q \
      --threads "$(($(nproc) / 3 + 1))" </dev/null >>"$out/compile.log" 2>&1 || true
  done
}

# worker NUMBER: takes jobs that nobody has until none is left
worker() {
  share=$(($(nproc) / count))
  [ "$count" -eq 1 ] || [ "$share" -lt 4 ] || ! command -v taskset >/dev/null ||
    taskset -cp "$(($1 * share))-$(($1 * share + share - 1))" \
      "$(exec sh -c 'echo $PPID')" >/dev/null 2>&1 || true
  while IFS=$(printf '\t') read -r number _ options names <&3; do
    seconds=$(left)
    [ "$seconds" -gt 3 ] || break
    [ ! -e "$out/done/$number" ] && mkdir "$out/taken/$number" 2>/dev/null || continue
    code=0
    # shellcheck disable=SC2046,SC2086
    DFGNN_STORE=$out/part_$1.db:$known timeout "$((seconds + 5))" dfgnn-tune run \
      $(files_of $names) $options --device "$device" --budget "${BUDGET:-20ms}" \
      --time-limit "${seconds}s" -q </dev/null >>"$out/people.log" 2>&1 || code=$?
    case $code in
    0 | 4) touch "$out/done/$number" ;; # 4: a variant was wrong, which is a row, too
    3) ;;
    *) say "job $number exits with $code: $(tail -n 1 "$out/people.log")" ;;
    esac
  done 3<"$out/queue"
}

queue >"$out/queue"
rm -rf "$out/taken" && mkdir "$out/taken"
make_graphs
say "$(wc -l <"$out/queue") jobs on $count lists, $(ls "$out/done" | wc -l) of them done"
compiling=
[ "$device" != cuda ] || { kernels & compiling=$!; }
number=0 workers=
for one in $devices; do
  ([ "$one" = - ] || export CUDA_VISIBLE_DEVICES="$one"
    worker "$number") &
  workers="$workers $!"
  number=$((number + 1))
done
# shellcheck disable=SC2086
wait $workers
[ -z "$compiling" ] || kill "$compiling" 2>/dev/null || true
for one in "$out"/part_*.db; do
  [ ! -e "$one" ] || dfgnn-tune merge "$out/people.db" "$one" >/dev/null
done
say "$(ls "$out/done" | wc -l) of $(wc -l <"$out/queue") jobs are done"
