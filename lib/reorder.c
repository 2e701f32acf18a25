/* reorder.c - dfgnn_graph_reorder: a graph whose nodes are numbered anew */
#include "lib/reorder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph/io/io.h"
#include "graph/reorder/reorder.h"
#include "lib/base/error.h"
#include "lib/handle.h"
#include "lib/signature.h"

/* ---- arrays -------------------------------------------------------------- */

static dfgnn_status to_device(void **memory, dfgnn_context *ctx,
                              const void *host, size_t bytes) {
  dfgnn_status status = ctx->backend->allocate(ctx->device, memory, bytes);
  if (!status)
    status = ctx->backend->copy(ctx->device, *memory, host, bytes);
  return status;
}

/* Copies numbers to device memory, as int32 unless wide. */
static dfgnn_status upload(void **memory, size_t *bytes, dfgnn_context *ctx,
                           const int64_t *numbers, int64_t count, int wide) {
  if (wide) {
    *bytes += (size_t)count * sizeof *numbers;
    return to_device(memory, ctx, numbers, (size_t)count * sizeof *numbers);
  }
  size_t size = (size_t)count * sizeof(int32_t);
  int32_t *narrow = malloc(size + 1);
  if (!narrow)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "cannot hold %lld numbers",
                       (long long)count);
  for (int64_t i = 0; i < count; i++)
    narrow[i] = (int32_t)numbers[i];
  dfgnn_status status = to_device(memory, ctx, narrow, size);
  *bytes += size;
  free(narrow);
  return status;
}

/* Makes *host csr with its arrays in host memory, when the work that is on the
 * stream has run; the caller frees the copies of arrays that are on a device.
 */
static dfgnn_status fetch(dfgnn_csr *host, void *copies[2], dfgnn_context *ctx,
                          const dfgnn_csr *csr, void *stream) {
  dfgnn_csr whole = DFGNN_CSR_INIT;
  dfgnn_status status = dfgnn__take(&whole, csr, &dfgnn__csr_kind);
  if (status)
    return status;
  csr = &whole;
  *host = whole;
  if (csr->refilled)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "csr.refilled is 1, but a reordered graph is a copy");
  if (!csr->on_device)
    return dfgnn__csr_check(csr);
  if (csr->destinations < 0 || csr->edges < 0 || !csr->offsets)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "csr.destinations, csr.edges or csr.offsets is wrong");
  const void *from[2] = {csr->offsets, csr->indices};
  size_t bytes[2] = {((size_t)csr->destinations + 1) *
                         (csr->offset_type == DFGNN_INDEX_I64 ? 8 : 4),
                     (size_t)csr->edges *
                         (csr->index_type == DFGNN_INDEX_I64 ? 8 : 4)};
  if (ctx->backend->follow &&
      (status = ctx->backend->follow(ctx->device, stream)))
    return status;
  for (int k = 0; k < 2; k++) {
    copies[k] = malloc(bytes[k] + 1);
    status = copies[k] ? DFGNN_OK
                       : dfgnn__fail(DFGNN_ERROR_MEMORY,
                                     "cannot copy a matrix of %lld edges",
                                     (long long)csr->edges);
    if (!status && bytes[k])
      status = ctx->backend->copy(ctx->device, copies[k], from[k], bytes[k]);
    if (status)
      return status;
  }
  host->offsets = copies[0];
  host->indices = copies[1];
  host->on_device = 0;
  return dfgnn__csr_check(host);
}

static int64_t *copy_order(const int64_t *order, int64_t count) {
  size_t bytes = (size_t)count * sizeof *order;
  int64_t *copy = malloc(bytes + 1);
  return copy && order ? memcpy(copy, order, bytes) : copy;
}

/* ---- making one ---------------------------------------------------------- */

/* Fails unless each of 0 .. count - 1 comes once; dfgnn_csr_permute checks only
 * an order that it applies. */
static dfgnn_status check_columns(const int64_t *columns, int64_t count,
                                  const char *name) {
  char *seen = calloc((size_t)count + 1, 1);
  int64_t p = 0;
  if (!seen)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  while (p < count && columns[p] >= 0 && columns[p] < count &&
         !seen[columns[p]]++)
    p++;
  free(seen);
  if (p == count)
    return DFGNN_OK;
  return dfgnn__fail(DFGNN_ERROR_INVALID,
                     "%s[%lld] is %lld, expected each of 0..%lld once", name,
                     (long long)p, (long long)columns[p], (long long)count - 1);
}

static dfgnn_status find_order(dfgnn_reordered *r, const dfgnn_csr *csr,
                               const dfgnn_reordering *how) {
  int square = csr->destinations == csr->sources;
  const int64_t *columns = how->columns;
  if (how->rows && !columns && square)
    columns = how->rows;
  if (columns && !how->rows)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "how.columns is set, but how.rows is NULL");
  if (how->rows && !columns && !how->keep_columns)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "how.columns is NULL; a matrix of %lld x %lld needs "
                       "both orders, or how.keep_columns",
                       (long long)csr->destinations, (long long)csr->sources);
  r->rows = copy_order(how->rows, csr->destinations);
  if (columns || !how->rows)
    r->columns = copy_order(columns, csr->sources);
  if (!r->rows || (!r->columns && (columns || !how->rows)))
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  if (!how->rows)
    return dfgnn_csr_order(r->rows, r->columns, csr, how->order);
  return columns ? check_columns(columns, csr->sources,
                                 how->columns ? "how.columns" : "how.rows")
                 : DFGNN_OK;
}

/* Sets the locality of a graph whose columns keep their numbers, as if they had
 * the new ones: what counts is the order in which columns are gathered.  The
 * samples are those of lib/signature.h. */
static dfgnn_status set_locality(dfgnn_signature *signature,
                                 const dfgnn_csr *csr, const int64_t *rows,
                                 const int64_t *columns) {
  int64_t n = csr->destinations, seen = 0, near = 0;
  int64_t samples = n < DFGNN_LOCALITY_ROWS ? n : DFGNN_LOCALITY_ROWS;
  int64_t *position = malloc(((size_t)csr->sources + 1) * sizeof *position);
  if (!position)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  for (int64_t j = 0; j < csr->sources; j++)
    position[columns[j]] = j;
  for (int64_t k = 0; k < samples; k++) {
    int64_t p = k * n / samples, begin = dfgnn__csr_offset(csr, rows[p]);
    int64_t degree = dfgnn__csr_offset(csr, rows[p] + 1) - begin;
    int64_t centre = (int64_t)((double)p * (double)csr->sources / (double)n);
    for (int which = 0; which < 2 && degree; which++) {
      int64_t e = begin + (which ? degree / 2 : 0);
      int64_t j = position[dfgnn__csr_index(csr, e)];
      near += llabs(centre - j) <= DFGNN_LOCALITY_SPAN;
      seen++;
    }
  }
  signature->locality = seen ? (double)near / (double)seen : 1;
  free(position);
  return DFGNN_OK;
}

/* Makes the reordered graph, with arrays of its own. */
static dfgnn_status make_graph(dfgnn_graph **graph, dfgnn_context *ctx,
                               const dfgnn_csr *csr, const dfgnn_reordered *r,
                               int keep_columns, const char *label) {
  dfgnn_csr *permuted = NULL, csr_on_device;
  void *offsets = NULL, *indices = NULL, *order = NULL;
  size_t owned = 0;
  int64_t *edges = malloc(((size_t)csr->edges + 1) * sizeof *edges);
  dfgnn_status status =
      edges ? dfgnn_csr_permute(&permuted, edges, csr, r->rows,
                                keep_columns ? NULL : r->columns)
            : dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  if (status)
    goto out;
  size_t rows = (size_t)csr->destinations + 1, width = sizeof(int32_t);
  if (permuted->offset_type == DFGNN_INDEX_I64)
    width = sizeof(int64_t);
  owned = rows * width + (size_t)csr->edges * sizeof(int32_t);
  csr_on_device = *permuted;
  csr_on_device.on_device = 1;
  csr_on_device.family = csr->family;
  csr_on_device.name = label;
  if ((status = to_device(&offsets, ctx, permuted->offsets, rows * width)) ||
      (status = to_device(&indices, ctx, permuted->indices,
                          (size_t)csr->edges * sizeof(int32_t))) ||
      (status = upload(&order, &owned, ctx, edges, csr->edges,
                       csr->edges > INT32_MAX)))
    goto out;
  csr_on_device.offsets = offsets;
  csr_on_device.indices = indices;
  if ((status = dfgnn_graph_create_csr(graph, ctx, &csr_on_device, NULL)))
    goto out;
  (*graph)->owned_offsets = offsets;
  (*graph)->owned_indices = indices;
  (*graph)->edge_order = order;
  (*graph)->owned_bytes += owned;
  offsets = indices = order = NULL;
  if (keep_columns && r->columns)
    status = set_locality(&(*graph)->signature, csr, r->rows, r->columns);
out:
  if (offsets)
    ctx->backend->release(ctx->device, offsets);
  if (indices)
    ctx->backend->release(ctx->device, indices);
  if (order)
    ctx->backend->release(ctx->device, order);
  dfgnn_csr_free(permuted);
  free(edges);
  return status;
}

/* Makes a graph that stands for r->inner, with features in the old order. */
static dfgnn_status wrap(dfgnn_graph **graph, dfgnn_reordered *r) {
  dfgnn_context *ctx = r->inner->ctx;
  const dfgnn_matrix *m = &r->inner->matrix;
  dfgnn_status status = dfgnn__graph_know(r->inner);
  if (!status)
    status =
        upload(&r->device_rows, &r->bytes, ctx, r->rows, m->destinations, 0);
  if (!status && r->columns)
    status =
        upload(&r->device_columns, &r->bytes, ctx, r->columns, m->sources, 0);
  if (status)
    return status;
  status = dfgnn__graph_start(graph, ctx, r->inner->family, r->inner->name);
  if (!status) {
    (*graph)->matrix = *m;
    dfgnn__graph_set_known(*graph, &r->inner->signature);
  }
  return status;
}

static dfgnn_status take_how(dfgnn_reordering *how,
                             const dfgnn_reordering *given) {
  static const dfgnn_descriptor_kind kind =
      DFGNN_DESCRIPTOR("how", dfgnn_reordering, "DFGNN_REORDERING_INIT");
  dfgnn_status status = dfgnn__take(how, given, &kind);
  if (status)
    return status;
  if (!how->rows && !dfgnn_name(DFGNN_NAMES_ORDER, how->order))
    return dfgnn__fail(DFGNN_ERROR_INVALID, "how.order is %d, expected 0..%d",
                       (int)how->order, DFGNN_ORDER_COUNT - 1);
  return DFGNN_OK;
}

dfgnn_status dfgnn_graph_create_reordered(dfgnn_graph **graph,
                                          dfgnn_context *ctx,
                                          const dfgnn_csr *csr,
                                          const dfgnn_reordering *given,
                                          void *stream) {
  dfgnn_csr host;
  dfgnn_reordering whole = DFGNN_REORDERING_INIT;
  const dfgnn_reordering *how = &whole;
  void *copies[2] = {NULL, NULL};
  dfgnn_graph *made = NULL, *outer = NULL;
  char label[256];
  if (!graph)
    return dfgnn__fail(DFGNN_ERROR_INVALID, "graph is NULL");
  dfgnn_status status = dfgnn__check_context(ctx);
  if (!status)
    status = take_how(&whole, given);
  dfgnn_reordered *r = status ? NULL : calloc(1, sizeof *r);
  if (!status && !r)
    status = dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  if (status || (status = fetch(&host, copies, ctx, csr, stream)) ||
      (status = find_order(r, &host, how)))
    goto out;
  snprintf(label, sizeof label, "%s%s%s", host.name ? host.name : "",
           host.name ? "+" : "",
           how->rows ? "reordered" : dfgnn_name(DFGNN_NAMES_ORDER, how->order));
  status = make_graph(&made, ctx, &host, r, how->keep_columns,
                      host.name ? label : NULL);
  if (how->keep_columns) {
    free(r->columns);
    r->columns = NULL;
  }
  if (!status && how->inside) {
    r->inner = made;
    status = wrap(&outer, r);
    made = outer;
  }
out:
  free(copies[0]);
  free(copies[1]);
  if (made) {
    made->reordered = r;
    if (status)
      dfgnn_graph_destroy(made);
    else
      *graph = made;
  } else {
    if (r)
      dfgnn_graph_destroy(r->inner);
    dfgnn__reordered_free(ctx, r);
  }
  return status;
}
