#include "kernels/attention/cuda/attend_instances.cuh"

const void *dfgnn::attend_add_f16(int score, int lanes, int vectors, int unroll,
                                  int several) {
  if (score == DFGNN_SCORE_GIVEN)
    return find_given<__half>(lanes, vectors, unroll, several);
  return score == DFGNN_OP_GAT
             ? find_half<gat_score, __half>(lanes, vectors, unroll, several)
             : find_half<gatv2_score, __half>(lanes, vectors, unroll, several);
}
