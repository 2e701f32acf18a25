/* rows.cuh - softmax of a row's scores, sum of its gathered rows, or both */
#ifndef DFGNN_ATTENTION_CUDA_ROWS_CUH
#define DFGNN_ATTENTION_CUDA_ROWS_CUH

#include "kernels/attention/cuda/passes.cuh"

namespace dfgnn {

template <typename T, int VEC, bool GATHER>
__device__ __forceinline__ void
one_row(const dfgnn_passes &p, const team<accumulator_t<T>> &t, int64_t row,
        int64_t first, int64_t degree, int what,
        accumulator_t<T> (*part)[32 * VEC]) {
  using A = accumulator_t<T>;
  A *w = static_cast<A *>(const_cast<void *>(p.scores)) + first;
  const int columns = GATHER ? first_columns_of(p, t, first, degree) : 0;
  if (what & DFGNN_ROWS_SOFTMAX)
    for (int head = 0; head < p.heads; head++)
      softmax_row<A>(p, t, w + head * p.edges, row, first, degree, head);
  if (GATHER)
    gather_row<T, VEC>(p, t, w, p.edges, row, first, degree, 0, p.heads,
                       columns, part);
}

/* Softmax alone needs few registers. */
template <typename T, int VEC, bool GATHER>
__global__ void __launch_bounds__(kPassThreads, GATHER ? 3 : 4)
    pass_rows(const __grid_constant__ dfgnn_passes p, int what, int rows) {
  using A = accumulator_t<T>;
  __shared__ A scratch[kPassWarps];
  __shared__ A part[GATHER ? kPassWarps : 1][32 * VEC];
  const int warp = threadIdx.x / 32;
  const int64_t block = int64_t(blockIdx.x) * rows;
  offsets_t offsets = {p.offsets, p.offsets64};
  const int64_t end = min(block + rows, p.rows);
  bool heavy = false;
  for (int64_t row = block + warp; row < end; row += kPassWarps) {
    int64_t first = offsets[row], degree = offsets[row + 1] - first;
    if (degree > p.heavy) {
      heavy = true;
      continue;
    }
    team<A> t = {int(threadIdx.x % 32), 32, nullptr};
    one_row<T, VEC, GATHER>(p, t, row, first, degree, what, part);
  }
  if (!__syncthreads_or(heavy))
    return;
  team<A> t = {int(threadIdx.x), kPassThreads, scratch};
  for (int64_t row = block; row < end; row++) {
    int64_t first = offsets[row], degree = offsets[row + 1] - first;
    if (degree > p.heavy)
      one_row<T, VEC, GATHER>(p, t, row, first, degree, what, part);
  }
}

} // namespace dfgnn

#endif
