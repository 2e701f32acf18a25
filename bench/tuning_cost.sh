#!/bin/sh
# Measures the cost of tuning: every candidate is measured to the end in a store of
# its own, then a fresh store is tuned in a quarter of that time, and the regret of
# its winner is read from the exhaustive figures.
#
#   bench/tuning_cost.sh OUT.json GRAPH...
#
#   OPTIONS='--dim 128'   problem options (one problem)
. "$(dirname "$0")/lib.sh"
needs dfgnn-tune jq

[ $# -ge 2 ] || {
  sed -n '2,8s/^# \{0,1\}//p' "$0" >&2
  exit 2
}
out=$1
shift
options=${OPTIONS:---op gt --dim 128}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

now() { date +%s.%N; }
since() { echo "$(now) $1" | awk '{print $1 - $2}'; }

for graph; do
  name=$(basename "$graph" .npz)
  all=$work/$name.all.db
  quick=$work/$name.quick.db
  say "$name: exhaustive"
  began=$(now)
  # shellcheck disable=SC2086
  dfgnn-tune run "$graph" $options --store "$all" --exhaustive --budget 1h \
    --quiet >/dev/null
  exhaustive=$(since "$began")
  quarter=$(echo "$exhaustive" | awk '{printf "%.3f", $1 / 4}')
  say "$name: $exhaustive s; tuning in $quarter s"
  began=$(now)
  # shellcheck disable=SC2086
  dfgnn-tune run "$graph" $options --store "$quick" --budget "${quarter}s" \
    --quiet >/dev/null
  tuned=$(since "$began")
  winner=$(dfgnn-tune show --store "$quick" --json | jq -r '.[0].variant')
  dfgnn-tune show --store "$all" --all --json |
    jq --arg graph "$name" --arg winner "$winner" --arg a "$exhaustive" \
      --arg t "$tuned" '
      (map(select(.variant == $winner))[0].slower) as $slower |
      (map(.slower | select(. != null)) | min) as $least |
      {graph: $graph, candidates: length, winner: $winner,
       exhaustive_s: ($a | tonumber), tuned_s: ($t | tonumber),
       share: (($t | tonumber) / ($a | tonumber)), regret: ($slower / $least)}' \
      >"$work/$name.json"
  jq -r '"\(.graph): regret \(.regret) in \(.share) of the time"' \
    "$work/$name.json"
done
cat "$work"/*.json | jq -s . >"$out"
