#!/bin/sh
# Help texts are as the golden files say, and man pages hold every option.
. "$(dirname "$0")/lib.sh"

promise "--help is what the golden files hold"
compare dfgnn-tune.txt dfgnn-tune --help
commands=$(sed -n '/^#define TUNE_COMMANDS/,/^$/p' "$top/tools/tune.h" |
  grep -o 'X([a-z]*)' | tr -d 'X()')
[ "$(echo "$commands" | wc -l)" -gt 15 ] || fail "tools/tune.h has no list"
for c in $commands; do
  compare "dfgnn-tune-$c.txt" dfgnn-tune "$c" --help
done
set -- "$golden"/dfgnn-tune-*.txt
[ $# -eq "$(echo "$commands" | wc -l)" ] ||
  fail "a golden file is of no command"
compare dfgnn-bench.txt dfgnn-bench --help

promise "--version names the tool and the library's version"
for t in dfgnn-tune dfgnn-bench; do
  status 0 $t --version
  prints "^$t $(cat "$top/VERSION")"
done

promise "the manual has every option of the help"
for t in dfgnn-tune dfgnn-bench; do
  $t --manual >"$work/$t.1"
  cat "$golden/$t"*.txt | grep -o -e '^ *\(-., \)\?--[a-z-]*' |
    sed 's/.*--/--/' | sort -u >"$work/options"
  [ "$(wc -l <"$work/options")" -gt 8 ] || fail "the help has no options"
  while read -r option; do
    grep -q -F -e "$(echo "$option" | sed 's/-/\\-/g')" "$work/$t.1" ||
      fail "$t.1 lacks $option"
  done <"$work/options"
done

promise "the manual has no mistakes of troff"
if command -v man >/dev/null; then
  for page in "$work/dfgnn-tune.1" "$work/dfgnn-bench.1" \
    "$top/docs/man/dfgnn.7" "$top/docs/man/dfgnn-job.5" \
    "$top/docs/man/dfgnn-program.5"; do
    LC_ALL=C.UTF-8 MANWIDTH=80 man --warnings -l "$page" >/dev/null 2>"$work/err"
    [ ! -s "$work/err" ] || fail "$page: $(head -n 1 "$work/err")"
  done
fi

promise "dfgnn(7) has every environment variable"
status 0 dfgnn-tune info --device cpu --json
jq -r '.[] | select(.kind == "environment") | .name' "$work/out" >"$work/names"
[ "$(wc -l <"$work/names")" -gt 4 ] || fail "info lists no variables"
while read -r name; do
  grep -q -x -F ".B $name" "$top/docs/man/dfgnn.7" || fail "it lacks $name"
done <"$work/names"

finish
