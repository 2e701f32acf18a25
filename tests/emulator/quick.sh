#!/bin/sh
# quick.sh - a sample of the tests on a GPU, on an emulated one
set -u
emulator=$top_srcdir/tests/emulator/run
tests=$top_builddir/tests/gpu
if ! "${DFGNN_EMULATOR_CXX:-g++}" --version >/dev/null 2>&1; then
  echo "skipped: no C++ compiler compiles kernels for the emulator"
  exit 77
fi
failed=0
try() {
  echo "== $*"
  env "$@" || failed=1
}
DFGNN_TEST_QUICK=1
export DFGNN_TEST_QUICK
try "$emulator" "$tests/check_gpu_gather"
exit $failed
