/* projection.c - the matrix that projects edge features on a CPU, and the
 * gradients of features, matrix and offset */
#include <string.h>

#include "kernels/common/number.h"
#include "kernels/sums/cpu/sums.h"

static int backward(const dfgnn_problem *problem) {
  return problem->pass == DFGNN_PASS_BACKWARD;
}

static int64_t padded(int64_t count) {
  return (count + DFGNN_CPU_PAD - 1) / DFGNN_CPU_PAD * DFGNN_CPU_PAD;
}

/* The gradients of matrix and offset are summed by blocks of edges.  The number
 * of blocks does not depend on that of threads, so that results do not. */
enum { BLOCK_EDGES = 2048, MOST_BLOCKS = 16 };

static int64_t count_blocks(int64_t edges) {
  int64_t blocks = (edges + BLOCK_EDGES - 1) / BLOCK_EDGES;
  return blocks < 1 ? 1 : blocks > MOST_BLOCKS ? MOST_BLOCKS : blocks;
}

static size_t place(size_t *next, int64_t count, size_t size) {
  size_t at = *next;
  *next += dfgnn__cpu_aligned((size_t)count * size);
  return at;
}

void dfgnn__cpu_project_place(dfgnn_cpu_sums_layout *l, size_t *next,
                              const dfgnn_setting *setting) {
  const dfgnn_problem *p = setting->problem;
  size_t scalar = dfgnn__cpu_scalar_bytes(p);
  int64_t rows = p->edge_dim + 1, padded_fields = padded(rows);
  int64_t width = padded(p->heads * p->dim) * dfgnn__message_parts(p->message);
  int64_t blocks = backward(p) ? count_blocks(setting->matrix->edges) : 0;
  l->scratch_bytes = dfgnn__cpu_aligned(
      DFGNN_CPU_HEAD +
      DFGNN_CPU_WINDOW * (size_t)(width + 2 * padded_fields) * scalar);
  l->sums_bytes = dfgnn__cpu_aligned((size_t)(rows * width) * scalar);
  l->matrix = place(next, rows * width, scalar);
  l->by_feature = place(next, backward(p) ? width * padded_fields : 0, scalar);
  l->scratch = place(next, setting->device->units, l->scratch_bytes);
  l->sums = place(next, blocks, l->sums_bytes);
}

/* ---- the matrix ---------------------------------------------------------- */

/* The position in [H, D] of number `at` of a row in the order of pieces. */
static int64_t feature_of(const dfgnn_cpu_sums_call *c, int64_t at) {
  const dfgnn_problem *p = c->launch->setting.problem;
  if (c->job.pieces.count > 1 || p->layout != DFGNN_LAYOUT_NDH)
    return at;
  return at % p->heads * p->dim + at / p->heads;
}

/* The number of rows of the caller's matrix: features of all parts. */
static int64_t parameters_of(const dfgnn_cpu_sums_call *c) {
  return c->job.width *
         dfgnn__message_parts(c->launch->setting.problem->message);
}

/* The positions of a row of the caller's matrix, [parts, H, D], there and in
 * our padded matrix. */
typedef struct place_of_parameter {
  int64_t given, padded;
} place_of_parameter;

static place_of_parameter find_parameter(const dfgnn_cpu_sums_call *c,
                                         int64_t k) {
  int64_t width = c->job.width, at = k % width;
  return (place_of_parameter){k - at + feature_of(c, at),
                              k / width * padded(width) + at};
}

static void convert(dfgnn_cpu_sums_call *c) {
  const dfgnn_problem *p = c->launch->setting.problem;
  const dfgnn_args *args = c->launch->args;
  dfgnn_cpu_projection *to = &c->job.projection;
  char *matrix = c->memory + c->layout.matrix;
  char *by_feature = c->memory + c->layout.by_feature;
  int wide = p->dtype == DFGNN_F64;
  int64_t fields = to->fields;
  size_t scalar = dfgnn__cpu_scalar_bytes(p);
  memset(matrix, 0, (size_t)((fields + 1) * to->row) * scalar);
  if (backward(p))
    memset(by_feature, 0, (size_t)(to->row * to->padded_fields) * scalar);
  for (int64_t k = 0; k < parameters_of(c); k++) {
    place_of_parameter place = find_parameter(c, k);
    int64_t i = place.given, at = place.padded;
    for (int64_t f = 0; f < fields; f++) {
      double x =
          dfgnn__number_at(p->dtype, args->edge_projection, i * fields + f);
      dfgnn__cpu_set_scalar(matrix, f * to->row + at, x, wide);
      if (backward(p))
        dfgnn__cpu_set_scalar(by_feature, at * to->padded_fields + f, x, wide);
    }
    if (args->edge_bias)
      dfgnn__cpu_set_scalar(matrix, fields * to->row + at,
                            dfgnn__number_at(p->dtype, args->edge_bias, i),
                            wide);
  }
  to->matrix = matrix;
  to->by_feature = by_feature;
}

void dfgnn__cpu_project_begin(dfgnn_cpu_sums_call *c) {
  const dfgnn_problem *p = c->launch->setting.problem;
  const dfgnn_args *args = c->launch->args;
  c->job.projection = (dfgnn_cpu_projection){
      .fields = p->edge_dim,
      .padded_fields = padded(p->edge_dim + 1),
      .padded_width = padded(c->job.width),
      .row = padded(c->job.width) * dfgnn__message_parts(p->message),
      .attr = args->edge_attr,
      .grad_attr = args->grad_edge_attr,
      .scratch = c->memory + c->layout.scratch,
      .scratch_bytes = c->layout.scratch_bytes};
  convert(c);
}

void dfgnn__cpu_project_forget(const dfgnn_cpu_sums_call *c) {
  int threads = dfgnn__cpu_threads(&c->launch->setting);
  const dfgnn_cpu_projection *p = &c->job.projection;
  for (int t = 0; p->scratch && t < threads; t++)
    *(dfgnn_cpu_window *)(p->scratch + (size_t)t * p->scratch_bytes) =
        (dfgnn_cpu_window){0, 0};
}

/* ---- gradients -------------------------------------------- */

typedef struct edge_blocks {
  const dfgnn_cpu_sums_call *call;
  dfgnn_cpu_sums job;
  int64_t count;
} edge_blocks;

static void *sums_of(const dfgnn_cpu_sums_call *c, int64_t block) {
  return c->memory + c->layout.sums + (size_t)block * c->layout.sums_bytes;
}

static void walk_blocks(void *data, int64_t begin, int64_t end) {
  const edge_blocks *b = data;
  const dfgnn_cpu_sums_call *c = b->call;
  const dfgnn_args *args = c->launch->args;
  const dfgnn_cpu_projection *p = &b->job.projection;
  int sums = args->grad_edge_projection || args->grad_edge_bias;
  char *scratch = p->scratch + (size_t)dfgnn__cpu_thread() * p->scratch_bytes;
  for (int64_t block = begin; block < end; block++) {
    void *to = sums ? sums_of(c, block) : NULL;
    if (to)
      memset(to, 0, c->layout.sums_bytes);
    c->kernels->edges(&b->job, b->job.edges * block / b->count,
                      b->job.edges * (block + 1) / b->count, scratch, to);
  }
}

/* Adds up the blocks' sums for some rows of the matrix, in order. */
static void add_blocks(void *data, int64_t begin, int64_t end) {
  const edge_blocks *b = data;
  const dfgnn_args *args = b->call->launch->args;
  const dfgnn_cpu_projection *p = &b->job.projection;
  int wide = b->call->launch->setting.problem->dtype == DFGNN_F64;
  for (int64_t row = begin; row < end; row++)
    for (int64_t f = 0; f <= p->fields; f++) {
      place_of_parameter place = find_parameter(b->call, row);
      int64_t i = place.given, at = f * p->row + place.padded;
      double sum = 0;
      for (int64_t k = 0; k < b->count; k++)
        sum += dfgnn__cpu_scalar_at(sums_of(b->call, k), at, wide);
      if (f < p->fields && args->grad_edge_projection)
        dfgnn__cpu_set_scalar(args->grad_edge_projection, i * p->fields + f,
                              sum, wide);
      else if (f == p->fields && args->grad_edge_bias)
        dfgnn__cpu_set_scalar(args->grad_edge_bias, i, sum, wide);
    }
}

void dfgnn__cpu_project_grade(const dfgnn_cpu_sums_call *c,
                              const dfgnn_cpu_sums *by_row) {
  const dfgnn_args *args = c->launch->args;
  int threads = dfgnn__cpu_threads(&c->launch->setting);
  edge_blocks b = {c, *by_row, count_blocks(c->job.edges)};
  int sums = args->grad_edge_projection || args->grad_edge_bias;
  if (!b.job.projection.fields || (!sums && !args->grad_edge_attr))
    return;
  dfgnn__cpu_for(threads, b.count, 1, walk_blocks, &b);
  if (sums)
    dfgnn__cpu_for(threads, parameters_of(c), 64, add_blocks, &b);
}
