/* graph_views.c - the views of a graph: built at the first request, kept with
 * it */
#include <stdlib.h>

#include "kernels/common/device_graph.h"
#include "lib/base/error.h"
#include "lib/graph.h"

typedef struct dfgnn_view_node {
  dfgnn_view view;
  unsigned borrowed; /* bits of arrays that nobody frees by themselves */
  struct dfgnn_view_node *next;
} dfgnn_view_node;

static dfgnn_view *find_view(const dfgnn_graph *graph,
                             const dfgnn_view_request *request) {
  dfgnn_view_node *node = graph->views;
  while (node && (node->view.request.kind != request->kind ||
                  node->view.request.parameter != request->parameter ||
                  node->view.request.transposed != request->transposed))
    node = node->next;
  return node ? &node->view : NULL;
}

dfgnn_status dfgnn__graph_add_view(dfgnn_graph *graph, const dfgnn_view *view,
                                   unsigned borrowed) {
  const dfgnn_backend *backend = graph->ctx->backend;
  dfgnn_view_node *node = calloc(1, sizeof *node);
  if (!node) {
    for (int k = 0; k < 4; k++)
      if (view->array[k] && !(borrowed >> k & 1))
        backend->release(graph->ctx->device, (void *)view->array[k]);
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  }
  *node = (dfgnn_view_node){
      .view = *view, .borrowed = borrowed, .next = graph->views};
  graph->views = node;
  graph->view_bytes += view->bytes;
  return DFGNN_OK;
}

/* A batch that nobody has waited for, whose few calls win back little. */
static int is_new_batch(const dfgnn_graph *graph) {
  return graph->fresh && !dfgnn__graph_known(graph);
}

/* Padded items cost kernels a little each time, and a wait once: they are for a
 * batch that nothing is known of. */
static dfgnn_view_request as_wanted(const dfgnn_graph *graph,
                                    const dfgnn_view_request *request) {
  dfgnn_view_request wanted = *request;
  if (dfgnn__is_padded(request) && !is_new_batch(graph))
    wanted.parameter = -wanted.parameter;
  return wanted;
}

static int is_order(const dfgnn_view_request *request) {
  return request->kind == DFGNN_VIEW_DEGREE_ORDER ||
         request->kind == DFGNN_VIEW_PLACE_ORDER;
}

/* A view without an array, by which kernels take rows as they come: a sort is
 * three launches. */
static const dfgnn_view *natural_order(const dfgnn_view_request *request) {
  static const dfgnn_view by_degree = {.request.kind = DFGNN_VIEW_DEGREE_ORDER},
                          by_place = {.request.kind = DFGNN_VIEW_PLACE_ORDER};
  return request->kind == DFGNN_VIEW_DEGREE_ORDER ? &by_degree : &by_place;
}

/* A matrix whose rows are the items of a WORK_ITEMS view. */
static dfgnn_matrix items_as_rows(const dfgnn_matrix *matrix,
                                  const dfgnn_view *items) {
  dfgnn_matrix m = *matrix;
  m.destinations = items->count;
  m.max_degree = items->request.parameter;
  m.offsets = items->array[1];
  m.offsets64 = 1;
  return m;
}

/* The caller holds the graph's lock. */
static dfgnn_status get_view(const dfgnn_view **view, dfgnn_graph *graph,
                             const dfgnn_view_request *given) {
  static const dfgnn_view_request transpose = {.kind = DFGNN_VIEW_TRANSPOSE};
  dfgnn_context *ctx = graph->ctx;
  const dfgnn_view_request wanted = as_wanted(graph, given), *request = &wanted;
  dfgnn_matrix matrix = *dfgnn__graph_matrix(graph);
  if ((*view = find_view(graph, request)))
    return DFGNN_OK;
  if (is_order(request) && is_new_batch(graph)) {
    *view = natural_order(request);
    return DFGNN_OK;
  }
  if (request->kind == DFGNN_VIEW_RELATIONS)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "the graph's edges have no relations: "
                       "dfgnn_graph_set_relations gives them");
  if (matrix.refilled)
    return dfgnn__fail(DFGNN_ERROR_UNSUPPORTED,
                       "the graph's arrays are refilled, and a view of them "
                       "would not be");
  if (request->transposed) {
    const dfgnn_view *columns;
    DFGNN_TRY(get_view(&columns, graph, &transpose));
    matrix = dfgnn__transposed(&matrix, columns);
  }
  if (request->kind == DFGNN_VIEW_DEGREE_ORDER && request->parameter) {
    const dfgnn_view_request cut = {.kind = DFGNN_VIEW_WORK_ITEMS,
                                    .parameter = request->parameter,
                                    .transposed = request->transposed};
    const dfgnn_view *items;
    DFGNN_TRY(get_view(&items, graph, &cut));
    matrix = items_as_rows(&matrix, items);
  }
  dfgnn_view built = {.request = *request};
  DFGNN_TRY(dfgnn__graph_follow(graph, DFGNN_OWN_STREAM));
  DFGNN_TRY(ctx->backend->build_view(
      ctx->device, &built, &matrix,
      dfgnn__graph_known(graph) ? &graph->signature : &graph->guess));
  dfgnn__graph_mark(graph, DFGNN_OWN_STREAM);
  /* padded items lie in one allocation, which the first array begins */
  const unsigned borrowed = dfgnn__is_padded(request) ? ~1u : 0;
  dfgnn_status status = dfgnn__graph_add_view(graph, &built, borrowed);
  *view = status ? NULL : &graph->views->view;
  return status;
}

dfgnn_status dfgnn__graph_view(const dfgnn_view **view, dfgnn_graph *graph,
                               const dfgnn_view_request *request) {
  pthread_mutex_lock(&graph->lock);
  dfgnn_status status = get_view(view, graph, request);
  pthread_mutex_unlock(&graph->lock);
  return status;
}

void dfgnn__graph_free_views(dfgnn_graph *graph,
                             void (*release)(const void *data,
                                             const void *memory),
                             const void *data) {
  for (dfgnn_view_node *node = graph->views, *next; node; node = next) {
    next = node->next;
    for (int k = 0; k < 4; k++)
      if (!(node->borrowed >> k & 1))
        release(data, node->view.array[k]);
    free(node);
  }
  graph->views = NULL;
}
