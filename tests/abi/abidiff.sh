#!/bin/sh
# The public header changes only as it promises: structs grow at their end,
# enumerations get new names, nothing moves, changes its type or goes.
. "$(dirname "$0")/../cli/lib.sh"
for tool in abidiff gcc python3; do
  command -v $tool >/dev/null || { echo "$tool is missing: skipped"; exit 77; }
done

# stubs OUT HEADER...: a library whose functions are those of the headers
stubs() {
  out=$1
  shift
  python3 "$top/tests/abi/stubs.py" "$@" >"$work/stubs.c" &&
    gcc -g -w -shared -fPIC -I"$top/include" "$work/stubs.c" -o "$out"
}

# breaks OLD NEW: prints what a program built with OLD would stumble over: what
# moved, changed its type or its number, or is gone.  The counts at the end of
# enumerations go up, structs grow at their end.
breaks() {
  abidiff --no-added-syms "$1" "$2" >"$work/diff" 2>&1
  [ $(($? & 3)) -eq 0 ] || cat "$work/diff"
  grep -E "offset changed|deletion|\[D\]|type name changed|from value" \
    "$work/diff" | grep -v "_COUNT' from value"
}

promise "a program that the last release's headers made is not broken"
set --
for header in "$top"/include/dfgnn*.h; do
  case $header in
  *_xla.h) ;; # needs a header of XLA's
  *) set -- "$@" "$header" ;;
  esac
done
stubs "$work/now.so" "$@" || fail "the headers of today do not compile"
released=$top/tests/abi/released.h
if [ -e "$released" ]; then
  stubs "$work/released.so" "$released" || fail "released.h does not compile"
  if breaks "$work/released.so" "$work/now.so" >"$work/out"; then
    fail "a program built with tests/abi/released.h would break"
    sed 's/^/  | /' "$work/out" >&2
  fi
fi

promise "what breaks a program is found"
header=$work/today.h
"$top/tests/abi/snapshot.sh" >"$header"
stubs "$work/today.so" "$header" || fail "a snapshot does not compile"
! breaks "$work/today.so" "$work/now.so" >"$work/out" ||
  fail "a snapshot differs from the headers"
for change in 's/int64_t heads;/int64_t fingers, heads;/' \
  's/DFGNN_OP_GAT = 2/DFGNN_OP_GAT = 7/' \
  's/^  int64_t max_workspace;//' \
  's/dfgnn_graph_bytes/dfgnn_graph_size/' \
  's/double dropout;/float dropout;/'; do
  sed "$change" "$header" >"$work/moved.h"
  stubs "$work/moved.so" "$work/moved.h" || fail "'$change' does not compile"
  breaks "$work/today.so" "$work/moved.so" >"$work/out" ||
    fail "'$change' is not noticed"
done
finish
