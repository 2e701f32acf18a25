#!/bin/sh
# run-tests.sh [TEST...]: runs the tests of the bundle (all by default); a test
# that exits 77 needs what this machine lacks.
cd "$(dirname "$0")" || exit 1
top=$PWD
unset $(env | sed -n 's/^\(DFGNN_[A-Z_]*\)=.*/\1/p') DFGNN_NONE
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
PATH=$top/tools:$PATH srcdir=$top top_srcdir=$top top_builddir=$top
XDG_DATA_HOME=$work/home
export PATH srcdir top_srcdir top_builddir XDG_DATA_HOME

[ $# -gt 0 ] || set -- tests/unit/* tests/gpu/* tests/cli/*.sh
passed=0 failed=0 skipped=0
for test; do
  case $test in
  *.sh) run=sh ;;
  *)
    [ -f "$test" ] && [ -x "$test" ] || continue
    run=
    ;;
  esac
  (cd "$work" && $run "$top/$test") >"$work/log" 2>&1
  case $? in
  0) passed=$((passed + 1)) result=PASS ;;
  77) skipped=$((skipped + 1)) result=SKIP ;;
  *) failed=$((failed + 1)) result=FAIL ;;
  esac
  echo "$result $test"
  [ $result != FAIL ] || tail -n 30 "$work/log"
done
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ]
