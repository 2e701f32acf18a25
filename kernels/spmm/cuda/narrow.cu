#include "kernels/spmm/cuda/spmm.cuh"

namespace dfgnn {

gather_kernel spmm_narrow(dfgnn_dtype dtype, int what,
                          const gather_shape *shape) {
  static gather_kernel (*const find[DFGNN_DTYPE_COUNT])(
      int, const gather_shape *) = {spmm_any<float>, spmm_any<__half>,
                                    spmm_any<__nv_bfloat16>, spmm_any<double>};
  return find[dtype](what, shape);
}

} // namespace dfgnn
