/* answer.h - a kernel that gives the results of the reference */
#ifndef DFGNN_TESTS_ANSWER_H
#define DFGNN_TESTS_ANSWER_H

#include "kernels/common/host_view.h"
#include "lib/operator.h"
#include "lib/views.h"
#include "tests/unit/fixture.h"
#include "tuner/guarded.h"

static inline void answer_in(const dfgnn_tensor *t,
                             const dfgnn_problem *problem, dfgnn_args *args,
                             int64_t numbers, const double *from) {
  void *to = *dfgnn__tensor_slot(t, args);
  const int64_t dim = problem->dim, row = problem->heads * dim;
  const int scalar =
      t->element == DFGNN_ELEMENT_SCALAR && problem->dtype != DFGNN_F64;
  const dfgnn_strides *s = (const dfgnn_strides *)((char *)args + t->strides);
  for (int64_t i = 0; i < numbers; i++)
    if (t->element == DFGNN_ELEMENT_INDEX)
      ((int32_t *)to)[i] = (int32_t)from[i];
    else
      dfgnn__set_number(scalar ? DFGNN_F32 : problem->dtype, to,
                        t->strides
                            ? i / row * s->node + i % row / dim * s->head +
                                  i % dim * s->feature
                            : i,
                        from[i]);
}

/* Computes all outputs that args have, which are complete. */
static inline dfgnn_status answer(const dfgnn_problem *problem,
                                  const dfgnn_matrix *m,
                                  const dfgnn_args *complete) {
  const dfgnn_operator *op = dfgnn__operator(problem->op, problem->pass);
  dfgnn_args args = *complete;
  dfgnn_view transpose = {.request.kind = DFGNN_VIEW_TRANSPOSE};
  ck_ok(dfgnn__view_build(&transpose, m));
  dfgnn_expected expected = {.row_count = m->destinations,
                             .column_count = m->sources,
                             .transpose = &transpose};
  double *results[DFGNN_MAX_TENSORS] = {NULL};
  int64_t numbers[DFGNN_MAX_TENSORS];
  for (int i = 0; op->tensors[i].name; i++) {
    const dfgnn_tensor *t = &op->tensors[i];
    numbers[i] = dfgnn__tensor_elements(t, problem, m->destinations, m->sources,
                                        m->edges);
    if (dfgnn__role_reads(t->role) || !*dfgnn__tensor_slot(t, &args))
      continue;
    results[i] = calloc((size_t)numbers[i] + 1, sizeof *results[i]);
    *dfgnn__tensor_slot(t, &expected.to) = results[i];
  }
  dfgnn_status status = op->reference(problem, m, &args, &expected);
  for (int i = 0; op->tensors[i].name; i++)
    if (results[i]) {
      answer_in(&op->tensors[i], problem, &args, numbers[i], results[i]);
      free(results[i]);
    }
  for (int k = 0; k < 4; k++)
    free((void *)transpose.array[k]);
  return status;
}

#endif
