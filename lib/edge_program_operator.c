/* edge_program_operator.c - programs that are operators run as such */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "lib/edge_program.h"
#include "lib/graph.h"
#include "lib/operator.h"

static int has(const dfgnn_edge_program *program, const char *argument) {
  const dfgnn_match *m = &program->match;
  return dfgnn__match_find(m->inputs, m->input_count, argument) >= 0;
}

/* The problem, without the numbers that tensors give. */
static dfgnn_problem problem_of(const dfgnn_edge_program *program) {
  const dfgnn_match *m = &program->match;
  dfgnn_problem p = DFGNN_PROBLEM_INIT;
  p.op = m->op;
  p.pass = program->pass;
  p.message = m->message;
  p.edge_use = m->edge_use;
  p.bias = has(program, "bias");
  p.dropout = m->dropout_index >= 0;
  p.weights = dfgnn__match_find(m->outputs, m->output_count, "weights") >= 0;
  if (has(program, "edge_attr") || has(program, "score_edge"))
    p.edge_dim = dfgnn__size_is(m->edge_dim, 0) ? DFGNN_EDGE_PROJECTED : 1;
  return p;
}

/* Are all tensors there that the operator reads, and all ports its tensors? */
static int is_complete(const dfgnn_edge_program *program) {
  const dfgnn_problem p = problem_of(program);
  const dfgnn_operator *op = dfgnn__operator(p.op, p.pass);
  const dfgnn_match *m = &program->match;
  if (!op)
    return 0;
  for (const dfgnn_tensor *t = op->tensors; t->name; t++) {
    int read = t->role == DFGNN_ROLE_INPUT || t->role == DFGNN_ROLE_SAVED;
    int may_be_null = t->offset == offsetof(dfgnn_args, beta);
    if (read && !may_be_null && dfgnn__tensor_used(t, &p) &&
        !has(program, t->name))
      return 0;
  }
  for (int i = 0; i < m->input_count; i++)
    if (dfgnn__tensor_find_used(op, m->inputs[i].argument, &p) < 0)
      return 0;
  for (int i = 0; i < m->output_count; i++)
    if (dfgnn__tensor_find_used(op, m->outputs[i].argument, &p) < 0)
      return 0;
  return 1;
}

void dfgnn__edge_operator_find(dfgnn_edge_program *program) {
  program->pass = DFGNN_PASS_FORWARD;
  program->is_operator =
      dfgnn__dag_match(&program->match, program->dag) && is_complete(program);
}

/* ---- gradients ----------------------------------------------------------- */

/* The argument that a port is; NULL: none, or two. */
static const char *argument_of(const dfgnn_match_port *ports, int count,
                               int port) {
  const char *found = NULL;
  for (int i = 0; i < count; i++)
    if (ports[i].port == port) {
      if (found)
        return NULL;
      found = ports[i].argument;
    }
  return found;
}

/* The name in the operator's table, with "grad_" before it if it is one. */
static const char *name_in(const dfgnn_operator *op, const char *name,
                           int gradient) {
  char full[64];
  if (!name)
    return NULL;
  snprintf(full, sizeof full, "%s%s", gradient ? "grad_" : "", name);
  int i = dfgnn__tensor_find(op, full);
  return i < 0 ? NULL : op->tensors[i].name;
}

/* The argument of the backward pass that a port of the gradient is. */
static const char *backward_argument(const dfgnn_operator *op,
                                     const dfgnn_match *forward,
                                     const dfgnn_port *port) {
  const int of_input =
      port->role == DFGNN_PORT_INPUT || port->role == DFGNN_PORT_GRADIENT;
  const int gradient =
      port->role == DFGNN_PORT_COTANGENT || port->role == DFGNN_PORT_GRADIENT;
  if (port->role == DFGNN_PORT_OWN)
    return NULL;
  return name_in(
      op,
      of_input ? argument_of(forward->inputs, forward->input_count, port->of)
               : argument_of(forward->outputs, forward->output_count, port->of),
      gradient);
}

static int translate(dfgnn_match_port *to, int *count, const dfgnn_operator *op,
                     const dfgnn_match *forward, const dfgnn_port *ports,
                     int port_count) {
  *count = 0;
  for (int i = 0; i < port_count; i++) {
    const char *name = backward_argument(op, forward, &ports[i]);
    if (!name || *count == DFGNN_MATCH_PORTS)
      return 0;
    to[(*count)++] = (dfgnn_match_port){name, i};
  }
  return 1;
}

void dfgnn__edge_operator_derive(dfgnn_edge_program *gradient,
                                 const dfgnn_edge_program *forward) {
  dfgnn_match *m = &gradient->match;
  gradient->is_operator = 0;
  if (!forward->is_operator || forward->pass != DFGNN_PASS_FORWARD)
    return;
  const dfgnn_operator *op =
      dfgnn__operator(forward->match.op, DFGNN_PASS_BACKWARD);
  const dfgnn_dag *dag = gradient->dag;
  *m = forward->match;
  gradient->pass = DFGNN_PASS_BACKWARD;
  gradient->is_operator =
      op &&
      translate(m->inputs, &m->input_count, op, &forward->match, dag->inputs,
                dag->input_count) &&
      translate(m->outputs, &m->output_count, op, &forward->match, dag->outputs,
                dag->output_count) &&
      is_complete(gradient);
}

/* ---- execution ----------------------------------------------------------- */

static double scale_of(const dfgnn_match *m, const dfgnn_binding *binding) {
  if (m->scale_power == 0)
    return m->scale;
  double size = (double)dfgnn__size_value(m->scale_size, binding->names);
  return m->scale * pow(size, m->scale_power);
}

static void set_sizes(dfgnn_problem *p, const dfgnn_edge_call *call) {
  const dfgnn_match *m = &call->program->match;
  const int64_t *names = call->binding->names;
  p->heads = dfgnn__size_value(m->heads, names);
  p->dim = 1;
  for (int i = 0; i < DFGNN_DAG_AXES; i++)
    p->dim *= dfgnn__size_value(m->dim[i], names);
  if (p->edge_dim > 0)
    p->edge_dim = dfgnn__size_value(m->edge_dim, names);
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

/* The problem and arguments of a call; 0 if its tensors are not those that the
 * operator takes. */
static int problem_of_call(dfgnn_problem *problem, dfgnn_args *args,
                           const dfgnn_edge_call *call) {
  const dfgnn_edge_program *program = call->program;
  const dfgnn_match *m = &program->match;
  if (!program->is_operator)
    return 0;
  *problem = problem_of(program);
  problem->dtype = type_of(call);
  set_sizes(problem, call);
  if (!set_tensors(args, problem, m->inputs, m->input_count, call->inputs) ||
      !set_tensors(args, problem, m->outputs, m->output_count, call->outputs))
    return 0;
  args->scale = scale_of(m, call->binding);
  args->slope = m->slope;
  args->dropout = m->dropout;
  args->seed_value =
      call->seed + (uint64_t)(problem->dropout ? m->dropout_index : 0);
  return 1;
}

static dfgnn_status run_planned(const dfgnn_edge_call *call,
                                const dfgnn_problem *problem,
                                const dfgnn_args *args) {
  dfgnn_plan *plan;
  dfgnn_status status =
      dfgnn_plan_create(&plan, call->graph->ctx, call->graph, problem);
  if (status)
    return status;
  status = dfgnn_execute(plan, args, call->workspace, call->stream);
  dfgnn_plan_destroy(plan);
  return status;
}

dfgnn_status dfgnn__edge_operator_execute(int *done,
                                          const dfgnn_edge_call *call) {
  dfgnn_problem problem;
  dfgnn_args args = DFGNN_ARGS_INIT;
  *done = 0;
  if (!problem_of_call(&problem, &args, call))
    return DFGNN_OK;
  dfgnn_status status = call->workspace
                            ? run_planned(call, &problem, &args)
                            : dfgnn_call(call->graph->ctx, call->graph,
                                         &problem, &args, call->stream);
  *done = status != DFGNN_ERROR_UNSUPPORTED;
  return *done ? status : DFGNN_OK;
}

dfgnn_status dfgnn__edge_operator_room(size_t *bytes,
                                       const dfgnn_edge_call *call) {
  dfgnn_problem problem;
  dfgnn_args args = DFGNN_ARGS_INIT;
  dfgnn_plan *plan;
  if (!problem_of_call(&problem, &args, call))
    return DFGNN_OK;
  dfgnn_status status =
      dfgnn_plan_create(&plan, call->graph->ctx, call->graph, &problem);
  if (status)
    return status == DFGNN_ERROR_UNSUPPORTED ? DFGNN_OK : status;
  *bytes = dfgnn_plan_workspace(plan);
  dfgnn_plan_destroy(plan);
  return DFGNN_OK;
}

void dfgnn__edge_operator_describe(dfgnn_edge_operator *found,
                                   const dfgnn_edge_program *program) {
  const dfgnn_match *m = &program->match;
  const dfgnn_problem p = problem_of(program);
  if (!program->is_operator)
    return;
  found->found = 1;
  found->op = p.op;
  found->pass = p.pass;
  found->message = p.message;
  found->edge_use = p.edge_use;
  found->heads = dfgnn__size_named(m->heads) ? 0 : m->heads.constant;
  found->dim = 1;
  for (int i = 0; i < DFGNN_DAG_AXES; i++)
    found->dim *= dfgnn__size_named(m->dim[i]) ? 0 : m->dim[i].constant;
  found->edge_dim = p.edge_dim <= 0 ? p.edge_dim : m->edge_dim.constant;
  found->scale = m->scale_power == 0 ? m->scale : 0;
  found->slope = m->slope;
  found->dropout = m->dropout;
}
