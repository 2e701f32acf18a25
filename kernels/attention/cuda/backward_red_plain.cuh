/* backward_red_plain.cuh - the walk of backward_red.cuh for any stride
 * and width, and the kernel that clears gradients before it */
#ifndef DFGNN_ATTENTION_CUDA_BACKWARD_RED_PLAIN_CUH
#define DFGNN_ATTENTION_CUDA_BACKWARD_RED_PLAIN_CUH

#include "kernels/attention/cuda/backward_red.h"
#include "kernels/attention/cuda/schedule.cuh"
#include "kernels/attention/cuda/terms.cuh"

namespace dfgnn {

template <typename T>
__device__ __forceinline__ float feature_of(const char *row,
                                            const tensor_view &t, int f) {
  return widen(
      *reinterpret_cast<const T *>(row + int64_t(f) * t.feature_bytes));
}

__device__ __forceinline__ char *row_of(const tensor_view &t, int node,
                                        int head) {
  return static_cast<char *>(const_cast<void *>(t.data)) +
         int64_t(node) * t.node_bytes + int64_t(head) * t.head_bytes;
}

/* Each lane has features of its own, so lanes need no barrier around `sum`. */
template <typename T>
__global__ void __launch_bounds__(128)
    gradient_red_plain(const __grid_constant__ grad_red_params p) {
  extern __shared__ float red_shared[];
  const grad_params &g = p.rows;
  const int dim = g.dim, head = blockIdx.y, lane = threadIdx.x & 31;
  const int unit = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
  float *sum = red_shared + threadIdx.x / 32 * dim;
  if (unit >= g.schedule.units)
    return;
  const row_work w = row_of_unit(g.schedule, unit);
  const char *q = row_of(g.own[0], w.row, head);
  const char *grad = row_of(g.own[1], w.row, head);
  const char *out = row_of(g.out, w.row, head);
  float delta = 0;
  for (int f = lane; f < dim; f += 32) {
    sum[f] = 0;
    delta += feature_of<T>(grad, g.own[1], f) * feature_of<T>(out, g.out, f);
  }
  delta = lanes_sum<32>(delta) -
          grad_lse_of<float>(g.grad_lse, int64_t(w.row) * g.heads + head);
  const float lse = lse_of(
      static_cast<const float *>(g.lse)[int64_t(w.row) * g.heads + head]);
  const float scale = float(g.scale);

  for (int e = 0; e < w.degree; ++e) {
    const int j = w.indices[e];
    const char *key = row_of(g.far[0], j, head);
    const char *value = row_of(g.far[1], j, head);
    float product = 0, dp = 0;
    for (int f = lane; f < dim; f += 32) {
      product +=
          feature_of<T>(q, g.own[0], f) * feature_of<T>(key, g.far[0], f);
      dp +=
          feature_of<T>(grad, g.own[1], f) * feature_of<T>(value, g.far[1], f);
    }
    product = lanes_sum<32>(product) * scale * float(kLog2e);
    dp = lanes_sum<32>(dp);
    const edge_terms<float> t =
        terms_of<DFGNN_OP_GT, float>(0, product, dp, lse, delta, 0, 0, 1, 0, 1);
    if (t.weight == 0 && t.score == 0) /* 0 times infinity would be NaN */
      continue;
    float *to_key = reinterpret_cast<float *>(row_of(p.key, j, head));
    float *to_value = reinterpret_cast<float *>(row_of(p.value, j, head));
    for (int f = lane; f < dim; f += 32) {
      sum[f] += t.score * feature_of<T>(key, g.far[0], f);
      const int64_t n = f;
      if (p.key.data)
        atomicAdd(to_key + n * (p.key.feature_bytes / sizeof(float)),
                  t.score * scale * feature_of<T>(q, g.own[0], f));
      if (p.value.data)
        atomicAdd(to_value + n * (p.value.feature_bytes / sizeof(float)),
                  t.weight * feature_of<T>(grad, g.own[1], f));
    }
  }
  if (!g.to[0].data)
    return;
  char *to = row_of(g.to[0], w.row, head);
  for (int f = lane; f < dim; f += 32)
    *reinterpret_cast<T *>(to + int64_t(f) * g.to[0].feature_bytes) =
        narrow<T>(sum[f] * scale);
}

__global__ void __launch_bounds__(256)
    red_clear(const __grid_constant__ red_clear_params p) {
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < p.count;
       i += int64_t(gridDim.x) * blockDim.x) {
    const int64_t pair = i / p.dim;
    const int node = static_cast<int>(pair / p.heads);
    char *row = row_of(p.to, node, static_cast<int>(pair % p.heads));
    *reinterpret_cast<float *>(row + (i % p.dim) * p.to.feature_bytes) = 0;
  }
}

} // namespace dfgnn

#endif
