#!/bin/sh
# Builds everything out of tree and runs every test; the last line says
# "N passed, N failed, N skipped".
#
#   BUILD=DIR   where to build (default build-check in the checkout)
#   DISTCHECK=0 leaves out `make distcheck`
#   PYTHON_TESTS=0 leaves out the PyTorch package; else torch and PyG are
#               installed in a virtual environment, kept for the next time
#   VENV=DIR    the virtual environment (default dfgnn/venv of the user's cache)
#   TORCH=...   other packages than the versions below
#   KEPT_KERNELS=DIR where compiled kernels are kept (default dfgnn/kernels of the
#               user's cache)
set -u

[ $# -eq 0 ] || {
  sed -n '2,12s/^# \{0,1\}//p' "$0" >&2
  exit 2
}
top=$(cd "$(dirname "$0")/.." && pwd)
build=${BUILD:-$top/build-check}
jobs=$(nproc 2>/dev/null || echo 2)
passed=0 failed=0 skipped=0 making_venv= started=$(date +%s)

finish() {
  wait
  echo "check: $((($(date +%s) - started) / 60)) minutes with $jobs processors" >&2
  echo "$passed passed, $failed failed, $skipped skipped"
  [ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
  exit
}

# say NAME: says that a part begins, and when
say() { echo "== $1, after $(($(date +%s) - started)) s" >&2; }

# step NAME COMMAND...: counts as one test; prints the output only if it fails
step() {
  name=$1
  shift
  say "$name"
  if "$@" >"$build/$name.log" 2>&1; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    tail -n 60 "$build/$name.log" >&2
    echo "check: $name failed; all of its output: $build/$name.log" >&2
    return 1
  fi
}

# Adds up the results of the automake test suite.  A Check program counts with
# each of its tests, any other with its own result.
count_suite() {
  for trs in $(find tests -name '*.trs'); do
    result=$(sed -n 's/^:test-result: //p' "$trs")
    set -- $(sed -n 's/^[0-9]*%: Checks: \([0-9]*\), Failures: \([0-9]*\), Errors: \([0-9]*\).*/\1 \2 \3/p' \
      "${trs%.trs}.log" | awk '{ c += $1; b += $2 + $3 } END { print c+0, b+0 }')
    case $result in
    PASS*) passed=$((passed + ($1 > 0 ? $1 : 1))) ;;
    SKIP*) skipped=$((skipped + 1)) ;;
    *)
      failed=$((failed + ($2 > 0 ? $2 : 1)))
      passed=$((passed + $1 - $2))
      echo "check: ${trs%.trs} failed" >&2
      tail -n 40 "${trs%.trs}.log" >&2
      ;;
    esac
  done
}

# A virtual environment for the tests of the PyTorch package, where torch and PyG can
# be had in a few minutes: 3 GB to fetch, 7 GB on disk.  The versions are those of the
# figures in data/results; TORCH= tries others.  Torch brings a compiler of GPU
# kernels, too.
venv=${VENV:-${XDG_CACHE_HOME:-$HOME/.cache}/dfgnn/venv}
python_packages="${TORCH:-torch==2.11.0 torch_geometric==2.8.1} numpy scipy pytest pytest-xdist"
# The last DGL that runs beside any torch; it has wheels up to Python 3.11.
add_optional() {
  [ -d "$venv"/lib/python3*/site-packages/dgl ] ||
    timeout 300 "$venv/bin/pip" install -q --no-cache-dir --no-deps dgl==1.1.3 ||
    echo "no dgl 1.1.3 for this Python: the tests of DGL skip"
  [ -d "$venv"/lib/python3*/site-packages/plotly ] ||
    timeout 120 "$venv/bin/pip" install -q --no-cache-dir pandas plotly ||
    echo "no pandas and plotly: the tests of the report skip"
  [ -x "$venv/bin/mypy" ] ||
    timeout 60 "$venv/bin/pip" install -q --no-cache-dir mypy ||
    echo "no mypy: the annotations of public names are not checked"
}
make_venv() {
  [ "$(cat "$venv/packages" 2>/dev/null)" = "$python_packages" ] && add_optional && return
  rm -rf "$venv"
  python3 -m venv "$venv" || return
  # shellcheck disable=SC2086
  timeout 900 "$venv/bin/pip" install -q --no-cache-dir $python_packages &&
    echo "$python_packages" >"$venv/packages" && add_optional && return
  echo "torch could not be installed in 15 minutes"
  rm -rf "$venv"
  return 1
}

"$top/tools/setup.sh" || {
  failed=1
  finish
}
rm -rf "$build"
mkdir -p "$build/make"

# `make distcheck` compiles all that `make` has compiled.  With ccache it finds that:
# both build two folders below the sources, so that both give the same names to files.
"$top/tools/setup.sh" ccache || : # without it the same takes longer
if [ -d /usr/lib/ccache ]; then
  PATH=/usr/lib/ccache:$PATH CCACHE_BASEDIR=$top CCACHE_NOHASHDIR=1
  export CCACHE_BASEDIR CCACHE_NOHASHDIR
fi
PATH=$PATH:$venv/bin
# Kernels that the tests compile are kept for the next time, by the digest of all
# that their compiler reads; those of an older emulator go after a month.
KEPT_KERNELS=${KEPT_KERNELS:-${XDG_CACHE_HOME:-$HOME/.cache}/dfgnn/kernels}
mkdir -p "$KEPT_KERNELS" && chmod 700 "$KEPT_KERNELS"
find "$KEPT_KERNELS" -type f -mtime +30 -exec rm -f {} +
export PATH KEPT_KERNELS
if [ "${PYTHON_TESTS:-1}" != 0 ]; then
  make_venv >"$build/venv.log" 2>&1 & # it waits for the network, the build computes
  making_venv=$!
fi

cd "$build/make" || exit 1
step autogen "$top/autogen.sh" || finish
step configure "$top/configure" || finish
step build make -j"$jobs" || finish
venv_status=0
[ -z "$making_venv" ] || wait "$making_venv" || venv_status=$?

say check
if ! make -j"$jobs" check-full >check.log 2>&1 && ! grep -q '^# FAIL:' check.log; then
  failed=$((failed + 1))
  tail -n 60 check.log >&2
fi
count_suite
# Says how many programs of GPU kernels compiled, or why none did.
sed -n 's/.* compiled for .*/check: &/p; s/^skipped: /check: no compiler: /p' \
  tests/compile/check_compile.log >&2

check_python() {
  say python
  if [ $venv_status -ne 0 ]; then
    echo "check: skipped the PyTorch package: $(tail -n 1 "$build/venv.log")" >&2
    skipped=$((skipped + 1))
    return
  fi
  TEST_QUICK=1 make check-python PYTHON="$venv/bin/python" \
    PYTEST_FLAGS="-q -n $jobs --dist worksteal" >python.log 2>&1
  status=$?
  set -- $(awk '/ in [0-9.]+s/ { for (i = 2; i <= NF; i++) {
      if ($i ~ /^passed/) p = $(i - 1)
      if ($i ~ /^(failed|errors?)/) f += $(i - 1)
      if ($i ~ /^skipped/) s = $(i - 1) } }
    END { print p + 0, f + 0, s + 0 }' python.log)
  passed=$((passed + $1)) failed=$((failed + $2)) skipped=$((skipped + $3))
  [ $status -ne 0 ] || return
  [ "$2" -gt 0 ] || failed=$((failed + 1))
  tail -n 60 python.log >&2
}
if [ "${PYTHON_TESTS:-1}" != 0 ]; then
  check_python
  step wheel make wheel-here
fi
if [ "${DISTCHECK:-1}" != 0 ]; then
  # All tests have passed above, from the same sources: those run that read files of
  # the tarball.
  step distcheck make distcheck AM_MAKEFLAGS="-j$jobs $(make -s dist-flags)"
fi
finish
