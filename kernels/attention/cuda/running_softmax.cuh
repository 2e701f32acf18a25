/* running_softmax.cuh - the softmax of a row whose scores come step by step
 *
 * Scores are kept in units of log2(e), so that softmax is exp2.  A side of a
 * row has for each of S heads the maximum m so far, the sum l of exp2(s - m),
 * and sums that are relative to m as l is. */
#ifndef DFGNN_ATTENTION_CUDA_RUNNING_SOFTMAX_CUH
#define DFGNN_ATTENTION_CUDA_RUNNING_SOFTMAX_CUH

#include "kernels/common/cuda_common.cuh"

namespace dfgnn {

/* weight = exp2(s - m) of U edges, and l their sum.  m follows the largest
 * score at a distance, so that older sums are seldom scaled: weights are at
 * most 2^kSlack.  scale(h, factor) scales the sums of head h. */
template <int U, int N, int S, typename A, class Scale>
DEVICE void soften(A (&weight)[N], const A (&s)[N], A (&m)[S], A (&l)[S],
                   const Scale &scale) {
  constexpr A kSlack = A(8);
  A top[S];
  bool raised = false;
  unroll<S>([&](int h) {
    top[h] = s[h];
#pragma unroll
    for (int u = 1; u < U; ++u)
      top[h] = max_of(top[h], s[u * S + h]);
    raised = raised || top[h] > m[h] + kSlack;
  });
  if (__any_sync(kFullMask, raised))
    unroll<S>([&](int h) {
      const A old = m[h];
      m[h] = max_of(old, top[h]);
      const A factor = exp2_fast(old - m[h]);
      l[h] *= factor;
      scale(h, factor);
    });
  unroll<N>([&](int i) {
    weight[i] = exp2_fast(s[i] - m[i % S]);
    l[i % S] += weight[i];
  });
}

/* The log-sum-exp of a row, in natural units; -inf if no edge has a weight. */
template <typename A> DEVICE A log_sum_exp(A m, A l) {
  return l == A(0) ? -A(INFINITY) : (m + log2_fast(l)) * A(kLn2);
}

/* The factor that makes averages of sums; 0 if no edge has a weight. */
template <typename A> DEVICE A inverse_sum(A l) {
  return l == A(0) ? A(0) : reciprocal(l);
}

} // namespace dfgnn

#endif
