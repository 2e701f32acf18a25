/* edge_fault.cuh - what the device tells of an edge list that nobody waits for
 */
#ifndef DFGNN_KERNELS_EDGE_FAULT_CUH
#define DFGNN_KERNELS_EDGE_FAULT_CUH

#include "kernels/common/graph_params.h"

namespace dfgnn {

/* Called by one thread for each list.  The host looks at the list's number,
 * which comes last. */
__device__ inline void write_fault(dfgnn_edge_fault *fault, uint64_t list,
                                   int64_t edge, bool is_src, int64_t node,
                                   int64_t nodes) {
  volatile dfgnn_edge_fault *to = fault;
  to->edge = edge;
  to->is_src = is_src;
  to->node = node;
  to->nodes = nodes;
  __threadfence_system();
  to->list = list;
}

} // namespace dfgnn

#endif
