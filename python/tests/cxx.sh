#!/bin/sh
# cxx.sh - g++ for what torch.compile generates.  ccache keeps no result of a call
# that compiles and links, so that such a call becomes two; and the name of a folder,
# which is another in each process, is not in what it keeps.
out= source= previous=
for word in "$@"; do
  case $word in
  -c | -E | -S | -M* | --version) exec g++ "$@" ;;
  *.cpp) source=$word ;;
  esac
  [ "$previous" != -o ] || out=$word
  previous=$word
done
case $source:$out in
/*:/*) command -v ccache >/dev/null || exec g++ "$@" ;;
*) exec g++ "$@" ;;
esac
(
  skip=
  for word in "$@"; do
    shift
    case $skip$word in
    -o) skip=yes ;;
    yes*) skip= ;;
    "$source") set -- "$@" "${source##*/}" ;;
    *) set -- "$@" "$word" ;;
    esac
  done
  cd "${source%/*}" && CCACHE_NOHASHDIR=1 exec ccache g++ -w "$@" -c -o "$out.o"
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
