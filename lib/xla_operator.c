/* xla_operator.c - operators as custom calls of XLA
 *
 * A call names its buffers: the attributes `arguments` and `results` name
 * fields of dfgnn_args.  The table of operators says how many elements each
 * has, and of which type. */
#include <string.h>

#include "lib/base/error.h"
#include "lib/context.h"
#include "lib/operator.h"
#include "lib/xla_call.h"

typedef struct call {
  dfgnn_xla *xla;
  dfgnn_problem problem;
  const dfgnn_operator *op;
  dfgnn_plan *plan;
  dfgnn_args args;
} call;

static dfgnn_status read_problem(call *c) {
  char op[DFGNN_XLA_WORD], pass[DFGNN_XLA_WORD], dtype[DFGNN_XLA_WORD];
  dfgnn_problem problem = DFGNN_PROBLEM_INIT;
  int64_t deterministic = 1, tf32 = 0;
  dfgnn_status status = dfgnn__xla_word(op, c->xla, "op");
  if (!status)
    status = dfgnn_parse((int *)&problem.op, DFGNN_NAMES_OP, op);
  if (!status)
    status = dfgnn__xla_word(pass, c->xla, "pass");
  if (!status)
    status = dfgnn_parse((int *)&problem.pass, DFGNN_NAMES_PASS, pass);
  if (!status)
    status = dfgnn__xla_word(dtype, c->xla, "dtype");
  if (!status)
    status = dfgnn_parse((int *)&problem.dtype, DFGNN_NAMES_DTYPE, dtype);
  if (!status)
    status = dfgnn__xla_integer(&problem.heads, c->xla, "heads");
  if (!status)
    status = dfgnn__xla_integer(&problem.dim, c->xla, "dim");
  if (!status)
    status = dfgnn__xla_integer(&deterministic, c->xla, "deterministic");
  if (!status)
    status = dfgnn__xla_integer(&tf32, c->xla, "tf32");
  problem.deterministic = deterministic != 0;
  problem.math = tf32 ? DFGNN_MATH_TF32 : DFGNN_MATH_F32;
  if (!status)
    status = dfgnn__problem_complete(&c->problem, &problem);
  if (!status && !(c->op = dfgnn__operator(problem.op, problem.pass)))
    status = dfgnn__fail(DFGNN_ERROR_UNSUPPORTED,
                         "XLA call: there is no %s of %s", pass, op);
  if (!status)
    status = dfgnn__xla_real(&c->args.scale, c->xla, "scale");
  if (!status)
    status = dfgnn__xla_real(&c->args.slope, c->xla, "slope");
  return status;
}

static int64_t elements_of(const xla_buffer *buffer) {
  int64_t count = 1;
  for (int64_t i = 0; i < buffer->rank; i++)
    count *= buffer->dims[i];
  return count;
}

static int type_of(const dfgnn_tensor *tensor, dfgnn_dtype dtype) {
  static const int storage[] = {[DFGNN_F32] = XLA_F32,
                                [DFGNN_F16] = XLA_F16,
                                [DFGNN_BF16] = XLA_BF16,
                                [DFGNN_F64] = XLA_F64};
  switch (tensor->element) {
  case DFGNN_ELEMENT_STORAGE:
    return storage[dtype];
  case DFGNN_ELEMENT_SCALAR:
    return dtype == DFGNN_F64 ? XLA_F64 : XLA_F32;
  default:
    return XLA_S32;
  }
}

/* Edges beyond the last row are padding, so that tensors of edges may be longer
 * than the graph has edges; other tensors have one size. */
static dfgnn_status take_tensor(call *c, const char *name, int is_result,
                                const xla_buffer *buffer) {
  const int place = dfgnn__tensor_find_used(c->op, name, &c->problem);
  if (place < 0)
    return dfgnn__fail(DFGNN_ERROR_INVALID, "XLA call: %s of %s has no %s",
                       c->op->kind, c->op->name, name);
  const dfgnn_tensor *tensor = &c->op->tensors[place];
  const int64_t found = elements_of(buffer);
  const int64_t expected =
      dfgnn__tensor_elements(tensor, &c->problem, c->xla->csr.destinations,
                             c->xla->csr.sources, c->xla->csr.edges);
  if (buffer->type != type_of(tensor, c->problem.dtype))
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "XLA call: %s is of type %d of XLA, expected %d", name,
                       buffer->type, type_of(tensor, c->problem.dtype));
  if (tensor->shape & DFGNN_DIM_E ? found < expected : found != expected)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "XLA call: %s has %lld elements, expected %lld", name,
                       (long long)found, (long long)expected);
  if (dfgnn__role_reads(tensor->role) == is_result)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "XLA call: %s is %s the call, not %s it", name,
                       is_result ? "read by" : "written by",
                       is_result ? "written by" : "read by");
  *dfgnn__tensor_slot(tensor, &c->args) = buffer->data;
  return DFGNN_OK;
}

static dfgnn_status take_argument(void *c, const char *name,
                                  const xla_buffer *buffer) {
  return take_tensor(c, name, 0, buffer);
}

static dfgnn_status take_result(void *c, const char *name,
                                const xla_buffer *buffer) {
  return take_tensor(c, name, 1, buffer);
}

static dfgnn_status execute(const void *subject, void *workspace,
                            void *stream) {
  const call *c = subject;
  return dfgnn_execute(c->plan, &c->args, workspace, stream);
}

dfgnn_status dfgnn__xla_run_operator(dfgnn_xla *xla) {
  call c = {.xla = xla, .args = DFGNN_ARGS_INIT};
  dfgnn_graph *graph = NULL;
  dfgnn_status status = read_problem(&c);
  if (!status)
    status = dfgnn__xla_each(xla, "arguments", &xla->frame->arguments, 2,
                             take_argument, &c);
  if (!status)
    status = dfgnn__xla_each(xla, "results", &xla->frame->results, 0,
                             take_result, &c);
  if (status)
    return status;
  status = dfgnn_graph_create_csr(&graph, xla->ctx, &xla->csr, xla->stream);
  if (!status)
    status = dfgnn_plan_create(&c.plan, xla->ctx, graph, &c.problem);
  if (!status)
    status = dfgnn__xla_in_room(xla, dfgnn_plan_workspace(c.plan), execute, &c);
  dfgnn_plan_destroy(c.plan);
  dfgnn_graph_destroy_on(graph, xla->stream);
  return status;
}
