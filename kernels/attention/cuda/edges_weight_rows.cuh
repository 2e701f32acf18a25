/* edges_weight_rows.cuh - GATv2: the gradients of W and of att, sums over all
 * edges, from dS of each edge and head
 *
 * A warp takes every n-th row, or item of a split row, and keeps the sums of
 * its lanes' features and of FS features of edges (a slice: blockIdx.y) in
 * registers.  The warps of a block add up their sums one after the other; the
 * blocks' sums are added afterwards. */
#ifndef DFGNN_ATTENTION_CUDA_EDGES_WEIGHT_ROWS_CUH
#define DFGNN_ATTENTION_CUDA_EDGES_WEIGHT_ROWS_CUH

#include "kernels/attention/cuda/edges_term.cuh"

namespace dfgnn {

template <class K> struct edge_sums : edge_term<K> {
  using term = edge_term<K>;
  using term::C, term::CHUNK, term::DIM, term::F, term::HEADS, term::MATRIX;
  using term::p, term::PITCH, term::S, term::SIDES, term::U, term::VEC;
  using typename term::A;
  using typename term::pack;
  static constexpr int FS = K::slice;
  static constexpr int COLUMNS = (MATRIX ? F : 0) + 1; /* columns of totals */
  static constexpr bool AHEAD = term::SMALL;

  struct sums {
    A x[C][VEC], att[C][VEC], weight[FS][C][VEC], leaky[C][VEC];
  };

  using term::term;

  DEVICE void step(sums &z, const char *values, int index, int from, int left,
                   int64_t begin, int f0) const {
    pack v[U][C];
    typename term::edges y;
    int64_t edge[U];
    unroll<U>([&](int u) {
      const int j = __shfl_sync(kFullMask, index, from + u * SIDES);
      edge[u] = begin + u * SIDES;
      this->gather(v[u], values, p.value, j, u * SIDES < left);
    });
    this->load(y, from, edge, left);
    unroll<U>([&](int u) {
      A ds[S];
      unroll<S>([&](int h) {
        A weight;
        ds[h] = A(0);
        if (u * SIDES < left && this->has_head(h))
          edge_pair(weight, ds[h], p.pairs, edge[u] * HEADS + this->head(h));
      });
      unroll<C, VEC>([&](int c, int i) {
        const A t = z.x[c][i] + widen(v[u][c].item[i]) + y.x[u][c][i];
        const A d = ds[term::state(c)];
        /* Where there is no edge, d is 0, but t may be infinite. */
        z.leaky[c][i] += d == A(0) ? A(0) : d * this->leaky(t);
        y.x[u][c][i] = d * z.att[c][i] * this->slope_of(t);
      });
      if constexpr (MATRIX)
        unroll<FS>([&](int k) {
          const A e =
              f0 + k < F
                  ? this->features.at[(from + u * SIDES) * PITCH + f0 + k]
                  : A(0);
          unroll<C, VEC>(
              [&](int c, int i) { z.weight[k][c][i] += e * y.x[u][c][i]; });
        });
    });
  }

  /* AHEAD: e has what is loaded ahead of row w, and then of `next`. */
  DEVICE void add_row(sums &z, typename term::early &e, const row_edges &w,
                      const row_edges &next, int f0) const {
    this->own(z.x, p.query, w.row);
    this->template walk_row<AHEAD>(
        e, w,
        [&](const char *, const char *values, int index, int from, int left,
            int64_t begin) { step(z, values, index, from, left, begin, f0); });
    if constexpr (AHEAD)
      this->fetch(e, next, 0);
  }

  /* Adds the warps' sums up in `shared`, [FS + 1][C][VEC][32 lanes].  Sums k <
   * FS are those of W, sum FS is that of att. */
  DEVICE void finish(sums &z, A *shared, int f0) const {
    const int warps = blockDim.x / 32, warp = threadIdx.x / 32;
    unroll<FS>([&](int k) { this->sum_sides(z.weight[k]); });
    this->sum_sides(z.leaky);
    for (int turn = 0; turn < warps; ++turn) {
      __syncthreads();
      if (turn == warp && this->side() == 0)
#pragma unroll
        for (int k = 0; k <= FS; ++k)
          unroll<C, VEC>([&](int c, int i) {
            A *at = shared + ((k * C + c) * VEC + i) * 32 + lane_id();
            const A mine =
                k < FS ? z.weight[k < FS ? k : 0][c][i] : z.leaky[c][i];
            const A all = turn == 0 ? mine : *at + mine;
            *at = all;
            if (turn == warps - 1)
              store(all, k < FS ? f0 + k : COLUMNS - 1, k < FS, c, i, f0);
          });
    }
  }

  DEVICE void store(A x, int column, bool of_weight, int c, int i,
                    int f0) const {
    if (!this->has(c) || (of_weight ? !MATRIX || column >= F : f0 > 0))
      return;
    const int64_t row =
        int64_t(this->head(term::state(c))) * DIM + this->feature(c) + i;
    static_cast<A *>(
        p.totals)[(blockIdx.x * int64_t(HEADS * DIM) + row) * COLUMNS +
                  column] = x;
  }
};

template <class K>
__global__ void __launch_bounds__(K::warps * 32, K::blocks)
    edge_weight_sums(const __grid_constant__ edges_params p) {
  using work_t = edge_sums<K>;
  using A = typename work_t::A;
  extern __shared__ double edges_shared[];
  A *shared = reinterpret_cast<A *>(edges_shared);
  work_t work(p, shared);
  typename work_t::sums z;
  constexpr int FS = K::slice, WARPS = K::warps;
  const int f0 = blockIdx.y * FS;
  work.first = blockIdx.z * work_t::TILE;
  work.load_att(z.att);
  work.clear_sums(z.leaky);
  unroll<FS>([&](int k) { work.clear_sums(z.weight[k]); });
  const int step = gridDim.x * WARPS, last = p.schedule.units - 1;
  int unit = blockIdx.x * WARPS + threadIdx.x / 32;
  row_edges w = row_of_unit(p.schedule, min(unit, last));
  typename work_t::early e;
  if constexpr (work_t::AHEAD)
    work.fetch(e, w, 0);
  while (unit <= last) {
    unit += step;
    const row_edges next = row_of_unit(p.schedule, min(unit, last));
    work.add_row(z, e, w, next, f0);
    w = next;
  }
  work.finish(z, shared + work_t::MATRIX_SIZE + WARPS * work_t::CHUNK_SIZE, f0);
}

} // namespace dfgnn

#endif
