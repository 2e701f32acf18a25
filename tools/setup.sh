#!/bin/sh
# tools/setup.sh [PACKAGE...]: installs those that are missing of the packages of
# tools/packages.txt, or of these; says nothing and needs no rights when all are there.
set -eu

case ${1-} in -*)
  sed -n '2,3s/^# \{0,1\}//p' "$0" >&2
  exit 2
  ;;
esac
here=$(cd "$(dirname "$0")" && pwd)

if ! command -v dpkg-query >/dev/null 2>&1; then
  echo "setup: not a Debian system; configure will name what is missing" >&2
  exit 0
fi

missing=
# shellcheck disable=SC2046
[ $# -gt 0 ] || set -- $(sed 's/#.*//' "$here/packages.txt")
for package; do
  state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) || :
  [ "$state" = installed ] || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

as_root=
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null 2>&1; then
    echo "setup: run as root: apt-get install$missing" >&2
    exit 1
  fi
  as_root=sudo
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
echo "setup: installing$missing" >&2
apt() {
  $as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y \
    -o Dpkg::Use-Pty=0 "$@" >"$log" 2>&1
}
# shellcheck disable=SC2086
install() { apt install --no-install-recommends $missing; }
if ! install && ! { apt update && install; }; then
  cat "$log" >&2
  echo "setup: apt-get could not install$missing" >&2
  exit 1
fi
