/* edge_program_bind.c - tensors and sizes of programs, by name */
#include <string.h>

#include "lib/base/error.h"
#include "lib/edge_program.h"

_Static_assert(sizeof(dfgnn_edge_tensor) ==
                   2 * sizeof(char *) + 2 * sizeof(int) + 3 * sizeof(int64_t),
               "programs that were built before pass arrays of tensors");

static dfgnn_status check_rank(const dfgnn_port *port,
                               const dfgnn_edge_tensor *tensor) {
  if (tensor->rank != port->rank)
    return dfgnn__fail(
        DFGNN_ERROR_INVALID, "%s: found %d axes after the %s's, expected %d",
        port->name, tensor->rank, dfgnn__place_name(port->place), port->rank);
  dfgnn_status status =
      dfgnn__check_range("dtype", tensor->dtype, 0, DFGNN_DTYPE_COUNT - 1);
  return status ? dfgnn__fail_prefix(status, "%s: ", port->name) : DFGNN_OK;
}

static dfgnn_status bind(dfgnn_edge_execution *x, dfgnn_program_array *arrays,
                         const dfgnn_dag *dag, const dfgnn_port *ports,
                         int count, const dfgnn_edge_tensor *tensors,
                         int tensor_count, const char *what) {
  if (tensor_count > 0 && !tensors)
    return dfgnn__fail(DFGNN_ERROR_INVALID, "%ss is NULL, but there are %d",
                       what, tensor_count);
  for (int k = 0; k < tensor_count; k++) {
    const dfgnn_edge_tensor *tensor = &tensors[k];
    if (!tensor->name || dfgnn__dag_find(ports, count, tensor->name) < 0)
      return dfgnn__fail(DFGNN_ERROR_INVALID, "the program has no %s \"%s\"",
                         what, tensor->name ? tensor->name : "(NULL)");
  }
  for (int i = 0; i < count; i++) {
    const dfgnn_port *port = &ports[i];
    const dfgnn_edge_tensor *tensor = NULL;
    int found = 0;
    for (int k = 0; k < tensor_count; k++)
      if (!strcmp(tensors[k].name, port->name)) {
        tensor = &tensors[k];
        found++;
      }
    if (found != 1)
      return dfgnn__fail(DFGNN_ERROR_INVALID, "%s for the %s \"%s\"",
                         found ? "two tensors" : "no tensor", what, port->name);
    dfgnn_status status = check_rank(port, tensor);
    if (status)
      return status;
    int64_t axes[DFGNN_DAG_AXES] = {1, 1, 1};
    for (int k = 0; k < port->rank; k++)
      axes[DFGNN_DAG_AXES - port->rank + k] = tensor->axes[k];
    DFGNN_TRY(dfgnn__bind_input(&x->binding, dag, port, axes));
    int64_t elements = x->binding.counts[port->place];
    if (!tensor->data && elements)
      return dfgnn__fail(DFGNN_ERROR_INVALID, "%s: data is NULL", port->name);
    arrays[i] =
        (dfgnn_program_array){.data = tensor->data, .dtype = tensor->dtype};
  }
  return DFGNN_OK;
}

dfgnn_status dfgnn__edge_program_bind(
    dfgnn_edge_execution *x, const dfgnn_edge_program *program,
    const dfgnn_matrix *matrix, const dfgnn_edge_tensor *inputs,
    int input_count, const dfgnn_edge_tensor *outputs, int output_count) {
  const dfgnn_dag *dag = program->lowered->dag;
  dfgnn__program_counts(x->binding.counts, matrix);
  if (!matrix->relations && dfgnn__program_needs_relations(program->lowered))
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "the program has values of relations (rel), and the "
                       "graph's edges have none: dfgnn_graph_set_relations "
                       "gives them");
  DFGNN_TRY(bind(x, x->inputs, dag, dag->inputs, dag->input_count, inputs,
                 input_count, "input"));
  return bind(x, x->outputs, dag, dag->outputs, dag->output_count, outputs,
              output_count, "output");
}

dfgnn_status dfgnn__edge_program_launch(const dfgnn_plan *plan,
                                        const dfgnn_launch *launch) {
  const dfgnn_args *args = launch->args;
  const dfgnn_edge_program *program = plan->problem.program;
  dfgnn_edge_execution x = {.job = *launch->setting.program};
  dfgnn_launch bound = *launch;
  DFGNN_TRY(
      dfgnn__edge_program_bind(&x, program, plan->matrix, args->program_inputs,
                               args->program_input_count, args->program_outputs,
                               args->program_output_count));
  const dfgnn_dtype dtype =
      dfgnn__edge_program_dtype(program->lowered->dag, x.inputs, x.outputs);
  if (dtype != plan->problem.dtype)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "the tensors are of type %s, the plan is for %s",
                       dfgnn_name(DFGNN_NAMES_DTYPE, dtype),
                       dfgnn_name(DFGNN_NAMES_DTYPE, plan->problem.dtype));
  x.job.inputs = x.inputs;
  x.job.outputs = x.outputs;
  bound.setting.program = &x.job;
  return plan->variant->family->launch(&bound);
}
