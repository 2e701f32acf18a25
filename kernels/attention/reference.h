/* reference.h - float64 forward attention by the formulas, row by row
 *
 * What every other variant is compared with.  All arrays are host memory; args
 * must be complete (dfgnn__args_complete). */
#ifndef DFGNN_ATTENTION_REFERENCE_H
#define DFGNN_ATTENTION_REFERENCE_H

#include "kernels/common/variant.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Computes the rows[0 .. count - 1] (NULL: rows 0 .. count - 1): out [count,H,D],
 * lse [count,H], weights [edges of those rows in order, H]; lse and weights may
 * be NULL.  Inputs are read in their storage type and converted exactly. */
dfgnn_status dfgnn__attention_reference(const dfgnn_problem *problem,
                                        const dfgnn_matrix *matrix,
                                        const dfgnn_args *args,
                                        const int64_t *rows, int64_t count,
                                        double *out, double *lse,
                                        double *weights);

#ifdef __cplusplus
}
#endif
#endif
