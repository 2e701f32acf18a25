/* complete.c - problems and arguments checked, their defaults filled in */
#include <math.h>
#include <string.h>

#include "lib/base/descriptor.h"
#include "lib/base/error.h"
#include "lib/edge_program.h"
#include "lib/operator.h"

static void dense_strides(dfgnn_strides *strides,
                          const dfgnn_problem *problem) {
  if (strides->node || strides->head || strides->feature)
    return;
  int ndh = problem->layout == DFGNN_LAYOUT_NDH;
  strides->node = problem->heads * problem->dim;
  strides->head = ndh ? 1 : problem->dim;
  strides->feature = ndh ? problem->heads : 1;
}

/* The field of the problem that asks for a tensor, as messages say it. */
static const char *asked_for(dfgnn_flag flag) {
  switch (flag) {
  case DFGNN_FLAG_EDGE:
  case DFGNN_FLAG_PROJECTION:
    return " with problem.edge_dim";
  case DFGNN_FLAG_MESSAGE:
  case DFGNN_FLAG_GATE:
    return " with problem.message";
  default:
    return "";
  }
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
      const char *flag = t->flag == DFGNN_FLAG_WEIGHTS ? "weights"
                         : t->flag == DFGNN_FLAG_BIAS  ? "bias"
                                                       : NULL;
      if (flag && *pointer)
        return dfgnn__fail(DFGNN_ERROR_INVALID,
                           "args.%s is set, but problem.%s is not", t->name,
                           flag);
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
      return dfgnn__fail(
          DFGNN_ERROR_INVALID, "args.%s is NULL; operator %s, %s%s, needs it",
          t->name, op->name, dfgnn_name(DFGNN_NAMES_PASS, op->pass),
          asked_for(t->flag));
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
  static const dfgnn_descriptor_kind kind =
      DFGNN_DESCRIPTOR("args", dfgnn_args, "DFGNN_ARGS_INIT");
  DFGNN_TRY(dfgnn__take(complete, args, &kind));
  DFGNN_TRY(check_tensors(complete, problem));
  if (complete->scale == DFGNN_SCALE_DEFAULT)
    complete->scale = 1 / sqrt((double)problem->dim);
  if (!problem->dropout && complete->dropout != 0)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "args.dropout is %g, but problem.dropout is not set",
                       complete->dropout);
  if (!(complete->dropout >= 0 && complete->dropout < 1))
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "args.dropout is %g, expected 0 <= dropout < 1",
                       complete->dropout);
  return DFGNN_OK;
}

/* Does the operator have these edge features and messages, and may they be
 * combined? */
static dfgnn_status check_edges(const dfgnn_problem *p) {
  const char *name = dfgnn_name(DFGNN_NAMES_OP, p->op), *wrong = NULL;
  int sums = DFGNN_OPS_MESSAGE >> p->op & 1;
  if (p->message && !sums)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "problem.message is %s, which operator %s does not "
                       "have%s",
                       dfgnn_name(DFGNN_NAMES_MESSAGE, p->message), name,
                       DFGNN_OPS_REDUCE >> p->op & 1
                           ? "; out_std of reduce-pna is their deviation"
                           : "");
  if (p->edge_use && (p->op != DFGNN_OP_GT || !p->edge_dim))
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "problem.edge_use is %s, which is for operator gt with "
                       "edge features; found operator %s, edge_dim %lld",
                       dfgnn_name(DFGNN_NAMES_EDGE_USE, p->edge_use), name,
                       (long long)p->edge_dim);
  if (p->message == DFGNN_MESSAGE_RELU && !p->edge_dim)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "problem.message is relu, but problem.edge_dim is 0: "
                       "expected edge features");
  if (p->message == DFGNN_MESSAGE_GATE_VALUE && p->edge_dim <= 0)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "problem.message is gate-value, but problem.edge_dim is "
                       "%lld: expected edge features that a matrix projects",
                       (long long)p->edge_dim);
  if (!p->edge_dim)
    return DFGNN_OK;
  if (p->op == DFGNN_OP_AGNN || !(sums || DFGNN_OPS_ATTENTION >> p->op & 1))
    wrong = "an operator with edge features";
  else if (sums && !p->message)
    wrong = "a message other than copy";
  else if (p->op == DFGNN_OP_GAT && p->edge_dim > 0)
    wrong = "-1 (projected), a scalar an edge and head";
  return wrong ? dfgnn__fail(DFGNN_ERROR_INVALID,
                             "problem.edge_dim is %lld with operator %s, "
                             "expected %s",
                             (long long)p->edge_dim, name, wrong)
               : DFGNN_OK;
}

dfgnn_status dfgnn__problem_complete(dfgnn_problem *complete,
                                     const dfgnn_problem *problem) {
  dfgnn_problem taken = DFGNN_PROBLEM_INIT;
  static const dfgnn_descriptor_kind kind =
      DFGNN_DESCRIPTOR("problem", dfgnn_problem, "DFGNN_PROBLEM_INIT");
  DFGNN_TRY(dfgnn__take(&taken, problem, &kind));
  problem = &taken;
#define RANGE(field, least, most)                                              \
  DFGNN_TRY(dfgnn__check_range("problem." #field, (int64_t)problem->field,     \
                               least, most))
  if (!dfgnn_name(DFGNN_NAMES_OP, problem->op))
    return dfgnn__fail(
        DFGNN_ERROR_INVALID, "problem.op is %d, expected 0..%d (%s) or %d (%s)",
        (int)problem->op, (int)DFGNN_OP_COUNT - 1,
        dfgnn_name(DFGNN_NAMES_OP, DFGNN_OP_COUNT - 1), (int)DFGNN_OP_PROGRAM,
        dfgnn_name(DFGNN_NAMES_OP, DFGNN_OP_PROGRAM));
  RANGE(pass, 0, DFGNN_PASS_COUNT - 1);
  RANGE(dtype, 0, DFGNN_DTYPE_COUNT - 1);
  RANGE(math, 0, DFGNN_MATH_COUNT - 1);
  RANGE(layout, 0, DFGNN_LAYOUT_COUNT - 1);
  RANGE(effort, 0, DFGNN_EFFORT_RACE);
  RANGE(edge_use, 0, DFGNN_EDGE_USE_COUNT - 1);
  RANGE(message, 0, DFGNN_MESSAGE_COUNT - 1);
  RANGE(heads, 1, 65535);
  RANGE(dim, 1, 65536);
#undef RANGE
  if (problem->edge_dim < DFGNN_EDGE_PROJECTED || problem->edge_dim > 65536)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "problem.edge_dim is %lld, expected -1 (projected) or "
                       "0..65536",
                       (long long)problem->edge_dim);
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
  complete->edge_dim = problem->edge_dim;
  complete->edge_use = problem->edge_use;
  complete->message = problem->message;
  complete->accumulate = !!problem->accumulate;
  complete->edge_list =
      problem->edge_list && problem->edge_dim && problem->op != DFGNN_OP_GAT;
  if (problem->op == DFGNN_OP_PROGRAM) {
    DFGNN_TRY(dfgnn__edge_program_complete(complete, problem));
  } else if (problem->program) {
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "problem.program is set, which is for operator program; "
                       "found operator %s",
                       dfgnn_name(DFGNN_NAMES_OP, problem->op));
  }
  int attention =
      DFGNN_OPS_ATTENTION >> problem->op & 1; /* the flags below are its own */
  if (!attention && (complete->bias || complete->dropout || complete->weights))
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "problem.%s is set, which operator %s does not have",
                       complete->bias      ? "bias"
                       : complete->dropout ? "dropout"
                                           : "weights",
                       dfgnn_name(DFGNN_NAMES_OP, problem->op));
  if (complete->weights && problem->pass == DFGNN_PASS_BACKWARD)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "problem.weights is set; the backward pass writes no "
                       "weights");
  if (complete->accumulate &&
      (!attention || problem->pass != DFGNN_PASS_BACKWARD))
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "problem.accumulate is set, which is for the backward "
                       "pass of attention; found operator %s, pass %s",
                       dfgnn_name(DFGNN_NAMES_OP, problem->op),
                       dfgnn_name(DFGNN_NAMES_PASS, problem->pass));
  return check_edges(complete);
}
