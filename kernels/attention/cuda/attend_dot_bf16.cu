#include "kernels/attention/cuda/attend_instances.cuh"

const void *dfgnn::attend_dot_bf16(int score, int lanes, int vectors,
                                   int unroll, int several) {
  return score == DFGNN_OP_GT
             ? find_half<gt_score, __nv_bfloat16>(lanes, vectors, unroll,
                                                  several)
             : find_half<agnn_score, __nv_bfloat16>(lanes, vectors, unroll,
                                                    several);
}
