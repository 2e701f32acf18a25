/* spmm.h - float64 SpMM by the formulas, forward and backward */
#ifndef DFGNN_SPMM_REFERENCE_H
#define DFGNN_SPMM_REFERENCE_H

#include "kernels/common/reference.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The product of both ends' scales; 1 without them. */
double dfgnn__spmm_reference_scale(const dfgnn_problem *problem,
                                   const dfgnn_args *args, int64_t row,
                                   int64_t column);
/* The factor of x_j in out_i, for the edge e = (i, j). */
double dfgnn__spmm_reference_factor(const dfgnn_problem *problem,
                                    const dfgnn_matrix *matrix,
                                    const dfgnn_args *args, int64_t row,
                                    int64_t column, int64_t edge, int64_t head);

dfgnn_status dfgnn__spmm_reference(const dfgnn_problem *problem,
                                   const dfgnn_matrix *matrix,
                                   const dfgnn_args *args,
                                   const dfgnn_expected *expected);
dfgnn_status dfgnn__spmm_backward_reference(const dfgnn_problem *problem,
                                            const dfgnn_matrix *matrix,
                                            const dfgnn_args *args,
                                            const dfgnn_expected *expected);

#ifdef __cplusplus
}
#endif
#endif
