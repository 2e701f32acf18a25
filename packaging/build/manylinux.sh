#!/bin/sh
# manylinux.sh FOLDER SOURCE: makes FOLDER/libdfgnn-CPU.so, for any Linux of
# glibc 2.28 or newer (RHEL 8, Debian 10, Ubuntu 20.04): libdfgnn_wheel of
# python/python.am, or libdfgnn where a library of the tools cannot be had, with
# sqlite, libsodium, zlib, minizip, xz, METIS and what the
# tools link in it.  Whatever loads it brings OpenMP, as torch does.
#
#   MANYLINUX_CPU=aarch64  for another processor, with gcc-aarch64-linux-gnu
#                          and libc6-dev-arm64-cross installed (default x86_64)
#
#   STATIC_LIBS=DIR        where the static libraries are kept for other builds
#                          (default dfgnn/static in the user's cache)
#
# Needs dpkg-dev and python3-venv, Debian's source packages and PyPI (ziglang,
# auditwheel).  What FOLDER or STATIC_LIBS have already is not made again.  A tree
# that was configured in place is built from a copy.
set -eu

folder=$(mkdir -p "$1" && cd "$1" && pwd)
source=$(cd "$2" && pwd)
cpu=${MANYLINUX_CPU:-x86_64}
jobs=$(nproc 2>/dev/null || echo 2)

say() { echo "manylinux: $*" >&2; }
quietly() { # LOG COMMAND...: its output only if it fails
  log=$folder/$1.log
  shift
  "$@" >"$log" 2>&1 || {
    tail -n 40 "$log" >&2
    say "$* failed; all of its output: $log"
    exit 1
  }
}

if [ ! -x "$folder/venv/bin/auditwheel" ]; then
  say 'installing ziglang and auditwheel'
  quietly venv python3 -m venv "$folder/venv"
  quietly pip "$folder/venv/bin/pip" install --disable-pip-version-check \
    ziglang auditwheel
fi
OLD_GLIBC_ZIG=$("$folder/venv/bin/python" -c \
  'import os, ziglang; print(os.path.join(os.path.dirname(ziglang.__file__), "zig"))')
OLD_GLIBC_CPU=$cpu
ZIG_GLOBAL_CACHE_DIR=$folder/zig
ZIG_LOCAL_CACHE_DIR=$folder/zig
CC=$source/packaging/build/old-glibc-cc.sh
HOST=
[ "$cpu" = "$(uname -m)" ] || HOST=$cpu-linux-gnu
export OLD_GLIBC_ZIG OLD_GLIBC_CPU ZIG_GLOBAL_CACHE_DIR ZIG_LOCAL_CACHE_DIR CC HOST
# The libraries depend on how they are made alone.
recipe=$(cat "$source/packaging/build/static-libs.sh" "$CC" | cksum | cut -d ' ' -f 1)
static=${STATIC_LIBS:-${XDG_CACHE_HOME:-$HOME/.cache}/dfgnn/static}/$cpu-$recipe
"$source/packaging/build/static-libs.sh" "$static"
library=libdfgnn_wheel shared=libdfgnn_wheel.so
TOOLS=yes "$source/packaging/build/static-libs.sh" "$static" || {
  say "the wheel will have no commands, for want of a library of the tools"
  library=libdfgnn shared=libdfgnn.so.0
}
ln -sfn "$static" "$folder/$cpu"

# configure refuses a source folder that is a build folder, too.
if [ -e "$source/config.status" ]; then
  say "copying the sources, since $source was configured in place"
  copy=$folder/source
  mkdir -p "$copy"
  (cd "$source" && if git rev-parse --git-dir >/dev/null 2>&1; then
    git ls-files
  else
    find . -type f ! -name '*.o' ! -name '*.lo' ! -name '*.la' ! -name Makefile \
      ! -path '*/.libs/*' ! -path '*/.deps/*' ! -path './manylinux/*' \
      ! -path './dist/*' ! -name config.status ! -name config.h ! -name stamp-h1
  fi | tar cf - -T -) | tar xf - -C "$copy"
  source=$copy
  CC=$source/packaging/build/old-glibc-cc.sh
fi
if [ ! -e "$source/configure" ]; then
  say 'making configure'
  quietly autogen "$source/autogen.sh"
fi

mkdir -p "$folder/build-$cpu"
cd "$folder/build-$cpu"
if [ ! -e Makefile ]; then
  say "configuring for $cpu"
  # Our libraries come first; check, which no wheel needs, is this machine's.
  PKG_CONFIG_PATH="$folder/$cpu/lib/pkgconfig" quietly configure \
    "$source/configure" ${HOST:+--host="$HOST"} --disable-static \
    --with-metis="$folder/$cpu" --with-lzma CPPFLAGS="-I$folder/$cpu/include" \
    LDFLAGS="-L$folder/$cpu/lib"
fi
# A line for every tenth of the files that are compiled.
progress() {
  awk -v total="$1" -v cpu="$cpu" '
    { print > log_file }
    /^  CC / && total && ++done * 10 >= next_tenth * total {
      printf "manylinux: libdfgnn for %s: %d of %d files\n", cpu, done, total
      next_tenth = int(done * 10 / total) + 1
    }' next_tenth=1 log_file="$folder/build.log" >&2
}
files=$(make -n $library.la all-extension 2>/dev/null |
  grep -c 'mode=compile' || :)
say "building libdfgnn for $cpu with $jobs jobs: $files files"
{ make -j"$jobs" V=0 $library.la all-extension 2>&1 || touch "$folder/build.failed"; } |
  progress "$files"
if [ -e "$folder/build.failed" ]; then
  rm "$folder/build.failed"
  tail -n 40 "$folder/build.log" >&2
  say "the build failed; all of its output: $folder/build.log"
  exit 1
fi
# A shared library links with symbols missing.  Those of other libraries have a
# version; OpenMP's have none.
missing=$(readelf --dyn-syms -W .libs/$shared |
  awk '$7 == "UND" && $8 != "" && $5 != "WEAK" { print $8 }' |
  grep -v '@' | grep -Ev '^(GOMP|omp)_' || :
  "$source/packaging/build/openmp-symbols.sh" .libs/$shared)
[ -z "$missing" ] || {
  echo "$missing" >&2
  say 'libdfgnn lacks these symbols'
  exit 1
}
"$cpu-linux-gnu-strip" --strip-unneeded -o "$folder/libdfgnn-$cpu.so" \
  .libs/$shared
if [ -e .libs/dfgnn_call.abi3.so ]; then
  "$cpu-linux-gnu-strip" --strip-unneeded -o "$folder/dfgnn_call-$cpu.so" \
    .libs/dfgnn_call.abi3.so
else
  say 'the wheel will call by ctypes alone, for want of Python.h (python3-dev)'
fi
