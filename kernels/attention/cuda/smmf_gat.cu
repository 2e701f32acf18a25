/* smmf_gat.cu - the kernels of smmf with scores of GAT */
#include "kernels/attention/cuda/smmf_kernel.cuh"

using namespace dfgnn;

extern "C" dfgnn_status dfgnn__cuda_smmf_gat(const dfgnn_passes *passes,
                                             const dfgnn_smmf *smmf) {
  return by_type<smmf_of<DFGNN_OP_GAT>::launch>(*passes, *smmf);
}

extern "C" dfgnn_status dfgnn__cuda_smmf_allow_gat(const dfgnn_passes *passes,
                                                   size_t shared) {
  return by_type<smmf_of<DFGNN_OP_GAT>::allow>(*passes, shared);
}
