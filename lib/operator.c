#include "lib/operator.h"

#include <math.h>
#include <string.h>

#include "base/error.h"
#include "kernels/attention/reference.h"

#define N DFGNN_DIM_N
#define M DFGNN_DIM_M
#define E DFGNN_DIM_E
#define H DFGNN_DIM_H
#define D DFGNN_DIM_D

#define STRIDED(field)                                                         \
#field, offsetof(dfgnn_args, field), offsetof(dfgnn_args, field##_strides)
#define DENSE(field) #field, offsetof(dfgnn_args, field), 0

#define OUTPUTS                                                                \
  {STRIDED(out), N | H | D, DFGNN_ROLE_OUTPUT, 0, 0},                          \
      {DENSE(lse), N | H, DFGNN_ROLE_OPTIONAL, 1, 0},                          \
      {DENSE(weights), E | H, DFGNN_ROLE_OPTIONAL, 1, 0}, {                    \
    0                                                                          \
  }

static const dfgnn_operator operators[] = {
    {.op = DFGNN_OP_GT,
     .name = "gt",
     .tensors = {{STRIDED(query), N | H | D, DFGNN_ROLE_INPUT, 0, 0},
                 {STRIDED(key), M | H | D, DFGNN_ROLE_INPUT, 0, 1},
                 {STRIDED(value), M | H | D, DFGNN_ROLE_INPUT, 0, 1},
                 OUTPUTS},
     .flops_edge = 4,
     .dot_score = 1,
     .gathers = 2,
     .reference = dfgnn__attention_reference},
    {.op = DFGNN_OP_AGNN,
     .name = "agnn",
     .tensors = {{STRIDED(query), N | H | D, DFGNN_ROLE_INPUT, 0, 0},
                 {STRIDED(value), M | H | D, DFGNN_ROLE_INPUT, 0, 1},
                 {DENSE(beta), 0, DFGNN_ROLE_INPUT, 1, 0},
                 OUTPUTS},
     .flops_edge = 4,
     .dot_score = 1,
     .gathers = 1,
     .reference = dfgnn__attention_reference},
    {.op = DFGNN_OP_GAT,
     .name = "gat",
     .tensors = {{STRIDED(value), M | H | D, DFGNN_ROLE_INPUT, 0, 1},
                 {DENSE(score_dst), N | H, DFGNN_ROLE_INPUT, 1, 0},
                 {DENSE(score_src), M | H, DFGNN_ROLE_INPUT, 1, 1},
                 OUTPUTS},
     .flops_edge = 2,
     .gathers = 1,
     .reference = dfgnn__attention_reference},
    {.op = DFGNN_OP_GATV2,
     .name = "gatv2",
     .tensors = {{STRIDED(query), N | H | D, DFGNN_ROLE_INPUT, 0, 0},
                 {STRIDED(value), M | H | D, DFGNN_ROLE_INPUT, 0, 1},
                 {DENSE(att), H | D, DFGNN_ROLE_INPUT, 0, 0},
                 OUTPUTS},
     .flops_edge = 6,
     .gathers = 1,
     .reference = dfgnn__attention_reference},
};

#undef N
#undef M
#undef E
#undef H
#undef D

const dfgnn_operator *dfgnn__operator(dfgnn_op op, dfgnn_pass pass) {
  for (size_t i = 0; i < sizeof operators / sizeof *operators; i++)
    if (operators[i].op == op && operators[i].pass == pass)
      return &operators[i];
  return NULL;
}

int64_t dfgnn__tensor_elements(const dfgnn_tensor *tensor,
                               const dfgnn_problem *problem,
                               int64_t destinations, int64_t sources,
                               int64_t edges) {
  const int64_t extents[] = {destinations, sources, edges, problem->heads,
                             problem->dim};
  int64_t elements = 1;
  for (int i = 0; i < 5; i++)
    if (tensor->shape & (1u << i))
      elements *= extents[i];
  return elements;
}

size_t dfgnn__tensor_element_size(const dfgnn_tensor *tensor,
                                  const dfgnn_problem *problem) {
  if (!tensor->scalar)
    return dfgnn_dtype_size(problem->dtype);
  return problem->dtype == DFGNN_F64 ? sizeof(double) : sizeof(float);
}

static int written(const dfgnn_tensor *tensor, const dfgnn_problem *problem) {
  return tensor->role != DFGNN_ROLE_OPTIONAL ||
         (problem->weights && !strcmp(tensor->name, "weights"));
}

double dfgnn__compulsory_bytes(const dfgnn_problem *problem,
                               int64_t destinations, int64_t sources,
                               int64_t edges) {
  const dfgnn_operator *op = dfgnn__operator(problem->op, problem->pass);
  double bytes = 4.0 * (double)(destinations + 1) + 4.0 * (double)edges;
  for (const dfgnn_tensor *t = op->tensors; t->name; t++)
    if (written(t, problem))
      bytes += (double)dfgnn__tensor_elements(t, problem, destinations, sources,
                                              edges) *
               (double)dfgnn__tensor_element_size(t, problem);
  return bytes;
}

double dfgnn__gather_bytes(const dfgnn_problem *problem, int64_t edges) {
  const dfgnn_operator *op = dfgnn__operator(problem->op, problem->pass);
  double bytes = 0;
  for (const dfgnn_tensor *t = op->tensors; t->name; t++)
    if (t->gathered)
      bytes += (double)dfgnn__tensor_elements(t, problem, 0, 1, 0) *
               (double)dfgnn__tensor_element_size(t, problem);
  return bytes * (double)edges;
}

static void dense_strides(dfgnn_strides *strides,
                          const dfgnn_problem *problem) {
  if (strides->node || strides->head || strides->feature)
    return;
  int ndh = problem->layout == DFGNN_LAYOUT_NDH;
  strides->node = problem->heads * problem->dim;
  strides->head = ndh ? 1 : problem->dim;
  strides->feature = ndh ? problem->heads : 1;
}

dfgnn_status dfgnn__args_complete(dfgnn_args *complete, const dfgnn_args *args,
                                  const dfgnn_problem *problem) {
  if (!args)
    return dfgnn__fail(DFGNN_ERROR_INVALID, "args is NULL");
  if (args->struct_size != sizeof *args)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "args.struct_size is %zu, expected %zu: use "
                       "DFGNN_ARGS_INIT",
                       args->struct_size, sizeof *args);
  const dfgnn_operator *op = dfgnn__operator(problem->op, problem->pass);
  *complete = *args;
  if (!problem->weights)
    complete->weights = NULL;
  for (const dfgnn_tensor *t = op->tensors; t->name; t++) {
    void *pointer = *dfgnn__tensor_slot(t, complete);
    if (t->strides)
      dense_strides((dfgnn_strides *)((char *)complete + t->strides), problem);
    int optional = t->role == DFGNN_ROLE_OPTIONAL || t->shape == 0;
    if (!pointer && !optional)
      return dfgnn__fail(DFGNN_ERROR_INVALID,
                         "args.%s is NULL; operator %s needs it", t->name,
                         op->name);
  }
  if (problem->weights && !complete->weights)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "args.weights is NULL, but problem.weights is set");
  if (complete->scale == 0)
    complete->scale = 1 / sqrt((double)problem->dim);
  return DFGNN_OK;
}

dfgnn_status dfgnn__problem_complete(dfgnn_problem *complete,
                                     const dfgnn_problem *problem) {
  if (!problem)
    return dfgnn__fail(DFGNN_ERROR_INVALID, "problem is NULL");
  if (problem->struct_size != sizeof *problem)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "problem.struct_size is %zu, expected %zu: use "
                       "DFGNN_PROBLEM_INIT",
                       problem->struct_size, sizeof *problem);
#define RANGE(field, count)                                                    \
  if ((int)problem->field < 0 || (int)problem->field >= (int)(count))          \
  return dfgnn__fail(DFGNN_ERROR_INVALID,                                      \
                     "problem." #field " is %d, expected "                     \
                     "0..%d",                                                  \
                     (int)problem->field, (int)(count)-1)
  RANGE(op, DFGNN_OP_COUNT);
  RANGE(pass, DFGNN_PASS_COUNT);
  RANGE(dtype, DFGNN_DTYPE_COUNT);
  RANGE(math, DFGNN_MATH_COUNT);
  RANGE(layout, DFGNN_LAYOUT_COUNT);
  RANGE(effort, DFGNN_EFFORT_PAPER + 1);
#undef RANGE
  if (problem->heads < 1 || problem->heads > 65535)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "problem.heads is %lld, expected 1..65535",
                       (long long)problem->heads);
  if (problem->dim < 1 || problem->dim > 65536)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "problem.dim is %lld, expected 1..65536",
                       (long long)problem->dim);
  memset(complete, 0, sizeof *complete); /* padding too: it is hashed */
  complete->struct_size = sizeof *complete;
  complete->op = problem->op;
  complete->pass = problem->pass;
  complete->dtype = problem->dtype;
  complete->math = problem->dtype == DFGNN_F32 ? problem->math : DFGNN_MATH_F32;
  /* One head has the same elements in both layouts. */
  complete->layout = problem->heads == 1 ? DFGNN_LAYOUT_NHD : problem->layout;
  complete->effort = problem->effort;
  complete->heads = problem->heads;
  complete->dim = problem->dim;
  complete->deterministic = !!problem->deterministic;
  complete->weights = !!problem->weights;
  complete->cold = !!problem->cold;
  complete->max_workspace =
      problem->max_workspace < 0 ? -1 : problem->max_workspace;
  return DFGNN_OK;
}
