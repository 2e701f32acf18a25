/* expect.c - what the float64 reference expects of a plan, and of which nodes
 */
#include "tuner/tensors.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/common/number.h"
#include "lib/base/error.h"
#include "lib/views.h"
#include "tuner/sample.h"

#define RESULT_BYTES (sizeof(double) + 2 * sizeof(float))
/* Rows are sampled above these rows and either of the others, */
#define WHOLE_ROWS 4096
#define WHOLE_EDGES 10000000
#define WHOLE_BYTES ((double)(1 << 30)) /* of results */
/* and by a harness that spares time above this work, which takes a core .1 to 1
 * s, for each second that it has. */
#define SECOND_WORK ((double)(1 << 24))
#define LEAST_WORK ((double)(1 << 22))
#define LEAST_SHARE 256 /* of all work, that a sample has at least */

/* The work of the reference for an edge or a node: about as many numbers as it
 * reads. */
static double work_of(const dfgnn_problem *problem) {
  const double features = problem->edge_dim > 0 ? (double)problem->edge_dim : 0;
  return (double)(problem->heads * problem->dim) * (1 + features);
}

/* Chooses the rows of a matrix that are checked. */
static dfgnn_status choose(dfgnn_checked *nodes, const dfgnn_harness *h,
                           const dfgnn_matrix *matrix) {
  const double work = work_of(&h->problem), n = (double)matrix->destinations;
  const double all = (n + (double)matrix->edges) * work;
  const double spare = h->spare_s * SECOND_WORK;
  const double part = fmax(fmax(spare, LEAST_WORK), all / LEAST_SHARE);
  const double bytes =
      RESULT_BYTES * n * (double)(h->problem.heads * h->problem.dim);
  const int whole = matrix->destinations <= WHOLE_ROWS ||
                    (matrix->edges <= WHOLE_EDGES && bytes <= WHOLE_BYTES);
  const double most = whole && isinf(h->spare_s) ? INFINITY : part / work;
  return dfgnn__sample_nodes(nodes, matrix, most)
             ? DFGNN_OK
             : dfgnn__harness_memory((size_t)matrix->destinations);
}

static dfgnn_status count_edges(dfgnn_harness *h, const dfgnn_matrix *matrix) {
  size_t bytes = (size_t)(h->rows.count + 1) * sizeof *h->first_edge;
  h->first_edge = malloc(bytes);
  if (!h->first_edge)
    return dfgnn__harness_memory(bytes);
  h->first_edge[0] = 0;
  for (int64_t k = 0; k < h->rows.count; k++)
    h->first_edge[k + 1] =
        h->first_edge[k] +
        dfgnn__edge_count(matrix, h->rows.index ? h->rows.index[k] : k);
  return DFGNN_OK;
}

int dfgnn__by_source(const dfgnn_tensor *tensor) {
  return !dfgnn__role_reads(tensor->role) && tensor->shape & DFGNN_DIM_M;
}

static dfgnn_status choose_nodes(dfgnn_harness *h, const dfgnn_matrix *matrix) {
  int columns = 0;
  dfgnn_status status = choose(&h->rows, h, matrix);
  if (!status)
    status = count_edges(h, matrix);
  for (int i = 0; i < h->count; i++)
    columns |= dfgnn__by_source(h->buffers[i].tensor);
  if (status || !columns)
    return status;
  h->transpose.request.kind = DFGNN_VIEW_TRANSPOSE;
  DFGNN_TRY(dfgnn__view_build(&h->transpose, matrix));
  dfgnn_matrix transposed = dfgnn__transposed(matrix, &h->transpose);
  return choose(&h->columns, h, &transposed);
}

int dfgnn__is_total(const dfgnn_buffer *b) {
  return !dfgnn__role_reads(b->tensor->role) &&
         !(b->tensor->shape & (DFGNN_DIM_N | DFGNN_DIM_M | DFGNN_DIM_E));
}

dfgnn_checked dfgnn__checked_nodes(const dfgnn_harness *h,
                                   const dfgnn_buffer *b) {
  uint32_t shape = b->tensor->shape;
  if (shape & (DFGNN_DIM_N | DFGNN_DIM_E))
    return h->rows;
  if (shape & DFGNN_DIM_M)
    return h->columns;
  return (dfgnn_checked){NULL, 1};
}

int64_t dfgnn__checked_numbers(const dfgnn_harness *h, const dfgnn_buffer *b,
                               int64_t k, int64_t *first) {
  uint32_t shape = b->tensor->shape;
  int64_t width = dfgnn__tensor_width(b->tensor, &h->problem);
  if (shape & DFGNN_DIM_E) {
    *first = h->first_edge[k] * width;
    return (h->first_edge[k + 1] - h->first_edge[k]) * width;
  }
  *first = k * width;
  return width;
}

/* How many numbers of an output are checked. */
static int64_t numbers(const dfgnn_harness *h, const dfgnn_buffer *b) {
  int64_t first = 0, last = 0, count = dfgnn__checked_nodes(h, b).count;
  if (count)
    last = dfgnn__checked_numbers(h, b, count - 1, &first);
  return first + last;
}

static void set_rms(dfgnn_buffer *b, int64_t count) {
  double sum = 0;
  int64_t finite = 0;
  for (int64_t i = 0; i < count; i++)
    if (isfinite(b->expected[i])) {
      sum += b->expected[i] * b->expected[i];
      finite++;
    }
  b->rms = finite ? sqrt(sum / (double)finite) : 0;
}

double dfgnn__harness_number(dfgnn_dtype dtype, const char *host, int64_t i) {
  return dtype == DFGNN_DTYPE_COUNT ? ((const int32_t *)host)[i]
                                    : dfgnn__number_at(dtype, host, i);
}

/* The gradient is added to what the memory held: the sum of both is expected,
 * with one more rounding. */
static void expect_given(dfgnn_harness *h, dfgnn_buffer *b) {
  uint64_t bytes;
  memset(&bytes, DFGNN_GIVEN_BYTE, sizeof bytes);
  double given = dfgnn__harness_number(dfgnn__harness_type(h, b->tensor),
                                       (const char *)&bytes, 0);
  for (int64_t i = 0; i < numbers(h, b); i++) {
    b->expected[i] += given;
    b->fixed[i] += (float)(b->expected[i] * b->expected[i]);
  }
}

/* Copies an input to the device with zeros in the rows that are not checked. */
static dfgnn_status mask(dfgnn_harness *h, const dfgnn_buffer *b) {
  const dfgnn_matrix *matrix = dfgnn__graph_matrix(h->graph);
  const size_t bytes = b->data.bytes,
               row = bytes / (size_t)matrix->destinations;
  char *host = calloc(bytes + 1, 1);
  void **memory = &h->mask[h->masks];
  if (!host)
    return dfgnn__harness_memory(bytes);
  for (int64_t k = 0; k < h->rows.count; k++) {
    const size_t at = (size_t)h->rows.index[k] * row;
    memcpy(host + at, b->data.host + at, row);
  }
  dfgnn_status status =
      h->ctx->backend->allocate(h->ctx->device, memory, bytes);
  h->masks += !status;
  if (!status)
    status = dfgnn__harness_copy(h->ctx, *memory, host, bytes);
  *dfgnn__tensor_slot(b->tensor, &h->masked) = *memory;
  free(host);
  return status;
}

/* Totals of all edges would need the whole reference.  Gradients are linear in
 * those of the outputs: where these are zeros in all other rows, totals are the
 * sums over the sample, which the reference gives. */
static dfgnn_status mask_gradients(dfgnn_harness *h) {
  dfgnn_status status = DFGNN_OK;
  int totals = 0;
  for (int i = 0; i < h->count; i++)
    totals |= dfgnn__is_total(&h->buffers[i]);
  if (!h->rows.index || !totals)
    return DFGNN_OK;
  h->masked = h->check;
  for (int i = 0; i < h->count && !status; i++) {
    const dfgnn_buffer *b = &h->buffers[i];
    if (dfgnn__role_reads(b->tensor->role) && b->tensor->shape & DFGNN_DIM_N &&
        !strncmp(b->tensor->name, "grad_", strlen("grad_")))
      status = mask(h, b);
  }
  return status;
}

/* Puts the rows of an input by edge into the order of the graph's edges, as the
 * reference reads them. */
static dfgnn_status put_in_order(dfgnn_harness *h, dfgnn_buffer *b) {
  const size_t row = b->data.bytes / (size_t)h->host.matrix.edges;
  char *rows = malloc(b->data.bytes + 1);
  if (!rows)
    return dfgnn__harness_memory(b->data.bytes);
  for (int64_t e = 0; e < h->host.matrix.edges; e++)
    memcpy(rows + (size_t)e * row,
           b->data.host + (size_t)dfgnn__edge_row(h, b->tensor, e) * row, row);
  free(b->data.host);
  b->data.host = rows;
  return DFGNN_OK;
}

dfgnn_status dfgnn__harness_expect(dfgnn_harness *h,
                                   const dfgnn_matrix *matrix) {
  dfgnn_args host = h->check, complete;
  dfgnn_expected expected = {.bounds = 1};
  dfgnn_status status = choose_nodes(h, matrix);
  for (int i = 0; i < h->count && !status; i++) {
    dfgnn_buffer *b = &h->buffers[i];
    if (dfgnn__role_reads(b->tensor->role)) {
      if (dfgnn__is_listed(h, b->tensor) && h->host.matrix.edges)
        status = put_in_order(h, b);
      *dfgnn__tensor_slot(b->tensor, &host) = b->data.host;
      continue;
    }
    size_t count = (size_t)numbers(h, b) + 1;
    b->expected = malloc(count * sizeof *b->expected);
    b->fixed = calloc(count, sizeof *b->fixed);
    b->summed = calloc(count, sizeof *b->summed);
    b->data.host = malloc(b->data.bytes + 1);
    if (!b->expected || !b->fixed || !b->summed || !b->data.host)
      return dfgnn__harness_memory(count * RESULT_BYTES + b->data.bytes);
    *dfgnn__tensor_slot(b->tensor, &expected.to) = b->expected;
    *dfgnn__tensor_slot(b->tensor, &expected.fixed) = b->fixed;
    *dfgnn__tensor_slot(b->tensor, &expected.summed) = b->summed;
  }
  if (!status)
    status = dfgnn__args_complete(&complete, &host, &h->problem);
  if (status)
    return status;
  expected.rows = h->rows.index;
  expected.row_count = h->rows.count;
  expected.columns = h->columns.index;
  expected.column_count = h->columns.count;
  if (h->transpose.bytes)
    expected.transpose = &h->transpose;
  status = h->op->reference(&h->problem, matrix, &complete, &expected);
  if (!status)
    status = mask_gradients(h);
  for (int i = 0; i < h->count && !status; i++) {
    dfgnn_buffer *b = &h->buffers[i];
    if (dfgnn__role_reads(b->tensor->role)) {
      free(b->data.host); /* not needed again */
      b->data.host = NULL;
    } else {
      if (dfgnn__tensor_added_to(b->tensor, &h->problem))
        expect_given(h, b);
      set_rms(b, numbers(h, b));
    }
  }
  return status;
}
