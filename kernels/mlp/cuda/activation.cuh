/* activation.cuh - activations and their derivatives */
#ifndef DFGNN_MLP_CUDA_ACTIVATION_CUH
#define DFGNN_MLP_CUDA_ACTIVATION_CUH

#include "kernels/common/cuda_common.cuh"
#include "kernels/mlp/cuda/params.h"

namespace dfgnn {
namespace mlp {

__device__ __forceinline__ float exponential(float x) {
  return exp2_fast(x * float(kLog2e));
}
/* The results are rounded to T, so that fast functions do. */
template <typename T> __device__ __forceinline__ float sigmoid(float x) {
  return reciprocal(1.0f + exponential(-x));
}
template <> __device__ __forceinline__ float sigmoid<bfloat_t>(float x) {
  return 0.5f + 0.5f * ptx::tanh_approximate(0.5f * x);
}
/* The distribution of a normal variable, and its density. */
__device__ __forceinline__ float normal(float x) {
  return 0.5f * erfcf(x * -0.70710678118654752f);
}
__device__ __forceinline__ float normal_density(float x) {
  return 0.39894228040143268f * exponential(-0.5f * x * x);
}
/* gelu_tanh(x) = x sigmoid(2 u(x)) */
constexpr float kGelu = 1.5957691216057308f; /* 2 sqrt(2 / pi) */
constexpr float kGeluCube = 0.044715f;

template <int A, typename T>
__device__ __forceinline__ float activate(float x) {
  if constexpr (A == MLP_RELU)
    return x < 0.0f ? 0.0f : x; /* keeps NaN */
  else if constexpr (A == MLP_SILU)
    return x * sigmoid<T>(x);
  else if constexpr (A == MLP_GELU)
    return x * normal(x);
  else if constexpr (A == MLP_GELU_TANH)
    return x * sigmoid<T>(kGelu * (x + kGeluCube * x * x * x));
  else
    return x;
}

/* With respect to x. */
template <int A, typename T>
__device__ __forceinline__ float derivative(float x) {
  if constexpr (A == MLP_RELU) {
    return x > 0.0f ? 1.0f : 0.0f;
  } else if constexpr (A == MLP_SILU) {
    const float s = sigmoid<T>(x);
    return s * (1.0f + x * (1.0f - s));
  } else if constexpr (A == MLP_GELU) {
    return normal(x) + x * normal_density(x);
  } else if constexpr (A == MLP_GELU_TANH) {
    const float s = sigmoid<T>(kGelu * (x + kGeluCube * x * x * x));
    return s + x * s * (1.0f - s) * kGelu * (1.0f + 3.0f * kGeluCube * x * x);
  } else {
    return 1.0f;
  }
}

} // namespace mlp
} // namespace dfgnn

#endif
