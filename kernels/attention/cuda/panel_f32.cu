#include "kernels/attention/cuda/attend_instances.cuh"

const void *dfgnn::panel_f32(int score, int lanes, int unroll) {
  return find_score_panel<float>(score, lanes, unroll);
}
