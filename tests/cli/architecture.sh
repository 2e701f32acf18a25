#!/bin/sh
# No folder includes one that stands above it, and the picture of the folders in
# docs/ is what the sources say.  A public header is read in one sitting.
top=${top_srcdir:-$(cd "$(dirname "$0")/../.." && pwd)}
for header in "$top"/include/*.h; do
  lines=$(wc -l <"$header")
  [ "$lines" -le 600 ] || { echo "$header has $lines lines, at most 600"; exit 1; }
done
command -v python3 >/dev/null || { echo "python3 is missing: skipped"; exit 77; }
exec python3 "$top/docs/architecture.py" --check
