/* graph_columns.c - a transposed matrix that the caller gives with the graph */
#include <string.h>

#include "kernels/common/host_view.h"
#include "lib/base/error.h"
#include "lib/graph.h"

/* Checks that the edges of column j are edges of the matrix with index j, in
 * rising order.  Since the columns have E edges together, none is missing. */
static dfgnn_status check_column(const dfgnn_matrix *m, const dfgnn_view *view,
                                 int64_t j) {
  const int64_t begin = dfgnn__index_at(view->array[0], m->offsets64, j);
  const int64_t end = dfgnn__index_at(view->array[0], m->offsets64, j + 1);
  const int32_t *rows = view->array[1];
  int64_t last = -1;
  if (begin < 0 || end < begin || end > m->edges)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "column_offsets go from %lld to %lld at column %lld",
                       (long long)begin, (long long)end, (long long)j);
  for (int64_t k = begin; k < end; k++) {
    const int64_t e = dfgnn__index_at(view->array[2], m->offsets64, k);
    const int64_t i = rows[k];
    const int there = e > last && e < m->edges && m->indices[e] == j;
    if (!there || i < 0 || i >= m->destinations || dfgnn__offset_at(m, i) > e ||
        dfgnn__offset_at(m, i + 1) <= e)
      return dfgnn__fail(DFGNN_ERROR_INVALID,
                         "column_edges[%lld] = %lld of row %lld in column %lld "
                         "is not the matrix's next edge of that column",
                         (long long)k, (long long)e, (long long)i,
                         (long long)j);
    last = e;
  }
  return DFGNN_OK;
}

static dfgnn_status check_columns(const dfgnn_matrix *m,
                                  const dfgnn_view *view) {
  const int64_t first = dfgnn__index_at(view->array[0], m->offsets64, 0);
  const int64_t last =
      dfgnn__index_at(view->array[0], m->offsets64, m->sources);
  dfgnn_status status = DFGNN_OK;
  if (first != 0 || last != m->edges)
    return dfgnn__fail(
        DFGNN_ERROR_INVALID,
        "column_offsets go from %lld to %lld, expected 0 to %lld",
        (long long)first, (long long)last, (long long)m->edges);
  for (int64_t j = 0; j < m->sources && !status; j++)
    status = check_column(m, view, j);
  return status;
}

static int64_t most_of_a_column(const dfgnn_matrix *m, const void *offsets) {
  const dfgnn_matrix columns = {.destinations = m->sources,
                                .offsets = offsets,
                                .offsets64 = m->offsets64};
  int64_t most = 0;
  for (int64_t j = 0; j < columns.destinations; j++) {
    const int64_t degree =
        dfgnn__offset_at(&columns, j + 1) - dfgnn__offset_at(&columns, j);
    most = degree > most ? degree : most;
  }
  return most;
}

dfgnn_status dfgnn__graph_take_columns(dfgnn_graph *graph,
                                       const dfgnn_csr *csr) {
  const dfgnn_backend *backend = graph->ctx->backend;
  const dfgnn_matrix *m = &graph->matrix;
  const size_t width = m->offsets64 ? 8 : 4;
  const int on_host = !strcmp(backend->name, "cpu");
  dfgnn_view view = {.request = {.kind = DFGNN_VIEW_TRANSPOSE},
                     .count = m->sources};
  void *owned[3] = {NULL, NULL, NULL};
  unsigned borrowed = 0;
  if (!csr->column_offsets || (!csr->trusted && !on_host))
    return DFGNN_OK;
  dfgnn_status status =
      dfgnn__graph_place(&view.array[0], &owned[0], graph, csr->column_offsets,
                         ((size_t)m->sources + 1) * width, csr->on_device);
  if (!status)
    status = dfgnn__graph_place_indices(&view.array[1], &owned[1], graph,
                                        csr->column_rows, csr);
  if (!status)
    status =
        dfgnn__graph_place(&view.array[2], &owned[2], graph, csr->column_edges,
                           (size_t)m->edges * width, csr->on_device);
  if (!status && !csr->trusted)
    status = check_columns(m, &view);
  if (status) {
    for (int k = 0; k < 3; k++)
      if (owned[k])
        backend->release(graph->ctx->device, owned[k]);
    return status;
  }
  view.extra =
      on_host && !m->refilled ? most_of_a_column(m, view.array[0]) : m->edges;
  for (unsigned k = 0; k < 3; k++)
    if (!owned[k])
      borrowed |= 1u << k;
  return dfgnn__graph_add_view(graph, &view, borrowed);
}
