#!/bin/sh
# Builds a user's programs against the installed library, shared and static, by
# pkg-config alone, and checks what the library exports.  `make installcheck`
# sets CC, CXX, CFLAGS, LDFLAGS, NM, PKG_CONFIG, PREFIX_LIBDIR, ROOT (DESTDIR),
# SRC, BINDIR, PKGDATADIR, ENABLE_SHARED and ENABLE_STATIC.
set -eu

libdir=$ROOT$PREFIX_LIBDIR
export PKG_CONFIG_PATH="$libdir/pkgconfig${PKG_CONFIG_PATH:+:$PKG_CONFIG_PATH}"
[ -z "$ROOT" ] || export PKG_CONFIG_SYSROOT_DIR="$ROOT"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

say() { echo "installcheck: $*"; }

say "the header is C11 and C++"
echo '#include <dfgnn.h>' >"$work/header.c"
$CC -std=c11 -Wall -Wextra -Werror -pedantic -fsyntax-only \
  $($PKG_CONFIG --cflags dfgnn) "$work/header.c"
$CXX -std=c++17 -Wall -Wextra -Werror -fsyntax-only -x c++ \
  $($PKG_CONFIG --cflags dfgnn) "$work/header.c"

if [ "$ENABLE_SHARED" = yes ]; then
  say "the shared library exports dfgnn_[a-z]* and nothing else"
  $NM -D --defined-only "$libdir/libdfgnn.so" | awk '{ print $3 }' |
    sed 's/@.*//' | sort >"$work/exported"
  grep -q '^dfgnn_execute$' "$work/exported"
  ! grep -v '^dfgnn_[a-z]' "$work/exported"
fi

for source in "$SRC"/tests/installcheck/consumer.c "$SRC"/examples/*.c; do
  [ -e "$source" ] || continue
  name=$(basename "$source" .c)
  args=
  [ "$name" = consumer ] || args=$SRC/data/cora.npz
  for kind in shared static; do
    case $kind:$ENABLE_SHARED:$ENABLE_STATIC in
    shared:no:* | static:*:no) continue ;;
    shared:*) libs="$($PKG_CONFIG --libs dfgnn) -Wl,-rpath,$libdir" ;;
    # libdfgnn by its archive, everything below it as the system has it
    static:*) libs=$($PKG_CONFIG --static --libs dfgnn |
      sed 's/-ldfgnn\>/-l:libdfgnn.a/g') ;;
    esac
    say "$name, $kind"
    $CC $CFLAGS $($PKG_CONFIG --cflags dfgnn) "$source" -o "$work/$name" \
      $LDFLAGS $libs -lm
    DFGNN_STORE= "$work/$name" $args
  done
done

say "the package's store is where contexts look for it"
store=$ROOT$PKGDATADIR/tuning.db
"$ROOT$BINDIR/dfgnn-tune" verify "$store" --quiet >/dev/null
if [ -z "$ROOT" ]; then
  env -u DFGNN_STORE XDG_DATA_HOME="$work" LD_LIBRARY_PATH="$libdir" \
    "$BINDIR/dfgnn-tune" info --device cpu --json >"$work/info"
  grep -q "\"$store\"" "$work/info"
fi
