#!/bin/sh
# static-libs.sh PREFIX: the libraries that libdfgnn links, static and
# position-independent, compiled by $CC from Debian's source packages.
#
#   CC=COMMAND    the compiler (old-glibc-cc.sh for a wheel)
#   HOST=TRIPLET  of a cross compiler, as configure's --host
#
# What is in PREFIX already is not built again.
set -eu

prefix=$(mkdir -p "$1" && cd "$1" && pwd)
sources=$prefix/src
CC=${CC:-gcc}
CFLAGS="-O2 -fPIC"
export CC CFLAGS
host=${HOST:+--host=$HOST}
jobs=$(nproc 2>/dev/null || echo 2)

say() { echo "static-libs: $*" >&2; }

# Source packages come from where this machine's packages do.
apt_get() {
  apt-get -q -o Dir::Etc::SourceList="$sources/apt.list" \
    -o Dir::Etc::SourceParts=/dev/null -o Dir::State::Lists="$sources/lists" \
    -o APT::Sandbox::User=root "$@"
}
prepare() {
  [ ! -e "$sources/apt.list" ] || return 0
  command -v dpkg-source >/dev/null || {
    say 'dpkg-source is missing; on Debian: apt install dpkg-dev'
    exit 1
  }
  mkdir -p "$sources/lists/partial"
  # shellcheck disable=SC2016
  apt-get indextargets --format 'deb-src $(REPO_URI) $(RELEASE) $(COMPONENT)' \
    'Created-By: Packages' 'Label: Debian' 'Component: main' | sort -u \
    >"$sources/apt.part"
  (cd "$sources" && mv apt.part apt.list && apt_get update) >&2 || {
    rm -f "$sources/apt.list"
    say 'the list of source packages could not be fetched'
    exit 1
  }
}
fetch() { # PACKAGE: its unpacked source is $source
  prepare
  (cd "$sources" && apt_get source "$1" >"$1.log" 2>&1) || {
    tail -n 20 "$sources/$1.log" >&2
    say "the source of $1 could not be fetched"
    exit 1
  }
  source=$(find "$sources" -mindepth 1 -maxdepth 1 -type d -name "$1-*" | head -n 1)
}
missing() { [ ! -e "$prefix/lib/$1" ] && say "building $1"; }

if missing libz.a; then
  fetch zlib
  (cd "$source" && ./configure --static --prefix="$prefix" &&
    make -j"$jobs" libz.a && make install) >"$sources/zlib.build" 2>&1
fi
if missing libminizip.a; then
  fetch zlib
  (cd "$source/contrib/minizip" && autoreconf -fi &&
    ./configure $host --prefix="$prefix" --disable-shared --with-pic \
      CPPFLAGS="-I$prefix/include" LDFLAGS="-L$prefix/lib" &&
    make -j"$jobs" libminizip.la && make install-libLTLIBRARIES \
      install-data) \
    >"$sources/minizip.build" 2>&1
fi
if missing libsqlite3.a; then
  fetch sqlite3
  (cd "$source" && ./configure $host --prefix="$prefix" --disable-shared \
    --with-pic --disable-tcl --disable-readline --disable-load-extension &&
    make -j"$jobs" libsqlite3.la && cp sqlite3.h "$prefix/include/" &&
    cp sqlite3.pc "$prefix/lib/pkgconfig/" &&
    cp .libs/libsqlite3.a "$prefix/lib/") >"$sources/sqlite3.build" 2>&1
fi
if missing libsodium.a; then
  fetch libsodium
  (cd "$source" && autoreconf -fi &&
    ./configure $host --prefix="$prefix" --disable-shared --with-pic \
      --disable-pie && make -j"$jobs" && make install) \
    >"$sources/libsodium.build" 2>&1
fi
if missing liblzma.a; then
  fetch xz-utils
  (cd "$source" &&
    ./configure $host --prefix="$prefix" --disable-shared --with-pic \
      --disable-xz --disable-xzdec --disable-lzmadec --disable-lzmainfo \
      --disable-lzma-links --disable-scripts --disable-doc --disable-nls \
      --disable-threads && make -j"$jobs" -C src/liblzma install) \
    >"$sources/xz-utils.build" 2>&1
fi
if missing libmetis.a; then
  fetch metis
  (cd "$source" && mkdir -p static && cd static &&
    for file in ../GKlib/*.c ../libmetis/*.c; do
      "$CC" $CFLAGS -DNDEBUG -DLINUX -D_FILE_OFFSET_BITS=64 -D_GNU_SOURCE \
        -std=gnu99 -w -I../GKlib -I../include -I../libmetis -c "$file" \
        -o "$(echo "${file#../}" | tr / _).o" || exit # both have a util.c
    done && ar rcs "$prefix/lib/libmetis.a" ./*.o &&
    cp ../include/metis.h "$prefix/include/") >"$sources/metis.build" 2>&1
fi
# With these libtool would leave out a library that has no shared one.
rm -f "$prefix"/lib/*.la
say "all are in $prefix/lib"
