#!/bin/sh
# Writes the text file named as a C string literal, a line of it a line.
set -eu
sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/^/"/' -e 's/$/\\n"/' "$1"
