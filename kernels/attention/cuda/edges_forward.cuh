/* edges_forward.cuh - GT with edge features: a block takes as many rows as it
 * has warps
 *
 * All warps make W^T q of the block's rows; each walks the edges of one row;
 * all make W z of the sums z = sum alpha e; each adds its row's W z to the
 * row's sum of values.  Meanwhile the queries of the next rows come.  Scores
 * are kept in units of log2(e). */
#ifndef DFGNN_ATTENTION_CUDA_EDGES_FORWARD_CUH
#define DFGNN_ATTENTION_CUDA_EDGES_FORWARD_CUH

#include "kernels/attention/cuda/edges_walk.cuh"

namespace dfgnn {

template <typename T, int VEC, int L, int HL, int S, int U, int HEADS, int DIM,
          int PACKED, int FE, int ONE, int USE, int EDGE, int ROWS, int STAGED>
struct edge_forward : edge_walk<T, VEC, L, HL, S, U, HEADS, DIM, PACKED, FE,
                                ONE, USE, EDGE, ROWS, STAGED> {
  using walk_t = edge_walk<T, VEC, L, HL, S, U, HEADS, DIM, PACKED, FE, ONE,
                           USE, EDGE, ROWS, STAGED>;
  using typename walk_t::A;
  using typename walk_t::early;
  using typename walk_t::map;
  using typename walk_t::pack;
  using typename walk_t::project;
  using typename walk_t::rows_of;
  using walk_t::BIAS, walk_t::C, walk_t::CHUNK, walk_t::DROPOUT, walk_t::FP;
  using walk_t::features, walk_t::first, walk_t::key, walk_t::p;
  using walk_t::FPL, walk_t::KEYS, walk_t::SIDES, walk_t::TILE;
  using walk_t::VALUES;
  static constexpr bool WEIGHTS = EDGE & EDGE_WEIGHTS;

  /* The lane's part of a row in progress. */
  struct softmax {
    A q[C][VEC], tq[S][FPL], m[S], l[S], acc[C][VEC], z[S][FPL];
    state_bits<S> used; /* does some edge have a weight? */
  };

  using walk_t::walk_t;

  __device__ __forceinline__ void load_query(softmax &z, const rows_of &queries,
                                             int row) const {
    if constexpr (STAGED)
      this->own(z.q, queries.staged + threadIdx.x / 32 * rows_of::PITCH);
    else
      this->own(z.q, p.query, row);
  }

  __device__ __forceinline__ void begin(softmax &z) const {
#pragma unroll
    for (int c = 0; c < C; ++c)
#pragma unroll
      for (int i = 0; i < VEC; ++i) {
        z.q[c][i] *= A(p.scale) * A(kLog2e);
        z.acc[c][i] = A(0);
      }
#pragma unroll
    for (int h = 0; h < S; ++h) {
      z.m[h] = lowest<A>();
      z.l[h] = A(0);
#pragma unroll
      for (int f = 0; f < FPL; ++f)
        z.tq[h][f] = z.z[h][f] = A(0);
      if (KEYS && this->has_head(h))
        this->share(z.tq[h], this->row_of_tile(h));
    }
  }

  /* U edges of each side; edge u is live if u * SIDES < left. */
  __device__ __forceinline__ void step(softmax &z, const char *keys,
                                       const char *values, int index, int from,
                                       int left, int64_t edge) const {
    pack k[U][C], v[U][C];
    A s[U * S], weight[U * S], e[U][FPL];
#pragma unroll
    for (int u = 0; u < U; ++u) {
      const int j = __shfl_sync(kFullMask, index, from + u * SIDES);
      this->gather(k[u], keys, p.key, j, u * SIDES < left);
      this->gather(v[u], values, p.value, j, u * SIDES < left);
    }
    typename walk_t::kept_t drawn;
    if constexpr (DROPOUT)
      drawn.draw(p.dropout, key, edge - this->side(), left + this->side(),
                 first);
#pragma unroll
    for (int u = 0; u < U; ++u) {
      this->share(e[u], features.at + (from + u * SIDES) * FP);
#pragma unroll
      for (int h = 0; h < S; ++h)
        s[u * S + h] = A(0);
#pragma unroll
      for (int c = 0; c < C; ++c)
#pragma unroll
        for (int i = 0; i < VEC; ++i)
          s[u * S + map::state(c)] += z.q[c][i] * widen(k[u][c].item[i]);
      if constexpr (KEYS)
#pragma unroll
        for (int h = 0; h < S; ++h)
#pragma unroll
          for (int f = 0; f < FPL; ++f)
            s[u * S + h] += z.tq[h][f] * e[u][f];
    }
    this->reduce(s);
#pragma unroll
    for (int i = 0; i < U * S; ++i) {
      const int u = i / S, h = i % S;
      const bool live = u * SIDES < left;
      if (BIAS && live && this->has_head(h))
        s[i] += __ldcs(static_cast<const A *>(p.bias) +
                       (edge + u * SIDES) * HEADS + this->head(h)) *
                A(kLog2e);
      if (WEIGHTS && live && this->has_head(h) && this->first_of_head())
        __stcs(static_cast<A *>(p.weights) + (edge + u * SIDES) * HEADS +
                   this->head(h),
               s[i]);
      if (!live)
        s[i] = -A(INFINITY);
    }
    soften<U>(weight, s, z.m, z.l,
              [&](int h, A scale) { rescale(z, h, scale); });
#pragma unroll
    for (int u = 0; u < U; ++u) {
      bool kept[S];
#pragma unroll
      for (int h = 0; h < S; ++h) {
        if constexpr (DROPOUT)
          weight[u * S + h] *= drawn.has(u, this->side(), this->head(h), first)
                                   ? A(p.dropout.keep)
                                   : A(0);
        /* A dropped value may be infinite, and 0 times infinity is NaN. */
        kept[h] = !DROPOUT || weight[u * S + h] != A(0);
      }
#pragma unroll
      for (int c = 0; c < C; ++c)
        if (kept[map::state(c)])
#pragma unroll
          for (int i = 0; i < VEC; ++i)
            z.acc[c][i] +=
                weight[u * S + map::state(c)] * widen(v[u][c].item[i]);
      if constexpr (VALUES)
#pragma unroll
        for (int h = 0; h < S; ++h)
          if (kept[h])
#pragma unroll
            for (int f = 0; f < FPL; ++f)
              z.z[h][f] += weight[u * S + h] * e[u][f];
    }
  }

  static __device__ __forceinline__ void rescale(softmax &z, int h, A scale) {
#pragma unroll
    for (int c = 0; c < C; ++c)
      if (map::state(c) == h)
#pragma unroll
        for (int i = 0; i < VEC; ++i)
          z.acc[c][i] *= scale;
#pragma unroll
    for (int f = 0; f < FPL; ++f)
      z.z[h][f] *= scale;
  }

  __device__ __forceinline__ void walk(softmax &z, early &e,
                                       const row_work &w) const {
    this->walk_row(
        e, w,
        [&](const char *keys, const char *values, int index, int from, int left,
            int64_t edge) { step(z, keys, values, index, from, left, edge); });
  }

  /* Merges the sides, divides by the row's sum, leaves z to the block.  The
   * sums of an item stay relative to its own maximum. */
  __device__ __forceinline__ void finish(softmax &z, const row_work &w) const {
    this->merge_sides(z.m, z.l, [&](int h, A scale) { rescale(z, h, scale); });
    this->sum_sides(z.acc);
    if (VALUES)
      this->sum_sides(z.z);
    z.used.clear();
#pragma unroll
    for (int h = 0; h < S; ++h) {
      const A l = z.l[h];
      z.used.set(h, l != A(0));
      const bool writes =
          this->side() == 0 && this->first_of_head() && this->has_head(h);
      if (walk_t::whole(w)) {
        if (p.lse && writes)
          static_cast<A *>(p.lse)[int64_t(w.row) * HEADS + this->head(h)] =
              log_sum_exp(z.m[h], l);
        rescale(z, h, inverse_sum(l));
      } else if (writes) {
        A *state = static_cast<A *>(p.partial_state) +
                   (int64_t(w.slot) * HEADS + this->head(h)) * 2;
        state[0] = z.m[h];
        state[1] = l;
      }
      if (VALUES)
        this->leave_sums(z.z[h], h);
    }
  }

  __device__ __forceinline__ void store(softmax &z, const A *product,
                                        const row_work &w) const {
    if (this->side() != 0)
      return;
#pragma unroll
    for (int c = 0; c < C; ++c) {
      /* A NaN in W times 0 is NaN: rows without weights skip the product. */
      if (VALUES && this->has(c) && z.used.has(map::state(c)))
        this->add_product(z.acc[c], product, c);
      if (walk_t::whole(w))
        this->give(p.out, w.row, c, z.acc[c]);
      else
        this->give_partial(p.partial, w.slot, 1, 0, c, z.acc[c]);
    }
  }
};

template <typename T, int VEC, int L, int HL, int S, int U, int HEADS, int DIM,
          int PACKED, int FE, int ONE, int USE, int EDGE, int ROWS, int BLOCKS,
          int STAGED>
__global__ void __launch_bounds__(ROWS * 32, BLOCKS)
    edge_attend(const __grid_constant__ edges_params p) {
  using work_t = edge_forward<T, VEC, L, HL, S, U, HEADS, DIM, PACKED, FE, ONE,
                              USE, EDGE, ROWS, STAGED>;
  using A = typename work_t::A;
  constexpr int kTile = ROWS * work_t::project::PITCH;
  extern __shared__ double edges_shared[];
  A *tile = reinterpret_cast<A *>(edges_shared);
  A *product = tile + kTile;
  A *chunks = product + (work_t::VALUES ? ROWS * work_t::expand::PITCH : 0);
  T *staged = reinterpret_cast<T *>(chunks + ROWS * work_t::CHUNK * work_t::FP);
  const int warp = threadIdx.x / 32;
  const int step = gridDim.x * ROWS, units = p.schedule.units;
  const typename work_t::rows_of queries{staged, p.schedule.item_row};
  const typename work_t::matrix w{static_cast<const T *>(p.weight),
                                  static_cast<const T *>(p.constant),
                                  staged + work_t::rows_of::SIZE};
  work_t work(p, tile, chunks + warp * work_t::CHUNK * work_t::FP);
  int row0 = blockIdx.x * ROWS;
  queries.copy(p.query, row0, min(ROWS, units - row0), 0, HEADS);
  copy_commit();
  row_work edges = row_of_unit(p.schedule, min(row0 + warp, units - 1));
  w.stage();
  work.features.clear();
  for (int i = threadIdx.x; i < kTile; i += ROWS * 32)
    tile[i] = A(0);
  typename work_t::softmax z;
  typename work_t::early e;
  for (; row0 < units; row0 += step) {
    const int rows = min(ROWS, units - row0);
    const row_work now = edges;
    work.fetch(e, now, 0);
    copy_wait<0>();
    __syncthreads();
    edges = row_of_unit(p.schedule, min(row0 + warp + step, units - 1));
    for (int t = 0; t < work_t::TILES; ++t) {
      work.first = t * work_t::TILE;
      if (work_t::KEYS)
        work_t::project::run(tile, w, queries, p.query, row0, rows, work.first,
                             A(p.scale) * A(kLog2e));
      if (warp < rows)
        work.load_query(z, queries, now.row);
      __syncthreads();
      if (t == work_t::TILES - 1 && row0 + step < units) {
        queries.copy(p.query, row0 + step, min(ROWS, units - row0 - step), 0,
                     HEADS);
        copy_commit();
      }
      if (warp < rows) {
        work.begin(z);
        work.walk(z, e, now);
        work.finish(z, now);
      }
      if (work_t::VALUES) {
        __syncthreads();
        work_t::expand::run(product, w, tile, work.first);
        __syncthreads();
      } else if (t + 1 < work_t::TILES) {
        __syncthreads();
      }
      if (warp < rows)
        work.store(z, product, now);
    }
  }
}

} // namespace dfgnn

#endif
