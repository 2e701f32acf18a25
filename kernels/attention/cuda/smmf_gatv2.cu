/* smmf_gatv2.cu - the kernels of smmf with scores of GATV2 */
#include "kernels/attention/cuda/smmf_kernel.cuh"

using namespace dfgnn;

extern "C" dfgnn_status dfgnn__cuda_smmf_gatv2(const dfgnn_passes *passes,
                                               const dfgnn_smmf *smmf) {
  return by_type<smmf_of<DFGNN_OP_GATV2>::launch>(*passes, *smmf);
}

extern "C" dfgnn_status dfgnn__cuda_smmf_allow_gatv2(const dfgnn_passes *passes,
                                                     size_t shared) {
  return by_type<smmf_of<DFGNN_OP_GATV2>::allow>(*passes, shared);
}
