/* graph_signature.c - the signature of a graph, made when somebody asks */
#include <stdlib.h>
#include <string.h>

#include "dfgnn_graph.h"
#include "lib/base/descriptor.h"
#include "lib/base/error.h"
#include "lib/graph.h"
#include "lib/handle.h"

/* Numbers that the shape bounds (degrees, sizes of blocks) are taken to be as
 * large as they can be, the others as in a graph without any structure. */
void dfgnn__graph_guess(dfgnn_graph *graph, int64_t graphs,
                        const int64_t *graph_ptr) {
  const dfgnn_matrix *m = &graph->matrix;
  const double rows = (double)m->destinations, edges = (double)m->edges;
  const double mean = rows > 0 ? edges / rows : 0;
  dfgnn_signature *s = &graph->guess;
  *s = (dfgnn_signature){.struct_size = sizeof *s,
                         .destinations = m->destinations,
                         .sources = m->sources,
                         .edges = m->edges,
                         .max_degree = m->max_degree,
                         .mean_degree = mean,
                         .p50_degree = (int64_t)mean,
                         .p90_degree = (int64_t)mean,
                         .p99_degree = (int64_t)mean,
                         .reuse = 1,
                         .locality = 1,
                         .graphs = graph_ptr && graphs > 0 ? graphs : 1,
                         .largest_graph = m->destinations};
  if (m->destinations > 0 && m->sources > 0)
    s->density = mean / (double)m->sources * (double)s->graphs;
}

void dfgnn__graph_set_known(dfgnn_graph *graph,
                            const dfgnn_signature *signature) {
  graph->signature = *signature;
  graph->exact = graph->matrix;
  graph->exact.max_degree = signature->max_degree;
  graph->exact.edges = signature->edges;
  atomic_store_explicit(&graph->known, 1, memory_order_release);
}

static dfgnn_status remember_refusal(dfgnn_graph *graph, dfgnn_status status) {
  if (status == DFGNN_ERROR_INVALID) {
    graph->refusal = status;
    graph->complaint = strdup(dfgnn_last_error());
  }
  return status;
}

/* Reads how many edges there are, once the arrays are made. */
static dfgnn_status count_edges(dfgnn_graph *graph, dfgnn_matrix *matrix) {
  const int32_t *offsets = matrix->offsets;
  int32_t edges = 0;
  dfgnn_status status = graph->ctx->backend->copy(
      graph->ctx->device, &edges, offsets + matrix->destinations, sizeof edges);
  matrix->edges = edges;
  return status;
}

/* The caller holds the graph's lock. */
static dfgnn_status find_out(dfgnn_graph *graph) {
  const dfgnn_backend *backend = graph->ctx->backend;
  dfgnn_device *device = graph->ctx->device;
  dfgnn_matrix matrix = graph->matrix;
  dfgnn_signature signature;
  dfgnn_status status;
  if (graph->refusal)
    return dfgnn__fail(graph->refusal, "%s",
                       graph->complaint ? graph->complaint
                                        : "the matrix is not valid");
  if (graph->pending) {
    status = backend->analyze_end(device, graph->pending, &matrix, &signature);
    graph->pending = NULL;
  } else {
    status = dfgnn__graph_follow(graph, DFGNN_OWN_STREAM);
    if (!status && graph->edges_bound)
      status = count_edges(graph, &matrix);
    if (!status)
      status = backend->analyze(device, &matrix, &signature, graph->graphs,
                                graph->graph_ptr);
  }
  if (status)
    return remember_refusal(graph, status);
  dfgnn__graph_set_known(graph, &signature);
  free(graph->graph_ptr);
  graph->graph_ptr = NULL;
  return DFGNN_OK;
}

dfgnn_status dfgnn__graph_know(dfgnn_graph *graph) {
  dfgnn_status status = DFGNN_OK;
  if (dfgnn__graph_known(graph))
    return DFGNN_OK;
  pthread_mutex_lock(&graph->lock);
  if (!dfgnn__graph_known(graph))
    status = find_out(graph);
  pthread_mutex_unlock(&graph->lock);
  return status;
}

dfgnn_status dfgnn__graph_count(dfgnn_graph *graph) {
  return graph->edges_bound ? dfgnn__graph_know(graph) : DFGNN_OK;
}

dfgnn_status dfgnn_graph_signature(dfgnn_signature *signature,
                                   const dfgnn_graph *graph) {
  DFGNN_TRY(dfgnn__check_graph(graph));
  static const dfgnn_descriptor_kind kind =
      DFGNN_DESCRIPTOR("signature", dfgnn_signature, "DFGNN_SIGNATURE_INIT");
  DFGNN_TRY(dfgnn__can_give(signature, &kind));
  DFGNN_TRY(dfgnn__graph_know((dfgnn_graph *)graph));
  dfgnn__give(signature, &graph->signature, &kind);
  return DFGNN_OK;
}
