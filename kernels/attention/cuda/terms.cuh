/* terms.cuh - the factors by which an edge adds to gradients, from its two
 * products
 *
 * With P = exp(s - lse), the factor r of dropout and delta = <dO, O>:
 *
 *     weight = P r                     the factor of dO in grad_value
 *     score  = P (r dP - delta) = dS   the gradient of the score
 */
#ifndef DFGNN_ATTENTION_CUDA_TERMS_CUH
#define DFGNN_ATTENTION_CUDA_TERMS_CUH

#include "kernels/attention/cuda/backward.h"
#include "kernels/common/cuda_common.cuh"

namespace dfgnn {

template <typename A> struct edge_terms {
  A weight, score;
  A inner; /* AGNN: the cosine; GAT: the slope of the leaky ReLU */
};

template <typename A> __device__ __forceinline__ A slope_at(A x, A slope) {
  return x > A(0) ? A(1) : slope;
}

/* product: the sum over features of the score, GT's in log2 units.  own, far:
 * scalars of both nodes, see STAT_EXTRA.  bias: in log2 units. */
template <int OP, typename A>
__device__ __forceinline__ edge_terms<A> terms_of(A slope, A product, A dp,
                                                  A lse, A delta, A own, A far,
                                                  A beta, A bias, A kept) {
  edge_terms<A> t;
  A s = product;
  t.inner = A(1);
  if constexpr (OP == DFGNN_OP_AGNN) {
    t.inner = product * own * far;
    s = t.inner * beta * A(kLog2e);
  } else if constexpr (OP == DFGNN_OP_GAT) {
    const A x = own + far;
    t.inner = slope_at(x, slope);
    s = x * t.inner * A(kLog2e);
  } else if constexpr (OP == DFGNN_OP_GATV2) {
    s = product * A(kLog2e);
  }
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
