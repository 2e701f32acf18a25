/* move.c - launches the moves of rows from one order into another */
#include "kernels/common/cuda_host.h"
#include "kernels/common/device_graph.h"

dfgnn_status dfgnn__cuda_move(const dfgnn_queue *queue,
                              const dfgnn_move *move) {
  enum { MOST_BLOCKS = 1 << 16 }; /* which take more rows in turn */
  const dfgnn_program program = DFGNN_PROGRAM(
      "kernels/common/move.cuh", "dfgnn::move_rows", (int)move->element,
      move->wide ? DFGNN_TYPE_I64 : DFGNN_TYPE_I32);
  const int64_t count = move->rows * move->heads * move->dim;
  const int64_t blocks = dfgnn__ceil_div(count, DFGNN_GRAPH_THREADS);
  const dfgnn_grid grid = {
      .blocks = {(unsigned)(blocks < MOST_BLOCKS ? blocks : MOST_BLOCKS)},
      .threads = DFGNN_GRAPH_THREADS};
  if (count == 0)
    return DFGNN_OK;
  return dfgnn__launch_struct(queue, &program, grid, move);
}
