/* extremes.cuh - extremes and moments of gathered rows, in one pass
 *
 * Moments are sums of differences from the row's first value, later from the
 * mean of its first values, so that values far from 0 lose no digits. */
#ifndef DFGNN_SUMS_CUDA_EXTREMES_CUH
#define DFGNN_SUMS_CUDA_EXTREMES_CUH

#include "kernels/common/cuda_gather.cuh"
#include "kernels/sums/cuda/params.h"

namespace dfgnn {

/* Does x replace the best value so far?  A NaN is before all numbers. */
template <bool MIN, typename A> DEVICE bool before(A x, A best) {
  return !(MIN ? x >= best : x <= best) && best == best;
}

template <bool MIN> DEVICE double better(double a, double b) {
  return before<MIN>(b, a) ? b : a;
}
template <bool MIN> DEVICE float better(float a, float b) {
  return MIN ? ptx::min_or_nan(a, b) : ptx::max_or_nan(a, b);
}

constexpr int kNoEdge = 0x7fffffff;

/* An extreme and, if ARG, the edge from which it came. */
template <bool MIN, bool ARG, typename A> struct extreme {
  A value;
  int arg;

  DEVICE void begin(int first) {
    value = MIN ? A(INFINITY) : -A(INFINITY);
    arg = first; /* it stays if all values are this infinity */
  }
  DEVICE void add(A x, int edge) {
    if (!ARG) {
      value = better<MIN>(value, x);
    } else if (before<MIN>(x, value)) {
      value = x;
      arg = edge;
    }
  }
  DEVICE void merge(const extreme &other) {
    if (!ARG) {
      value = better<MIN>(value, other.value);
      return;
    }
    if (before<MIN>(other.value, value) ||
        (!before<MIN>(value, other.value) && other.arg < arg))
      *this = other;
  }
  DEVICE extreme shuffle(int o) const {
    extreme other = {__shfl_xor_sync(kFullMask, value, o), arg};
    if (ARG)
      other.arg = __shfl_xor_sync(kFullMask, arg, o);
    return other;
  }
};

/* Sums of x - shift and of its square. */
template <typename A> struct moment_sums { A shift, sum, square; };

/* The results of one feature over a row or part of a row. */
template <int WHAT, typename A> struct reduced {
  static constexpr bool ARG = (WHAT & REDUCE_ARG) != 0;
  static constexpr int kExtremeParts = ARG ? 2 : 1;
  static constexpr int PARTS = (WHAT & REDUCE_MIN ? kExtremeParts : 0) +
                               (WHAT & REDUCE_MAX ? kExtremeParts : 0) +
                               (WHAT & REDUCE_MOMENTS ? 3 : 0);
  extreme<true, ARG, A> least;
  extreme<false, ARG, A> most;
  moment_sums<A> moments;

  template <bool MIN>
  static DEVICE void keep_extreme(const gather_params &p, int64_t slot,
                                  int part, int f,
                                  const extreme<MIN, ARG, A> &x) {
    *part_of<PARTS, A>(p, slot, part, f) = x.value;
    if (ARG)
      *reinterpret_cast<int *>(part_of<PARTS, A>(p, slot, part + 1, f)) = x.arg;
  }
  template <bool MIN>
  static DEVICE void find_extreme(extreme<MIN, ARG, A> &x,
                                  const gather_params &p, int64_t slot,
                                  int part, int f) {
    x.value = *part_of<PARTS, A>(p, slot, part, f);
    x.arg = kNoEdge;
    if (ARG)
      x.arg = *reinterpret_cast<int *>(part_of<PARTS, A>(p, slot, part + 1, f));
  }

  DEVICE void keep(const gather_params &p, int64_t slot, int f) const {
    int part = 0;
    if (WHAT & REDUCE_MOMENTS) {
      *part_of<PARTS, A>(p, slot, 0, f) = moments.shift;
      *part_of<PARTS, A>(p, slot, 1, f) = moments.sum;
      *part_of<PARTS, A>(p, slot, 2, f) = moments.square;
      part = 3;
    }
    if (WHAT & REDUCE_MIN)
      keep_extreme(p, slot, part, f, least);
    if (WHAT & REDUCE_MAX)
      keep_extreme(p, slot, PARTS - kExtremeParts, f, most);
  }
  DEVICE void find(const gather_params &p, int64_t slot, int f) {
    int part = 0;
    if (WHAT & REDUCE_MOMENTS) {
      moments.shift = *part_of<PARTS, A>(p, slot, 0, f);
      moments.sum = *part_of<PARTS, A>(p, slot, 1, f);
      moments.square = *part_of<PARTS, A>(p, slot, 2, f);
      part = 3;
    }
    if (WHAT & REDUCE_MIN)
      find_extreme(least, p, slot, part, f);
    if (WHAT & REDUCE_MAX)
      find_extreme(most, p, slot, PARTS - kExtremeParts, f);
  }
};

/* ---- results of rows ----------------------------------------------------- */

template <int VEC, bool MIN, bool ARG, typename A>
DEVICE void store_args(int *to, const extreme<MIN, ARG, A> (&x)[VEC],
                       bool empty) {
  constexpr int N = VEC > 4 ? 4 : VEC;
#pragma unroll
  for (int k = 0; k < VEC; k += N) {
    packed<int, N> y;
    unroll<N>([&](int i) { y.item[i] = empty ? -1 : x[k + i].arg; });
    __stcs(reinterpret_cast<typename packed<int, N>::word_t *>(to + k), y.bits);
  }
}

template <typename T, int VEC, bool MIN, bool ARG, typename A>
DEVICE void store_extremes(const gather_params &p, void *out, int *arg, int row,
                           int degree, int f,
                           const extreme<MIN, ARG, A> (&x)[VEC]) {
  A y[VEC];
  unroll<VEC>([&](int i) { y[i] = degree == 0 ? A(0) : x[i].value; });
  store_row<T, VEC>(p, p.out, out, row, f, y);
  if (ARG && arg)
    store_args<VEC>(arg + int64_t(row) * p.width + f, x, degree == 0);
}

DEVICE double root(double x) { return sqrt(x); }
/* The error is within an ulp. */
DEVICE float root(float x) { return ptx::sqrt_approximate(x); }

/* Writes var, std or, for PNA, mean and std; with row_grad, the coefficient and
 * the mean for the gradient of var or std instead. */
template <typename T, int VEC, typename A>
DEVICE void store_moments(const gather_params &p, bool pna, int row, int degree,
                          int f, const A (&mean)[VEC],
                          const A (&variance)[VEC]) {
  A y[VEC];
  unroll<VEC>([&](int i) {
    y[i] = !pna && !p.square_root   ? variance[i]
           : variance[i] <= A(1e-5) ? A(0)
                                    : root(variance[i]);
  }); /* a NaN stays */
  if (pna) {
    store_row<T, VEC>(p, p.out, const_cast<void *>(p.out.data), row, f, mean);
    store_row<T, VEC>(p, p.out, p.out_std, row, f, y);
    return;
  }
  if (!p.row_grad.data) {
    store_row<T, VEC>(p, p.out, const_cast<void *>(p.out.data), row, f, y);
    return;
  }
  A grad[VEC];
  load_row<T, VEC>(grad, p, p.row_grad, row, f);
  const int64_t at = int64_t(row) * p.width + f;
  unroll<VEC>([&](int i) {
    static_cast<A *>(p.coefficient)[at + i] =
        degree == 0      ? A(0)
        : !p.square_root ? grad[i] * A(2) / A(degree)
        : y[i] == A(0)   ? grad[i] * A(0)
                         : grad[i] / (A(degree) * y[i]);
    static_cast<A *>(p.offset)[at + i] = mean[i];
  });
}

/* ---- the rows ------------------------------------------------------------ */

template <typename T, int VEC_, int L, int C, int WHAT, int W>
struct reduce_op : plain_op {
  using A = accumulator_t<T>;
  static constexpr int VEC = VEC_;
  static constexpr bool ARG = (WHAT & REDUCE_ARG) != 0;
  static constexpr int kSize = sizeof(T);
  static constexpr int kHeld =
      C * VEC * sizeof(A) / 4 *
      ((WHAT & REDUCE_MOMENTS ? 3 : 0) + (WHAT & REDUCE_MIN ? 1 + ARG : 0) +
       (WHAT & REDUCE_MAX ? 1 + ARG : 0));

  struct edge {
    packed<T, VEC> x[C];
  };
  struct mark {};
  struct note {};
  static constexpr bool kNotes = false;
  struct state {
    reduced<WHAT, A> now[C][VEC];
    bool folded;
  };
  struct alignas(2 * sizeof(A)) older_sums {
    A sum, square;
  };
  using older = older_sums[C * VEC];
  using total = reduced<WHAT, A>;

  const gather_params &p;
  const lane_features<VEC, L, C, W> features;
  const lane_table<T, VEC, L, C, W> table;

  DEVICE explicit reduce_op(const gather_params &params)
      : p(params), features(params), table(params, params.table, features) {}

  DEVICE void begin(state &z, int, int first) const {
    unroll<C, VEC>([&](int c, int i) {
      z.now[c][i].least.begin(first);
      z.now[c][i].most.begin(first);
      z.now[c][i].moments = {A(0), A(0), A(0)};
    });
    z.folded = false;
  }

  DEVICE note look(const edge_ahead &, bool) const { return {}; }
  template <int U>
  DEVICE void pass(mark (&)[U], const note &, int, int) const {}

  /* A single extreme needs no mask: numbers that are not read are infinities,
   * which no value is worse than. */
  static constexpr bool kFilled = WHAT == REDUCE_MIN || WHAT == REDUCE_MAX;

  template <bool WHOLE> DEVICE void load(edge &x, int j, bool live) const {
    unroll<C>([&](int c) {
      const bool on = live && features.has(c);
      if constexpr (WHOLE || !kFilled) {
        table.template load<WHOLE>(x.x[c], j, c, on);
      } else {
        unroll<VEC>([&](int i) {
          x.x[c].item[i] =
              narrow<T>(WHAT == REDUCE_MIN ? A(INFINITY) : -A(INFINITY));
        });
        load_if<VEC>(x.x[c], table.at(j, c), on);
      }
    });
  }
  template <bool WHOLE>
  DEVICE void fetch(edge &, int, const mark &, bool) const {}

  /* The first side's first value shifts all sides, unless it is infinite, which
   * would make the mean NaN. */
  DEVICE void start(state &z, const edge &x, int lanes, int group) const {
    if constexpr ((WHAT & REDUCE_MOMENTS) != 0) {
      unroll<C, VEC>([&](int c, int i) {
        shift_by(z.now[c][i], widen(x.x[c].item[i]), lanes, group);
      });
    }
  }

  DEVICE static void shift_by(total &now, A y, int lanes, int group) {
    if (group > lanes)
      y = __shfl_sync(kFullMask, y,
                      (threadIdx.x & 31 & ~(group - 1)) |
                          (threadIdx.x & (lanes - 1)));
    now.moments.shift = y - y == A(0) ? y : A(0);
  }

  template <bool WHOLE, int U>
  DEVICE void step(state &z, const edge (&x)[U], const mark (&m)[U],
                   int position, int sides, int left) const {
    unroll<U>([&](int u) {
      add<WHOLE>(z, x[u], m[u], position + u * sides, u * sides < left);
    });
  }

  DEVICE static void take(total &now, A y, int position) {
    if (WHAT & REDUCE_MIN)
      now.least.add(y, position);
    if (WHAT & REDUCE_MAX)
      now.most.add(y, position);
    if (WHAT & REDUCE_MOMENTS) {
      const A d = y - now.moments.shift;
      now.moments.sum += d;
      now.moments.square += d * d;
    }
  }

  template <bool WHOLE>
  DEVICE void add(state &z, const edge &x, const mark &, int position,
                  bool live) const {
    if (!WHOLE && !kFilled && !live)
      return;
    unroll<C, VEC>([&](int c, int i) {
      take(z.now[c][i], widen(x.x[c].item[i]), position);
    });
  }

  /* Moves the shift of a long row to about its mean: sums of differences from
   * there stay small, and so do their rounding errors. */
  DEVICE void recentre(state &z, int edges, int lanes, int group) const {
    const int sides = group / lanes;
    const A count = A((max(edges, 0) + sides - 1) / sides);
    unroll<C, VEC>([&](int c, int i) {
      moment_sums<A> &m = z.now[c][i].moments;
      A by = count > A(0) ? m.sum / count : A(0);
      if (group > lanes)
        by = __shfl_sync(kFullMask, by,
                         (threadIdx.x & 31 & ~(group - 1)) |
                             (threadIdx.x & (lanes - 1)));
      const A shift = m.shift + by;
      by = shift - shift == A(0) ? shift - m.shift : A(0);
      m.shift += by;
      m.square -= by * (m.sum + m.sum - count * by);
      m.sum -= count * by;
    });
  }

  DEVICE void fold(state &z, older &old, int edges, int lanes,
                   int group) const {
    if constexpr ((WHAT & REDUCE_MOMENTS) != 0) {
      older_sums *at = in_memory(old);
      older_sums sums[C * VEC] = {};
      if (z.folded) {
        unroll<C * VEC>([&](int k) { sums[k] = at[k]; });
      } else {
        recentre(z, edges, lanes, group);
      }
      unroll<C * VEC>([&](int k) {
        moment_sums<A> &m = z.now[k / VEC][k % VEC].moments;
        at[k] = {sums[k].sum + m.sum, sums[k].square + m.square};
        m.sum = m.square = A(0);
      });
      z.folded = true;
    }
  }

  DEVICE void close(total (&t)[C][VEC], const state &z, older &old,
                    bool any) const {
    unroll<C * VEC>([&](int k) {
      total &x = t[k / VEC][k % VEC];
      x = z.now[k / VEC][k % VEC];
      if (ARG && !any)
        x.least.arg = x.most.arg = kNoEdge;
    });
    if ((WHAT & REDUCE_MOMENTS) != 0 && z.folded) {
      const older_sums *at = in_memory(old);
      unroll<C * VEC>([&](int k) {
        moment_sums<A> &m = t[k / VEC][k % VEC].moments;
        m.sum += at[k].sum;
        m.square += at[k].square;
      });
    }
  }

  static DEVICE total shuffle(const total &t, int o) {
    total other = t;
    if (WHAT & REDUCE_MIN)
      other.least = t.least.shuffle(o);
    if (WHAT & REDUCE_MAX)
      other.most = t.most.shuffle(o);
    if (WHAT & REDUCE_MOMENTS) {
      other.moments.sum = __shfl_xor_sync(kFullMask, t.moments.sum, o);
      other.moments.square = __shfl_xor_sync(kFullMask, t.moments.square, o);
    }
    return other;
  }
  static DEVICE void merge(total &t, const total &other) {
    if (WHAT & REDUCE_MIN)
      t.least.merge(other.least);
    if (WHAT & REDUCE_MAX)
      t.most.merge(other.most);
    t.moments.sum += other.moments.sum;
    t.moments.square += other.moments.square;
  }

  DEVICE void keep(const total (&t)[VEC], int slot, int f) const {
    unroll<VEC>([&](int i) { t[i].keep(p, slot, f + i); });
  }

  DEVICE void store(const total (&t)[VEC], int row, int degree, int f) const {
    constexpr bool pna = (WHAT & REDUCE_ALL) == REDUCE_ALL;
    if (WHAT & REDUCE_MIN) {
      extreme<true, ARG, A> x[VEC];
      unroll<VEC>([&](int i) { x[i] = t[i].least; });
      store_extremes<T, VEC>(p,
                             pna ? p.out_min : const_cast<void *>(p.out.data),
                             p.arg_min, row, degree, f, x);
    }
    if (WHAT & REDUCE_MAX) {
      extreme<false, ARG, A> x[VEC];
      unroll<VEC>([&](int i) { x[i] = t[i].most; });
      store_extremes<T, VEC>(p,
                             pna ? p.out_max : const_cast<void *>(p.out.data),
                             p.arg_max, row, degree, f, x);
    }
    if (WHAT & REDUCE_MOMENTS) {
      A mean[VEC], variance[VEC];
      const A inverse = A(1) / A(degree > 0 ? degree : 1);
      unroll<VEC>([&](int i) {
        const moment_sums<A> &m = t[i].moments;
        const A shifted = m.sum * inverse;
        const A v = (m.square - m.sum * shifted) * inverse;
        mean[i] = degree == 0 ? A(0) : m.shift + shifted;
        variance[i] = degree == 0 || v < A(0) ? A(0) : v; /* a NaN stays */
      });
      store_moments<T, VEC>(p, pna, row, degree, f, mean, variance);
    }
  }
};

/* ---- the kernel -----------------------------------------------------------
 */

template <typename T, int VEC, int L, int C, int U, int WHAT, int W>
__global__ void
__launch_bounds__(GATHER_PIECE_WARPS * 32,
                  (gather_blocks<reduce_op<T, VEC, L, C, WHAT, W>, C, U>()))
    reduce_rows(const __grid_constant__ gather_params p) {
  gather_rows<reduce_op<T, VEC, L, C, WHAT, W>, L, C, U>(p);
}

} // namespace dfgnn

#endif
