/* edge_program_execute.c - runs programs, as operators where they are */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/descriptor.h"
#include "lib/edge_program.h"
#include "lib/graph.h"
#include "lib/handle.h"
#include "lib/operator.h"

/* Tensors of a program in its order, and what its sizes are. */
typedef struct dfgnn_edge_call {
  const dfgnn_edge_program *program;
  dfgnn_graph *graph;
  const dfgnn_binding *binding;
  const dfgnn_program_array *inputs, *outputs;
  const dfgnn_edge_tensor *bound_inputs, *bound_outputs;
  const uint64_t *seed;
  uint64_t seed_value;
} dfgnn_edge_call;

/* ---- programs that are operators ------------------------------------------
 */

static double scale_of(const dfgnn_match *m, const dfgnn_binding *binding) {
  if (m->scale_power == 0)
    return m->scale;
  double size = (double)dfgnn__size_value(m->scale_size, binding->names);
  return m->scale * pow(size, m->scale_power);
}

/* Puts tensors into arguments; 0 if one is not of the type that it takes, or
 * has no memory, as that of a graph without edges. */
static int set_tensors(dfgnn_args *args, const dfgnn_problem *p,
                       const dfgnn_match_port *ports, int count,
                       const dfgnn_program_array *arrays) {
  const dfgnn_operator *op = dfgnn__operator(p->op, p->pass);
  const dfgnn_dtype scalar = p->dtype == DFGNN_F64 ? DFGNN_F64 : DFGNN_F32;
  for (int i = 0; i < count; i++) {
    const dfgnn_tensor *t =
        &op->tensors[dfgnn__tensor_find(op, ports[i].argument)];
    if (!arrays[ports[i].port].data)
      return 0;
    if (arrays[ports[i].port].dtype !=
        (t->element == DFGNN_ELEMENT_SCALAR ? scalar : p->dtype))
      return 0;
    *dfgnn__tensor_slot(t, args) = arrays[ports[i].port].data;
  }
  return 1;
}

/* The type of what the operator stores features in: of `out` or its gradient,
 * which every call has. */
static dfgnn_dtype type_of(const dfgnn_edge_call *call) {
  const dfgnn_match *m = &call->program->match;
  int out = dfgnn__match_find(m->outputs, m->output_count, "out");
  if (out >= 0)
    return call->outputs[out].dtype;
  int grad_out = dfgnn__match_find(m->inputs, m->input_count, "grad_out");
  return call->inputs[grad_out].dtype;
}

/* The problem and arguments of a call; 0 if the program is no operator, or its
 * tensors are not of the types that the operator takes. */
static int operator_of(dfgnn_problem *problem, dfgnn_args *args,
                       const dfgnn_edge_call *call) {
  const dfgnn_edge_program *program = call->program;
  const dfgnn_match *m = &program->match;
  const char *how = getenv("DFGNN_PROGRAMS");
  if (!program->is_operator || (how && !strcmp(how, "own")))
    return 0;
  if (call->seed && m->dropout && m->dropout_index)
    return 0; /* an operator adds nothing to a seed in memory */
  *problem = dfgnn__edge_operator_problem(program, call->binding->names);
  problem->dtype = type_of(call);
  if (!set_tensors(args, problem, m->inputs, m->input_count, call->inputs) ||
      !set_tensors(args, problem, m->outputs, m->output_count, call->outputs))
    return 0;
  args->scale = scale_of(m, call->binding);
  args->slope = m->slope;
  args->dropout = m->dropout;
  args->seed = call->seed;
  args->seed_value =
      call->seed_value + (uint64_t)(problem->dropout ? m->dropout_index : 0);
  return 1;
}

/* ---- execution ----------------------------------------------------------- */

/* The problem that the program itself is. */
static dfgnn_status program_problem(dfgnn_problem *problem,
                                    const dfgnn_edge_call *call) {
  const dfgnn_edge_program *sized;
  DFGNN_TRY(
      dfgnn__edge_program_for(&sized, call->program, call->binding->names));
  return dfgnn__edge_program_as_problem(
      problem, sized,
      dfgnn__edge_program_dtype(call->program->lowered->dag, call->inputs,
                                call->outputs));
}

/* Binds tensors for a call. */
static dfgnn_status begin(dfgnn_edge_call *call, dfgnn_edge_execution *x,
                          const dfgnn_edge_tensor *inputs, int input_count,
                          const dfgnn_edge_tensor *outputs, int output_count) {
  dfgnn_status status = dfgnn__check_edge_program(call->program);
  if (!status)
    status = dfgnn__check_graph(call->graph);
  if (!status)
    status = dfgnn__graph_count(call->graph);
  if (!status)
    status = dfgnn__edge_program_bind(x, call->program,
                                      dfgnn__graph_matrix(call->graph), inputs,
                                      input_count, outputs, output_count);
  call->binding = &x->binding;
  call->inputs = x->inputs;
  call->outputs = x->outputs;
  call->bound_inputs = inputs;
  call->bound_outputs = outputs;
  return status;
}

/* Tells the problem and the arguments of what runs: the operator that the
 * program is, or the program itself. */
static dfgnn_status settle(dfgnn_problem *problem, dfgnn_args *args,
                           const dfgnn_edge_call *call, int as_program) {
  *args = (dfgnn_args)DFGNN_ARGS_INIT;
  if (!as_program && operator_of(problem, args, call))
    return DFGNN_OK;
  *args = (dfgnn_args)DFGNN_ARGS_INIT;
  args->program_inputs = call->bound_inputs;
  args->program_outputs = call->bound_outputs;
  args->program_input_count = call->program->lowered->dag->input_count;
  args->program_output_count = call->program->lowered->dag->output_count;
  args->seed = call->seed;
  args->seed_value = call->seed_value;
  return program_problem(problem, call);
}

dfgnn_status
dfgnn_edge_program_execute(const dfgnn_edge_program *program,
                           dfgnn_graph *graph, const dfgnn_edge_tensor *inputs,
                           int input_count, const dfgnn_edge_tensor *outputs,
                           int output_count, uint64_t seed, void *stream) {
  dfgnn_edge_execution x = {0};
  dfgnn_edge_call call = {
      .program = program, .graph = graph, .seed_value = seed};
  dfgnn_args args;
  dfgnn_problem problem;
  dfgnn_status status =
      begin(&call, &x, inputs, input_count, outputs, output_count);
  for (int as_program = 0; !status; as_program = 1) {
    status = settle(&problem, &args, &call, as_program);
    if (!status)
      status = dfgnn_call(graph->ctx, graph, &problem, &args, stream);
    if (status != DFGNN_ERROR_UNSUPPORTED || problem.op == DFGNN_OP_PROGRAM)
      return status;
    status = DFGNN_OK; /* no variant of the operator serves the call */
  }
  return status;
}

dfgnn_status dfgnn_edge_program_call(
    dfgnn_problem *problem, dfgnn_args *args, const dfgnn_edge_program *program,
    dfgnn_graph *graph, const dfgnn_edge_tensor *inputs, int input_count,
    const dfgnn_edge_tensor *outputs, int output_count, int as_program) {
  static const dfgnn_descriptor_kind problem_kind =
      DFGNN_DESCRIPTOR("problem", dfgnn_problem, "DFGNN_PROBLEM_INIT");
  static const dfgnn_descriptor_kind args_kind =
      DFGNN_DESCRIPTOR("args", dfgnn_args, "DFGNN_ARGS_INIT");
  dfgnn_edge_execution x = {0};
  dfgnn_edge_call call = {.program = program, .graph = graph};
  dfgnn_args whole = DFGNN_ARGS_INIT;
  dfgnn_problem ours;
  DFGNN_TRY(dfgnn__can_give(problem, &problem_kind));
  DFGNN_TRY(dfgnn__take(&whole, args, &args_kind));
  call.seed = whole.seed;
  call.seed_value = whole.seed_value;
  DFGNN_TRY(begin(&call, &x, inputs, input_count, outputs, output_count));
  DFGNN_TRY(settle(&ours, &whole, &call, as_program));
  dfgnn__give(problem, &ours, &problem_kind);
  dfgnn__give(args, &whole, &args_kind);
  return DFGNN_OK;
}
