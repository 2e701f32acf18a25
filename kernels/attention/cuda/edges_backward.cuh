/* edges_backward.cuh - gradients of GT with edge features, by rows
 *
 * A block takes as many rows as it has warps.  All warps make W^T q and W^T dO
 * of the rows; each walks the edges of one row, for P, dS, the gradients of
 * edge features (sums over heads) and the row's sums of dS k and of dS e; all
 * make W times the latter, which completes the gradient of the query.
 * Meanwhile q and dO of the next rows come. */
#ifndef DFGNN_ATTENTION_CUDA_EDGES_BACKWARD_CUH
#define DFGNN_ATTENTION_CUDA_EDGES_BACKWARD_CUH

#include "kernels/attention/cuda/edges_walk.cuh"

namespace dfgnn {

template <typename T, int VEC, int L, int HL, int S, int U, int HEADS, int DIM,
          int PACKED, int FE, int ONE, int USE, int EDGE, int ROWS, int STAGED>
struct edge_backward : edge_walk<T, VEC, L, HL, S, U, HEADS, DIM, PACKED, FE,
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
  using walk_t::VALUES, walk_t::WRITE;
  static constexpr int LEFT = folded(U * FPL, L / 2, HL);

  struct gradients {
    A q[C][VEC], dout[C][VEC], tq[S][FPL], td[S][FPL], lse[S], delta[S],
        by_lse[S];
    A acc[C][VEC], z[S][FPL];
    state_bits<S> used; /* does some edge have a weight? */
  };

  using walk_t::walk_t;

  /* Loads the inputs of a row that do not wait for products with W. */
  __device__ __forceinline__ void load_rows(gradients &z,
                                            const rows_of &queries,
                                            const rows_of &grads,
                                            int row) const {
    this->own(z.acc, p.out, row); /* until begin() makes delta of it */
    if constexpr (STAGED) {
      const int at = threadIdx.x / 32 * rows_of::PITCH;
      this->own(z.q, queries.staged + at);
      this->own(z.dout, grads.staged + at);
    } else {
      this->own(z.q, p.query, row);
      this->own(z.dout, p.grad_out, row);
    }
#pragma unroll
    for (int h = 0; h < S; ++h)
      z.lse[h] = this->has_head(h) ? __ldg(static_cast<const A *>(p.lse) +
                                           int64_t(row) * HEADS + this->head(h))
                                   : -A(INFINITY);
#pragma unroll
    for (int h = 0; h < S; ++h)
      z.by_lse[h] = p.grad_lse && this->has_head(h)
                        ? __ldg(static_cast<const A *>(p.grad_lse) +
                                int64_t(row) * HEADS + this->head(h))
                        : A(0);
  }

  __device__ __forceinline__ void begin(gradients &z) const {
    z.used.clear();
#pragma unroll
    for (int h = 0; h < S; ++h) {
      z.delta[h] = A(0);
      z.used.set(h, z.lse[h] != -A(INFINITY));
      z.lse[h] = z.lse[h] == -A(INFINITY) ? A(INFINITY) : z.lse[h] * A(kLog2e);
#pragma unroll
      for (int f = 0; f < FPL; ++f)
        z.tq[h][f] = z.td[h][f] = z.z[h][f] = A(0);
      if (!this->has_head(h))
        continue;
      if (KEYS)
        this->share(z.tq[h], this->row_of_tile(h));
      if (VALUES)
        this->share(z.td[h], this->row_of_tile(h) + ROWS * project::PITCH);
    }
#pragma unroll
    for (int c = 0; c < C; ++c)
#pragma unroll
      for (int i = 0; i < VEC; ++i) {
        z.delta[map::state(c)] += z.dout[c][i] * z.acc[c][i];
        z.q[c][i] *= A(p.scale) * A(kLog2e);
        z.acc[c][i] = A(0);
      }
    this->reduce(z.delta);
#pragma unroll
    for (int h = 0; h < S; ++h)
      z.delta[h] -= z.by_lse[h];
  }

  __device__ __forceinline__ void step(gradients &z, const char *keys,
                                       const char *values, int index, int from,
                                       int left, int64_t edge) const {
    pack k[U][C], v[U][C];
    A s[U * S], dp[U * S], e[U][FPL];
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
        s[u * S + h] = dp[u * S + h] = A(0);
#pragma unroll
      for (int c = 0; c < C; ++c)
#pragma unroll
        for (int i = 0; i < VEC; ++i) {
          s[u * S + map::state(c)] += z.q[c][i] * widen(k[u][c].item[i]);
          dp[u * S + map::state(c)] += z.dout[c][i] * widen(v[u][c].item[i]);
        }
#pragma unroll
      for (int h = 0; h < S; ++h)
#pragma unroll
        for (int f = 0; f < FPL; ++f) {
          if (KEYS)
            s[u * S + h] += z.tq[h][f] * e[u][f];
          if (VALUES)
            dp[u * S + h] += z.td[h][f] * e[u][f];
        }
    }
    this->reduce(s);
    this->reduce(dp);
#pragma unroll
    for (int u = 0; u < U; ++u)
#pragma unroll
      for (int h = 0; h < S; ++h)
        weigh(s[u * S + h], dp[u * S + h], z, h, u * SIDES < left,
              edge + u * SIDES,
              !DROPOUT || drawn.has(u, this->side(), this->head(h), first));
        /* s is now dS, dp the weight after dropout. */
#pragma unroll
    for (int u = 0; u < U; ++u) {
#pragma unroll
      for (int c = 0; c < C; ++c)
#pragma unroll
        for (int i = 0; i < VEC; ++i)
          z.acc[c][i] += s[u * S + map::state(c)] * widen(k[u][c].item[i]);
      if constexpr (KEYS)
#pragma unroll
        for (int h = 0; h < S; ++h)
#pragma unroll
          for (int f = 0; f < FPL; ++f)
            z.z[h][f] += s[u * S + h] * e[u][f];
    }
    if constexpr (WRITE)
      edge_gradients(z, s, dp, from);
  }

  /* s and <dO, v> of an edge become dS and P. */
  __device__ __forceinline__ void weigh(A &s, A &dp, const gradients &z, int h,
                                        bool live, int64_t edge,
                                        bool keeps) const {
    const bool there = live && this->has_head(h);
    const int64_t at = edge * HEADS + this->head(h);
    if (BIAS && there)
      s += __ldcs(static_cast<const A *>(p.bias) + at) * A(kLog2e);
    const A weight = there ? exp2_fast(s - z.lse[h]) : A(0);
    const A kept = !DROPOUT ? A(1) : keeps ? A(p.dropout.keep) : A(0);
    /* At weight 0 dp may be infinite, and 0 times infinity is NaN. */
    s = weight == A(0)
            ? A(0)
            : weight * ((kept == A(0) ? A(0) : dp * kept) - z.delta[h]);
    dp = weight * kept;
    if (!there || !this->first_of_head())
      return;
    edge_put_pair(dp, s, p.pairs, at);
    if (p.grad_bias)
      static_cast<A *>(p.grad_bias)[at] = s;
  }

  /* Sums the gradients of the features of U edges of each side over the lanes
   * of all heads, and puts them in place of the features. */
  __device__ __forceinline__ void edge_gradients(const gradients &z,
                                                 const A (&ds)[U * S],
                                                 const A (&weight)[U * S],
                                                 int from) const {
    A x[U * FPL];
#pragma unroll
    for (int u = 0; u < U; ++u)
#pragma unroll
      for (int f = 0; f < FPL; ++f) {
        A sum = A(0);
#pragma unroll
        for (int h = 0; h < S; ++h) {
          if (KEYS) /* tq is in units of log2(e) */
            sum += ds[u * S + h] * A(kLn2) * z.tq[h][f];
          if (VALUES)
            sum += weight[u * S + h] * z.td[h][f];
        }
        x[u * FPL + f] = sum;
      }
    const int begin = fold<U * FPL, L / 2, HL>(x, 0);
    __syncwarp(); /* all lanes have read the features */
#pragma unroll
    for (int i = 0; i < LEFT; ++i) {
      const int u = (begin + i) / FPL, f = (begin + i) % FPL;
      const int column = this->part() * FPL + f;
      if (column < FE)
        features.at[(from + u * SIDES) * FP + column] = x[i];
    }
  }

  __device__ __forceinline__ void walk(gradients &z, early &e,
                                       const row_work &w) const {
    this->walk_row(
        e, w,
        [&](const char *keys, const char *values, int index, int from, int left,
            int64_t edge) { step(z, keys, values, index, from, left, edge); });
  }

  __device__ __forceinline__ void finish(gradients &z) const {
    this->sum_sides(z.acc);
    if (!KEYS)
      return;
    this->sum_sides(z.z);
#pragma unroll
    for (int h = 0; h < S; ++h)
      this->leave_sums(z.z[h], h);
  }

  __device__ __forceinline__ void store(gradients &z, const A *product,
                                        const row_work &w) const {
    if (this->side() != 0 || !p.grad_query.data)
      return;
#pragma unroll
    for (int c = 0; c < C; ++c) {
      /* A NaN in W times 0 is NaN: rows without weights skip the product. */
      if (KEYS && this->has(c) && z.used.has(map::state(c)))
        this->add_product(z.acc[c], product, c);
#pragma unroll
      for (int i = 0; i < VEC; ++i)
        z.acc[c][i] *= A(p.scale);
      if (walk_t::whole(w) && EDGE & EDGE_ADDS)
        this->add(p.grad_query, w.row, c, z.acc[c]);
      else if (walk_t::whole(w))
        this->give(p.grad_query, w.row, c, z.acc[c]);
      else
        this->give_partial(p.partial, w.slot, 1, 0, c, z.acc[c]);
    }
  }
};

template <typename T, int VEC, int L, int HL, int S, int U, int HEADS, int DIM,
          int PACKED, int FE, int ONE, int USE, int EDGE, int ROWS, int BLOCKS,
          int STAGED>
__global__ void __launch_bounds__(ROWS * 32, BLOCKS)
    edge_gradient(const __grid_constant__ edges_params p) {
  using work_t = edge_backward<T, VEC, L, HL, S, U, HEADS, DIM, PACKED, FE, ONE,
                               USE, EDGE, ROWS, STAGED>;
  using A = typename work_t::A;
  constexpr int kTile = ROWS * work_t::project::PITCH;
  constexpr int kTiles = work_t::VALUES ? 2 : 1;
  extern __shared__ double edges_shared[];
  A *tile = reinterpret_cast<A *>(edges_shared);
  A *product = tile + kTiles * kTile;
  A *chunks = product + (work_t::KEYS ? ROWS * work_t::expand::PITCH : 0);
  T *staged = reinterpret_cast<T *>(chunks + ROWS * work_t::CHUNK * work_t::FP);
  const int warp = threadIdx.x / 32;
  const int step = gridDim.x * ROWS, units = p.schedule.units;
  const int *items = p.schedule.item_row;
  const typename work_t::rows_of queries{staged, items},
      grads{staged + work_t::rows_of::SIZE, items};
  const typename work_t::matrix w{static_cast<const T *>(p.weight),
                                  static_cast<const T *>(p.constant),
                                  staged + 2 * work_t::rows_of::SIZE};
  const auto copy = [&](int row0) {
    queries.copy(p.query, row0, min(ROWS, units - row0), 0, HEADS);
    grads.copy(p.grad_out, row0, min(ROWS, units - row0), 0, HEADS);
    copy_commit();
  };
  work_t work(p, tile, chunks + warp * work_t::CHUNK * work_t::FP);
  int row0 = blockIdx.x * ROWS;
  copy(row0);
  row_work edges = row_of_unit(p.schedule, min(row0 + warp, units - 1));
  w.stage();
  work.features.clear();
  for (int i = threadIdx.x; i < kTiles * kTile; i += ROWS * 32)
    tile[i] = A(0);
  typename work_t::gradients z;
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
      if (warp < rows)
        work.load_rows(z, queries, grads, now.row);
      if (work_t::KEYS)
        work_t::project::run(tile, w, queries, p.query, row0, rows, work.first,
                             A(p.scale) * A(kLog2e));
      if (work_t::VALUES)
        work_t::project::run(tile + kTile, w, grads, p.grad_out, row0, rows,
                             work.first, A(1));
      __syncthreads();
      if (t == work_t::TILES - 1 && row0 + step < units)
        copy(row0 + step);
      if (warp < rows) {
        work.begin(z);
        work.walk(z, e, now);
        work.finish(z);
      }
      if (work_t::KEYS) {
        __syncthreads();
        if (p.grad_query.data)
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
