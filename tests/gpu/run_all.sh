#!/bin/sh
# run_all.sh - the tests on a GPU, then a small part of them under
# compute-sanitizer.  Where the programs are: the first argument, else beside
# this file.  77 without a GPU; a tool that the machine refuses is named.
set -u
here=${1:-$(dirname "$0")}
failed=0

run() {
  name=$1
  shift
  echo "== $name"
  "$@"
  status=$?
  if [ $status -eq 77 ]; then
    echo "skipped: $name"
    [ "$name" = check_gpu_backend ] && exit 77
  elif [ $status -ne 0 ]; then
    echo "FAILED: $name ($status)"
    failed=1
  fi
}

tests='check_gpu_backend check_gpu_backward check_gpu_edges check_gpu_execute
  check_gpu_gather
  check_gpu_reorder check_gpu_sort check_gpu_symmetric check_gpu_tiles
  check_gpu_variants'
for test in $tests; do
  run $test "$here/$test"
done

sanitizer=${COMPUTE_SANITIZER:-$(command -v compute-sanitizer)}
if [ -z "$sanitizer" ]; then
  for bin in /usr/local/cuda/bin /usr/local/cuda/compute-sanitizer; do
    [ -x $bin/compute-sanitizer ] && sanitizer=$bin/compute-sanitizer
  done
fi
if [ -z "$sanitizer" ]; then
  echo "not run: compute-sanitizer was not found"
  exit $failed
fi

# racecheck warns of cuSPARSE's own kernels, so they stay out.
DFGNN_TEST_QUICK=1 DFGNN_CUSPARSE=/nonexistent
export DFGNN_TEST_QUICK DFGNN_CUSPARSE
for tool in memcheck racecheck initcheck; do
  for test in $tests; do
    log=$(mktemp)
    "$sanitizer" --tool $tool --error-exitcode 99 --print-limit 5 \
      "$here/$test" >"$log" 2>&1
    status=$?
    echo "== $tool $test: $(grep -E 'SUMMARY' "$log" | tail -n 1)"
    if grep -q 'Device not supported' "$log"; then
      echo "not run: this machine does not allow $tool"
    elif [ $status -ne 0 ]; then
      tail -n 40 "$log"
      echo "FAILED: $tool $test ($status)"
      failed=1
    fi
    rm -f "$log"
  done
done
exit $failed
