#!/bin/sh
# sanitize.sh [FOLDER]: compute-sanitizer over the GPU tests, one family of kernels at a
# time, each with a limit of its own, so that any device time brings it further.
# FOLDER has the check_gpu_* programs (default: that of this file).
#
#   TABLE=FILE     a line for each run: tool, program, family, state, seconds, the
#                  sanitizer's summary (default sanitize.tsv here).  What it says has
#                  run at this commit is not run again.
#   COMMIT=ID      the commit of the programs (default: that of the checkout, else
#                  the version)
#   LIMIT=SECONDS  for one run (default 90); BUDGET=SECONDS for all (default 540)
#   JOBS=N         at once (default 4); FEW=N: tests take one variant of N (60)
#   TOOLS=LIST     default racecheck memcheck initcheck, in this order
#   TUNE=FILE      dfgnn-tune, which lists the families (default: on the PATH, or
#                  ../../tools beside FOLDER)
#
# States: ok; hazards (the log is kept beside TABLE); ended (by LIMIT, with no
# hazard until then); failed (the test itself); nothing (no test is for it);
# unsupported (the machine does not allow the tool); never (BUDGET was spent).
# The exit status is 1 if anything has hazards or failed, 2 if something never ran.
set -u
here=$(cd "$(dirname "$0")" && pwd)
folder=$(cd "${1:-$here}" && pwd)
table=${TABLE:-sanitize.tsv}
limit=${LIMIT:-90} budget=${BUDGET:-540} jobs=${JOBS:-4}
export DFGNN_TEST_FEW="${FEW:-60}"

tune=${TUNE:-$(command -v dfgnn-tune || echo "$folder/../../tools/dfgnn-tune")}
sanitizer=${COMPUTE_SANITIZER:-$(command -v compute-sanitizer ||
  ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null)}
for program in "$tune" "$sanitizer"; do
  [ -x "$program" ] || {
    echo "sanitize: found no program '$program', expected dfgnn-tune (TUNE) and" \
      "compute-sanitizer (COMPUTE_SANITIZER)" >&2
    exit 77
  }
done
commit=${COMMIT:-$(git -C "$here" describe --always --abbrev=12 2>/dev/null ||
  "$tune" --version | head -n 1)}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The families of kernels on a GPU, each once.
families() {
  for op in gt,agnn,gat,gatv2 spmm-sum,spmm-mean,spmm-weighted \
    reduce-min,reduce-max,reduce-mean,reduce-var,reduce-std,reduce-pna; do
    for pass in forward backward; do
      "$tune" variants --op "$op" --pass "$pass" 2>/dev/null
    done
  done | sed -n 's|^\(cuda\.[^/ ]*\).*|\1|p' | sort -u
}

# Lines "tool program family"; - is all of a program that is not about families.
plan() {
  for tool in ${TOOLS:-racecheck memcheck initcheck}; do
    for program in backend sort backward symmetric tiles execute; do
      echo "$tool check_gpu_$program -"
    done
    while read -r family; do
      for program in variants edges messages gather; do
        echo "$tool check_gpu_$program $family"
      done
    done <"$work/families"
  done
}

# has_run TOOL PROGRAM FAMILY: the table has it at this commit
has_run() {
  awk -F '\t' -v c="$commit" -v t="$1" -v p="$2" -v f="$3" '
    $1 == c && $2 == t && $3 == p && $4 == f && $5 != "never" { found = 1 }
    END { exit !found }' "$table"
}

# once LOG TOOL PROGRAM FAMILY QUICK: one run under the tool; its status
once() {
  (
    [ "$4" = - ] || export DFGNN_TEST_FAMILY="$4"
    [ -z "$5" ] || export DFGNN_TEST_QUICK=1
    exec timeout -k 5 "$limit" "$sanitizer" --tool "$2" --error-exitcode 99 \
      --print-limit 5 "$folder/$3" >"$1" 2>&1
  )
}

# Whether a log of a family's test says that something was checked.
checked() {
  [ "$2" = - ] || grep -Eq '[1-9][0-9]* checks' "$1" ||
    ! grep -Eq '(^|[^0-9])0 checks|no test ran' "$1"
}

# one TOOL PROGRAM FAMILY: runs it and writes its line
one() {
  log=$work/$1.$2.$3
  begin=$(date +%s)
  once "$log" "$1" "$2" "$3" quick
  status=$?
  if [ $status -ne 124 ] && ! checked "$log" "$3"; then
    once "$log" "$1" "$2" "$3" ''
    status=$?
  fi
  summary=$(grep 'SUMMARY' "$log" | tail -n 1 | tr '\t' ' ' | sed 's/^=* *//')
  if grep -q 'Device not supported' "$log"; then
    state=unsupported
  elif [ $status -eq 99 ] || grep -q 'Error: Race\|Invalid __\|Uninitialized' "$log"
  then
    state=hazards
  elif [ $status -eq 124 ] || [ $status -eq 137 ]; then
    state=ended
  elif ! checked "$log" "$3"; then
    state=nothing
  elif [ $status -ne 0 ]; then
    state=failed
  else
    state=ok
  fi
  case $state in hazards | failed) cp "$log" "$table.$1.$2.$3.log" ;; esac
  printf '%s\t%s\t%s\t%s\t%s\t%s\t%s\n' "$commit" "$1" "$2" "$3" $state \
    $(($(date +%s) - begin)) "$summary" >>"$table"
}

families >"$work/families"
[ -s "$work/families" ] || {
  echo "sanitize: $tune lists no family of CUDA" >&2
  exit 1
}
touch "$table"
# "never" is written anew below.
awk -F '\t' -v c="$commit" '$1 != c || $5 != "never"' "$table" >"$work/table" &&
  cp "$work/table" "$table"
plan >"$work/plan"
started=$(date +%s)
running=0
while read -r tool program family; do
  [ -x "$folder/$program" ] || continue
  ! has_run "$tool" "$program" "$family" || continue
  if [ $(($(date +%s) - started)) -ge "$budget" ]; then
    printf '%s\t%s\t%s\t%s\tnever\t0\t\n' "$commit" "$tool" "$program" \
      "$family" >>"$work/never"
    continue
  fi
  one "$tool" "$program" "$family" &
  running=$((running + 1))
  if [ $running -ge "$jobs" ]; then
    wait
    running=0
  fi
done <"$work/plan"
wait
[ ! -e "$work/never" ] || cat "$work/never" >>"$table"

awk -F '\t' -v c="$commit" '
  $1 == c { n[$2 "\t" $5]++; bad += $5 == "hazards" || $5 == "failed"
            left += $5 == "never" }
  END { for (k in n) print n[k] "\t" k | "sort -k 2"; close("sort -k 2")
        exit bad ? 1 : left ? 2 : 0 }' "$table"
