/* merge.cuh - sums of messages of rows that were cut */
#ifndef DFGNN_MESSAGE_CUDA_MERGE_CUH
#define DFGNN_MESSAGE_CUDA_MERGE_CUH

#include "kernels/message/cuda/message.h"
#include "kernels/spmm/cuda/merge.cuh"

namespace dfgnn {

template <typename T, int SUMS>
__global__ void merge_messages(const __grid_constant__ message_params p,
                               const int *heavy, int columns) {
  const int row = heavy[blockIdx.x];
  const item_slots slots(p.gather.schedule, row);
#pragma unroll
  for (int s = 0; s < SUMS; ++s) {
    const feature_tensor &to = s ? p.out_gate : p.gather.out;
    if (to.data)
      merge_row<T, SUMS>(p.gather, to, s, columns, row, slots.count, slots);
  }
}

} // namespace dfgnn

#endif
