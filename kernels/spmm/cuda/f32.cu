#include "kernels/spmm/cuda/spmm.cuh"

dfgnn::gather_kernel dfgnn::spmm_f32(dfgnn_dtype, int what,
                                     const gather_shape *shape) {
  return spmm_wide<float>(what, shape);
}
