/* reference.h - helpers of the float64 references of all operators
 *
 * A reference computes by the formulas, row by row, on host arrays; every other
 * variant is compared with it.  An operator's text
 * (kernels/program/named.txt) gives the same values, but not these bounds:
 * kernels/program/reference.c adds up the worst of each rounding, which is 2 to
 * 25 times as much (1000 times of att's gradient), takes 4 to 19 times as long,
 * evaluates all rows, and knows no terms of 16 bits, no rounded out, and no
 * edge that an extreme is of. */
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

/* ---- memory -------------------------------------------------------------- */

/* A call or a thread takes this memory, and learns at its end whether there was
 * too little. */
typedef struct dfgnn_ref_memory {
  struct dfgnn_ref_chunk *last;
  int failed;
} dfgnn_ref_memory;

/* Takes `count` zeros; NULL without memory. */
double *dfgnn__ref_take(dfgnn_ref_memory *memory, int64_t count);

/* ---- numbers in their storage type --------------------------------------- */

/* An element of a transposed view's array[2]. */
int64_t dfgnn__ref_edge(const dfgnn_matrix *matrix, const dfgnn_view *transpose,
                        int64_t k);
double dfgnn__ref_scalar(const dfgnn_problem *problem, const void *array,
                         int64_t i);
/* Converts `count` numbers, from the `first` on and `step` apart. */
void dfgnn__ref_read(double *to, dfgnn_dtype dtype, const void *array,
                     int64_t first, int64_t step, int64_t count);
/* The features of one node and head. */
void dfgnn__ref_load(double *to, const dfgnn_problem *problem,
                     const void *array, const dfgnn_strides *strides,
                     int64_t node, int64_t head);

/* ---- results with the sensitivities of their bounds -----------------------
 */

/* An output of dfgnn_expected. */
typedef struct dfgnn_ref_result {
  double *value; /* NULL: not wanted */
  float *fixed, *summed;
} dfgnn_ref_result;

/* An output of dfgnn_expected from its number `at` on. */
#define DFGNN_REF_RESULT(expected, name, at)                                   \
  dfgnn__ref_result(expected, offsetof(dfgnn_args, name), at)
dfgnn_ref_result dfgnn__ref_result(const dfgnn_expected *expected,
                                   size_t member, int64_t at);

/* A value, the squares of its sensitivities (see number.h), and that to an
 * error which all edges of a row share (of attention's delta), up to its sign.
 */
typedef struct dfgnn_ref_number {
  double value, fixed, summed, shared;
} dfgnn_ref_number;

void dfgnn__ref_put(const dfgnn_ref_result *to, int64_t i, dfgnn_ref_number x);

/* The edges of a row, or of a column of a transposed matrix. */
typedef struct dfgnn_ref_edges {
  int64_t begin, count;
  const int32_t *indices;
  const int32_t *sorted; /* the indices; NULL: each stands once */
  double repeats; /* the mean over the edges of how often their index stands */
} dfgnn_ref_edges;

/* order: as many numbers as the row has edges, where it is sorted; the result
 * may point there.  Without bounds each index counts once. */
dfgnn_ref_edges dfgnn__ref_edges(const dfgnn_matrix *matrix, int64_t row,
                                 int32_t *order, int bounds);
/* How often the index of edge k stands there. */
double dfgnn__ref_repeats(const dfgnn_ref_edges *edges, int64_t k);

/* `width` sums over the terms of a row, and the numbers for their bounds. */
typedef struct dfgnn_ref_sum {
  int64_t width, terms;
  int bounds;     /* 0: of the arrays below value alone is kept */
  double *value;  /* [width] */
  double *size;   /* [width] the sum of the magnitudes of the terms */
  double *spread; /* [width] the sum of the variances of the terms */
  double *shared; /* [width] the sum of their sensitivities */
  double *cells;  /* [DFGNN_REF_CELLS][width] of a long row: see accuracy.h */
} dfgnn_ref_sum;

#define DFGNN_REF_CELLS 32
#define DFGNN_REF_LONG 256   /* rows of more terms have cells, */
#define DFGNN_REF_REPEATED 4 /* which count up to this mean of repeats */

dfgnn_ref_sum dfgnn__ref_sum_in(dfgnn_ref_memory *memory, int64_t width,
                                int bounds);
void dfgnn__ref_sum_begin(dfgnn_ref_sum *sum, int64_t terms);
/* Adds factor * x, the k-th term, to the numbers `at` and following, `count` of
 * them. */
void dfgnn__ref_sum_add(const dfgnn_ref_sum *sum, int64_t at, int64_t count,
                        int64_t k, dfgnn_ref_number factor, const double *x);
/* Adds terms[d] to all numbers. */
void dfgnn__ref_sum_add_each(const dfgnn_ref_sum *sum, int64_t k,
                             const dfgnn_ref_number *terms);
/* Counts a shared error of this variance among the own ones of numbers `at` and
 * following: the row that shares it has ended. */
void dfgnn__ref_sum_settle(const dfgnn_ref_sum *sum, int64_t at, int64_t count,
                           double variance);
/* Sum d. */
dfgnn_ref_number dfgnn__ref_sum_number(const dfgnn_ref_sum *sum, int64_t d,
                                       double repeats);
/* Puts all numbers of a sum. */
void dfgnn__ref_put_sum(const dfgnn_ref_result *to, const dfgnn_ref_sum *sum,
                        double repeats);

/* ---- calls and walks ----------------------------------------------------- */

/* Gradients of parameters, to which all rows add. */
enum { DFGNN_REF_TOTALS = 3 };
typedef struct dfgnn_ref_totals {
  dfgnn_ref_sum sum[DFGNN_REF_TOTALS]; /* of width 0: not there */
  double repeats;                      /* the sum of the repeats of all edges */
} dfgnn_ref_totals;

typedef struct dfgnn_ref_call {
  const dfgnn_problem *problem;
  const dfgnn_matrix *matrix;
  const dfgnn_args *args;
  const dfgnn_expected *expected;
  dfgnn_ref_memory memory;
  int64_t *first; /* the number of edges of the rows before one */
  int by_source;  /* of the walk: over columns, not rows */
  dfgnn_ref_totals totals;
  struct dfgnn_ref_known *known; /* of sums: what all threads read */
} dfgnn_ref_call;

dfgnn_ref_call dfgnn__ref_call(const dfgnn_problem *problem,
                               const dfgnn_matrix *matrix,
                               const dfgnn_args *args,
                               const dfgnn_expected *expected);
/* Takes memory for total i. */
void dfgnn__ref_total(dfgnn_ref_call *call, int i, int64_t width);
/* The mean of what walks have added to totals.repeats: `times` an edge. */
double dfgnn__ref_mean_repeats(const dfgnn_ref_call *call, double times);
/* Gives the memory back; fails if there was too little. */
dfgnn_status dfgnn__ref_end(dfgnn_ref_call *call);

/* A thread's own, the first member of what walks have. */
typedef struct dfgnn_ref_thread {
  const dfgnn_ref_call *call;
  int32_t *order;          /* for the edges of a node */
  dfgnn_ref_totals totals; /* not of walks over columns */
} dfgnn_ref_thread;

/* A walk over the rows or columns that are expected. */
typedef struct dfgnn_ref_walk {
  int all;       /* 1: over all of them */
  size_t thread; /* bytes, zeros at first */
  void (*begin)(void *thread, dfgnn_ref_memory *memory);
  void (*visit)(void *thread, int64_t i, int64_t node); /* the i-th node */
} dfgnn_ref_walk;

/* Does nothing where memory has failed. */
void dfgnn__ref_walk(const dfgnn_ref_walk *walk, dfgnn_ref_call *call);

#endif
