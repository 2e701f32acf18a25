/* bench_build.c - times the building of a graph on the device */
#include <math.h>
#include <stdlib.h>

#include "graph/io/random.h"
#include "lib/graph.h"
#include "tools/bench.h"
#include "tools/lookup.h"
#include "tuner/statistics.h"

#define MOST 15                   /* at most so many builds are timed */
static const double ENOUGH_S = 1; /* the time after which it stops earlier */

typedef struct builder {
  const tool_case *each;
  dfgnn_coo coo; /* [E] int64 in device memory */
} builder;

typedef dfgnn_status (*build_function)(const builder *b, double *seconds);

static dfgnn_status matrix_graph(dfgnn_graph **graph, const builder *b) {
  dfgnn_csr csr = DFGNN_CSR_INIT;
  dfgnn_status status = dfgnn_graph_csr(&csr, b->each->graph);
  csr.graphs = b->each->csr->graphs;
  csr.graph_ptr = b->each->csr->graph_ptr;
  return status ? status
                : dfgnn_graph_create_csr(graph, b->each->ctx, &csr, NULL);
}

static dfgnn_status from_matrix(const builder *b, double *seconds) {
  dfgnn_graph *graph = NULL;
  double began = tool_now();
  dfgnn_status status = matrix_graph(&graph, b);
  *seconds = tool_now() - began;
  dfgnn_graph_destroy(graph);
  return status;
}

static dfgnn_status from_list(const builder *b, double *seconds) {
  dfgnn_graph *graph = NULL;
  double began = tool_now();
  dfgnn_status status =
      dfgnn_graph_create_coo(&graph, b->each->ctx, &b->coo, NULL);
  *seconds = tool_now() - began;
  dfgnn_graph_destroy(graph);
  return status;
}

static dfgnn_status transposed(const builder *b, double *seconds) {
  static const dfgnn_view_request request = {DFGNN_VIEW_TRANSPOSE, 0, 0};
  const dfgnn_view *view;
  dfgnn_graph *graph = NULL;
  dfgnn_status status = matrix_graph(&graph, b);
  double began = tool_now();
  if (!status)
    status = dfgnn__graph_view(&view, graph, &request);
  *seconds = tool_now() - began;
  dfgnn_graph_destroy(graph);
  return status;
}

/* Puts the median time, after one build that is not counted: memory and branch
 * predictors are warm then. */
static dfgnn_status measure(json_t *row, const char *key, const builder *b,
                            build_function f) {
  double seconds[MOST], total = 0;
  int count = 0;
  dfgnn_status status = f(b, &seconds[0]);
  while (!status && count < MOST && (count < 3 || total < ENOUGH_S)) {
    status = f(b, &seconds[count]);
    total += seconds[count++];
  }
  if (!status)
    tool_put_number(row, key, 1e3 * dfgnn__median(seconds, (size_t)count));
  return status;
}

/* ---- edge lists ---------------------------------------------------------- */

static void fill_lists(const dfgnn_csr *csr, int64_t *dst, int64_t *src) {
  const int wide = csr->offset_type == DFGNN_INDEX_I64;
  for (int64_t i = 0, e = 0; i < csr->destinations; i++) {
    int64_t end = wide ? ((const int64_t *)csr->offsets)[i + 1]
                       : ((const int32_t *)csr->offsets)[i + 1];
    for (; e < end; e++) {
      dst[e] = i;
      src[e] = csr->index_type == DFGNN_INDEX_I64
                   ? ((const int64_t *)csr->indices)[e]
                   : ((const int32_t *)csr->indices)[e];
    }
  }
}

static void swap(int64_t *array, int64_t a, int64_t b) {
  int64_t kept = array[a];
  array[a] = array[b];
  array[b] = kept;
}

/* Puts the edges in a random order, the slowest one known to build from. */
static void shuffle(int64_t *dst, int64_t *src, int64_t edges, uint64_t seed) {
  dfgnn__random random = dfgnn__random_stream(seed, 0);
  for (int64_t e = edges - 1; e > 0; e--) {
    int64_t other = (int64_t)(dfgnn__random_unit(&random) * (double)(e + 1));
    swap(dst, e, other);
    swap(src, e, other);
  }
}

static dfgnn_status measure_lists(json_t *row, builder *b, uint64_t seed) {
  dfgnn_context *ctx = b->each->ctx;
  const dfgnn_csr *csr = b->each->csr;
  const size_t bytes = (size_t)csr->edges * sizeof(int64_t);
  int64_t *dst = malloc(bytes + 1), *src = malloc(bytes + 1);
  void *device_dst = NULL, *device_src = NULL;
  dfgnn_status status = dst && src ? DFGNN_OK : DFGNN_ERROR_MEMORY;
  if (!status)
    status = ctx->backend->allocate(ctx->device, &device_dst, bytes);
  if (!status)
    status = ctx->backend->allocate(ctx->device, &device_src, bytes);
  if (status)
    goto out;
  fill_lists(csr, dst, src);
  b->coo.destinations = csr->destinations;
  b->coo.sources = csr->sources;
  b->coo.edges = csr->edges;
  b->coo.destination = device_dst;
  b->coo.source = device_src;
  b->coo.index_type = DFGNN_INDEX_I64;
  b->coo.on_device = 1;
  b->coo.graphs = csr->graphs;
  b->coo.graph_ptr = csr->graph_ptr;
  for (int shuffled = 0; shuffled < 2 && !status; shuffled++) {
    if (shuffled)
      shuffle(dst, src, csr->edges, seed);
    status = ctx->backend->copy(ctx->device, device_dst, dst, bytes);
    if (!status)
      status = ctx->backend->copy(ctx->device, device_src, src, bytes);
    if (!status)
      status = measure(row, shuffled ? "coo_unsorted_ms" : "coo_sorted_ms", b,
                       from_list);
  }
out:
  if (device_dst)
    ctx->backend->release(ctx->device, device_dst);
  if (device_src)
    ctx->backend->release(ctx->device, device_src);
  free(dst);
  free(src);
  return status;
}

dfgnn_status bench_put_build(json_t *row, const tool_case *each,
                             uint64_t seed) {
  builder b = {.each = each, .coo = DFGNN_COO_INIT};
  dfgnn_status status = measure(row, "graph_create_ms", &b, from_matrix);
  if (!status)
    status = measure(row, "transpose_ms", &b, transposed);
  return status ? status : measure_lists(row, &b, seed);
}
