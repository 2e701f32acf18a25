#include "kernels/attention/cuda/attend_instances.cuh"

const void *dfgnn::attend_given_f32(int, int lanes, int vectors, int unroll,
                                    int several) {
  return find_given<float>(lanes, vectors, unroll, several);
}
