#include "kernels/reduce/cuda/reduce.cuh"

dfgnn::gather_kernel dfgnn::reduce_bf16(dfgnn_dtype, int what,
                                        const gather_shape *shape) {
  return reduce_wide<__nv_bfloat16>(what, shape);
}
