/* edges_lift.cuh - W e of an edge, in the lanes that need it
 *
 * It serves scores that are not linear in W e (GATv2), and edges that come
 * projected, as [E,H,D].  W lies transposed in shared memory, [F][H*D], if
 * STAGED; a lane multiplies the rows of W of its own features with the edge's
 * features, which a warp stages chunk by chunk.  FE is -1 if edges come as
 * [E,H,D], and 0 if they come as a scalar a head (GAT). */
#ifndef DFGNN_ATTENTION_CUDA_EDGES_LIFT_CUH
#define DFGNN_ATTENTION_CUDA_EDGES_LIFT_CUH

#include "kernels/attention/cuda/edges_dropout.cuh"
#include "kernels/attention/cuda/edges_lanes.cuh"
#include "kernels/attention/cuda/schedule.cuh"

namespace dfgnn {

template <int OP, typename T, int VEC, int L, int HL, int S, int U, int HEADS,
          int DIM, int PACKED, int FE, int ONE, int EDGE, int STAGED>
struct edge_lift : edge_lanes<T, VEC, L, HL, S, HEADS, DIM, PACKED, 1> {
  using map = edge_lanes<T, VEC, L, HL, S, HEADS, DIM, PACKED, 1>;
  using map::C, map::SIDES, map::TILE, map::first;
  using typename map::A;
  using typename map::pack;
  static constexpr bool GT = OP == DFGNN_OP_GT, GAT = OP == DFGNN_OP_GAT;
  static constexpr bool BIAS = EDGE & EDGE_BIAS, DROPOUT = EDGE & EDGE_DROPOUT;
  static constexpr bool WRITE = EDGE & EDGE_WRITE; /* writes grad_attr */
  static constexpr bool ITEMS = EDGE & EDGE_ITEMS;
  using kept_t = edge_kept<U, SIDES, TILE, HEADS>;
  static constexpr int ALL_HEADS = HEADS;
  static constexpr bool GIVEN = (FE < 0), MATRIX = (FE > 0);
  static constexpr int WIDTH = MATRIX ? FE : 1, F = MATRIX ? FE + ONE : 1;
  static constexpr int PITCH = ceil_div(F, 4) * 4;
  static constexpr int CHUNK = MATRIX ? edge_chunk_of(PITCH) : 32;
  static constexpr int MATRIX_SIZE = MATRIX && STAGED ? F * HEADS * DIM : 0;
  static constexpr int CHUNK_SIZE = MATRIX ? CHUNK * PITCH : 0;
  using chunk = edge_chunk<T, WIDTH, ONE, PITCH, CHUNK>;

  const edges_params &p;
  A *matrix;      /* [F][H*D] */
  chunk features; /* the warp's */
  uint64_t key;   /* the key of the dropout generator */

  __device__ __forceinline__ edge_lift(const edges_params &params, A *shared)
      : p(params), matrix(shared), features{shared + MATRIX_SIZE +
                                            threadIdx.x / 32 * CHUNK_SIZE},
        key(DROPOUT ? dropout_key(params.dropout) : 0) {
    first = 0;
    if constexpr (MATRIX) {
      features.clear();
#pragma unroll 4
      for (int i = threadIdx.x; i < MATRIX_SIZE; i += blockDim.x)
        matrix[i] = element(i % (HEADS * DIM), i / (HEADS * DIM));
      __syncthreads();
    }
  }

  __device__ __forceinline__ A element(int row, int f) const {
    if (ONE && f == FE)
      return p.constant ? widen(static_cast<const T *>(p.constant)[row]) : A(0);
    return widen(static_cast<const T *>(p.weight)[row * WIDTH + f]);
  }
  /* Column f of W in the rows of vector c; zeros where the lane has no such
   * vector. */
  __device__ __forceinline__ void column(A (&w)[VEC], int f, int c) const {
    const int row = this->head(map::state(c)) * DIM + this->feature(c);
#pragma unroll
    for (int i = 0; i < VEC; ++i)
      w[i] = A(0);
    if (!this->has(c))
      return;
    if constexpr (!STAGED) {
#pragma unroll
      for (int i = 0; i < VEC; ++i)
        w[i] = element(row + i, f);
    } else {
      load_vector(w, matrix + f * (HEADS * DIM) + row);
    }
  }

  /* Finds W e of U edges of each side.  Edge u has number edge[u] in the matrix
   * and row from + u * SIDES in the chunk. */
  __device__ __forceinline__ void
  lift(A (&x)[U][C][VEC], int from, const int64_t (&edge)[U], int left) const {
#pragma unroll
    for (int u = 0; u < U; ++u)
#pragma unroll
      for (int c = 0; c < C; ++c) {
        pack y;
        clear(y);
        if (GIVEN && u * SIDES < left && this->has(c))
          y = load_once<VEC>(given(edge[u], c));
        widen(x[u][c], y);
      }
    if constexpr (MATRIX) {
#pragma unroll(F <= 16 ? F : 4)
      for (int f = 0; f < F; ++f) {
        A e[U];
#pragma unroll
        for (int u = 0; u < U; ++u)
          e[u] = features.at[(from + u * SIDES) * PITCH + f];
#pragma unroll
        for (int c = 0; c < C; ++c) {
          A w[VEC];
          column(w, f, c);
#pragma unroll
          for (int u = 0; u < U; ++u)
#pragma unroll
            for (int i = 0; i < VEC; ++i)
              x[u][c][i] += e[u] * w[i];
        }
      }
    }
  }
  /* The address of vector c of an edge that comes as [H,D]. */
  __device__ __forceinline__ const T *given(int64_t edge, int c) const {
    return static_cast<const T *>(p.attr) + edge * (HEADS * DIM) +
           this->head(map::state(c)) * DIM + this->feature(c);
  }

  /* Loads a scalar of a node and head; 0 where the lane has no such head. */
  __device__ __forceinline__ A scalar(const void *from, int64_t node,
                                      int h) const {
    return this->has_head(h) ? __ldg(static_cast<const A *>(from) +
                                     node * HEADS + this->head(h))
                             : A(0);
  }
  __device__ __forceinline__ A bias_of(int64_t edge, int h, bool live) const {
    return BIAS && live && this->has_head(h)
               ? __ldcs(static_cast<const A *>(p.bias) + edge * HEADS +
                        this->head(h)) *
                     A(kLog2e)
               : A(0);
  }
  __device__ __forceinline__ void load_att(A (&att)[C][VEC]) const {
#pragma unroll
    for (int c = 0; c < C; ++c)
#pragma unroll
      for (int i = 0; i < VEC; ++i)
        att[c][i] = OP == DFGNN_OP_GATV2 && this->has(c)
                        ? widen(static_cast<const T *>(
                              p.att)[this->head(map::state(c)) * DIM +
                                     this->feature(c) + i])
                        : A(0);
  }
  __device__ __forceinline__ A leaky(A t) const {
    return t > A(0) ? t : t * A(p.slope);
  }
  __device__ __forceinline__ A slope_of(A t) const {
    return t > A(0) ? A(1) : A(p.slope);
  }
  static __device__ __forceinline__ void clear_sums(A (&x)[C][VEC]) {
#pragma unroll
    for (int c = 0; c < C; ++c)
#pragma unroll
      for (int i = 0; i < VEC; ++i)
        x[c][i] = A(0);
  }
  __device__ __forceinline__ const T *attr_of(int64_t edge) const {
    return static_cast<const T *>(p.attr) + edge * WIDTH;
  }

  /* Is the unit a whole row? */
  static __device__ __forceinline__ bool whole(const row_work &w) {
    return !ITEMS || w.slot < 0;
  }

  /* Calls step(keys, values, indices of the chunk, the side's first edge in it,
   * edges that are left from there, its number) for U edges of each side at a
   * time. */
  template <class Step>
  __device__ __forceinline__ void walk_row(const row_work &w, Step step) const {
    const int64_t begin = w.indices - p.schedule.indices;
    const char *keys = GT ? this->base(p.key) : nullptr;
    const char *values = this->base(p.value);
    for (int at = 0; at < w.degree; at += CHUNK) {
      const int count = min(CHUNK, w.degree - at);
      const int index =
          lane_id() < count ? __ldcs(w.indices + at + lane_id()) : 0;
      if constexpr (MATRIX) {
        typename chunk::early e;
        features.fetch(e, attr_of(begin + at), count);
        features.load(e, attr_of(begin + at), count,
                      (count + U * SIDES - 1) / (U * SIDES) * (U * SIDES));
      }
#pragma unroll 1
      for (int i = this->side(); i - this->side() < count; i += U * SIDES)
        step(keys, values, index, i, count - i, begin + at + i);
      if constexpr (WRITE && MATRIX)
        features.store(static_cast<T *>(p.grad_attr) + (begin + at) * FE,
                       static_cast<A *>(p.carry) + (begin + at) * FE, count,
                       first > 0, first + TILE >= HEADS);
      __syncwarp();
    }
  }
};

/* Walks over the units: each warp takes every n-th. */
template <class Work, int WARPS>
__device__ __forceinline__ void lift_rows(const edges_params &p) {
  extern __shared__ double edges_shared[];
  Work work(p, reinterpret_cast<typename Work::A *>(edges_shared));
  typename Work::state z;
  for (int row = blockIdx.x * WARPS + threadIdx.x / 32; row < p.schedule.units;
       row += gridDim.x * WARPS) {
    const row_work w = row_of_unit(p.schedule, row);
    for (work.first = 0; work.first < Work::ALL_HEADS;
         work.first += Work::TILE) {
      work.begin(z, w.row);
      work.walk(z, w);
      work.finish(z, w);
    }
  }
}

} // namespace dfgnn

#endif
