#include "kernels/attention/cuda/attend_instances.cuh"

const void *dfgnn::attend_gt_f32(int, int lanes, int vectors, int unroll,
                                 int several) {
  return find_wide<gt_score, float>(lanes, vectors, unroll, several);
}
