#!/bin/sh
# quick.sh - runs a sample of the tests of tests/gpu on an emulated GPU.  It
# takes two to three minutes of a core, most of them to compile kernels, and
# less once these are kept.
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
  env DFGNN_TEST_QUICK=1 "$@" || failed=1
}
try "$emulator" "$tests/check_gpu_backend"
try DFGNN_TEST_FEW=7 DFGNN_TEST_PART=0/61 "$emulator" "$tests/check_gpu_lists"
for case in execute places; do
  try CK_RUN_CASE=$case DFGNN_TEST_FEW=101 "$emulator" "$tests/check_gpu_execute"
done
# Parts 0 and 4 are GT in f32, forward and backward; part 26 is GATv2 in bf16.
for part in 0/104 4/104; do
  try CK_RUN_CASE=edge_features DFGNN_TEST_FEW=7 DFGNN_TEST_PART=$part \
    "$emulator" "$tests/check_gpu_variants"
done
try CK_RUN_CASE=edge_features DFGNN_TEST_FEW=7 DFGNN_TEST_PART=26/104 \
  DFGNN_TEST_QUICK=1 "$emulator" "$tests/check_gpu_variants"
# Slices of what a cache holds.
try CK_RUN_CASE=slices DFGNN_TEST_FEW=4 DFGNN_TEST_PART=0/104 "$emulator" \
  "$tests/check_gpu_variants"
# Part 5 is the gradients of GT in f16 over a row and a column of many edges.
try CK_RUN_CASE=hubs DFGNN_TEST_FEW=7 DFGNN_TEST_PART=5/72 \
  "$emulator" "$tests/check_gpu_edges"
# Attention with edge rows and CFConv as edge programs, both passes.
for part in 0/12 4/12; do
  try CK_RUN_CASE=programs DFGNN_TEST_PART=$part \
    "$emulator" "$tests/check_gpu_programs"
done
# MLPs on edges, both passes: weights in shared memory, and a library's products.
for part in 0/3 1/3 2/3; do
  try CK_RUN_CASE=mlps DFGNN_TEST_PART=$part "$emulator" \
    "$tests/check_gpu_mlp"
done
# Two GPUs share a survey, and what they compile for it.
cells=$(mktemp) survey=$(mktemp -u)
echo "max8b --op reduce-max --dim 8 --pass backward" >"$cells"
try DFGNN_EMULATOR_DEVICES=2 "$emulator" "$top_builddir/tools/dfgnn-tune" survey \
  "stars:nodes=90,centres=3" "grid:rows=9,columns=9" "uniform:nodes=60,edges=400" \
  --cells "$cells" --device all -o "$survey"
[ "$("$top_builddir/tools/dfgnn-tune" survey "stars:nodes=90,centres=3" \
  "grid:rows=9,columns=9" "uniform:nodes=60,edges=400" --cells "$cells" -o "$survey" \
  --status --json | tr -d ' \n' | sed 's/.*"complete":\([0-9]*\).*/\1/')" = 3 ] || {
  echo "FAIL: the survey of two GPUs is not complete"
  failed=1
}
rm -f "$cells" "$survey"
# A GPU that no portfolio and no store knows says so, once, with the command that helps.
says() { # TIMES ARCH TOOL COMMAND...
  times=$1 arch=$2
  shift 2
  DFGNN_STORE=$survey DFGNN_EMULATOR_ARCH=$arch "$emulator" "$top_builddir/tools/$@" \
    grid:rows=9,columns=9 --op gt,gat --dim 8 --device cuda \
    >"$cells" 2>&1
  [ "$(grep -c "nobody measured .*(sm_$arch).*\`dfgnn-tune run" "$cells")" = "$times" ] || {
    echo "FAIL: $*: expected $times lines that nobody measured sm_$arch"
    cat "$cells"
    failed=1
  }
}
says 1 80 dfgnn-tune explain
says 0 90 dfgnn-tune explain
says 0 80 dfgnn-tune run --budget 1ms
says 0 80 dfgnn-tune explain
rm -f "$cells" "$survey"
exit $failed
