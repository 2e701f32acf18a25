#!/bin/sh
# static-libs.sh PREFIX: the libraries that libdfgnn links, static and
# position-independent, compiled by $CC from Debian's source packages.
#
#   CC=COMMAND    the compiler (old-glibc-cc.sh for a wheel)
#   TOOLS=yes     those that the tools link, too
#   HOST=TRIPLET  of a cross compiler, as configure's --host; its binutils, too
#
# What is in PREFIX already is not built again.  Needs dpkg-dev, autoconf, libtool and
# tcl, with which SQLite's one file is put together.
set -eu

prefix=$(mkdir -p "$1" && cd "$1" && pwd)
sources=$prefix/src
CC=${CC:-gcc}
CFLAGS="-O2 -fPIC"
AR=${HOST:+$HOST-}ar RANLIB=${HOST:+$HOST-}ranlib
export CC CFLAGS AR RANLIB
host=${HOST:+--host=$HOST}
jobs=$(nproc 2>/dev/null || echo 2)

log=

say() { echo "static-libs: $*" >&2; }
say_failed() {
  status=$?
  if [ $status -ne 0 ] && [ -e "$log" ]; then
    tail -n 20 "$log" >&2
    say "the build failed; all of its output: $log"
  fi
}
trap say_failed EXIT

# Source packages come from where this machine's packages do.
apt_get() {
  apt-get -q -o Dir::Etc::SourceList="$sources/apt.list" \
    -o Dir::Etc::SourceParts=/dev/null -o Dir::State::Lists="$sources/lists" \
    -o APT::Sandbox::User=root "$@"
}
prepare() {
  [ ! -e "$sources/apt.list" ] || return 0
  for program in dpkg-source autoreconf libtoolize tclsh "$AR"; do
    command -v "$program" >/dev/null || {
      say "$program is missing; on Debian: apt install dpkg-dev autoconf" \
        "automake libtool tcl${HOST:+ binutils-$HOST}"
      exit 1
    }
  done
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
missing() { # FILE NAME: of the library, of its log
  log=$sources/$2.build
  [ ! -e "$prefix/lib/$1" ] && say "building $1"
}

if missing libz.a zlib; then
  fetch zlib
  (cd "$source" && CHOST=${HOST-} ./configure --static --prefix="$prefix" &&
    make -j"$jobs" libz.a && make install) >"$log" 2>&1
fi
if missing libminizip.a minizip; then
  fetch zlib
  (cd "$source/contrib/minizip" && autoreconf -fi &&
    ./configure $host --prefix="$prefix" --disable-shared --with-pic \
      CPPFLAGS="-I$prefix/include" LDFLAGS="-L$prefix/lib" &&
    make -j"$jobs" libminizip.la && make install-libLTLIBRARIES \
      install-data) \
    >"$log" 2>&1
fi
if missing libsqlite3.a sqlite3; then
  fetch sqlite3
  (cd "$source" && ./configure $host --prefix="$prefix" --disable-shared \
    --with-pic --disable-tcl --disable-readline --disable-load-extension &&
    make -j"$jobs" ${HOST:+CROSS_BUILDING=yes} libsqlite3.la &&
    cp sqlite3.h "$prefix/include/" &&
    cp sqlite3.pc "$prefix/lib/pkgconfig/" &&
    cp .libs/libsqlite3.a "$prefix/lib/") >"$log" 2>&1
fi
if missing libsodium.a libsodium; then
  fetch libsodium
  (cd "$source" && autoreconf -fi &&
    ./configure $host --prefix="$prefix" --disable-shared --with-pic \
      --disable-pie && make -j"$jobs" && make install) \
    >"$log" 2>&1
fi
if missing liblzma.a xz-utils; then
  fetch xz-utils
  (cd "$source" &&
    ./configure $host --prefix="$prefix" --disable-shared --with-pic \
      --disable-xz --disable-xzdec --disable-lzmadec --disable-lzmainfo \
      --disable-lzma-links --disable-scripts --disable-doc --disable-nls \
      --disable-threads && make -j"$jobs" -C src/liblzma install) \
    >"$log" 2>&1
fi
if missing libmetis.a metis; then
  fetch metis
  (cd "$source" && mkdir -p static && cd static &&
    for file in ../GKlib/*.c ../libmetis/*.c; do
      "$CC" $CFLAGS -DNDEBUG -DLINUX -D_FILE_OFFSET_BITS=64 -D_GNU_SOURCE \
        -std=gnu99 -w -I../GKlib -I../include -I../libmetis -c "$file" \
        -o "$(echo "${file#../}" | tr / _).o" || exit # both have a util.c
    done && "$AR" rcs "$prefix/lib/libmetis.a" ./*.o &&
    cp ../include/metis.h "$prefix/include/") >"$log" 2>&1
fi
# ---- those of the tools
if [ "${TOOLS-}" = yes ] && missing libjansson.a jansson; then
  fetch jansson
  (cd "$source" && autoreconf -fi &&
    ./configure $host --prefix="$prefix" --disable-shared --with-pic &&
    make -j"$jobs" -C src && make -C src install &&
    make install-pkgconfigDATA) >"$log" 2>&1
fi
if [ "${TOOLS-}" = yes ] && missing libsmartcols.a util-linux; then
  fetch util-linux
  # Headers declare close_range(), which the C library to link with may lack: a
  # function of util-linux's own would clash, and no part of smartcols calls it.
  (cd "$source" &&
    ./configure $host --prefix="$prefix" --disable-shared --with-pic \
      ac_cv_func_close_range=yes \
      --disable-all-programs --disable-nls --disable-asciidoc \
      --disable-bash-completion --without-python --without-systemd \
      --without-ncurses --without-ncursesw --without-tinfo --without-readline \
      --without-udev --without-selinux --enable-libsmartcols &&
    make -j"$jobs" libsmartcols.la &&
    make install-usrlib_execLTLIBRARIES install-nodist_smartcolsincHEADERS \
      install-pkgconfigDATA) >"$log" 2>&1
fi
# With these libtool would leave out a library that has no shared one.
rm -f "$prefix"/lib/*.la
say "all are in $prefix/lib"
