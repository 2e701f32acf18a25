/* reference.h - what the float64 references of all operators share
 *
 * A reference computes by the formulas, row by row, on host arrays; every other
 * variant is compared with it. */
#ifndef DFGNN_KERNELS_REFERENCE_H
#define DFGNN_KERNELS_REFERENCE_H

#include "kernels/common/variant.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Which results to compute. */
typedef struct dfgnn_expected {
  /* Destinations, for results by destination or edge; NULL: 0 .. count - 1. */
  const int64_t *rows;
  int64_t row_count;
  /* Sources, for results by source; NULL: 0 .. count - 1. */
  const int64_t *columns;
  int64_t column_count;
  const dfgnn_view *transpose; /* on the host; NULL: nothing by source */
  /* Its outputs point to arrays of double, NULL: not wanted.  Dense, heads
   * before features: [row_count or column_count, ...], or the edges of the rows
   * in order.  Results of no node are wanted with all rows only. */
  dfgnn_args to;
} dfgnn_expected;

typedef dfgnn_status (*dfgnn_reference)(const dfgnn_problem *problem,
                                        const dfgnn_matrix *matrix,
                                        const dfgnn_args *args,
                                        const dfgnn_expected *expected);

/* ---- numbers in their storage type --------------------------------------- */

int64_t dfgnn__ref_offset(const dfgnn_matrix *matrix, int64_t row);
/* An element of a transposed view's array[2]. */
int64_t dfgnn__ref_edge(const dfgnn_matrix *matrix, const dfgnn_view *transpose,
                        int64_t k);
double dfgnn__ref_scalar(const dfgnn_problem *problem, const void *array,
                         int64_t i);
void dfgnn__ref_set_scalar(const dfgnn_problem *problem, void *array, int64_t i,
                           double x);
/* The features of one node and head, exactly converted. */
void dfgnn__ref_load(double *to, const dfgnn_problem *problem,
                     const void *array, const dfgnn_strides *strides,
                     int64_t node, int64_t head);
void dfgnn__ref_store(const dfgnn_problem *problem, void *array,
                      const dfgnn_strides *strides, int64_t node, int64_t head,
                      const double *from);
/* Of all nodes and heads. */
void dfgnn__ref_store_nodes(const dfgnn_problem *problem, void *array,
                            const dfgnn_strides *strides, int64_t nodes,
                            const double *from);
/* first[k] = how many edges the rows before the k-th have; NULL without memory.
 */
int64_t *dfgnn__ref_first_edges(const dfgnn_matrix *matrix,
                                const dfgnn_expected *expected);

#ifdef __cplusplus
}
#endif
#endif
