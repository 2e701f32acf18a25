#include "lib/operator.h"

#include <math.h>
#include <string.h>

#include "base/error.h"
#include "kernels/attention/reference/attention.h"
#include "kernels/reduce/reference/reduce.h"
#include "kernels/spmm/reference/spmm.h"

#define N DFGNN_DIM_N
#define M DFGNN_DIM_M
#define E DFGNN_DIM_E
#define H DFGNN_DIM_H
#define D DFGNN_DIM_D

/* A field of dfgnn_args with strides of its own, of another field, or none. */
#define STRIDED_AS(field, other)                                               \
#field, offsetof(dfgnn_args, field), offsetof(dfgnn_args, other##_strides)
#define STRIDED(field) STRIDED_AS(field, field)
#define DENSE(field) #field, offsetof(dfgnn_args, field), 0

#define INPUT DFGNN_ROLE_INPUT, DFGNN_ELEMENT_STORAGE, 0, 0
#define INPUT_SCALAR DFGNN_ROLE_INPUT, DFGNN_ELEMENT_SCALAR, 0, 0
#define GATHERED DFGNN_ROLE_INPUT, DFGNN_ELEMENT_STORAGE, 1, 0
#define GATHERED_SCALAR DFGNN_ROLE_INPUT, DFGNN_ELEMENT_SCALAR, 1, 0
#define MODIFIER DFGNN_ROLE_MODIFIER, DFGNN_ELEMENT_SCALAR, 0, 0
#define SAVED DFGNN_ROLE_SAVED, DFGNN_ELEMENT_STORAGE, 0, 0
#define SAVED_SCALAR DFGNN_ROLE_SAVED, DFGNN_ELEMENT_SCALAR, 0, 0
#define SAVED_INDEX DFGNN_ROLE_SAVED, DFGNN_ELEMENT_INDEX, 0, 0
#define OUTPUT DFGNN_ROLE_OUTPUT, DFGNN_ELEMENT_STORAGE, 0, 0
#define OPTIONAL_SCALAR DFGNN_ROLE_OPTIONAL, DFGNN_ELEMENT_SCALAR, 0, 0
#define OPTIONAL_INDEX DFGNN_ROLE_OPTIONAL, DFGNN_ELEMENT_INDEX, 0, 0
#define GRADIENT DFGNN_ROLE_GRADIENT, DFGNN_ELEMENT_STORAGE, 0, 0
#define GRADIENT_SCALAR DFGNN_ROLE_GRADIENT, DFGNN_ELEMENT_SCALAR, 0, 0

#define BIAS                                                                   \
  {                                                                            \
    DENSE(bias), E | H, DFGNN_ROLE_INPUT, DFGNN_ELEMENT_SCALAR, 0,             \
        DFGNN_FLAG_BIAS                                                        \
  }

/* ---- attention ----------------------------------------------------------- */

#define ATTENTION_FORWARD                                                      \
  BIAS, {STRIDED(out), N | H | D, OUTPUT},                                     \
      {DENSE(lse), N | H, OPTIONAL_SCALAR},                                    \
      {DENSE(weights),       E | H, DFGNN_ROLE_OPTIONAL,                       \
       DFGNN_ELEMENT_SCALAR, 0,     DFGNN_FLAG_WEIGHTS},                       \
  {                                                                            \
    0                                                                          \
  }

#define ATTENTION_SAVED                                                        \
  BIAS, {STRIDED(out), N | H | D, SAVED}, { DENSE(lse), N | H, SAVED_SCALAR }

#define ATTENTION_BACKWARD                                                     \
  {STRIDED(grad_out), N | H | D, GATHERED},                                    \
      {DENSE(grad_lse), N | H, MODIFIER},                                      \
      {DENSE(grad_bias),     E | H, DFGNN_ROLE_GRADIENT,                       \
       DFGNN_ELEMENT_SCALAR, 0,     DFGNN_FLAG_BIAS},                          \
  {                                                                            \
    0                                                                          \
  }

/* ---- SpMM and reductions ------------------------------------------------- */

#define SCALES                                                                 \
  {DENSE(scale_dst), N, MODIFIER}, { DENSE(scale_src), M, MODIFIER }
#define GATHERED_VALUE                                                         \
  { STRIDED(value), M | H | D, GATHERED }
#define OUT                                                                    \
  { STRIDED(out), N | H | D, OUTPUT }
#define ARG(which)                                                             \
  { DENSE(which), N | H | D, OPTIONAL_INDEX }
#define SAVED_ARG(which)                                                       \
  { DENSE(which), N | H | D, SAVED_INDEX }
#define GRAD_OUT                                                               \
  { STRIDED(grad_out), N | H | D, GATHERED }
#define GRAD_VALUE                                                             \
  { STRIDED(grad_value), M | H | D, GRADIENT }
#define END                                                                    \
  { 0 }

#define REDUCE(which, label)                                                   \
  .op = DFGNN_OP_REDUCE_##which, .name = "reduce-" label,                      \
  .paper = {"row", "row"}, .gathers = 1

static const dfgnn_operator operators[] = {
    {.op = DFGNN_OP_GT,
     .name = "gt",
     .kind = "attention.fwd",
     .tensors = {{STRIDED(query), N | H | D, INPUT},
                 {STRIDED(key), M | H | D, GATHERED},
                 {STRIDED(value), M | H | D, GATHERED},
                 ATTENTION_FORWARD},
     .flops_edge = 4,
     .paper = {"smmf", "pmf"},
     .gathers = 2,
     .reference = dfgnn__attention_reference},
    {.op = DFGNN_OP_AGNN,
     .name = "agnn",
     .kind = "attention.fwd",
     .tensors = {{STRIDED(query), N | H | D, INPUT},
                 {STRIDED(value), M | H | D, GATHERED},
                 {DENSE(beta), 0, INPUT_SCALAR},
                 ATTENTION_FORWARD},
     .flops_edge = 4,
     .paper = {"smmf", "pmf"},
     .gathers = 1,
     .reference = dfgnn__attention_reference},
    {.op = DFGNN_OP_GAT,
     .name = "gat",
     .kind = "attention.fwd",
     .tensors = {{STRIDED(value), M | H | D, GATHERED},
                 {DENSE(score_dst), N | H, INPUT_SCALAR},
                 {DENSE(score_src), M | H, GATHERED_SCALAR},
                 ATTENTION_FORWARD},
     .flops_edge = 2,
     .paper = {"smmf", "smmf"},
     .gathers = 1,
     .reference = dfgnn__attention_reference},
    {.op = DFGNN_OP_GATV2,
     .name = "gatv2",
     .kind = "attention.fwd",
     .tensors = {{STRIDED(query), N | H | D, INPUT},
                 {STRIDED(value), M | H | D, GATHERED},
                 {DENSE(att), H | D, INPUT},
                 ATTENTION_FORWARD},
     .flops_edge = 6,
     .paper = {"smmf", "smmf"},
     .gathers = 1,
     .reference = dfgnn__attention_reference},

    {.op = DFGNN_OP_GT,
     .pass = DFGNN_PASS_BACKWARD,
     .name = "gt",
     .kind = "attention.bwd",
     .tensors = {{STRIDED(query), N | H | D, GATHERED},
                 {STRIDED(key), M | H | D, GATHERED},
                 {STRIDED(value), M | H | D, GATHERED},
                 ATTENTION_SAVED,
                 {STRIDED(grad_query), N | H | D, GRADIENT},
                 {STRIDED(grad_key), M | H | D, GRADIENT},
                 {STRIDED(grad_value), M | H | D, GRADIENT},
                 ATTENTION_BACKWARD},
     .flops_edge = 14,
     .paper = {"spill", "spill"},
     .gathers = 4,
     .reference = dfgnn__attention_backward_reference},
    {.op = DFGNN_OP_AGNN,
     .pass = DFGNN_PASS_BACKWARD,
     .name = "agnn",
     .kind = "attention.bwd",
     .tensors = {{STRIDED(query), N | H | D, GATHERED},
                 {STRIDED(value), M | H | D, GATHERED},
                 {DENSE(beta), 0, INPUT_SCALAR},
                 ATTENTION_SAVED,
                 {STRIDED(grad_query), N | H | D, GRADIENT},
                 {STRIDED(grad_value), M | H | D, GRADIENT},
                 {DENSE(grad_beta), 0, GRADIENT_SCALAR},
                 ATTENTION_BACKWARD},
     .flops_edge = 14,
     .paper = {"spill", "spill"},
     .gathers = 3,
     .reference = dfgnn__attention_backward_reference},
    {.op = DFGNN_OP_GAT,
     .pass = DFGNN_PASS_BACKWARD,
     .name = "gat",
     .kind = "attention.bwd",
     .tensors = {{STRIDED(value), M | H | D, INPUT},
                 {DENSE(score_dst), N | H, GATHERED_SCALAR},
                 {DENSE(score_src), M | H, INPUT_SCALAR},
                 ATTENTION_SAVED,
                 {STRIDED(grad_value), M | H | D, GRADIENT},
                 {DENSE(grad_score_dst), N | H, GRADIENT_SCALAR},
                 {DENSE(grad_score_src), M | H, GRADIENT_SCALAR},
                 ATTENTION_BACKWARD},
     .flops_edge = 4,
     .paper = {"spill", "spill"},
     .gathers = 1,
     .reference = dfgnn__attention_backward_reference},
    {.op = DFGNN_OP_GATV2,
     .pass = DFGNN_PASS_BACKWARD,
     .name = "gatv2",
     .kind = "attention.bwd",
     .tensors = {{STRIDED(query), N | H | D, GATHERED},
                 {STRIDED(value), M | H | D, GATHERED},
                 {DENSE(att), H | D, INPUT},
                 ATTENTION_SAVED,
                 {STRIDED(grad_query), N | H | D, GRADIENT},
                 {STRIDED(grad_value), M | H | D, GRADIENT},
                 {DENSE(grad_att), H | D, GRADIENT_SCALAR},
                 ATTENTION_BACKWARD},
     .flops_edge = 20,
     .paper = {"spill", "spill"},
     .gathers = 3,
     .reference = dfgnn__attention_backward_reference},

    {.op = DFGNN_OP_SPMM_SUM,
     .name = "spmm-sum",
     .kind = "spmm.fwd",
     .tensors = {GATHERED_VALUE, SCALES, OUT, END},
     .flops_edge = 1,
     .paper = {"row", "row"},
     .gathers = 1,
     .reference = dfgnn__spmm_reference},
    {.op = DFGNN_OP_SPMM_MEAN,
     .name = "spmm-mean",
     .kind = "spmm.fwd",
     .tensors = {GATHERED_VALUE, SCALES, OUT, END},
     .flops_edge = 1,
     .paper = {"row", "row"},
     .gathers = 1,
     .reference = dfgnn__spmm_reference},
    {.op = DFGNN_OP_SPMM_WEIGHTED,
     .name = "spmm-weighted",
     .kind = "spmm.fwd",
     .tensors = {GATHERED_VALUE,
                 {DENSE(edge_weight), E | H, INPUT_SCALAR},
                 SCALES,
                 OUT,
                 END},
     .flops_edge = 2,
     .paper = {"row", "row"},
     .gathers = 1,
     .reference = dfgnn__spmm_reference},
    {.op = DFGNN_OP_SPMM_SUM,
     .pass = DFGNN_PASS_BACKWARD,
     .name = "spmm-sum",
     .kind = "spmm.bwd",
     .tensors = {GRAD_OUT, SCALES, GRAD_VALUE, END},
     .flops_edge = 1,
     .paper = {"row", "row"},
     .gathers = 1,
     .reference = dfgnn__spmm_backward_reference},
    {.op = DFGNN_OP_SPMM_MEAN,
     .pass = DFGNN_PASS_BACKWARD,
     .name = "spmm-mean",
     .kind = "spmm.bwd",
     .tensors = {GRAD_OUT, SCALES, GRAD_VALUE, END},
     .flops_edge = 1,
     .paper = {"row", "row"},
     .gathers = 1,
     .reference = dfgnn__spmm_backward_reference},
    {.op = DFGNN_OP_SPMM_WEIGHTED,
     .pass = DFGNN_PASS_BACKWARD,
     .name = "spmm-weighted",
     .kind = "spmm.bwd",
     .tensors = {GRAD_OUT,
                 {STRIDED(value), M | H | D, INPUT},
                 {DENSE(edge_weight), E | H, INPUT_SCALAR},
                 SCALES,
                 GRAD_VALUE,
                 {DENSE(grad_edge_weight), E | H, GRADIENT_SCALAR},
                 END},
     .flops_edge = 4,
     .paper = {"row", "row"},
     .gathers = 1,
     .reference = dfgnn__spmm_backward_reference},

    {REDUCE(MIN, "min"), .kind = "reduce.fwd",
     .tensors = {GATHERED_VALUE, OUT, ARG(arg_min), END}, .flops_edge = 1,
     .reference = dfgnn__reduce_reference},
    {REDUCE(MAX, "max"), .kind = "reduce.fwd",
     .tensors = {GATHERED_VALUE, OUT, ARG(arg_max), END}, .flops_edge = 1,
     .reference = dfgnn__reduce_reference},
    {REDUCE(MEAN, "mean"), .kind = "reduce.fwd",
     .tensors = {GATHERED_VALUE, OUT, END}, .flops_edge = 1,
     .reference = dfgnn__reduce_reference},
    {REDUCE(VAR, "var"), .kind = "reduce.fwd",
     .tensors = {GATHERED_VALUE, OUT, END}, .flops_edge = 3,
     .reference = dfgnn__reduce_reference},
    {REDUCE(STD, "std"), .kind = "reduce.fwd",
     .tensors = {GATHERED_VALUE, OUT, END}, .flops_edge = 3,
     .reference = dfgnn__reduce_reference},
    {REDUCE(PNA, "pna"), .kind = "reduce.fwd",
     .tensors = {GATHERED_VALUE,
                 OUT,
                 {STRIDED_AS(out_min, out), N | H | D, OUTPUT},
                 {STRIDED_AS(out_max, out), N | H | D, OUTPUT},
                 {STRIDED_AS(out_std, out), N | H | D, OUTPUT},
                 ARG(arg_min),
                 ARG(arg_max),
                 END},
     .flops_edge = 5, .reference = dfgnn__reduce_reference},
    {REDUCE(MIN, "min"), .pass = DFGNN_PASS_BACKWARD, .kind = "reduce.bwd",
     .tensors = {GRAD_OUT, SAVED_ARG(arg_min), GRAD_VALUE, END},
     .flops_edge = 1, .reference = dfgnn__reduce_backward_reference},
    {REDUCE(MAX, "max"), .pass = DFGNN_PASS_BACKWARD, .kind = "reduce.bwd",
     .tensors = {GRAD_OUT, SAVED_ARG(arg_max), GRAD_VALUE, END},
     .flops_edge = 1, .reference = dfgnn__reduce_backward_reference},
    {REDUCE(MEAN, "mean"), .pass = DFGNN_PASS_BACKWARD, .kind = "reduce.bwd",
     .tensors = {GRAD_OUT, GRAD_VALUE, END}, .flops_edge = 1,
     .reference = dfgnn__reduce_backward_reference},
    {REDUCE(VAR, "var"), .pass = DFGNN_PASS_BACKWARD, .kind = "reduce.bwd",
     .tensors = {GRAD_OUT, GATHERED_VALUE, GRAD_VALUE, END}, .flops_edge = 4,
     .reference = dfgnn__reduce_backward_reference},
    {REDUCE(STD, "std"), .pass = DFGNN_PASS_BACKWARD, .kind = "reduce.bwd",
     .tensors = {GRAD_OUT, GATHERED_VALUE, GRAD_VALUE, END}, .flops_edge = 4,
     .reference = dfgnn__reduce_backward_reference},
    {REDUCE(PNA, "pna"), .pass = DFGNN_PASS_BACKWARD, .kind = "reduce.bwd",
     .tensors = {GRAD_OUT,
                 {STRIDED_AS(grad_out_min, grad_out), N | H | D, GATHERED},
                 {STRIDED_AS(grad_out_max, grad_out), N | H | D, GATHERED},
                 {STRIDED_AS(grad_out_std, grad_out), N | H | D, GATHERED},
                 {STRIDED(value), M | H | D, INPUT},
                 {STRIDED(out), N | H | D, SAVED},
                 {STRIDED_AS(out_std, out), N | H | D, SAVED},
                 SAVED_ARG(arg_min),
                 SAVED_ARG(arg_max),
                 GRAD_VALUE,
                 END},
     .flops_edge = 6, .reference = dfgnn__reduce_backward_reference},
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
  if (tensor->element == DFGNN_ELEMENT_STORAGE)
    return dfgnn_dtype_size(problem->dtype);
  if (tensor->element == DFGNN_ELEMENT_INDEX)
    return sizeof(int32_t);
  return problem->dtype == DFGNN_F64 ? sizeof(double) : sizeof(float);
}

int dfgnn__tensor_used(const dfgnn_tensor *tensor,
                       const dfgnn_problem *problem) {
  return tensor->flag == DFGNN_FLAG_NONE ||
         (tensor->flag == DFGNN_FLAG_WEIGHTS && problem->weights) ||
         (tensor->flag == DFGNN_FLAG_BIAS && problem->bias);
}

int dfgnn__tensor_find(const dfgnn_operator *op, const char *name) {
  for (int i = 0; op->tensors[i].name; i++)
    if (!strcmp(op->tensors[i].name, name))
      return i;
  return -1;
}

/* Does a call that is timed touch the tensor? */
static int touched(const dfgnn_tensor *tensor, const dfgnn_problem *problem) {
  if (tensor->flag != DFGNN_FLAG_NONE)
    return dfgnn__tensor_used(tensor, problem);
  return tensor->role != DFGNN_ROLE_OPTIONAL &&
         tensor->role != DFGNN_ROLE_MODIFIER;
}

double dfgnn__compulsory_bytes(const dfgnn_problem *problem,
                               int64_t destinations, int64_t sources,
                               int64_t edges) {
  const dfgnn_operator *op = dfgnn__operator(problem->op, problem->pass);
  double bytes = 4.0 * (double)(destinations + 1) + 4.0 * (double)edges;
  for (const dfgnn_tensor *t = op->tensors; t->name; t++)
    if (touched(t, problem))
      bytes += (double)dfgnn__tensor_elements(t, problem, destinations, sources,
                                              edges) *
               (double)dfgnn__tensor_element_size(t, problem);
  return bytes;
}

double dfgnn__gather_bytes(const dfgnn_problem *problem, int64_t edges) {
  const dfgnn_operator *op = dfgnn__operator(problem->op, problem->pass);
  double bytes = 0;
  for (const dfgnn_tensor *t = op->tensors; t->name; t++)
    if (t->gathered && touched(t, problem))
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

/* Copies a descriptor of a program built against an older header: what it does
 * not have keeps the value in *to. */
static dfgnn_status take(void *to, size_t size, const void *from, size_t least,
                         const char *what, const char *macro) {
  size_t given;
  if (!from)
    return dfgnn__fail(DFGNN_ERROR_INVALID, "%s is NULL", what);
  memcpy(&given, from, sizeof given);
  if (given < least || given > size)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "%s.struct_size is %zu, expected %zu: use %s", what,
                       given, size, macro);
  memcpy(to, from, given);
  memcpy(to, &size, sizeof size);
  return DFGNN_OK;
}

static dfgnn_status check_tensors(dfgnn_args *complete,
                                  const dfgnn_problem *problem) {
  const dfgnn_operator *op = dfgnn__operator(problem->op, problem->pass);
  int gradients = 0, wanted = 0;
  for (const dfgnn_tensor *t = op->tensors; t->name; t++) {
    void **pointer = dfgnn__tensor_slot(t, complete);
    if (t->strides)
      dense_strides((dfgnn_strides *)((char *)complete + t->strides), problem);
    if (!dfgnn__tensor_used(t, problem)) {
      *pointer = NULL;
      continue;
    }
    if (t->role == DFGNN_ROLE_GRADIENT) {
      gradients++;
      wanted += *pointer != NULL;
    }
    int optional = t->role == DFGNN_ROLE_OPTIONAL ||
                   t->role == DFGNN_ROLE_MODIFIER ||
                   t->role == DFGNN_ROLE_GRADIENT || t->shape == 0;
    if (t->flag == DFGNN_FLAG_WEIGHTS && !*pointer)
      return dfgnn__fail(DFGNN_ERROR_INVALID,
                         "args.weights is NULL, but problem.weights is set");
    if (t->role == DFGNN_ROLE_INPUT && t->flag == DFGNN_FLAG_BIAS && !*pointer)
      return dfgnn__fail(DFGNN_ERROR_INVALID,
                         "args.bias is NULL, but problem.bias is set");
    if (!*pointer && !optional)
      return dfgnn__fail(DFGNN_ERROR_INVALID,
                         "args.%s is NULL; operator %s, %s, needs it", t->name,
                         op->name, dfgnn_pass_name(op->pass));
  }
  if (gradients && !wanted)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "every gradient in args is NULL; operator %s has %d",
                       op->name, gradients);
  return DFGNN_OK;
}

dfgnn_status dfgnn__args_complete(dfgnn_args *complete, const dfgnn_args *args,
                                  const dfgnn_problem *problem) {
  memset(complete, 0, sizeof *complete);
  dfgnn_status status =
      take(complete, sizeof *complete, args, offsetof(dfgnn_args, bias), "args",
           "DFGNN_ARGS_INIT");
  if (!status)
    status = check_tensors(complete, problem);
  if (status)
    return status;
  if (complete->scale == 0)
    complete->scale = 1 / sqrt((double)problem->dim);
  if (!problem->dropout)
    complete->dropout = 0;
  else if (!(complete->dropout >= 0 && complete->dropout < 1))
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "args.dropout is %g, expected 0 <= dropout < 1",
                       complete->dropout);
  return DFGNN_OK;
}

dfgnn_status dfgnn__problem_complete(dfgnn_problem *complete,
                                     const dfgnn_problem *problem) {
  dfgnn_problem taken = DFGNN_PROBLEM_INIT;
  dfgnn_status status =
      take(&taken, sizeof taken, problem, offsetof(dfgnn_problem, bias),
           "problem", "DFGNN_PROBLEM_INIT");
  if (status)
    return status;
  problem = &taken;
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
  complete->bias = !!problem->bias;
  complete->dropout = !!problem->dropout;
  int attention =
      DFGNN_OPS_ATTENTION >> problem->op & 1; /* the flags are its own */
  if (!attention && (complete->bias || complete->dropout || complete->weights))
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "problem.%s is set, which operator %s does not have",
                       complete->bias      ? "bias"
                       : complete->dropout ? "dropout"
                                           : "weights",
                       dfgnn_op_name(problem->op));
  if (complete->weights && problem->pass == DFGNN_PASS_BACKWARD)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "problem.weights is set; the backward pass writes no "
                       "weights");
  return DFGNN_OK;
}
