# lib.sh - functions of the scripts of bench/, which source it
#
# The tools are taken from BUILD/tools or from PATH; dfgnn-plot, which wants node,
# stands here.

set -eu
bench=$(cd "$(dirname "$0")" && pwd)
[ -z "${BUILD-}" ] || PATH=$BUILD/tools:$PATH
PATH=$bench:$PATH
# needs PROGRAM...: ends the script if one is not found
needs() {
  for program; do
    command -v "$program" >/dev/null || {
      echo "$0: $program is not found; BUILD=DIR names the build folder" >&2
      exit 1
    }
  done
}

say() { echo "$(date -u +%H:%M:%S) $*" >&2; }

# once FILE COMMAND...: makes FILE of the command's output unless it is there, so
# that a script that was stopped goes on where it was
once() {
  file=$1
  shift
  if [ -s "$file" ]; then
    say "have $file"
  else
    say "making $file"
    "$@" >"$file.new" && mv "$file.new" "$file"
  fi
}
