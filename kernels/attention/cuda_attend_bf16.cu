#include "kernels/attention/cuda_attend_instances.cuh"

const void *dfgnn::attend_bf16(int score, int lanes, int vectors, int unroll,
                               int several) {
  using finder = const void *(*)(int, int, int, int);
  static const finder find[DFGNN_SCORE_COUNT] = {
      find_wide<gt_score, __nv_bfloat16>, find_wide<agnn_score, __nv_bfloat16>,
      find_wide<gat_score, __nv_bfloat16>,
      find_wide<gatv2_score, __nv_bfloat16>, find_given<__nv_bfloat16>};
  return find[score](lanes, vectors, unroll, several);
}
