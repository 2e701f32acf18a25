#include "kernels/spmm/cuda/spmm.cuh"

dfgnn::gather_kernel dfgnn::spmm_bf16(dfgnn_dtype, int what,
                                      const gather_shape *shape) {
  return spmm_half<__nv_bfloat16>(what, shape);
}
