/* tiles_dense.c - launches the kernels that find windows along diagonal blocks
 */
#include "kernels/common/cuda_host.h"
#include "kernels/common/device_graph.h"
#include "kernels/common/device_tiles.h"

#define SOURCE "kernels/common/tiles_dense.cuh"

/* Five arrays of rows, then the workspace of the scans. */
size_t dfgnn__cuda_dense_bytes(const dfgnn_matrix *m) {
  const size_t n = (size_t)m->destinations;
  return 5 * dfgnn__align256(n * sizeof(int32_t)) +
         dfgnn__cuda_scan_bytes(m->destinations);
}

/* There are at most 2 n / R shared windows, as each starts in its own R / 2
 * rows; a block of n > R / 2 rows has at most 3 n / R. */
int64_t dfgnn__cuda_dense_capacity(const dfgnn_matrix *m, int high) {
  return 5 * m->destinations / high + 2;
}

/* constant: the type of offsets, or the threads of kernels that read none. */
static dfgnn_status launch(const dfgnn_queue *queue, const char *name,
                           int constant, int64_t count,
                           const dfgnn_dense_windows *windows) {
  const dfgnn_program program = {
      .source = SOURCE, .name = name, .count = 1, .constant = {constant}};
  return dfgnn__launch_struct(
      queue, &program, dfgnn__grid_of(count, DFGNN_TILES_THREADS), windows);
}

dfgnn_status dfgnn__cuda_find_dense(const dfgnn_queue *queue,
                                    dfgnn_window *windows, int32_t *chunks,
                                    uint64_t *count, int64_t capacity,
                                    const dfgnn_matrix *m, int high,
                                    void *workspace) {
  const int64_t n = m->destinations;
  const size_t part = dfgnn__align256((size_t)n * sizeof(int32_t));
  char *base = workspace;
  void *array[6];
  for (size_t k = 0; k < 6; k++)
    array[k] = base ? base + k * part : NULL;
  const dfgnn_dense_windows w = {.high = array[0],
                                 .low = array[1],
                                 .begin = array[2],
                                 .end = array[3],
                                 .number = array[4],
                                 .offsets = m->offsets,
                                 .indices = m->indices,
                                 .rows = n,
                                 .window_rows = high,
                                 .windows = windows,
                                 .chunks = chunks,
                                 .count = count,
                                 .capacity = capacity};
  void *scan = array[5];
  DFGNN_TRY(launch(queue, "dfgnn::tiles::dense_spans",
                   dfgnn__index_type(m->offsets64), n * DFGNN_DENSE_GROUP, &w));
  DFGNN_TRY(dfgnn__cuda_scan_max(queue, w.high, w.high, n, scan));
  DFGNN_TRY(dfgnn__cuda_scan_max(queue, w.low, w.low, n, scan));
  DFGNN_TRY(
      launch(queue, "dfgnn::tiles::dense_begins", DFGNN_TILES_THREADS, n, &w));
  DFGNN_TRY(dfgnn__cuda_scan_max(queue, w.begin, w.begin, n, scan));
  DFGNN_TRY(
      launch(queue, "dfgnn::tiles::dense_ends", DFGNN_TILES_THREADS, n, &w));
  DFGNN_TRY(
      launch(queue, "dfgnn::tiles::dense_marks", DFGNN_TILES_THREADS, n, &w));
  DFGNN_TRY(dfgnn__cuda_scan_sum(queue, w.number, w.number, n, scan));
  DFGNN_TRY(
      launch(queue, "dfgnn::tiles::dense_rows", DFGNN_TILES_THREADS, n, &w));
  return launch(queue, "dfgnn::tiles::dense_windows",
                dfgnn__index_type(m->offsets64), capacity, &w);
}

dfgnn_status dfgnn__cuda_fill_dense(const dfgnn_queue *queue, int32_t *columns,
                                    uint32_t *masks, dfgnn_window *windows,
                                    const int32_t *chunk_end, int64_t count,
                                    const dfgnn_matrix *m, int high) {
  const dfgnn_program program = DFGNN_PROGRAM(
      SOURCE, "dfgnn::tiles::fill_dense", dfgnn__index_type(m->offsets64));
  const dfgnn_fill_columns fill = {.columns = columns,
                                   .masks = masks,
                                   .windows = windows,
                                   .chunk_end = chunk_end,
                                   .offsets = m->offsets,
                                   .indices = m->indices,
                                   .sources = m->sources,
                                   .high = high};
  const dfgnn_grid grid = {.blocks = {(unsigned)count},
                           .threads = DFGNN_TILES_THREADS};
  return count ? dfgnn__launch_struct(queue, &program, grid, &fill) : DFGNN_OK;
}
