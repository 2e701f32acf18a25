/* term.cuh - the message of an edge, its derivatives, and its gradient from the
 * tensors of its row */
#ifndef DFGNN_SUMS_CUDA_TERM_CUH
#define DFGNN_SUMS_CUDA_TERM_CUH

#include "kernels/common/cuda_gather.cuh"
#include "kernels/sums/cuda/gradient.cuh"
#include "kernels/sums/cuda/params.h"

namespace dfgnn {

/* sigma(z) and 1 - sigma(z). */
template <typename A> struct sigmoid {
  A on, off;
  DEVICE explicit sigmoid(A z) {
    const A small = exp2_fast(-fabs(z) * A(kLog2e));
    const A large = reciprocal(A(1) + small);
    on = z > A(0) ? large : small * large;
    off = z > A(0) ? small * large : large;
  }
};

/* The terms that an edge adds to a row's first sum (value) and to the sum of
 * its gate.  In the pass COLUMNS they are also the gradients of the edge's
 * parts. */
template <typename A> struct message_term { A value, gate; };

/* x: the value of the source, with the edge's part added; gates: the sum of the
 * nodes' gates; part: the edge's part of the gate or sum; grad: the gradient of
 * the message, of a backward pass. */
template <int PASS, bool GATED, typename A>
DEVICE message_term<A> term_of(A x, A gates, A part, A grad) {
  if constexpr (!GATED) {
    const A sum = x + part;
    if (PASS == SUMS_FORWARD)
      return {sum <= A(0) ? A(0) : sum, A(0)}; /* a NaN stays */
    const A on = sum <= A(0) ? A(0) : grad;    /* a NaN passes it on */
    return {on, on};
  } else {
    const sigmoid<A> s(gates + part);
    if (PASS == SUMS_FORWARD)
      return {s.on * x, A(0)};
    const A slope = grad * x * s.on * s.off;
    return {PASS == SUMS_ROWS ? slope : grad * s.on, slope};
  }
}

/* ---- the gradient of a message ------------------------------------------- */

enum {
  MESSAGE_GRADE = MESSAGE_PICK | MESSAGE_MOMENTS /* 0: a share of grad_out */
};

/* A lane's view of the tensors by destination from which the gradients of
 * messages are computed.  GRADE: bits of MESSAGE_GRADE. */
template <typename T, int VEC, int L, int C, int GRADE, int W>
struct message_grades {
  using A = accumulator_t<T>;
  static constexpr bool PICK = GRADE != 0;
  static constexpr bool MOMENTS = (GRADE & MESSAGE_MOMENTS) != 0;
  static constexpr int P = PICK ? C : 1, M = MOMENTS ? C : 1;
  static constexpr int kSize = sizeof(T) + (PICK ? 4 : 0) +
                               (MOMENTS ? 2 * (sizeof(T) + sizeof(A)) + 4 : 0);

  struct read {
    packed<T, VEC> grad[C], grad2[M], mean[M];
    words<int, VEC> arg[P], arg2[M];
    words<A, VEC> coefficient[M], offset[M];
  };

  const gather_params &p;
  const lane_features<VEC, L, C, W> features;
  const lane_table<T, VEC, L, C, W> grad, grad2, mean;

  DEVICE message_grades(const gather_params &params, const feature_tensor &out)
      : p(params), features(params),
        grad(params, MOMENTS ? params.grad_min : out, features),
        grad2(params, MOMENTS ? params.grad_max : out, features),
        mean(params, MOMENTS ? params.mean_out : out, features) {}

  template <bool WHOLE> DEVICE void load(read &x, int node, bool live) const {
    unroll<C>([&](int c) {
      const bool on = live && features.has(c);
      const int64_t at = int64_t(node) * p.width + features.readable(c);
      grad.template load<WHOLE>(x.grad[c], node, c, on);
      if constexpr (PICK)
        x.arg[c].load(p.row_arg + at, on);
      if constexpr (MOMENTS) {
        grad2.template load<WHOLE>(x.grad2[c], node, c, on);
        mean.template load<WHOLE>(x.mean[c], node, c, on);
        x.arg2[c].load(p.row_arg2 + at, on);
        x.coefficient[c].load(static_cast<const A *>(p.coefficient) + at, on);
        x.offset[c].load(static_cast<const A *>(p.offset) + at, on);
      }
    });
  }

  /* The gradient of message m at a position of the row. */
  DEVICE static A grade(const read &x, int c, int i, A scale, int position,
                        A m) {
    const A g = widen(x.grad[c].item[i]);
    if constexpr (!PICK)
      return scale * g;
    A sum = x.arg[PICK ? c : 0][i] == position ? g : A(0);
    if constexpr (MOMENTS) {
      if (x.arg2[c][i] == position)
        sum += widen(x.grad2[c].item[i]);
      sum +=
          x.offset[c][i] + x.coefficient[c][i] * (m - widen(x.mean[c].item[i]));
    }
    return sum;
  }
};

/* The position, heads first, of feature f of the layout. */
template <class P> DEVICE int heads_first(const P &p, int f) {
  return p.heads_inner ? f % p.heads * p.dim + f / p.heads : f;
}

} // namespace dfgnn

#endif
