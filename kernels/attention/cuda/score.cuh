/* score.cuh - the score of each operator, and by what factors an edge adds to
 * gradients
 *
 * Scores are in log2 units, s = score * log2(e), so that softmax is exp2.  With
 * P = exp(score - lse), the factor r of dropout and delta = <dO, O>:
 *
 *     weight = P r                     the factor of dO in grad_value
 *     score  = P (r dP - delta) = dS   the gradient of the score
 */
#ifndef DFGNN_ATTENTION_CUDA_SCORE_CUH
#define DFGNN_ATTENTION_CUDA_SCORE_CUH

#include "dfgnn_types.h"
#include "kernels/common/cuda_common.cuh"

namespace dfgnn {

template <typename A> __device__ __forceinline__ A leaky(A t, A slope) {
  return t > A(0) ? t : t * slope;
}
template <typename A> __device__ __forceinline__ A slope_at(A t, A slope) {
  return t > A(0) ? A(1) : slope;
}

/* ---- operators ----------------------------------------------------------- */

/* What a score reads: KEY, a key row beside the value row of the source; QUERY,
 * the destination's row; HEAD, a vector of the head.  SUM: it is made of a sum
 * over features, of which add() adds one.  NORM: it divides by the rows' norms.
 *
 * from_sum() makes the score of that sum, own and far (scalars of both nodes,
 * see STAT_EXTRA of backward.h), and leaves in `inner` a factor of gradients:
 * AGNN's cosine, the slope of GAT's leaky ReLU. */
struct plain_score {
  static constexpr bool KEY = false, SUM = false, QUERY = false, HEAD = false;
  static constexpr bool NORM = false;
};

/* Adds the part of feature x of the gathered row to s; q: the destination's. */
struct dot_product {
  template <typename A>
  static __device__ __forceinline__ void add(A &s, A q, A x, A, A, A) {
    s += q * x;
  }
};

template <int OP> struct score_of;

/* scale <q, k>: q comes multiplied by scale and log2(e). */
template <> struct score_of<DFGNN_OP_GT> : plain_score, dot_product {
  static constexpr bool KEY = true, SUM = true, QUERY = true;
  template <typename A>
  static __device__ __forceinline__ A from_sum(A &, A sum, A, A, A, A) {
    return sum;
  }
};

/* beta <q, v> / (|q| |v|): own and far are the inverse norms. */
template <> struct score_of<DFGNN_OP_AGNN> : plain_score, dot_product {
  static constexpr bool SUM = true, QUERY = true, NORM = true;
  template <typename A>
  static __device__ __forceinline__ A from_sum(A &cosine, A sum, A own, A far,
                                               A beta, A) {
    cosine = sum * own * far;
    return cosine * beta * A(kLog2e);
  }
};

/* leaky(score_dst + score_src) */
template <> struct score_of<DFGNN_OP_GAT> : plain_score {
  template <typename A>
  static __device__ __forceinline__ A from_sum(A &inner, A, A own, A far, A,
                                               A slope) {
    const A t = own + far;
    inner = slope_at(t, slope);
    return t * inner * A(kLog2e);
  }
};

/* <att, leaky(q + v)>: leaky(t) is max(t, slope t) for slopes up to 1, and
 * -max(-t, -slope t) above: then q and att come multiplied by `sign`, -1. */
template <> struct score_of<DFGNN_OP_GATV2> : plain_score {
  static constexpr bool SUM = true, QUERY = true, HEAD = true;
  template <typename A>
  static __device__ __forceinline__ void add(A &s, A q, A x, A att, A slope,
                                             A sign) {
    const A t = q + sign * x;
    s += att * max_of(t, t * slope);
  }
  template <typename A>
  static __device__ __forceinline__ A from_sum(A &, A sum, A, A, A, A) {
    return sum * A(kLog2e);
  }
};

/* ---- gradients ----------------------------------------------------------- */

template <typename A> struct edge_terms {
  A weight, score;
  A inner; /* as from_sum() leaves it, else 1 */
};

/* sum: over features, of the score.  lse and bias: in log2 units. */
template <int OP, typename A>
__device__ __forceinline__ edge_terms<A> terms_of(A slope, A sum, A dp, A lse,
                                                  A delta, A own, A far, A beta,
                                                  A bias, A kept) {
  edge_terms<A> t;
  t.inner = A(1);
  const A s =
      score_of<OP>::template from_sum<A>(t.inner, sum, own, far, beta, slope);
  const A probability = exp2_fast(s + bias - lse);
  const bool dead = lse == A(INFINITY); /* all scores of the row are -inf */
  t.weight = dead ? A(0) : probability * kept;
  t.score = dead ? A(0) : probability * (kept * dp - delta);
  return t;
}

/* The log-sum-exp in log2 units; +inf if no edge of the row has a weight. */
template <typename A> __device__ __forceinline__ A lse_of(A lse) {
  return lse == -A(INFINITY) ? A(INFINITY) : lse * A(kLog2e);
}

/* Returns the gradient of lse, which is subtracted from delta; 0 if none is
 * given. */
template <typename A>
__device__ __forceinline__ A grad_lse_of(const void *grad_lse, int64_t pair) {
  return grad_lse ? __ldg(static_cast<const A *>(grad_lse) + pair) : A(0);
}

} // namespace dfgnn

#endif
