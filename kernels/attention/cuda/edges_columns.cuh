/* edges_columns.cuh - gradients of keys and values from (P, dS) of each edge
 * and head: sums of dS q and of P dO over the destinations of a source */
#ifndef DFGNN_ATTENTION_CUDA_EDGES_COLUMNS_CUH
#define DFGNN_ATTENTION_CUDA_EDGES_COLUMNS_CUH

#include "kernels/attention/cuda/edges_lanes.cuh"
#include "kernels/attention/cuda/schedule.cuh"

namespace dfgnn {

template <typename T, int VEC, int L, int HL, int S, int U, int HEADS, int DIM,
          int PACKED, int ITEMS>
struct edge_column : edge_lanes<T, VEC, L, HL, S, HEADS, DIM, PACKED, 1> {
  using map = edge_lanes<T, VEC, L, HL, S, HEADS, DIM, PACKED, 1>;
  using map::C, map::SIDES;
  using typename map::A;
  using typename map::pack;

  const edges_params &p;

  __device__ __forceinline__ explicit edge_column(const edges_params &params)
      : p(params) {
    this->first = HEADS <= map::TILE ? 0 : blockIdx.y * map::TILE;
  }

  __device__ __forceinline__ void step(A (&key)[C][VEC], A (&value)[C][VEC],
                                       const char *queries, const char *grads,
                                       int index, int64_t number, int from,
                                       int left) const {
    pack q[U][C], g[U][C];
    A ds[U * S], weight[U * S];
#pragma unroll
    for (int u = 0; u < U; ++u) {
      const bool live = u * SIDES < left;
      const int i = __shfl_sync(kFullMask, index, from + u * SIDES);
      const int64_t edge = __shfl_sync(kFullMask, number, from + u * SIDES);
      this->gather(q[u], queries, p.query, i, live);
      this->gather(g[u], grads, p.grad_out, i, live);
#pragma unroll
      for (int h = 0; h < S; ++h) {
        ds[u * S + h] = weight[u * S + h] = A(0);
        if (live && this->has_head(h))
          edge_pair(weight[u * S + h], ds[u * S + h], p.pairs,
                    edge * HEADS + this->head(h));
      }
    }
#pragma unroll
    for (int u = 0; u < U; ++u)
#pragma unroll
      for (int c = 0; c < C; ++c)
#pragma unroll
        for (int i = 0; i < VEC; ++i) {
          key[c][i] += ds[u * S + map::state(c)] * widen(q[u][c].item[i]);
          value[c][i] += weight[u * S + map::state(c)] * widen(g[u][c].item[i]);
        }
  }

  __device__ __forceinline__ void run(int unit) const {
    const row_work w = row_of_unit(p.schedule, unit);
    const offsets_t edge_of{p.edge_of, p.schedule.offsets64};
    const int64_t begin = w.indices - p.schedule.indices;
    const char *queries = this->base(p.query), *grads = this->base(p.grad_out);
    A key[C][VEC], value[C][VEC];
#pragma unroll
    for (int c = 0; c < C; ++c)
#pragma unroll
      for (int i = 0; i < VEC; ++i)
        key[c][i] = value[c][i] = A(0);
    for (int at = 0; at < w.degree; at += 32) {
      const int count = min(32, w.degree - at);
      int index = 0;
      int64_t number = 0;
      if (lane_id() < count) {
        index = __ldcs(w.indices + at + lane_id());
        number = edge_of[begin + at + lane_id()];
      }
#pragma unroll 1
      for (int i = this->side(); i - this->side() < count; i += U * SIDES)
        step(key, value, queries, grads, index, number, i, count - i);
    }
    this->sum_sides(key);
    this->sum_sides(value);
    if (this->side() != 0)
      return;
#pragma unroll
    for (int c = 0; c < C; ++c) {
#pragma unroll
      for (int i = 0; i < VEC; ++i)
        key[c][i] *= A(p.scale);
      if (ITEMS && w.slot >= 0) {
        this->give_partial(p.partial, w.slot, 2, 0, c, key[c]);
        this->give_partial(p.partial, w.slot, 2, 1, c, value[c]);
        continue;
      }
      if (p.grad_key.data)
        this->give(p.grad_key, w.row, c, key[c]);
      if (p.grad_value.data)
        this->give(p.grad_value, w.row, c, value[c]);
    }
  }
};

template <typename T, int VEC, int L, int HL, int S, int U, int HEADS, int DIM,
          int PACKED, int ITEMS, int WARPS>
__global__ void __launch_bounds__(WARPS * 32)
    edge_columns(const __grid_constant__ edges_params p) {
  const int unit = blockIdx.x * WARPS + threadIdx.x / 32;
  if (unit < p.schedule.units)
    edge_column<T, VEC, L, HL, S, U, HEADS, DIM, PACKED, ITEMS>(p).run(unit);
}

} // namespace dfgnn

#endif
