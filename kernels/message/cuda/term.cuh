/* term.cuh - the message of an edge, and its derivatives */
#ifndef DFGNN_MESSAGE_CUDA_TERM_CUH
#define DFGNN_MESSAGE_CUDA_TERM_CUH

#include "kernels/common/cuda_gather.cuh"
#include "kernels/message/cuda/message.h"

namespace dfgnn {

/* sigma(z) and 1 - sigma(z). */
template <typename A> struct sigmoid {
  A on, off;
  __device__ __forceinline__ explicit sigmoid(A z) {
    const A small = exp2_fast(-fabs(z) * A(kLog2e));
    const A large = reciprocal(A(1) + small);
    on = z > A(0) ? large : small * large;
    off = z > A(0) ? small * large : large;
  }
};

/* What an edge adds to a row's first sum (value) and to that of its gate, which
 * is also the gradient of the edge's own part. */
template <typename A> struct message_term { A value, gate; };

/* x: of the source; gates: the nodes' parts of z; part: the edge's own; grad:
 * of the destination, of a backward pass. */
template <int PASS, bool GATED, typename A>
__device__ __forceinline__ message_term<A> term_of(A x, A gates, A part,
                                                   A grad) {
  if constexpr (!GATED) {
    const A sum = x + part;
    if (PASS == MESSAGE_FORWARD)
      return {sum <= A(0) ? A(0) : sum, A(0)}; /* a NaN stays */
    const A on = sum > A(0) ? grad : A(0);
    return {on, on};
  } else {
    const sigmoid<A> s(gates + part);
    if (PASS == MESSAGE_FORWARD)
      return {s.on * x, A(0)};
    const A slope = grad * x * s.on * s.off;
    return {PASS == MESSAGE_ROWS ? slope : grad * s.on, slope};
  }
}

/* Where feature f of the layout stands with heads first. */
template <class P>
__device__ __forceinline__ int heads_first(const P &p, int f) {
  return p.heads_inner ? f % p.heads * p.dim + f / p.heads : f;
}

} // namespace dfgnn

#endif
