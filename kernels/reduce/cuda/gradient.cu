#include "kernels/reduce/cuda/gradient.cuh"

namespace dfgnn {

gather_kernel reduce_gradient_kernel(dfgnn_dtype dtype, int what,
                                     const gather_shape *shape) {
  typedef gather_kernel finder(int, const gather_shape *);
  static finder *const wide[] = {gradient_wide<float, 4>,
                                 gradient_wide<__half, 8>,
                                 gradient_wide<__nv_bfloat16, 8>};
  static finder *const any[] = {gradient_any<float, 1>, gradient_any<__half, 1>,
                                gradient_any<__nv_bfloat16, 1>,
                                gradient_any<double, 1>};
  return shape->vector > 1 ? wide[dtype](what, shape) : any[dtype](what, shape);
}

} // namespace dfgnn
