#include "kernels/attention/cuda/attend_instances.cuh"

const void *dfgnn::panel_f16(int score, int lanes, int unroll) {
  return find_score_panel<__half>(score, lanes, unroll);
}
