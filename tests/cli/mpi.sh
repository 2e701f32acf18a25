#!/bin/sh
# The processes of mpirun share the problems of a run.
. "$(dirname "$0")/lib.sh"

promise "a tool without MPI says that mpirun repeats the work"
if dfgnn-tune info --device cpu --json |
  jq -e 'any(.name == "mpi" and .value == "none")' >/dev/null; then
  status 0 env OMPI_COMM_WORLD_SIZE=3 dfgnn-tune run "$small" --device cpu \
    --dim 2 --budget 100ms --store "$work/alone.db"
  says "each of the 3 processes.*--with-mpi"
  [ "$failures" = 0 ] || finish
  echo "built without MPI: skipped"
  exit 77
fi
command -v mpirun >/dev/null || { echo "mpirun is missing: skipped"; exit 77; }
OMPI_ALLOW_RUN_AS_ROOT=1
OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_ALLOW_RUN_AS_ROOT OMPI_ALLOW_RUN_AS_ROOT_CONFIRM \
  OMPI_MCA_rmaps_base_oversubscribe
problems="--device cpu --threads 1 --op gt,gat --dim 2,3,4 --budget 200ms"
problems_of() { # STORE
  dfgnn-tune export --store "$1" | jq -s -c '[.[] | [.op, .dim]] | unique'
}
whole='[["gat",2],["gat",3],["gat",4],["gt",2],["gt",3],["gt",4]]'

promise "a dry run of ranks measures nothing"
# shellcheck disable=SC2086
status 0 mpirun -n 3 dfgnn-tune run "$small" $problems --store "$work/one.db" \
  --dry-run --json --quiet
holds 'length == 6 and all(.measured == 0)'
[ ! -e "$work/one.db" ] || fail "it makes a store"

promise "each problem is taken by one rank, and rank 0 prints them all"
# shellcheck disable=SC2086
status 0 mpirun -n 3 dfgnn-tune run "$small" $problems --store "$work/one.db" \
  --json --quiet
holds '[.[] | [.op, .dim]] | length == 6 and (unique | length) == 6'
holds 'all(.measured > 0 and .resumed == 0 and .kept)'
[ "$(problems_of "$work/one.db")" = "$whole" ] || fail "the store lacks some"

promise "a rerun resumes, with any number of ranks"
# shellcheck disable=SC2086
status 0 mpirun -n 2 dfgnn-tune run "$small" $problems --store "$work/one.db" \
  --json --quiet
holds 'length == 6 and all(.resumed > 0)'

# Runs ranks that share no files, like hosts; $1 is the budget of a problem.
apart() {
  # shellcheck disable=SC2016
  mpirun -n 3 sh -c 'rank=${OMPI_COMM_WORLD_RANK:-$PMI_RANK}
    echo $$ >"$3/pid$rank"
    exec dfgnn-tune run "$1" --device cpu --threads 1 --op gt,gat \
      --dim 2,3,4 --budget "$2" --json --quiet --store "$3/rank$rank.db"' \
    sh "$small" "$1" "$work"
}

promise "what was measured outlives a rank that is killed"
apart 2s >"$work/out" 2>"$work/err" &
job=$!
rows=0
for _ in $(seq 200); do
  [ -e "$work/rank1.db" ] &&
    rows=$(dfgnn-tune export --store "$work/rank1.db" 2>/dev/null | wc -l)
  [ "$rows" -ge 3 ] && break
  sleep 0.1
done
kill -9 "$(cat "$work/pid1")" || fail "nothing to kill"
wait $job && fail "mpirun does not tell"
for i in 0 1 2; do
  dfgnn-tune export --store "$work/rank$i.db" >"$work/before$i" ||
    fail "the store of rank $i is lost"
done
[ "$(wc -l <"$work/before1")" -ge "$rows" ] || fail "rows are lost"

promise "stores of several hosts end alike, and a rerun uses all of them"
status 0 apart 200ms
holds 'length == 6 and any(.resumed > 0)'
for i in 0 1 2; do
  [ "$(problems_of "$work/rank$i.db")" = "$whole" ] ||
    fail "the store of rank $i lacks some"
  dfgnn-tune export --store "$work/rank$i.db" >"$work/after$i"
  cmp -s "$work/after0" "$work/after$i" || fail "stores 0 and $i differ"
  sort "$work/before$i" >"$work/sorted"
  [ -z "$(sort "$work/after$i" | comm -23 "$work/sorted" -)" ] ||
    fail "rows of rank $i are lost"
done

promise "the gravest status is mpirun's"
status 5 mpirun -n 2 sh -c 'exec dfgnn-tune run "$1" --device cpu --dim 2 \
  --budget 100ms --quiet \
  --store "$2$([ "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" = 1 ] && echo /none)"' \
  sh "$small" "$work/one.db"

finish
