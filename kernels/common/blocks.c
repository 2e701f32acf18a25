/* blocks.c - launches the search for the diagonal blocks of a square matrix */
#include "kernels/common/cuda_host.h"
#include "kernels/common/device_graph.h"

static size_t part_bytes(int64_t rows) {
  return dfgnn__align256((size_t)dfgnn__ceil_div(rows, DFGNN_BLOCK_ROWS) *
                         sizeof(int32_t));
}

size_t dfgnn__cuda_find_blocks_bytes(int64_t rows) {
  return 4 * part_bytes(rows);
}

dfgnn_status dfgnn__cuda_find_blocks(const dfgnn_queue *queue,
                                     dfgnn_graph_counts *counts,
                                     const int32_t *high, const int32_t *low,
                                     int64_t rows, uint32_t *tickets,
                                     void *workspace) {
  static const dfgnn_program reduce = DFGNN_PROGRAM(
      "kernels/common/blocks.cuh", "dfgnn::reduce_blocks", DFGNN_GRAPH_THREADS);
  static const dfgnn_program decide = DFGNN_PROGRAM(
      "kernels/common/blocks.cuh", "dfgnn::decide_blocks", DFGNN_GRAPH_THREADS);
  char *base = workspace;
  void *array[4];
  for (int k = 0; k < 4; k++)
    array[k] = base ? base + (size_t)k * part_bytes(rows) : NULL;
  const dfgnn_block_tiles tiles = {.counts = counts,
                                   .row_high = high,
                                   .row_low = low,
                                   .rows = rows,
                                   .tickets = tickets,
                                   .count =
                                       dfgnn__ceil_div(rows, DFGNN_BLOCK_ROWS),
                                   .high = array[0],
                                   .low = array[1],
                                   .first = array[2],
                                   .last = array[3]};
  const dfgnn_grid grid = {.blocks = {(unsigned)tiles.count},
                           .threads = DFGNN_GRAPH_THREADS};
  dfgnn_status status = dfgnn__launch_struct(queue, &reduce, grid, &tiles);
  return status ? status : dfgnn__launch_struct(queue, &decide, grid, &tiles);
}
