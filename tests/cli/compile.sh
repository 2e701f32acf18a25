#!/bin/sh
# Kernels compiled ahead, without a GPU: dfgnn-tune compile, packs, the cache, and
# what the tools say where there is no compiler.
. "$(dirname "$0")/lib.sh"

DFGNN_STORE=
DFGNN_KERNEL_PACK=
DFGNN_KERNEL_CACHE=$work/kernels.db
export DFGNN_STORE DFGNN_KERNEL_PACK DFGNN_KERNEL_CACHE
cora="$top/data/cora.npz --op gt --dim 64"
pack=$work/site.pack

# kernels FILTER: it is true of the rows of `info --json` whose kind is kernels
kernels() { holds "map(select(.kind == \"kernels\")) | $1"; }

promise "info and doctor say that there is no compiler, and what to do"
status 0 env DFGNN_NVRTC=/nonexistent dfgnn-tune info --device cpu --json
kernels 'any(.name == "compiler" and .exists == false and
  (.value | test("/nonexistent")))'
kernels 'all(.name != "compiles for")'
status 0 env DFGNN_NVRTC=/nonexistent dfgnn-tune doctor --device cpu --json
holds 'any(.kind == "kernels" and .verdict == "none" and
  (.why | test("driver|nvidia-cuda-nvrtc")))'

promise "compile says that there is no compiler, and what to install"
# shellcheck disable=SC2086
status 1 env DFGNN_NVRTC=/nonexistent dfgnn-tune compile $cora --arch sm_90
says /nonexistent nvidia-cuda-nvrtc

dfgnn-tune info --device cpu --json >"$work/info"
known=$(jq -r '.[] | select(.kind == "kernels" and .name == "compiles for") |
  .value' "$work/info")
[ -n "$known" ] || {
  echo "no NVRTC: the rest is skipped"
  [ $failures -eq 0 ] && exit 77
  finish
}
echo "compiles for $known"

promise "an architecture that is none, or unknown, is refused"
# shellcheck disable=SC2086
{
  status 1 dfgnn-tune compile $cora --arch banana
  says "'banana'" sm_90
  status 1 dfgnn-tune compile $cora --arch sm_10
  says "does not compile for sm_10"
  status 1 dfgnn-tune compile $cora --arch sm_999 --pack "$pack"
  says "sm_999: NVRTC .* does not know it"
}

promise "nothing to compile is an error, not an empty pack"
status 1 dfgnn-tune compile --arch sm_90 --pack "$pack"
says "no store" measured
status 2 dfgnn-tune compile
says "name architectures with --arch"
[ ! -e "$pack" ] || fail "a pack was written"

promise "a pack that cannot be written is an error before anything is compiled"
# shellcheck disable=SC2086
status 1 dfgnn-tune compile $cora --arch sm_90 --pack "$work/absent/site.pack"
says "absent/site.pack"
status 0 dfgnn-tune stat --kernels --json
holds '.[-1].kind == "kernels" and .[-1].entries == 0'

promise "a cache that cannot keep the kernels is an error"
# shellcheck disable=SC2086
status 1 env DFGNN_KERNEL_CACHE=/proc/none/kernels.db dfgnn-tune compile $cora \
  --arch sm_90
says "/proc/none/kernels.db: the kernels cannot be kept"

promise "compile compiles the choices and what graphs need, and counts them"
# shellcheck disable=SC2086
status 0 dfgnn-tune compile $cora --arch sm_90 --pack "$pack" --json
holds 'map(select(.arch)) | length == 1 and .[0].arch == "sm_90" and
  .[0].choices >= 1 and .[0].programs > 20 and .[0].failed == 0'
holds '(.[0].programs == .[1].programs) and .[1].bytes > 10000'
programs=$(jq '.[0].programs' "$work/out")
[ "$(stat -c %a "$pack")" = 644 ] || fail "the pack's mode is not 644"

promise "the cache has the same kernels, and stat counts them"
status 0 dfgnn-tune stat --kernels --json
holds ".[-1].entries == $programs and .[-1].bytes > 10000 and .[-1].hits == 0"

promise "a second run compiles nothing"
# shellcheck disable=SC2086
status 0 dfgnn-tune compile $cora --arch sm_90 --json
holds ".[0].programs == $programs and .[0].failed == 0"
status 0 dfgnn-tune stat --kernels --json
holds ".[-1].entries == $programs and .[-1].hits == $programs"

promise "what a store decides on a GPU is compiled, and what the rule chooses"
rows=$top/data/stores/h200.jsonl.gz
gzip -dc "$rows" | jq -c 'select(.graph == "cora" and .op == "gt" and
  .pass == "forward" and .dtype == "f32" and .dim == 128 and .heads == 1)' \
  >"$work/cora.jsonl"
[ -s "$work/cora.jsonl" ] || fail "no row of cora is in $rows"
status 0 dfgnn-tune import "$work/cora.jsonl" --store "$work/gpu.db" -q
status 0 dfgnn-tune compile --store "$work/gpu.db" --json
holds 'length == 1 and .[0].arch == "sm_90" and .[0].choices == 2 and
  .[0].failed == 0'
status 1 dfgnn-tune compile --store "$work/gpu.db" --arch sm_90 --dtype f64
says "no store has measured"

promise "of a store that is named stat counts that alone"
status 0 dfgnn-tune stat --store "$work/gpu.db" --json
holds 'length > 0 and all(.kind == null and .rows > 0)'

promise "cells are the problems of the graphs"
printf 'a --op spmm-sum --dim 8\nb --op gt --dim 8\n' >"$work/cells.txt"
status 0 dfgnn-tune compile uniform:nodes=20,edges=90 --cells "$work/cells.txt" \
  --only a --store "$work/gpu.db" --op reduce-max --arch sm_90 --json
holds '.[0].choices > 1 and .[0].failed == 0'

promise "the pack of the package's store wants a compiler"
status 1 env DFGNN_NVRTC=/nonexistent sh "$top/data/stores/make_pack.sh" \
  dfgnn-tune "$work/no.pack" "$work/gpu.db" "$top/data/portfolios/cells.txt" \
  "$top/data/cora.npz"
says "no NVRTC"
[ ! -e "$work/no.pack" ] || fail "a pack was written"

promise "info lists the pack that DFGNN_KERNEL_PACK names, without a compiler too"
status 0 env DFGNN_KERNEL_PACK="$pack" DFGNN_NVRTC=/nonexistent \
  dfgnn-tune info --device cpu --json
kernels "any(.name == \"$pack\" and .usable and .entries == $programs)"

promise "a pack that others could write is refused with the reason"
chmod 666 "$pack"
status 0 env DFGNN_KERNEL_PACK="$pack" dfgnn-tune info --device cpu --json
kernels "any(.name == \"$pack\" and .usable == false and
  (.value | test(\"nobody else may be able to write\")))"

promise "where keys are set, a signed pack is used, whoever can write it"
status 0 dfgnn-tune sign --generate-key "$work/site"
DFGNN_TRUSTED_KEYS=$work/site.pub
export DFGNN_TRUSTED_KEYS
status 0 env DFGNN_KERNEL_PACK="$pack" dfgnn-tune info --device cpu --json
kernels "any(.name == \"$pack\" and .usable == false)"
status 0 dfgnn-tune sign "$pack" --key "$work/site.key"
status 0 env DFGNN_KERNEL_PACK="$pack" dfgnn-tune info --device cpu --json
kernels "any(.name == \"$pack\" and .usable and .entries == $programs)"
unset DFGNN_TRUSTED_KEYS
chmod 644 "$pack"

promise "a truncated pack, and a file that is none, are refused"
head -c 20000 "$pack" >"$work/cut.pack"
cp "$top/data/cora.npz" "$work/none.pack"
status 0 env DFGNN_KERNEL_PACK="$work/cut.pack:$work/none.pack" \
  dfgnn-tune info --device cpu --json
kernels 'map(select(.usable == false)) | length == 2'

promise "a program that does not compile fails with the compiler's words"
for f in $(cd "$top" && find kernels kernels/engine/device include -name '*.cuh' -o \
  -name '*.h' -path '*/*'); do
  mkdir -p "$work/tree/$(dirname "$f")"
  cp "$top/$f" "$work/tree/$f"
done
echo 'this is no C++;' >>"$work/tree/kernels/common/views.cuh"
# shellcheck disable=SC2086
status 1 env DFGNN_KERNEL_SOURCE="$work/tree" dfgnn-tune compile $cora \
  --arch sm_90 --json
says "does not compile: .*error"
holds ".[0].failed > 0 and .[0].failed < .[0].programs"

promise "prune --kernels empties the cache"
status 0 dfgnn-tune prune --kernels --json
holds ".[0].removed >= $programs"
status 0 dfgnn-tune stat --kernels --json
holds '.[-1].entries == 0'

promise "no cache: stat says why, and prune has nothing to empty"
status 0 env DFGNN_KERNEL_CACHE_MB=0 dfgnn-tune stat
says "not used: DFGNN_KERNEL_CACHE_MB is 0"
status 1 env DFGNN_KERNEL_CACHE= dfgnn-tune prune --kernels
says "no cache of kernels"

finish
