/* graph_place.c - puts a caller's arrays where the device of a graph can read
 * them */
#include <string.h>

#include "lib/graph.h"

dfgnn_status dfgnn__graph_place(const void **placed, void **owned,
                                dfgnn_graph *g, const void *array, size_t bytes,
                                int on_device) {
  const dfgnn_backend *backend = g->ctx->backend;
  if (on_device || !strcmp(backend->name, "cpu")) {
    *placed = array;
    return DFGNN_OK;
  }
  dfgnn_status status = backend->allocate(g->ctx->device, owned, bytes);
  if (!status)
    status = backend->copy(g->ctx->device, *owned, array, bytes);
  *placed = *owned;
  if (!status)
    g->owned_bytes += bytes;
  return status;
}

dfgnn_status dfgnn__graph_place_indices(const void **placed, void **owned,
                                        dfgnn_graph *g, const void *array,
                                        const dfgnn_csr *csr) {
  const dfgnn_backend *backend = g->ctx->backend;
  dfgnn_device *device = g->ctx->device;
  const size_t edges = (size_t)csr->edges;
  const int wide = csr->index_type == DFGNN_INDEX_I64;
  void *copy = NULL, *narrow = NULL;
  dfgnn_status status =
      dfgnn__graph_place(placed, wide ? &copy : owned, g, array,
                         edges * (wide ? 8 : 4), csr->on_device);
  if (!wide)
    return status;
  if (!status)
    status = backend->allocate(device, &narrow, edges * sizeof(int32_t));
  if (!status)
    status = backend->narrow(device, narrow, *placed, csr->edges);
  if (copy) {
    backend->release(device, copy);
    g->owned_bytes -= edges * sizeof(int64_t);
  }
  *placed = *owned = narrow;
  g->owned_bytes += edges * sizeof(int32_t);
  return status;
}
