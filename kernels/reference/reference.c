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

static int team_size(void) {
#ifdef _OPENMP
  return omp_get_num_threads();
#else
  return 1;
#endif
}

/* Sums over all rows are joined in the order of the threads, each of which has
 * rows of its own, so that they have the same bits in every call. */
dfgnn_status dfgnn__ref_walk(const dfgnn_ref_walk *walk, void *job) {
  int failed = 0;
#pragma omp parallel reduction(| : failed) if (walk->work > 50000)
  {
    double *memory = calloc(walk->numbers + 1, sizeof *memory);
    int32_t *order = malloc((size_t)(walk->degree + 1) * sizeof *order);
    int ready = memory && order;
    failed |= !ready;
    if (walk->join) {
#pragma omp for schedule(static)
      for (int64_t i = 0; i < walk->count; i++)
        if (ready)
          walk->visit(job, memory, order, i);
#pragma omp for ordered schedule(static, 1)
      for (int thread = 0; thread < team_size(); thread++) {
#pragma omp ordered
        if (ready)
          walk->join(job, memory);
      }
    } else {
#pragma omp for schedule(dynamic, 16)
      for (int64_t i = 0; i < walk->count; i++)
        if (ready)
          walk->visit(job, memory, order, i);
    }
    free(order);
    free(memory);
  }
  return failed ? dfgnn__fail(DFGNN_ERROR_MEMORY, "reference: out of memory")
                : DFGNN_OK;
}

double *dfgnn__ref_take(double **memory, int64_t count) {
  double *taken = *memory;
  *memory += count;
  return taken;
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
void dfgnn__ref_load(double *to, const dfgnn_problem *problem,
                     const void *array, const dfgnn_strides *strides,
                     int64_t node, int64_t head) {
  int64_t first = node * strides->node + head * strides->head;
  int64_t step = strides->feature, dim = problem->dim;
#define LOAD(type, convert)                                                    \
  do {                                                                         \
    const type *from = (const type *)array + first;                            \
    for (int64_t d = 0; d < dim; d++)                                          \
      to[d] = convert(from[d * step]);                                         \
  } while (0)
  switch (problem->dtype) {
  case DFGNN_F32:
    LOAD(float, );
    break;
  case DFGNN_F64:
    LOAD(double, );
    break;
  case DFGNN_F16:
    LOAD(uint16_t, dfgnn__f16_to_float);
    break;
  default:
    LOAD(uint16_t, dfgnn__bf16_to_float);
  }
#undef LOAD
}

int64_t *dfgnn__ref_first_edges(const dfgnn_matrix *matrix,
                                const dfgnn_expected *expected) {
  int64_t count = expected->row_count;
  int64_t *first = malloc((size_t)(count + 1) * sizeof *first);
  if (!first)
    return NULL;
  first[0] = 0;
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

dfgnn_ref_result dfgnn__ref_result_at(const dfgnn_ref_result *result,
                                      int64_t i) {
  if (!result->value || !result->fixed)
    return (dfgnn_ref_result){result->value ? result->value + i : NULL, NULL,
                              NULL};
  return (dfgnn_ref_result){result->value + i, result->fixed + i,
                            result->summed + i};
}

static int ascending(const void *a, const void *b) {
  int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
  return (x > y) - (x < y);
}

dfgnn_ref_row dfgnn__ref_row(const int32_t *indices, int64_t count,
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
  e.repeated = dfgnn__ref_row(e.indices, e.count, order, bounds);
  return e;
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

dfgnn_ref_sum dfgnn__ref_sum_in(double **memory, int64_t width, int bounds) {
  double *buffer =
      dfgnn__ref_take(memory, (int64_t)dfgnn__ref_sum_numbers(width));
  return (dfgnn_ref_sum){.width = width,
                         .bounds = bounds,
                         .value = buffer,
                         .size = buffer + width,
                         .spread = buffer + 2 * width,
                         .cells = buffer + 3 * width};
}

void dfgnn__ref_sum_begin(dfgnn_ref_sum *sum, int64_t terms) {
  int64_t arrays = !sum->bounds              ? 1
                   : terms <= DFGNN_REF_LONG ? 3
                                             : 3 + DFGNN_REF_CELLS;
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

void dfgnn__ref_sum_add(dfgnn_ref_sum *sum, int64_t k, double factor,
                        double variance, const double *x) {
  double *restrict value = sum->value, *restrict size = sum->size;
  double *restrict spread = sum->spread;
  int64_t width = sum->width;
  if (!sum->bounds) {
    for (int64_t d = 0; d < width; d++)
      value[d] += factor * x[d];
    return;
  }
  for (int64_t d = 0; d < width; d++) {
    double term = factor * x[d];
    value[d] += term;
    size[d] += fabs(term);
    spread[d] += variance * x[d] * x[d];
  }
  double *restrict cell = cell_of(sum, k);
  for (int64_t d = 0; cell && d < width; d++)
    cell[d] += factor * x[d];
}

void dfgnn__ref_sum_add_at(const dfgnn_ref_sum *sum, int64_t at, int64_t count,
                           int64_t k, double factor, double variance,
                           const double *x) {
  double *cell = cell_of(sum, k);
  for (int64_t d = 0; d < count; d++) {
    double term = factor * x[d];
    sum->value[at + d] += term;
    if (!sum->bounds)
      continue;
    sum->size[at + d] += fabs(term);
    sum->spread[at + d] += variance * x[d] * x[d];
    if (cell)
      cell[at + d] += term;
  }
}

void dfgnn__ref_sum_add_each(dfgnn_ref_sum *sum, int64_t k, const double *terms,
                             const double *variances) {
  int64_t width = sum->width;
  for (int64_t d = 0; d < width; d++)
    sum->value[d] += terms[d];
  if (!sum->bounds)
    return;
  for (int64_t d = 0; d < width; d++) {
    sum->size[d] += fabs(terms[d]);
    sum->spread[d] += variances[d];
  }
  double *cell = cell_of(sum, k);
  for (int64_t d = 0; cell && d < width; d++)
    cell[d] += terms[d];
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
