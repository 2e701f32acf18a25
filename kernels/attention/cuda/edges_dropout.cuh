/* edges_dropout.cuh - which weights of the edges in flight a warp keeps
 *
 * The lanes share the words of the generator out, one for two heads of an edge,
 * and tell each other what came of them. */
#ifndef DFGNN_ATTENTION_CUDA_EDGES_DROPOUT_CUH
#define DFGNN_ATTENTION_CUDA_EDGES_DROPOUT_CUH

#include "kernels/attention/cuda/dropout.cuh"
#include "kernels/attention/cuda/lanes.cuh"

namespace dfgnn {

/* The bits of U edges of each of SIDES sides in TILE heads from `first` on.  A
 * pair of heads may have one of another tile. */
template <int U, int SIDES, int TILE, int HEADS> struct edge_kept {
  /* Is `first` even for sure? */
  static constexpr bool EVEN = TILE % 2 == 0 || HEADS <= TILE;
  static constexpr int PAIRS = EVEN ? (TILE + 1) / 2 : TILE / 2 + 1;
  static constexpr int EDGES = U * SIDES, WORDS = EDGES * PAIRS;
  static constexpr int N = ceil_div(WORDS, 32);
  unsigned upper[N], lower[N]; /* a bit a word: of even heads, of odd ones */

  /* edge: the first in flight, which is side 0's; the row has `left` edges from
   * it on.  All lanes of the warp call it. */
  DEVICE void draw(const dropout_params &d, uint64_t key, int64_t edge,
                   int left, int first) {
    unroll<N>([&](int i) {
      const int place = lane_id() + 32 * i, at = place / PAIRS;
      uint64_t word = 0;
      if (at < EDGES && at < left)
        word =
            dfgnn__dropout_word(key, d.number ? d.number[edge + at] : edge + at,
                                HEADS, first / 2 + place % PAIRS);
      upper[i] = __ballot_sync(kFullMask, unsigned(word >> 32) >= d.threshold);
      lower[i] = __ballot_sync(kFullMask, unsigned(word) >= d.threshold);
    });
  }
  /* Is the weight of edge u of a side kept in a head of the tile? */
  DEVICE bool has(int u, int side, int head, int first) const {
    const int place = (u * SIDES + side) * PAIRS + head / 2 - first / 2;
    unsigned bits = 0;
    unroll<N>([&](int i) {
      if (N == 1 || place / 32 == i)
        bits = head & 1 ? lower[i] : upper[i];
    });
    return bits >> (place & 31) & 1;
  }
};

} // namespace dfgnn

#endif
