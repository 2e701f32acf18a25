/* edge_program_setting.c - programs as problems: the key's numbers, and what a
 * setting says of them */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "db/store.h"
#include "lib/base/error.h"
#include "lib/edge_program.h"
#include "lib/operator.h"

static void describe_job(dfgnn_edge_program *program, dfgnn_dtype dtype) {
  const dfgnn_dag *dag = program->lowered->dag;
  const dfgnn_dtype sums = dtype == DFGNN_F64 ? DFGNN_F64 : DFGNN_F32;
  const int count = dag->input_count + dag->output_count;
  dfgnn_program_array *arrays = program->arrays + (int)dtype * count;
  for (int i = 0; i < count; i++)
    arrays[i].dtype = dtype;
  for (int i = 0; i < dag->output_count; i++)
    if (dag->outputs[i].kept)
      arrays[dag->input_count + i].dtype = sums;
  program->job[dtype] =
      (dfgnn_program_job){.lowered = program->lowered,
                          .binding = &program->binding,
                          .extents = program->extents,
                          .inputs = arrays,
                          .outputs = arrays + dag->input_count,
                          .codes = &program->codes};
}

void dfgnn__edge_program_describe_jobs(dfgnn_edge_program *program) {
  for (int dtype = 0; !program->unfit && dtype < DFGNN_DTYPE_COUNT; dtype++)
    describe_job(program, (dfgnn_dtype)dtype);
}

static int is_gradient(const dfgnn_dag *dag) {
  for (int i = 0; i < dag->input_count; i++)
    if (dag->inputs[i].role == DFGNN_PORT_COTANGENT)
      return 1;
  return 0;
}

/* The text on a line; NULL: no memory. */
static char *line_of(const char *text) {
  const size_t length = strlen(text);
  char *line = malloc(2 * length + 1), *to = line;
  for (size_t i = 0; line && i < length; i++)
    if (text[i] != '\n') {
      *to++ = text[i];
    } else if (i + 1 < length) { /* a list goes on after its comma */
      if (to > line && to[-1] != ',')
        *to++ = ';';
      *to++ = ' ';
      while (text[i + 1] == ' ')
        i++;
    }
  if (line) {
    *to = 0;
    if (to - line > DFGNN_PROGRAM_TEXT)
      *line = 0;
  }
  return line;
}

dfgnn_status dfgnn__edge_program_settle(dfgnn_edge_program *program) {
  const dfgnn_dag *dag = program->lowered->dag;
  const size_t ports = (size_t)(dag->input_count + dag->output_count);
  snprintf(program->name, sizeof program->name, "%016llx",
           (unsigned long long)program->hash);
  program->is_gradient = is_gradient(program->dag);
  if (dag->name_count)
    return DFGNN_OK;
  program->line = line_of(program->text);
  program->extents = calloc((size_t)dag->count, sizeof *program->extents);
  program->arrays =
      calloc((size_t)DFGNN_DTYPE_COUNT * ports + 1, sizeof *program->arrays);
  if (!program->line || !program->extents || !program->arrays)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  program->unfit = dfgnn__bind_nodes(program->extents, dag, &program->binding);
  if (program->unfit) { /* an execution fails likewise */
    program->complaint = strdup(dfgnn_last_error());
    return DFGNN_OK;
  }
  program->widest = dfgnn__program_widest(program->lowered, program->extents);
  dfgnn__edge_program_describe_jobs(program);
  return DFGNN_OK;
}

void dfgnn__edge_program_unsettle(dfgnn_edge_program *program) {
  free(program->extents);
  free(program->arrays);
  free(program->complaint);
  free(program->line);
}

dfgnn_status dfgnn__edge_program_complete(dfgnn_problem *complete,
                                          const dfgnn_problem *problem) {
  const dfgnn_edge_program *program = problem->program;
  dfgnn_status status = dfgnn__check_edge_program(program);
  if (status)
    return dfgnn__fail_prefix(status, "problem.program: ");
  if (program->dag->name_count)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "problem.program has the size %s, expected numbers: "
                       "dfgnn_edge_program_sized gives them",
                       program->dag->names[0]);
  if (program->unfit)
    return dfgnn__fail(program->unfit, "%s",
                       program->complaint ? program->complaint : "");
  complete->program = program;
  complete->pass =
      program->is_gradient ? DFGNN_PASS_BACKWARD : DFGNN_PASS_FORWARD;
  complete->dim = program->widest.axis[2];
  complete->heads = program->widest.all / complete->dim;
  complete->math = DFGNN_MATH_F32;
  complete->layout = DFGNN_LAYOUT_NHD;
  return DFGNN_OK;
}

const dfgnn_program_job *dfgnn__edge_program_job(const dfgnn_problem *problem) {
  return problem->op == DFGNN_OP_PROGRAM && problem->program
             ? &problem->program->job[problem->dtype]
             : NULL;
}

dfgnn_dtype dfgnn__edge_program_dtype(const dfgnn_dag *dag,
                                      const dfgnn_program_array *inputs,
                                      const dfgnn_program_array *outputs) {
  dfgnn_dtype dtype = DFGNN_F32;
  for (int i = 0; i < dag->input_count + dag->output_count; i++) {
    const dfgnn_dtype own = i < dag->input_count
                                ? inputs[i].dtype
                                : outputs[i - dag->input_count].dtype;
    if (own == DFGNN_F64)
      return DFGNN_F64;
    dtype = own == DFGNN_F32 ? dtype : own;
  }
  return dtype;
}

double dfgnn__edge_program_bytes(const dfgnn_problem *problem,
                                 int64_t destinations, int64_t sources,
                                 int64_t edges) {
  const dfgnn_program_job *job = dfgnn__edge_program_job(problem);
  const dfgnn_dag *dag = job->lowered->dag;
  const int64_t counts[DFGNN_PLACES] = {0, destinations + sources + edges > 1,
                                        destinations, sources, edges};
  double bytes = 0;
  for (int i = 0; i < dag->input_count + dag->output_count; i++) {
    const int output = i - dag->input_count;
    const dfgnn_port *port =
        output < 0 ? &dag->inputs[i] : &dag->outputs[output];
    const dfgnn_program_array *array =
        output < 0 ? &job->inputs[i] : &job->outputs[output];
    bytes += (double)dfgnn__bind_port(port, job->binding).all *
             (double)counts[port->place] *
             (double)dfgnn_dtype_size(array->dtype);
  }
  return bytes;
}
