#!/bin/sh
# Commands and code of some pages of the documentation run and print what is
# shown; `make check-docs` runs those of all pages.
. "$(dirname "$0")/lib.sh"
command -v python3 >/dev/null || { echo "python3 is missing: skipped"; exit 77; }

promise "pages in samples do what they show"
for page in selection api stores; do
  status 0 python3 "$top/docs/check_docs.py" "$top" \
    "${top_builddir:-$PWD}" "$top/docs/$page.md"
  prints "blocks run, 0 failed"
done
finish
