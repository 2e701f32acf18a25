/* gen_grid.c - rectangular meshes, and functions that all batches share */
#include "graph/io/generators.h"
#include "lib/base/error.h"

#include <stdlib.h>

dfgnn_status dfgnn__check_batch(double graphs, double nodes) {
  if (graphs * nodes <= INT32_MAX)
    return DFGNN_OK;
  return dfgnn__fail(DFGNN_ERROR_INVALID,
                     "found %.0f graphs of up to %.0f nodes, expected at most "
                     "%d nodes together",
                     graphs, nodes, INT32_MAX);
}

dfgnn_status dfgnn__batch_finish(dfgnn__parts *parts, dfgnn__edges *edges,
                                 int64_t *graph_ptr, int64_t graphs) {
  int64_t nodes = graph_ptr[graphs];
  dfgnn_status status = dfgnn__edges_compress(parts, edges, nodes, nodes);
  if (status || graphs < 2) {
    free(graph_ptr);
    return status;
  }
  parts->graph_ptr = graph_ptr;
  parts->graphs = graphs;
  return DFGNN_OK;
}

dfgnn_status dfgnn__generate_grid(dfgnn__parts *parts, const double *value) {
  enum { ROWS, COLUMNS, NEIGHBOURS };
  int64_t rows = (int64_t)value[ROWS], columns = (int64_t)value[COLUMNS];
  int diagonals = value[NEIGHBOURS] == 1;
  dfgnn__edges edges = {0};
  dfgnn_status status = dfgnn__check_batch(value[ROWS], value[COLUMNS]);
  for (int64_t y = 0; y < rows && !status; y++)
    for (int64_t x = 0; x < columns && !status; x++)
      for (int k = 0; k < 9 && !status; k++) {
        int64_t dx = k % 3 - 1, dy = k / 3 - 1;
        if (k == 4 || (!diagonals && dx && dy) || x + dx < 0 || y + dy < 0 ||
            x + dx >= columns || y + dy >= rows)
          continue;
        status = dfgnn__edges_add(&edges, (int32_t)(y * columns + x),
                                  (int32_t)((y + dy) * columns + x + dx));
      }
  if (!status)
    status =
        dfgnn__edges_compress(parts, &edges, rows * columns, rows * columns);
  dfgnn__edges_free(&edges);
  return status;
}
