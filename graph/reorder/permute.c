/* permute.c - dfgnn_csr_permute: the same graph with other numbers */
#include "graph/io/build.h"
#include "graph/io/io.h"
#include "lib/base/error.h"

#include <stdlib.h>
#include <string.h>

/* Sets inverse[order[p]] = p; fails unless order has every node once. */
static dfgnn_status invert(int32_t **inverse, const int64_t *order,
                           int64_t count, const char *name) {
  int32_t *to = malloc(((size_t)count + 1) * sizeof *to);
  if (!to)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "cannot invert %lld %s",
                       (long long)count, name);
  memset(to, -1, ((size_t)count + 1) * sizeof *to);
  for (int64_t p = 0; p < count; p++) {
    int64_t i = order ? order[p] : p;
    if (i < 0 || i >= count || to[i] >= 0) {
      free(to);
      return dfgnn__fail(DFGNN_ERROR_INVALID,
                         "%s[%lld] is %lld, expected each of 0..%lld once",
                         name, (long long)p, (long long)i,
                         (long long)count - 1);
    }
    to[i] = (int32_t)p;
  }
  *inverse = to;
  return DFGNN_OK;
}

/* Copies graph_ptr; NULL, so that the result is no batch, if nodes leave their
 * graphs. */
static int64_t *keep_batch(const dfgnn_csr *csr, const int64_t *rows,
                           const int64_t *columns) {
  size_t bytes = ((size_t)csr->graphs + 1) * sizeof *csr->graph_ptr;
  if (!csr->graph_ptr)
    return NULL;
  for (int64_t g = 0; g < csr->graphs; g++) {
    int64_t begin = csr->graph_ptr[g], end = csr->graph_ptr[g + 1];
    for (int64_t p = begin; p < end; p++)
      if ((rows && (rows[p] < begin || rows[p] >= end)) ||
          (columns && (columns[p] < begin || columns[p] >= end)))
        return NULL;
  }
  int64_t *ptr = malloc(bytes);
  return ptr ? memcpy(ptr, csr->graph_ptr, bytes) : NULL;
}

static void fill(dfgnn__parts *parts, int64_t *edges, const dfgnn_csr *csr,
                 const int64_t *rows, const int32_t *column) {
  int64_t at = 0;
  for (int64_t p = 0; p < csr->destinations; p++) {
    int64_t i = rows ? rows[p] : p;
    for (int64_t e = dfgnn__csr_offset(csr, i);
         e < dfgnn__csr_offset(csr, i + 1); e++) {
      if (edges)
        edges[at] = e;
      parts->indices[at++] = column[dfgnn__csr_index(csr, e)];
    }
    parts->offsets[p + 1] = at;
  }
}

dfgnn_status dfgnn_csr_permute(dfgnn_csr **permuted, int64_t *edges,
                               const dfgnn_csr *csr, const int64_t *rows,
                               const int64_t *columns) {
  int32_t *row = NULL, *column = NULL;
  dfgnn__parts parts = {0};
  dfgnn_csr whole;
  dfgnn_status status = dfgnn__csr_take(&whole, csr);
  csr = &whole;
  if (!permuted && !status)
    return dfgnn__fail(DFGNN_ERROR_INVALID, "permuted is NULL");
  if (status || (status = invert(&row, rows, csr->destinations, "rows")) ||
      (status = invert(&column, columns, csr->sources, "columns")))
    goto out;
  parts.destinations = csr->destinations;
  parts.sources = csr->sources;
  parts.edges = csr->edges;
  parts.offsets = calloc((size_t)csr->destinations + 2, sizeof *parts.offsets);
  parts.indices = malloc(((size_t)csr->edges + 1) * sizeof *parts.indices);
  if (!parts.offsets || !parts.indices)
    DFGNN_GO(dfgnn__fail(DFGNN_ERROR_MEMORY, "cannot permute %lld edges",
                         (long long)csr->edges));
  fill(&parts, edges, csr, rows, column);
  parts.graph_ptr = keep_batch(csr, rows, columns);
  parts.graphs = parts.graph_ptr ? csr->graphs : 0;
  status = dfgnn__csr_own(permuted, &parts, csr->name ? csr->name : "");
out:
  dfgnn__parts_free(&parts);
  free(column);
  free(row);
  return status;
}
