#!/bin/sh
# cxx.sh - g++ for what torch.compile generates.  ccache keeps no result of a call
# that compiles and links, so that such a call becomes two.
out= source= previous=
for word in "$@"; do
  case $word in
  -c | -E | -S | -M* | --version) exec g++ "$@" ;;
  *.cpp) source=$word ;;
  esac
  [ "$previous" != -o ] || out=$word
  previous=$word
done
[ -n "$out" ] && [ -n "$source" ] && command -v ccache >/dev/null ||
  exec g++ "$@"
(
  skip=
  for word in "$@"; do
    shift
    case $skip$word in
    -o) skip=yes ;;
    yes*) skip= ;;
    *) set -- "$@" "$word" ;;
    esac
  done
  CCACHE_NOHASHDIR=1 exec ccache g++ -w "$@" -c -o "$out.o"
) || exit
for word in "$@"; do
  shift
  [ "$word" != "$source" ] || word=$out.o
  set -- "$@" "$word"
done
g++ "$@"
status=$?
rm -f "$out.o"
exit $status
