/* reference.h - helpers of the float64 references of all operators
 *
 * A reference computes by the formulas, row by row, on host arrays; every other
 * variant is compared with it. */
#ifndef DFGNN_KERNELS_REFERENCE_REFERENCE_H
#define DFGNN_KERNELS_REFERENCE_REFERENCE_H

#include "kernels/common/host_view.h"

/* Which results to compute. */
typedef struct dfgnn_expected {
  /* Destinations, for results by destination or edge; NULL: 0 .. count - 1. */
  const int64_t *rows;
  int64_t row_count;
  /* Sources, for results by source; NULL: 0 .. count - 1. */
  const int64_t *columns;
  int64_t column_count;
  const dfgnn_view *transpose; /* on the host; NULL: nothing by source */
  /* The outputs in `to` point to dense arrays of double; NULL: not wanted.
   * Heads come before features.  The first dimension is row_count, column_count
   * or the edges of the rows in order.  Results that belong to no node are
   * sums over the rows. */
  dfgnn_args to;
  /* 1: the same outputs of fixed and summed point to arrays of float, which
   * become the two parts of a bound: see kernels/common/accuracy.h. */
  int bounds;
  dfgnn_args fixed, summed;
} dfgnn_expected;

typedef dfgnn_status (*dfgnn_reference)(const dfgnn_problem *problem,
                                        const dfgnn_matrix *matrix,
                                        const dfgnn_args *args,
                                        const dfgnn_expected *expected);

/* ---- walks --------------------------------------------------------------- */

/* A walk over `count` rows or columns.  Each thread has its own memory, zeros
 * at first: `numbers` doubles, and indices enough to sort a row of the largest
 * degree. */
typedef struct dfgnn_ref_walk {
  int64_t count;
  int64_t work; /* terms: few are not worth waking threads for */
  size_t numbers;
  int64_t degree;
  void (*visit)(const void *job, double *memory, int32_t *order, int64_t i);
  /* Called by each thread at its end, one after the other; NULL: not. */
  void (*join)(void *job, double *memory);
} dfgnn_ref_walk;

dfgnn_status dfgnn__ref_walk(const dfgnn_ref_walk *walk, void *job);

/* Takes `count` numbers of memory. */
double *dfgnn__ref_take(double **memory, int64_t count);

/* ---- numbers in their storage type --------------------------------------- */

/* An element of a transposed view's array[2]. */
int64_t dfgnn__ref_edge(const dfgnn_matrix *matrix, const dfgnn_view *transpose,
                        int64_t k);
double dfgnn__ref_scalar(const dfgnn_problem *problem, const void *array,
                         int64_t i);
/* The features of one node and head, exactly converted. */
void dfgnn__ref_load(double *to, const dfgnn_problem *problem,
                     const void *array, const dfgnn_strides *strides,
                     int64_t node, int64_t head);
/* first[k] = the number of edges of the rows before the k-th; NULL without
 * memory. */
int64_t *dfgnn__ref_first_edges(const dfgnn_matrix *matrix,
                                const dfgnn_expected *expected);

/* ---- results with the sensitivities of their bounds -----------------------
 */

/* An output of dfgnn_expected. */
typedef struct dfgnn_ref_result {
  double *value; /* NULL: not wanted */
  float *fixed, *summed;
} dfgnn_ref_result;

#define DFGNN_REF_RESULT(expected, field)                                      \
  ((dfgnn_ref_result){                                                         \
      (double *)(expected)->to.field,                                          \
      (expected)->bounds ? (float *)(expected)->fixed.field : NULL,            \
      (expected)->bounds ? (float *)(expected)->summed.field : NULL})

/* fixed and summed are squares here. */
void dfgnn__ref_put(const dfgnn_ref_result *to, int64_t i, double value,
                    double fixed, double summed);
/* A result from its number i on. */
dfgnn_ref_result dfgnn__ref_result_at(const dfgnn_ref_result *result,
                                      int64_t i);

/* The columns of a row, for counting how often one stands in it. */
typedef struct dfgnn_ref_row {
  const int32_t *sorted; /* NULL: each column stands once */
  int64_t count;
  double repeats; /* the mean over the edges of how often their column stands */
} dfgnn_ref_row;

/* order: `count` numbers, where an unsorted row is sorted; the result may point
 * there.  Without bounds each column counts once. */
dfgnn_ref_row dfgnn__ref_row(const int32_t *indices, int64_t count,
                             int32_t *order, int bounds);
double dfgnn__ref_repeats(const dfgnn_ref_row *row, int32_t column);

/* The edges of a row, or of a column of a transposed matrix. */
typedef struct dfgnn_ref_edges {
  int64_t begin, count;
  const int32_t *indices;
  dfgnn_ref_row repeated;
} dfgnn_ref_edges;

dfgnn_ref_edges dfgnn__ref_edges(const dfgnn_matrix *matrix, int64_t row,
                                 int32_t *order, int bounds);

/* `width` sums over the terms of a row, and the numbers for their bounds. */
typedef struct dfgnn_ref_sum {
  int64_t width, terms;
  int bounds;     /* 0: of the arrays below value alone is kept */
  double *value;  /* [width] */
  double *size;   /* [width] the sum of the magnitudes of the terms */
  double *spread; /* [width] the sum of the variances of the terms */
  double *cells;  /* [DFGNN_REF_CELLS][width] of a long row: see accuracy.h */
} dfgnn_ref_sum;

#define DFGNN_REF_CELLS 32
#define DFGNN_REF_LONG 256   /* rows of more terms have cells, */
#define DFGNN_REF_REPEATED 4 /* which count up to this mean of repeats */

static inline size_t dfgnn__ref_sum_numbers(int64_t width) {
  return (size_t)((3 + DFGNN_REF_CELLS) * width);
}
dfgnn_ref_sum dfgnn__ref_sum_in(double **memory, int64_t width, int bounds);
void dfgnn__ref_sum_begin(dfgnn_ref_sum *sum, int64_t terms);
/* Adds factor * x, the k-th term; variance is the factor's. */
void dfgnn__ref_sum_add(dfgnn_ref_sum *sum, int64_t k, double factor,
                        double variance, const double *x);
/* The same for the numbers `at` and following, `count` of them. */
void dfgnn__ref_sum_add_at(const dfgnn_ref_sum *sum, int64_t at, int64_t count,
                           int64_t k, double factor, double variance,
                           const double *x);
/* Adds terms[d] with variances[d]. */
void dfgnn__ref_sum_add_each(dfgnn_ref_sum *sum, int64_t k, const double *terms,
                             const double *variances);
/* The squares of the two parts of the bound of sum d. */
double dfgnn__ref_sum_fixed(const dfgnn_ref_sum *sum, int64_t d);
double dfgnn__ref_sum_summed(const dfgnn_ref_sum *sum, int64_t d,
                             double repeats);
/* Puts all numbers of a sum. */
void dfgnn__ref_put_sum(const dfgnn_ref_result *to, const dfgnn_ref_sum *sum,
                        double repeats);

/* A product of two vectors. */
typedef struct dfgnn_ref_product {
  double value;
  double size;     /* the sum of the magnitudes */
  double square;   /* the sum of the squares */
  double variance; /* of the sum, in any order */
} dfgnn_ref_product;

dfgnn_ref_product dfgnn__ref_product(const double *a, const double *b,
                                     int64_t count);

#endif
