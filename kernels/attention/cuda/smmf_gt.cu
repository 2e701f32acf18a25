/* smmf_gt.cu - the kernels of smmf with scores of GT */
#include "kernels/attention/cuda/smmf_kernel.cuh"

using namespace dfgnn;

extern "C" dfgnn_status dfgnn__cuda_smmf_gt(const dfgnn_passes *passes,
                                            const dfgnn_smmf *smmf) {
  return by_type<smmf_of<DFGNN_OP_GT>::launch>(*passes, *smmf);
}

extern "C" dfgnn_status dfgnn__cuda_smmf_allow_gt(const dfgnn_passes *passes,
                                                  size_t shared) {
  return by_type<smmf_of<DFGNN_OP_GT>::allow>(*passes, shared);
}
