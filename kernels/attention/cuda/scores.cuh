/* scores.cuh - sampled dense-dense product: the score of every edge */
#ifndef DFGNN_ATTENTION_CUDA_SCORES_CUH
#define DFGNN_ATTENTION_CUDA_SCORES_CUH

#include "kernels/attention/cuda/passes.cuh"

namespace dfgnn {

/* Every group of lanes takes `chunk` consecutive edges of one head; groups side
 * by side take the heads of the same edges. */
template <typename T, int OP, int VEC>
__global__ void __launch_bounds__(kPassThreads, sizeof(T) * VEC == 16 ? 3 : 1)
    edge_scores(const __grid_constant__ dfgnn_passes p, int lanes, int chunk) {
  using A = accumulator_t<T>;
  int64_t group = (int64_t(blockIdx.x) * kPassThreads + threadIdx.x) / lanes;
  int head = int(group % p.heads);
  int64_t first = group / p.heads * chunk, end = min(first + chunk, p.edges);
  A *plane = static_cast<A *>(const_cast<void *>(p.scores)) + head * p.edges;
  score_edges<T, OP, VEC>(
      p, head, first, end, chunk, lanes,
      [&](int64_t e) { return int64_t(__ldg(p.row_of_edge + e)); },
      [&](int64_t e, A s) { plane[e] = s; });
}

} // namespace dfgnn

#endif
