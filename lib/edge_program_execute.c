/* edge_program_execute.c - binds tensors to programs and runs them */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "kernels/common/half.h"
#include "kernels/program/job.h"
#include "lib/edge_program.h"
#include "lib/graph.h"
#include "lib/handle.h"

_Static_assert(sizeof(dfgnn_edge_tensor) ==
                   2 * sizeof(char *) + 2 * sizeof(int) + 3 * sizeof(int64_t),
               "programs that were built before pass arrays of tensors");

/* An execution: the arrays of inputs and outputs in the program's order. */
typedef struct execution {
  dfgnn_program_job job;
  dfgnn_binding binding;
  dfgnn_program_array inputs[DFGNN_DAG_INPUTS], outputs[DFGNN_DAG_OUTPUTS];
  dfgnn_extent *extents;
} execution;

static dfgnn_status check_rank(const dfgnn_port *port,
                               const dfgnn_edge_tensor *tensor) {
  if (tensor->rank != port->rank)
    return dfgnn__fail(
        DFGNN_ERROR_INVALID, "%s: found %d axes after the %s's, expected %d",
        port->name, tensor->rank, dfgnn__place_name(port->place), port->rank);
  if (tensor->dtype < 0 || tensor->dtype >= DFGNN_DTYPE_COUNT)
    return dfgnn__fail(DFGNN_ERROR_INVALID, "%s: dtype is %d", port->name,
                       (int)tensor->dtype);
  return DFGNN_OK;
}

static dfgnn_status bind(execution *x, dfgnn_program_array *arrays,
                         const dfgnn_dag *dag, const dfgnn_port *ports,
                         int count, const dfgnn_edge_tensor *tensors,
                         int tensor_count, const char *what) {
  for (int k = 0; k < tensor_count; k++) {
    const dfgnn_edge_tensor *tensor = &tensors[k];
    if (!tensor->name || dfgnn__dag_find(ports, count, tensor->name) < 0)
      return dfgnn__fail(DFGNN_ERROR_INVALID, "the program has no %s \"%s\"",
                         what, tensor->name ? tensor->name : "(NULL)");
  }
  for (int i = 0; i < count; i++) {
    const dfgnn_port *port = &ports[i];
    const dfgnn_edge_tensor *tensor = NULL;
    for (int k = 0; k < tensor_count; k++)
      if (!strcmp(tensors[k].name, port->name))
        tensor = &tensors[k];
    if (!tensor)
      return dfgnn__fail(DFGNN_ERROR_INVALID, "no tensor for the %s \"%s\"",
                         what, port->name);
    dfgnn_status status = check_rank(port, tensor);
    if (status)
      return status;
    int64_t axes[DFGNN_DAG_AXES] = {1, 1, 1};
    for (int k = 0; k < port->rank; k++)
      axes[DFGNN_DAG_AXES - port->rank + k] = tensor->axes[k];
    if ((status = dfgnn__bind_input(&x->binding, dag, port, axes)))
      return status;
    int64_t elements = x->binding.counts[port->place];
    if (!tensor->data && elements)
      return dfgnn__fail(DFGNN_ERROR_INVALID, "%s: data is NULL", port->name);
    arrays[i] =
        (dfgnn_program_array){.data = tensor->data, .dtype = tensor->dtype};
  }
  return DFGNN_OK;
}

static dfgnn_status look_at_graph(execution *x, dfgnn_graph *graph,
                                  int columns) {
  static const dfgnn_view_request transpose = {.kind = DFGNN_VIEW_TRANSPOSE};
  dfgnn_status status = dfgnn__check_graph_of(graph, graph ? graph->ctx : NULL);
  if (status)
    return status;
  if ((status = dfgnn__graph_know(graph)))
    return status;
  x->job.rows = graph->exact;
  if (columns) {
    const dfgnn_view *view;
    if ((status = dfgnn__graph_view(&view, graph, &transpose)))
      return status;
    x->job.columns = dfgnn__transposed(&graph->exact, view);
    x->job.column_edges = view->array[2];
  }
  x->job.threads = graph->ctx->info.units;
  x->binding.counts[DFGNN_PLACE_CONST] = 1;
  x->binding.counts[DFGNN_PLACE_PARAM] = 1;
  x->binding.counts[DFGNN_PLACE_DST] = graph->exact.destinations;
  x->binding.counts[DFGNN_PLACE_SRC] = graph->exact.sources;
  x->binding.counts[DFGNN_PLACE_EDGE] = graph->exact.edges;
  return DFGNN_OK;
}

static dfgnn_status prepare(execution *x, const dfgnn_edge_program *program,
                            dfgnn_graph *graph, const dfgnn_edge_tensor *inputs,
                            int input_count, const dfgnn_edge_tensor *outputs,
                            int output_count, int columns) {
  dfgnn_status status = dfgnn__check_edge_program(program);
  if (status)
    return status;
  const dfgnn_lowered *lowered = program->lowered;
  const dfgnn_dag *dag = lowered->dag;
  columns |= dfgnn__program_needs_columns(lowered);
  if ((status = dfgnn__check_graph(graph)) ||
      (status = look_at_graph(x, graph, columns)))
    return status;
  status = bind(x, x->inputs, dag, dag->inputs, dag->input_count, inputs,
                input_count, "input");
  if (!status)
    status = bind(x, x->outputs, dag, dag->outputs, dag->output_count, outputs,
                  output_count, "output");
  if (status)
    return status;
  x->extents = calloc((size_t)dag->count, sizeof *x->extents);
  if (!x->extents)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  x->job.lowered = lowered;
  x->job.binding = &x->binding;
  x->job.extents = x->extents;
  x->job.inputs = x->inputs;
  x->job.outputs = x->outputs;
  return dfgnn__bind_nodes(x->extents, dag, &x->binding);
}

/* May the program run as the operator that it is? */
static int as_operator(const dfgnn_edge_program *program) {
  const char *how = getenv("DFGNN_PROGRAMS");
  return program->is_operator && !(how && !strcmp(how, "own"));
}

static dfgnn_edge_call call_of(const execution *x,
                               const dfgnn_edge_program *program,
                               dfgnn_graph *graph, void *workspace,
                               void *stream) {
  return (dfgnn_edge_call){.program = program,
                           .graph = graph,
                           .binding = &x->binding,
                           .inputs = x->inputs,
                           .outputs = x->outputs,
                           .seed = x->job.seed,
                           .workspace = workspace,
                           .stream = stream};
}

static int on_cpu(const dfgnn_graph *graph) {
  return !strcmp(graph->ctx->backend->name, "cpu");
}

static dfgnn_status run_itself(const execution *x,
                               const dfgnn_edge_program *program,
                               dfgnn_graph *graph,
                               const dfgnn_program_tuning *tuning,
                               void *workspace, void *stream) {
  return on_cpu(graph) ? dfgnn__program_cpu(&x->job)
                       : dfgnn__edge_program_cuda(program, graph, &x->job,
                                                  tuning, workspace, stream);
}

dfgnn_status dfgnn__edge_program_execute_tuned(
    const dfgnn_edge_program *program, dfgnn_graph *graph,
    const dfgnn_edge_tensor *inputs, int input_count,
    const dfgnn_edge_tensor *outputs, int output_count, uint64_t seed,
    const dfgnn_program_tuning *tuning, void *stream) {
  execution x = {.job = {.seed = seed}};
  dfgnn_status status = prepare(&x, program, graph, inputs, input_count,
                                outputs, output_count, 0);
  if (!status)
    status = run_itself(&x, program, graph, tuning, NULL, stream);
  free(x.extents);
  return status;
}

static const dfgnn_program_tuning by_rule;

dfgnn_status dfgnn_edge_program_execute_in(
    const dfgnn_edge_program *program, dfgnn_graph *graph,
    const dfgnn_edge_tensor *inputs, int input_count,
    const dfgnn_edge_tensor *outputs, int output_count, uint64_t seed,
    void *workspace, void *stream) {
  execution x = {.job = {.seed = seed}};
  int done = 0;
  dfgnn_status status = prepare(&x, program, graph, inputs, input_count,
                                outputs, output_count, 0);
  if (!status && as_operator(program)) {
    const dfgnn_edge_call call = call_of(&x, program, graph, workspace, stream);
    status = dfgnn__edge_operator_execute(&done, &call);
  }
  if (!status && !done)
    status = run_itself(&x, program, graph, &by_rule, workspace, stream);
  free(x.extents);
  return status;
}

dfgnn_status
dfgnn_edge_program_execute(const dfgnn_edge_program *program,
                           dfgnn_graph *graph, const dfgnn_edge_tensor *inputs,
                           int input_count, const dfgnn_edge_tensor *outputs,
                           int output_count, uint64_t seed, void *stream) {
  return dfgnn_edge_program_execute_in(program, graph, inputs, input_count,
                                       outputs, output_count, seed, NULL,
                                       stream);
}

/* The larger of what the operator and the program itself take, since the
 * operator may refuse when it runs. */
dfgnn_status dfgnn_edge_program_workspace(
    size_t *bytes, const dfgnn_edge_program *program, dfgnn_graph *graph,
    const dfgnn_edge_tensor *inputs, int input_count,
    const dfgnn_edge_tensor *outputs, int output_count) {
  execution x = {0};
  size_t operators = 0, own = 0;
  if (!bytes)
    return dfgnn__fail(DFGNN_ERROR_INVALID, "bytes is NULL");
  dfgnn_status status = prepare(&x, program, graph, inputs, input_count,
                                outputs, output_count, 0);
  if (!status && as_operator(program)) {
    const dfgnn_edge_call call = call_of(&x, program, graph, NULL, NULL);
    status = dfgnn__edge_operator_room(&operators, &call);
  }
  if (!status && !on_cpu(graph))
    status = dfgnn__edge_program_cuda_room(&own, program, graph, &x.job,
                                           &by_rule);
  *bytes = operators > own ? operators : own;
  free(x.extents);
  return status;
}

/* ---- checking ------------------------------------------------------------ */

static double element(const dfgnn_program_array *array, int64_t i) {
  switch (array->dtype) {
  case DFGNN_F64:
    return ((const double *)array->data)[i];
  case DFGNN_F16:
    return dfgnn__f16_to_float(((const uint16_t *)array->data)[i]);
  case DFGNN_BF16:
    return dfgnn__bf16_to_float(((const uint16_t *)array->data)[i]);
  default:
    return ((const float *)array->data)[i];
  }
}

/* The error that storing a number may add. */
static double rounding(dfgnn_dtype dtype, double x) {
  static const double unit[] = {0x1p-24, 0x1p-11, 0x1p-8, 0x1p-53};
  static const double least[] = {0x1p-149, 0x1p-25, 0x1p-133, 0x1p-1074};
  return fabs(x) * unit[dtype] + least[dtype];
}

static double worst_of(const dfgnn_program_array *array, const double *values,
                       const double *bounds, int64_t count) {
  double worst = 0;
  for (int64_t i = 0; i < count; i++) {
    double have = element(array, i), want = values[i];
    double bound = bounds[i] + rounding(array->dtype, want);
    double ratio = fabs(have - want) / bound;
    if (have == want || (isnan(have) && isnan(want)) || isinf(bound) ||
        isnan(bound))
      ratio = 0;
    if (isnan(ratio))
      ratio = INFINITY;
    worst = ratio > worst ? ratio : worst;
  }
  return worst;
}

static dfgnn_status compare(double *worst, int *where, execution *x,
                            const dfgnn_dag *dag) {
  double *values[DFGNN_DAG_OUTPUTS] = {0}, *bounds[DFGNN_DAG_OUTPUTS] = {0};
  int64_t counts[DFGNN_DAG_OUTPUTS];
  dfgnn_dtype sums = DFGNN_F32;
  dfgnn_status status = DFGNN_OK;
  for (int i = 0; i < dag->input_count; i++)
    sums = x->inputs[i].dtype == DFGNN_F64 ? DFGNN_F64 : sums;
  for (int i = 0; i < dag->output_count; i++) {
    const dfgnn_port *port = &dag->outputs[i];
    sums = x->outputs[i].dtype == DFGNN_F64 ? DFGNN_F64 : sums;
    counts[i] = x->binding.counts[port->place] *
                dfgnn__bind_port(port, &x->binding).all;
    values[i] = malloc(((size_t)counts[i] + 1) * sizeof **values);
    bounds[i] = malloc(((size_t)counts[i] + 1) * sizeof **bounds);
    if (!values[i] || !bounds[i])
      status = dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  }
  if (!status)
    status = dfgnn__program_reference(&x->job, dag, sums, values, bounds);
  *worst = 0;
  for (int i = 0; !status && i < dag->output_count; i++) {
    double here = worst_of(&x->outputs[i], values[i], bounds[i], counts[i]);
    if (here >= *worst) {
      *worst = here;
      if (where)
        *where = i;
    }
  }
  for (int i = 0; i < dag->output_count; i++) {
    free(values[i]);
    free(bounds[i]);
  }
  return status;
}

dfgnn_status
dfgnn__edge_program_compare(double *worst, int *where,
                            const dfgnn_edge_program *program,
                            dfgnn_graph *graph, const dfgnn_edge_tensor *inputs,
                            int input_count, const dfgnn_edge_tensor *outputs,
                            int output_count, uint64_t seed, int executed) {
  execution x = {.job = {.seed = seed}};
  dfgnn_status status = prepare(&x, program, graph, inputs, input_count,
                                outputs, output_count, 1);
  if (!status && !on_cpu(graph))
    status = dfgnn__fail(DFGNN_ERROR_UNSUPPORTED,
                         "programs are checked on the CPU, and the graph is "
                         "on %s",
                         graph->ctx->backend->name);
  if (!status && !executed)
    status = dfgnn__program_cpu(&x.job);
  if (!status)
    status = compare(worst, where, &x, program->dag);
  free(x.extents);
  return status;
}

dfgnn_status dfgnn_edge_program_check(
    double *worst, int *where, const dfgnn_edge_program *program,
    dfgnn_graph *graph, const dfgnn_edge_tensor *inputs, int input_count,
    const dfgnn_edge_tensor *outputs, int output_count, uint64_t seed) {
  return dfgnn__edge_program_compare(worst, where, program, graph, inputs,
                                     input_count, outputs, output_count, seed,
                                     0);
}
