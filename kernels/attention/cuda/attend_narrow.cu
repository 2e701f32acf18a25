#include "kernels/attention/cuda/attend_instances.cuh"

namespace dfgnn {

template <typename T>
static const void *find_score(int score, int lanes, int vectors, int unroll,
                              int several) {
  using finder = const void *(*)(int, int, int, int);
  static const finder find[DFGNN_SCORE_COUNT] = {
      find_narrow<gt_score, T>, find_narrow<agnn_score, T>,
      find_narrow<gat_score, T>, find_narrow<gatv2_score, T>,
      find_narrow<given_score, T>};
  return find[score](lanes, vectors, unroll, several);
}

const void *attend_narrow(int score, dfgnn_dtype dtype, int lanes, int vectors,
                          int unroll, int several) {
  static attend_finder *const find[DFGNN_DTYPE_COUNT] = {
      find_score<float>, find_score<__half>, find_score<__nv_bfloat16>,
      find_score<double>};
  return find[dtype](score, lanes, vectors, unroll, several);
}

template <typename T>
static const void *find_panel_score(int score, int lanes, int unroll) {
  return score == DFGNN_OP_GT ? find_narrow_panel<gt_score, T>(lanes, unroll)
         : score == DFGNN_OP_AGNN
             ? find_narrow_panel<agnn_score, T>(lanes, unroll)
         : score == DFGNN_OP_GATV2
             ? find_narrow_panel<gatv2_score, T>(lanes, unroll)
             : nullptr;
}

const void *panel_narrow(int score, dfgnn_dtype dtype, int lanes, int unroll) {
  static panel_finder *const find[DFGNN_DTYPE_COUNT] = {
      find_panel_score<float>, find_panel_score<__half>,
      find_panel_score<__nv_bfloat16>, find_panel_score<double>};
  return find[dtype](score, lanes, unroll);
}

} // namespace dfgnn
