/* weights.cu - the gradient of edge weights: dw_ij = r_i c_j <dO_i,
 * x_j>, a sampled product of two dense matrices
 *
 * L lanes take a run of edges, whatever their rows, and a head: C vectors of
 * VEC features a lane, U edges in flight.  Wider heads go through the features
 * more than once. */
#include "kernels/common/cuda_gather.cuh"
#include "kernels/spmm/cuda/spmm.h"

namespace dfgnn {

namespace {

constexpr int kRun = 64; /* edges of a group of lanes */

struct weigh_params {
  int64_t edges;
  offsets_t offsets;
  const int *indices;
  int rows, heads, dim;
  feature_tensor grad, value;
  const void *row_scale, *gathered_scale;
  void *to;
};

template <typename T, int VEC>
__device__ __forceinline__ const T *features_at(const feature_tensor &t,
                                                int node, int head, int d) {
  const T *row = reinterpret_cast<const T *>(static_cast<const char *>(t.data) +
                                             int64_t(node) * t.node_bytes);
  return row + head * t.head + (VEC > 1 ? int64_t(d) : d * t.feature);
}

/* Lanes whose features are beyond the head's count zeros. */
template <typename T, int VEC, int L, int C>
__device__ __forceinline__ void
read_features(packed<T, VEC> (&x)[C], const weigh_params &p,
              const feature_tensor &t, int node, int head, int d, bool live) {
#pragma unroll
  for (int c = 0; c < C; ++c) {
    const int at = d + c * L * VEC;
    const bool on = live && at < p.dim;
    clear(x[c]);
    load_if<VEC>(x[c], features_at<T, VEC>(t, node, head, on ? at : 0), on);
  }
}

/* The row of an edge: the last that begins at or before it. */
__device__ __forceinline__ int row_of_edge(const weigh_params &p, int64_t e) {
  int low = 0, high = p.rows;
  while (high - low > 1) {
    const int middle = low + (high - low) / 2;
    if (p.offsets[middle] <= e)
      low = middle;
    else
      high = middle;
  }
  return low;
}

template <typename T, int VEC, int L, int C, int U>
__global__ void __launch_bounds__(128)
    weigh_edges(const __grid_constant__ weigh_params p) {
  using A = accumulator_t<T>;
  constexpr int kWidth = L * C * VEC;
  const int head = blockIdx.y, d = (threadIdx.x & (L - 1)) * VEC;
  const int64_t run =
      (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) / L * kRun;
  const int64_t last = min(run + kRun, p.edges);
  int row = run < last ? row_of_edge(p, run) : 0, loaded = -1;
  int64_t end = p.offsets[int64_t(row) + 1];
  packed<T, VEC> g[C], x[U][C];
  for (int64_t e = run; e < run + kRun; e += U) { /* as often in every lane */
    const int count =
        static_cast<int>(max(min(last - e, int64_t(U)), int64_t(0)));
    A dot[U], scale[U];
    int j[U];
#pragma unroll
    for (int u = 0; u < U; ++u) {
      j[u] = u < count ? __ldcs(p.indices + e + u) : 0;
      dot[u] = scale[u] = A(0);
    }
    for (int from = 0; from < p.dim; from += kWidth) {
#pragma unroll
      for (int u = 0; u < U; ++u)
        read_features<T, VEC, L>(x[u], p, p.value, j[u], head, from + d,
                                 u < count);
      int r = row, done = 0;
      int64_t r_end = end;
      while (done < count) { /* over the rows that these edges are of */
        const int stop = static_cast<int>(min(r_end - e, int64_t(count)));
        if (done < stop) {
          if (loaded != r || p.dim > kWidth)
            read_features<T, VEC, L>(g, p, p.grad, r, head, from + d, true);
          loaded = r;
          const A row_scale =
              p.row_scale ? __ldg(static_cast<const A *>(p.row_scale) + r)
                          : A(1);
#pragma unroll
          for (int u = 0; u < U; ++u) {
            if (u < done || u >= stop)
              continue;
            scale[u] = row_scale;
#pragma unroll
            for (int c = 0; c < C; ++c)
#pragma unroll
              for (int i = 0; i < VEC; ++i)
                dot[u] += widen(g[c].item[i]) * widen(x[u][c].item[i]);
          }
          done = stop;
        }
        if (done < count)
          r_end = p.offsets[int64_t(++r) + 1];
      }
      if (from + kWidth >= p.dim) {
        row = r;
        end = r_end;
      }
    }
#pragma unroll
    for (int u = 0; u < U; ++u) {
      const A sum = lanes_sum<L>(dot[u]);
      if (d != 0 || u >= count)
        continue;
      A y = sum * scale[u];
      if (p.gathered_scale)
        y *= __ldg(static_cast<const A *>(p.gathered_scale) + j[u]);
      static_cast<A *>(p.to)[(e + u) * p.heads + head] = y;
    }
  }
}

typedef void (*weigh_kernel)(weigh_params);

struct weigh_choice {
  weigh_kernel kernel;
  int lanes;
};

template <typename T, int VEC> weigh_choice weigh_shape(int needed) {
  if (needed <= 4)
    return {weigh_edges<T, VEC, 4, 1, 4>, 4};
  if (needed <= 8)
    return {weigh_edges<T, VEC, 8, 1, 4>, 8};
  if (needed <= 16)
    return {weigh_edges<T, VEC, 16, 1, 4>, 16};
  if (needed <= 32)
    return {weigh_edges<T, VEC, 32, 1, 4>, 32};
  return {weigh_edges<T, VEC, 32, 2, 2>, 32};
}

template <typename T> weigh_choice weigh_type(int dim, int wide) {
  constexpr int V = 16 / sizeof(T);
  if constexpr (sizeof(T) < 8)
    if (wide)
      return weigh_shape<T, V>((dim + V - 1) / V);
  (void)wide;
  return weigh_shape<T, 1>(dim);
}

weigh_choice weigh_find(dfgnn_dtype dtype, int dim, int wide) {
  switch (dtype) {
  case DFGNN_F64:
    return weigh_type<double>(dim, wide);
  case DFGNN_F16:
    return weigh_type<__half>(dim, wide);
  case DFGNN_BF16:
    return weigh_type<__nv_bfloat16>(dim, wide);
  default:
    return weigh_type<float>(dim, wide);
  }
}

/* Are the heads of each node whole 16-byte words? */
int wide_heads(const weigh_params *p, const feature_tensor *t,
               dfgnn_dtype dtype) {
  const int64_t size = static_cast<int64_t>(dfgnn_dtype_size(dtype));
  return dtype != DFGNN_F64 && reinterpret_cast<uintptr_t>(t->data) % 16 == 0 &&
         t->node_bytes % 16 == 0 && (p->dim == 1 || t->feature == 1) &&
         (p->heads == 1 || t->head * size % 16 == 0) && p->dim * size % 16 == 0;
}

} // namespace

dfgnn_status spmm_grad_weights(const dfgnn_launch *launch) {
  const dfgnn_problem *problem = launch->setting.problem;
  const dfgnn_matrix *matrix = launch->setting.matrix;
  const dfgnn_args *args = launch->args;
  weigh_params p = {};
  if (matrix->destinations == 0 || matrix->edges == 0)
    return DFGNN_OK;
  p.edges = matrix->edges;
  p.offsets = offsets_of(matrix);
  p.indices = matrix->indices;
  p.rows = static_cast<int>(matrix->destinations);
  p.heads = static_cast<int>(problem->heads);
  p.dim = static_cast<int>(problem->dim);
  p.row_scale = args->scale_dst;
  p.gathered_scale = args->scale_src;
  p.to = args->grad_edge_weight;
  dfgnn_status status = gather_tensor(&p.grad, "grad_out", args->grad_out,
                                      &args->grad_out_strides, problem->dtype);
  if (!status)
    status = gather_tensor(&p.value, "value", args->value, &args->value_strides,
                           problem->dtype);
  if (status)
    return status;
  const int wide = wide_heads(&p, &p.grad, problem->dtype) &&
                   wide_heads(&p, &p.value, problem->dtype);
  const weigh_choice choice = weigh_find(problem->dtype, p.dim, wide);
  const int64_t runs = (p.edges + kRun - 1) / kRun;
  const int64_t blocks = (runs * choice.lanes + 127) / 128;
  if (blocks > INT32_MAX)
    return dfgnn__fail(DFGNN_ERROR_UNSUPPORTED, "%lld edges are too many",
                       static_cast<long long>(p.edges));
  return gather_launch(
      "weigh_edges", choice.kernel,
      dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(p.heads)), 128,
      launch->stream, p);
}

} // namespace dfgnn
