/* tiles_columns.c - launches the kernels that find the columns of windows */
#include "kernels/common/cuda_host.h"
#include "kernels/common/device_tiles.h"

#define SOURCE "kernels/common/tiles_columns.cuh"

/* Can a window span more columns than are marked at a time? */
static int may_sort(const dfgnn_matrix *m) {
  return m->sources > 32 * DFGNN_COLUMNS_PANEL;
}

static dfgnn_status launch(const dfgnn_queue *queue, const char *name,
                           const dfgnn_matrix *m, int64_t windows,
                           const void *argument) {
  const dfgnn_program program =
      DFGNN_PROGRAM(SOURCE, name, dfgnn__index_type(m->offsets64), may_sort(m));
  const dfgnn_grid grid = {.blocks = {(unsigned)windows},
                           .threads = DFGNN_COLUMNS_THREADS};
  return windows ? dfgnn__launch_struct(queue, &program, grid, argument)
                 : DFGNN_OK;
}

dfgnn_status dfgnn__cuda_count_columns(const dfgnn_queue *queue,
                                       dfgnn_window *windows, int32_t *chunks,
                                       int64_t count, const dfgnn_matrix *m,
                                       int high) {
  const dfgnn_count_columns columns = {.windows = windows,
                                       .chunks = chunks,
                                       .offsets = m->offsets,
                                       .indices = m->indices,
                                       .rows = m->destinations,
                                       .sources = m->sources,
                                       .high = high,
                                       .bits = dfgnn__bits_of(m->sources)};
  return launch(queue, "dfgnn::tiles::count_columns", m, count, &columns);
}

dfgnn_status dfgnn__cuda_fill_columns(const dfgnn_queue *queue,
                                      int32_t *columns, uint32_t *masks,
                                      dfgnn_window *windows,
                                      const int32_t *chunk_end, int64_t count,
                                      const dfgnn_matrix *m, int high) {
  const dfgnn_fill_columns fill = {.columns = columns,
                                   .masks = masks,
                                   .windows = windows,
                                   .chunk_end = chunk_end,
                                   .offsets = m->offsets,
                                   .indices = m->indices,
                                   .sources = m->sources,
                                   .high = high,
                                   .bits = dfgnn__bits_of(m->sources)};
  return launch(queue, "dfgnn::tiles::fill_columns", m, count, &fill);
}
