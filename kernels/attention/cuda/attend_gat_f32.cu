#include "kernels/attention/cuda/attend_instances.cuh"

const void *dfgnn::attend_gat_f32(int, int lanes, int vectors, int unroll,
                                  int several) {
  return find_wide<gat_score, float>(lanes, vectors, unroll, several);
}
