/* edges_weight.cuh - the gradient of W: sums over rows of outer products, of
 * the query and sum dS e, of dO and sum P e
 *
 * A block takes every n-th group of ROWS rows, or items of split rows, and
 * keeps the sums of a slice of W in registers: UNITS times 16 features of SH
 * heads.  Each warp first makes sum dS e and sum P e of one row from (P, dS),
 * while q and dO come; all make the products.  The blocks' sums are added
 * afterwards, in their order. */
#ifndef DFGNN_ATTENTION_CUDA_EDGES_WEIGHT_CUH
#define DFGNN_ATTENTION_CUDA_EDGES_WEIGHT_CUH

#include "kernels/attention/cuda/edges_project.cuh"
#include "kernels/attention/cuda/schedule.cuh"

namespace dfgnn {

template <class K>
struct edge_outer
    : edge_lanes<typename K::type, 1, K::lanes, K::head_lanes, K::states,
                 K::slice_heads, 1, 1, K::edge_dim + K::ones> {
  using map =
      edge_lanes<typename K::type, 1, K::lanes, K::head_lanes, K::states,
                 K::slice_heads, 1, 1, K::edge_dim + K::ones>;
  using T = typename K::type;
  static constexpr int S = K::states, SH = K::slice_heads, UNITS = K::slice;
  static constexpr int HEADS = K::heads, DIM = K::dim, FE = K::edge_dim;
  static constexpr int ROWS = K::warps;
  using map::FP, map::FPL, map::SIDES;
  using typename map::A;
  static constexpr bool KEYS = K::use & EDGES_KEYS;
  static constexpr bool VALUES = K::use & EDGES_VALUES;
  static constexpr int F = FE + K::ones, CHUNK = edge_chunk_of(FP);
  static constexpr int HEAD_UNITS = ceil_div(DIM, 16), NT = ceil_div(F, 8);
  static constexpr int EACH = ceil_div(UNITS, ROWS);
  static constexpr int SUMS =
      sizeof(T) == 8 ? ceil_div(UNITS * 16 * F, ROWS * 32) : EACH * NT * 4;
  static constexpr int ROW = ceil_div(SH * FP, 32) * 32 + 8; /* banks differ */
  static constexpr int TILE = ROWS * ROW;
  using chunk = edge_chunk<T, FE, K::ones, FP, CHUNK>;
  using rows_of = edge_rows<K, SH>;
  static_assert(UNITS < HEAD_UNITS ? SH == 1 : UNITS == SH * HEAD_UNITS,
                "a slice is heads, or a part of one");

  const edges_params &p;
  A *tile; /* [2][ROWS][ROW]: scale sum dS e, sum P e */
  chunk features;
  rows_of queries, grads;
  int unit0;   /* the first unit of the slice */
  bool *there; /* [ROWS]: does the row have edges? */

  /* The head of the slice's head 0. */
  DEVICE int head0() const { return unit0 / HEAD_UNITS; }

  DEVICE void fetch(typename chunk::early &e, const row_edges &w,
                    int at) const {
    features.fetch(e, attr_of(w, at), min(CHUNK, w.degree - at));
  }
  DEVICE const T *attr_of(const row_edges &w, int at) const {
    return static_cast<const T *>(p.attr) +
           (w.indices - p.schedule.indices + at) * FE;
  }

  /* Finds sum dS e and sum P e of a row. */
  DEVICE void sum_row(typename chunk::early &e, const row_edges &w) const {
    constexpr int U = 4;
    const int64_t begin = w.indices - p.schedule.indices;
    A keys[S][FPL], values[S][FPL];
    unroll<S, FPL>([&](int h, int f) { keys[h][f] = values[h][f] = A(0); });
    for (int at = 0; at < w.degree; at += CHUNK) {
      const int count = min(CHUNK, w.degree - at);
      if (at > 0)
        fetch(e, w, at);
      features.load(e, attr_of(w, at), count,
                    (count + U * SIDES - 1) / (U * SIDES) * (U * SIDES));
#pragma unroll 1
      for (int i = this->side(); i - this->side() < count; i += U * SIDES) {
        A weight[U * S], ds[U * S];
        unroll<U * S>([&](int u) {
          const int edge = i + u / S * SIDES,
                    head = head0() + this->head(u % S);
          weight[u] = ds[u] = A(0);
          if (edge < count && this->has_head(u % S) && head < HEADS)
            edge_pair(weight[u], ds[u], p.pairs,
                      (begin + at + edge) * HEADS + head);
        });
        unroll<U>([&](int u) {
          A x[FPL];
          this->share(x, features.at + (i + u * SIDES) * FP);
          unroll<S, FPL>([&](int h, int f) {
            keys[h][f] += ds[u * S + h] * x[f];
            values[h][f] += weight[u * S + h] * x[f];
          });
        });
      }
      __syncwarp();
    }
    this->sum_sides(keys);
    this->sum_sides(values);
    if (this->side() != 0)
      return;
    unroll<S>([&](int h) {
      if (this->has_head(h))
        unroll<FPL>([&](int f) {
          A *to = tile + threadIdx.x / 32 * ROW + this->head(h) * FP +
                  this->part() * FPL + f;
          to[0] = keys[h][f] * A(p.scale);
          to[TILE] = values[h][f];
        });
    });
  }

  DEVICE void products(float (&sums)[SUMS], int row0, int rows) const {
    if (KEYS)
      product(sums, queries, p.query, tile, row0, rows);
    if (VALUES)
      product(sums, grads, p.grad_out, tile + TILE, row0, rows);
  }

  /* Adds the products of EACH units; those of a head share a fragment. */
  DEVICE void product(float (&sums)[SUMS], const rows_of &x,
                      const tensor_view &tensor, const A *from, int row0,
                      int rows) const {
    static_assert(ROWS == 8, "the products are of eight rows");
    const int g = lane_id() / 4, t = lane_id() & 3;
    const bool used[2] = {there[t], there[t + 4]};
    fragment<2> b[NT];
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
      const int unit = threadIdx.x / 32 * EACH + i, part = unit0 + unit;
      const int head = part / HEAD_UNITS - head0();
      const int d = part % HEAD_UNITS * 16 + 2 * g;
      if (unit >= UNITS || part >= HEADS * HEAD_UNITS)
        break;
      if (i == 0 || part % HEAD_UNITS == 0)
        unroll<NT, 2>([&](int n, int j) {
          b[n].template set<false>(
              j, n * 8 + g < F && used[j]
                     ? from[(t + 4 * j) * ROW + head * FP + n * 8 + g]
                     : 0.0f);
        });
      fragment<4> a;
      unroll<2>([&](int j) {
        A y[2] = {A(0), A(0)};
        if (used[j])
          x.pair(y, tensor, row0, rows, head0(), t + 4 * j, head, d);
        unroll<2>([&](int k) { a.template set<is_tf32<T>>(2 * j + k, y[k]); });
      });
      unroll<NT>([&](int n) {
        mma_all<!is_tf32<T>, true>(
            *reinterpret_cast<float(*)[4]>(&sums[(i * NT + n) * 4]), a, b[n]);
      });
    }
  }

  DEVICE void products(double (&sums)[SUMS], int row0, int rows) const {
#pragma unroll 1
    for (int r = 0; r < rows; ++r)
#pragma unroll
      for (int i = 0; i < SUMS; ++i) {
        int unit, d, f;
        if (!there[r] || !place(i, unit, d, f))
          continue;
        const int head = unit / HEAD_UNITS - head0();
        const A *from = tile + r * ROW + head * FP + f;
        A y[2];
        if (KEYS) {
          queries.pair(y, p.query, row0, rows, head0(), r, head, d & ~1);
          sums[i] += y[d & 1] * from[0];
        }
        if (VALUES) {
          grads.pair(y, p.grad_out, row0, rows, head0(), r, head, d & ~1);
          sums[i] += y[d & 1] * from[TILE];
        }
      }
  }

  /* Finds the place of the thread's sum i in W; false if it has none. */
  DEVICE bool place(int i, int &unit, int &d, int &f) const {
    if constexpr (sizeof(T) == 8) {
      const int at = threadIdx.x + i * ROWS * 32;
      unit = unit0 + at / (16 * F);
      d = unit % HEAD_UNITS * 16 + at / F % 16;
      f = at % F;
      if (at >= UNITS * 16 * F)
        return false;
    } else {
      const int g = lane_id() / 4, t = lane_id() & 3;
      const int in_slice = threadIdx.x / 32 * EACH + i / (NT * 4);
      unit = unit0 + in_slice;
      d = unit % HEAD_UNITS * 16 + 2 * g + i % 4 / 2;
      f = i / 4 % NT * 8 + 2 * t + i % 2;
      if (in_slice >= UNITS)
        return false;
    }
    return unit < HEADS * HEAD_UNITS && d < DIM && f < F;
  }

  DEVICE void store(const A (&sums)[SUMS]) const {
    A *to = static_cast<A *>(p.totals) + int64_t(blockIdx.x) * HEADS * DIM * F;
    unroll<SUMS>([&](int i) {
      int unit, d, f;
      if (place(i, unit, d, f))
        to[(unit / HEAD_UNITS * DIM + d) * F + f] = sums[i];
    });
  }
};

template <class K>
__global__ void __launch_bounds__(K::warps * 32, K::blocks)
    edge_weight_gradient(const __grid_constant__ edges_params p) {
  using work_t = edge_outer<K>;
  using T = typename K::type;
  using A = typename work_t::A;
  constexpr int ROWS = K::warps, UNITS = K::slice;
  extern __shared__ double edges_shared[];
  __shared__ bool there[ROWS];
  A *tile = reinterpret_cast<A *>(edges_shared);
  A *chunks = tile + 2 * work_t::TILE;
  T *staged = reinterpret_cast<T *>(chunks + ROWS * work_t::CHUNK * work_t::FP);
  const int warp = threadIdx.x / 32;
  const int step = gridDim.x * ROWS, units = p.schedule.units;
  work_t work{{},
              p,
              tile,
              {chunks + warp * work_t::CHUNK * work_t::FP},
              {staged, rows_of_units(p.schedule)},
              {staged + work_t::rows_of::SIZE, rows_of_units(p.schedule)},
              static_cast<int>(blockIdx.y) * UNITS,
              there};
  if constexpr (UNITS < work_t::HEAD_UNITS) {
    constexpr int kParts = ceil_div(work_t::HEAD_UNITS, UNITS);
    work.unit0 =
        blockIdx.y / kParts * work_t::HEAD_UNITS + blockIdx.y % kParts * UNITS;
  }
  work.first = 0;
  work.features.clear();
  const int heads = min(K::slice_heads, K::heads - work.head0());
  A sums[work_t::SUMS];
  unroll<work_t::SUMS>([&](int i) { sums[i] = A(0); });
  int row0 = blockIdx.x * ROWS;
  row_edges edges = row_of_unit(p.schedule, min(row0 + warp, units - 1));
  typename work_t::chunk::early e;
  work.fetch(e, edges, 0);
  for (; row0 < units; row0 += step) {
    const int rows = min(ROWS, units - row0);
    const row_edges now = edges;
    if (work_t::KEYS)
      work.queries.copy(p.query, row0, rows, work.head0(), heads);
    if (work_t::VALUES)
      work.grads.copy(p.grad_out, row0, rows, work.head0(), heads);
    copy_commit();
    edges = row_of_unit(p.schedule, min(row0 + step + warp, units - 1));
    if (lane_id() == 0)
      there[warp] = warp < rows && now.degree > 0;
    if (warp < rows)
      work.sum_row(e, now);
    work.fetch(e, edges, 0);
    copy_wait<0>();
    __syncthreads();
    work.products(sums, row0, rows);
    __syncthreads();
  }
  work.store(sums);
}

/* Adds up the blocks' sums; each thread has a number of W, its bias or att. */
template <typename A>
__global__ void __launch_bounds__(256)
    edge_weight_total(const __grid_constant__ edges_total_params p) {
  const int64_t width = p.width + p.ones + p.atts, count = p.features * width;
  const int64_t at = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (at >= count)
    return;
  const A *from = static_cast<const A *>(p.totals) + at;
  A sum = A(0);
#pragma unroll 8
  for (int i = 0; i < p.blocks; ++i)
    sum += from[i * count];
  const int64_t row = at / width, f = at - row * width;
  if (f < p.width && p.weight)
    static_cast<A *>(p.weight)[row * p.width + f] = sum;
  if (f == p.width && p.ones && p.constant)
    static_cast<A *>(p.constant)[row] = sum;
  if (f == p.width + p.ones && p.att)
    static_cast<A *>(p.att)[row] = sum;
}

} // namespace dfgnn

#endif
