/* qk_norm.cuh - rows of a tensor normalised over each head, and gradients
 * through that
 *
 * With u = (x - mean) / s, s^2 = mean((x - mean)^2) + eps, the result is w u;
 * RMS has no mean.  With g the gradient of w u, that of x is
 * (w g - mean(w g) - u mean(w g u)) / s, and that of w is sum g u. */
#ifndef DFGNN_ATTENTION_CUDA_QK_NORM_CUH
#define DFGNN_ATTENTION_CUDA_QK_NORM_CUH

#include "kernels/attention/cuda/qk_norm.h"
#include "kernels/common/cuda_common.cuh"

namespace dfgnn {

constexpr int kNormThreads = 256;

/* A row of a head; each of its lanes takes every n-th feature. */
template <typename T, int LAYER> struct norm_row {
  using A = accumulator_t<T>;
  const qk_norm_params &p;
  int64_t node;
  int head, lane;
  bool there;

  __device__ __forceinline__ norm_row(const qk_norm_params &params,
                                      int64_t pair)
      : p(params), lane(static_cast<int>(threadIdx.x & (params.lanes - 1))),
        there(pair < params.pairs) {
    const int64_t own = there ? pair : 0;
    node = own / p.heads;
    head = static_cast<int>(own - node * p.heads);
  }

  __device__ __forceinline__ T *at(const tensor_view &t, int f) const {
    return reinterpret_cast<T *>(
        static_cast<char *>(const_cast<void *>(t.data)) + node * t.node_bytes +
        int64_t(head) * t.head_bytes + int64_t(f) * t.feature_bytes);
  }
  __device__ __forceinline__ A weight(int f) const {
    return p.weight ? widen(static_cast<const T *>(p.weight)[f]) : A(1);
  }
  /* Calls f with each feature of the lane. */
  template <class F> __device__ __forceinline__ void each(const F &f) const {
    if (there)
#pragma unroll 4
      for (int i = lane; i < p.dim; i += p.lanes)
        f(i);
  }
  /* The mean over the row; x: the lane's sum.  The row's lanes are adjacent. */
  __device__ __forceinline__ A mean(A x) const {
    for (int o = p.lanes / 2; o > 0; o >>= 1)
      x += __shfl_xor_sync(kFullMask, x, o);
    return x / A(p.dim);
  }
  __device__ __forceinline__ void statistics(A &center, A &inverse) const {
    A sum = A(0), squares = A(0);
    if (LAYER)
      each([&](int f) { sum += widen(*at(p.x, f)); });
    center = LAYER ? mean(sum) : A(0);
    each([&](int f) {
      const A x = widen(*at(p.x, f)) - center;
      squares += x * x;
    });
    inverse = rsqrt_of(mean(squares) + A(p.eps));
  }
  static __device__ __forceinline__ float rsqrt_of(float x) {
    return rsqrtf(x);
  }
  static __device__ __forceinline__ double rsqrt_of(double x) {
    return rsqrt(x);
  }
};

template <typename T, int LAYER>
__global__ void __launch_bounds__(kNormThreads)
    normalize_rows(const __grid_constant__ qk_norm_params p) {
  using A = accumulator_t<T>;
  const int64_t thread = int64_t(blockIdx.x) * kNormThreads + threadIdx.x;
  const norm_row<T, LAYER> row(p, thread / p.lanes);
  A center, inverse;
  row.statistics(center, inverse);
  row.each([&](int f) {
    const A x = widen(*row.at(p.x, f)) - center;
    *row.at(p.to, f) = narrow<T>(x * inverse * row.weight(f));
  });
}

/* Each group of lanes takes every n-th row and keeps the gradient of the weight
 * over them in shared memory, [groups][D]. */
template <typename T, int LAYER>
__global__ void __launch_bounds__(kNormThreads)
    through_norm(const __grid_constant__ qk_norm_params p) {
  using A = accumulator_t<T>;
  extern __shared__ double norm_shared[];
  A *sums = reinterpret_cast<A *>(norm_shared);
  const int groups = kNormThreads / p.lanes, group = threadIdx.x / p.lanes;
  if (p.totals)
    for (int i = threadIdx.x; i < groups * p.dim; i += kNormThreads)
      sums[i] = A(0);
  __syncthreads();
  for (int64_t first = int64_t(blockIdx.x) * groups; first < p.pairs;
       first += int64_t(gridDim.x) * groups) {
    const norm_row<T, LAYER> row(p, first + group);
    A center, inverse, sum = A(0), along = A(0);
    row.statistics(center, inverse);
    row.each([&](int f) {
      const A u = (widen(*row.at(p.x, f)) - center) * inverse;
      const A g = widen(*row.at(p.gradient, f));
      if (p.totals)
        sums[group * p.dim + f] += g * u;
      sum += row.weight(f) * g;
      along += row.weight(f) * g * u;
    });
    sum = LAYER ? row.mean(sum) : A(0);
    along = row.mean(along);
    if (p.to.data)
      row.each([&](int f) {
        const A u = (widen(*row.at(p.x, f)) - center) * inverse;
        const A g = widen(*row.at(p.gradient, f));
        T &to = *row.at(p.to, f);
        const A x = (row.weight(f) * g - sum - u * along) * inverse;
        to = narrow<T>(p.adds ? widen(to) + x : x);
      });
  }
  if (!p.totals)
    return;
  __syncthreads();
  for (int f = threadIdx.x; f < p.dim; f += kNormThreads) {
    A sum = A(0);
    for (int i = 0; i < groups; ++i)
      sum += sums[i * p.dim + f];
    static_cast<A *>(p.totals)[int64_t(blockIdx.x) * p.dim + f] = sum;
  }
}

} // namespace dfgnn

#endif
