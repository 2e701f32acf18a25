/* check.c - compares a plan's results with the float64 reference's */
#include "tuner/tensors.h"

#include <math.h>
#include <string.h>

#include "kernels/common/accuracy.h"
#include "lib/base/error.h"
#include "lib/plan.h"
#include "tuner/program.h"

#define NEAR_BYTES ((size_t)1 << 17) /* copied before another copy begins */
#define F16_OVERFLOW 65520.0         /* rounds to infinity */

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
  const dfgnn_strides *s = &h->strides;
  if (dfgnn__is_strided(h, b->tensor))
    return node * s->node + i / dim * s->head + i % dim * s->feature;
  if (shape & DFGNN_DIM_E) {
    const int64_t width = dfgnn__tensor_width(b->tensor, &h->problem);
    const int64_t edge = dfgnn__offset_at(matrix, node) + i / width;
    return dfgnn__edge_row(h, b->tensor, edge) * width + i % width;
  }
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
    return dfgnn__edge_count(matrix, node);
  if (!dfgnn__by_source(b->tensor))
    return matrix->edges;
  dfgnn_matrix transposed = dfgnn__transposed(matrix, &h->transpose);
  return dfgnn__edge_count(&transposed, node);
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
  dfgnn_checked nodes = dfgnn__checked_nodes(h, b);
  worst all = {.node = -1};
#pragma omp parallel if (b->data.bytes > DFGNN_PARALLEL)
  {
    worst mine = {.node = -1};
#pragma omp for schedule(static)
    for (int64_t k = 0; k < nodes.count; k++) {
      int64_t node = nodes.index ? nodes.index[k] : k, first;
      int64_t count = dfgnn__checked_numbers(h, b, k, &first);
      int64_t terms = node_degree(h, b, matrix, node);
      for (int64_t i = 0; i < count; i++)
        look(&mine, arithmetic, b, dtype,
             dfgnn__harness_number(dtype, b->data.host,
                                   place(h, b, matrix, node, i)),
             first + i, terms, node, i);
    }
#pragma omp critical(dfgnn_harness_compare)
    take(&all, &mine);
  }
  return all;
}

/* Copies an output to the host, or the rows of it that are checked, and what
 * lies between those that are near. */
static dfgnn_status copy_checked(dfgnn_harness *h, const dfgnn_buffer *b,
                                 const dfgnn_matrix *matrix) {
  const char *data = dfgnn__guarded_data(&b->data);
  const dfgnn_checked nodes = dfgnn__checked_nodes(h, b);
  const size_t size = dfgnn__tensor_element_size(b->tensor, &h->problem);
  dfgnn_status status = DFGNN_OK;
  const int parts = nodes.index && !dfgnn__is_listed(h, b->tensor);
  size_t from = 0, to = parts ? 0 : b->data.bytes;
  for (int64_t k = 0; parts && k < nodes.count && !status; k++) {
    int64_t first;
    const size_t numbers = (size_t)dfgnn__checked_numbers(h, b, k, &first);
    const size_t at = (size_t)place(h, b, matrix, nodes.index[k], 0) * size;
    if (at > to + NEAR_BYTES) {
      status = dfgnn__harness_copy(h->ctx, b->data.host + from, data + from,
                                   to - from);
      from = at;
    }
    to = at + numbers * size;
  }
  return status ? status
                : dfgnn__harness_copy(h->ctx, b->data.host + from, data + from,
                                      to - from);
}

/* An output is filled with this byte before a call. */
static int poison_of(const dfgnn_harness *h, const dfgnn_buffer *b) {
  return dfgnn__tensor_added_to(b->tensor, &h->problem) ? DFGNN_GIVEN_BYTE
                                                        : DFGNN_POISON_BYTE;
}

/* Looks between the features of an output on the host, which are lost; all
 * nodes are checked. */
static dfgnn_status check_gaps(const dfgnn_harness *h, const dfgnn_buffer *b,
                               const dfgnn_matrix *matrix) {
  const size_t size = dfgnn__tensor_element_size(b->tensor, &h->problem);
  const int64_t nodes = dfgnn__checked_nodes(h, b).count;
  const int byte = poison_of(h, b);
  for (int64_t k = 0; k < nodes; k++) {
    int64_t first, count = dfgnn__checked_numbers(h, b, k, &first);
    for (int64_t i = 0; i < count; i++)
      memset(b->data.host + (size_t)place(h, b, matrix, k, i) * size, byte,
             size);
  }
  for (size_t i = 0; i < b->data.bytes; i++)
    if ((unsigned char)b->data.host[i] != byte)
      return dfgnn__fail(DFGNN_ERROR_WRONG,
                         "wrote byte %zu of %s, which is between features", i,
                         b->tensor->name);
  return DFGNN_OK;
}

/* masked: the gradients of rows that are not checked were zeros, so that totals
 * can be compared, and nothing else. */
static dfgnn_status check_output(dfgnn_harness *h, dfgnn_buffer *b,
                                 const dfgnn_matrix *matrix,
                                 const dfgnn_arithmetic *arithmetic,
                                 int masked) {
  const char *name = b->tensor->name;
  dfgnn_status status = dfgnn__guarded_check(&b->data, h->ctx);
  if (status || (h->masks > 0 && dfgnn__is_total(b) != masked))
    return status;
  DFGNN_TRY(copy_checked(h, b, matrix));
  worst w = compare(h, b, matrix, arithmetic);
  if (w.relative > h->accuracy.rel_error)
    h->accuracy.rel_error = w.relative;
  if (w.share > h->accuracy.of_bound)
    h->accuracy.of_bound = w.share;
  if (w.share <= 1)
    return dfgnn__is_strided(h, b->tensor) && !dfgnn__checked_nodes(h, b).index
               ? check_gaps(h, b, matrix)
               : DFGNN_OK;
  return dfgnn__fail(
      DFGNN_ERROR_WRONG,
      "%s of %s %lld (degree %lld), number %lld: found %.9g, expected %.9g, "
      "an error of %.2g where rounding allows %.2g",
      name, dfgnn__by_source(b->tensor) ? "column" : "row", (long long)w.node,
      (long long)node_degree(h, b, matrix, w.node), (long long)w.number,
      w.found, w.expected, w.error, w.bound);
}

/* Runs the plan on poisoned memory, and looks at what is beyond it. */
static dfgnn_status run(dfgnn_harness *h, const dfgnn_plan *plan,
                        void *workspace, const dfgnn_args *args) {
  dfgnn_status status = DFGNN_OK;
  for (int i = 0; i < h->count && !status; i++) {
    const dfgnn_buffer *b = &h->buffers[i];
    if (!dfgnn__role_reads(b->tensor->role))
      status = dfgnn__guarded_poison(&b->data, h->ctx, poison_of(h, b));
  }
  return status ? status : dfgnn__guarded_run(h->ctx, plan, workspace, args);
}

static dfgnn_status check_program(double *rel_error, dfgnn_harness *h,
                                  const dfgnn_plan *plan) {
  void *workspace;
  dfgnn_status status = dfgnn__harness_workspace(&workspace, h, plan);
  if (!status)
    status =
        dfgnn__program_harness_check(&h->accuracy, h->program, plan, workspace);
  if (!status || status == DFGNN_ERROR_WRONG)
    *rel_error = h->accuracy.rel_error;
  return status;
}

dfgnn_status dfgnn__harness_check(double *rel_error, dfgnn_harness *h,
                                  const dfgnn_plan *plan) {
  const dfgnn_matrix *matrix = &h->host.matrix;
  dfgnn_status status = DFGNN_OK;
  void *workspace;
  if (h->program)
    return check_program(rel_error, h, plan);
  if (h->pool)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "the host has no copy of these inputs to compare with");
  dfgnn_arithmetic arithmetic =
      dfgnn__arithmetic(&h->problem, plan->variant->family);
  h->accuracy = (dfgnn_accuracy){0, 0};
  if (!h->host.offsets)
    status = dfgnn__host_graph_read(&h->host, h->ctx, h->graph, 0);
  if (h->problem.edge_list)
    h->host.matrix.edge_order = dfgnn__graph_matrix(h->graph)->edge_order;
  if (!status && !h->prepared) {
    h->expected = dfgnn__harness_expect(h, matrix);
    h->prepared = 1;
  }
  if (!status && h->expected)
    status = dfgnn__fail_prefix(h->expected, "no reference");
  if (!status)
    status = dfgnn__harness_workspace(&workspace, h, plan);
  for (int masked = 0; masked <= (h->masks > 0) && !status; masked++) {
    status = run(h, plan, workspace, masked ? &h->masked : &h->check);
    for (int i = 0; i < h->count && !status; i++)
      if (!dfgnn__role_reads(h->buffers[i].tensor->role))
        status = check_output(h, &h->buffers[i], matrix, &arithmetic, masked);
  }
  if (!status || status == DFGNN_ERROR_WRONG)
    *rel_error = h->accuracy.rel_error;
  return status;
}

dfgnn_accuracy dfgnn__harness_accuracy(const dfgnn_harness *h) {
  return h->accuracy;
}
