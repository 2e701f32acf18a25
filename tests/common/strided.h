/* strided.h - the tensors of a problem with strides of their own, which the
 * harness does not make */
#ifndef DFGNN_TESTS_STRIDED_H
#define DFGNN_TESTS_STRIDED_H

#include "lib/context.h"
#include "tests/common/shapes.h"

typedef struct strided strided;

/* shift: how many numbers behind an aligned address tensors begin.  Returns
 * NULL, with dfgnn_last_error(), if something fails. */
strided *strided_make(dfgnn_context *ctx, const shape *shape,
                      const dfgnn_problem *problem,
                      const dfgnn_strides *strides, int shift, unsigned seed);
void strided_free(strided *s, dfgnn_context *ctx);

/* Executes and compares what is written with the reference: the largest error
 * as a part of what rounding allows (kernels/common/accuracy.h), > 1 if it is
 * wrong; INFINITY if a call fails or something between the features is
 * written. */
double strided_error(strided *s, dfgnn_context *ctx, dfgnn_plan *plan);

#endif
