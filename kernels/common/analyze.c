/* analyze.c - launches the analysis of a graph in device memory */
#include "kernels/common/cuda_host.h"
#include "kernels/common/device_graph.h"
#include "kernels/common/fingerprint.h"

#define SOURCE "kernels/common/analyze.cuh"

/* Are the blocks looked for, or checked against graph_ptr? */
static int asks_for_blocks(const dfgnn_matrix *m, int64_t graphs) {
  return graphs > 0 ||
         (m->destinations == m->sources && m->destinations > 0 && m->edges > 0);
}

/* Counts and degrees come first, since analyze_start clears them. */
static size_t layout(dfgnn_analysis *a, void **blocks, const dfgnn_matrix *m,
                     int64_t graphs, void *workspace) {
  const size_t rows = (size_t)m->destinations;
  char *base = workspace;
  size_t at = 0;
  *a = (dfgnn_analysis){.offsets = m->offsets,
                        .indices = m->indices,
                        .rows = m->destinations,
                        .columns = m->sources,
                        .edges = m->edges,
                        .graphs = graphs};
  *blocks = NULL;
  a->counts = dfgnn__carve(base, &at, sizeof *a->counts);
  a->degrees = dfgnn__carve(base, &at, sizeof *a->degrees);
  a->graph_ptr = dfgnn__carve(
      base, &at, graphs > 0 ? (size_t)(graphs + 1) * sizeof(int64_t) : 0);
  a->heavy_capacity = m->edges / DFGNN_DEGREE_EXACT;
  a->heavy =
      dfgnn__carve(base, &at, (size_t)a->heavy_capacity * sizeof(uint64_t));
  a->column_degree =
      dfgnn__carve(base, &at, (size_t)m->sources * sizeof(uint32_t));
  if (asks_for_blocks(m, graphs)) {
    a->high = dfgnn__carve(base, &at, rows * sizeof(int32_t));
    a->low = dfgnn__carve(base, &at, rows * sizeof(int32_t));
    if (graphs <= 0)
      *blocks = dfgnn__carve(base, &at,
                             dfgnn__cuda_find_blocks_bytes(m->destinations));
  }
  return at;
}

size_t dfgnn__cuda_analyze_bytes(const dfgnn_matrix *matrix, int64_t graphs) {
  dfgnn_analysis a;
  void *blocks;
  return layout(&a, &blocks, matrix, graphs, NULL);
}

dfgnn_status dfgnn__cuda_analyze_start(const dfgnn_queue *queue,
                                       void *workspace) {
  return dfgnn__fill(queue, workspace, 0,
                     dfgnn__align256(sizeof(dfgnn_graph_counts)) +
                         sizeof(dfgnn_degree_rows));
}

static int64_t blocks_for(int64_t count, int64_t share) {
  const int64_t blocks = dfgnn__ceil_div(count, share);
  return blocks < 1 ? 1 : blocks;
}

static dfgnn_status launch(const dfgnn_queue *queue,
                           const dfgnn_program *program, int64_t blocks,
                           const dfgnn_analysis *analysis) {
  const dfgnn_grid grid = {.blocks = {(unsigned)blocks},
                           .threads = DFGNN_GRAPH_THREADS};
  return dfgnn__launch_struct(queue, program, grid, analysis);
}

static dfgnn_status look_at_offsets(const dfgnn_queue *queue,
                                    const dfgnn_analysis *a, int type,
                                    int units) {
  const dfgnn_program program =
      DFGNN_PROGRAM(SOURCE, "dfgnn::analyze_offsets", type);
  const int64_t wide = blocks_for(a->rows + 1, DFGNN_ANALYZE_ROWS);
  return launch(queue, &program, wide > 4 * units ? 4 * units : wide, a);
}

/* The first blocks take the samples, the others walk the edges. */
static dfgnn_status look_at_edges(const dfgnn_queue *queue, dfgnn_analysis *a,
                                  int type) {
  const dfgnn_program program =
      DFGNN_PROGRAM(SOURCE, "dfgnn::analyze_edges", type);
  const int64_t windows = (a->rows + 15) / 16;
  const int64_t groups = DFGNN_GRAPH_THREADS / DFGNN_ANALYZE_GROUP;
  a->windows =
      (int32_t)(windows < DFGNN_REUSE_WINDOWS ? windows : DFGNN_REUSE_WINDOWS);
  a->samples =
      (int32_t)(a->rows < DFGNN_LOCALITY_ROWS ? a->rows : DFGNN_LOCALITY_ROWS);
  return launch(queue, &program,
                a->windows + blocks_for(a->samples, DFGNN_GRAPH_THREADS) +
                    blocks_for(a->edges, DFGNN_ANALYZE_CHUNK * groups),
                a);
}

static dfgnn_status look_at_columns(const dfgnn_queue *queue,
                                    const dfgnn_analysis *a, int units) {
  static const dfgnn_program program =
      DFGNN_PROGRAM(SOURCE, "dfgnn::analyze_columns", DFGNN_GRAPH_THREADS);
  const int64_t wide = blocks_for(a->columns, DFGNN_ANALYZE_ROWS);
  return launch(queue, &program, wide > 4 * units ? 4 * units : wide, a);
}

dfgnn_status dfgnn__cuda_analyze(const dfgnn_queue *queue,
                                 const dfgnn_matrix *matrix, int64_t graphs,
                                 const int64_t *graph_ptr, int units,
                                 void *workspace) {
  static const dfgnn_program inside =
      DFGNN_PROGRAM(SOURCE, "dfgnn::analyze_inside", DFGNN_GRAPH_THREADS);
  const int type = dfgnn__index_type(matrix->offsets64);
  dfgnn_analysis a;
  void *blocks;
  layout(&a, &blocks, matrix, graphs, workspace);
  dfgnn_status status = DFGNN_OK;
  if (graphs > 0)
    status = dfgnn__copy(queue, a.graph_ptr, graph_ptr,
                         (size_t)(graphs + 1) * sizeof(int64_t));
  if (!status)
    status = look_at_offsets(queue, &a, type, units);
  if (!status && a.rows > 0 && a.edges > 0)
    status = look_at_edges(queue, &a, type);
  if (!status && a.rows > 0 && a.edges > 0)
    status = look_at_columns(queue, &a, units);
  if (status || a.rows == 0)
    return status;
  if (graphs > 0)
    return launch(queue, &inside, blocks_for(a.rows, DFGNN_GRAPH_THREADS), &a);
  if (asks_for_blocks(matrix, graphs))
    return dfgnn__cuda_find_blocks(queue, a.counts, a.high, a.low, a.rows,
                                   a.degrees ? &a.degrees->tickets[1] : NULL,
                                   blocks);
  return DFGNN_OK;
}
