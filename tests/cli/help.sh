#!/bin/sh
# Each command says how it is used and describes every option that it takes, on
# lines that fit a terminal; the man pages and the completions hold every option;
# a default that is told is the one that is set.
. "$(dirname "$0")/lib.sh"

# described NAME...: adds "NAME... OPERANDS: OPTIONS" to the table
described() {
  promise "'$* --help' is a usage line, sentences and options"
  status 0 "$@" --help
  [ ! -s "$work/err" ] || fail "it prints on standard error"
  prints "^Usage: $* "
  ! grep -n '.\{80\}\| $' "$work/out" >&2 || fail "lines do not fit or end so"
  sed -n 2p "$work/out" | grep -q '^[A-Z].*\.$' || fail "line 2 is no sentence"
  awk '
    /^      --|^  -., --/ { if (name && !words) print name; name = $0; words = 0
                            sub(/^ *(-., )?--[^ ]*/, "") }
    name && /[a-z]/ { words = 1 }
    END { if (name && !words) print name }' "$work/out" >"$work/bare"
  [ ! -s "$work/bare" ] || fail "no words about$(cat "$work/bare")"
  sed -n 's/^      \(--[^ ]*\).*/\1/p; s/^  \(-.\), \(--[^ ]*\).*/\1,\2/p' \
    "$work/out" >"$work/options"
  {
    sed -n '1s/^Usage: \(.*\)/\1:/p' "$work/out"
    tr '\n' ' ' <"$work/options" | fold -s -w 76 | sed 's/ *$//; s/^/  /'
    printf '\n\n'
  } >>"$work/table"
}

promise "a program without a command lists its commands"
for t in dfgnn-tune dfgnn-graph; do
  status 0 $t --help
  prints "^Usage: $t COMMAND "
  sed -n 's/^  \([a-z]*\)  *[A-Z].*/\1/p' "$work/out" >"$work/$t"
  [ "$(wc -l <"$work/$t")" -gt 4 ] || fail "$t lists no commands"
done

: >"$work/table"
for t in dfgnn-tune dfgnn-graph; do
  while read -r c; do
    described $t "$c"
  done <"$work/$t"
done
described dfgnn-bench

promise "--help has the names of enumerations and what is easily misread"
while read -r name command words; do
  status 0 "dfgnn-$name" ${command:+"$command"} --help
  tr -s ' \n' ' ' <"$work/out" >"$work/line"
  grep -q -e "$words" "$work/line" || fail "$name $command lacks '$words'"
done <<'END'
tune run gt, agnn, gat, gatv2, spmm-sum
tune run f32, f16, bf16, f64
tune run --budget=TIME wall time of one problem.*see --time-limit
tune explain --lock=FILE write the choices
tune variants copy, relu, gate, gate-value
graph generate sbm-pattern
graph reorder degree, rcm, metis
END

promise "--version names the tool and the library's version"
for t in dfgnn-tune dfgnn-bench dfgnn-graph; do
  status 0 $t --version
  prints "^$t $(cat "$top/VERSION")"
done

promise "the manual has every option of the help"
for t in dfgnn-tune dfgnn-bench dfgnn-graph; do
  $t --manual >"$work/$t.1"
  sed -n "/^$t /,/^\$/p" "$work/table" | grep -o -e '--[a-z-]*' |
    sort -u >"$work/options.$t"
  [ "$(wc -l <"$work/options.$t")" -gt 8 ] || fail "the help has no options"
  while read -r option; do
    grep -q -F -e "$(echo "$option" | sed 's/-/\\-/g')" "$work/$t.1" ||
      fail "$t.1 lacks $option"
  done <"$work/options.$t"
done

promise "bash and zsh complete commands, options and values"
for t in dfgnn-tune dfgnn-bench dfgnn-graph; do
  for shell in bash zsh; do
    status 0 $t --completion $shell
    while read -r option; do
      grep -q -e "$option\>" "$work/out" || fail "$t in $shell lacks $option"
    done <"$work/options.$t"
  done
done
wrong_usage "found 'fish', expected bash or zsh" dfgnn-tune --completion fish
if command -v bash >/dev/null; then
  dfgnn-tune --completion bash >"$work/complete"
  # words LAST WORD...: what completes the last word
  words() {
    bash -c '. "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
      _dfgnn_tune dfgnn-tune "${@:$#}" "${@:$#-1:1}"; echo "${COMPREPLY[*]}"' \
      "$work/complete" "$@"
  }
  [ "$(words dfgnn-tune exp)" = "explain export" ] || fail "no commands"
  [ "$(words dfgnn-tune run --dt)" = --dtype ] || fail "no options"
  [ "$(words dfgnn-tune run --dtype b)" = bf16 ] || fail "no values"
  [ "$(words dfgnn-tune run --dtype = b)" = bf16 ] || fail "no values after ="
fi

promise "a default that help tells is what is set, where something is measured"
# default COMMAND OPTION: what the help of the command says
default() {
  dfgnn-tune "$1" --help | tr -s ' \n' ' ' |
    sed -n "s/.* --$2=[^()]*(default\([^)]*\)).*/\1/p" | sed 's/^ *//'
}
dfgnn-tune run uniform:nodes=9,edges=20 --device cpu --dry-run -q --json >"$work/out"
for option in op pass dim heads dtype math layout; do
  [ "$(default run $option)" = "$(jq -r ".[0].$option" "$work/out")" ] ||
    fail "run --help tells '$(default run $option)' of --$option"
  [ "$(default show $option)" = ": all" ] ||
    fail "show --help tells '$(default show $option)' of --$option"
done

promise "the manual has no mistakes of troff"
if command -v man >/dev/null; then
  for page in "$work/dfgnn-tune.1" "$work/dfgnn-bench.1" "$work/dfgnn-graph.1" \
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
