/* reference.c - walks, numbers of any type, and sums with their bounds, for the
 * references */
#include "kernels/reference/number.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#ifdef _OPENMP
#include <omp.h>
#endif

#include "lib/base/error.h"

typedef struct dfgnn_ref_chunk {
  struct dfgnn_ref_chunk *before;
  double numbers[];
} chunk;

double *dfgnn__ref_take(dfgnn_ref_memory *memory, int64_t count) {
  chunk *taken =
      calloc(1, sizeof *taken + (size_t)count * sizeof *taken->numbers);
  memory->failed |= !taken;
  if (!taken)
    return NULL;
  taken->before = memory->last;
  memory->last = taken;
  return taken->numbers;
}

static void give_back(dfgnn_ref_memory *memory) {
  for (chunk *c = memory->last, *before; c; c = before) {
    before = c->before;
    free(c);
  }
}

int64_t dfgnn__ref_edge(const dfgnn_matrix *matrix, const dfgnn_view *transpose,
                        int64_t k) {
  return dfgnn__index_at(transpose->array[2], matrix->offsets64, k);
}

double dfgnn__ref_scalar(const dfgnn_problem *problem, const void *array,
                         int64_t i) {
  return problem->dtype == DFGNN_F64 ? ((const double *)array)[i]
                                     : ((const float *)array)[i];
}

/* Each type has its own loop: this is where references spend their time. */
void dfgnn__ref_read(double *to, dfgnn_dtype dtype, const void *array,
                     int64_t first, int64_t step, int64_t count) {
#define READ(type, convert)                                                    \
  do {                                                                         \
    const type *from = (const type *)array + first;                            \
    for (int64_t d = 0; d < count; d++)                                        \
      to[d] = convert(from[d * step]);                                         \
  } while (0)
  switch (dtype) {
  case DFGNN_F32:
    READ(float, );
    break;
  case DFGNN_F64:
    READ(double, );
    break;
  case DFGNN_F16:
    READ(uint16_t, dfgnn__f16_to_float);
    break;
  default:
    READ(uint16_t, dfgnn__bf16_to_float);
  }
#undef READ
}

void dfgnn__ref_load(double *to, const dfgnn_problem *problem,
                     const void *array, const dfgnn_strides *strides,
                     int64_t node, int64_t head) {
  dfgnn__ref_read(to, problem->dtype, array,
                  node * strides->node + head * strides->head, strides->feature,
                  problem->dim);
}

/* ---- results with the sensitivities of their bounds -----------------------
 */

void dfgnn__ref_put(const dfgnn_ref_result *to, int64_t i, number x) {
  if (!to->value)
    return;
  to->value[i] = x.value;
  if (to->fixed) {
    to->fixed[i] = (float)sqrt(x.fixed);
    to->summed[i] = (float)sqrt(x.summed);
  }
}

dfgnn_ref_result dfgnn__ref_result(const dfgnn_expected *expected,
                                   size_t member, int64_t at) {
#define MEMBER(of) *(void *const *)((const char *)&expected->of + member)
  double *value = MEMBER(to);
  float *fixed = MEMBER(fixed), *summed = MEMBER(summed);
#undef MEMBER
  if (!value || !expected->bounds || !fixed)
    return (dfgnn_ref_result){value ? value + at : NULL, NULL, NULL};
  return (dfgnn_ref_result){value + at, fixed + at, summed + at};
}

static int ascending(const void *a, const void *b) {
  int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
  return (x > y) - (x < y);
}

dfgnn_ref_edges dfgnn__ref_edges(const dfgnn_matrix *matrix, int64_t row,
                                 int32_t *order, int bounds) {
  const int64_t begin = dfgnn__offset_at(matrix, row);
  const int64_t count = dfgnn__offset_at(matrix, row + 1) - begin;
  const int32_t *indices = matrix->indices + begin, *sorted = indices;
  dfgnn_ref_edges e = {begin, count, indices, NULL, 1};
  int64_t repeated = 0, run = 1;
  if (!bounds)
    return e;
  for (int64_t k = 1; k < count; k++)
    if (indices[k] < indices[k - 1]) {
      memcpy(order, indices, (size_t)count * sizeof *order);
      qsort(order, (size_t)count, sizeof *order, ascending);
      sorted = order;
      break;
    }
  for (int64_t k = 1; k <= count; k++, run++)
    if (k == count || sorted[k] != sorted[k - 1]) {
      repeated += run * (run - 1);
      run = 0;
    }
  if (repeated) {
    e.sorted = sorted;
    e.repeats = 1 + (double)repeated / (double)count;
  }
  return e;
}

/* The number of indices of a sorted row that are less than x. */
static int64_t less_than(const dfgnn_ref_edges *e, int64_t x) {
  int64_t low = 0, high = e->count;
  while (low < high) {
    int64_t middle = (low + high) / 2;
    if (e->sorted[middle] < x)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

double dfgnn__ref_repeats(const dfgnn_ref_edges *e, int64_t k) {
  const int64_t index = e->indices[k];
  return e->sorted ? (double)(less_than(e, index + 1) - less_than(e, index))
                   : 1;
}

/* The arrays of a sum are adjacent. */
enum { ARRAYS = 4 + DFGNN_REF_CELLS };

dfgnn_ref_sum dfgnn__ref_sum_in(dfgnn_ref_memory *memory, int64_t width,
                                int bounds) {
  double *buffer = dfgnn__ref_take(memory, ARRAYS * width);
  return (dfgnn_ref_sum){.width = width,
                         .bounds = bounds,
                         .value = buffer,
                         .size = buffer + width,
                         .spread = buffer + 2 * width,
                         .shared = buffer + 3 * width,
                         .cells = buffer + 4 * width};
}

void dfgnn__ref_sum_begin(dfgnn_ref_sum *sum, int64_t terms) {
  int64_t arrays = !sum->bounds ? 1 : terms <= DFGNN_REF_LONG ? 4 : ARRAYS;
  sum->terms = terms;
  memset(sum->value, 0, (size_t)(arrays * sum->width) * sizeof *sum->value);
}

/* The cell of the k-th term: the residues by eight of the quarters of a row.
 * NULL: the sum has none. */
static double *cell_of(const dfgnn_ref_sum *sum, int64_t k) {
  if (!sum->bounds || sum->terms <= DFGNN_REF_LONG)
    return NULL;
  int64_t quarter = k * (DFGNN_REF_CELLS / 8) / sum->terms;
  return sum->cells + (8 * quarter + k % 8) * sum->width;
}

void dfgnn__ref_sum_add(const dfgnn_ref_sum *sum, int64_t at, int64_t count,
                        int64_t k, number factor, const double *x) {
  double *restrict value = sum->value + at, *restrict size = sum->size + at;
  double *restrict spread = sum->spread + at, *restrict cell = cell_of(sum, k);
  if (!sum->bounds) {
    for (int64_t d = 0; d < count; d++)
      value[d] += factor.value * x[d];
    return;
  }
  for (int64_t d = 0; d < count; d++) {
    double term = factor.value * x[d];
    value[d] += term;
    size[d] += fabs(term);
    spread[d] += factor.fixed * x[d] * x[d];
  }
  for (int64_t d = 0; cell && d < count; d++)
    cell[at + d] += factor.value * x[d];
  for (int64_t d = 0; factor.shared != 0 && d < count; d++)
    sum->shared[at + d] += factor.shared * x[d];
}

void dfgnn__ref_sum_settle(const dfgnn_ref_sum *sum, int64_t at, int64_t count,
                           double variance) {
  for (int64_t d = at; sum->bounds && d < at + count; d++) {
    if (sum->shared[d] != 0) /* variance may be NaN */
      sum->spread[d] += square(sum->shared[d]) * variance;
    sum->shared[d] = 0;
  }
}

void dfgnn__ref_sum_add_each(const dfgnn_ref_sum *sum, int64_t k,
                             const number *terms) {
  double *cell = cell_of(sum, k);
  for (int64_t d = 0; d < sum->width; d++) {
    sum->value[d] += terms[d].value;
    if (sum->bounds) {
      sum->size[d] += fabs(terms[d].value);
      sum->spread[d] += terms[d].fixed;
    }
  }
  for (int64_t d = 0; cell && d < sum->width; d++)
    cell[d] += terms[d].value;
}

/* A bound of the sum of squares of partial sums: none is above `most`, and all
 * of one level of a tree are together not above `all`. */
static double partial_sums(double value, double all) {
  double most = (all + fabs(value)) / 2;
  return most * all;
}

static double summed(const dfgnn_ref_sum *sum, int64_t d, double repeats) {
  double all = 0;
  /* Kernels may add up the edges of one column first, which cells do not cover.
   */
  if (sum->terms <= DFGNN_REF_LONG || repeats > DFGNN_REF_REPEATED)
    return repeats * partial_sums(sum->value[d], sum->size[d]);
  for (int i = 0; i < DFGNN_REF_CELLS; i++)
    all += fabs(sum->cells[i * sum->width + d]);
  return repeats * partial_sums(sum->value[d], all);
}

number dfgnn__ref_sum_number(const dfgnn_ref_sum *sum, int64_t d,
                             double repeats) {
  if (!sum->bounds)
    return (number){sum->value[d], 0, 0, 0};
  return (number){sum->value[d], square(sum->size[d]) + sum->spread[d],
                  summed(sum, d, repeats), sum->shared[d]};
}

void dfgnn__ref_put_sum(const dfgnn_ref_result *to, const dfgnn_ref_sum *sum,
                        double repeats) {
  for (int64_t d = 0; d < sum->width; d++)
    dfgnn__ref_put(to, d, dfgnn__ref_sum_number(sum, d, repeats));
}

number num_dot(const double *a, const double *b, int64_t count, double n) {
  double value = 0, size = 0, squares = 0;
  for (int64_t d = 0; d < count; d++) {
    double term = a[d] * b[d];
    value += term;
    size += fabs(term);
    squares += term * term;
  }
  return num(value,
             (double)count * partial_sums(value, size) + (1 + n) * squares);
}

/* ---- calls and walks ----------------------------------------------------- */

dfgnn_ref_call dfgnn__ref_call(const dfgnn_problem *problem,
                               const dfgnn_matrix *matrix,
                               const dfgnn_args *args,
                               const dfgnn_expected *expected) {
  dfgnn_ref_call c = {problem, matrix, args, expected, .by_source = 0};
  c.first = (int64_t *)dfgnn__ref_take(&c.memory, expected->row_count + 1);
  for (int64_t r = 0; c.first && r < expected->row_count; r++) {
    int64_t row = expected->rows ? expected->rows[r] : r;
    c.first[r + 1] = c.first[r] + dfgnn__offset_at(matrix, row + 1) -
                     dfgnn__offset_at(matrix, row);
  }
  return c;
}

dfgnn_status dfgnn__ref_end(dfgnn_ref_call *call) {
  give_back(&call->memory);
  return call->memory.failed
             ? dfgnn__fail(DFGNN_ERROR_MEMORY, "reference: out of memory")
             : DFGNN_OK;
}

static dfgnn_ref_sum total_in(dfgnn_ref_memory *memory, int64_t width,
                              const dfgnn_ref_call *call) {
  dfgnn_ref_sum sum = {0};
  if (width)
    sum = dfgnn__ref_sum_in(memory, width, call->expected->bounds);
  sum.terms = call->matrix->edges;
  return sum;
}

void dfgnn__ref_total(dfgnn_ref_call *call, int i, int64_t width) {
  call->totals.sum[i] = total_in(&call->memory, width, call);
}

double dfgnn__ref_mean_repeats(const dfgnn_ref_call *call, double times) {
  times *= (double)call->first[call->expected->row_count];
  return times > 0 ? call->totals.repeats / times : 1;
}

static void begin(const dfgnn_ref_walk *walk, const dfgnn_ref_call *call,
                  dfgnn_ref_thread *thread, dfgnn_ref_memory *memory) {
  const int64_t degree = call->by_source ? call->expected->transpose->extra
                                         : call->matrix->max_degree;
  thread->call = call;
  thread->order = (int32_t *)dfgnn__ref_take(memory, degree / 2 + 1);
  for (int i = 0; i < DFGNN_REF_TOTALS && !call->by_source; i++)
    thread->totals.sum[i] = total_in(memory, call->totals.sum[i].width, call);
  walk->begin(thread, memory);
}

static void join(dfgnn_ref_totals *all, const dfgnn_ref_totals *mine) {
  for (int t = 0; t < DFGNN_REF_TOTALS; t++)
    for (int64_t i = 0; i < ARRAYS * mine->sum[t].width; i++)
      all->sum[t].value[i] += mine->sum[t].value[i];
  all->repeats += mine->repeats;
}

static int team_size(void) {
#ifdef _OPENMP
  return omp_get_num_threads();
#else
  return 1;
#endif
}

/* Totals are joined in the order of the threads, each of which has rows of its
 * own, so that they have the same bits in every call. */
void dfgnn__ref_walk(const dfgnn_ref_walk *walk, dfgnn_ref_call *call) {
  const dfgnn_expected *to = call->expected;
  const int columns = call->by_source;
  const int64_t *nodes = walk->all ? NULL : columns ? to->columns : to->rows;
  const int64_t count = walk->all ? call->matrix->destinations
                        : columns ? to->column_count
                                  : to->row_count;
  const int64_t terms =
      call->matrix->edges * call->problem->heads * call->problem->dim;
  int failed = 0, totals = 0;
  for (int i = 0; i < DFGNN_REF_TOTALS && !columns; i++)
    totals |= call->totals.sum[i].width > 0;
  if (call->memory.failed)
    return;
    /* Few terms are not worth waking threads for. */
#pragma omp parallel reduction(| : failed) if (terms > 50000)
  {
    dfgnn_ref_memory memory = {0};
    dfgnn_ref_thread *thread = calloc(1, walk->thread);
    if (thread)
      begin(walk, call, thread, &memory);
    const int ready = thread && !memory.failed;
    failed |= !ready;
    if (totals) {
#pragma omp for schedule(static)
      for (int64_t i = 0; i < count; i++)
        if (ready)
          walk->visit(thread, i, nodes ? nodes[i] : i);
#pragma omp for ordered schedule(static, 1)
      for (int k = 0; k < team_size(); k++) {
#pragma omp ordered
        if (ready)
          join(&call->totals, &thread->totals);
      }
    } else {
#pragma omp for schedule(dynamic, 16)
      for (int64_t i = 0; i < count; i++)
        if (ready)
          walk->visit(thread, i, nodes ? nodes[i] : i);
    }
    free(thread);
    give_back(&memory);
  }
  call->memory.failed |= failed;
}
