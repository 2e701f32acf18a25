/* last_rows.cuh - the way back from e' to the last layer's z, through the norm,
 * a gate and the activation; finish_rows.cuh has the way on
 *
 * Where rows are of the MLP's type, those of the next edges are copied to
 * shared memory while a warp works on others. */
#ifndef DFGNN_MLP_CUDA_LAST_ROWS_CUH
#define DFGNN_MLP_CUDA_LAST_ROWS_CUH

#include "kernels/mlp/cuda/lane_rows.cuh"

namespace dfgnn {
namespace mlp {

/* A lane's dot product of e' with a row, which may be NULL. */
template <class S>
__device__ __forceinline__ float
along_row(const float (&y)[S::VEC], const typename S::T *row, int column) {
  float x[S::VEC], sum = 0.0f;
  if (!row)
    return 0.0f;
  read_chunk<S>(x, row, column);
#pragma unroll
  for (int i = 0; i < S::VEC; ++i)
    sum += x[i] * y[i];
  return sum;
}

/* The gradients with respect to a live edge's factors; normed: its row. */
template <class S>
__device__ __forceinline__ void
write_factors(const mlp_streamed_params &p, const block_edges &e,
              const lane_row<S> &normed, const lane_row<S> &weight,
              int64_t first, int i, bool live) {
  using T = typename S::T;
  const mlp_backward_params &b = p.pass;
  output_gradient_of<T> gradient;
  float destination = 0.0f, source = 0.0f;
  gradient.begin(p, e, first, i, false);
  each_chunk<S>([&](int k, int column) {
    float y[S::VEC], own[S::VEC] = {};
    if constexpr (S::RESIDUAL)
      read_chunk<S>(
          own, static_cast<const T *>(b.forward.edge) + e.place[i] * S::WIDTH,
          column);
#pragma unroll
    for (int j = 0; j < S::VEC; ++j) {
      y[j] = normed.x[k][j];
      if constexpr (S::NORM != MLP_NORM_NONE)
        y[j] = y[j] * weight.x[k][j] +
               (p.norm_bias
                    ? widen(static_cast<const T *>(p.norm_bias)[column + j])
                    : 0.0f);
      y[j] += own[j];
    }
    destination += along_row<S>(y, gradient.destination, column);
    source += along_row<S>(y, gradient.source, column);
  });
  destination = sum_of_row<S>(destination) * gradient.destination_factor;
  source = sum_of_row<S>(source) * gradient.source_factor;
  if (lane_of_row<S>() > 0 || !live)
    return;
  if (b.grad_dst_factor)
    static_cast<T *>(b.grad_dst_factor)[e.place[i]] = narrow<T>(destination);
  if (b.grad_src_factor)
    static_cast<T *>(b.grad_src_factor)[e.place[i]] = narrow<T>(source);
}

/* row: NULL if it is not written. */
template <class S>
__device__ __forceinline__ void write_gradient(typename S::T *row, int column,
                                               float (&x)[S::VEC]) {
  if constexpr (S::ROUND)
#pragma unroll
    for (int i = 0; i < S::VEC; ++i)
      x[i] = tf32_nearest(x[i]);
  if (row)
    write_chunk<S>(row, column, x);
}

/* The gradient with respect to the last layer's z, from that with respect to
 * the value before the norm; to: a row of it, or NULL.  x becomes it, and with
 * a gate v that of the row's second half. */
template <class S>
__device__ __forceinline__ void
write_last_gradient(float (&x)[S::VEC], float (&v)[S::VEC], typename S::T *to,
                    const typename S::Z *z, const float (&gradient)[S::VEC],
                    int column, float slope) {
  using T = typename S::T;
  constexpr int VEC = S::VEC;
  if constexpr (S::CURVED)
    read_copy<S>(x, z, column);
  if constexpr (S::GATE) {
    read_copy<S>(v, z + S::WIDTH, column);
#pragma unroll
    for (int k = 0; k < VEC; ++k) {
      const float s = sigmoid<T>(x[k]);
      x[k] = gradient[k] * activate<S::LAST, T>(v[k], slope) * s * (1.0f - s);
      v[k] = gradient[k] * s * derivative<S::LAST, T>(v[k], slope);
    }
    write_gradient<S>(to, column, x);
    write_gradient<S>(to ? to + S::WIDTH : nullptr, column, v);
  } else {
#pragma unroll
    for (int k = 0; k < VEC; ++k)
      x[k] = S::CURVED ? gradient[k] * derivative<S::LAST, T>(x[k], slope)
                       : gradient[k];
    write_gradient<S>(to, column, x);
  }
}

/* Adds a gradient's row times `factor`; arg: that of an extreme goes to the
 * edge that it was of. */
template <class S>
__device__ __forceinline__ void add_row(lane_row<S> &y, const lane_row<S> &x,
                                        const int32_t *arg, int at,
                                        float factor) {
  each_chunk<S>([&](int k, int column) {
#pragma unroll
    for (int j = 0; j < S::VEC; ++j)
      if (!arg || __ldg(arg + column + j) == at)
        y.x[k][j] += x.x[k][j] * factor;
  });
}

/* A lane reads these values of an edge, from rows in memory or from copies. */
template <class S> struct edge_inputs {
  using T = typename S::T;
  const typename S::Z *z;
  const T *own, *destination, *source;

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

  __device__ __forceinline__ void begin(const mlp_streamed_params &p,
                                        const block_edges &e, int64_t from,
                                        int i) {
    const mlp_backward_params &b = p.pass;
    z = last_row<S>(p, from + i);
    if constexpr (S::GRAD_EDGES)
      own = static_cast<const T *>(b.grad_edge_out) + e.place[i] * S::WIDTH;
    if constexpr (S::GRAD_DST)
      destination =
          static_cast<const T *>(b.grad_out_dst) + int64_t(e.row[i]) * S::WIDTH;
    if constexpr (S::GRAD_SRC)
      source = static_cast<const T *>(b.grad_out_src) +
               int64_t(e.source[i]) * S::WIDTH;
  }
  /* Begins to copy the rows. */
  __device__ __forceinline__ void send(char *copies) const {
    if constexpr (S::AHEAD) {
      int n = 0;
      copy(copies, n++, z);
      if constexpr (S::GATE)
        copy(copies, n++, z + S::WIDTH);
      if constexpr (S::GRAD_EDGES)
        copy(copies, n++, own);
      if constexpr (S::GRAD_DST)
        copy(copies, n++, destination);
      if constexpr (S::GRAD_SRC)
        copy(copies, n++, source);
    }
  }
  /* Reads the copies from now on. */
  __device__ __forceinline__ void take(char *copies) {
    if constexpr (S::AHEAD) {
      int n = S::GATE ? 2 : 1;
      z = copy_of(copies, 0);
      if constexpr (S::GRAD_EDGES)
        own = copy_of(copies, n++);
      if constexpr (S::GRAD_DST)
        destination = copy_of(copies, n++);
      if constexpr (S::GRAD_SRC)
        source = copy_of(copies, n++);
    }
  }
};

/* The gradient with respect to e'; factors: those of `rows`. */
template <class S>
__device__ __forceinline__ void
read_gradient(lane_row<S> &y, const edge_inputs<S> &rows,
              const output_gradient_of<typename S::T> &from) {
  lane_row<S> destination, source;
  each_chunk<S>([&](int k, int) {
#pragma unroll
    for (int j = 0; j < S::VEC; ++j)
      y.x[k][j] = 0.0f;
  });
  if constexpr (S::GRAD_EDGES)
    read_row<S>(y, rows.own);
  if constexpr (S::GRAD_DST)
    read_row<S>(destination, rows.destination);
  if constexpr (S::GRAD_SRC)
    read_row<S>(source, rows.source);
  if constexpr (S::GRAD_DST)
    add_row<S>(y, destination, from.arg_destination, from.at_destination,
               from.destination_factor);
  if constexpr (S::GRAD_SRC)
    add_row<S>(y, source, from.arg_source, from.at_source, from.source_factor);
}

/* A warp goes back through the norms of its rows. */
template <class S> struct rows_back {
  using T = typename S::T;
  lane_row<S> norm_weight;
  lane_row<S> affine[2]; /* sums of the gradients of the norm's weight, bias */
  lane_row<S> last[S::GATE ? 2 : 1]; /* of that of the last layer's bias */

  __device__ __forceinline__ static void clear(lane_row<S> &x) {
#pragma unroll
    for (int k = 0; k < S::CHUNKS; ++k)
#pragma unroll
      for (int j = 0; j < S::VEC; ++j)
        x.x[k][j] = 0.0f;
  }
  __device__ __forceinline__ void begin(const mlp_streamed_params &p) {
    clear(affine[0]);
    clear(affine[1]);
    clear(last[0]);
    if constexpr (S::GATE)
      clear(last[1]);
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
   * is not live goes along with one that is, and adds nothing. */
  __device__ __forceinline__ void row(const mlp_streamed_params &p,
                                      const block_edges &e,
                                      const edge_inputs<S> &rows, void *grad_z,
                                      int64_t from, int i, bool live) {
    const mlp_forward_params &f = p.pass.forward;
    T *to =
        live ? static_cast<T *>(grad_z) + (from + i) * p.last_stride : nullptr;
    lane_row<S> normed, y;
    output_gradient_of<T> gradient;
    gradient.begin(p, e, p.first + from, i, true);
    if (S::CURVED || p.pass.grad_dst_factor || p.pass.grad_src_factor)
      read_before_norm<S>(normed, rows.z, f.slope);
    read_gradient<S>(y, rows, gradient);
    if (S::LANES < 32 && !live)
      clear(y);
    const float scale = norm_row<S>(normed, f.epsilon);
    if constexpr (S::NORM != MLP_NORM_NONE)
      norm(y, normed, scale);
    each_chunk<S>([&](int k, int column) {
      float x[S::VEC], v[S::VEC];
      write_last_gradient<S>(x, v, to, rows.z, y.x[k], column, f.slope);
      if constexpr (S::BIAS) {
#pragma unroll
        for (int j = 0; j < S::VEC; ++j) {
          last[0].x[k][j] += x[j];
          if constexpr (S::GATE)
            last[1].x[k][j] += v[j];
        }
      }
    });
    for (int c = p.last_width + lane_of_row<S>(); live && c < p.last_stride;
         c += S::LANES)
      to[c] = T{};
    if (p.pass.grad_dst_factor || p.pass.grad_src_factor)
      write_factors<S>(p, e, normed, norm_weight, p.first + from, i, live);
  }

  /* Adds sums of the block's warps in order, those of a warp's rows first.
   * shared: [N, WIDTH]; to: the same of the block, in rows of `stride`. */
  template <int N>
  __device__ __forceinline__ static void end(lane_row<S> (&x)[N], float *shared,
                                             float *to, int stride, bool add) {
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
    for (int c = int(threadIdx.x); c < N * S::WIDTH; c += int(blockDim.x)) {
      float *at = to + c / S::WIDTH * stride + c % S::WIDTH;
      *at = shared[c] + (add ? *at : 0.0f);
    }
    __syncthreads();
  }
};

/* A block's warps go back through its edges, each through ROWS at a time; the
 * rows of the next are copied to `memory` meanwhile. */
template <class S>
__device__ __forceinline__ void
walk_back_rows(rows_back<S> &work, const mlp_streamed_params &p,
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
template <typename T, int FLAGS, int LAST, int NORM, int WIDTH>
__global__ void __launch_bounds__(MLP_ROW_WARPS * 32)
    mlp_last_rows(const mlp_streamed_params p, void *grad_z) {
  using S = mlp::last_shape<T, FLAGS, LAST, NORM, WIDTH, true>;
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
             p.pass.norm_partial + int64_t(blockIdx.x) * 2 * p.last_stride,
             p.last_stride, p.pass.add);
  if constexpr (S::BIAS)
    work.end(work.last, sums, p.last_bias + int64_t(blockIdx.x) * p.last_stride,
             WIDTH, p.pass.add);
}

} // namespace dfgnn

#endif
