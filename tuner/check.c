/* check.c - compares a plan's results with the float64 reference's */
#include "tuner/tensors.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "kernels/common/accuracy.h"
#include "kernels/common/number.h"
#include "lib/plan.h"
#include "lib/signature.h"
#include "lib/views.h"
#include "tuner/mlp.h"
#include "tuner/program.h"

#define POISONED_WORKSPACE ((size_t)64 << 20)
#define SAMPLED_ROWS 4096
#define F16_OVERFLOW 65520.0             /* rounds to infinity */
#define SAMPLE_EDGES 10000000            /* above it rows are sampled */
#define SAMPLE_BYTES ((double)(1 << 30)) /* more of results: sampled, too */
#define RESULT_BYTES (sizeof(double) + 2 * sizeof(float))

/* ---- what is expected ---------------------------------------------------- */

static int64_t offset(const dfgnn_matrix *matrix, int64_t row) {
  return matrix->offsets64 ? ((const int64_t *)matrix->offsets)[row]
                           : ((const int32_t *)matrix->offsets)[row];
}

static int64_t degree(const dfgnn_matrix *matrix, int64_t row) {
  return offset(matrix, row + 1) - offset(matrix, row);
}

static dfgnn_status host_matrix(dfgnn_harness *h, dfgnn_matrix *matrix) {
  *matrix = *dfgnn__graph_matrix(h->graph);
  size_t offsets =
      (size_t)(matrix->destinations + 1) * (matrix->offsets64 ? 8 : 4);
  size_t indices = (size_t)matrix->edges * 4;
  if (!h->host_offsets) {
    h->host_offsets = malloc(offsets);
    h->host_indices = malloc(indices + 1);
    if (!h->host_offsets || !h->host_indices)
      return dfgnn__harness_memory(offsets + indices);
    dfgnn_status status =
        dfgnn__harness_copy(h, h->host_offsets, matrix->offsets, offsets);
    if (!status)
      status =
          dfgnn__harness_copy(h, h->host_indices, matrix->indices, indices);
    if (status)
      return status;
  }
  matrix->offsets = h->host_offsets;
  matrix->indices = (const int32_t *)h->host_indices;
  return DFGNN_OK;
}

/* The heaviest node, an empty one if there is one, the first and the last, and
 * random ones. */
static void sample(dfgnn_checked *nodes, const dfgnn_matrix *matrix) {
  int64_t n = matrix->destinations, heaviest = 0, empty = -1;
  for (int64_t i = 0; i < n; i++) {
    if (degree(matrix, i) > degree(matrix, heaviest))
      heaviest = i;
    if (empty < 0 && degree(matrix, i) == 0)
      empty = i;
  }
  nodes->index[0] = heaviest;
  nodes->index[1] = empty < 0 ? 0 : empty;
  nodes->index[2] = 0;
  nodes->index[3] = n - 1;
  for (int64_t k = 4; k < nodes->count; k++)
    nodes->index[k] = (int64_t)(dfgnn__mix((uint64_t)k) % (uint64_t)n);
}

/* Chooses the rows of a matrix that are checked. */
static dfgnn_status choose(dfgnn_checked *nodes, const dfgnn_harness *h,
                           const dfgnn_matrix *matrix) {
  int64_t n = matrix->destinations;
  double bytes = (double)RESULT_BYTES * (double)n *
                 (double)(h->problem.heads * h->problem.dim);
  nodes->count = n;
  if (n <= SAMPLED_ROWS ||
      (matrix->edges <= SAMPLE_EDGES && bytes <= SAMPLE_BYTES))
    return DFGNN_OK;
  nodes->count = SAMPLED_ROWS;
  nodes->index = malloc(SAMPLED_ROWS * sizeof *nodes->index);
  if (!nodes->index)
    return dfgnn__harness_memory(SAMPLED_ROWS * sizeof *nodes->index);
  sample(nodes, matrix);
  return DFGNN_OK;
}

static dfgnn_status count_edges(dfgnn_harness *h, const dfgnn_matrix *matrix) {
  size_t bytes = (size_t)(h->rows.count + 1) * sizeof *h->first_edge;
  h->first_edge = malloc(bytes);
  if (!h->first_edge)
    return dfgnn__harness_memory(bytes);
  h->first_edge[0] = 0;
  for (int64_t k = 0; k < h->rows.count; k++)
    h->first_edge[k + 1] =
        h->first_edge[k] + degree(matrix, h->rows.index ? h->rows.index[k] : k);
  return DFGNN_OK;
}

static int by_source(const dfgnn_tensor *tensor) {
  return !dfgnn__role_reads(tensor->role) && tensor->shape & DFGNN_DIM_M;
}

static dfgnn_status choose_nodes(dfgnn_harness *h, const dfgnn_matrix *matrix) {
  int columns = 0;
  dfgnn_status status = choose(&h->rows, h, matrix);
  if (!status)
    status = count_edges(h, matrix);
  for (int i = 0; i < h->count; i++)
    columns |= by_source(h->buffers[i].tensor);
  if (status || !columns)
    return status;
  h->transpose.request.kind = DFGNN_VIEW_TRANSPOSE;
  status = dfgnn__view_build(&h->transpose, matrix);
  if (status)
    return status;
  dfgnn_matrix transposed = dfgnn__transposed(matrix, &h->transpose);
  return choose(&h->columns, h, &transposed);
}

/* The checked nodes of an output.  An output without a node dimension counts as
 * that of one node; a sample of the rows cannot tell it, so none is checked. */
static dfgnn_checked checked(const dfgnn_harness *h, const dfgnn_buffer *b) {
  uint32_t shape = b->tensor->shape;
  if (shape & (DFGNN_DIM_N | DFGNN_DIM_E))
    return h->rows;
  if (shape & DFGNN_DIM_M)
    return h->columns;
  return (dfgnn_checked){NULL, h->rows.index ? 0 : 1};
}

/* How many numbers of an output belong to the k-th checked node; *first is
 * where they begin in b->expected. */
static int64_t node_numbers(const dfgnn_harness *h, const dfgnn_buffer *b,
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
  int64_t first = 0, last = 0, count = checked(h, b).count;
  if (count)
    last = node_numbers(h, b, count - 1, &first);
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

static double element(dfgnn_dtype dtype, const char *host, int64_t i) {
  return dtype == DFGNN_DTYPE_COUNT ? ((const int32_t *)host)[i]
                                    : dfgnn__number_at(dtype, host, i);
}

/* The gradient is added to what the memory held: the sum of both is expected,
 * with one more rounding. */
static void expect_given(dfgnn_harness *h, dfgnn_buffer *b) {
  double given;
  uint64_t bytes;
  memset(&bytes, DFGNN_GIVEN_BYTE, sizeof bytes);
  given = element(dfgnn__harness_type(h, b->tensor), (const char *)&bytes, 0);
  for (int64_t i = 0; i < numbers(h, b); i++) {
    b->expected[i] += given;
    b->fixed[i] += (float)(b->expected[i] * b->expected[i]);
  }
}

static dfgnn_status expect(dfgnn_harness *h, const dfgnn_matrix *matrix) {
  dfgnn_args host = h->check, complete;
  dfgnn_expected expected = {.bounds = 1};
  dfgnn_status status = choose_nodes(h, matrix);
  for (int i = 0; i < h->count && !status; i++) {
    dfgnn_buffer *b = &h->buffers[i];
    if (dfgnn__role_reads(b->tensor->role)) {
      *dfgnn__tensor_slot(b->tensor, &host) = b->host;
      continue;
    }
    size_t count = (size_t)numbers(h, b) + 1;
    b->expected = malloc(count * sizeof *b->expected);
    b->fixed = calloc(count, sizeof *b->fixed);
    b->summed = calloc(count, sizeof *b->summed);
    b->host = malloc(b->bytes + 1);
    if (!b->expected || !b->fixed || !b->summed || !b->host)
      return dfgnn__harness_memory(count * RESULT_BYTES + b->bytes);
    if (checked(h, b).count) {
      *dfgnn__tensor_slot(b->tensor, &expected.to) = b->expected;
      *dfgnn__tensor_slot(b->tensor, &expected.fixed) = b->fixed;
      *dfgnn__tensor_slot(b->tensor, &expected.summed) = b->summed;
    }
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
  for (int i = 0; i < h->count && !status; i++) {
    dfgnn_buffer *b = &h->buffers[i];
    if (dfgnn__role_reads(b->tensor->role)) {
      free(b->host); /* not needed again */
      b->host = NULL;
    } else {
      if (dfgnn__tensor_added_to(b->tensor, &h->problem))
        expect_given(h, b);
      set_rms(b, numbers(h, b));
    }
  }
  return status;
}

/* ---- the check ----------------------------------------------------------- */

static dfgnn_status fill(dfgnn_harness *h, char *to, size_t bytes,
                         const unsigned char *chunk) {
  dfgnn_status status = DFGNN_OK;
  for (size_t i = 0; i < bytes && !status; i += DFGNN_CHUNK)
    status = dfgnn__harness_copy(
        h, to + i, chunk, bytes - i < DFGNN_CHUNK ? bytes - i : DFGNN_CHUNK);
  return status;
}

static dfgnn_status check_guard(dfgnn_harness *h, const char *at,
                                const char *what, const char *side) {
  unsigned char found[DFGNN_GUARD];
  dfgnn_status status = dfgnn__harness_copy(h, found, at, DFGNN_GUARD);
  for (int i = 0; i < DFGNN_GUARD && !status; i++)
    if (found[i] != DFGNN_GUARD_BYTE)
      return dfgnn__fail(DFGNN_ERROR_WRONG,
                         "wrote %s %s: byte %d of the guard is 0x%02x", side,
                         what, i, found[i]);
  return status;
}

/* The number that is nearest to its bound, or the farthest beyond it. */
typedef struct worst {
  double share; /* error / bound */
  double error, bound, found, expected;
  int64_t node, number; /* which of the node's numbers */
  double relative;      /* the largest relative error of all numbers */
} worst;

static double in_range(dfgnn_dtype dtype, double x) {
  return dtype == DFGNN_F16 && fabs(x) >= F16_OVERFLOW ? copysign(INFINITY, x)
                                                       : x;
}

static double error_of(double found, double expected) {
  if (found == expected || (isnan(found) && isnan(expected)))
    return 0;
  double error = fabs(found - expected);
  return isnan(error) ? INFINITY : error;
}

/* A bound that is not finite, as inputs near the end of the range give, allows
 * no error. */
static double share_of(double error, double bound) {
  return error == 0                     ? 0
         : isfinite(bound) && bound > 0 ? error / bound
                                        : INFINITY;
}

/* The index in the tensor of number i of a node. */
static int64_t place(const dfgnn_harness *h, const dfgnn_buffer *b,
                     const dfgnn_matrix *matrix, int64_t node, int64_t i) {
  int64_t heads = h->problem.heads, dim = h->problem.dim;
  uint32_t shape = b->tensor->shape;
  if (shape & DFGNN_DIM_E)
    return offset(matrix, node) * dfgnn__tensor_width(b->tensor, &h->problem) +
           i;
  if (!(shape & (DFGNN_DIM_N | DFGNN_DIM_M)))
    return i;
  if (!(shape & DFGNN_DIM_D))
    return node * (shape & DFGNN_DIM_H ? heads : 1) + i;
  if (h->problem.layout == DFGNN_LAYOUT_NDH)
    return node * heads * dim + i % dim * heads + i / dim;
  return node * heads * dim + i;
}

static int64_t node_degree(const dfgnn_harness *h, const dfgnn_buffer *b,
                           const dfgnn_matrix *matrix, int64_t node) {
  if (b->tensor->shape & (DFGNN_DIM_N | DFGNN_DIM_E))
    return degree(matrix, node);
  if (!by_source(b->tensor))
    return matrix->edges;
  dfgnn_matrix transposed = dfgnn__transposed(matrix, &h->transpose);
  return degree(&transposed, node);
}

static void take(worst *all, const worst *mine) {
  double relative =
      mine->relative > all->relative ? mine->relative : all->relative;
  if (mine->share > all->share ||
      (mine->share == all->share && mine->node >= 0 && mine->node < all->node))
    *all = *mine;
  all->relative = relative;
}

static void look(worst *mine, const dfgnn_arithmetic *arithmetic,
                 const dfgnn_buffer *b, dfgnn_dtype dtype, double found,
                 int64_t at, int64_t terms, int64_t node, int64_t number) {
  double expected = in_range(dtype, b->expected[at]);
  double error = error_of(found, expected);
  if (error == 0)
    return;
  double bound = dfgnn__bound(arithmetic, dtype, expected, (double)b->fixed[at],
                              (double)b->summed[at], terms);
  double relative = error / (fabs(expected) + b->rms);
  double share = share_of(error, bound);
  if (isnan(relative) || relative > mine->relative)
    mine->relative = isnan(relative) ? INFINITY : relative;
  if (share > mine->share) {
    *mine = (worst){share,    error, bound,  found,
                    expected, node,  number, mine->relative};
  }
}

static worst compare(const dfgnn_harness *h, const dfgnn_buffer *b,
                     const dfgnn_matrix *matrix,
                     const dfgnn_arithmetic *arithmetic) {
  dfgnn_dtype dtype = dfgnn__harness_type(h, b->tensor);
  dfgnn_checked nodes = checked(h, b);
  worst all = {.node = -1};
#pragma omp parallel if (b->bytes > DFGNN_PARALLEL)
  {
    worst mine = {.node = -1};
#pragma omp for schedule(static)
    for (int64_t k = 0; k < nodes.count; k++) {
      int64_t node = nodes.index ? nodes.index[k] : k, first;
      int64_t count = node_numbers(h, b, k, &first);
      int64_t terms = node_degree(h, b, matrix, node);
      for (int64_t i = 0; i < count; i++)
        look(&mine, arithmetic, b, dtype,
             element(dtype, b->host, place(h, b, matrix, node, i)), first + i,
             terms, node, i);
    }
#pragma omp critical(dfgnn_harness_compare)
    take(&all, &mine);
  }
  return all;
}

static dfgnn_status check_output(dfgnn_harness *h, dfgnn_buffer *b,
                                 const dfgnn_matrix *matrix,
                                 const dfgnn_arithmetic *arithmetic) {
  const char *name = b->tensor->name;
  dfgnn_status status = check_guard(h, b->memory, name, "before");
  if (!status)
    status = check_guard(h, b->memory + DFGNN_GUARD + b->bytes, name, "beyond");
  if (!status)
    status = dfgnn__harness_copy(h, b->host, b->memory + DFGNN_GUARD, b->bytes);
  if (status)
    return status;
  worst w = compare(h, b, matrix, arithmetic);
  if (w.relative > h->accuracy.rel_error)
    h->accuracy.rel_error = w.relative;
  if (w.share > h->accuracy.of_bound)
    h->accuracy.of_bound = w.share;
  if (w.share <= 1)
    return DFGNN_OK;
  return dfgnn__fail(
      DFGNN_ERROR_WRONG,
      "%s of %s %lld (degree %lld), number %lld: found %.9g, expected %.9g, "
      "an error of %.2g where rounding allows %.2g",
      name, by_source(b->tensor) ? "column" : "row", (long long)w.node,
      (long long)node_degree(h, b, matrix, w.node), (long long)w.number,
      w.found, w.expected, w.error, w.bound);
}

/* The guards are written as well: what one plan overwrote must not be held
 * against the next. */
static dfgnn_status prepare_output(dfgnn_harness *h, const dfgnn_buffer *b) {
  if (dfgnn__role_reads(b->tensor->role))
    return DFGNN_OK;
  dfgnn_status status =
      dfgnn__harness_copy(h, b->memory, h->guard, DFGNN_GUARD);
  if (!status)
    status = dfgnn__harness_copy(h, b->memory + DFGNN_GUARD + b->bytes,
                                 h->guard, DFGNN_GUARD);
  if (status)
    return status;
  return fill(h, b->memory + DFGNN_GUARD, b->bytes,
              dfgnn__tensor_added_to(b->tensor, &h->problem) ? h->given
                                                             : h->poison);
}

/* Of a program, or of an MLP. */
static dfgnn_status check_program(double *rel_error, dfgnn_harness *h,
                                  const dfgnn_plan *plan) {
  void *workspace;
  dfgnn_status status = dfgnn__harness_workspace(&workspace, h, plan);
  if (!status)
    status =
        h->mlp ? dfgnn__mlp_harness_check(&h->accuracy, h->mlp, plan, workspace)
               : dfgnn__program_harness_check(&h->accuracy, h->program, plan,
                                              workspace);
  if (!status || status == DFGNN_ERROR_WRONG)
    *rel_error = h->accuracy.rel_error;
  return status;
}

dfgnn_status dfgnn__harness_check(double *rel_error, dfgnn_harness *h,
                                  const dfgnn_plan *plan) {
  dfgnn_matrix matrix;
  void *workspace;
  if (h->program || h->mlp)
    return check_program(rel_error, h, plan);
  dfgnn_arithmetic arithmetic = dfgnn__arithmetic(
      &h->problem, (plan->inner ? plan->inner : plan)->variant->family);
  size_t bytes = dfgnn_plan_workspace(plan);
  dfgnn_status status = host_matrix(h, &matrix);
  h->accuracy = (dfgnn_accuracy){0, 0};
  if (!status && !h->prepared) {
    h->expected = expect(h, &matrix);
    h->prepared = 1;
  }
  if (!status && h->expected)
    status = dfgnn__fail_prefix(h->expected, "no reference");
  if (!status)
    status = dfgnn__harness_workspace(&workspace, h, plan);
  if (!status)
    status = fill(h, workspace,
                  bytes < POISONED_WORKSPACE ? bytes : POISONED_WORKSPACE,
                  h->poison);
  if (!status)
    status = dfgnn__harness_copy(h, (char *)workspace + bytes, h->guard,
                                 DFGNN_GUARD);
  for (int i = 0; i < h->count && !status; i++)
    status = prepare_output(h, &h->buffers[i]);
  if (!status)
    status = dfgnn_execute(plan, &h->check, workspace, NULL);
  if (!status)
    status = h->ctx->backend->synchronize(h->ctx->device, NULL);
  if (!status)
    status =
        check_guard(h, (char *)workspace + bytes, "the workspace", "beyond");
  for (int i = 0; i < h->count && !status; i++)
    if (!dfgnn__role_reads(h->buffers[i].tensor->role))
      status = check_output(h, &h->buffers[i], &matrix, &arithmetic);
  if (!status || status == DFGNN_ERROR_WRONG)
    *rel_error = h->accuracy.rel_error;
  return status;
}

dfgnn_accuracy dfgnn__harness_accuracy(const dfgnn_harness *h) {
  return h->accuracy;
}
