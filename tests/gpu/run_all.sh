#!/bin/sh
# run_all.sh [FOLDER] - runs the tests on a GPU, then a small part of them under
# compute-sanitizer.  FOLDER has the programs; without it they are beside this
# file.  The exit status is 77 without a GPU.  A tool of compute-sanitizer that
# the machine does not allow is named.
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

tests=$(ls "$here" | grep -x 'check_gpu_[a-z]*')
[ -n "$tests" ] || {
  echo "FAILED: no check_gpu_* in $here"
  exit 1
}
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

export DFGNN_TEST_QUICK=1
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
