#include "kernels/spmm/cuda/spmm.cuh"

dfgnn::gather_kernel dfgnn::spmm_f16(dfgnn_dtype, int what,
                                     const gather_shape *shape) {
  return spmm_half<__half>(what, shape);
}
