/* reference.c - reading and writing numbers for the references */
#include "kernels/common/reference.h"

#include <stdlib.h>

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

/* One loop a type: this is where references spend their time. */
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
