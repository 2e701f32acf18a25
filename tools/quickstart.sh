#!/bin/sh
# From a checkout to a faster model: builds dfgnn, tunes it on the Cora citation
# graph, shows what a program that links the library then gets, and installs the
# Python package with its commands.
#
#   BUILD=DIR     where to build (default build-quickstart in the checkout)
#   PYTHON=FILE   the Python to install into, which has torch; by default a new
#                 virtual environment that sees the packages of python3
#   DFGNN_STORE=F the store to tune into (default: a file in BUILD)
set -eu

[ $# -eq 0 ] || {
  sed -n '2,9s/^# \{0,1\}//p' "$0" >&2
  exit 2
}
top=$(cd "$(dirname "$0")/.." && pwd)
build=${BUILD:-$top/build-quickstart}
jobs=$(nproc 2>/dev/null || echo 2)

# quietly COMMAND...: prints the output only if it fails
quietly() {
  if ! "$@" >"$build/quickstart.log" 2>&1; then
    tail -n 40 "$build/quickstart.log" >&2
    echo "quickstart: failed: $*" >&2
    exit 1
  fi
}

# show COMMAND...: the command as a user would type it, then its output
show() {
  printf '\n$ %s\n' "$*"
  "$@"
}

"$top/tools/setup.sh"
mkdir -p "$build"
cd "$build"
if [ ! -e Makefile ]; then
  echo "quickstart: configuring in $build" >&2
  [ -e "$top/configure" ] || quietly "$top/autogen.sh"
  quietly "$top/configure"
fi
echo "quickstart: building" >&2
quietly make -j"$jobs"

PATH=$build/tools:$PATH
: "${DFGNN_STORE=$build/tuning.db}"
export PATH DFGNN_STORE
cd "$top"

problem='--op gt --dim 128'
# shellcheck disable=SC2086
{
  show dfgnn-tune run data/cora.npz $problem --budget 10s --time-limit 5m
  show dfgnn-tune show data/cora.npz $problem
  show dfgnn-tune explain data/cora.npz $problem
  show dfgnn-bench data/cora.npz $problem --variants tuned,rule,paper,unfused
}

# ---- the Python package -------------------------------------------------------
echo "quickstart: making the Python package" >&2
cd "$build"
quietly make wheel-here DIST="$build/dist"
if [ -z "${PYTHON-}" ]; then
  venv=$build/venv
  [ -x "$venv/bin/python" ] ||
    quietly python3 -m venv --system-site-packages "$venv"
  PYTHON=$venv/bin/python
fi
quietly "$PYTHON" -m pip install --disable-pip-version-check --no-deps \
  --force-reinstall "$build"/dist/dfgnn-*.whl
version=$("$PYTHON" -c 'import dfgnn; print(dfgnn.version())')

printf '\ndfgnn %s is installed for %s.\n' "$version" "$PYTHON"
activate=$(dirname "$PYTHON")/activate
if [ -e "$activate" ]; then
  printf 'To use it:\n\n    . %s\n' "$activate"
fi
if ! "$PYTHON" -c 'import torch_geometric' 2>/dev/null; then
  printf '\nThe examples want PyTorch and PyG:\n\n    %s -m pip install %s\n' \
    "$PYTHON" 'torch torch_geometric'
fi
