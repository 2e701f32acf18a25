/* smmf.cuh - Shared Memory Maximization Fusion of the DF-GNN paper: a block
 * owns some rows, shares their edges evenly among its groups of lanes, and
 * keeps the scores in shared memory until the rows are summed; a block whose
 * scores take more than `shared` bytes keeps them in passes.scores */
#ifndef DFGNN_ATTENTION_CUDA_SMMF_CUH
#define DFGNN_ATTENTION_CUDA_SMMF_CUH

#include "kernels/attention/cuda/passes.cuh"

namespace dfgnn {

/* Scores the block's edges in heads head .. head + heads - 1. */
template <typename T, int OP, int VEC>
__device__ __forceinline__ void
block_scores(const dfgnn_passes &p, const int64_t *begin, int rows,
             int64_t first_row, int head, int heads, accumulator_t<T> *s,
             int64_t plane, int lanes) {
  using A = accumulator_t<T>;
  const int64_t base = begin[0], edges = begin[rows] - base;
  const int groups = kPassThreads / lanes, group = threadIdx.x / lanes;
  const int pieces = heads < groups ? groups / heads : 1;
  const int64_t share = (edges + pieces - 1) / pieces;
  for (int unit = 0; unit < heads * pieces; unit += groups) {
    const int mine = unit + group, h = mine % heads;
    const int64_t first = base + mine / heads * share;
    const int64_t end =
        mine < heads * pieces ? min(first + share, base + edges) : first;
    int r = 0;
    score_edges<T, OP, VEC>(
        p, head + h, first, end, share, lanes,
        [&](int64_t e) {
          while (e >= begin[r + 1])
            r++;
          return first_row + r;
        },
        [&](int64_t e, A x) { s[h * plane + e - base] = x; });
  }
}

template <typename T, int OP, int VEC>
__global__ void __launch_bounds__(kPassThreads)
    smmf(const __grid_constant__ dfgnn_passes p, uint64_t shared, int lanes) {
  using A = accumulator_t<T>;
  extern __shared__ __align__(16) unsigned char smmf_shared[];
  __shared__ int64_t begin[SMMF_ROWS + 1];
  __shared__ A scratch[kPassWarps];
  __shared__ A part[kPassWarps][32 * VEC];
  offsets_t offsets = {p.offsets, p.offsets64};
  const int64_t first_row = int64_t(blockIdx.x) * SMMF_ROWS;
  const int rows = int(min(int64_t(SMMF_ROWS), p.rows - first_row));
  const int warp = threadIdx.x / 32;
  int64_t degree = 0;
  if (threadIdx.x <= rows) {
    begin[threadIdx.x] = offsets[first_row + threadIdx.x];
    if (threadIdx.x < rows)
      degree = offsets[first_row + threadIdx.x + 1] - begin[threadIdx.x];
  }
  const bool any_heavy = __syncthreads_or(degree > p.heavy);
  const int64_t edges = begin[rows] - begin[0];
  const int64_t room = int64_t(shared / sizeof(A));
  const bool spill = edges > room;
  A *s = reinterpret_cast<A *>(smmf_shared);
  int64_t plane = edges;
  int at_once = edges > 0 ? int(min(int64_t(p.heads), room / edges)) : p.heads;
  if (spill) {
    s = static_cast<A *>(const_cast<void *>(p.scores)) + begin[0];
    plane = p.edges;
    at_once = p.heads;
  }
  for (int head = 0; head < p.heads; head += at_once) {
    const int heads = min(at_once, p.heads - head);
    A *mine = spill ? s + head * plane : s;
    block_scores<T, OP, VEC>(p, begin, rows, first_row, head, heads, mine,
                             plane, lanes);
    __syncthreads();
    auto finish = [&](const team<A> &t, int r) {
      const int64_t first = begin[r], d = begin[r + 1] - first;
      A *w = mine + (first - begin[0]);
      const int columns = first_columns_of(p, t, first, d);
      for (int h = 0; h < heads; h++)
        softmax_row<A>(p, t, w + h * plane, first_row + r, first, d, head + h);
      gather_row<T, VEC>(p, t, w, plane, first_row + r, first, d, head, heads,
                         columns, part);
    };
    for (int r = warp; r < rows; r += kPassWarps)
      if (begin[r + 1] - begin[r] <= p.heavy)
        finish(team<A>{int(threadIdx.x % 32), 32, nullptr}, r);
    for (int r = 0; any_heavy && r < rows; r++)
      if (begin[r + 1] - begin[r] > p.heavy)
        finish(team<A>{int(threadIdx.x), kPassThreads, scratch}, r);
    __syncthreads();
  }
}

} // namespace dfgnn

#endif
