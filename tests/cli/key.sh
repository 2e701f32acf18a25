#!/bin/sh
# Bias and dropout belong to a problem: it is measured, stored, told and moved
# apart from problems without them.
. "$(dirname "$0")/lib.sh"
store=$work/t.db
here="--device cpu --dim 8"

# shellcheck disable=SC2086
{
  promise "what was measured without answers as near, and says so"
  status 0 dfgnn-tune run "$small" $quick --op gat --store "$store"
  status 0 dfgnn-tune explain "$small" $here --op gat --store "$store" --json
  holds '.[0] | .source == "exact" and .bias == false and .dropout == false'
  status 0 dfgnn-tune explain "$small" $here --op gat --dropout --bias \
    --store "$store" --json
  holds '.[0] | .source == "near" and .bias and .dropout and
    (.because | test("measured without bias, without dropout")) and
    (.stores | length) == 1'
  status 0 dfgnn-tune explain "$small" $here --op gat --dropout --store "$store"
  prints "1 head x 8 with dropout"

  promise "run measures them in both passes, and what it measured is exact"
  status 0 dfgnn-tune run "$small" $quick --op gat --pass forward,backward \
    --dropout --store "$store" --json
  holds 'length == 2 and all(.dropout and (.bias | not) and .source == "exact")'
  holds '.[0].before == "near" and (.[1].before | . == "rule" or . == "model")'
  status 0 dfgnn-tune run "$small" $quick --op gat --bias --dropout \
    --store "$store" --json
  holds '.[0].before == "near" and .[0].source == "exact"'
  status 0 dfgnn-tune run "$small" $quick --op gat --dropout --dry-run \
    --store "$store" --json
  holds '.[0] | .dropout and .measured > 0'
  status 0 dfgnn-tune run "$small" $quick --op gat --dropout --dry-run
  prints "DROPOUT"

  promise "show, stat and diff keep them apart"
  status 0 dfgnn-tune show --store "$store" --json
  holds '[.[] | [.pass, .bias, .dropout]] | sort ==
    [["backward", false, true], ["forward", false, false],
     ["forward", false, true], ["forward", true, true]]'
  status 0 dfgnn-tune show --store "$store" --dropout --json
  holds 'length == 3 and all(.dropout)'
  status 0 dfgnn-tune show --store "$store" --bias
  prints "BIAS *DROPOUT"
  [ "$(wc -l <"$work/out")" = 2 ] || fail "--bias shows other problems"
  status 0 dfgnn-tune stat --store "$store" --json
  holds 'length == 4 and all(.problems == 1)'
  status 0 dfgnn-tune export --store "$store" --dropout -o "$work/part.jsonl"
  status 0 dfgnn-tune import "$work/part.jsonl" --store "$work/part.db" -q
  status 1 dfgnn-tune diff "$store" "$work/part.db" --json
  holds 'length == 1 and .[0].dropout == false and .[0].b == null'
  says "3 are decided alike"

  promise "a row without them is written as before there were any"
  status 0 dfgnn-tune export --store "$store"
  [ "$(grep -c '"dropout":1' "$work/out")" = "$(wc -l <"$work/part.jsonl")" ] ||
    fail "dropout is not told where it is"
  grep -q -e '"bias":0' -e '"dropout":0' -e edge_dim "$work/out" &&
    fail "what is not there is told"
  sed 's/"dropout":1/"dropout":2/' "$work/part.jsonl" >"$work/two.jsonl"
  status 1 dfgnn-tune import "$work/two.jsonl" --store "$work/two.db"
  says "two.jsonl:1: .*dropout"

  promise "bench checks and times them"
  status 0 dfgnn-bench "$small" $quick --op gt,gat --pass forward,backward \
    --bias --dropout --rounds 3 --json --store "$store"
  holds 'length > 3 and all(.status == "ok" and .bias and .dropout and
    .rel_error < 3e-5)'

  promise "a pin may be for problems with dropout alone"
  pinned=$(dfgnn-tune show --store "$store" --all --dropout --pass forward \
    --json | jq -r '.[-1].variant')
  status 0 dfgnn-tune pin "$pinned" --op gat --dropout --store "$store"
  status 0 dfgnn-tune pin --store "$store" --json
  holds 'length == 1 and .[0].dropout and (.[0].bias | not)'
  status 0 dfgnn-tune explain "$small" $here --op gat --dropout \
    --store "$store" --json
  holds ".[0].source == \"pinned\" and .[0].variant == \"$pinned\" and
    (.[0].stores | length) == 1"
  status 0 dfgnn-tune explain "$small" $here --op gat --store "$store" --json
  holds '.[0].source == "exact"'
  status 0 dfgnn-tune pin --remove --op gat --store "$store"
  status 0 dfgnn-tune pin --store "$store" --json
  holds 'length == 1'
  status 0 dfgnn-tune pin --remove --op gat --dropout --store "$store"
  status 0 dfgnn-tune pin --store "$store" --json
  holds 'length == 0'

  promise "doctor tells what has to match"
  status 0 dfgnn-tune run "$small" $quick --op gt --dropout \
    --store "$work/gt.db"
  status 0 dfgnn-tune doctor "$small" $here --op gt --store "$work/gt.db" --json
  holds 'any(.kind == "call" and .verdict == "miss" and
    (.why | test("dropout yes \\(here no\\)")))'

  promise "variants tells which can do them"
  status 0 dfgnn-tune variants --json
  holds 'any(.bias and .dropout) and any((.bias or .dropout) | not)'
  status 0 dfgnn-tune variants --op gt --dropout --json
  holds 'length > 10 and all(.dropout and .op == "gt")'

  promise "operators without attention have neither"
  for flag in bias dropout; do
    status 2 dfgnn-tune run "$small" $quick --op gt,spmm-sum --$flag \
      --store "$work/no.db"
    says "$flag: .*spmm-sum"
  done
}

promise "a job asks for them"
cat >"$work/tune.job" <<END
$small
--op agnn
--dim 8
--bias
--dropout
END
status 0 dfgnn-tune run --job "$work/tune.job" --device cpu --budget 3s \
  --quiet --store "$work/job.db"
status 0 dfgnn-tune show --store "$work/job.db" --json
holds 'length == 1 and .[0].bias and .[0].dropout'
printf 'a\n--dropout 0.5\n' >"$work/tune.job"
status 1 dfgnn-tune run --job "$work/tune.job" --quiet
says "tune.job:2: .*0.5"
finish
