/* tile_softmax.cuh - softmax of rows whose scores are fragments of a product on
 * tensor cores, with bias and dropout
 *
 * Lane 4 g + t has numbers 2 r and 2 r + 1 of s[j] of row g + 8 r: those of
 * columns 8 j + LANE t and 8 j + LANE t + ELEMENT of a chunk of 32.  A bit of
 * the row's mask says that a column is an edge; others get weight 0. */
#ifndef DFGNN_ATTENTION_CUDA_TILE_SOFTMAX_CUH
#define DFGNN_ATTENTION_CUDA_TILE_SOFTMAX_CUH

#include "kernels/attention/cuda/running_softmax.cuh"
#include "kernels/attention/cuda/tile_edges.cuh"

namespace dfgnn {

using tile_scores = float[4][4];
using tile_mask_pair = unsigned[2];

/* LAZY: m follows the largest score at a distance, as in running_softmax.cuh,
 * so that sums are seldom scaled, and weights are at most 2^kSlack; else m is
 * that score, and sums are scaled in every chunk.
 *
 * Math::take() rounds weights as the product with values does, if Math::ROUNDS.
 * The sums are divided by the total of rounded weights: an average of equal
 * values is then that value, and gradients that are 0 by the formula do not
 * keep its rounding error.  The log-sum-exp has the total before: from it the
 * backward pass computes weights of its own, which have to sum up to 1. */
template <class Math, int EDGES, int LANE, int ELEMENT, bool LAZY>
struct tile_softmax {
  static constexpr int EXACT = Math::ROUNDS; /* the place of exact totals */
  float m[2];
  float l[EXACT + 1][2];         /* totals; the lane's part of them */
  int64_t number[EDGES ? 2 : 1]; /* of the rows' first edges in the chunk */
  uint64_t key;

  template <class Params> DEVICE void begin(const Params &p) {
    key = edge_key<EDGES>(p);
    unroll<2>([&](int r) {
      m[r] = lowest<float>();
      l[0][r] = l[EXACT][r] = 0.0f;
    });
  }

  /* Calls f(x, r, k) for the elements of s that are edges: x is the score or
   * weight of edge k of row r in the chunk. */
  template <class F>
  static DEVICE void numbered(tile_scores &s, const tile_mask_pair &mask,
                              int lane, const F &f) {
    unroll<2, 4, 2>([&](int r, int j, int e) {
      const unsigned bit = 1u << (8 * j + ELEMENT * e + LANE * (lane % 4));
      if (mask[r] & bit)
        f(s[j][2 * r + e], r, __popc(mask[r] & (bit - 1)));
    });
  }

  /* Scores become weights, rounded.  scale(r, factor) scales the sums of row
   * r. */
  template <class Scale>
  DEVICE void soften(tile_scores &s, const tile_mask_pair &mask, int lane,
                     const Scale &scale) {
    constexpr float kSlack = 8;
    float top[2] = {-INFINITY, -INFINITY};
    unroll<2>([&](int r) {
      const unsigned bits = mask[r] >> lane % 4 * LANE;
      unroll<4, 2>([&](int j, int e) {
        float &x = s[j][2 * r + e];
        x = bits >> (8 * j + ELEMENT * e) & 1 ? x : -INFINITY;
        top[r] = fmaxf(top[r], x);
      });
    });
    if (!LAZY || __any_sync(kFullMask,
                            top[0] > m[0] + kSlack || top[1] > m[1] + kSlack)) {
      unroll<2>([&](int r) {
        const float old = m[r];
        m[r] = fmaxf(old, lanes_max<4>(top[r]));
        const float factor = exp2_fast(old - m[r]);
        unroll<EXACT + 1>([&](int k) { l[k][r] *= factor; });
        scale(r, factor);
      });
    }
    unroll<2, 4>([&](int r, int j) {
      float &x = s[j][2 * r], &y = s[j][2 * r + 1];
      x = exp2_fast(x - m[r]);
      y = exp2_fast(y - m[r]);
      if constexpr (Math::ROUNDS) {
        l[EXACT][r] += x;
        l[EXACT][r] += y;
        Math::take(x, y);
      }
      l[0][r] += x;
      l[0][r] += y;
    });
  }

  /* The factor that makes averages of the sums of row r, with that of dropout;
   * 0 if no edge has a weight. */
  template <class Params> DEVICE float factor(const Params &p, int r) const {
    const float keep = EDGES & EDGE_DROPOUT ? float(p.dropout.keep) : 1.0f;
    return inverse_sum(lanes_sum<4>(l[0][r])) * keep;
  }
  DEVICE float lse(int r) const {
    return log_sum_exp(m[r], lanes_sum<4>(l[EXACT][r]));
  }

  template <class Params>
  DEVICE void add_bias(tile_scores &s, const tile_mask_pair &mask,
                       const Params &p, int head, int lane) const {
    if constexpr (EDGES & EDGE_BIAS)
      numbered(s, mask, lane, [&](float &x, int r, int k) {
        x += bias_of<EDGES>(p, number[r] + k, head);
      });
  }

  /* Drops the weights whose bit is not in `kept`, a mask of columns. */
  static DEVICE void drop(tile_scores &s, const tile_mask_pair &kept,
                          int lane) {
    unroll<2>([&](int r) {
      const unsigned bits = kept[r] >> lane % 4 * LANE;
      unroll<4, 2>([&](int j, int e) {
        float &x = s[j][2 * r + e];
        x = bits >> (8 * j + ELEMENT * e) & 1 ? x : 0.0f;
      });
    });
  }

  /* Scores become weights, with the edges' bias before, and dropout after. */
  template <class Params, class Scale>
  DEVICE void weigh(tile_scores &s, const tile_mask_pair &mask, const Params &p,
                    int head, int lane, const Scale &scale) {
    add_bias(s, mask, p, head, lane);
    soften(s, mask, lane, scale);
    if constexpr (EDGES & EDGE_DROPOUT) {
      unsigned kept[2];
      unroll<2>([&](int r) {
        kept[r] =
            kept_edges<false, EDGES>(p, key, number[r], __popc(mask[r]), head);
      });
      numbered(s, mask, lane, [&](float &x, int r, int k) {
        x = kept[r] >> k & 1 ? x : 0.0f;
      });
    }
  }

  DEVICE void next_chunk(const tile_mask_pair &mask) {
    if constexpr (EDGES) {
      number[0] += __popc(mask[0]);
      number[1] += __popc(mask[1]);
    }
  }
};

} // namespace dfgnn

#endif
