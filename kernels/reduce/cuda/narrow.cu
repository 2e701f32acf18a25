#include "kernels/reduce/cuda/reduce.cuh"

namespace dfgnn {

gather_kernel reduce_narrow(dfgnn_dtype dtype, int what,
                            const gather_shape *shape) {
  static gather_kernel (*const find[DFGNN_DTYPE_COUNT])(
      int, const gather_shape *) = {reduce_any<float>, reduce_any<__half>,
                                    reduce_any<__nv_bfloat16>,
                                    reduce_any<double>};
  return find[dtype](what, shape);
}

} // namespace dfgnn
