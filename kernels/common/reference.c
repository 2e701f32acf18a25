/* reference.c - reading and writing numbers for the references */
#include "kernels/common/reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/common/half.h"

static int64_t offset_at(const void *offsets, int wide, int64_t i) {
  return wide ? ((const int64_t *)offsets)[i] : ((const int32_t *)offsets)[i];
}

int64_t dfgnn__ref_offset(const dfgnn_matrix *matrix, int64_t row) {
  return offset_at(matrix->offsets, matrix->offsets64, row);
}

int64_t dfgnn__ref_edge(const dfgnn_matrix *matrix, const dfgnn_view *transpose,
                        int64_t k) {
  return offset_at(transpose->array[2], matrix->offsets64, k);
}

double dfgnn__ref_scalar(const dfgnn_problem *problem, const void *array,
                         int64_t i) {
  return problem->dtype == DFGNN_F64 ? ((const double *)array)[i]
                                     : ((const float *)array)[i];
}

void dfgnn__ref_set_scalar(const dfgnn_problem *problem, void *array, int64_t i,
                           double x) {
  if (problem->dtype == DFGNN_F64)
    ((double *)array)[i] = x;
  else
    ((float *)array)[i] = (float)x;
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

void dfgnn__ref_store(const dfgnn_problem *problem, void *array,
                      const dfgnn_strides *strides, int64_t node, int64_t head,
                      const double *from) {
  int64_t i = node * strides->node + head * strides->head;
  for (int64_t d = 0; d < problem->dim; d++, i += strides->feature)
    switch (problem->dtype) {
    case DFGNN_F32:
      ((float *)array)[i] = (float)from[d];
      break;
    case DFGNN_F64:
      ((double *)array)[i] = from[d];
      break;
    case DFGNN_F16:
      ((uint16_t *)array)[i] = dfgnn__f16_from_double(from[d]);
      break;
    default:
      ((uint16_t *)array)[i] = dfgnn__bf16_from_double(from[d]);
    }
}

void dfgnn__ref_store_nodes(const dfgnn_problem *problem, void *array,
                            const dfgnn_strides *strides, int64_t nodes,
                            const double *from) {
  for (int64_t i = 0; i < nodes; i++)
    for (int64_t h = 0; h < problem->heads; h++)
      dfgnn__ref_store(problem, array, strides, i, h,
                       from + (i * problem->heads + h) * problem->dim);
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
    first[r + 1] = first[r] + dfgnn__ref_offset(matrix, row + 1) -
                   dfgnn__ref_offset(matrix, row);
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
                             int32_t *buffer) {
  dfgnn_ref_row row = {.sorted = indices, .count = count, .repeats = 1};
  int64_t repeated = 0, run = 1;
  for (int64_t k = 1; k < count; k++)
    if (indices[k] < indices[k - 1]) {
      memcpy(buffer, indices, (size_t)count * sizeof *buffer);
      qsort(buffer, (size_t)count, sizeof *buffer, ascending);
      row.sorted = buffer;
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

dfgnn_ref_sum dfgnn__ref_sum_in(double *buffer, int64_t width, int bounds) {
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

double *dfgnn__ref_sum_cell(const dfgnn_ref_sum *sum, int64_t k) {
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
  if (sum->terms > DFGNN_REF_LONG) {
    double *restrict part = dfgnn__ref_sum_cell(sum, k);
    for (int64_t d = 0; d < width; d++)
      part[d] += factor * x[d];
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
  if (sum->terms > DFGNN_REF_LONG) {
    double *part = dfgnn__ref_sum_cell(sum, k);
    for (int64_t d = 0; d < width; d++)
      part[d] += terms[d];
  }
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
