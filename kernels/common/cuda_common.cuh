/* cuda_common.cuh - what every CUDA kernel file needs: conversions between
 * storage and arithmetic, vector loads, sub-warp reductions, launch checks */
#ifndef DFGNN_KERNELS_CUDA_COMMON_CUH
#define DFGNN_KERNELS_CUDA_COMMON_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "base/error.h"
#include "kernels/common/variant.h"

namespace dfgnn {

constexpr unsigned kFullMask = 0xffffffffu;
constexpr float kLog2e = 1.44269504088896340736f;
constexpr float kLn2 = 0.69314718055994530942f;

/* The type of products, sums and scalars for a storage type. */
template <typename T> struct accumulator { using type = float; };
template <> struct accumulator<double> { using type = double; };
template <typename T> using accumulator_t = typename accumulator<T>::type;

__device__ __forceinline__ float widen(float x) { return x; }
__device__ __forceinline__ double widen(double x) { return x; }
__device__ __forceinline__ float widen(__half x) { return __half2float(x); }
__device__ __forceinline__ float widen(__nv_bfloat16 x) {
  return __bfloat162float(x);
}

template <typename T> __device__ __forceinline__ T narrow(accumulator_t<T> x);
template <> __device__ __forceinline__ float narrow<float>(float x) {
  return x;
}
template <> __device__ __forceinline__ double narrow<double>(double x) {
  return x;
}
template <> __device__ __forceinline__ __half narrow<__half>(float x) {
  return __float2half_rn(x);
}
template <>
__device__ __forceinline__ __nv_bfloat16 narrow<__nv_bfloat16>(float x) {
  return __float2bfloat16_rn(x);
}

/* One word of BYTES bytes, as the memory system moves it. */
template <int BYTES> struct word;
template <> struct word<2> { using type = unsigned short; };
template <> struct word<4> { using type = unsigned; };
template <> struct word<8> { using type = uint2; };
template <> struct word<16> { using type = uint4; };

/* VEC consecutive elements in one word; p is aligned to the word. */
template <typename T, int VEC> struct alignas(sizeof(T) * VEC) packed {
  using word_t = typename word<sizeof(T) * VEC>::type;
  union {
    word_t bits;
    T item[VEC];
  };
  __device__ __forceinline__ packed() {}
};

/* Through the read-only path. */
template <int VEC, typename T>
__device__ __forceinline__ packed<T, VEC> load_packed(const T *p) {
  packed<T, VEC> x;
  x.bits = __ldg(reinterpret_cast<const typename packed<T, VEC>::word_t *>(p));
  return x;
}

template <typename T, int VEC>
__device__ __forceinline__ packed<T, VEC> zero_packed() {
  packed<T, VEC> x;
  x.bits = typename packed<T, VEC>::word_t{};
  return x;
}

template <typename T, int VEC>
__device__ __forceinline__ void widen(accumulator_t<T> (&to)[VEC],
                                      const packed<T, VEC> &x) {
#pragma unroll
  for (int i = 0; i < VEC; ++i)
    to[i] = widen(x.item[i]);
}

template <int VEC, typename T>
__device__ __forceinline__ void store_packed(T *p,
                                             const accumulator_t<T> (&x)[VEC]) {
  packed<T, VEC> y;
#pragma unroll
  for (int i = 0; i < VEC; ++i)
    y.item[i] = narrow<T>(x[i]);
  *reinterpret_cast<typename packed<T, VEC>::word_t *>(p) = y.bits;
}

/* 2^x: on floats the unit's own approximation, 2 ulp. */
__device__ __forceinline__ float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ __forceinline__ double exp2_fast(double x) { return exp2(x); }
__device__ __forceinline__ float log2_of(float x) { return log2f(x); }
__device__ __forceinline__ double log2_of(double x) { return log2(x); }
__device__ __forceinline__ float max_of(float a, float b) {
  return fmaxf(a, b);
}
__device__ __forceinline__ double max_of(double a, double b) {
  return fmax(a, b);
}

/* Vectors shorter than this count as such, as torch's normalize has it. */
__device__ __forceinline__ float inverse_norm(float square) {
  return rsqrtf(fmaxf(square, 1e-24f));
}
__device__ __forceinline__ double inverse_norm(double square) {
  return rsqrt(fmax(square, 1e-24));
}

/* Reductions over aligned groups of LANES lanes; every lane gets the result. */
template <int LANES, typename A> __device__ __forceinline__ A lanes_sum(A x) {
#pragma unroll
  for (int o = LANES / 2; o > 0; o >>= 1)
    x += __shfl_xor_sync(kFullMask, x, o);
  return x;
}
template <int LANES, typename A> __device__ __forceinline__ A lanes_max(A x) {
#pragma unroll
  for (int o = LANES / 2; o > 0; o >>= 1)
    x = max_of(x, __shfl_xor_sync(kFullMask, x, o));
  return x;
}

/* CSR offsets of either width; the branch is uniform. */
struct offsets_t {
  const void *array;
  int wide;
  __device__ __forceinline__ int64_t operator[](int64_t i) const {
    return wide ? __ldg(static_cast<const long long *>(array) + i)
                : static_cast<int64_t>(
                      __ldg(static_cast<const int *>(array) + i));
  }
};

inline offsets_t offsets_of(const dfgnn_matrix *matrix) {
  return {matrix->offsets, matrix->offsets64};
}

/* The status of the launches since the last check; clears CUDA's own error. */
inline dfgnn_status launch_status(const char *kernel) {
  cudaError_t error = cudaGetLastError();
  if (error == cudaSuccess)
    return DFGNN_OK;
  return dfgnn__fail(DFGNN_ERROR_DEVICE, "%s: launch failed: %s", kernel,
                     cudaGetErrorString(error));
}

} // namespace dfgnn

#define DFGNN_CUDA_TRY(call)                                                   \
  do {                                                                         \
    cudaError_t error_ = (call);                                               \
    if (error_ != cudaSuccess) {                                               \
      (void)cudaGetLastError();                                                \
      return dfgnn__fail(DFGNN_ERROR_DEVICE, "%s: %s", #call,                  \
                         cudaGetErrorString(error_));                          \
    }                                                                          \
  } while (0)

#endif
