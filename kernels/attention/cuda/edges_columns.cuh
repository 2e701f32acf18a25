/* edges_columns.cuh - gradients by columns from (P, dS) of each edge and head:
 * sums of P dO over the destinations of a source, and what its score adds (GT:
 * dS q for the key; GATv2: dS times att and leaky ReLU's slope, for which W e
 * is made once more; GAT: the sum of dS) */
#ifndef DFGNN_ATTENTION_CUDA_EDGES_COLUMNS_CUH
#define DFGNN_ATTENTION_CUDA_EDGES_COLUMNS_CUH

#include "kernels/attention/cuda/edges_term.cuh"

namespace dfgnn {

/* K::term is EDGES_ROWS, but GT reads no features of edges here: K::edge_dim is
 * 0. */
template <class K> struct edge_column : edge_term<K> {
  using term = edge_term<K>;
  using term::C, term::CHUNK, term::GAT, term::GATV2, term::GT, term::MATRIX;
  using term::p, term::PITCH, term::S, term::SIDES, term::U, term::VEC;
  using typename term::A;
  using typename term::pack;
  static constexpr int QC = GAT ? 1 : C, SUMS = GT ? 2 : 1;

  struct state {
    A own[GATV2 ? C : 1][VEC], att[C][VEC];
    A key[GT ? C : 1][VEC], value[C][VEC], sum[S];
  };

  using term::term;

  DEVICE void step(state &z, const char *queries, const char *grads, int index,
                   int64_t number, int from, int left) const {
    pack q[U][QC], g[U][C];
    A ds[U * S], weight[U * S];
    typename term::edges y;
    int64_t edge[U];
    unroll<U>([&](int u) {
      const bool live = u * SIDES < left;
      const int i = __shfl_sync(kFullMask, index, from + u * SIDES);
      edge[u] = __shfl_sync(kFullMask, number, from + u * SIDES);
      if constexpr (!GAT)
        this->gather(q[u], queries, p.query, i, live);
      this->gather(g[u], grads, p.grad_out, i, live);
      unroll<S>([&](int h) {
        ds[u * S + h] = weight[u * S + h] = A(0);
        if (live && this->has_head(h))
          edge_pair(weight[u * S + h], ds[u * S + h], p.pairs,
                    edge[u] * term::HEADS + this->head(h));
      });
    });
    if constexpr (GATV2)
      this->load(y, from, edge, left);
    unroll<U>([&](int u) {
      unroll<S>([&](int h) { z.sum[h] += ds[u * S + h]; });
      unroll<C>([&](int c) {
        const int at = u * S + term::state(c);
        unroll<VEC>([&](int i) {
          if constexpr (GT)
            z.key[c][i] += ds[at] * widen(q[u][c].item[i]);
          z.value[c][i] += weight[at] * widen(g[u][c].item[i]);
          if constexpr (GATV2)
            z.value[c][i] += ds[at] * z.att[c][i] *
                             this->slope_of(widen(q[u][c].item[i]) +
                                            z.own[c][i] + y.x[u][c][i]);
        });
      });
    });
  }

  /* Stages the features of a column's edges, which lie apart in memory. */
  DEVICE void stage(int64_t number, int count, int room) const {
    constexpr int FE = K::edge_dim;
    for (int first = 0; first < room * FE; first += 32) {
      const int i = first + lane_id(), e = min(i / FE, 31);
      const int64_t edge = __shfl_sync(kFullMask, number, e);
      if (i < room * FE)
        this->features.at[e * PITCH + i % FE] =
            e < count
                ? widen(load_once<1>(this->attr_of(edge) + i % FE).item[0])
                : A(0);
    }
    __syncwarp();
  }

  DEVICE void run(state &z, int unit) const {
    const row_edges w = row_of_unit(p.schedule, unit);
    const offsets_t edge_of{p.edge_of, p.schedule.offsets64};
    const int64_t begin = w.indices - p.schedule.indices;
    const char *queries = GAT ? nullptr : this->lane_base(p.query);
    const char *grads = this->lane_base(p.grad_out);
    if constexpr (GATV2)
      this->own(z.own, p.value, w.row);
    this->load_att(z.att);
    if constexpr (GT)
      this->clear_sums(z.key);
    this->clear_sums(z.value);
    unroll<S>([&](int h) { z.sum[h] = A(0); });
    for (int at = 0; at < w.degree; at += CHUNK) {
      const int count = min(CHUNK, w.degree - at);
      int index = 0;
      int64_t number = 0;
      if (lane_id() < count) {
        index = __ldcs(w.indices + at + lane_id());
        number = edge_of[begin + at + lane_id()];
      }
      if constexpr (MATRIX)
        stage(number, count,
              (count + U * SIDES - 1) / (U * SIDES) * (U * SIDES));
#pragma unroll 1
      for (int i = this->side(); i - this->side() < count; i += U * SIDES)
        step(z, queries, grads, index, number, i, count - i);
      __syncwarp();
    }
    store(z, w);
  }

  DEVICE void store(state &z, const row_edges &w) const {
    if constexpr (GT)
      this->sum_sides(z.key);
    this->sum_sides(z.value);
    if constexpr (GAT)
      this->sum_sides(z.sum);
    if (this->side() != 0)
      return;
    const bool whole = term::whole(w);
    unroll<S>([&](int h) {
      if (GAT && p.grad_score_src && this->writes(h)) {
        A *to = static_cast<A *>(whole ? p.grad_score_src : p.partial_state);
        to[int64_t(whole ? w.row : w.slot) * term::HEADS + this->head(h)] =
            z.sum[h];
      }
    });
    if constexpr (GT)
      give_sums(p.grad_key, 0, z.key, w, A(p.scale));
    give_sums(p.grad_value, SUMS - 1, z.value, w, A(1));
  }

  /* Stores the row's sums, tensor t of an item's partial result. */
  DEVICE void give_sums(const tensor_view &to, int t, A (&sums)[C][VEC],
                        const row_edges &w, A factor) const {
    unroll<C>([&](int c) {
      unroll<VEC>([&](int i) { sums[c][i] *= factor; });
      if (!term::whole(w))
        this->give_partial(p.partial, w.slot, SUMS, t, c, sums[c]);
      else if (to.data)
        this->give(to, w.row, c, sums[c]);
    });
  }
};

/* GT takes a unit a warp, and a tile of heads a row of blocks; others take all
 * tiles of every n-th unit, as W is staged for them. */
template <class K>
__global__ void __launch_bounds__(K::warps * 32, K::blocks)
    edge_columns(const __grid_constant__ edges_params p) {
  using work_t = edge_column<K>;
  extern __shared__ double edges_shared[];
  work_t work(p, reinterpret_cast<typename work_t::A *>(edges_shared));
  typename work_t::state z;
  const int warps = K::warps;
  int unit = blockIdx.x * warps + threadIdx.x / 32;
  if constexpr (work_t::GT) {
    work.first = work_t::TILES == 1 ? 0 : blockIdx.y * work_t::TILE;
    if (unit < p.schedule.units)
      work.run(z, unit);
  } else {
    for (; unit < p.schedule.units; unit += gridDim.x * warps)
      for (work.first = 0; work.first < K::heads; work.first += work_t::TILE)
        work.run(z, unit);
  }
}

} // namespace dfgnn

#endif
