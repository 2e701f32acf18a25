#!/bin/sh
# all.sh - every test on a GPU, on an emulated one: `make check-emulated`
set -u
here=$(cd "$(dirname "$0")" && pwd)
failed=0
for test in "$top_builddir"/tests/gpu/check_gpu_*; do
  case $test in *.*) continue ;; esac
  echo "== $(basename "$test")"
  "$here/run" "$test" || failed=1
done
exit $failed
