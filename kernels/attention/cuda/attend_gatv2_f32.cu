#include "kernels/attention/cuda/attend_instances.cuh"

const void *dfgnn::attend_gatv2_f32(int, int lanes, int vectors, int unroll,
                                    int several) {
  return find_wide<gatv2_score, float>(lanes, vectors, unroll, several);
}
