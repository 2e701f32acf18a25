#!/bin/sh
# bench/people.sh: the order of its queue, what it leaves, and what it says is missing.
. "$(dirname "$0")/lib.sh"

queue=$work/people
mkdir "$work/graphs"
cp "$top/data/cora.npz" "$work/graphs/cora.npz"
people() { # STATUS ARGUMENTS
  code_of_exit=$1
  shift
  status "$code_of_exit" env GRAPHS="$work/graphs" DEVICE=cpu SHARES=3 BUDGET=1ms FOR="$arch" \
    MADE="knn:nodes=50,k=4,seed=1 knn:nodes=60,k=4,seed=1" sh "$top/bench/people.sh" "$@"
}
arch=$(dfgnn-tune info --json | jq -r '.[] | select(.name == "architecture").value')

promise "every group is on every graph once, and after a round each graph has had another"
people 0 "$queue" 0
[ "$(wc -l <"$queue/queue")" -eq 135 ] || fail "the queue has $(wc -l <"$queue/queue") jobs"
[ "$(cut -f 2,4 "$queue/queue" | sort -u | wc -l)" -eq 135 ] || fail "a job is there twice"
[ "$(head -n 45 "$queue/queue" | cut -f 2 | sort -u | wc -l)" -eq 45 ] ||
  fail "the first round lacks a group"
[ "$(head -n 45 "$queue/queue" | cut -f 4 | sort | uniq -c | awk '{ print $1 }' | sort -u)" \
  = 15 ] || fail "the first round prefers a graph"

promise "jobs that were done are kept, and not repeated"
head -n 2 "$queue/queue" | cut -f 1 >"$work/first"
for number in $(sed -n '3,$p' "$queue/queue" | cut -f 1); do touch "$queue/done/$number"; done
people 0 "$queue" 60
says '135 of 135 jobs are done'
[ "$(grep -c GRAPH "$queue/people.log")" -eq 2 ] || fail "not two jobs ran"
people 0 "$queue" 60
[ "$(grep -c GRAPH "$queue/people.log")" -eq 2 ] || fail "a job ran again"

promise "the state tells problems with a row, and where others are missing"
people 0 --status "$queue/people.db"
prints '^8x16 f32 plain  *6 of *18 problems have a row; missing on 2 graphs: '
prints '^8x32 f16 edges  *0 of *12 problems have a row; missing on 3 graphs: cora '
prints '^tables  *2 of '
prints '^all  *14 of '
promise "a store of JSON Lines says the same"
dfgnn-tune export --store "$queue/people.db" -o "$work/rows.jsonl" && gzip "$work/rows.jsonl"
people 0 --status "$work/rows.jsonl.gz"
prints '^8x16 f32 plain  *6 of *18 '

promise "what is wrong is said"
people 2 "$queue" soon
says "found 'soon' seconds"
people 2
finish
