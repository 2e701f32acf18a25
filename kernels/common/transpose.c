/* transpose.c - launches the kernels that put edges in the order of a node */
#include <limits.h>

#include "kernels/common/cuda_host.h"
#include "kernels/common/device_graph.h"

#define SOURCE "kernels/common/transpose.cuh"

enum { MOST_BLOCKS = 8192 };

static dfgnn_status launch(const dfgnn_queue *queue,
                           const dfgnn_program *program, int64_t blocks,
                           const void *argument) {
  const dfgnn_grid grid = {.blocks = {(unsigned)blocks},
                           .threads = DFGNN_GRAPH_THREADS};
  return dfgnn__launch_struct(queue, program, grid, argument);
}

/* The blocks of a kernel whose threads stride over the elements. */
static int64_t blocks_for(int64_t count) {
  const int64_t blocks = dfgnn__ceil_div(count, DFGNN_GRAPH_THREADS);
  return blocks < 1 ? 1 : blocks > MOST_BLOCKS ? MOST_BLOCKS : blocks;
}

static int64_t blocks_of_edges(int64_t edges) {
  return edges / (DFGNN_GRAPH_THREADS * DFGNN_EACH) + 1;
}

/* Bits of the numbers below `nodes`. */
static int bits_below(int64_t nodes) {
  int bits = 1;
  while (bits < 31 && (nodes - 1) >> bits)
    bits++;
  return bits;
}

static dfgnn_status fill_rows(const dfgnn_queue *queue, int32_t *rows,
                              uint64_t *largest, const dfgnn_matrix *m) {
  const dfgnn_program program = DFGNN_PROGRAM(SOURCE, "dfgnn::fill_rows",
                                              dfgnn__index_type(m->offsets64));
  const dfgnn_fill_rows fill = {.rows = rows,
                                .largest = largest,
                                .offsets = m->offsets,
                                .count = m->destinations,
                                .edges = m->edges};
  return launch(queue, &program, blocks_of_edges(m->edges), &fill);
}

dfgnn_status dfgnn__cuda_row_of_edge(const dfgnn_queue *queue, int32_t *rows,
                                     const dfgnn_matrix *matrix) {
  return fill_rows(queue, rows, NULL, matrix);
}

static dfgnn_status finish(const dfgnn_queue *queue, int wide,
                           const dfgnn_finish_edges *finish) {
  const dfgnn_program program =
      DFGNN_PROGRAM(SOURCE, "dfgnn::finish_edges", dfgnn__index_type(wide));
  return launch(queue, &program,
                blocks_for(finish->edges > finish->nodes ? finish->edges
                                                         : finish->nodes + 1),
                finish);
}

/* Sorted keys, rows of the edges, then the workspace of the sort. */
size_t dfgnn__cuda_transpose_bytes(const dfgnn_matrix *m) {
  return 2 * dfgnn__align256((size_t)m->edges * sizeof(int32_t)) +
         dfgnn__cuda_sort_bytes(m->edges, bits_below(m->sources), m->offsets64);
}

dfgnn_status dfgnn__cuda_transpose(const dfgnn_queue *queue, void *offsets,
                                   int32_t *row, void *edge, uint64_t *largest,
                                   const dfgnn_matrix *m, void *workspace) {
  const size_t part = dfgnn__align256((size_t)m->edges * sizeof(int32_t));
  uint32_t *sorted = workspace;
  int32_t *rows = (int32_t *)dfgnn__behind(workspace, part);
  DFGNN_TRY(fill_rows(queue, rows, largest, m));
  DFGNN_TRY(dfgnn__cuda_sort(queue, (const uint32_t *)m->indices, sorted, edge,
                             m->edges, bits_below(m->sources), m->offsets64,
                             dfgnn__behind(workspace, 2 * part)));
  return finish(queue, m->offsets64,
                &(dfgnn_finish_edges){.offsets = offsets,
                                      .nodes = m->sources,
                                      .key = (const int32_t *)sorted,
                                      .edges = m->edges,
                                      .largest = largest,
                                      .to = row,
                                      .from = rows,
                                      .order = edge});
}

/* Sorted destinations, sorted sources, then the workspace of either sort. */
size_t dfgnn__cuda_both_ways_bytes(int64_t edges, int64_t destinations,
                                   int64_t sources) {
  const size_t first =
      dfgnn__cuda_sort_bytes(edges, bits_below(destinations + 1), 0);
  const size_t second = dfgnn__cuda_sort_bytes(edges, bits_below(sources), 0);
  return 2 * dfgnn__align256((size_t)edges * sizeof(int32_t)) +
         (first > second ? first : second);
}

/* The matrix first; then its edges, in their order, sorted by source. */
dfgnn_status dfgnn__cuda_both_ways(const dfgnn_queue *queue,
                                   const dfgnn_both_ways *to,
                                   const int32_t *dst, const int32_t *src,
                                   int64_t edges, int64_t destinations,
                                   int64_t sources, void *workspace) {
  const size_t part = dfgnn__align256((size_t)edges * sizeof(int32_t));
  int32_t *rows = workspace,
          *columns = (int32_t *)dfgnn__behind(workspace, part);
  void *rest = dfgnn__behind(workspace, 2 * part);
  DFGNN_TRY(dfgnn__cuda_sort(queue, (const uint32_t *)dst, (uint32_t *)rows,
                             to->order, edges, bits_below(destinations + 1), 0,
                             rest));
  DFGNN_TRY(finish(queue, 0,
                   &(dfgnn_finish_edges){.offsets = to->offsets,
                                         .nodes = destinations,
                                         .key = rows,
                                         .edges = edges,
                                         .to = to->indices,
                                         .from = src,
                                         .order = to->order}));
  DFGNN_TRY(dfgnn__cuda_sort(queue, (const uint32_t *)to->indices,
                             (uint32_t *)columns, to->column_edges, edges,
                             bits_below(sources), 0, rest));
  return finish(queue, 0,
                &(dfgnn_finish_edges){.offsets = to->column_offsets,
                                      .nodes = sources,
                                      .key = columns,
                                      .edges = edges,
                                      .to = to->column_rows,
                                      .from = rows,
                                      .order = to->column_edges});
}

int dfgnn__cuda_is_short(int64_t edges, int64_t destinations, int64_t sources,
                         int64_t shared_bytes) {
  return edges <= DFGNN_SHORT_MOST_EDGES &&
         destinations <= DFGNN_SHORT_MOST_NODES &&
         sources <= DFGNN_SHORT_MOST_NODES &&
         8 * edges + DFGNN_SHORT_SHARED <= shared_bytes;
}

dfgnn_status dfgnn__cuda_short_list(const dfgnn_queue *queue,
                                    dfgnn_short_list list, int wide) {
  const dfgnn_program program =
      DFGNN_PROGRAM("kernels/common/short_list.cuh", "dfgnn::short_list",
                    dfgnn__index_type(wide));
  const dfgnn_grid grid = {.blocks = {1},
                           .threads = DFGNN_SHORT_THREADS,
                           .shared = 8 * (unsigned)(list.edges + list.loops)};
  list.dst_bits = bits_below((int64_t)list.destinations + 1);
  list.src_bits = bits_below((int64_t)list.sources + 1);
  return dfgnn__launch_struct(queue, &program, grid, &list);
}

dfgnn_status dfgnn__cuda_mirror(const dfgnn_queue *queue, void *offsets,
                                int32_t *row, void *edge, uint64_t *other,
                                const dfgnn_matrix *m) {
  const dfgnn_program program =
      DFGNN_PROGRAM(SOURCE, "dfgnn::mirror", dfgnn__index_type(m->offsets64));
  const dfgnn_mirror mirror = {.to_offsets = offsets,
                               .to_row = row,
                               .edge = edge,
                               .other = other,
                               .offsets = m->offsets,
                               .indices = m->indices,
                               .rows = m->destinations,
                               .edges = m->edges};
  DFGNN_TRY(dfgnn__fill(queue, other, 0, sizeof *other));
  return launch(queue, &program, blocks_of_edges(m->edges), &mirror);
}

dfgnn_status dfgnn__cuda_read_edges(const dfgnn_queue *queue,
                                    const dfgnn_read_edges *read, int wide) {
  const dfgnn_program program =
      DFGNN_PROGRAM(SOURCE, "dfgnn::read_edges", dfgnn__index_type(wide));
  return launch(queue, &program, blocks_for(read->edges + read->loops), read);
}

dfgnn_status dfgnn__cuda_list_offsets(const dfgnn_queue *queue, void *offsets,
                                      const void *dst_from, int wide,
                                      int64_t edges, int64_t destinations) {
  const dfgnn_program program = DFGNN_PROGRAM(
      SOURCE, "dfgnn::list_offsets", dfgnn__index_type(edges > INT_MAX),
      dfgnn__index_type(wide));
  const dfgnn_list_offsets list = {.offsets = offsets,
                                   .key = dst_from,
                                   .nodes = destinations,
                                   .keys = edges};
  return launch(queue, &program, blocks_for(destinations + 1), &list);
}

/* Sorted keys, then the workspace of the sort. */
size_t dfgnn__cuda_sort_edges_bytes(int64_t edges, int64_t destinations) {
  return dfgnn__align256((size_t)edges * sizeof(int32_t)) +
         dfgnn__cuda_sort_bytes(edges, bits_below(destinations + 1),
                                edges > INT_MAX);
}

dfgnn_status dfgnn__cuda_sort_edges(const dfgnn_queue *queue, void *offsets,
                                    int32_t *indices, void *order,
                                    const int32_t *dst, const int32_t *src,
                                    int64_t edges, int64_t destinations,
                                    void *workspace) {
  const size_t part = dfgnn__align256((size_t)edges * sizeof(int32_t));
  uint32_t *sorted = workspace;
  DFGNN_TRY(dfgnn__cuda_sort(queue, (const uint32_t *)dst, sorted, order, edges,
                             bits_below(destinations + 1), edges > INT_MAX,
                             dfgnn__behind(workspace, part)));
  return finish(queue, edges > INT_MAX,
                &(dfgnn_finish_edges){.offsets = offsets,
                                      .nodes = destinations,
                                      .key = (const int32_t *)sorted,
                                      .edges = edges,
                                      .to = indices,
                                      .from = src,
                                      .order = order});
}
