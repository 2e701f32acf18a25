/* reference.c - walks, numbers of any type, and sums with their bounds, for the
 * references */
#include "kernels/reference/reference.h"

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

dfgnn_status dfgnn__ref_free(dfgnn_ref_memory *memory) {
  for (chunk *c = memory->last, *before; c; c = before) {
    before = c->before;
    free(c);
  }
  return memory->failed
             ? dfgnn__fail(DFGNN_ERROR_MEMORY, "reference: out of memory")
             : DFGNN_OK;
}

static int team_size(void) {
#ifdef _OPENMP
  return omp_get_num_threads();
#else
  return 1;
#endif
}

static void visit(const dfgnn_ref_walk *walk, void *state, int64_t i) {
  if (state)
    walk->visit(state, i, walk->nodes ? walk->nodes[i] : i);
}

/* Sums over all rows are joined in the order of the threads, each of which has
 * rows of its own, so that they have the same bits in every call. */
dfgnn_status dfgnn__ref_walk(const dfgnn_ref_walk *walk, void *job) {
  int failed = 0;
#pragma omp parallel reduction(| : failed) if (walk->work > 50000)
  {
    dfgnn_ref_memory memory = {0};
    void *state = calloc(1, walk->state);
    if (state)
      walk->begin(state, job, &memory);
    failed |= !state || memory.failed;
    if (failed) {
      free(state);
      state = NULL;
    }
    if (walk->join) {
#pragma omp for schedule(static)
      for (int64_t i = 0; i < walk->count; i++)
        visit(walk, state, i);
#pragma omp for ordered schedule(static, 1)
      for (int thread = 0; thread < team_size(); thread++) {
#pragma omp ordered
        if (state)
          walk->join(job, state);
      }
    } else {
#pragma omp for schedule(dynamic, 16)
      for (int64_t i = 0; i < walk->count; i++)
        visit(walk, state, i);
    }
    free(state);
    dfgnn__ref_free(&memory);
  }
  return failed ? dfgnn__fail(DFGNN_ERROR_MEMORY, "reference: out of memory")
                : DFGNN_OK;
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

int64_t *dfgnn__ref_first_edges(dfgnn_ref_memory *memory,
                                const dfgnn_matrix *matrix,
                                const dfgnn_expected *expected) {
  int64_t count = expected->row_count;
  int64_t *first = (int64_t *)dfgnn__ref_take(memory, count + 1);
  if (!first)
    return NULL;
  for (int64_t r = 0; r < count; r++) {
    int64_t row = expected->rows ? expected->rows[r] : r;
    first[r + 1] = first[r] + dfgnn__offset_at(matrix, row + 1) -
                   dfgnn__offset_at(matrix, row);
  }
  return first;
}

/* ---- results with the sensitivities of their bounds -----------------------
 */

void dfgnn__ref_put(const dfgnn_ref_result *to, int64_t i, double value,
                    double fixed, double summed) {
  if (!to->value)
    return;
  to->value[i] = value;
  if (to->fixed) {
    to->fixed[i] = (float)sqrt(fixed);
    to->summed[i] = (float)sqrt(summed);
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

static dfgnn_ref_row repeated_of(const int32_t *indices, int64_t count,
                                 int32_t *order, int bounds) {
  dfgnn_ref_row row = {.sorted = indices, .count = count, .repeats = 1};
  int64_t repeated = 0, run = 1;
  if (!bounds)
    return (dfgnn_ref_row){NULL, count, 1};
  for (int64_t k = 1; k < count; k++)
    if (indices[k] < indices[k - 1]) {
      memcpy(order, indices, (size_t)count * sizeof *order);
      qsort(order, (size_t)count, sizeof *order, ascending);
      row.sorted = order;
      break;
    }
  for (int64_t k = 1; k <= count; k++, run++)
    if (k == count || row.sorted[k] != row.sorted[k - 1]) {
      repeated += run * (run - 1);
      run = 0;
    }
  if (!repeated)
    row.sorted = NULL;
  else
    row.repeats = 1 + (double)repeated / (double)count;
  return row;
}

dfgnn_ref_edges dfgnn__ref_edges(const dfgnn_matrix *matrix, int64_t row,
                                 int32_t *order, int bounds) {
  dfgnn_ref_edges e = {.begin = dfgnn__offset_at(matrix, row)};
  e.count = dfgnn__offset_at(matrix, row + 1) - e.begin;
  e.indices = matrix->indices + e.begin;
  e.repeated = repeated_of(e.indices, e.count, order, bounds);
  return e;
}

int32_t *dfgnn__ref_order(dfgnn_ref_memory *memory, int64_t degree) {
  return (int32_t *)dfgnn__ref_take(memory, degree / 2 + 1);
}

/* The number of columns of a sorted row that are less than x. */
static int64_t less_than(const dfgnn_ref_row *row, int64_t x) {
  int64_t low = 0, high = row->count;
  while (low < high) {
    int64_t middle = (low + high) / 2;
    if (row->sorted[middle] < x)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

double dfgnn__ref_repeats(const dfgnn_ref_row *row, int32_t column) {
  if (!row->sorted)
    return 1;
  return (double)(less_than(row, (int64_t)column + 1) - less_than(row, column));
}

/* The arrays of a sum are adjacent. */
enum { ARRAYS = 3 + DFGNN_REF_CELLS };

dfgnn_ref_sum dfgnn__ref_sum_in(dfgnn_ref_memory *memory, int64_t width,
                                int bounds) {
  double *buffer = dfgnn__ref_take(memory, ARRAYS * width);
  return (dfgnn_ref_sum){.width = width,
                         .bounds = bounds,
                         .value = buffer,
                         .size = buffer + width,
                         .spread = buffer + 2 * width,
                         .cells = buffer + 3 * width};
}

void dfgnn__ref_sum_begin(dfgnn_ref_sum *sum, int64_t terms) {
  int64_t arrays = !sum->bounds ? 1 : terms <= DFGNN_REF_LONG ? 3 : ARRAYS;
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
                        int64_t k, dfgnn_ref_number factor, const double *x) {
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
    spread[d] += factor.variance * x[d] * x[d];
  }
  for (int64_t d = 0; cell && d < count; d++)
    cell[at + d] += factor.value * x[d];
}

void dfgnn__ref_sum_add_each(const dfgnn_ref_sum *sum, int64_t k,
                             const dfgnn_ref_number *terms) {
  double *cell = cell_of(sum, k);
  for (int64_t d = 0; d < sum->width; d++) {
    sum->value[d] += terms[d].value;
    if (sum->bounds) {
      sum->size[d] += fabs(terms[d].value);
      sum->spread[d] += terms[d].variance;
    }
  }
  for (int64_t d = 0; cell && d < sum->width; d++)
    cell[d] += terms[d].value;
}

void dfgnn__ref_sum_join(const dfgnn_ref_sum *sum, const dfgnn_ref_sum *other) {
  for (int64_t i = 0; i < ARRAYS * sum->width; i++)
    sum->value[i] += other->value[i];
}

double dfgnn__ref_sum_fixed(const dfgnn_ref_sum *sum, int64_t d) {
  return sum->bounds ? sum->size[d] * sum->size[d] + sum->spread[d] : 0;
}

/* A bound of the sum of squares of partial sums: none is above `most`, and all
 * of one level of a tree are together not above `all`. */
static double partial_sums(double value, double all) {
  double most = (all + fabs(value)) / 2;
  return most * all;
}

double dfgnn__ref_sum_summed(const dfgnn_ref_sum *sum, int64_t d,
                             double repeats) {
  double all = 0;
  if (!sum->bounds)
    return 0;
  /* Kernels may add up the edges of one column first, which cells do not cover.
   */
  if (sum->terms <= DFGNN_REF_LONG || repeats > DFGNN_REF_REPEATED)
    return repeats * partial_sums(sum->value[d], sum->size[d]);
  for (int i = 0; i < DFGNN_REF_CELLS; i++)
    all += fabs(sum->cells[i * sum->width + d]);
  return repeats * partial_sums(sum->value[d], all);
}

void dfgnn__ref_put_sum(const dfgnn_ref_result *to, const dfgnn_ref_sum *sum,
                        double repeats) {
  for (int64_t d = 0; d < sum->width; d++)
    dfgnn__ref_put(to, d, sum->value[d], dfgnn__ref_sum_fixed(sum, d),
                   dfgnn__ref_sum_summed(sum, d, repeats));
}

dfgnn_ref_product dfgnn__ref_product(const double *a, const double *b,
                                     int64_t count) {
  dfgnn_ref_product p = {0};
  for (int64_t d = 0; d < count; d++) {
    double term = a[d] * b[d];
    p.value += term;
    p.size += fabs(term);
    p.square += term * term;
  }
  p.variance = (double)count * partial_sums(p.value, p.size) + p.square;
  return p;
}
