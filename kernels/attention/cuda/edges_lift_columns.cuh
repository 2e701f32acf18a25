/* edges_lift_columns.cuh - gradients of the values of GATv2 and GAT, and of
 * GAT's scores, by columns from (P, dS) of each edge and head; GATv2 computes
 * W e once more */
#ifndef DFGNN_ATTENTION_CUDA_EDGES_LIFT_COLUMNS_CUH
#define DFGNN_ATTENTION_CUDA_EDGES_LIFT_COLUMNS_CUH

#include "kernels/attention/cuda/edges_lift.cuh"

namespace dfgnn {

template <int OP, typename T, int VEC, int L, int HL, int S, int U, int HEADS,
          int DIM, int PACKED, int FE, int ONE, int EDGE, int STAGED>
struct edge_lift_column : edge_lift<OP, T, VEC, L, HL, S, U, HEADS, DIM, PACKED,
                                    FE, ONE, EDGE, STAGED> {
  using lift_t = edge_lift<OP, T, VEC, L, HL, S, U, HEADS, DIM, PACKED, FE, ONE,
                           EDGE, STAGED>;
  using lift_t::C, lift_t::CHUNK, lift_t::GAT, lift_t::MATRIX, lift_t::p;
  using lift_t::PITCH, lift_t::SIDES;
  using typename lift_t::A;
  using typename lift_t::pack;
  static constexpr int QC = GAT ? 1 : C;

  struct gradients {
    A y[QC][VEC], att[C][VEC], acc[C][VEC], sum[S];
  };

  __device__
      __forceinline__ explicit edge_lift_column(const edges_params &params,
                                                A *shared)
      : lift_t(params, shared) {}

  __device__ __forceinline__ void step(gradients &z, const char *queries,
                                       const char *grads, int index,
                                       int64_t number, int from,
                                       int left) const {
    pack q[U][QC], g[U][C];
    A x[U][C][VEC], ds[U * S], weight[U * S];
    int64_t edge[U];
#pragma unroll
    for (int u = 0; u < U; ++u) {
      const bool live = u * SIDES < left;
      const int i = __shfl_sync(kFullMask, index, from + u * SIDES);
      edge[u] = __shfl_sync(kFullMask, number, from + u * SIDES);
      if constexpr (!GAT)
        this->gather(q[u], queries, p.query, i, live);
      this->gather(g[u], grads, p.grad_out, i, live);
#pragma unroll
      for (int h = 0; h < S; ++h) {
        ds[u * S + h] = weight[u * S + h] = A(0);
        if (live && this->has_head(h))
          edge_pair(weight[u * S + h], ds[u * S + h], p.pairs,
                    edge[u] * HEADS + this->head(h));
      }
    }
    if constexpr (!GAT)
      this->lift(x, from, edge, left);
#pragma unroll
    for (int u = 0; u < U; ++u) {
#pragma unroll
      for (int h = 0; h < S; ++h)
        z.sum[h] += ds[u * S + h];
#pragma unroll
      for (int c = 0; c < C; ++c) {
        const int at = u * S + lift_t::state(c);
#pragma unroll
        for (int i = 0; i < VEC; ++i) {
          z.acc[c][i] += weight[at] * widen(g[u][c].item[i]);
          if constexpr (!GAT)
            z.acc[c][i] +=
                ds[at] * z.att[c][i] *
                this->slope_of(widen(q[u][c].item[i]) + z.y[c][i] + x[u][c][i]);
        }
      }
    }
  }

  /* Stages the features of a column's edges, which lie apart in memory. */
  __device__ __forceinline__ void stage(int64_t number, int count,
                                        int room) const {
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

  __device__ __forceinline__ void run(gradients &z, int unit) const {
    const row_work w = row_of_unit(p.schedule, unit);
    const bool whole = lift_t::whole(w);
    const offsets_t edge_of{p.edge_of, p.schedule.offsets64};
    const int64_t begin = w.indices - p.schedule.indices;
    const char *queries = GAT ? nullptr : this->base(p.query);
    const char *grads = this->base(p.grad_out);
    if constexpr (!GAT)
      this->own(z.y, p.value, w.row);
    this->load_att(z.att);
    this->clear_sums(z.acc);
#pragma unroll
    for (int h = 0; h < S; ++h)
      z.sum[h] = A(0);
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
    this->sum_sides(z.acc);
    this->sum_sides(z.sum);
    if (this->side() != 0)
      return;
#pragma unroll
    for (int h = 0; h < S; ++h)
      if (GAT && p.grad_score_src && this->first_of_head() &&
          this->has_head(h)) {
        A *to = static_cast<A *>(whole ? p.grad_score_src : p.partial_state);
        to[int64_t(whole ? w.row : w.slot) * HEADS + this->head(h)] = z.sum[h];
      }
    if (p.grad_value.data)
#pragma unroll
      for (int c = 0; c < C; ++c)
        if (whole)
          this->give(p.grad_value, w.row, c, z.acc[c]);
        else
          this->give_partial(p.partial, w.slot, 1, 0, c, z.acc[c]);
  }
};

template <int OP, typename T, int VEC, int L, int HL, int S, int U, int HEADS,
          int DIM, int PACKED, int FE, int ONE, int EDGE, int WARPS, int BLOCKS,
          int STAGED>
__global__ void __launch_bounds__(WARPS * 32, BLOCKS)
    lift_columns(const __grid_constant__ edges_params p) {
  using work_t = edge_lift_column<OP, T, VEC, L, HL, S, U, HEADS, DIM, PACKED,
                                  FE, ONE, EDGE, STAGED>;
  extern __shared__ double edges_shared[];
  work_t work(p, reinterpret_cast<typename work_t::A *>(edges_shared));
  typename work_t::gradients z;
  for (int unit = blockIdx.x * WARPS + threadIdx.x / 32;
       unit < p.schedule.units; unit += gridDim.x * WARPS)
    for (work.first = 0; work.first < HEADS; work.first += work_t::TILE)
      work.run(z, unit);
}

} // namespace dfgnn

#endif
