#!/bin/sh
# From a checkout to a tuned call: builds dfgnn, tunes it on the Cora citation
# graph, and shows what a program that links the library then gets.
#
#   BUILD=DIR     where to build (default build-quickstart in the checkout)
#   DFGNN_STORE=F the store to tune into (default: a file in BUILD)
set -eu

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
  show dfgnn-tune run data/cora.npz $problem --budget 10s
  show dfgnn-tune show data/cora.npz $problem
  show dfgnn-tune explain data/cora.npz $problem
  show dfgnn-bench data/cora.npz $problem --variants tuned,rule,paper,unfused
}
