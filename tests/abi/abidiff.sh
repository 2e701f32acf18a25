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

promise "a header is compared with each older one"
set --
for header in "$top"/include/dfgnn*.h; do
  case $header in
  *_xla.h) ;; # needs a header of XLA's
  *) set -- "$@" "$header" ;;
  esac
done
stubs "$work/now.so" "$@" || fail "the headers of today do not compile"
for header in "$top"/tests/abi/header_*.h; do
  name=tests/abi/$(basename "$header")
  # qk_norm went before the first release: reserved members keep its places.
  sed -e 's/const void \*query_norm, \*key_norm;/const void *reserved_norm[3];/' \
    -e '/double norm_eps;/d' -e '/dfgnn_qk_norm_name/d' \
    -e 's/void \*grad_query_norm, \*grad_key_norm;/void *reserved_grad_norm[2];/' \
    -e 's/dfgnn_qk_norm qk_norm;/int reserved;/' \
    -e '/dfgnn_qk_norm_parse/,/;/d' "$header" >"$work/old.h"
  stubs "$work/old.so" "$work/old.h" || fail "$name does not compile"
  if breaks "$work/old.so" "$work/now.so" >"$work/out"; then
    fail "$name: a program built with it would break"
    sed 's/^/  | /' "$work/out" >&2
  fi
done

promise "what breaks a program is found"
for change in 's/int64_t heads;/int64_t fingers, heads;/' \
  's/DFGNN_OP_GAT = 2/DFGNN_OP_GAT = 7/' \
  's/^  int64_t max_workspace;//' \
  's/dfgnn_graph_bytes/dfgnn_graph_size/' \
  's/double dropout;/float dropout;/'; do
  sed "$change" "$header" >"$work/moved.h"
  stubs "$work/moved.so" "$work/moved.h" || fail "'$change' does not compile"
  breaks "$work/old.so" "$work/moved.so" >"$work/out" ||
    fail "'$change' is not noticed"
done
finish
