/* cuda_spmm.cuh - weighted sums of gathered rows */
#ifndef DFGNN_SPMM_CUDA_SPMM_CUH
#define DFGNN_SPMM_CUDA_SPMM_CUH

#include "kernels/common/cuda_gather.cuh"
#include "kernels/spmm/cuda_spmm.h"

namespace dfgnn {

/* A long sum: what rounding lost of the older part is kept beside it. */
template <typename A> struct exact_sum {
  A sum, lost;

  __device__ __forceinline__ void add(A x) {
    const A t = sum + x;
    lost += x - (t - sum);
    sum = t;
  }
  /* An infinite sum has lost NaN. */
  __device__ __forceinline__ A value(A more) const {
    return lost - lost == A(0) ? sum + (lost + more) : sum + more;
  }
};

template <typename A>
__device__ __forceinline__ A spmm_result(const gather_params &p, int row,
                                         int degree, A sum) {
  if (degree == 0)
    return A(0);
  if (p.mean)
    sum /= A(degree);
  if (p.row_scale)
    sum *= __ldg(static_cast<const A *>(p.row_scale) + row);
  return sum;
}

template <typename T, int VEC_, int L, int C, int FACTOR> struct spmm_op {
  using A = accumulator_t<T>;
  static constexpr int VEC = VEC_;
  static constexpr int F = FACTOR == SPMM_HEADS ? C : 1;
  static constexpr int kSize = sizeof(T);
  static constexpr int kHeld =
      3 * C * VEC * sizeof(A) / 4 + (FACTOR == SPMM_HEADS ? 8 : 0);

  struct edge {
    packed<T, VEC> x[C];
    A factor[F];
  };
  struct state {
    A now[C][VEC];
    exact_sum<A> old[C][VEC];
  };
  using total = A;

  const gather_params &p;
  const lane_features<VEC, L, C> features;
  const lane_table<T, VEC, L, C> table;
  int head[F];

  __device__ __forceinline__ explicit spmm_op(const gather_params &params)
      : p(params), features(params), table(params, params.table, features) {
#pragma unroll
    for (int c = 0; c < F; ++c) {
      const int f = features.readable(c);
      head[c] = FACTOR != SPMM_HEADS ? 0
                : p.heads_inner      ? f % p.heads
                                     : f / p.dim;
    }
  }

  __device__ __forceinline__ void begin(state &z, int, int) const {
#pragma unroll
    for (int c = 0; c < C; ++c)
#pragma unroll
      for (int i = 0; i < VEC; ++i) {
        z.now[c][i] = A(0);
        z.old[c][i] = {A(0), A(0)};
      }
  }

  template <bool WHOLE>
  __device__ __forceinline__ void load(edge &x, int j, int64_t e,
                                       bool live) const {
#pragma unroll
    for (int c = 0; c < C; ++c)
      table.template load<WHOLE>(x.x[c], j, c, live && features.has(c));
    if constexpr (FACTOR != SPMM_PLAIN) {
      if (WHOLE || live)
        read_factors(x, j, e);
    }
  }

  __device__ __forceinline__ void read_factors(edge &x, int j,
                                               int64_t e) const {
    const A scale = p.gathered_scale
                        ? __ldg(static_cast<const A *>(p.gathered_scale) + j)
                        : A(1);
    if (p.edge_ids.array)
      e = p.edge_ids[e];
#pragma unroll
    for (int c = 0; c < F; ++c)
      x.factor[c] = p.weights
                        ? scale * __ldg(static_cast<const A *>(p.weights) +
                                        e * p.heads + head[c])
                        : scale;
  }

  template <bool WHOLE>
  __device__ __forceinline__ void fetch(edge &, int, bool) const {}
  __device__ __forceinline__ void start(state &, const edge &, int, int) const {
  }

  template <bool WHOLE>
  __device__ __forceinline__ void add(state &z, const edge &x, int,
                                      bool live) const {
    if (!WHOLE && !live)
      return;
#pragma unroll
    for (int c = 0; c < C; ++c)
#pragma unroll
      for (int i = 0; i < VEC; ++i) {
        const A y = widen(x.x[c].item[i]);
        if (FACTOR == SPMM_PLAIN)
          z.now[c][i] += y;
        else
          z.now[c][i] += x.factor[FACTOR == SPMM_HEADS ? c : 0] * y;
      }
  }

  __device__ __forceinline__ void fold(state &z) const {
#pragma unroll
    for (int c = 0; c < C; ++c)
#pragma unroll
      for (int i = 0; i < VEC; ++i) {
        z.old[c][i].add(z.now[c][i]);
        z.now[c][i] = A(0);
      }
  }

  __device__ __forceinline__ void close(total (&t)[C][VEC], const state &z,
                                        bool) const {
#pragma unroll
    for (int c = 0; c < C; ++c)
#pragma unroll
      for (int i = 0; i < VEC; ++i)
        t[c][i] = z.old[c][i].value(z.now[c][i]);
  }

  static __device__ __forceinline__ total shuffle(total t, int o) {
    return __shfl_xor_sync(kFullMask, t, o);
  }
  static __device__ __forceinline__ void merge(total &t, total other) {
    t += other;
  }

  __device__ __forceinline__ void keep(const total (&t)[VEC], int slot,
                                       int f) const {
    A *to = part_of<1, A>(p, slot, 0, f);
#pragma unroll
    for (int i = 0; i < VEC; ++i)
      to[i] = t[i];
  }

  __device__ __forceinline__ void store(const total (&t)[VEC], int row,
                                        int degree, int f) const {
    A y[VEC];
#pragma unroll
    for (int i = 0; i < VEC; ++i)
      y[i] = spmm_result(p, row, degree, t[i]);
    store_row<T, VEC>(p, p.out, const_cast<void *>(p.out.data), row, f, y);
  }
};

/* ---- instances: a file a storage type ------------------------------------ */

struct spmm_instance {
  int lanes, vectors, unroll;
  gather_kernel kernel[SPMM_FACTORS];
};

template <int N>
gather_kernel spmm_find(const spmm_instance (&table)[N], int factor,
                        const gather_shape *shape) {
  for (const spmm_instance &i : table)
    if (i.lanes == shape->lanes && i.vectors == shape->vectors &&
        i.unroll == shape->unroll)
      return i.kernel[factor];
  return nullptr;
}

#define DFGNN_SPMM_INSTANCE(kernel, T, VEC, L, C, U)                           \
  {L,                                                                          \
   C,                                                                          \
   U,                                                                          \
   {kernel<spmm_op<T, VEC, L, C, SPMM_PLAIN>, L, C, U>,                        \
    kernel<spmm_op<T, VEC, L, C, SPMM_FACTOR>, L, C, U>,                       \
    kernel<spmm_op<T, VEC, L, C, SPMM_HEADS>, L, C, U>}},

#define SPMM_ROWS(L, C, U) DFGNN_SPMM_INSTANCE(gather_rows, T, V, L, C, U)
#define SPMM_SHARES(L, C, U)                                                   \
  DFGNN_SPMM_INSTANCE(gather_shares_of, T, V, L, C, U)

template <typename T>
gather_kernel spmm_wide(int what, const gather_shape *shape) {
  constexpr int V = 16 / sizeof(T);
  static const spmm_instance rows[] = {DFGNN_SPMM_ROWS(SPMM_ROWS)};
  static const spmm_instance shares[] = {DFGNN_SPMM_SHARES(SPMM_SHARES)};
  return what & SPMM_BALANCED ? spmm_find(shares, what & ~SPMM_BALANCED, shape)
                              : spmm_find(rows, what, shape);
}

template <typename T>
gather_kernel spmm_half(int what, const gather_shape *shape) {
  constexpr int V = 16 / sizeof(T);
  static const spmm_instance rows[] = {DFGNN_SPMM_LIGHT(SPMM_ROWS)};
  static const spmm_instance shares[] = {DFGNN_SPMM_SHARES_LIGHT(SPMM_SHARES)};
  return what & SPMM_BALANCED ? spmm_find(shares, what & ~SPMM_BALANCED, shape)
                              : spmm_find(rows, what, shape);
}

template <typename T>
gather_kernel spmm_any(int what, const gather_shape *shape) {
  constexpr int V = 1;
  static const spmm_instance rows[] = {DFGNN_GATHER_NARROW(SPMM_ROWS)};
  static const spmm_instance shares[] = {DFGNN_GATHER_NARROW(SPMM_SHARES)};
  return what & SPMM_BALANCED ? spmm_find(shares, what & ~SPMM_BALANCED, shape)
                              : spmm_find(rows, what, shape);
}

#undef SPMM_ROWS
#undef SPMM_SHARES

} // namespace dfgnn

#endif
