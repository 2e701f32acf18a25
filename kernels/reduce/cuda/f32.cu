#include "kernels/reduce/cuda/reduce.cuh"

dfgnn::gather_kernel dfgnn::reduce_f32(dfgnn_dtype, int what,
                                       const gather_shape *shape) {
  return reduce_wide<float>(what, shape);
}
