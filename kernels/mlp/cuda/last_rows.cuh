/* last_rows.cuh - the way back from e' to the last layer's z, through the norm;
 * finish_rows.cuh has the way on
 *
 * Rows of the next edges are copied to shared memory while a warp works on
 * others. */
#ifndef DFGNN_MLP_CUDA_LAST_ROWS_CUH
#define DFGNN_MLP_CUDA_LAST_ROWS_CUH

#include "kernels/mlp/cuda/lane_rows.cuh"

namespace dfgnn {
namespace mlp {

/* A lane reads these values of an edge, from rows in memory or from copies. */
template <class S> struct edge_inputs {
  using T = typename S::T;
  const T *z, *own, *destination;

  __device__ __forceinline__ static T *copy_of(char *copies, int n) {
    const int row = ptx::lane_id() / S::LANES;
    return reinterpret_cast<T *>(copies) + (row * S::COPIES + n) * S::WIDTH;
  }
  /* A lane copies what it reads. */
  __device__ __forceinline__ static void copy(char *copies, int n,
                                              const T *row) {
    each_chunk<S>([&](int, int column) {
      copy_async(copy_of(copies, n) + column, row + column, MLP_CHUNK);
    });
  }

  __device__ __forceinline__ void
  begin(const mlp_rows_params &p, const block_edges &e, int64_t from, int i) {
    const mlp_backward_params &b = p.pass;
    if constexpr (S::NORM != MLP_NORM_NONE)
      z = last_row<S>(p, from + i);
    if constexpr (S::GRAD_EDGES)
      own = static_cast<const T *>(b.grad_edge_out) + e.place[i] * S::WIDTH;
    if constexpr (S::GRAD_DST)
      destination =
          static_cast<const T *>(b.grad_out_dst) + int64_t(e.row[i]) * S::WIDTH;
  }
  /* Calls f(row, number of its copy) for each row that there is. */
  template <typename F> __device__ __forceinline__ void each_row(F f) {
    int n = 0;
    if constexpr (S::NORM != MLP_NORM_NONE)
      f(z, n++);
    if constexpr (S::GRAD_EDGES)
      f(own, n++);
    if constexpr (S::GRAD_DST)
      f(destination, n++);
  }
  /* Begins to copy the rows. */
  __device__ __forceinline__ void send(char *copies) {
    if constexpr (S::AHEAD)
      each_row([&](const T *&row, int n) { copy(copies, n, row); });
  }
  /* Reads the copies from now on. */
  __device__ __forceinline__ void take(char *copies) {
    if constexpr (S::AHEAD)
      each_row([&](const T *&row, int n) { row = copy_of(copies, n); });
  }
};

/* The gradient with respect to e'; factor: of that of the destination. */
template <class S>
__device__ __forceinline__ void
read_gradient(lane_row<S> &y, const edge_inputs<S> &rows, float factor) {
  lane_row<S> destination;
  y = {};
  if constexpr (S::GRAD_EDGES)
    read_row<S>(y, rows.own);
  if constexpr (S::GRAD_DST) {
    read_row<S>(destination, rows.destination);
    each_chunk<S>([&](int k, int) {
#pragma unroll
      for (int j = 0; j < S::VEC; ++j)
        y.x[k][j] += destination.x[k][j] * factor;
    });
  }
}

/* A warp goes back through the norms of its rows. */
template <class S> struct rows_back {
  using T = typename S::T;
  lane_row<S> norm_weight;
  lane_row<S> affine[2]; /* sums of the gradients of the norm's weight, bias */
  lane_row<S> last[1];   /* of that of the last layer's bias */

  __device__ __forceinline__ void begin(const mlp_rows_params &p) {
    affine[0] = affine[1] = last[0] = {};
    if constexpr (S::NORM != MLP_NORM_NONE)
      read_norm<S>(norm_weight, p.norm_weight, 1.0f);
  }

  /* y, the gradient with respect to e', becomes that with respect to the value
   * before the norm. */
  __device__ __forceinline__ void norm(lane_row<S> &y,
                                       const lane_row<S> &normed, float scale) {
    float mean = 0.0f, along = 0.0f;
    each_chunk<S>([&](int k, int) {
#pragma unroll
      for (int j = 0; j < S::VEC; ++j) {
        affine[0].x[k][j] += y.x[k][j] * normed.x[k][j];
        affine[1].x[k][j] += y.x[k][j];
        y.x[k][j] *= norm_weight.x[k][j];
        mean += y.x[k][j];
        along += y.x[k][j] * normed.x[k][j];
      }
    });
    mean = S::NORM == MLP_NORM_LAYER ? sum_of_row<S>(mean) / float(S::WIDTH)
                                     : 0.0f;
    along = sum_of_row<S>(along) / float(S::WIDTH);
    each_chunk<S>([&](int k, int) {
#pragma unroll
      for (int j = 0; j < S::VEC; ++j)
        y.x[k][j] = scale * (y.x[k][j] - mean - normed.x[k][j] * along);
    });
  }

  /* Edge i of the block, whose first is `from` of the launch; a lane whose edge
   * is not live works on another's row, and adds and writes nothing. */
  __device__ __forceinline__ void row(const mlp_rows_params &p,
                                      const block_edges &e,
                                      const edge_inputs<S> &rows, void *grad_z,
                                      int64_t from, int i, bool live) {
    T *to = static_cast<T *>(grad_z) + (from + i) * S::WIDTH;
    lane_row<S> normed, y;
    read_gradient<S>(
        y, rows,
        mean_factor(p.pass.dst_offsets, p.pass.forward.graph.wide, e.row[i]));
    if (S::LANES < 32 && !live)
      y = {};
    if constexpr (S::NORM != MLP_NORM_NONE) {
      read_row<S>(normed, rows.z);
      const float scale = norm_row<S>(normed, p.pass.forward.epsilon);
      norm(y, normed, scale);
    }
    each_chunk<S>([&](int k, int column) {
      if (live)
        store_packed<S::VEC>(to + column, y.x[k]);
      if constexpr (S::BIAS)
#pragma unroll
        for (int j = 0; j < S::VEC; ++j)
          last[0].x[k][j] += y.x[k][j];
    });
  }

  /* Adds sums of the block's warps in order, those of a warp's rows first.
   * shared: [N, WIDTH]; to: the same of the block. */
  template <int N>
  __device__ __forceinline__ static void end(lane_row<S> (&x)[N], float *shared,
                                             float *to, bool add) {
#pragma unroll
    for (int n = 0; n < N; ++n)
#pragma unroll S::UNROLLED
      for (int k = 0; k < S::CHUNKS; ++k)
#pragma unroll
        for (int j = 0; j < S::VEC; ++j)
#pragma unroll
          for (int mask = S::LANES; mask < 32; mask *= 2)
            x[n].x[k][j] += __shfl_xor_sync(kFullMask, x[n].x[k][j], mask);
    for (int w = 0; w < int(blockDim.x) / 32; ++w) {
      if (w == int(threadIdx.x) / 32 && ptx::lane_id() < S::LANES)
        each_chunk<S>([&](int k, int column) {
#pragma unroll
          for (int j = 0; j < S::VEC; ++j)
#pragma unroll
            for (int n = 0; n < N; ++n) {
              float *at = shared + n * S::WIDTH + column + j;
              *at = x[n].x[k][j] + (w ? *at : 0.0f);
            }
        });
      __syncthreads();
    }
    for (int c = int(threadIdx.x); c < N * S::WIDTH; c += int(blockDim.x))
      to[c] = shared[c] + (add ? to[c] : 0.0f);
    __syncthreads();
  }
};

/* A block's warps go back through its edges, each through ROWS at a time; the
 * rows of the next are copied to `memory` meanwhile. */
template <class S>
__device__ __forceinline__ void
walk_back_rows(rows_back<S> &work, const mlp_rows_params &p,
               const block_edges &e, char *memory, void *grad_z, int64_t from,
               int count) {
  constexpr int ROWS = 32 / S::LANES, STEP = MLP_ROW_WARPS * ROWS;
  const int warp = int(threadIdx.x) / 32, lane = ptx::lane_id() / S::LANES;
  char *copies = memory + warp * 2 * S::COPY_BYTES;
  int stage = 0;
  edge_inputs<S> next;
  if (warp * ROWS < count) {
    next.begin(p, e, from, min(warp * ROWS + lane, count - 1));
    next.send(copies);
  }
  copy_commit();
  for (int i = warp * ROWS; i < count; i += STEP) {
    const int mine = i + lane;
    edge_inputs<S> rows = next;
    rows.take(copies + stage * S::COPY_BYTES);
    stage ^= 1;
    if (i + STEP < count) {
      next.begin(p, e, from, min(mine + STEP, count - 1));
      next.send(copies + stage * S::COPY_BYTES);
    }
    copy_commit();
    copy_wait<1>();
    work.row(p, e, rows, grad_z, from, min(mine, count - 1), mine < count);
  }
}

} // namespace mlp

/* Blocks walk over all edges of the launch.  grad_z: with respect to the last
 * layer's z, rows like those of p.last. */
template <typename T, int FLAGS, int NORM, int WIDTH>
__global__ void __launch_bounds__(MLP_ROW_WARPS * 32)
    mlp_last_rows(const mlp_rows_params p, void *grad_z) {
  using S = mlp::last_shape<T, FLAGS, NORM, WIDTH, 8>;
  __shared__ mlp::block_edges edges;
  __shared__ float sums[NORM != MLP_NORM_NONE || S::BIAS ? 2 * WIDTH : 1];
  extern __shared__ uint4 memory[];
  mlp::rows_back<S> work;
  work.begin(p);
  for (int64_t from = int64_t(blockIdx.x) * MLP_ROWS; from < p.edges;
       from += int64_t(gridDim.x) * MLP_ROWS) {
    const int count = int(min(p.edges - from, int64_t(MLP_ROWS)));
    if (int(threadIdx.x) < MLP_ROWS)
      edges.read(p.pass.forward.graph, p.first + from, count);
    __syncthreads();
    mlp::walk_back_rows<S>(work, p, edges, reinterpret_cast<char *>(memory),
                           grad_z, from, count);
    __syncthreads();
  }
  if (NORM != MLP_NORM_NONE && p.pass.norm_partial)
    work.end(work.affine, sums,
             p.pass.norm_partial + int64_t(blockIdx.x) * 2 * WIDTH, p.pass.add);
  if constexpr (S::BIAS)
    work.end(work.last, sums, p.last_bias + int64_t(blockIdx.x) * WIDTH,
             p.pass.add);
}

} // namespace dfgnn

#endif
