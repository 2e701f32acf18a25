#!/bin/sh
# driver.sh - runs one test for automake's harness, as its test-driver does, and
# says how long it took: beside its result, and in its .trs file, from which
# `make check-times` makes a list
set -u
color=no expect_failure=no hard_errors=yes
while [ $# -gt 0 ]; do
  case $1 in
  --test-name) name=$2 ;;
  --log-file) log=$2 ;;
  --trs-file) trs=$2 ;;
  --color-tests) color=$2 ;;
  --expect-failure) expect_failure=$2 ;;
  --enable-hard-errors) hard_errors=$2 ;;
  *) break ;;
  esac
  shift 2
done
[ "${1-}" != -- ] || shift

for signal in 1 2 13 15; do
  # shellcheck disable=SC2064
  trap "rm -f '$log' '$trs'; exit $((128 + signal))" "$signal"
done
begin=$(date +%s)
: >"$log"
case " ${left_out-} " in
*" ${name%.sh} "* | *" $name "*)
  echo "make check-full runs it" >"$log"
  status=77
  ;;
*)
  "$@" >>"$log" 2>&1
  status=$?
  ;;
esac
seconds=$(($(date +%s) - begin))

found=$status
[ "$hard_errors:$status" != no:99 ] || found=1
case $found:$expect_failure in
0:yes) result=XPASS again=yes copy=yes paint='0;31' ;;
0:*) result=PASS again=no copy=no paint='0;32' ;;
77:*) result=SKIP again=no copy=yes paint='1;34' ;;
99:*) result=ERROR again=yes copy=yes paint='0;35' ;;
*:yes) result=XFAIL again=no copy=yes paint='1;32' ;;
*) result=FAIL again=yes copy=yes paint='0;31' ;;
esac
echo "$result $name (exit status: $status)" >>"$log"
if [ "$color" = yes ]; then
  printf '\033[%sm%s\033[m: %s (%d s)\n' "$paint" "$result" "$name" "$seconds"
else
  echo "$result: $name ($seconds s)"
fi
cat >"$trs" <<END
:test-result: $result
:global-test-result: $result
:recheck: $again
:copy-in-global-log: $copy
:seconds: $seconds
END
