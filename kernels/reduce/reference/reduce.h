/* reduce.h - float64 reductions by the formulas, forward and backward */
#ifndef DFGNN_REDUCE_REFERENCE_H
#define DFGNN_REDUCE_REFERENCE_H

#include "kernels/common/reference.h"

#ifdef __cplusplus
extern "C" {
#endif

dfgnn_status dfgnn__reduce_reference(const dfgnn_problem *problem,
                                     const dfgnn_matrix *matrix,
                                     const dfgnn_args *args,
                                     const dfgnn_expected *expected);
dfgnn_status dfgnn__reduce_backward_reference(const dfgnn_problem *problem,
                                              const dfgnn_matrix *matrix,
                                              const dfgnn_args *args,
                                              const dfgnn_expected *expected);

#ifdef __cplusplus
}
#endif
#endif
