#!/bin/sh
# Builds a user's programs against the installed library, shared and static, by
# pkg-config alone, and checks what the library exports.  `make installcheck`
# sets CC, CXX, CFLAGS, LDFLAGS, NM, PKG_CONFIG, PREFIX_LIBDIR, ROOT (DESTDIR),
# SRC, DOCDIR, BINDIR, PKGDATADIR, ENABLE_SHARED, ENABLE_STATIC, VERSION and
# INCLUDE_FROM_LIB.
set -eu

libdir=$ROOT$PREFIX_LIBDIR
export PKG_CONFIG_PATH="$libdir/pkgconfig${PKG_CONFIG_PATH:+:$PKG_CONFIG_PATH}"
[ -z "$ROOT" ] || export PKG_CONFIG_SYSROOT_DIR="$ROOT"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

say() { echo "installcheck: $*"; }

say "the headers are C11 and C++, their macros too, with old names and without"
cat >"$work/header.c" <<'END'
#include <dfgnn_tune.h>
#include <dfgnn_graph.h>
#include <dfgnn_mlp.h>
#include <dfgnn_operator.h>
#include <dfgnn_program.h>
static dfgnn_problem at_file_scope = DFGNN_PROBLEM_INIT;
int main(void) {
  dfgnn_options options = DFGNN_OPTIONS_INIT;
  dfgnn_device_info info = DFGNN_DEVICE_INFO_INIT;
  dfgnn_counters counters = DFGNN_COUNTERS_INIT;
  dfgnn_csr csr = DFGNN_CSR_INIT;
  dfgnn_coo coo = DFGNN_COO_INIT;
  dfgnn_signature signature = DFGNN_SIGNATURE_INIT;
  dfgnn_args args = DFGNN_ARGS_INIT;
  dfgnn_edge_value value = DFGNN_EDGE_VALUE_INIT;
  dfgnn_edge_operator found = DFGNN_EDGE_OPERATOR_INIT;
  dfgnn_edge_mlp mlp = DFGNN_EDGE_MLP_INIT;
  dfgnn_edge_mlp_args mlp_args = DFGNN_EDGE_MLP_ARGS_INIT;
  dfgnn_variant_info variant = DFGNN_VARIANT_INFO_INIT;
  dfgnn_tensor_info tensor = DFGNN_TENSOR_INFO_INIT;
  dfgnn_tune_options tune = DFGNN_TUNE_OPTIONS_INIT;
  dfgnn_tune_report report = DFGNN_TUNE_REPORT_INIT;
  return options.struct_size != sizeof options ||
         info.struct_size != sizeof info ||
         counters.struct_size != sizeof counters ||
         csr.struct_size != sizeof csr || coo.struct_size != sizeof coo ||
         signature.struct_size != sizeof signature ||
         args.struct_size != sizeof args ||
         args.slope != 0.2 || value.struct_size != sizeof value ||
         mlp.struct_size != sizeof mlp || found.struct_size != sizeof found ||
         mlp_args.struct_size != sizeof mlp_args ||
         variant.struct_size != sizeof variant ||
         tensor.struct_size != sizeof tensor ||
         tune.struct_size != sizeof tune ||
         report.struct_size != sizeof report ||
         at_file_scope.struct_size != sizeof at_file_scope;
}
END
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

for source in "$SRC"/tests/installcheck/consumer.c "$SRC"/docs/examples/*.c; do
  [ -e "$source" ] || continue
  name=$(basename "$source" .c)
  args=
  [ "$name" = consumer ] || args=$SRC/data/cora.npz
  for kind in shared static; do
    case $kind:$ENABLE_SHARED:$ENABLE_STATIC in
    shared:no:* | static:*:no) continue ;;
    shared:*)
      libs=$($PKG_CONFIG --libs dfgnn)
      # below a DESTDIR the run path of dfgnn.pc is not there yet
      [ -z "$ROOT" ] || libs="$libs -Wl,-rpath,$libdir" ;;
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

if command -v cmake >/dev/null; then
  for kind in shared static; do
    case $kind:$ENABLE_SHARED:$ENABLE_STATIC in
    shared:no:* | static:*:no) continue ;;
    esac
    say "consumer, $kind, by CMake"
    cmakes=$libdir/cmake/dfgnn
    if [ $kind = static ]; then # a tree that has the archive alone
      mkdir -p "$work/static/lib/cmake"
      cp -R "$cmakes" "$work/static/lib/cmake/"
      cp "$libdir/libdfgnn.a" "$work/static/lib/"
      include=$($PKG_CONFIG --cflags-only-I dfgnn | sed 's/-I//; s/ .*//')
      mkdir -p "$(dirname "$work/static/lib/$INCLUDE_FROM_LIB")"
      cp -R "$include" "$work/static/lib/$INCLUDE_FROM_LIB" 2>/dev/null ||
        cp "$include"/dfgnn*.h "$work/static/lib/$INCLUDE_FROM_LIB/"
      cmakes=$work/static/lib/cmake/dfgnn
    fi
    mkdir -p "$work/cmake"
    cat >"$work/cmake/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.16)
project(consumer C)
find_package(dfgnn $VERSION REQUIRED)
add_executable(consumer $SRC/tests/installcheck/consumer.c)
target_link_libraries(consumer PRIVATE dfgnn::dfgnn m)
END
    cmake -S "$work/cmake" -B "$work/cmake/$kind" -Ddfgnn_DIR="$cmakes" \
      -DCMAKE_C_COMPILER="$CC" -DCMAKE_C_FLAGS="$CFLAGS $LDFLAGS" >"$work/cmake.log" &&
      cmake --build "$work/cmake/$kind" >>"$work/cmake.log" || {
      cat "$work/cmake.log"
      exit 1
    }
    DFGNN_STORE= "$work/cmake/$kind/consumer"
  done
fi

say "the examples and the job files are there"
for name in gt.c gt_train.c cora.py jobs/cpu.job jobs/slurm.sh; do
  [ -e "$ROOT$DOCDIR/examples/$name" ] || {
    say "no $DOCDIR/examples/$name"
    exit 1
  }
done

say "the package's store is where contexts look for it"
store=$ROOT$PKGDATADIR/tuning.db
"$ROOT$BINDIR/dfgnn-tune" verify "$store" --quiet >/dev/null
if [ -z "$ROOT" ]; then
  env -u DFGNN_STORE XDG_DATA_HOME="$work" LD_LIBRARY_PATH="$libdir" \
    "$BINDIR/dfgnn-tune" info --device cpu --json >"$work/info"
  grep -q "\"$store\"" "$work/info"
fi
