#!/bin/sh
# Ctrl-C and the time limit keep what is measured, and the same command resumes.
. "$(dirname "$0")/lib.sh"
store=$work/t.db

# More problems than a test waits for.
many="--device cpu --dim 8,9,10,11,12,13,14,15,16,17,18,19 --op gt,gat,gatv2,agnn
  --heads 1,2,4,8 --budget 1s"

rows() { dfgnn-tune export --store "$store" 2>/dev/null | wc -l; }

# A program that nohup started ignores HUP, and so does what it starts.
signals="INT TERM HUP"
sh -c 'kill -HUP $$; exit 0' 2>/dev/null && signals="INT TERM"
for signal in $signals; do
  promise "a run ended by $signal exits with 130 and keeps its rows"
  rm -f "$store"*
  # shellcheck disable=SC2086
  dfgnn-tune run "$small" $many --store "$store" >"$work/out" 2>"$work/err" &
  pid=$!
  tries=0
  while [ "$(rows)" -lt 1 ] && [ $tries -lt 100 ]; do
    sleep 0.1
    tries=$((tries + 1))
  done
  kill -$signal $pid
  wait $pid
  code=$?
  [ $code -eq 130 ] || fail "it exits with $code"
  [ $signal != INT ] || says "interrupted"
  kept=$(rows)
  [ "$kept" -ge 1 ] || fail "no row is kept"
done

promise "the time limit exits with 3 and keeps its rows"
# shellcheck disable=SC2086
status 3 dfgnn-tune run "$small" $many --time-limit 2s --store "$store" --quiet
says "time limit"
[ "$(rows)" -gt "$kept" ] || fail "no row is added"

finish
