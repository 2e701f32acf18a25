/* gradient.cuh - gradients of reductions, gathered by source
 *
 * Edge e of row i passes to its source the gradient of an extreme, if e was the
 * extreme, and that of moments, in proportion to x - mean. */
#ifndef DFGNN_SUMS_CUDA_GRADIENT_CUH
#define DFGNN_SUMS_CUDA_GRADIENT_CUH

#include "kernels/sums/cuda/params.h"
#include "kernels/sums/cuda/sum.cuh"

namespace dfgnn {

/* VEC numbers in words of at most 16 bytes. */
template <typename X, int VEC> struct words {
  static constexpr int P = sizeof(X) * VEC > 16 ? sizeof(X) * VEC / 16 : 1;
  packed<X, VEC / P> part[P];

  DEVICE void load(const X *from, bool on) {
    unroll<P>([&](int k) {
      clear(part[k]);
      load_if<VEC / P>(part[k], from + k * (VEC / P), on);
    });
  }
  DEVICE X operator[](int i) const {
    return part[i / (VEC / P)].item[i % (VEC / P)];
  }
};

template <typename T, int VEC_, int L, int WHAT, int W>
struct gradient_op : row_sums<accumulator_t<T>, VEC_, 1, 1> {
  using A = accumulator_t<T>;
  using sums = row_sums<A, VEC_, 1, 1>;
  using total = typename sums::total;
  static constexpr int VEC = VEC_;
  static constexpr int kSize = sizeof(T), kHeld = 64;
  static constexpr bool PICK = WHAT != REDUCE_SPREAD;
  static constexpr bool SPREAD = WHAT != REDUCE_PICK;
  static constexpr bool BOTH = WHAT == REDUCE_BOTH;
  static constexpr bool kNotes = PICK;

  struct edge {
    words<int, VEC> arg, arg2;
    packed<T, VEC> grad, grad2, mean;
    words<A, VEC> coefficient, offset;
  };
  /* The lower halves of an edge's id and of its row's first edge.  Beyond the
   * row, their difference is a position that no edge has. */
  struct note {
    unsigned id, first;
  };
  struct mark {
    int position;
  };
  struct state : sums::state {
    A own[VEC];
  };

  const gather_params &p;
  const lane_features<VEC, L, 1, W> features;
  const lane_table<T, VEC, L, 1, W> grad, grad2, mean;

  DEVICE explicit gradient_op(const gather_params &params)
      : p(params), features(params),
        grad(params, BOTH ? params.grad_min : params.table, features),
        grad2(params, params.grad_max, features),
        mean(params, params.mean_out, features) {}

  DEVICE void begin(state &z, int row, int) const {
    sums::clear_sums(z);
    unroll<VEC>([&](int i) { z.own[i] = A(0); });
    if (SPREAD && features.has(0) && p.schedule.rows > 0)
      load_row<T, VEC>(z.own, p, p.own, row, features.at(0));
  }

  DEVICE note look(const edge_ahead &e, bool live) const {
    note n = {e.id.x, e.id.x + 2};
    if constexpr (PICK)
      load_number_if(n.first,
                     static_cast<const unsigned *>(p.row_offsets.array) +
                         int64_t(e.index) * (p.row_offsets.wide ? 2 : 1),
                     live);
    return n;
  }

  template <int U>
  DEVICE void pass(mark (&m)[U], const note &n, int from, int sides) const {
    if constexpr (PICK) {
      unroll<U>([&](int u) {
        m[u].position =
            static_cast<int>(__shfl_sync(kFullMask, n.id, from + u * sides) -
                             __shfl_sync(kFullMask, n.first, from + u * sides));
      });
    }
  }

  template <bool WHOLE> DEVICE void load(edge &x, int j, bool live) const {
    const bool on = live && features.has(0);
    const int64_t at = int64_t(j) * p.width + features.readable(0);
    if (PICK) {
      x.arg.load(p.row_arg + at, on);
      if (BOTH)
        x.arg2.load(p.row_arg2 + at, on);
    }
    if (SPREAD) {
      x.coefficient.load(static_cast<const A *>(p.coefficient) + at, on);
      x.offset.load(static_cast<const A *>(p.offset) + at, on);
    }
    if (BOTH)
      mean.template load<false>(x.mean, j, 0, on);
  }

  /* Gradients of extremes are read only where the edge was the extreme. */
  template <bool WHOLE>
  DEVICE void fetch(edge &x, int j, const mark &m, bool live) const {
    if (PICK) {
      bool hit = false, hit2 = false;
      unroll<VEC>([&](int i) {
        hit = hit || x.arg[i] == m.position;
        hit2 = hit2 || (BOTH && x.arg2[i] == m.position);
      });
      grad.template load<false>(x.grad, j, 0, live && hit);
      if (BOTH)
        grad2.template load<false>(x.grad2, j, 0, live && hit2);
    }
  }
  DEVICE void start(state &, const edge &, int, int) const {}

  template <bool WHOLE, int U>
  DEVICE void step(state &z, const edge (&x)[U], const mark (&m)[U], int,
                   int sides, int left) const {
    unroll<U>([&](int u) { add<WHOLE>(z, x[u], m[u], u * sides < left); });
  }

  template <bool WHOLE>
  DEVICE void add(state &z, const edge &x, const mark &m, bool live) const {
    if (!WHOLE && !live)
      return;
    unroll<VEC>([&](int i) {
      A sum = z.now[0][0][i];
      if (PICK && x.arg[i] == m.position)
        sum += widen(x.grad.item[i]);
      if (BOTH && x.arg2[i] == m.position)
        sum += widen(x.grad2.item[i]);
      if (BOTH)
        sum +=
            x.offset[i] + x.coefficient[i] * (z.own[i] - widen(x.mean.item[i]));
      else if (SPREAD)
        sum += x.coefficient[i] * (z.own[i] - x.offset[i]);
      z.now[0][0][i] = sum;
    });
  }

  DEVICE void keep(const total (&t)[VEC], int slot, int f) const {
    sums::keep_sums(p, t, slot, f);
  }
  DEVICE void store(const total (&t)[VEC], int row, int, int f) const {
    sums::template store_sums<T>(p, t, row, f, A(1));
  }
};

/* ---- the kernel -----------------------------------------------------------
 */

template <typename T, int VEC, int L, int U, int WHAT, int W>
__global__ void
__launch_bounds__(GATHER_PIECE_WARPS * 32,
                  (gather_blocks<gradient_op<T, VEC, L, WHAT, W>, 1, U>()))
    reduce_gradients(const __grid_constant__ gather_params p) {
  gather_rows<gradient_op<T, VEC, L, WHAT, W>, L, 1, U>(p);
}

} // namespace dfgnn

#endif
