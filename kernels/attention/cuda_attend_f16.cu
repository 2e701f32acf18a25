#include "kernels/attention/cuda_attend_instances.cuh"

const void *dfgnn::attend_f16(int score, int lanes, int vectors, int unroll,
                              int several) {
  using finder = const void *(*)(int, int, int, int);
  static const finder find[DFGNN_SCORE_COUNT] = {
      find_wide<gt_score, __half>, find_wide<agnn_score, __half>,
      find_wide<gat_score, __half>, find_wide<gatv2_score, __half>,
      find_given<__half>};
  return find[score](lanes, vectors, unroll, several);
}
