/* views.c - launches the kernels that build views in device memory */
#include "kernels/common/cuda_host.h"
#include "kernels/common/device_graph.h"

#define SOURCE "kernels/common/views.cuh"

static dfgnn_grid grid_of(int64_t count) {
  return dfgnn__grid_of(count, DFGNN_GRAPH_THREADS);
}

dfgnn_status dfgnn__cuda_narrow(const dfgnn_queue *queue, int32_t *to,
                                const int64_t *from, int64_t count,
                                uint64_t *bad) {
  enum { MOST_BLOCKS = 4096 };
  static const dfgnn_program program =
      DFGNN_PROGRAM(SOURCE, "dfgnn::narrow_indices", DFGNN_GRAPH_THREADS);
  dfgnn_grid grid = grid_of(count);
  void *arguments[] = {&to, &from, &count, &bad};
  if (grid.blocks[0] > MOST_BLOCKS)
    grid.blocks[0] = MOST_BLOCKS;
  dfgnn_status status = dfgnn__fill(queue, bad, 0xff, sizeof *bad);
  return status ? status : dfgnn__launch(queue, &program, grid, arguments);
}

static int order_bits(const dfgnn_matrix *m, int by_place) {
  return dfgnn__bits_of(by_place ? m->sources : m->max_degree);
}

/* Keys, sorted keys, then the workspace of the sort. */
size_t dfgnn__cuda_order_bytes(const dfgnn_matrix *m, int by_place) {
  return 2 * dfgnn__align256((size_t)m->destinations * sizeof(uint32_t)) +
         dfgnn__cuda_sort_bytes(m->destinations, order_bits(m, by_place), 0);
}

/* Without places keys fall as degrees rise, so that a rising sort gives falling
 * degrees. */
dfgnn_status dfgnn__cuda_order(const dfgnn_queue *queue, int32_t *order,
                               const dfgnn_matrix *m, int by_place,
                               void *workspace) {
  const dfgnn_program program = DFGNN_PROGRAM(SOURCE, "dfgnn::order_keys",
                                              dfgnn__index_type(m->offsets64));
  const size_t part =
      dfgnn__align256((size_t)m->destinations * sizeof(uint32_t));
  const int bits = order_bits(m, by_place);
  const dfgnn_order_keys keys = {.key = workspace,
                                 .offsets = m->offsets,
                                 .indices = by_place ? m->indices : NULL,
                                 .rows = m->destinations,
                                 .most =
                                     bits < 32 ? (1u << bits) - 1 : UINT32_MAX};
  if (m->destinations == 0)
    return DFGNN_OK;
  DFGNN_TRY(
      dfgnn__launch_struct(queue, &program, grid_of(m->destinations), &keys));
  return dfgnn__cuda_sort(
      queue, keys.key, (uint32_t *)dfgnn__behind(workspace, part), order,
      m->destinations, bits, 0, dfgnn__behind(workspace, 2 * part));
}

dfgnn_status dfgnn__cuda_cut_rows(const dfgnn_queue *queue, void *first,
                                  const dfgnn_matrix *m, int slices) {
  const dfgnn_program program =
      DFGNN_PROGRAM(SOURCE, "dfgnn::cut_rows", dfgnn__index_type(m->offsets64));
  const dfgnn_cut_rows cut = {.first = first,
                              .offsets = m->offsets,
                              .indices = m->indices,
                              .rows = m->destinations,
                              .width = dfgnn__ceil_div(m->sources, slices),
                              .slices = slices};
  return dfgnn__launch_struct(queue, &program, grid_of(m->destinations), &cut);
}

/* Counts of heavy rows, then the workspace of the scans. */
size_t dfgnn__cuda_count_items_bytes(const dfgnn_matrix *m) {
  return dfgnn__align256((size_t)m->destinations * sizeof(int32_t)) +
         dfgnn__cuda_scan_bytes(m->destinations + 1);
}

dfgnn_status dfgnn__cuda_count_items(const dfgnn_queue *queue,
                                     int32_t *first_item, int32_t *heavy,
                                     int32_t *heavy_count,
                                     const dfgnn_matrix *m, int64_t size,
                                     void *workspace) {
  static const dfgnn_program list =
      DFGNN_PROGRAM(SOURCE, "dfgnn::list_heavy", DFGNN_GRAPH_THREADS);
  const dfgnn_program program = DFGNN_PROGRAM(SOURCE, "dfgnn::count_items",
                                              dfgnn__index_type(m->offsets64));
  int64_t n = m->destinations;
  int32_t *heavy_before = workspace;
  void *scan =
      dfgnn__behind(workspace, dfgnn__align256((size_t)n * sizeof(int32_t)));
  const dfgnn_count_items count = {.first_item = first_item,
                                   .heavy_before = heavy_before,
                                   .offsets = m->offsets,
                                   .rows = n,
                                   .size = size};
  void *arguments[] = {&heavy, &heavy_count, &heavy_before, &n};
  dfgnn_status status = dfgnn__fill(queue, heavy_count, 0, sizeof *heavy_count);
  if (!status)
    status = dfgnn__launch_struct(queue, &program, grid_of(n), &count);
  if (status || n == 0)
    return status;
  DFGNN_TRY(dfgnn__cuda_scan_sum(queue, first_item, first_item, n + 1, scan));
  DFGNN_TRY(dfgnn__cuda_scan_sum(queue, heavy_before, heavy_before, n, scan));
  return dfgnn__launch(queue, &list, grid_of(n), arguments);
}

dfgnn_status dfgnn__cuda_pad_items(const dfgnn_queue *queue,
                                   const dfgnn_pad_items *items,
                                   int offsets64) {
  const dfgnn_program program =
      DFGNN_PROGRAM(SOURCE, "dfgnn::pad_items", dfgnn__index_type(offsets64));
  return dfgnn__launch_struct(queue, &program, grid_of(items->rows), items);
}

dfgnn_status dfgnn__cuda_fill_items(const dfgnn_queue *queue, int32_t *row,
                                    int64_t *first_edge,
                                    const int32_t *first_item, int64_t items,
                                    const dfgnn_matrix *m, int64_t size) {
  const dfgnn_program program = DFGNN_PROGRAM(SOURCE, "dfgnn::fill_items",
                                              dfgnn__index_type(m->offsets64));
  const dfgnn_fill_items fill = {.row = row,
                                 .first_edge = first_edge,
                                 .first_item = first_item,
                                 .items = items,
                                 .offsets = m->offsets,
                                 .rows = m->destinations,
                                 .edges = m->edges,
                                 .size = size};
  return dfgnn__launch_struct(queue, &program, grid_of(items + 1), &fill);
}
