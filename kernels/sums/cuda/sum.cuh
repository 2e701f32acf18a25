/* sum.cuh - weighted sums of gathered rows */
#ifndef DFGNN_SUMS_CUDA_SUM_CUH
#define DFGNN_SUMS_CUDA_SUM_CUH

#include "kernels/common/cuda_gather.cuh"
#include "kernels/sums/cuda/params.h"

namespace dfgnn {

/* A long sum: what its additions lose by rounding is kept beside it. */
template <typename A> struct alignas(2 * sizeof(A)) exact_sum {
  A sum, lost;

  DEVICE void add(A x) {
    const A t = sum + x;
    lost += x - (t - sum);
    sum = t;
  }
  /* In an infinite sum, `lost` is NaN. */
  DEVICE A value(A more) const {
    return lost - lost == A(0) ? sum + (lost + more) : sum + more;
  }
};

/* Moves the sums so far to `older`, which a lane seldom needs and keeps in
 * local memory, to spare registers. */
template <typename A, int C, int VEC>
DEVICE void fold_sums(A (&now)[C][VEC], exact_sum<A> (&older)[C * VEC],
                      bool &folded) {
  exact_sum<A> *at = in_memory(older);
  exact_sum<A> old[C * VEC] = {};
  if (folded) {
    unroll<C * VEC>([&](int k) { old[k] = at[k]; });
  }
  unroll<C * VEC>([&](int k) {
    old[k].add(now[k / VEC][k % VEC]);
    at[k] = old[k];
    now[k / VEC][k % VEC] = A(0);
  });
  folded = true;
}

template <typename A, int C, int VEC>
DEVICE void close_sums(A (&t)[C][VEC], const A (&now)[C][VEC],
                       exact_sum<A> (&older)[C * VEC], bool folded) {
  const exact_sum<A> *at = in_memory(older);
  unroll<C * VEC>([&](int k) {
    const A x = now[k / VEC][k % VEC];
    t[k / VEC][k % VEC] = folded ? at[k].value(x) : x;
  });
}

/* The state that an Op of SUMS sums a feature keeps of a row: long sums are
 * folded, so that they stay exact. */
template <typename A, int VEC, int C, int SUMS> struct row_sums : plain_op {
  struct state {
    A now[SUMS][C][VEC];
    bool folded;
  };
  struct older {
    exact_sum<A> sums[SUMS][C * VEC];
  };
  struct total {
    A sum[SUMS];
  };

  static DEVICE void clear_sums(state &z) {
    z.folded = false;
    unroll<SUMS, C, VEC>([&](int s, int c, int i) { z.now[s][c][i] = A(0); });
  }
  DEVICE void fold(state &z, older &old, int, int, int) const {
    const bool folded = z.folded;
    unroll<SUMS>([&](int s) {
      z.folded = folded;
      fold_sums(z.now[s], old.sums[s], z.folded);
    });
  }
  DEVICE void close(total (&t)[C][VEC], const state &z, older &old,
                    bool) const {
    unroll<SUMS>([&](int s) {
      A sums[C][VEC];
      close_sums(sums, z.now[s], old.sums[s], z.folded);
      unroll<C, VEC>([&](int c, int i) { t[c][i].sum[s] = sums[c][i]; });
    });
  }
  static DEVICE total shuffle(total t, int o) {
    total other;
    unroll<SUMS>(
        [&](int s) { other.sum[s] = __shfl_xor_sync(kFullMask, t.sum[s], o); });
    return other;
  }
  static DEVICE void merge(total &t, total other) {
    unroll<SUMS>([&](int s) { t.sum[s] += other.sum[s]; });
  }

  static DEVICE void keep_sums(const gather_params &p, const total (&t)[VEC],
                               int slot, int f) {
    unroll<SUMS>([&](int s) {
      A *to = part_of<SUMS, A>(p, slot, s, f);
      unroll<VEC>([&](int i) { to[i] = t[i].sum[s]; });
    });
  }
  template <typename T>
  static DEVICE void store_sums(const gather_params &p, const total (&t)[VEC],
                                int row, int f, A factor) {
    unroll<SUMS>([&](int s) {
      const feature_tensor &to = s ? p.out_gate : p.out;
      A y[VEC];
      unroll<VEC>([&](int i) { y[i] = t[i].sum[s] * factor; });
      if (to.data) /* messages' may be unwanted */
        store_row<T, VEC>(p, to, const_cast<void *>(to.data), row, f, y);
    });
  }
};

/* Loads a number if `on`, predicated, so that no load waits for another's
 * branch. */
template <typename N> DEVICE void load_number_if(N &x, const N *p, bool on) {
  if constexpr (sizeof(N) == 4) {
    unsigned bits = reinterpret_cast<unsigned &>(x);
    ptx::load_if(bits, p, on);
    x = reinterpret_cast<N &>(bits);
  } else if (on) {
    x = __ldg(p);
  }
}

/* 16-bit numbers are widened and added by products of tensor cores with a
 * diagonal matrix of ones: in each lane, one instruction adds the four numbers
 * of two words to four sums, where arithmetic takes eight. */
template <typename T> struct widening { static constexpr unsigned kOne = 0; };
template <> struct widening<half_t> {
  static constexpr unsigned kOne = 0x3c00;
  static DEVICE void add(float *to, unsigned x, unsigned y, unsigned ones) {
    ptx::mma_flat_f16(to, x, y, ones);
  }
};
template <> struct widening<bfloat_t> {
  static constexpr unsigned kOne = 0x3f80;
  static DEVICE void add(float *to, unsigned x, unsigned y, unsigned ones) {
    ptx::mma_flat_bf16(to, x, y, ones);
  }
};
/* The lane's part of the diagonal (cuda_mma.cuh). */
template <typename T> DEVICE unsigned ones_of_lane() {
  const int lane = ptx::lane_id(), column = lane / 4 - 2 * (lane & 3);
  return column == 0   ? widening<T>::kOne
         : column == 1 ? widening<T>::kOne << 16
                       : 0;
}
/* Do sums of C vectors of T use products?  Those with factors gain nothing by
 * them, and those of several vectors take registers that they lack. */
template <typename T, int VEC, int C, int FACTOR>
constexpr bool adds_by_products() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  return sizeof(T) == 2 && VEC == 8 && C == 1 && FACTOR == FACTOR_NONE;
#else
  return false;
#endif
}

/* The factor of a row's sums. */
template <typename A>
DEVICE A spmm_factor(const gather_params &p, int row, int degree) {
  A factor = p.mean ? A(1) / A(max(degree, 1)) : A(1);
  if (p.row_scale && degree > 0)
    factor *= __ldg(static_cast<const A *>(p.row_scale) + row);
  return factor;
}

template <typename T, int VEC_, int L, int C, int FACTOR, int W>
struct spmm_op : row_sums<accumulator_t<T>, VEC_, C, 1> {
  using A = accumulator_t<T>;
  using sums = row_sums<A, VEC_, C, 1>;
  using state = typename sums::state;
  using total = typename sums::total;
  static constexpr int VEC = VEC_;
  static constexpr int F = FACTOR == FACTOR_HEADS ? C : 1;
  static constexpr int kSize = sizeof(T);
  static constexpr int kHeld =
      C * VEC * sizeof(A) / 4 + (FACTOR == FACTOR_HEADS ? 8 : 0);
  static constexpr bool kNotes = FACTOR != FACTOR_NONE;
  /* All lanes of a warp take part in a product. */
  static constexpr bool kProducts = adds_by_products<T, VEC, C, FACTOR>();

  struct edge {
    packed<T, VEC> x[C];
  };
  /* An edge's weight or, with several heads, the id by which to find it. */
  struct note {
    A weight, scale;
    int64_t id;
  };
  struct mark {
    A factor[F];
  };

  const gather_params &p;
  const lane_features<VEC, L, C, W> features;
  const lane_table<T, VEC, L, C, W> table;
  const unsigned ones;
  int head[F];

  DEVICE explicit spmm_op(const gather_params &params)
      : p(params), features(params), table(params, params.table, features),
        ones(ones_of_lane<T>()) {
    unroll<F>([&](int c) {
      const int f = features.readable(c);
      head[c] = FACTOR != FACTOR_HEADS ? 0
                : p.heads_inner        ? f % p.heads
                                       : f / p.dim;
    });
  }

  DEVICE void begin(state &z, int, int) const { sums::clear_sums(z); }

  DEVICE note look(const edge_ahead &e, bool live) const {
    note n;
    n.weight = live && (FACTOR == FACTOR_HEADS || !p.weights) ? A(1) : A(0);
    n.scale = A(1);
    n.id = 0;
    if constexpr (FACTOR != FACTOR_NONE) {
      n.id = e.edge();
      if (FACTOR == FACTOR_EDGE)
        load_number_if(n.weight, static_cast<const A *>(p.weights) + n.id,
                       live && p.weights);
      load_number_if(n.scale,
                     static_cast<const A *>(p.gathered_scale) + e.index,
                     live && p.gathered_scale);
    }
    return n;
  }

  template <int U>
  DEVICE void pass(mark (&m)[U], const note &n, int from, int sides) const {
    if constexpr (FACTOR == FACTOR_HEADS) {
      note each[U];
      unroll<U>([&](int u) {
        each[u] = {__shfl_sync(kFullMask, n.weight, from + u * sides),
                   __shfl_sync(kFullMask, n.scale, from + u * sides),
                   __shfl_sync(kFullMask, n.id, from + u * sides)};
      });
      unroll<U, F>([&](int u, int c) {
        m[u].factor[c] = each[u].weight;
        load_number_if(m[u].factor[c],
                       static_cast<const A *>(p.weights) +
                           each[u].id * p.heads + head[c],
                       p.weights && each[u].weight != A(0));
      });
      unroll<U, F>([&](int u, int c) { m[u].factor[c] *= each[u].scale; });
    } else if constexpr (FACTOR == FACTOR_EDGE) {
      unroll<U>([&](int u) {
        m[u].factor[0] = __shfl_sync(kFullMask, n.weight, from + u * sides);
      });
      if (p.gathered_scale) {
        unroll<U>([&](int u) {
          m[u].factor[0] *= __shfl_sync(kFullMask, n.scale, from + u * sides);
        });
      }
    }
  }

  template <bool WHOLE> DEVICE void load(edge &x, int j, bool live) const {
    unroll<C>([&](int c) {
      table.template load<WHOLE>(x.x[c], j, c, live && features.has(c));
    });
  }
  template <bool WHOLE>
  DEVICE void fetch(edge &, int, const mark &, bool) const {}
  DEVICE void start(state &, const edge &, int, int) const {}

  /* Adds an edge to the sum of a step. */
  DEVICE static A part(A sum, const edge &x, const mark &m, int c, int i) {
    const A y = widen(x.x[c].item[i]);
    return FACTOR == FACTOR_NONE
               ? sum + y
               : sum + m.factor[FACTOR == FACTOR_HEADS ? c : 0] * y;
  }

  template <bool WHOLE>
  DEVICE void add(state &z, const edge &x, const mark &m, int,
                  bool live) const {
    if (!WHOLE && !live)
      return;
    unroll<C, VEC>([&](int c, int i) {
      z.now[0][c][i] = part(z.now[0][c][i], x, m, c, i);
    });
  }

  /* Has a lane of the warp totals that are not finite?  Zeros of the diagonal
   * times what is not finite are NaN, in other lanes, too. */
  static DEVICE bool spoilt(const total (&t)[C][VEC]) {
    A zero = A(0);
    unroll<C, VEC>([&](int c, int i) { zero += A(0) * t[c][i].sum[0]; });
    return __any_sync(kFullMask, zero != A(0));
  }

  /* Edges beyond the row add zero times zero. */
  template <bool WHOLE, int U>
  DEVICE void step(state &z, const edge (&x)[U], const mark (&m)[U], int, int,
                   int) const {
    if constexpr (kProducts) {
      unroll<U, C>([&](int u, int c) {
        const uint4 v = x[u].x[c].bits;
        widening<T>::add(z.now[0][c], v.x, v.y, ones);
        widening<T>::add(z.now[0][c] + 4, v.z, v.w, ones);
      });
      return;
    }
    unroll<C, VEC>([&](int c, int i) {
      const A y = widen(x[0].x[c].item[i]);
      A sum = FACTOR == FACTOR_NONE
                  ? y
                  : m[0].factor[FACTOR == FACTOR_HEADS ? c : 0] * y;
#pragma unroll
      for (int u = 1; u < U; ++u)
        sum = part(sum, x[u], m[u], c, i);
      z.now[0][c][i] += sum;
    });
  }

  DEVICE void keep(const total (&t)[VEC], int slot, int f) const {
    sums::keep_sums(p, t, slot, f);
  }
  DEVICE void store(const total (&t)[VEC], int row, int degree, int f) const {
    sums::template store_sums<T>(p, t, row, f, spmm_factor<A>(p, row, degree));
  }
};

/* ---- kernels --------------------------------------------------------------
 */

template <typename T, int VEC, int L, int C, int U, int FACTOR, int W>
__global__ void
__launch_bounds__(GATHER_PIECE_WARPS * 32,
                  (gather_blocks<spmm_op<T, VEC, L, C, FACTOR, W>, C, U>()))
    spmm_rows(const __grid_constant__ gather_params p) {
  gather_rows<spmm_op<T, VEC, L, C, FACTOR, W>, L, C, U>(p);
}

} // namespace dfgnn

#endif
