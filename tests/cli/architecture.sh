#!/bin/sh
# No folder includes one that stands above it, and the picture of the folders in
# docs/ is what the sources say.
top=${top_srcdir:-$(cd "$(dirname "$0")/../.." && pwd)}
command -v python3 >/dev/null || { echo "python3 is missing: skipped"; exit 77; }
exec python3 "$top/docs/architecture.py" --check
