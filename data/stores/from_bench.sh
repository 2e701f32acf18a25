#!/bin/sh
# Figures of dfgnn-bench --json as measurements, so that a store learns of what
# was timed beside the choice: the rule's variant above all.
#
#   from_bench.sh ROWS.jsonl.gz TIME FILE.json >NEW.jsonl
#
# ROWS say what else belongs to a measurement: the graph's signature, the device,
# revisions where the figures do not say theirs.  TIME is that of the figures in
# seconds since 1970.  Ratios are to the rule's choice, their intervals those of the
# two medians together.  Figures of messages are left out.
set -eu
[ $# -eq 3 ] || {
  sed -n '2,12s/^# \{0,1\}//p' "$0" >&2
  exit 2
}

run=$(sha256sum "$3" | cut -c1-32)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
gzip -dc "$1" >"$work/rows"
jq -c --arg run "$run" --argjson time "$2" --slurpfile rows "$work/rows" '
def number(flag): if flag then 1 else 0 end;
(reduce $rows[] as $r ({}; .[$r.graph] |=
    if . == null or length <= ($r | length) then $r else . end)) as $graph
| (reduce $rows[] as $r ({}; .[$r.variant] = $r.revision)) as $revision
| map(select((.message // "copy") == "copy"))
| group_by([.graph, .op, .pass, .dtype, .math, .layout, .heads, .dim,
    .deterministic, .weights, .bias, .dropout, .edge_dim])[]
| (map(select(.role | split(",") | index("rule")))[0]) as $anchor
| select($anchor and $graph[$anchor.graph]) | .[]
| select(.status == "ok" and (.revision // $revision[.variant]))
| . as $b | ($b.variant == $anchor.variant) as $same
| ($graph[.graph] | del(.bias, .dropout, .edge_dim, .edge_use, .message, .program,
    .program_text, .disturbed, .noise))
  + (if has("weights") then {deterministic: number(.deterministic),
      weights: number(.weights)} else {} end)
  + (if .bias then {bias: 1} else {} end)
  + (if .dropout then {dropout: 1} else {} end)
  + (if (.edge_dim // 0) > 0 then {edge_dim} else {} end) + {op, pass, dtype, math, layout, heads, dim, variant, status,
    revision: (.revision // $revision[.variant]), tool: "dfgnn-bench \(.version)", job: "",
    run: $run, time: $time, reason: "", anchor: $anchor.variant,
    anchor_revision: ($anchor.revision // $revision[$anchor.variant]), median_ms, ci_low_ms,
    ci_high_ms, ratio: (if $same then 1 else .ratio end),
    ratio_low: (if $same then 1 else .ratio * (.ci_low_ms / .median_ms)
      * ($anchor.median_ms / $anchor.ci_high_ms) end),
    ratio_high: (if $same then 1 else .ratio * (.ci_high_ms / .median_ms)
      * ($anchor.median_ms / $anchor.ci_low_ms) end),
    samples, rel_error, workspace_bytes}' "$3"
