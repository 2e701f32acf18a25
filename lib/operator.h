/* operator.h - the table of operators: what tensors each takes
 *
 * Tools, tuner and tests allocate, fill and compare arguments by looping over
 * this table, so that a new operator needs a row here and nothing there. */
#ifndef DFGNN_LIB_OPERATOR_H
#define DFGNN_LIB_OPERATOR_H

#include "kernels/common/variant.h"

/* Shape of a tensor: the product of the dimensions named. */
#define DFGNN_DIM_N 1u  /* destinations */
#define DFGNN_DIM_M 2u  /* sources */
#define DFGNN_DIM_E 4u  /* edges */
#define DFGNN_DIM_H 8u  /* heads */
#define DFGNN_DIM_D 16u /* features */

typedef enum dfgnn_role {
  DFGNN_ROLE_INPUT,
  DFGNN_ROLE_OUTPUT,
  DFGNN_ROLE_OPTIONAL /* an output execute writes only if it is not NULL */
} dfgnn_role;

typedef struct dfgnn_tensor {
  const char *name; /* the field of dfgnn_args */
  size_t offset;    /* of the pointer in dfgnn_args */
  size_t strides;   /* of its dfgnn_strides in dfgnn_args; 0: none */
  uint32_t shape;
  dfgnn_role role;
  int scalar;   /* 1: float or double; 0: the problem's dtype */
  int gathered; /* 1: its row is read once an edge */
} dfgnn_tensor;

#define DFGNN_MAX_TENSORS 12

typedef struct dfgnn_operator {
  dfgnn_op op;
  dfgnn_pass pass;
  const char *name;                        /* "gt" */
  dfgnn_tensor tensors[DFGNN_MAX_TENSORS]; /* ends with a NULL name */
  double flops_edge; /* floating-point operations per edge, head and feature */
  int dot_score;     /* 1: the paper's rule may choose PMF */
  int gathers;       /* distinct rows a fused kernel gathers an edge: GT 2 */
  /* Reference in float64 on host arrays, see kernels/attention/reference.h. */
  dfgnn_status (*reference)(const dfgnn_problem *problem,
                            const dfgnn_matrix *matrix, const dfgnn_args *args,
                            const int64_t *rows, int64_t count, double *out,
                            double *lse, double *weights);
} dfgnn_operator;

/* NULL if the library has none. */
const dfgnn_operator *dfgnn__operator(dfgnn_op op, dfgnn_pass pass);

/* Elements of a tensor. */
int64_t dfgnn__tensor_elements(const dfgnn_tensor *tensor,
                               const dfgnn_problem *problem,
                               int64_t destinations, int64_t sources,
                               int64_t edges);
/* Bytes of one of its elements. */
size_t dfgnn__tensor_element_size(const dfgnn_tensor *tensor,
                                  const dfgnn_problem *problem);
static inline void **dfgnn__tensor_slot(const dfgnn_tensor *tensor,
                                        dfgnn_args *args) {
  return (void **)((char *)args + tensor->offset);
}

/* Compulsory bytes: the graph and each tensor once.  Gather bytes: each row
 * gathered read once an edge.  (design: floors C and G) */
double dfgnn__compulsory_bytes(const dfgnn_problem *problem,
                               int64_t destinations, int64_t sources,
                               int64_t edges);
double dfgnn__gather_bytes(const dfgnn_problem *problem, int64_t edges);

/* Names the missing or wrong argument; fills strides, scale and defaults. */
dfgnn_status dfgnn__args_complete(dfgnn_args *complete, const dfgnn_args *args,
                                  const dfgnn_problem *problem);
/* Names the wrong field; fills defaults. */
dfgnn_status dfgnn__problem_complete(dfgnn_problem *complete,
                                     const dfgnn_problem *problem);

#endif
