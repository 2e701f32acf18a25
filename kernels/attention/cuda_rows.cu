/* cuda_rows.cu - softmax of a row's scores, sum of its gathered rows, or both
 */
#include "kernels/attention/cuda_passes.cuh"

using namespace dfgnn;

namespace {

template <typename T, int VEC>
__device__ __forceinline__ void
one_row(const dfgnn_passes &p, const team<accumulator_t<T>> &t, int64_t row,
        int64_t first, int64_t degree, int what,
        accumulator_t<T> (*part)[32 * VEC]) {
  using A = accumulator_t<T>;
  A *w = static_cast<A *>(const_cast<void *>(p.scores)) + first;
  const bool redundant = what & DFGNN_ROWS_REDUNDANT;
  if (what & DFGNN_ROWS_SOFTMAX)
    for (int head = 0; head < p.heads; head++)
      if (!redundant || p.lse || p.weights)
        softmax_row<A>(p, t, w + head * p.edges, row, first, degree, head,
                       !redundant);
  if (what & DFGNN_ROWS_GATHER)
    gather_row<T, VEC>(p, t, w, p.edges, row, first, degree, 0, p.heads,
                       redundant, part);
}

template <typename T, int VEC>
__global__ void __launch_bounds__(kPassThreads)
    rows_kernel(dfgnn_passes p, int what) {
  using A = accumulator_t<T>;
  __shared__ A scratch[kPassWarps];
  __shared__ A part[kPassWarps][32 * VEC];
  __shared__ bool heavy[kPassWarps];
  const int warp = threadIdx.x / 32;
  const int64_t block = int64_t(blockIdx.x) * kPassWarps, row = block + warp;
  offsets_t offsets = {p.offsets, p.offsets64};
  int64_t first = 0, degree = 0;
  if (row < p.rows) {
    first = offsets[row];
    degree = offsets[row + 1] - first;
  }
  if (threadIdx.x % 32 == 0)
    heavy[warp] = degree > kHeavyDegree;
  if (row < p.rows && degree <= kHeavyDegree) {
    team<A> t = {int(threadIdx.x % 32), 32, nullptr};
    one_row<T, VEC>(p, t, row, first, degree, what, part);
  }
  if (!__syncthreads_or(degree > kHeavyDegree))
    return;
  team<A> t = {int(threadIdx.x), kPassThreads, scratch};
  for (int w = 0; w < kPassWarps; w++)
    if (heavy[w]) {
      first = offsets[block + w];
      degree = offsets[block + w + 1] - first;
      one_row<T, VEC>(p, t, block + w, first, degree, what, part);
    }
}

template <typename T, int VEC> struct rows {
  static dfgnn_status run(const dfgnn_passes &p, int what) {
    unsigned blocks = unsigned((p.rows + kPassWarps - 1) / kPassWarps);
    rows_kernel<T, VEC>
        <<<blocks, kPassThreads, 0, static_cast<cudaStream_t>(p.stream)>>>(
            p, what);
    return launch_status("rows");
  }
};

} // namespace

extern "C" dfgnn_status dfgnn__cuda_rows(const dfgnn_passes *passes, int what) {
  if (passes->rows == 0)
    return DFGNN_OK;
  return by_type<rows>(*passes, what);
}
