# shellcheck shell=sh
# lib.sh - functions of the command line tests; it is sourced, not run
#
# A test makes its files in $work, which is removed at the end, and says what it
# promises: `promise "text"` names the one that `fail` then reports.

set -u
command -v jq >/dev/null || { echo "jq is missing: skipped"; exit 77; }
work=$(mktemp -d "${TMPDIR:-/tmp}/dfgnn-cli.XXXXXX") || exit 99
trap 'rm -rf "$work"' EXIT
XDG_DATA_HOME=$work/home
export XDG_DATA_HOME
top=${top_srcdir:-$(cd "$(dirname "$0")/../.." && pwd)}
OMP_NUM_THREADS=2
export OMP_NUM_THREADS
promised=
failures=0

promise() { promised=$1; }

fail() {
  echo "FAIL: $promised: $*" >&2
  failures=$((failures + 1))
}

# status N COMMAND...: the command exits with N; its output goes to out and err
status() {
  expected=$1
  shift
  "$@" >"$work/out" 2>"$work/err"
  found=$?
  [ "$found" -eq "$expected" ] || {
    fail "'$*' exits with $found, expected $expected"
    sed 's/^/  | /' "$work/err" >&2
  }
}

# says WORD...: standard error of the last status command has a line that holds
# all the words, which are patterns.  A test names what must not be missing, a
# file, what was found, what was expected, and not the sentence.
says() {
  cp "$work/err" "$work/said"
  for word in "$@"; do
    grep -e "$word" "$work/said" >"$work/saying"
    mv "$work/saying" "$work/said"
  done
  [ -s "$work/said" ] || {
    fail "no line of standard error holds$(printf " '%s'" "$@")"
    sed 's/^/  | /' "$work/err" >&2
  }
}

# prints PATTERN: standard output of the last status command has a line like it
prints() {
  grep -q -e "$1" "$work/out" || {
    fail "standard output lacks '$1'"
    sed 's/^/  | /' "$work/out" >&2
  }
}

# wrong_usage PATTERN COMMAND...: the command is refused with 2 and says why
wrong_usage() {
  pattern=$1
  shift
  promise "'$*' is wrong usage"
  status 2 "$@"
  says "$pattern"
  [ ! -s "$work/out" ] || fail "it prints on standard output"
}

golden=$top/tests/cli/golden
# compare FILE COMMAND...: the command prints what a golden file holds
compare() {
  file=$1
  shift
  status 0 "$@"
  [ -z "${REGENERATE-}" ] || cp "$work/out" "$golden/$file"
  diff -u "$golden/$file" "$work/out" >&2 ||
    fail "'$*' differs from tests/cli/golden/$file (REGENERATE=1 rewrites it)"
}

# holds FILTER: jq's filter is true of the JSON in out, which is not empty where
# the filter says something of all its members
holds() {
  case $1 in
  *all\(*) jq -e 'length > 0' "$work/out" >/dev/null ||
    fail "the JSON is empty, so that this says nothing: $1" ;;
  esac
  jq -e "$1" "$work/out" >/dev/null || {
    fail "the JSON does not satisfy: $1"
    head -c 600 "$work/out" | sed 's/^/  | /' >&2
  }
}

# A graph with three kinds of rows, which is tuned in a moment.
small="powerlaw:nodes=300,edges=2400,max-degree=90,seed=7"
quick="--device cpu --dim 8 --budget 1s --quiet"

finish() { exit $((failures > 0)); }
