#include "kernels/attention/cuda/attend_instances.cuh"

const void *dfgnn::panel_bf16(int score, int lanes, int unroll) {
  return find_score_panel<__nv_bfloat16>(score, lanes, unroll);
}
