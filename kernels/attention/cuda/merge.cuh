/* merge.cuh - the second kernel of split rows: merges the partial (m, l, sums)
 * of a row's items into its softmax and output */
#ifndef DFGNN_ATTENTION_CUDA_MERGE_CUH
#define DFGNN_ATTENTION_CUDA_MERGE_CUH

#include "kernels/attention/cuda/attend.h"
#include "kernels/attention/cuda/running_softmax.cuh"
#include "kernels/attention/cuda/schedule.cuh"
#include "kernels/common/cuda_common.cuh"

namespace dfgnn {

/* A block takes a row and head: each slice of threads takes every n-th item,
 * then the slices' results merge in shared memory, always in the same order. */
template <typename T>
__global__ void __launch_bounds__(256)
    merge(const __grid_constant__ merge_params p) {
  using A = accumulator_t<T>;
  extern __shared__ double merge_shared[];
  const int listed = merged_row(p.heavy, blockIdx.x / p.heads);
  const int row = max(listed, 0);
  const int head = static_cast<int>(blockIdx.x % p.heads);
  const row_parts parts(p.schedule, row);
  const int count = parts.count;
  const A *state = static_cast<const A *>(p.partial_state);
  const A *partial = static_cast<const A *>(p.partial);
  A *sums = reinterpret_cast<A *>(merge_shared); /* [slices][dim] */
  const auto at = [&](int k) { return parts.slot(k) * p.heads + head; };

  ptx::wait_for_previous();
  if (listed < 0) /* a place behind the last heavy row */
    return;
  A m = lowest<A>(), l = A(0);
  const int lane = threadIdx.x & 31;
  for (int k = lane; k < count; k += 32)
    m = max_of(m, state[at(k) * 2]);
  m = lanes_max<32>(m);
  for (int k = lane; k < count; k += 32)
    l += state[at(k) * 2 + 1] * exp2_fast(state[at(k) * 2] - m);
  l = lanes_sum<32>(l);
  const A inverse = l == A(0) ? A(0) : A(1) / l;

  const int slices = blockDim.x / p.width;
  const int slice = threadIdx.x / p.width;
  const int column = threadIdx.x & (p.width - 1);
  for (int f = column; f < p.dim; f += p.width) {
    A sum = A(0);
    for (int k = slice; k < count; k += slices)
      sum += partial[at(k) * p.dim + f] * exp2_fast(state[at(k) * 2] - m);
    sums[slice * p.dim + f] = sum;
  }
  __syncthreads();
  char *out = static_cast<char *>(const_cast<void *>(p.out.data)) +
              int64_t(row) * p.out.node_bytes +
              int64_t(head) * p.out.head_bytes;
  for (int f = threadIdx.x; f < p.dim; f += blockDim.x) {
    A sum = A(0);
    for (int i = 0; i < slices; ++i)
      sum += sums[i * p.dim + f];
    *reinterpret_cast<T *>(out + int64_t(f) * p.out.feature_bytes) =
        narrow<T>(sum * inverse);
  }
  if (threadIdx.x == 0 && p.lse)
    static_cast<A *>(p.lse)[int64_t(row) * p.heads + head] = log_sum_exp(m, l);
}

} // namespace dfgnn

#endif
