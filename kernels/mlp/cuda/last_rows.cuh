/* last_rows.cuh - what follows the last layer's products: activation, gate,
 * norm, residual and sums at destinations, and back again
 *
 * A block has 128 edges of a launch.  First each warp measures rows, then
 * threads walk along edges, each with its columns. */
#ifndef DFGNN_MLP_CUDA_LAST_ROWS_CUH
#define DFGNN_MLP_CUDA_LAST_ROWS_CUH

#include "kernels/mlp/cuda/rows.cuh"

namespace dfgnn {
namespace mlp {

constexpr int kRowThreads = 256;

/* FLAGS: MLP_VECTOR, MLP_GATE, and MLP_MAX or MLP_MIN of destinations. */
template <typename T_, int FLAGS, int LAST_, int NORM_> struct last_shape {
  using T = T_;
  static constexpr bool VECTOR = (FLAGS & MLP_VECTOR) != 0;
  static constexpr int VEC = VECTOR ? 4 : 1; /* columns of a thread */
  static constexpr bool GATE = (FLAGS & MLP_GATE) != 0;
  static constexpr bool EXTREME = (FLAGS & (MLP_MAX | MLP_MIN)) != 0;
  static constexpr float SIGN = (FLAGS & MLP_MIN) != 0 ? -1.0f : 1.0f;
  static constexpr int LAST = LAST_;
  static constexpr int NORM = NORM_;
};

struct last_numbers {
  block_edges edges;
  float mean[MLP_ROWS], scale[MLP_ROWS];
};

/* The value before the norm, of the numbers z of a row. */
template <class S>
__device__ __forceinline__ void before_norm(float (&u)[S::VEC], const float *z,
                                            int column, int width,
                                            float slope) {
  constexpr int VEC = S::VEC;
  using T = typename S::T;
  read_few<float, VEC, S::VECTOR>(u, z, column, width);
  if constexpr (S::GATE) {
    float v[VEC];
    read_few<float, VEC, S::VECTOR>(v, z + width, column, width);
#pragma unroll
    for (int i = 0; i < VEC; ++i)
      u[i] = sigmoid<T>(u[i]) * activate<S::LAST, T>(v[i], slope);
  } else {
#pragma unroll
    for (int i = 0; i < VEC; ++i)
      u[i] = activate<S::LAST, T>(u[i], slope);
  }
}

/* The mean and the scale of a row by a warp. */
template <class S>
__device__ __forceinline__ void measure_row(float &mean, float &scale,
                                            const float *z, int width,
                                            float slope, float epsilon) {
  constexpr int VEC = S::VEC;
  mean = 0.0f;
  scale = 1.0f;
  if constexpr (S::NORM != MLP_NORM_NONE) {
    float u[VEC], squares = 0.0f;
    if constexpr (S::NORM == MLP_NORM_LAYER) {
      for (int c = ptx::lane_id() * VEC; c < width; c += 32 * VEC) {
        before_norm<S>(u, z, c, width, slope);
#pragma unroll
        for (int i = 0; i < VEC; ++i)
          mean += u[i];
      }
      mean = lanes_sum<32>(mean) / float(width);
    }
    for (int c = ptx::lane_id() * VEC; c < width; c += 32 * VEC) {
      before_norm<S>(u, z, c, width, slope);
#pragma unroll
      for (int i = 0; i < VEC; ++i)
        squares += (u[i] - mean) * (u[i] - mean);
    }
    scale = 1.0f / sqrtf(lanes_sum<32>(squares) / float(width) + epsilon);
  }
}

/* The norm's weights, 1 and 0 where they are absent. */
template <class S>
__device__ __forceinline__ void
norm_numbers(float (&weight)[S::VEC], float (&bias)[S::VEC],
             const mlp_streamed_params &p, int column) {
  using T = typename S::T;
#pragma unroll
  for (int i = 0; i < S::VEC; ++i) {
    weight[i] = 1.0f;
    bias[i] = 0.0f;
  }
  if (p.norm_weight)
    read_few<T, S::VEC, false>(weight, static_cast<const T *>(p.norm_weight),
                               column, p.out_width);
  if (p.norm_bias)
    read_few<T, S::VEC, false>(bias, static_cast<const T *>(p.norm_bias),
                               column, p.out_width);
}

/* e' of columns of edge i of the block. */
template <class S>
__device__ __forceinline__ void
output_of(float (&y)[S::VEC], const mlp_streamed_params &p,
          const last_numbers &n, const float *z, int i, int column) {
  using T = typename S::T;
  const mlp_forward_params &f = p.pass.forward;
  before_norm<S>(y, z, column, p.out_width, f.slope);
  if constexpr (S::NORM != MLP_NORM_NONE) {
    float weight[S::VEC], bias[S::VEC];
    norm_numbers<S>(weight, bias, p, column);
#pragma unroll
    for (int k = 0; k < S::VEC; ++k)
      y[k] = (y[k] - n.mean[i]) * n.scale[i] * weight[k] + bias[k];
  }
  if (p.residual) {
    float own[S::VEC];
    read_few<T, S::VEC, S::VECTOR>(
        own, static_cast<const T *>(f.edge) + n.edges.place[i] * p.out_width,
        column, p.out_width);
#pragma unroll
    for (int k = 0; k < S::VEC; ++k)
      y[k] += own[k];
  }
}

/* Reads what is known of the block's edges; returns their number. */
template <class S>
__device__ __forceinline__ int
begin_rows(last_numbers &n, const mlp_streamed_params &p, int64_t from) {
  const int count = int(min(p.edges - from, int64_t(MLP_ROWS)));
  if (int(threadIdx.x) < MLP_ROWS)
    n.edges.read(p.pass.forward.graph, p.first + from, count);
  for (int i = int(threadIdx.x) / 32; i < count; i += kRowThreads / 32) {
    float mean, scale;
    measure_row<S>(mean, scale, p.last + (from + i) * p.last_stride,
                   p.out_width, p.pass.forward.slope, p.pass.forward.epsilon);
    if (ptx::lane_id() == 0) {
      n.mean[i] = mean;
      n.scale[i] = scale;
    }
  }
  __syncthreads();
  return count;
}

/* ---- forward ------------------------------------------------------------- */

/* Sums of a span's rows: of one of the block's parts, and of a thread's
 * columns.  EXTREME: the largest numbers instead (spans.cuh). */
template <class S> struct column_sums {
  using T = typename S::T;
  float sum[S::VEC];
  int arg[S::VEC];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int i = 0; i < S::VEC; ++i) {
      sum[i] = S::EXTREME ? -INFINITY : 0.0f;
      arg[i] = -1;
    }
  }
  __device__ __forceinline__ void add(const float (&y)[S::VEC], float factor,
                                      int place) {
#pragma unroll
    for (int i = 0; i < S::VEC; ++i) {
      if constexpr (S::EXTREME) {
        if (arg[i] < 0 || y[i] * S::SIGN > sum[i] || y[i] != y[i]) {
          sum[i] = y[i] * S::SIGN;
          arg[i] = place;
        }
      } else {
        sum[i] += y[i] * factor;
      }
    }
  }
  /* at: of the row in out, [rows, width]. */
  __device__ __forceinline__ void write(const mlp_sums &to, int row, int column,
                                        int width) const {
    const float factor =
        S::EXTREME ? S::SIGN : mean_factor(to.offsets, to.wide, row);
    float y[S::VEC];
#pragma unroll
    for (int i = 0; i < S::VEC; ++i) {
      y[i] = sum[i] * factor;
      if (S::EXTREME && to.arg && column + i < width)
        to.arg[int64_t(row) * width + column + i] = arg[i];
    }
    write_few<T, S::VEC, S::VECTOR>(
        static_cast<T *>(to.out) + int64_t(row) * width, column, width, y);
  }
  __device__ __forceinline__ void keep(const mlp_sums &to, int64_t span,
                                       bool tail, int column,
                                       int padded) const {
    const int64_t at = (span * 2 + tail) * padded + column;
#pragma unroll
    for (int i = 0; i < S::VEC; ++i) {
      to.partial[at + i] = sum[i];
      if constexpr (S::EXTREME)
        to.partial_arg[at + i] = arg[i];
    }
  }
};

/* A thread's columns of e' of a span: of edges begin to end of the block. */
template <class S>
__device__ __forceinline__ void
walk_span(const mlp_streamed_params &p, const last_numbers &n, int64_t from,
          int begin, int end, int64_t span, int column) {
  using T = typename S::T;
  const mlp_forward_params &f = p.pass.forward;
  const int64_t first = p.first + from; /* of the graph */
  const int padded = p.last_stride;
  column_sums<S> sums;
  sums.clear();
  bool cut = first + begin > 0 && __ldg(f.graph.row_of_edge + first + begin -
                                        1) == n.edges.row[begin];
  for (int i = begin; i < end; ++i) {
    const float *z = p.last + (from + i) * p.last_stride;
    const int64_t place = n.edges.place[i];
    float y[S::VEC];
    output_of<S>(y, p, n, z, i, column);
    if (f.edge_out)
      write_few<T, S::VEC, S::VECTOR>(static_cast<T *>(f.edge_out) +
                                          place * p.out_width,
                                      column, p.out_width, y);
    if (f.edge_rows) {
      const float factor = edge_factor<T>(f.src_factor, place);
      float weighted[S::VEC];
#pragma unroll
      for (int k = 0; k < S::VEC; ++k)
        weighted[k] = y[k] * factor;
      write_few<T, S::VEC, S::VECTOR>(static_cast<T *>(f.edge_rows) +
                                          (first + i) * padded,
                                      column, p.out_width, weighted);
    }
    if (!f.sums.out)
      continue;
    const int row = n.edges.row[i];
    const int next = i + 1 < end ? n.edges.row[i + 1]
                     : first + i + 1 < f.graph.edges
                         ? __ldg(f.graph.row_of_edge + first + i + 1)
                         : -1;
    sums.add(y, edge_factor<T>(f.dst_factor, place),
             S::EXTREME
                 ? int(first + i - entry(f.sums.offsets, f.sums.wide, row))
                 : 0);
    if (next == row && i + 1 < end)
      continue;
    if (next == row || cut)
      sums.keep(f.sums, span, !cut, column, padded);
    else
      sums.write(f.sums, row, column, p.out_width);
    sums.clear();
    cut = false;
  }
}

/* ---- backward ------------------------------------------------------------ */

/* Sums over a row by its warp. */
struct row_means {
  float mean, along; /* of the gradient, and of it times the normed row */
  float destination, source; /* e' times the sums' gradients */
};

template <class S>
__device__ __forceinline__ void
normed_of(float (&normed)[S::VEC], const last_numbers &n, const float *z, int i,
          int column, int width, float slope) {
  before_norm<S>(normed, z, column, width, slope);
#pragma unroll
  for (int k = 0; k < S::VEC; ++k)
    normed[k] = (normed[k] - n.mean[i]) * n.scale[i];
}

/* The dot product of e' with a row, which may be NULL. */
template <class S>
__device__ __forceinline__ float along_output(const float (&y)[S::VEC],
                                              const typename S::T *row,
                                              int column, int width) {
  using T = typename S::T;
  float x[S::VEC], sum = 0.0f;
  if (!row)
    return 0.0f;
  read_few<T, S::VEC, S::VECTOR>(x, row, column, width);
#pragma unroll
  for (int k = 0; k < S::VEC; ++k)
    sum += column + k < width ? x[k] * y[k] : 0.0f;
  return sum;
}

/* The gradients with respect to an edge's factors. */
template <class S>
__device__ __forceinline__ void
write_factors(const mlp_streamed_params &p, const last_numbers &n,
              const float *z, int64_t first, int i) {
  using T = typename S::T;
  const mlp_backward_params &b = p.pass;
  output_gradient_of<T> gradient;
  float destination = 0.0f, source = 0.0f, y[S::VEC];
  gradient.begin(p, n.edges, first, i, false);
  for (int c = ptx::lane_id() * S::VEC; c < p.out_width; c += 32 * S::VEC) {
    output_of<S>(y, p, n, z, i, c);
    destination += along_output<S>(y, gradient.destination, c, p.out_width);
    source += along_output<S>(y, gradient.source, c, p.out_width);
  }
  destination = lanes_sum<32>(destination) * gradient.destination_factor;
  source = lanes_sum<32>(source) * gradient.source_factor;
  if (ptx::lane_id() > 0)
    return;
  if (b.grad_dst_factor)
    static_cast<T *>(b.grad_dst_factor)[n.edges.place[i]] =
        narrow<T>(destination);
  if (b.grad_src_factor)
    static_cast<T *>(b.grad_src_factor)[n.edges.place[i]] = narrow<T>(source);
}

/* The gradient with respect to the last layer's z, from that with respect to
 * the value before the norm; to: a row of it. */
template <class S>
__device__ __forceinline__ void
write_last_gradient(typename S::T *to, const float *z,
                    const float (&gradient)[S::VEC], int column, int width,
                    float slope) {
  using T = typename S::T;
  constexpr int VEC = S::VEC;
  float x[VEC], gate[VEC], v[VEC];
  read_few<float, VEC, S::VECTOR>(x, z, column, width);
  if constexpr (S::GATE) {
    read_few<float, VEC, S::VECTOR>(v, z + width, column, width);
#pragma unroll
    for (int k = 0; k < VEC; ++k) {
      const float s = sigmoid<T>(x[k]);
      gate[k] =
          gradient[k] * activate<S::LAST, T>(v[k], slope) * s * (1.0f - s);
      v[k] = gradient[k] * s * derivative<S::LAST, T>(v[k], slope);
    }
    write_few<T, VEC, S::VECTOR>(to, column, width, gate);
    write_few<T, VEC, S::VECTOR>(to + width, column, width, v);
  } else {
#pragma unroll
    for (int k = 0; k < VEC; ++k)
      x[k] = gradient[k] * derivative<S::LAST, T>(x[k], slope);
    write_few<T, VEC, S::VECTOR>(to, column, width, x);
  }
}

/* A warp goes back through the norm of edge i. */
template <class S>
__device__ __forceinline__ void row_back(const mlp_streamed_params &p,
                                         const last_numbers &n, void *grad_z,
                                         int64_t from, int i) {
  using T = typename S::T;
  constexpr int VEC = S::VEC;
  const int lane = ptx::lane_id(), width = p.out_width;
  const float slope = p.pass.forward.slope;
  const float *z = p.last + (from + i) * p.last_stride;
  T *to = static_cast<T *>(grad_z) + (from + i) * p.last_stride;
  float weight[VEC], bias[VEC], y[VEC], normed[VEC];
  float mean = 0.0f, along = 0.0f;
  output_gradient_of<T> gradient;
  gradient.begin(p, n.edges, p.first + from, i, true);
  if constexpr (S::NORM != MLP_NORM_NONE) {
    for (int c = lane * VEC; c < width; c += 32 * VEC) {
      norm_numbers<S>(weight, bias, p, c);
      gradient.template get<VEC, S::VECTOR>(y, c, width);
      normed_of<S>(normed, n, z, i, c, width, slope);
#pragma unroll
      for (int k = 0; k < VEC; ++k) {
        mean += y[k] * weight[k];
        along += y[k] * weight[k] * normed[k];
      }
    }
    mean =
        S::NORM == MLP_NORM_LAYER ? lanes_sum<32>(mean) / float(width) : 0.0f;
    along = lanes_sum<32>(along) / float(width);
  }
  for (int c = lane * VEC; c < width; c += 32 * VEC) {
    gradient.template get<VEC, S::VECTOR>(y, c, width);
    if constexpr (S::NORM != MLP_NORM_NONE) {
      norm_numbers<S>(weight, bias, p, c);
      normed_of<S>(normed, n, z, i, c, width, slope);
#pragma unroll
      for (int k = 0; k < VEC; ++k)
        y[k] = n.scale[i] * (y[k] * weight[k] - mean - normed[k] * along);
    }
    write_last_gradient<S>(to, z, y, c, width, slope);
  }
  for (int c = p.last_width + lane; c < p.last_stride; c += 32)
    to[c] = T{};
  if (p.pass.grad_dst_factor || p.pass.grad_src_factor)
    write_factors<S>(p, n, z, p.first + from, i);
}

/* Adds a thread's columns of the norm's gradients over edges of the block. */
template <class S>
__device__ __forceinline__ void
add_norm(float *to, bool add, const mlp_streamed_params &p,
         const last_numbers &n, int64_t from, int begin, int end, int column) {
  using T = typename S::T;
  constexpr int VEC = S::VEC;
  float weight[VEC] = {}, bias[VEC] = {}, y[VEC], normed[VEC];
  for (int i = begin; i < end; ++i) {
    output_gradient_of<T> gradient;
    gradient.begin(p, n.edges, p.first + from, i, true);
    gradient.template get<VEC, S::VECTOR>(y, column, p.out_width);
    normed_of<S>(normed, n, p.last + (from + i) * p.last_stride, i, column,
                 p.out_width, p.pass.forward.slope);
#pragma unroll
    for (int k = 0; k < VEC; ++k) {
      weight[k] += y[k] * normed[k];
      bias[k] += y[k];
    }
  }
#pragma unroll
  for (int k = 0; k < VEC; ++k)
    if (column + k < p.out_width) {
      float *w = to + column + k, *b = w + p.last_stride;
      *w = weight[k] + (add ? *w : 0.0f);
      *b = bias[k] + (add ? *b : 0.0f);
    }
}

/* Calls f(part, begin, end, column): a thread's part of the block's edges,
 * which may be empty, and its columns. */
template <class S, typename F>
__device__ __forceinline__ void each_column(const mlp_streamed_params &p,
                                            int count, F f) {
  const int threads = kRowThreads / p.parts, edges = MLP_ROWS / p.parts;
  const int part = int(threadIdx.x) / threads;
  const int begin = part * edges, end = min(begin + edges, count);
  for (int c = int(threadIdx.x) % threads * S::VEC; c < p.out_width;
       c += threads * S::VEC)
    f(part, begin, end, c);
}

} // namespace mlp

/* A block for each 128 edges. */
template <typename T, int FLAGS, int LAST, int NORM>
__global__ void __launch_bounds__(256)
    mlp_finish_rows(const mlp_streamed_params p) {
  using S = mlp::last_shape<T, FLAGS, LAST, NORM>;
  __shared__ mlp::last_numbers n;
  const int64_t from = int64_t(blockIdx.x) * MLP_ROWS;
  const int count = mlp::begin_rows<S>(n, p, from);
  const int64_t span = (p.first + from) / MLP_ROWS * p.parts;
  mlp::each_column<S>(p, count, [&](int part, int begin, int end, int column) {
    if (begin < end)
      mlp::walk_span<S>(p, n, from, begin, end, span + part, column);
  });
}

/* Blocks walk over all edges of the launch.  grad_z: with respect to the last
 * layer's z, rows like those of p.last. */
template <typename T, int FLAGS, int LAST, int NORM>
__global__ void __launch_bounds__(256)
    mlp_last_rows(const mlp_streamed_params p, void *grad_z) {
  using S = mlp::last_shape<T, FLAGS, LAST, NORM>;
  __shared__ mlp::last_numbers n;
  bool add = p.pass.add;
  for (int64_t from = int64_t(blockIdx.x) * MLP_ROWS; from < p.edges;
       from += int64_t(gridDim.x) * MLP_ROWS) {
    const int count = mlp::begin_rows<S>(n, p, from);
    for (int i = int(threadIdx.x) / 32; i < count; i += mlp::kRowThreads / 32)
      mlp::row_back<S>(p, n, grad_z, from, i);
    if (NORM != MLP_NORM_NONE && p.pass.norm_partial)
      mlp::each_column<S>(
          p, count, [&](int part, int begin, int end, int column) {
            mlp::add_norm<S>(p.pass.norm_partial +
                                 (int64_t(blockIdx.x) * p.parts + part) * 2 *
                                     p.last_stride,
                             add, p, n, from, begin, end, column);
          });
    add = true;
    __syncthreads();
  }
}

} // namespace dfgnn

#endif
