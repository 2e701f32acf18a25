#!/bin/sh
# No two files of the library need each other.
top=${top_srcdir:-$(cd "$(dirname "$0")/../.." && pwd)}
command -v python3 >/dev/null || { echo "python3 is missing: skipped"; exit 77; }
archive=${top_builddir:-.}/.libs/libdfgnn_internal.a
[ -e "$archive" ] || { echo "$archive is missing: run make"; exit 1; }
exec python3 "$top/tests/cli/circles.py" "$archive"
