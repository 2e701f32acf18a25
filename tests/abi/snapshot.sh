#!/bin/sh
# tests/abi/snapshot.sh: prints the public headers as one, without comments and old
# names.  clang-format of it is tests/abi/header_N.h of the release in VERSION;
# tools/release.sh check compares the two.
set -eu
cd "$(dirname "$0")/../.."

headers='_types _ _graph _tune _operator _program _mlp'
cat <<END
/* The public headers of $(cat VERSION) as one, without comments and old names.
 * Programs that were built with them are to run with every later library.
 * tests/abi/snapshot.sh prints this file. */
END
for name in $headers; do
  gcc -fpreprocessed -dD -E -P -w "include/dfgnn${name%_}.h" | grep -v '"dfgnn'
done | awk '
  /^#ifndef DFGNN_NO_OLD_NAMES/ { inside = 1; keep = 0; next }
  /^#ifdef DFGNN_NO_OLD_NAMES/ { inside = 1; keep = 1; next }
  inside && /^#else/ { keep = !keep; next }
  inside && /^#endif/ { inside = 0; next }
  !inside || keep { print }'
