#!/bin/sh
# Compiles what choices for a table of problems may be, the members of portfolios,
# for each of the architectures below that the compiler knows.
#
#   make_pack.sh DFGNN-TUNE PACK STORE CELLS GRAPH...
#
#   ARCHS="sm_80 ..."   these architectures; all six are too much for a wheel
set -eu

tune=$1 pack=$2 store=$3 cells=$4
shift 4
known=$("$tune" info --device cpu | sed -n 's/.*compiles for//p')
archs=
for arch in ${ARCHS:-sm_80 sm_86 sm_89 sm_90 sm_100 sm_120}; do
  case " $known " in *" $arch "*) archs=$archs${archs:+,}$arch ;; esac
done
[ -n "$archs" ] || {
  echo "kernel-pack: there is no NVRTC that compiles for these GPUs;" \
    "'$tune doctor' says what to install" >&2
  exit 1
}
exec "$tune" compile "$@" --store "$store" --cells "$cells" --arch "$archs" \
  --pack "$pack"
