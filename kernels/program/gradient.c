/* gradient.c - the program of a program's gradient */
#include <stdio.h>
#include <stdlib.h>

#include "kernels/program/make.h"

/* A gradient that is being made: forward with its cotangents and the gradients
 * of the wanted inputs. */
typedef struct work {
  const dfgnn_dag *forward;
  const uint8_t *cotangent, *wanted;
  dfgnn_dag *dag;
  int32_t forward_nodes; /* of dag; those after them are of the gradient */
  int32_t gradients[DFGNN_DAG_INPUTS];
  int count;
  uint8_t *stops, *needed;
} work;

/* NAME, or grad_NAME, with as many "_" as make it new among the ports. */
static void name_port(dfgnn_dag *dag, dfgnn_port *port, const char *prefix,
                      const char *name, const dfgnn_port *others, int count) {
  int used = snprintf(port->name, sizeof port->name, "%s%s", prefix, name);
  while (used > 0 && used + 1 < DFGNN_DAG_NAME &&
         dfgnn__dag_find(others, count, port->name) >= 0) {
    port->name[used++] = '_';
    port->name[used] = 0;
  }
  if (used >= DFGNN_DAG_NAME - 1)
    dfgnn__dag_fail(dag, DFGNN_ERROR_UNSUPPORTED,
                    "the gradient of %s has a name of more than %d bytes; give "
                    "it a shorter one",
                    name, DFGNN_DAG_NAME - 2);
}

static void add_cotangents(work *w, int32_t *cotangents) {
  dfgnn_dag *dag = w->dag;
  for (int i = 0; i < dag->output_count; i++) {
    dfgnn_port port = dag->outputs[i];
    cotangents[i] = -1;
    if (!w->cotangent[i])
      continue;
    name_port(dag, &port, "grad_", w->forward->outputs[i].name, dag->inputs,
              dag->input_count);
    port.role = DFGNN_PORT_COTANGENT;
    port.of = i;
    cotangents[i] = dfgnn__dag_input(dag, &port);
  }
}

/* Is a node a reduction over edges, kept at a node? */
static int worth_keeping(const dfgnn_node *node) {
  return dfgnn__node_reduces(node->op) && node->op != DFGNN_NODE_SUM_ALL;
}

/* Returns the node that an output holds, perhaps in another shape. */
static int32_t held(const dfgnn_dag *dag, const dfgnn_port *output) {
  int32_t n = output->node;
  while (dag->nodes[n].op == DFGNN_NODE_RESHAPE)
    n = dfgnn__dag_argument(dag, n, 0);
  return n;
}

/* Is a node an extreme over edges, or what one is made of? */
static int in_extreme(const dfgnn_dag *dag, int32_t n) {
  for (int32_t k = n; k < dag->count; k++) {
    if (dag->nodes[k].op != DFGNN_NODE_MAX_EDGES)
      continue;
    uint8_t *needed = dfgnn__dag_needed(dag, &k, 1, NULL);
    const int found = !needed || needed[n];
    free(needed);
    if (found)
      return 1;
  }
  return 0;
}

/* Can a gradient read an output in place of what it was made of?  An extreme
 * equals no edge's value if one of both is made of what was rounded to the
 * type of a tensor. */
static int can_read(const dfgnn_dag *dag, const dfgnn_port *output) {
  const int32_t n = held(dag, output);
  return !output->unread && worth_keeping(&dag->nodes[n]) &&
         dfgnn__port_holds(dag, output) &&
         (output->kept || !in_extreme(dag, n));
}

/* Derives, and finds what is needed if reductions are not computed again:
 * those that are outputs, or all of the forward's. */
static dfgnn_status start(work *w, int outputs_only) {
  int32_t cotangents[DFGNN_DAG_OUTPUTS], wanted[DFGNN_DAG_INPUTS];
  w->dag = dfgnn__dag_compact(w->forward);
  if (!w->dag)
    return DFGNN_ERROR_MEMORY;
  dfgnn_dag *dag = w->dag;
  const int inputs = dag->input_count;
  w->forward_nodes = dag->count;
  add_cotangents(w, cotangents);
  for (int i = 0; i < inputs; i++)
    if (w->wanted[i])
      wanted[w->count++] = dag->inputs[i].node;
  if (!dag->status)
    dfgnn__dag_gradients(dag, cotangents, wanted, w->count, w->gradients);
  if (dag->status)
    return dag->status;
  w->stops = calloc((size_t)dag->count, 1);
  if (!w->stops)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  for (int i = 0; outputs_only && i < dag->output_count; i++)
    w->stops[held(dag, &dag->outputs[i])] |=
        (uint8_t)can_read(dag, &dag->outputs[i]);
  for (int32_t n = 0; !outputs_only && n < w->forward_nodes; n++)
    w->stops[n] = (uint8_t)worth_keeping(&dag->nodes[n]);
  w->needed = dfgnn__dag_needed(dag, w->gradients, w->count, w->stops);
  return w->needed ? DFGNN_OK : DFGNN_ERROR_MEMORY;
}

static void finish(work *w) {
  dfgnn__dag_free(w->dag);
  free(w->stops);
  free(w->needed);
}

/* Declares the gradient's inputs; number[n]: what node n is there. */
static void add_inputs(work *w, dfgnn_dag *to, int32_t *number) {
  const dfgnn_dag *dag = w->dag;
  const int own = w->forward->input_count;
  for (int i = 0; i < own; i++) {
    dfgnn_port port = dag->inputs[i];
    if (!w->needed[port.node])
      continue;
    port.role = DFGNN_PORT_INPUT;
    port.of = i;
    number[port.node] = dfgnn__dag_input(to, &port);
  }
  for (int i = 0; i < dag->output_count; i++) {
    const dfgnn_port *output = &dag->outputs[i];
    int32_t n = held(dag, output);
    if (!w->stops[n] || !w->needed[n] || number[n] >= 0 ||
        !can_read(dag, output))
      continue;
    dfgnn_port port = dfgnn__dag_port(dag, "", output->rank, output->node);
    name_port(to, &port, "", output->name, dag->inputs, dag->input_count);
    port.role = DFGNN_PORT_OUTPUT;
    port.of = i;
    number[n] = dfgnn__make_reshape(to, dfgnn__dag_input(to, &port),
                                    dag->nodes[n].shape);
  }
  for (int i = own; i < dag->input_count; i++)
    if (w->needed[dag->inputs[i].node])
      number[dag->inputs[i].node] = dfgnn__dag_input(to, &dag->inputs[i]);
}

static int32_t copy_value(dfgnn_dag *to, const dfgnn_dag *from, int32_t n,
                          int32_t *arguments, const void *data) {
  const work *w = data;
  return w->needed[n] ? dfgnn__make_again(to, from, n, arguments, NULL) : 0;
}

static void add_outputs(work *w, dfgnn_dag *to, const int32_t *number) {
  for (int i = 0, k = 0; i < w->forward->input_count; i++) {
    if (!w->wanted[i])
      continue;
    dfgnn_port port = w->forward->inputs[i];
    name_port(to, &port, "grad_", w->forward->inputs[i].name, to->outputs,
              to->output_count);
    port.node = number[w->gradients[k++]];
    port.role = DFGNN_PORT_GRADIENT;
    port.of = i;
    dfgnn__dag_output(to, &port);
  }
}

dfgnn_status dfgnn__dag_gradient(dfgnn_dag **gradient, const dfgnn_dag *forward,
                                 const uint8_t *cotangent,
                                 const uint8_t *wanted) {
  work w = {.forward = forward, .cotangent = cotangent, .wanted = wanted};
  dfgnn_dag *to = NULL;
  int32_t *number = NULL;
  dfgnn_status status = start(&w, 1);
  if (status)
    goto out;
  to = dfgnn__dag_new();
  number = dfgnn__dag_unnumbered(w.dag);
  if (!to || !number) {
    status = dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
    goto out;
  }
  memcpy(to->names, w.dag->names, sizeof to->names);
  to->name_count = w.dag->name_count;
  to->dropouts = w.dag->dropouts;
  to->as_written = w.dag->as_written;
  add_inputs(&w, to, number);
  dfgnn__dag_remake(to, w.dag, number, copy_value, &w);
  add_outputs(&w, to, number);
  status = to->status;
  if (!status && !(*gradient = dfgnn__dag_finish(to)))
    status = DFGNN_ERROR_MEMORY;
out:
  dfgnn__dag_free(to);
  free(number);
  finish(&w);
  return status;
}

/* The reductions that are kept, in the order of factors: so they are inputs of
 * the gradient in the order that they have as factors of the program. */
static int list_kept(const work *w, int32_t *list) {
  int count = 0;
  for (int32_t n = 0; n < w->forward_nodes && count < DFGNN_DAG_OUTPUTS; n++)
    if (w->stops[n] && w->needed[n])
      list[count++] = n;
  dfgnn__make_sort(w->dag, list, count);
  return count;
}

dfgnn_status dfgnn__dag_kept(dfgnn_dag **kept, const dfgnn_dag *forward,
                             const uint8_t *cotangent, const uint8_t *wanted) {
  work w = {.forward = forward, .cotangent = cotangent, .wanted = wanted};
  dfgnn_dag *to = NULL;
  dfgnn_status status = start(&w, 0);
  if (status)
    goto out;
  to = dfgnn__dag_compact(forward); /* its nodes are the first of w.dag */
  if (!to) {
    status = DFGNN_ERROR_MEMORY;
    goto out;
  }
  for (int i = 0; i < forward->output_count; i++)
    if (can_read(to, &to->outputs[i]))
      w.needed[held(to, &to->outputs[i])] = 0;
  int32_t list[DFGNN_DAG_OUTPUTS];
  const int count = list_kept(&w, list);
  for (int i = 0, k = 0; i < count && to->output_count < DFGNN_DAG_OUTPUTS;
       i++) {
    const int32_t n = list[i];
    char name[DFGNN_DAG_NAME];
    do
      snprintf(name, sizeof name, "kept_%d", k++);
    while (dfgnn__dag_find(to->inputs, to->input_count, name) >= 0 ||
           dfgnn__dag_find(to->outputs, to->output_count, name) >= 0);
    dfgnn_port port = dfgnn__dag_port(to, name, 0, n);
    port.kept = 1;
    dfgnn__dag_output(to, &port);
  }
  *kept = to;
out:
  finish(&w);
  return status;
}
