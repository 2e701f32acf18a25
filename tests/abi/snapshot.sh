#!/bin/sh
# tests/abi/snapshot.sh: prints the public headers as one, without comments.
# `tools/release.sh freeze` keeps it as tests/abi/released.h.
set -eu
cd "$(dirname "$0")/../.."

headers='_types _ _graph _tune _operator _program _mlp'
cat <<END
/* The public headers of $(cat VERSION) as one, without comments.
 * Programs that were built with them are to run with every later library.
 * tests/abi/snapshot.sh prints this file. */
END
for name in $headers; do
  gcc -fpreprocessed -dD -E -P -w "include/dfgnn${name%_}.h" | grep -v '"dfgnn'
done
