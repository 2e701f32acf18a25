/* bench_dispatch.c - times choosing and calling a variant on the host */
#include "tools/bench.h"
#include "tools/lookup.h"
#include "tuner/harness.h"
#include "tuner/statistics.h"
#include <math.h>
#include <stdlib.h>

#define BATCHES 15

typedef struct probe {
  const tool_case *each;
  dfgnn_plan *plan; /* used by execute() alone */
  const dfgnn_args *args;
  void *workspace;
} probe;

/* Measures the seconds of one call, without its preparation. */
typedef dfgnn_status (*probe_function)(probe *p, double *seconds);

static dfgnn_status cached_plan(probe *p, double *seconds) {
  dfgnn_plan *plan = NULL;
  const int calls = 20000;
  dfgnn_status status = DFGNN_OK;
  double began = tool_now();
  for (int i = 0; i < calls && !status; i++) {
    status = dfgnn_plan_create(&plan, p->each->ctx, p->each->graph,
                               p->each->problem);
    if (!status)
      dfgnn_plan_destroy(plan);
  }
  *seconds = (tool_now() - began) / calls;
  return status;
}

static dfgnn_status new_plan(probe *p, double *seconds) {
  const int calls = 20;
  dfgnn_status status = DFGNN_OK;
  *seconds = 0;
  for (int i = 0; i < calls && !status; i++) {
    dfgnn_plan *plan = NULL;
    dfgnn__graph_forget_plans(p->each->graph);
    double began = tool_now();
    status = dfgnn_plan_create(&plan, p->each->ctx, p->each->graph,
                               p->each->problem);
    *seconds += (tool_now() - began) / calls;
    if (!status)
      dfgnn_plan_destroy(plan);
  }
  return status;
}

/* The arrays are on the device already: only the signature is computed. */
static dfgnn_status new_graph(probe *p, double *seconds) {
  const dfgnn_matrix *m = &p->each->graph->matrix;
  dfgnn_csr csr = DFGNN_CSR_INIT;
  dfgnn_graph *graph;
  csr.destinations = m->destinations;
  csr.sources = m->sources;
  csr.edges = m->edges;
  csr.offsets = m->offsets;
  csr.indices = m->indices;
  csr.offset_type = m->offsets64 ? DFGNN_INDEX_I64 : DFGNN_INDEX_I32;
  csr.index_type = DFGNN_INDEX_I32;
  csr.on_device = 1;
  csr.graphs = p->each->csr->graphs;
  csr.graph_ptr = p->each->csr->graph_ptr;
  double began = tool_now();
  dfgnn_status status =
      dfgnn_graph_create_csr(&graph, p->each->ctx, &csr, NULL);
  *seconds = tool_now() - began;
  if (!status)
    dfgnn_graph_destroy(graph);
  return status;
}

static dfgnn_status execute(probe *p, double *seconds) {
  dfgnn_context *ctx = p->each->ctx;
  const int calls = 100; /* a stream queues more launches than this */
  dfgnn_status status = ctx->backend->synchronize(ctx->device, NULL);
  double began = tool_now();
  for (int i = 0; i < calls && !status; i++)
    status = dfgnn_execute(p->plan, p->args, p->workspace, NULL);
  *seconds = (tool_now() - began) / calls;
  dfgnn_status end = ctx->backend->synchronize(ctx->device, NULL);
  return status ? status : end;
}

/* The median nanoseconds of a call, after a batch that is not counted. */
static dfgnn_status measure(double *ns, probe *p, probe_function f) {
  double seconds[BATCHES];
  dfgnn_status status = f(p, &seconds[0]);
  for (int i = 0; i < BATCHES && !status; i++)
    status = f(p, &seconds[i]);
  *ns = status ? NAN : 1e9 * dfgnn__median(seconds, BATCHES);
  return status;
}

/* On a CPU the kernel runs within the call, so the cost of the call is measured
 * on a graph without edges. */
static dfgnn_status measure_execute(double *ns, const tool_case *each,
                                    uint64_t seed) {
  static const int32_t offsets[2] = {0, 0};
  tool_case empty = *each;
  dfgnn_graph *graph = NULL;
  dfgnn_harness *harness = NULL;
  probe p = {.each = each};
  int own = !*each->info->driver;
  dfgnn_status status = DFGNN_OK;
  if (own) {
    dfgnn_csr csr = DFGNN_CSR_INIT;
    csr.destinations = csr.sources = 1;
    csr.offsets = csr.indices = offsets;
    status = dfgnn_graph_create_csr(&graph, each->ctx, &csr, NULL);
    empty.graph = graph;
    p.each = &empty;
  }
  if (!status)
    status =
        dfgnn_plan_create(&p.plan, each->ctx, p.each->graph, each->problem);
  if (!status)
    status = dfgnn__harness_create(&harness, each->ctx, p.each->graph,
                                   each->problem, seed);
  if (!status)
    status = dfgnn__harness_workspace(&p.workspace, harness, p.plan);
  if (!status) {
    p.args = dfgnn__harness_args(harness);
    status = measure(ns, &p, execute);
  }
  if (harness)
    dfgnn__harness_destroy(harness);
  dfgnn_plan_destroy(p.plan);
  dfgnn_graph_destroy(graph);
  return status;
}

int bench_dispatch(void *data, const tool_case *each) {
  bench *b = data;
  probe p = {.each = each};
  double cached = NAN, fresh = NAN, graph = NAN, call = NAN;
  dfgnn_plan *plan = NULL;
  dfgnn_status status =
      dfgnn_plan_create(&plan, each->ctx, each->graph, each->problem);
  if (!status)
    status = measure(&cached, &p, cached_plan);
  if (!status)
    status = measure(&graph, &p, new_graph);
  if (!status)
    status = measure_execute(&call, each, b->settings->seed);
  if (status) {
    bench_fail(b, each, status);
    dfgnn_plan_destroy(plan);
    return TOOL_DONE;
  }
  json_t *row = tool_row(each->label, each->problem, each->info);
  tool_put(row, "variant", dfgnn_plan_variant(plan));
  tool_put(row, "source",
           dfgnn_name(DFGNN_NAMES_SOURCE, dfgnn_plan_source(plan)));
  dfgnn_plan_destroy(plan);
  status = measure(&fresh, &p, new_plan);
  if (status)
    bench_fail(b, each, status);
  tool_put_count(row, "edges", each->graph->matrix.edges);
  tool_put_number(row, "cached_plan_ns", cached);
  tool_put_number(row, "new_plan_ns", fresh);
  tool_put_number(row, "new_graph_ns", graph);
  tool_put_number(row, "new_graph_ns_edge",
                  graph / (double)each->graph->matrix.edges);
  tool_put_number(row, "execute_ns", call);
  bench_put_environment(row, each);
  json_array_append_new(b->rows, row);
  return tool_interrupted() ? TOOL_INTERRUPTED : TOOL_DONE;
}

const tool_column bench_dispatch_columns[] = {
    {"graph", "GRAPH", TOOL_TEXT},
    {"op", "OP", TOOL_TEXT},
    {"program_name", "PROGRAM", TOOL_TEXT},
    {"heads", "HEADS", TOOL_COUNT},
    {"dim", "DIM", TOOL_COUNT},
    TOOL_FLAG_COLUMNS,
    {"edges", "EDGES", TOOL_COUNT},
    {"source", "SOURCE", TOOL_TEXT},
    {"cached_plan_ns", "CACHED PLAN", TOOL_NS},
    {"new_plan_ns", "NEW PLAN", TOOL_NS},
    {"new_graph_ns", "NEW GRAPH", TOOL_NS},
    {"new_graph_ns_edge", "AN EDGE", TOOL_NS},
    {"execute_ns", "EXECUTE", TOOL_NS},
    {NULL, NULL, 0}};
