#include "lib/operator.h"

#include <string.h>

#include "kernels/reference/attention.h"
#include "kernels/reference/sums.h"

#define N DFGNN_DIM_N
#define M DFGNN_DIM_M
#define E DFGNN_DIM_E
#define H DFGNN_DIM_H
#define D DFGNN_DIM_D
#define F DFGNN_DIM_F

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

/* A tensor that only problems with DFGNN_FLAG_<label> have. */
#define ONLY(label, field, shape, part, kind)                                  \
  {                                                                            \
    field, shape, DFGNN_ROLE_##part, DFGNN_ELEMENT_##kind, 0,                  \
        DFGNN_FLAG_##label                                                     \
  }
#define ONLY_GATHERED(label, field, shape)                                     \
  {                                                                            \
    field, shape, DFGNN_ROLE_INPUT, DFGNN_ELEMENT_STORAGE, 1,                  \
        DFGNN_FLAG_##label                                                     \
  }

/* ---- edge features ------------------------------------------------------- */

#define EDGES                                                                  \
  ONLY(EDGE, DENSE(edge_attr), E | F, INPUT, STORAGE),                         \
      ONLY(PROJECTION, DENSE(edge_projection), H | D | F, INPUT, STORAGE),     \
      ONLY(PROJECTION, DENSE(edge_bias), H | D, MODIFIER, STORAGE)
#define GRAD_EDGES                                                             \
  ONLY(EDGE, DENSE(grad_edge_attr), E | F, GRADIENT, STORAGE),                 \
      ONLY(PROJECTION, DENSE(grad_edge_projection), H | D | F, GRADIENT,       \
           SCALAR),                                                            \
      ONLY(PROJECTION, DENSE(grad_edge_bias), H | D, GRADIENT, SCALAR)

/* ---- attention ----------------------------------------------------------- */

#define SCORE_EDGE ONLY(EDGE, DENSE(score_edge), E | H, INPUT, SCALAR)
#define GRAD_SCORE_EDGE                                                        \
  ONLY(EDGE, DENSE(grad_score_edge), E | H, GRADIENT, SCALAR)

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
/* The inputs and gradients of messages that are not copies. */
#define MESSAGE                                                                \
  EDGES, ONLY(GATE, STRIDED(gate_dst), N | H | D, INPUT, STORAGE),             \
      ONLY_GATHERED(GATE, STRIDED(gate_src), M | H | D)
#define GRAD_MESSAGE                                                           \
  EDGES, ONLY_GATHERED(GATE, STRIDED(gate_dst), N | H | D),                    \
      ONLY(GATE, STRIDED(gate_src), M | H | D, INPUT, STORAGE), GRAD_EDGES,    \
      ONLY(GATE, STRIDED(grad_gate_dst), N | H | D, GRADIENT, STORAGE),        \
      ONLY(GATE, STRIDED(grad_gate_src), M | H | D, GRADIENT, STORAGE)
/* The value, which gradients read unless the message is a copy. */
#define MESSAGE_VALUE ONLY(MESSAGE, STRIDED(value), M | H | D, INPUT, STORAGE)

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

#define ATTENTION(of, label)                                                   \
  .op = DFGNN_OP_##of, .name = label, .kind = "attention.fwd",                 \
  .reference = dfgnn__attention_reference
#define ATTENTION_GRADIENT(of, label)                                          \
  .op = DFGNN_OP_##of, .pass = DFGNN_PASS_BACKWARD, .name = label,             \
  .kind = "attention.bwd", .paper = {"spill", "spill"},                        \
  .reference = dfgnn__attention_reference
#define SUM(of, label, group)                                                  \
  .op = DFGNN_OP_##of, .name = label, .kind = group ".fwd",                    \
  .paper = {"row", "row"}, .gathers = 1, .reference = dfgnn__sums_reference
#define SUM_GRADIENT(of, label, group)                                         \
  .op = DFGNN_OP_##of, .pass = DFGNN_PASS_BACKWARD, .name = label,             \
  .kind = group ".bwd", .paper = {"row", "row"}, .gathers = 1,                 \
  .reference = dfgnn__sums_reference

static const dfgnn_operator operators[] = {
    {ATTENTION(GT, "gt"), .paper = {"smmf", "pmf"}, .gathers = 2,
     .flops_edge = 4,
     .tensors = {{STRIDED(query), N | H | D, INPUT},
                 {STRIDED(key), M | H | D, GATHERED},
                 {STRIDED(value), M | H | D, GATHERED},
                 EDGES,
                 ATTENTION_FORWARD}},
    {ATTENTION(AGNN, "agnn"), .paper = {"smmf", "pmf"}, .gathers = 1,
     .flops_edge = 4,
     .tensors = {{STRIDED(query), N | H | D, INPUT},
                 {STRIDED(value), M | H | D, GATHERED},
                 {DENSE(beta), 0, INPUT_SCALAR},
                 ATTENTION_FORWARD}},
    {ATTENTION(GAT, "gat"), .paper = {"smmf", "smmf"}, .gathers = 1,
     .flops_edge = 2,
     .tensors = {{STRIDED(value), M | H | D, GATHERED},
                 {DENSE(score_dst), N | H, INPUT_SCALAR},
                 {DENSE(score_src), M | H, GATHERED_SCALAR},
                 SCORE_EDGE,
                 ATTENTION_FORWARD}},
    {ATTENTION(GATV2, "gatv2"), .paper = {"smmf", "smmf"}, .gathers = 1,
     .flops_edge = 6,
     .tensors = {{STRIDED(query), N | H | D, INPUT},
                 {STRIDED(value), M | H | D, GATHERED},
                 {DENSE(att), H | D, INPUT},
                 EDGES,
                 ATTENTION_FORWARD}},
    {ATTENTION_GRADIENT(GT, "gt"), .gathers = 4, .flops_edge = 14,
     .tensors = {{STRIDED(query), N | H | D, GATHERED},
                 {STRIDED(key), M | H | D, GATHERED},
                 {STRIDED(value), M | H | D, GATHERED},
                 EDGES,
                 ATTENTION_SAVED,
                 {STRIDED(grad_query), N | H | D, GRADIENT},
                 {STRIDED(grad_key), M | H | D, GRADIENT},
                 {STRIDED(grad_value), M | H | D, GRADIENT},
                 GRAD_EDGES,
                 ATTENTION_BACKWARD}},
    {ATTENTION_GRADIENT(AGNN, "agnn"), .gathers = 3, .flops_edge = 14,
     .tensors = {{STRIDED(query), N | H | D, GATHERED},
                 {STRIDED(value), M | H | D, GATHERED},
                 {DENSE(beta), 0, INPUT_SCALAR},
                 ATTENTION_SAVED,
                 {STRIDED(grad_query), N | H | D, GRADIENT},
                 {STRIDED(grad_value), M | H | D, GRADIENT},
                 {DENSE(grad_beta), 0, GRADIENT_SCALAR},
                 ATTENTION_BACKWARD}},
    {ATTENTION_GRADIENT(GAT, "gat"), .gathers = 1, .flops_edge = 4,
     .tensors = {{STRIDED(value), M | H | D, INPUT},
                 {DENSE(score_dst), N | H, GATHERED_SCALAR},
                 {DENSE(score_src), M | H, INPUT_SCALAR},
                 SCORE_EDGE,
                 ATTENTION_SAVED,
                 {STRIDED(grad_value), M | H | D, GRADIENT},
                 {DENSE(grad_score_dst), N | H, GRADIENT_SCALAR},
                 {DENSE(grad_score_src), M | H, GRADIENT_SCALAR},
                 GRAD_SCORE_EDGE,
                 ATTENTION_BACKWARD}},
    {ATTENTION_GRADIENT(GATV2, "gatv2"), .gathers = 3, .flops_edge = 20,
     .tensors = {{STRIDED(query), N | H | D, GATHERED},
                 {STRIDED(value), M | H | D, GATHERED},
                 {DENSE(att), H | D, INPUT},
                 EDGES,
                 ATTENTION_SAVED,
                 {STRIDED(grad_query), N | H | D, GRADIENT},
                 {STRIDED(grad_value), M | H | D, GRADIENT},
                 {DENSE(grad_att), H | D, GRADIENT_SCALAR},
                 GRAD_EDGES,
                 ATTENTION_BACKWARD}},
    {SUM(SPMM_SUM, "spmm-sum", "spmm"), .flops_edge = 1,
     .tensors = {GATHERED_VALUE, MESSAGE, SCALES, OUT, END}},
    {SUM(SPMM_MEAN, "spmm-mean", "spmm"), .flops_edge = 1,
     .tensors = {GATHERED_VALUE, MESSAGE, SCALES, OUT, END}},
    {SUM(SPMM_WEIGHTED, "spmm-weighted", "spmm"), .flops_edge = 2,
     .tensors = {GATHERED_VALUE,
                 {DENSE(edge_weight), E | H, INPUT_SCALAR},
                 SCALES,
                 OUT,
                 END}},
    {SUM_GRADIENT(SPMM_SUM, "spmm-sum", "spmm"), .flops_edge = 1,
     .tensors = {GRAD_OUT, MESSAGE_VALUE, GRAD_MESSAGE, SCALES, GRAD_VALUE,
                 END}},
    {SUM_GRADIENT(SPMM_MEAN, "spmm-mean", "spmm"), .flops_edge = 1,
     .tensors = {GRAD_OUT, MESSAGE_VALUE, GRAD_MESSAGE, SCALES, GRAD_VALUE,
                 END}},
    {SUM_GRADIENT(SPMM_WEIGHTED, "spmm-weighted", "spmm"), .flops_edge = 4,
     .tensors = {GRAD_OUT,
                 {STRIDED(value), M | H | D, INPUT},
                 {DENSE(edge_weight), E | H, INPUT_SCALAR},
                 SCALES,
                 GRAD_VALUE,
                 {DENSE(grad_edge_weight), E | H, GRADIENT_SCALAR},
                 END}},
    {SUM(REDUCE_MIN, "reduce-min", "reduce"), .flops_edge = 1,
     .tensors = {GATHERED_VALUE, MESSAGE, OUT, ARG(arg_min), END}},
    {SUM(REDUCE_MAX, "reduce-max", "reduce"), .flops_edge = 1,
     .tensors = {GATHERED_VALUE, MESSAGE, OUT, ARG(arg_max), END}},
    {SUM(REDUCE_MEAN, "reduce-mean", "reduce"), .flops_edge = 1,
     .tensors = {GATHERED_VALUE, MESSAGE, OUT, END}},
    {SUM(REDUCE_VAR, "reduce-var", "reduce"), .flops_edge = 3,
     .tensors = {GATHERED_VALUE, OUT, END}},
    {SUM(REDUCE_STD, "reduce-std", "reduce"), .flops_edge = 3,
     .tensors = {GATHERED_VALUE, OUT, END}},
    {SUM(REDUCE_PNA, "reduce-pna", "reduce"), .flops_edge = 5,
     .tensors = {GATHERED_VALUE,
                 MESSAGE,
                 OUT,
                 {STRIDED_AS(out_min, out), N | H | D, OUTPUT},
                 {STRIDED_AS(out_max, out), N | H | D, OUTPUT},
                 {STRIDED_AS(out_std, out), N | H | D, OUTPUT},
                 ARG(arg_min),
                 ARG(arg_max),
                 END}},
    {SUM_GRADIENT(REDUCE_MIN, "reduce-min", "reduce"), .flops_edge = 1,
     .tensors = {GRAD_OUT, SAVED_ARG(arg_min), MESSAGE_VALUE, GRAD_MESSAGE,
                 GRAD_VALUE, END}},
    {SUM_GRADIENT(REDUCE_MAX, "reduce-max", "reduce"), .flops_edge = 1,
     .tensors = {GRAD_OUT, SAVED_ARG(arg_max), MESSAGE_VALUE, GRAD_MESSAGE,
                 GRAD_VALUE, END}},
    {SUM_GRADIENT(REDUCE_MEAN, "reduce-mean", "reduce"), .flops_edge = 1,
     .tensors = {GRAD_OUT, MESSAGE_VALUE, GRAD_MESSAGE, GRAD_VALUE, END}},
    {SUM_GRADIENT(REDUCE_VAR, "reduce-var", "reduce"), .flops_edge = 4,
     .tensors = {GRAD_OUT, GATHERED_VALUE, GRAD_VALUE, END}},
    {SUM_GRADIENT(REDUCE_STD, "reduce-std", "reduce"), .flops_edge = 4,
     .tensors = {GRAD_OUT, GATHERED_VALUE, GRAD_VALUE, END}},
    {SUM_GRADIENT(REDUCE_PNA, "reduce-pna", "reduce"), .flops_edge = 6,
     .tensors = {GRAD_OUT,
                 {STRIDED_AS(grad_out_min, grad_out), N | H | D, GATHERED},
                 {STRIDED_AS(grad_out_max, grad_out), N | H | D, GATHERED},
                 {STRIDED_AS(grad_out_std, grad_out), N | H | D, GATHERED},
                 {STRIDED(value), M | H | D, INPUT},
                 {STRIDED(out), N | H | D, SAVED},
                 {STRIDED_AS(out_std, out), N | H | D, SAVED},
                 SAVED_ARG(arg_min),
                 SAVED_ARG(arg_max),
                 GRAD_MESSAGE,
                 GRAD_VALUE,
                 END}},

    /* Tensors, and the reference, are those of problem.program. */
    {.op = DFGNN_OP_PROGRAM,
     .pass = DFGNN_PASS_FORWARD,
     .name = "program",
     .kind = "program.fwd",
     .tensors = {END},
     .paper = {"walks", "walks"}},
    {.op = DFGNN_OP_PROGRAM,
     .pass = DFGNN_PASS_BACKWARD,
     .name = "program",
     .kind = "program.bwd",
     .tensors = {END},
     .paper = {"walks", "walks"}},

};
#undef N
#undef M
#undef E
#undef H
#undef D
#undef F

const dfgnn_operator *dfgnn__operator(dfgnn_op op, dfgnn_pass pass) {
  for (size_t i = 0; i < sizeof operators / sizeof *operators; i++)
    if (operators[i].op == op && operators[i].pass == pass)
      return &operators[i];
  return NULL;
}

/* The features of an edge; projected features are those of all heads. */
static int64_t edge_features(const dfgnn_problem *problem) {
  return problem->edge_dim < 0 ? problem->heads * problem->dim
                               : problem->edge_dim;
}

int64_t dfgnn__tensor_elements(const dfgnn_tensor *tensor,
                               const dfgnn_problem *problem,
                               int64_t destinations, int64_t sources,
                               int64_t edges) {
  const int64_t nodes[] = {destinations, sources, edges};
  int64_t elements = dfgnn__tensor_width(tensor, problem);
  for (int i = 0; i < 3; i++)
    if (tensor->shape & (1u << i) &&
        __builtin_mul_overflow(elements, nodes[i], &elements))
      return DFGNN_MOST_ELEMENTS;
  return elements < DFGNN_MOST_ELEMENTS ? elements : DFGNN_MOST_ELEMENTS;
}

int64_t dfgnn__tensor_width(const dfgnn_tensor *tensor,
                            const dfgnn_problem *problem) {
  int64_t heads = tensor->shape & DFGNN_DIM_H ? problem->heads : 1;
  int64_t dim = tensor->shape & DFGNN_DIM_D ? problem->dim : 1;
  if (tensor->flag == DFGNN_FLAG_PROJECTION)
    heads *= dfgnn__message_parts(problem->message);
  return heads * dim *
         (tensor->shape & DFGNN_DIM_F ? edge_features(problem) : 1);
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
  switch (tensor->flag) {
  case DFGNN_FLAG_NONE:
    return 1;
  case DFGNN_FLAG_WEIGHTS:
    return problem->weights;
  case DFGNN_FLAG_BIAS:
    return problem->bias;
  case DFGNN_FLAG_EDGE:
    return problem->edge_dim != 0;
  case DFGNN_FLAG_PROJECTION:
    return problem->edge_dim > 0;
  case DFGNN_FLAG_MESSAGE:
    return problem->message != DFGNN_MESSAGE_COPY;
  case DFGNN_FLAG_GATE:
    return dfgnn__message_gated(problem->message);
  case DFGNN_FLAG_COUNT:
    break;
  }
  return 0;
}

int dfgnn__tensor_find(const dfgnn_operator *op, const char *name) {
  for (int i = 0; op->tensors[i].name; i++)
    if (!strcmp(op->tensors[i].name, name))
      return i;
  return -1;
}

/* Does a call that is timed touch the tensor? */
static int touched(const dfgnn_tensor *tensor, const dfgnn_problem *problem) {
  return dfgnn__tensor_used(tensor, problem) && !dfgnn__tensor_left_out(tensor);
}

double dfgnn__compulsory_bytes(const dfgnn_problem *problem,
                               int64_t destinations, int64_t sources,
                               int64_t edges) {
  const dfgnn_operator *op = dfgnn__operator(problem->op, problem->pass);
  double bytes = 4.0 * (double)(destinations + 1) + 4.0 * (double)edges;
  if (problem->program)
    bytes += dfgnn__edge_program_bytes(problem, destinations, sources, edges);
  for (const dfgnn_tensor *t = op->tensors; t->name; t++)
    if (touched(t, problem))
      bytes += (double)dfgnn__tensor_elements(t, problem, destinations, sources,
                                              edges) *
               (double)dfgnn__tensor_element_size(t, problem);
  return bytes;
}

double dfgnn__gather_bytes(const dfgnn_problem *problem, int64_t edges) {
  const dfgnn_operator *op = dfgnn__operator(problem->op, problem->pass);
  double bytes =
      problem->program ? dfgnn__edge_program_bytes(problem, 0, 1, 0) : 0;
  for (const dfgnn_tensor *t = op->tensors; t->name; t++)
    if (t->gathered && touched(t, problem))
      bytes += (double)dfgnn__tensor_elements(t, problem, 0, 1, 0) *
               (double)dfgnn__tensor_element_size(t, problem);
  return bytes * (double)edges;
}
