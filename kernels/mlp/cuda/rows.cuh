/* rows.cuh - what a block of edges knows of each, and a chunk of a row */
#ifndef DFGNN_MLP_CUDA_ROWS_CUH
#define DFGNN_MLP_CUDA_ROWS_CUH

#include "kernels/mlp/cuda/tile.cuh"

namespace dfgnn {
namespace mlp {

template <typename T, int VEC>
__device__ __forceinline__ void read_few(float (&x)[VEC], const T *from) {
  widen(x, load_packed<VEC>(from));
}

struct block_edges {
  int64_t place[MLP_ROWS]; /* in the caller's list */
  int row[MLP_ROWS], source[MLP_ROWS];

  /* first: of the graph.  Threads from 0 to MLP_ROWS - 1 call it. */
  __device__ __forceinline__ void read(const mlp_graph &graph, int64_t first,
                                       int count) {
    const int i = int(threadIdx.x);
    if (i >= count)
      return;
    row[i] = __ldg(graph.row_of_edge + first + i);
    source[i] = __ldg(graph.indices + first + i);
    place[i] = graph.edge_order ? entry(graph.edge_order, graph.wide, first + i)
                                : first + i;
  }
};

} // namespace mlp
} // namespace dfgnn

#endif
