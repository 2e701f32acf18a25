/* score.cuh - the scores of attend(), as policies
 *
 * KEY: the score gathers a key row besides the value row.  SUM: it is a sum
 * over features.  QUERY: it reads the destination's row.  HEAD: it reads a
 * vector of the head.  NORM: it divides by the rows' norms. */
#ifndef DFGNN_ATTENTION_CUDA_SCORE_CUH
#define DFGNN_ATTENTION_CUDA_SCORE_CUH

#include "kernels/attention/cuda/attend.h"
#include "kernels/common/cuda_common.cuh"

namespace dfgnn {

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

template <> struct score_of<DFGNN_OP_GT> : plain_score, dot_product {
  static constexpr bool KEY = true, SUM = true, QUERY = true;
};

template <> struct score_of<DFGNN_OP_AGNN> : plain_score, dot_product {
  static constexpr bool SUM = true, QUERY = true, NORM = true;
};

template <> struct score_of<DFGNN_OP_GAT> : plain_score {};

/* leaky(t) is max(t, slope t) for slopes up to 1, and -max(-t, -slope t) above:
 * then q and att come multiplied by `sign`, -1. */
template <> struct score_of<DFGNN_OP_GATV2> : plain_score {
  static constexpr bool SUM = true, QUERY = true, HEAD = true;
  template <typename A>
  static __device__ __forceinline__ void add(A &s, A q, A x, A att, A slope,
                                             A sign) {
    const A t = q + sign * x;
    s += att * max_of(t, t * slope);
  }
};

template <typename A> __device__ __forceinline__ A leaky(A t, A slope) {
  return t > A(0) ? t : t * slope;
}

} // namespace dfgnn

#endif
