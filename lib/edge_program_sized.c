/* edge_program_sized.c - programs with numbers for sizes, and the problems that
 * they are */
#include <stdlib.h>
#include <string.h>

#include "lib/base/descriptor.h"
#include "lib/base/error.h"
#include "lib/edge_program.h"

static void set_size(dfgnn_size *size, const int64_t *names) {
  *size = dfgnn__size((int32_t)dfgnn__size_value(*size, names));
}

static void set_ports(dfgnn_port *ports, int count, const int64_t *names) {
  for (int i = 0; i < count; i++)
    for (int k = 0; k < DFGNN_DAG_AXES; k++)
      set_size(&ports[i].shape[k], names);
}

/* Gives the sizes of values and ports their numbers. */
static void set_sizes(dfgnn_dag *dag, const int64_t *names) {
  for (int32_t n = 0; n < dag->count; n++) {
    for (int k = 0; k < DFGNN_DAG_AXES; k++)
      set_size(&dag->nodes[n].shape[k], names);
    set_size(&dag->nodes[n].at, names);
  }
  set_ports(dag->inputs, dag->input_count, names);
  set_ports(dag->outputs, dag->output_count, names);
}

/* Gives a program for some numbers what its text is, as it is written. */
static void write_sized(dfgnn_edge_program *sized,
                        const dfgnn_edge_program *program,
                        const int64_t *names) {
  dfgnn_dag *written =
      program->written ? dfgnn__dag_compact(program->written) : NULL;
  if (written)
    set_sizes(written, names);
  dfgnn__dag_free(sized->written);
  sized->written = written;
}

/* Ports keep their meaning to the program that they are derived from. */
static void take_roles(dfgnn_port *to, const dfgnn_port *from, int count) {
  for (int i = 0; i < count; i++) {
    to[i].role = from[i].role;
    to[i].of = from[i].of;
    to[i].kept = from[i].kept;
  }
}

static void take_operator(dfgnn_edge_program *to,
                          const dfgnn_edge_program *from,
                          const int64_t *names) {
  dfgnn_match *m = &to->match;
  to->is_operator = from->is_operator;
  to->pass = from->pass;
  *m = from->match;
  set_size(&m->heads, names);
  for (int k = 0; k < DFGNN_DAG_AXES; k++)
    set_size(&m->dim[k], names);
  set_size(&m->edge_dim, names);
  set_size(&m->scale_size, names);
}

/* Prints the program with numbers for sizes, and reads that. */
static dfgnn_status size_program(dfgnn_edge_program **sized,
                                 const dfgnn_edge_program *program,
                                 const int64_t *names) {
  const dfgnn_dag *dag = program->dag;
  dfgnn_dag *copy = dfgnn__dag_compact(dag);
  dfgnn_edge_program *made = NULL;
  dfgnn_status status = copy ? copy->status : DFGNN_ERROR_MEMORY;
  char *text = NULL;
  if (!status) {
    set_sizes(copy, names);
    text = dfgnn__dag_text(copy);
    status = text ? dfgnn_edge_program_create(&made, text) : DFGNN_ERROR_MEMORY;
  }
  if (!status && (made->dag->input_count != dag->input_count ||
                  made->dag->output_count != dag->output_count))
    status = dfgnn__fail(DFGNN_ERROR_UNSUPPORTED,
                         "for these sizes the program is another");
  if (!status) {
    take_roles(made->dag->inputs, dag->inputs, dag->input_count);
    take_roles(made->dag->outputs, dag->outputs, dag->output_count);
    take_roles(made->lowered->dag->inputs, dag->inputs, dag->input_count);
    take_roles(made->lowered->dag->outputs, dag->outputs, dag->output_count);
    take_operator(made, program, names);
    write_sized(made, program, names);
    made->is_gradient = program->is_gradient;
    dfgnn__edge_program_describe_jobs(made);
  }
  if (status)
    dfgnn_edge_program_destroy(made);
  else
    *sized = made;
  free(text);
  dfgnn__dag_free(copy);
  return status;
}

dfgnn_status dfgnn__edge_program_for(const dfgnn_edge_program **sized,
                                     const dfgnn_edge_program *program,
                                     const int64_t *names) {
  dfgnn_edge_program *p = (dfgnn_edge_program *)program;
  dfgnn_status status = DFGNN_OK;
  struct dfgnn_edge_sized *s;
  *sized = program;
  if (!program->dag->name_count)
    return DFGNN_OK;
  pthread_mutex_lock(&p->lock);
  for (s = p->sized; s; s = s->next)
    if (!memcmp(s->names, names, sizeof s->names))
      break;
  if (!s) {
    s = calloc(1, sizeof *s);
    status = s ? size_program(&s->program, program, names)
               : dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
    if (status) {
      free(s);
    } else {
      memcpy(s->names, names, sizeof s->names);
      s->next = p->sized;
      p->sized = s;
    }
  }
  if (!status)
    *sized = s->program;
  pthread_mutex_unlock(&p->lock);
  return status;
}

dfgnn_status dfgnn_edge_program_sized(dfgnn_edge_program **sized,
                                      const dfgnn_edge_program *program,
                                      const dfgnn_edge_size *sizes, int count) {
  int64_t names[DFGNN_SIZE_NAMES] = {0};
  const dfgnn_edge_program *found;
  dfgnn_status status = dfgnn__check_edge_program(program);
  if (!status && (!sized || (count && !sizes)))
    status = dfgnn__fail(DFGNN_ERROR_INVALID, "%s is NULL",
                         sized ? "sizes" : "sized");
  for (int i = 0; !status && i < program->dag->name_count; i++) {
    const char *name = program->dag->names[i];
    for (int k = 0; k < count; k++)
      if (sizes[k].name && !strcmp(sizes[k].name, name))
        names[i] = sizes[k].value;
    if (names[i] < 1 || names[i] > DFGNN_SIZE_MAX)
      status = dfgnn__fail(DFGNN_ERROR_INVALID,
                           "the size %s is %lld, expected 1 to %d", name,
                           (long long)names[i], DFGNN_SIZE_MAX);
  }
  if (!status)
    status = dfgnn__edge_program_for(&found, program, names);
  if (!status)
    *sized = dfgnn__edge_program_hold(found);
  return status;
}

dfgnn_status dfgnn__edge_program_as_problem(dfgnn_problem *problem,
                                            const dfgnn_edge_program *program,
                                            dfgnn_dtype dtype) {
  dfgnn_problem complete;
  *problem = (dfgnn_problem)DFGNN_PROBLEM_INIT;
  problem->op = DFGNN_OP_PROGRAM;
  problem->program = program;
  problem->dtype = dtype;
  DFGNN_TRY(dfgnn__edge_program_complete(&complete, problem));
  problem->pass = complete.pass;
  problem->heads = complete.heads;
  problem->dim = complete.dim;
  return DFGNN_OK;
}

dfgnn_status dfgnn_edge_program_problem(dfgnn_problem *problem,
                                        const dfgnn_edge_program *program,
                                        dfgnn_dtype dtype) {
  static const dfgnn_descriptor_kind kind =
      DFGNN_DESCRIPTOR("problem", dfgnn_problem, "DFGNN_PROBLEM_INIT");
  const char *how = getenv("DFGNN_PROGRAMS");
  dfgnn_problem full;
  DFGNN_TRY(dfgnn__check_edge_program(program));
  DFGNN_TRY(dfgnn__can_give(problem, &kind));
  DFGNN_TRY(dfgnn__check_range("dtype", dtype, 0, DFGNN_DTYPE_COUNT - 1));
  DFGNN_TRY(dfgnn__edge_program_as_problem(&full, program, dtype));
  if (program->is_operator && !(how && !strcmp(how, "own"))) {
    full = dfgnn__edge_operator_problem(program, program->binding.names);
    full.dtype = dtype;
  }
  dfgnn__give(problem, &full, &kind);
  return DFGNN_OK;
}
