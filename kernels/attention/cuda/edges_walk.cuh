/* edges_walk.cuh - a warp's walk over the edges of a row, with their features
 * in shared memory, for both passes of GT with edge features */
#ifndef DFGNN_ATTENTION_CUDA_EDGES_WALK_CUH
#define DFGNN_ATTENTION_CUDA_EDGES_WALK_CUH

#include "kernels/attention/cuda/edges_dropout.cuh"
#include "kernels/attention/cuda/edges_project.cuh"
#include "kernels/attention/cuda/schedule.cuh"

namespace dfgnn {

template <typename T, int VEC, int L, int HL, int S, int U, int HEADS, int DIM,
          int PACKED, int FE, int ONE, int USE, int EDGE, int ROWS, int STAGED>
struct edge_walk : edge_lanes<T, VEC, L, HL, S, HEADS, DIM, PACKED, FE + ONE> {
  using map = edge_lanes<T, VEC, L, HL, S, HEADS, DIM, PACKED, FE + ONE>;
  using map::C, map::FP, map::FPL, map::SIDES, map::TILE, map::first;
  using typename map::A;
  static constexpr bool KEYS = USE & EDGES_KEYS, VALUES = USE & EDGES_VALUES;
  static constexpr bool BIAS = EDGE & EDGE_BIAS, DROPOUT = EDGE & EDGE_DROPOUT;
  static constexpr bool WRITE = EDGE & EDGE_WRITE; /* writes grad_attr */
  static constexpr bool ITEMS = EDGE & EDGE_ITEMS;
  using kept_t = edge_kept<U, SIDES, TILE, HEADS>;
  static constexpr int CHUNK = edge_chunk_of(FP);
  using matrix = edge_matrix<T, HEADS, DIM, FE, ONE, STAGED>;
  using rows_of =
      edge_rows<T, VEC, HEADS * DIM, DIM, ROWS, PACKED, STAGED, ITEMS>;
  using chunk = edge_chunk<T, FE, ONE, FP, CHUNK>;
  using project =
      edge_project<T, HEADS, DIM, FE, ONE, FP, ROWS, TILE, STAGED, rows_of>;
  using expand = edge_expand<T, HEADS, DIM, FE, ONE, FP, ROWS, TILE, STAGED>;

  const edges_params &p;
  A *tile; /* [ROWS][PITCH]: W^T q, then the row's weighted sum of e */
  chunk features;
  uint64_t key; /* the key of the dropout generator */

  /* These loads are started before a row's walk begins. */
  struct early {
    int index;
    typename chunk::early features;
  };

  __device__ __forceinline__ edge_walk(const edges_params &params, A *tile_,
                                       A *chunk_)
      : p(params), tile(tile_), features{chunk_},
        key(DROPOUT ? dropout_key(params.dropout) : 0) {}

  __device__ __forceinline__ A *row_of_tile(int h) const {
    return tile + int(threadIdx.x / 32) * project::PITCH +
           (this->head(h) - first) * FP;
  }

  __device__ __forceinline__ const T *attr_of(const row_work &w, int at) const {
    return static_cast<const T *>(p.attr) +
           (w.indices - p.schedule.indices + at) * FE;
  }
  __device__ __forceinline__ void fetch(early &e, const row_work &w,
                                        int at) const {
    const int count = min(CHUNK, w.degree - at);
    e.index = lane_id() < count ? __ldcs(w.indices + at + lane_id()) : 0;
    features.fetch(e.features, attr_of(w, at), count);
  }

  /* Calls step(keys, values, indices of the chunk, the side's first edge in it,
   * edges that are left from there, its number) for U edges of each side at a
   * time. */
  template <class Step>
  __device__ __forceinline__ void walk_row(early &e, const row_work &w,
                                           Step step) const {
    const int64_t begin = w.indices - p.schedule.indices;
    const char *keys = this->base(p.key), *values = this->base(p.value);
    for (int at = 0; at < w.degree; at += CHUNK) {
      const int count = min(CHUNK, w.degree - at);
      if (at > 0 || first > 0)
        fetch(e, w, at);
      const int index = e.index;
      features.load(e.features, attr_of(w, at), count,
                    (count + U * SIDES - 1) / (U * SIDES) * (U * SIDES));
#pragma unroll 1
      for (int i = this->side(); i - this->side() < count; i += U * SIDES)
        step(keys, values, index, i, count - i, begin + at + i);
      if constexpr (WRITE)
        features.store(static_cast<T *>(p.grad_attr) + (begin + at) * FE,
                       static_cast<A *>(p.carry) + (begin + at) * FE, count,
                       first > 0, first + TILE >= HEADS);
      __syncwarp();
    }
  }

  /* Is the unit a whole row? */
  static __device__ __forceinline__ bool whole(const row_work &w) {
    return !ITEMS || w.slot < 0;
  }

  /* Leaves a head's weighted sum of e in the tile, for the block. */
  __device__ __forceinline__ void leave_sums(const A (&z)[FPL], int h) const {
    if (this->side() == 0 && this->has_head(h))
#pragma unroll
      for (int f = 0; f < FPL; ++f)
        if (this->part() * FPL + f < FE + ONE)
          row_of_tile(h)[this->part() * FPL + f] = z[f];
  }

  /* Adds the row's vector c of W times the weighted sum of e. */
  __device__ __forceinline__ void add_product(A (&acc)[VEC], const A *product,
                                              int c) const {
    A y[VEC];
    load_vector(y, product + int(threadIdx.x / 32) * expand::PITCH +
                       (this->head(map::state(c)) - first) * expand::HEAD +
                       this->feature(c));
#pragma unroll
    for (int i = 0; i < VEC; ++i)
      acc[i] += y[i];
  }
};

} // namespace dfgnn

#endif
