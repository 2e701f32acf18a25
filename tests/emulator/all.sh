#!/bin/sh
# all.sh - runs all tests of tests/gpu on an emulated GPU (make check-emulated)
set -u
here=$(cd "$(dirname "$0")" && pwd)
failed=0
tests=$(ls "$top_builddir/tests/gpu" | grep -x 'check_gpu_[a-z]*')
[ -n "$tests" ] || failed=1
for test in $tests; do
  echo "== $test"
  "$here/run" "$top_builddir/tests/gpu/$test" || failed=1
done
exit $failed
