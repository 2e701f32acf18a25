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
#
# A line at its beginning says how long it will take here, by a piece of work that is
# timed; limits follow it.  What a limit ends is said and counts as skipped: it
# neither passed nor failed.
set -u

top=$(cd "$(dirname "$0")/.." && pwd)
build=${BUILD:-$top/build-check}
jobs=$(nproc 2>/dev/null || echo 2)
passed=0 failed=0 skipped=0 ended= making_venv= started=$(date +%s)

# The unit of work: a small program compiled four times, one after the other, on
# each processor at once, in hundredths of a second.  It takes UNIT_REFERENCE on
# an idle machine of 2 cores.  CORE_MINUTES of a core is a guess for all of this,
# to be mended by what the last lines of a run say.
UNIT_REFERENCE=50 CORE_MINUTES=50
measure_unit() {
  begin=$(date +%s%N)
  for _ in $(seq "$jobs"); do
    for _ in 1 2 3 4; do
      CCACHE_DISABLE=1 ${CC:-cc} -O2 -I"$top/include" -c \
        "$top/tests/abi/program.c" -o /dev/null
    done &
  done
  wait
  unit=$((($(date +%s%N) - begin) / 10000000))
  [ $unit -gt 0 ] || unit=1
}

# limit SECONDS: as many as SECONDS on the idle machine are here
limit() {
  scaled=$(($1 * unit / UNIT_REFERENCE))
  [ $scaled -gt "$1" ] || scaled=$1
  echo "$scaled"
}

# say_ended NAME SECONDS
say_ended() {
  echo "check: $1 was ended by its limit of $2 s: not all of it ran" >&2
  ended="$ended $1"
  skipped=$((skipped + 1))
}

finish() {
  wait
  [ -z "$ended" ] || echo "check: ended by a limit:$ended" >&2
  echo "check: $((($(date +%s) - started) / 60)) minutes with $jobs processors" >&2
  echo "$passed passed, $failed failed, $skipped skipped"
  [ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
  exit
}

# step NAME COMMAND...: counts as one test; prints the output only if it fails
step() {
  name=$1
  shift
  echo "== $name" >&2
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
add_dgl() {
  [ -d "$venv"/lib/python3*/site-packages/dgl ] ||
    timeout "$(limit 120)" "$venv/bin/pip" install -q --no-cache-dir --no-deps dgl==1.1.3 ||
    echo "no dgl 1.1.3 for this Python: the tests of DGL skip"
}
make_venv() {
  [ "$(cat "$venv/packages" 2>/dev/null)" = "$python_packages" ] && add_dgl && return
  rm -rf "$venv"
  python3 -m venv "$venv" || return
  # shellcheck disable=SC2086
  timeout "$(limit 480)" "$venv/bin/pip" install -q --no-cache-dir \
    $python_packages && echo "$python_packages" >"$venv/packages" && add_dgl && return
  [ $? -ne 124 ] || echo "torch could not be installed in $(limit 480) s"
  rm -rf "$venv"
  return 1
}

"$top/tools/setup.sh" || {
  failed=1
  finish
}
measure_unit
echo "check: about $((CORE_MINUTES * unit / UNIT_REFERENCE / jobs + 1)) minutes" \
  "here, with $jobs processors; a unit of work takes $unit hundredths of a" \
  "second, $UNIT_REFERENCE on the machine that the figure is of" >&2

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
export PATH
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

# The long tests come first, so that none of them runs alone at the end.
echo "== check" >&2
for tests in long short; do
  if ! make -j"$jobs" check CHECK=full TESTS="$(make -s $tests-tests)" >$tests.log 2>&1 &&
    ! grep -q '^# FAIL:' $tests.log
  then
    failed=$((failed + 1))
    tail -n 60 $tests.log >&2
  fi
done
count_suite
# Says how many programs of GPU kernels compiled, or why none did.
say_compiled() {
  sed -n 's/.* compiled for .*/check: &/p; s/^skipped: /check: no compiler: /p' \
    "$1" >&2
}
say_compiled tests/compile/check_compile.log

skip_python() {
  echo "check: skipped the PyTorch package: $1" >&2
  skipped=$((skipped + 1))
}
check_python() {
  echo "== python" >&2
  command -v python3 >/dev/null 2>&1 || {
    skip_python 'no python3'
    return
  }
  [ $venv_status -eq 0 ] || {
    skip_python "$(tail -n 1 "$build/venv.log")"
    return
  }
  # INT lets pytest say what has passed until then
  seconds=$(limit 1500)
  TEST_QUICK=1 timeout -s INT -k 60 "$seconds" make check-python \
    PYTHON="$venv/bin/python" PYTEST_FLAGS="-q -n $jobs --dist worksteal" >python.log 2>&1
  status=$?
  set -- $(awk '/ in [0-9.]+s/ { for (i = 2; i <= NF; i++) {
      if ($i ~ /^passed/) p = $(i - 1)
      if ($i ~ /^(failed|errors?)/) f += $(i - 1)
      if ($i ~ /^skipped/) s = $(i - 1) } }
    END { print p + 0, f + 0, s + 0 }' python.log)
  passed=$((passed + $1)) failed=$((failed + $2)) skipped=$((skipped + $3))
  case $status in
  0) return ;;
  124 | 137)
    say_ended python "$seconds"
    [ "$2" -gt 0 ] || return
    ;;
  *) [ "$2" -gt 0 ] || failed=$((failed + 1)) ;;
  esac
  tail -n 60 python.log >&2
}
[ "${PYTHON_TESTS:-1}" = 0 ] || check_python
[ "${PYTHON_TESTS:-1}" = 0 ] || step wheel make wheel-here
if [ "${DISTCHECK:-1}" != 0 ]; then
  # All tests have passed above, from the same sources: those run that read files of
  # the tarball.
  step distcheck make distcheck \
    AM_MAKEFLAGS="-j$jobs TESTS='$(make -s dist-tests)'"
fi
finish
