/* dropout.cuh - attention dropout, by the number of an edge */
#ifndef DFGNN_ATTENTION_CUDA_DROPOUT_CUH
#define DFGNN_ATTENTION_CUDA_DROPOUT_CUH

#include "kernels/attention/cuda/dropout_params.h"
#include "kernels/common/cuda_common.cuh"
#include "kernels/common/dropout.h"

namespace dfgnn {

/* The key of the generator; a thread computes it once. */
DEVICE uint64_t dropout_key(const dropout_params &d) {
  return dfgnn__dropout_key(d.seed ? *d.seed : d.seed_value);
}

/* The factor of a weight: 0, or `keep`, which is d.keep. */
template <typename A>
DEVICE A kept_of(const dropout_params &d, A keep, uint64_t key, int64_t edge,
                 int heads, int head) {
  const int64_t number = d.number ? d.number[edge] : edge;
  return dfgnn__dropped(key, number, heads, head, d.threshold) ? A(0) : keep;
}

/* Bit i of the result: is the weight of head first + i kept?  There are up to
 * 32 heads, TILE; where `first` is even for sure, a word serves two of them. */
template <int TILE, int HEADS>
DEVICE unsigned kept_heads(const dropout_params &d, uint64_t key, int64_t edge,
                           int first) {
  constexpr bool PAIRS = TILE % 2 == 0 || HEADS <= TILE;
  constexpr int STEP = PAIRS ? 2 : 1;
  const int64_t number = d.number ? d.number[edge] : edge;
  unsigned bits = 0;
#pragma unroll
  for (int i = 0; i < TILE; i += STEP) {
    const uint64_t word =
        dfgnn__dropout_word(key, number, HEADS, (first + i) / 2);
    const unsigned upper = unsigned(word >> 32), lower = unsigned(word);
    if constexpr (PAIRS) {
      bits |= unsigned(upper >= d.threshold) << i;
      if (i + 1 < TILE)
        bits |= unsigned(lower >= d.threshold) << (i + 1);
    } else {
      bits |= unsigned(((first + i) & 1 ? lower : upper) >= d.threshold) << i;
    }
  }
  return bits;
}

} // namespace dfgnn

#endif
