/* edge_program_operator.c - programs that are operators, and their problems */
#include <stdio.h>

#include "lib/edge_program.h"
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
  const char *argument = NULL;
  for (int i = 0; i < count; i++)
    if (ports[i].port == port) {
      if (argument)
        return NULL;
      argument = ports[i].argument;
    }
  return argument;
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

/* ---- what it is to callers ------------------------------------------------
 */

dfgnn_problem dfgnn__edge_operator_problem(const dfgnn_edge_program *program,
                                           const int64_t *names) {
  const dfgnn_match *m = &program->match;
  dfgnn_problem p = problem_of(program);
  p.heads = dfgnn__size_value(m->heads, names);
  p.dim = 1;
  for (int i = 0; i < DFGNN_DAG_AXES; i++)
    p.dim *= dfgnn__size_value(m->dim[i], names);
  if (p.edge_dim > 0)
    p.edge_dim = dfgnn__size_value(m->edge_dim, names);
  return p;
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
