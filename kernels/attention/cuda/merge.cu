/* merge.cu - the second half of split rows: each row's partial (m, l,
 * sums) become its softmax and output */
#include "kernels/attention/cuda/attend.h"
#include "kernels/common/cuda_common.cuh"

namespace dfgnn {

/* A block a row and head: each warp takes every n-th item, then the warps'
 * results merge in shared memory, always in the same order. */
template <typename T>
static __global__ void merge(const __grid_constant__ attend_params p,
                             const int *heavy) {
  using A = accumulator_t<T>;
  extern __shared__ double shared[];
  const int row = heavy[blockIdx.x / p.heads];
  const int head = static_cast<int>(blockIdx.x % p.heads);
  const int first = p.schedule.row_item[row],
            count = p.schedule.row_item[row + 1] - first;
  const A *state = static_cast<const A *>(p.partial_state);
  const A *partial = static_cast<const A *>(p.partial);
  A *sums = reinterpret_cast<A *>(shared); /* [slices][dim] */
  const int64_t base = int64_t(first - row);
  const auto at = [&](int k) {
    const int64_t slot = k == 0 ? p.schedule.extra_items + base : base + k - 1;
    return slot * p.heads + head;
  };

  A m = lowest<A>(), l = A(0);
  const int lane = threadIdx.x & 31;
  for (int k = lane; k < count; k += 32)
    m = max_of(m, state[at(k) * 2]);
  m = lanes_max<32>(m);
  for (int k = lane; k < count; k += 32)
    l += state[at(k) * 2 + 1] * exp2_fast(state[at(k) * 2] - m);
  l = lanes_sum<32>(l);
  const A inverse = l == A(0) ? A(0) : A(1) / l;

  /* blockDim.x = width x slices, width a power of two. */
  const int width = p.span, slices = blockDim.x / width;
  const int slice = threadIdx.x / width, column = threadIdx.x & (width - 1);
  for (int f = column; f < p.dim; f += width) {
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
  if (threadIdx.x == 0) {
    if (p.lse)
      static_cast<A *>(p.lse)[int64_t(row) * p.heads + head] =
          l == A(0) ? -A(INFINITY) : (m + log2_fast(l)) * A(kLn2);
  }
}

dfgnn_status attend_merge(attend_params *p, const dfgnn_view *items,
                          const dfgnn_launch *launch) {
  if (items->extra == 0)
    return DFGNN_OK;
  int width = 32;
  while (width < p->dim && width < 256)
    width *= 2;
  p->span = width;
  const int64_t grid = items->extra * p->heads;
  if (grid > INT32_MAX)
    return dfgnn__fail(DFGNN_ERROR_UNSUPPORTED, "%lld rows to merge",
                       static_cast<long long>(grid));
  const int *heavy = static_cast<const int *>(items->array[3]);
  const dim3 blocks(static_cast<unsigned>(grid));
  cudaStream_t stream = static_cast<cudaStream_t>(launch->stream);
  const dfgnn_dtype dtype = launch->setting.problem->dtype;
  const size_t shared = size_t(256 / width) * size_t(p->dim) * sizeof(float);
  if (dtype == DFGNN_F64)
    merge<double><<<blocks, 256, shared * 2, stream>>>(*p, heavy);
  else if (dtype == DFGNN_F32)
    merge<float><<<blocks, 256, shared, stream>>>(*p, heavy);
  else if (dtype == DFGNN_F16)
    merge<__half><<<blocks, 256, shared, stream>>>(*p, heavy);
  else
    merge<__nv_bfloat16><<<blocks, 256, shared, stream>>>(*p, heavy);
  return launch_status("merge");
}

} // namespace dfgnn
