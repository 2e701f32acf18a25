/* operator.h - the table of operators and of the tensors that each takes
 *
 * Tools, tuner and tests allocate, fill and compare arguments by looping over
 * this table, so that a new operator needs a row here and nothing there. */
#ifndef DFGNN_LIB_OPERATOR_H
#define DFGNN_LIB_OPERATOR_H

#include "dfgnn_operator.h"
#include "kernels/reference/reference.h"

/* Shape of a tensor: the product of the dimensions named, whose letters in
 * dfgnn_tensor_info are N, M, E, H, D and F. */
#define DFGNN_DIM_N 1u  /* destinations */
#define DFGNN_DIM_M 2u  /* sources */
#define DFGNN_DIM_E 4u  /* edges */
#define DFGNN_DIM_H 8u  /* heads */
#define DFGNN_DIM_D 16u /* features */
/* features of an edge; heads x features if projected */
#define DFGNN_DIM_F 32u

static inline int dfgnn__role_reads(dfgnn_role role) {
  return role <= DFGNN_ROLE_SAVED;
}

typedef struct dfgnn_tensor {
  const char *name; /* the field of dfgnn_args */
  size_t offset;    /* of the pointer in dfgnn_args */
  size_t strides;   /* of its dfgnn_strides in dfgnn_args; 0: none */
  uint32_t shape;
  dfgnn_role role;
  dfgnn_element element;
  int gathered; /* 1: a row of it is read for each edge */
  dfgnn_flag flag;
} dfgnn_tensor;

#define DFGNN_MAX_TENSORS 24

typedef struct dfgnn_operator {
  dfgnn_op op;
  dfgnn_pass pass;
  const char *name; /* "gt" */
  const char *kind; /* "attention.fwd": the middle of its families' names */
  dfgnn_tensor tensors[DFGNN_MAX_TENSORS]; /* ends with a NULL name */
  double flops_edge; /* floating-point operations per edge, head and feature */
  /* Algorithms the paper's rule chooses: below its capacity, and above. */
  const char *paper[2];
  int gathers; /* rows that a fused kernel gathers for an edge: GT 2 */
  /* Computes with host arrays and complete arguments. */
  dfgnn_reference reference;
} dfgnn_operator;

/* NULL if the library has none. */
const dfgnn_operator *dfgnn__operator(dfgnn_op op, dfgnn_pass pass);

/* 1 if the problem uses the tensor. */
int dfgnn__tensor_used(const dfgnn_tensor *tensor,
                       const dfgnn_problem *problem);
/* 1 if the call adds to what is in the tensor (problem.accumulate). */
static inline int dfgnn__tensor_added_to(const dfgnn_tensor *tensor,
                                         const dfgnn_problem *problem) {
  return problem->accumulate &&
         (tensor->offset == offsetof(dfgnn_args, grad_query) ||
          tensor->offset == offsetof(dfgnn_args, grad_score_dst));
}
/* 1 if a call may leave the tensor out although the problem uses it; calls are
 * timed without such tensors. */
static inline int dfgnn__tensor_left_out(const dfgnn_tensor *tensor) {
  return tensor->role == DFGNN_ROLE_MODIFIER ||
         (tensor->role == DFGNN_ROLE_OPTIONAL &&
          tensor->flag == DFGNN_FLAG_NONE);
}
/* Position of a tensor in the operator's table, -1 if it has none. */
int dfgnn__tensor_find(const dfgnn_operator *op, const char *name);
/* The same, -1 also if the problem does not use the tensor. */
static inline int dfgnn__tensor_find_used(const dfgnn_operator *op,
                                          const char *name,
                                          const dfgnn_problem *problem) {
  int i = dfgnn__tensor_find(op, name);
  return i >= 0 && dfgnn__tensor_used(&op->tensors[i], problem) ? i : -1;
}

/* Elements of a tensor; DFGNN_MOST_ELEMENTS where there are more, which no
 * memory holds: the bytes of a few such tensors still have a sum. */
#define DFGNN_MOST_ELEMENTS (INT64_MAX / 64)
int64_t dfgnn__tensor_elements(const dfgnn_tensor *tensor,
                               const dfgnn_problem *problem,
                               int64_t destinations, int64_t sources,
                               int64_t edges);
/* The elements of one node or edge, or all of a tensor that has neither. */
int64_t dfgnn__tensor_width(const dfgnn_tensor *tensor,
                            const dfgnn_problem *problem);
/* Bytes of one element of the tensor. */
size_t dfgnn__tensor_element_size(const dfgnn_tensor *tensor,
                                  const dfgnn_problem *problem);
static inline void **dfgnn__tensor_slot(const dfgnn_tensor *tensor,
                                        dfgnn_args *args) {
  return (void **)((char *)args + tensor->offset);
}

/* Compulsory bytes: the graph and each tensor are moved once.  Gather bytes: a
 * gathered row is read for each edge.  Both bound the time from below. */
double dfgnn__compulsory_bytes(const dfgnn_problem *problem,
                               int64_t destinations, int64_t sources,
                               int64_t edges);
double dfgnn__gather_bytes(const dfgnn_problem *problem, int64_t edges);

/* Bytes of the tensors of problem.program, for these rows of each place. */
double dfgnn__edge_program_bytes(const dfgnn_problem *problem,
                                 int64_t destinations, int64_t sources,
                                 int64_t edges);

/* Checks the arguments (the error names the one that is missing or wrong) and
 * fills strides, scale and defaults. */
dfgnn_status dfgnn__args_complete(dfgnn_args *complete, const dfgnn_args *args,
                                  const dfgnn_problem *problem);
/* Checks the problem (the error names the wrong field) and fills defaults. */
dfgnn_status dfgnn__problem_complete(dfgnn_problem *complete,
                                     const dfgnn_problem *problem);

#endif
