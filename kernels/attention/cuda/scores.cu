/* scores.cu - sampled dense-dense product: the score of every edge */
#include "kernels/attention/cuda/passes.cuh"

using namespace dfgnn;

namespace {

/* Every group of lanes takes `chunk` consecutive edges of one head; groups side
 * by side take the heads of the same edges. */
template <typename T, int OP, int VEC>
__global__ void __launch_bounds__(kPassThreads, sizeof(T) * VEC == 16 ? 3 : 1)
    edge_scores(dfgnn_passes p, int lanes, int chunk) {
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

/* A warp takes a row, its groups of lanes equal parts of the edges. */
template <typename T, int OP, int VEC>
__global__ void __launch_bounds__(kPassThreads)
    row_scores(dfgnn_passes p, int lanes) {
  using A = accumulator_t<T>;
  int64_t row = int64_t(blockIdx.x) * kPassWarps + threadIdx.x / 32;
  if (row >= p.rows)
    return;
  offsets_t offsets = {p.offsets, p.offsets64};
  int64_t begin = offsets[row], degree = offsets[row + 1] - begin;
  const int groups = 32 / lanes, group = threadIdx.x % 32 / lanes;
  int64_t share = (degree + groups - 1) / groups;
  int64_t first = begin + group * share;
  int64_t end = min(first + share, begin + degree);
  for (int head = 0; head < p.heads; head++) {
    A *plane = static_cast<A *>(const_cast<void *>(p.scores)) + head * p.edges;
    score_edges<T, OP, VEC>(
        p, head, first, end, share, lanes, [&](int64_t) { return row; },
        [&](int64_t e, A s) { plane[e] = s; });
  }
}

/* Long shares keep queries in registers and keys in the L1, short ones fill the
 * device: about four waves of blocks on a large GPU. */
int chunk_for(int64_t scores, int lanes) {
  constexpr int64_t kThreads = int64_t(1600) * kPassThreads;
  int64_t chunk = scores * lanes / kThreads;
  return int(chunk < 2 ? 2 : chunk > 64 ? 64 : chunk / 2 * 2);
}

template <typename T, int OP, int VEC>
dfgnn_status launch(const dfgnn_passes &p, int by_row) {
  cudaStream_t stream = static_cast<cudaStream_t>(p.stream);
  int lanes = OP == DFGNN_OP_GAT ? (by_row ? 32 : 1) : score_lanes(p.dim, VEC);
  if (by_row) {
    unsigned blocks = unsigned((p.rows + kPassWarps - 1) / kPassWarps);
    row_scores<T, OP, VEC><<<blocks, kPassThreads, 0, stream>>>(p, lanes);
  } else {
    int chunk = OP == DFGNN_OP_GAT ? 1 : chunk_for(p.edges * p.heads, lanes);
    int64_t groups = (p.edges + chunk - 1) / chunk * p.heads;
    int64_t each = kPassThreads / lanes;
    unsigned blocks = unsigned((groups + each - 1) / each);
    edge_scores<T, OP, VEC>
        <<<blocks, kPassThreads, 0, stream>>>(p, lanes, chunk);
  }
  return launch_status("scores");
}

template <typename T, int VEC> struct scores {
  static dfgnn_status run(const dfgnn_passes &p, int by_row) {
    switch (p.op) {
    case DFGNN_OP_GT:
      return launch<T, DFGNN_OP_GT, VEC>(p, by_row);
    case DFGNN_OP_AGNN:
      return launch<T, DFGNN_OP_AGNN, VEC>(p, by_row);
    case DFGNN_OP_GATV2:
      return launch<T, DFGNN_OP_GATV2, VEC>(p, by_row);
    default: /* reads no features: one vector width is enough */
      return launch<T, DFGNN_OP_GAT, 1>(p, by_row);
    }
  }
};

} // namespace

extern "C" dfgnn_status dfgnn__cuda_scores(const dfgnn_passes *passes,
                                           int by_row) {
  if (passes->edges == 0)
    return DFGNN_OK;
  return by_type<scores>(*passes, by_row);
}
