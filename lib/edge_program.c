#include "lib/edge_program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/program/make.h"
#include "lib/base/descriptor.h"
#include "lib/base/error.h"
#include "lib/handle.h"

/* Takes the dag, on failure too. */
static dfgnn_status wrap(dfgnn_edge_program **program, dfgnn_dag *dag) {
  dfgnn_edge_program *p = calloc(1, sizeof *p);
  if (!p) {
    dfgnn__dag_free(dag);
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  }
  p->kind = DFGNN_HANDLE_EDGE_PROGRAM;
  atomic_init(&p->references, 1);
  pthread_mutex_init(&p->lock, NULL);
  dfgnn__program_codes_begin(&p->codes);
  p->dag = dag;
  p->hash = dfgnn__dag_hash(dag);
  p->text = dfgnn__dag_text(dag);
  dfgnn_status status =
      p->text ? dfgnn__lower(&p->lowered, dag) : DFGNN_ERROR_MEMORY;
  if (!status)
    status = dfgnn__edge_program_settle(p);
  if (status) {
    dfgnn_edge_program_destroy(p);
    return status;
  }
  dfgnn__edge_operator_find(p);
  *program = p;
  return DFGNN_OK;
}

dfgnn_status dfgnn_edge_program_create(dfgnn_edge_program **program,
                                       const char *text) {
  dfgnn_dag *dag, *written = NULL;
  if (!program || !text)
    return dfgnn__fail(DFGNN_ERROR_INVALID, "%s is NULL",
                       program ? "text" : "program");
  dfgnn_status status = dfgnn__dag_parse_as_written(&written, text);
  if (!status)
    status = dfgnn__dag_parse(&dag, text);
  if (!status)
    status = wrap(program, dag);
  if (!status)
    (*program)->written = written;
  else
    dfgnn__dag_free(written);
  return status;
}

const char *dfgnn_edge_program_name(const char **about, int i) {
  const dfgnn_named *named = dfgnn__named(i);
  if (about)
    *about = named ? named->about : NULL;
  return named ? named->name : NULL;
}

dfgnn_status dfgnn_edge_program_named(dfgnn_edge_program **program,
                                      const char *name) {
  char text[DFGNN_NAMED_TEXT] = "";
  const dfgnn_named *named;
  if (!program || !name)
    return dfgnn__fail(DFGNN_ERROR_INVALID, "%s is NULL",
                       program ? "name" : "program");
  for (int i = 0; (named = dfgnn__named(i)); i++) {
    if (!strcmp(named->name, name)) {
      dfgnn__named_text(text, named, 0, 0);
      return dfgnn_edge_program_create(program, text);
    }
    strcat(strcat(text, i ? ", " : ""), named->name);
  }
  return dfgnn__fail(DFGNN_ERROR_INVALID,
                     "unknown operator '%s', expected one of: %s", name, text);
}

void dfgnn_edge_program_destroy(dfgnn_edge_program *program) {
  if (!dfgnn__is(program, DFGNN_HANDLE_EDGE_PROGRAM) ||
      atomic_fetch_sub(&program->references, 1) != 1)
    return;
  program->kind = DFGNN_HANDLE_NONE;
  for (struct dfgnn_edge_sized *sized = program->sized, *next; sized;
       sized = next) {
    next = sized->next;
    dfgnn_edge_program_destroy(sized->program);
    free(sized);
  }
  dfgnn__edge_program_unsettle(program);
  dfgnn__program_codes_end(&program->codes);
  pthread_mutex_destroy(&program->lock);
  dfgnn__dag_free(program->dag);
  dfgnn__dag_free(program->written);
  dfgnn__lowered_free(program->lowered);
  free(program->text);
  free(program);
}

const char *dfgnn_edge_program_text(const dfgnn_edge_program *program) {
  return dfgnn__check_edge_program(program) ? NULL : program->text;
}

uint64_t dfgnn_edge_program_hash(const dfgnn_edge_program *program) {
  return dfgnn__check_edge_program(program) ? 0 : program->hash;
}

dfgnn_status dfgnn_edge_program_walks(int *rows, int *columns,
                                      const dfgnn_edge_program *program) {
  DFGNN_TRY(dfgnn__check_edge_program(program));
  if (!rows || !columns)
    return dfgnn__fail(DFGNN_ERROR_INVALID, "%s is NULL",
                       rows ? "columns" : "rows");
  int count[DFGNN_PLACES] = {0};
  for (int i = 0; i < program->lowered->walk_count; i++)
    if (program->lowered->walks[i].edges)
      count[program->lowered->walks[i].own]++;
  *rows = count[DFGNN_PLACE_DST];
  *columns = count[DFGNN_PLACE_SRC];
  return DFGNN_OK;
}

int dfgnn_edge_program_input_count(const dfgnn_edge_program *program) {
  return dfgnn__check_edge_program(program) ? 0 : program->dag->input_count;
}

int dfgnn_edge_program_output_count(const dfgnn_edge_program *program) {
  return dfgnn__check_edge_program(program) ? 0 : program->dag->output_count;
}

/* The names of the arguments that a port is, with a space between them. */
static void name_arguments(char *names, const dfgnn_match_port *ports,
                           int count, int i) {
  size_t used = 0;
  for (int k = 0; k < count; k++)
    if (ports[k].port == i && used < DFGNN_EDGE_NAME)
      used += (size_t)snprintf(names + used, DFGNN_EDGE_NAME - used, "%s%s",
                               used ? " " : "", ports[k].argument);
}

static dfgnn_status describe(dfgnn_edge_value *value,
                             const dfgnn_edge_program *program, int i,
                             int output) {
  static const dfgnn_descriptor_kind kind =
      DFGNN_DESCRIPTOR("value", dfgnn_edge_value, "DFGNN_EDGE_VALUE_INIT");
  DFGNN_TRY(dfgnn__check_edge_program(program));
  DFGNN_TRY(dfgnn__can_give(value, &kind));
  const dfgnn_dag *dag = program->dag;
  const dfgnn_match *match = &program->match;
  const int count = output ? dag->output_count : dag->input_count;
  if (i < 0 || i >= count)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "i is %d, expected 0 to %d: the program has %d", i,
                       count - 1, count);
  const dfgnn_port *port = output ? &dag->outputs[i] : &dag->inputs[i];
  dfgnn_edge_value full = {.place = (dfgnn_edge_place)port->place,
                           .rank = port->rank,
                           .role = (dfgnn_edge_role)port->role,
                           .of = port->of,
                           .kept = port->kept,
                           .zero = dfgnn__is_number(dag, port->node, 0)};
  memcpy(full.name, port->name, sizeof full.name);
  for (int k = 0; k < port->rank; k++) {
    dfgnn_size size = port->shape[DFGNN_DAG_AXES - port->rank + k];
    full.axes[k] = dfgnn__size_named(size) ? 0 : size.constant;
  }
  if (program->is_operator)
    name_arguments(full.argument, output ? match->outputs : match->inputs,
                   output ? match->output_count : match->input_count, i);
  dfgnn__give(value, &full, &kind);
  return DFGNN_OK;
}

dfgnn_status dfgnn_edge_program_input(dfgnn_edge_value *value,
                                      const dfgnn_edge_program *program,
                                      int i) {
  return describe(value, program, i, 0);
}

dfgnn_status dfgnn_edge_program_output(dfgnn_edge_value *value,
                                       const dfgnn_edge_program *program,
                                       int i) {
  return describe(value, program, i, 1);
}

/* Gives a gradient what the gradient of the program as it is written is, if
 * that reads the same tensors. */
static void write_gradient(dfgnn_edge_program *gradient,
                           const dfgnn_edge_program *program,
                           const uint8_t *cotangent, const uint8_t *wanted) {
  const dfgnn_dag *dag = gradient->dag;
  dfgnn_dag *forward =
      program->written ? dfgnn__dag_compact(program->written) : NULL;
  dfgnn_dag *written = NULL;
  if (!forward)
    return;
  for (int i = 0; i < forward->output_count; i++)
    forward->outputs[i].unread = 1;
  for (int i = 0; i < dag->input_count; i++)
    if (dag->inputs[i].role == DFGNN_PORT_OUTPUT)
      forward->outputs[dag->inputs[i].of].unread = 0;
  int same = !dfgnn__dag_gradient(&written, forward, cotangent, wanted) &&
             written->output_count == dag->output_count;
  for (int i = 0; same && i < dag->input_count; i++)
    same = dag->inputs[i].role != DFGNN_PORT_OUTPUT ||
           dfgnn__dag_find(written->inputs, written->input_count,
                           dag->inputs[i].name) >= 0;
  for (int32_t n = 0; same && n < written->count; n++) {
    dfgnn_node *node = &written->nodes[n];
    if (node->op != DFGNN_NODE_INPUT)
      continue;
    const char *name = written->inputs[node->index].name;
    node->index = dfgnn__dag_find(dag->inputs, dag->input_count, name);
    same = node->index >= 0;
  }
  if (same)
    gradient->written = written;
  else
    dfgnn__dag_free(written);
  dfgnn__dag_free(forward);
}

typedef dfgnn_status (*derive_function)(dfgnn_dag **, const dfgnn_dag *,
                                        const uint8_t *, const uint8_t *);

static dfgnn_status derive(dfgnn_edge_program **derived,
                           const dfgnn_edge_program *program,
                           const unsigned char *outputs,
                           const unsigned char *inputs,
                           derive_function function) {
  static const uint8_t all[DFGNN_DAG_INPUTS > DFGNN_DAG_OUTPUTS
                               ? DFGNN_DAG_INPUTS
                               : DFGNN_DAG_OUTPUTS] = {
      [0 ... DFGNN_DAG_INPUTS - 1] = 1};
  dfgnn_dag *dag = NULL;
  dfgnn_status status = dfgnn__check_edge_program(program);
  if (!status && !derived)
    status = dfgnn__fail(DFGNN_ERROR_INVALID, "the output is NULL");
  if (!status)
    status = function(&dag, program->dag, outputs ? outputs : all,
                      inputs ? inputs : all);
  if (!status)
    status = wrap(derived, dag);
  if (!status && function == dfgnn__dag_gradient) {
    dfgnn__edge_operator_derive(*derived, program);
    write_gradient(*derived, program, outputs ? outputs : all,
                   inputs ? inputs : all);
  }
  return status;
}

dfgnn_status dfgnn_edge_program_gradient(dfgnn_edge_program **gradient,
                                         const dfgnn_edge_program *program,
                                         const unsigned char *outputs,
                                         const unsigned char *inputs) {
  return derive(gradient, program, outputs, inputs, dfgnn__dag_gradient);
}

dfgnn_status dfgnn_edge_program_keep(dfgnn_edge_program **kept,
                                     const dfgnn_edge_program *program,
                                     const unsigned char *outputs,
                                     const unsigned char *inputs) {
  return derive(kept, program, outputs, inputs, dfgnn__dag_kept);
}

dfgnn_status dfgnn_edge_program_operator(dfgnn_edge_operator *found,
                                         const dfgnn_edge_program *program) {
  static const dfgnn_descriptor_kind kind = DFGNN_DESCRIPTOR(
      "found", dfgnn_edge_operator, "DFGNN_EDGE_OPERATOR_INIT");
  DFGNN_TRY(dfgnn__check_edge_program(program));
  DFGNN_TRY(dfgnn__can_give(found, &kind));
  dfgnn_edge_operator full = DFGNN_EDGE_OPERATOR_INIT;
  dfgnn__edge_operator_describe(&full, program);
  dfgnn__give(found, &full, &kind);
  return DFGNN_OK;
}
