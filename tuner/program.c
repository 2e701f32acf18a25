#include "tuner/program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "kernels/common/half.h"
#include "lib/edge_program.h"
#include "lib/signature.h"
#include "lib/views.h"
#include "tuner/tensors.h"

enum {
  POISON = 0xff,           /* NaN in every floating-point type */
  MOST_VALUES = 24 << 20,  /* of all values of a program that is checked */
  MOST_EDGES_OF_ROW = 4096 /* of a part: more than any variant calls long */
};

typedef struct port {
  char *memory; /* on the device; DFGNN_GUARD bytes before the tensor */
  char *host;   /* of what is checked */
  size_t bytes;
} port;

/* Tensors for a graph. */
typedef struct instance {
  dfgnn_graph *graph;
  int count; /* inputs, then outputs */
  port *ports;
  dfgnn_edge_tensor *tensors;
} instance;

struct dfgnn_program_harness {
  dfgnn_context *ctx;
  const dfgnn_program_job *shape; /* of the problem */
  dfgnn_problem problem;
  uint64_t seed;
  instance whole, part; /* part.graph NULL: the whole graph is checked */
  /* of the graph that is checked, on the host: */
  char *offsets;
  int32_t *indices;
  dfgnn_view transpose;
  dfgnn_program_expected expected;
  int prepared; /* the evaluation ran, with the status: */
  dfgnn_status outcome;
};

static dfgnn_status no_memory(size_t bytes) {
  return dfgnn__fail(DFGNN_ERROR_MEMORY,
                     "harness: cannot allocate %zu bytes on the host", bytes);
}

static const dfgnn_port *port_of(const dfgnn_program_harness *h, int i,
                                 int *output) {
  const dfgnn_dag *dag = h->shape->lowered->dag;
  *output = i - dag->input_count;
  return *output < 0 ? &dag->inputs[i] : &dag->outputs[*output];
}

static int64_t rows_of(const dfgnn_graph *graph, dfgnn_place place) {
  const dfgnn_matrix *m = &graph->matrix;
  return place == DFGNN_PLACE_DST    ? m->destinations
         : place == DFGNN_PLACE_SRC  ? m->sources
         : place == DFGNN_PLACE_EDGE ? m->edges
                                     : 1;
}

/* ---- tensors ------------------------------------------------------------- */

/* Uniform numbers of -1 to 1, the same on every machine. */
static void fill(char *to, dfgnn_dtype dtype, int64_t count, uint64_t seed) {
#pragma omp parallel for if (count > DFGNN_PARALLEL)
  for (int64_t i = 0; i < count; i++) {
    const double x =
        (double)(dfgnn__mix(seed + (uint64_t)i) >> 40) / (1 << 23) - 1;
    if (dtype == DFGNN_F64)
      ((double *)to)[i] = x;
    else if (dtype == DFGNN_F32)
      ((float *)to)[i] = (float)x;
    else
      ((uint16_t *)to)[i] = dtype == DFGNN_F16 ? dfgnn__f16_from_double(x)
                                               : dfgnn__bf16_from_double(x);
  }
}

static dfgnn_status copy(const dfgnn_program_harness *h, void *to,
                         const void *from, size_t bytes) {
  return bytes ? h->ctx->backend->copy(h->ctx->device, to, from, bytes)
               : DFGNN_OK;
}

static dfgnn_status make_port(dfgnn_program_harness *h, instance *t, int i) {
  int output;
  const dfgnn_port *p = port_of(h, i, &output);
  const dfgnn_program_array *array =
      output < 0 ? &h->shape->inputs[i] : &h->shape->outputs[output];
  const dfgnn_extent extent = dfgnn__bind_port(p, h->shape->binding);
  const int64_t elements = extent.all * rows_of(t->graph, p->place);
  port *made = &t->ports[i];
  dfgnn_edge_tensor *tensor = &t->tensors[i];
  void *memory;
  made->bytes = (size_t)elements * dfgnn_dtype_size(array->dtype);
  dfgnn_status status = h->ctx->backend->allocate(
      h->ctx->device, &memory, made->bytes + 2 * DFGNN_GUARD);
  if (status)
    return status;
  made->memory = memory;
  *tensor = (dfgnn_edge_tensor){.name = p->name,
                                .data = made->memory + DFGNN_GUARD,
                                .dtype = array->dtype,
                                .rank = p->rank};
  for (int k = 0; k < p->rank; k++)
    tensor->axes[k] = extent.axis[DFGNN_DAG_AXES - p->rank + k];
  if (!(made->host = malloc(made->bytes + 1)))
    return no_memory(made->bytes);
  if (output >= 0)
    return DFGNN_OK;
  fill(made->host, array->dtype, elements,
       dfgnn__mix(h->seed + (uint64_t)i) << 20);
  return copy(h, tensor->data, made->host, made->bytes);
}

static dfgnn_status make_instance(dfgnn_program_harness *h, instance *t,
                                  dfgnn_graph *graph) {
  const dfgnn_dag *dag = h->shape->lowered->dag;
  const int count = dag->input_count + dag->output_count;
  dfgnn_status status = DFGNN_OK;
  t->graph = graph;
  t->count = count;
  t->ports = calloc((size_t)count + 1, sizeof *t->ports);
  t->tensors = calloc((size_t)count + 1, sizeof *t->tensors);
  if (!t->ports || !t->tensors)
    return no_memory((size_t)count * sizeof *t->tensors);
  for (int i = 0; i < count && !status; i++)
    status = make_port(h, t, i);
  return status;
}

static void free_instance(dfgnn_program_harness *h, instance *t) {
  for (int i = 0; i < t->count; i++) {
    if (t->ports && t->ports[i].memory)
      h->ctx->backend->release(h->ctx->device, t->ports[i].memory);
    if (t->ports)
      free(t->ports[i].host);
  }
  free(t->ports);
  free(t->tensors);
}

static void set_args(dfgnn_args *args, const dfgnn_program_harness *h,
                     const instance *t) {
  const dfgnn_dag *dag = h->shape->lowered->dag;
  args->program_inputs = t->tensors;
  args->program_outputs = t->tensors + dag->input_count;
  args->program_input_count = dag->input_count;
  args->program_output_count = dag->output_count;
  args->seed_value = h->seed;
}

/* ---- a part of a graph --------------------------------------------------- */

typedef struct csr {
  int64_t rows, sources, edges;
  int64_t *offsets;
  int32_t *indices;
} csr;

static int64_t offset(const dfgnn_matrix *m, int64_t i) {
  return m->offsets64 ? ((const int64_t *)m->offsets)[i]
                      : ((const int32_t *)m->offsets)[i];
}

/* The graph's arrays on the host. */
static dfgnn_status read_graph(dfgnn_program_harness *h, dfgnn_matrix *m,
                               const dfgnn_graph *graph) {
  *m = graph->matrix;
  const size_t offsets = (size_t)(m->destinations + 1) * (m->offsets64 ? 8 : 4);
  const size_t indices = (size_t)m->edges * 4;
  free(h->offsets);
  free(h->indices);
  h->offsets = malloc(offsets);
  h->indices = malloc(indices + 1);
  if (!h->offsets || !h->indices)
    return no_memory(offsets + indices);
  dfgnn_status status = copy(h, h->offsets, m->offsets, offsets);
  if (!status)
    status = copy(h, h->indices, m->indices, indices);
  m->offsets = h->offsets;
  m->indices = h->indices;
  return status;
}

/* Values of an edge, and of the nodes that it may bring along. */
static int64_t values_of_edge(const dfgnn_program_harness *h) {
  const dfgnn_lowered *l = h->shape->lowered;
  int64_t values = 1;
  for (int32_t n = 0; n < l->dag->count; n++)
    if (l->needed[n] && l->dag->nodes[n].place > DFGNN_PLACE_PARAM)
      values += h->shape->extents[n].all;
  return values;
}

/* Adds a row, cut to `most` edges; sources get numbers as they come. */
static void take_row(csr *part, const dfgnn_matrix *m, int32_t *number,
                     int64_t row, int64_t most) {
  int64_t begin = offset(m, row), end = offset(m, row + 1);
  for (int64_t e = begin; e < end && e < begin + most; e++) {
    const int32_t source = m->indices[e];
    if (number[source] < 0)
      number[source] = (int32_t)part->sources++;
    part->indices[part->edges++] = number[source];
  }
  part->offsets[++part->rows] = part->edges;
}

/* The longest row, then rows at equal steps, of `most` edges and rows in all.
 */
static void take_rows(csr *part, const dfgnn_matrix *m, int32_t *number,
                      int64_t most) {
  int64_t longest = 0;
  for (int64_t i = 0; i < m->destinations; i++)
    if (offset(m, i + 1) - offset(m, i) >
        offset(m, longest + 1) - offset(m, longest))
      longest = i;
  const int64_t a_row =
      most / 4 < MOST_EDGES_OF_ROW ? most / 4 + 1 : MOST_EDGES_OF_ROW;
  const int64_t mean = 1 + m->edges / (m->destinations + 1);
  const int64_t rows = 1 + most / (1 + mean);
  const int64_t step = 1 + m->destinations / rows;
  take_row(part, m, number, longest, a_row);
  for (int64_t i = 0; i < m->destinations; i += step) {
    int64_t left = most - part->edges - part->rows;
    if (left <= 1)
      break;
    take_row(part, m, number, i, left < a_row ? left : a_row);
  }
}

static dfgnn_status make_part(dfgnn_program_harness *h, const dfgnn_matrix *m,
                              int64_t most) {
  csr part = {0};
  dfgnn_csr given = DFGNN_CSR_INIT;
  dfgnn_graph *graph;
  dfgnn_status status = DFGNN_OK;
  int32_t *number = malloc((size_t)(m->sources + 1) * sizeof *number);
  part.offsets = calloc((size_t)most + 2, sizeof *part.offsets);
  part.indices = malloc((size_t)(most + 1) * sizeof *part.indices);
  if (!number || !part.offsets || !part.indices)
    status = no_memory((size_t)most * 16);
  if (!status) {
    memset(number, -1, (size_t)(m->sources + 1) * sizeof *number);
    take_rows(&part, m, number, most);
    given.destinations = part.rows;
    given.sources = part.sources + 1; /* one that no edge has */
    given.edges = part.edges;
    given.offsets = part.offsets;
    given.indices = part.indices;
    given.offset_type = DFGNN_INDEX_I64;
    given.index_type = DFGNN_INDEX_I32;
    status = dfgnn_graph_create_csr(&graph, h->ctx, &given, NULL);
  }
  if (!status)
    status = make_instance(h, &h->part, graph);
  free(number);
  free(part.offsets);
  free(part.indices);
  return status;
}

/* ---- creation ------------------------------------------------------------ */

dfgnn_status dfgnn__program_harness_create(dfgnn_program_harness **harness,
                                           dfgnn_args *args, dfgnn_graph *graph,
                                           const dfgnn_problem *problem,
                                           uint64_t seed) {
  dfgnn_program_harness *h = calloc(1, sizeof *h);
  if (!h)
    return no_memory(sizeof *h);
  h->ctx = graph->ctx;
  h->problem = *problem;
  h->shape = dfgnn__edge_program_job(&h->problem);
  h->seed = seed;
  dfgnn__edge_program_hold(problem->program);
  *harness = h;
  dfgnn_status status = make_instance(h, &h->whole, graph);
  set_args(args, h, &h->whole);
  return status;
}

void dfgnn__program_harness_free(dfgnn_program_harness *h) {
  if (!h)
    return;
  free_instance(h, &h->whole);
  free_instance(h, &h->part);
  dfgnn_graph_destroy(h->part.graph);
  free(h->offsets);
  free(h->indices);
  for (int k = 0; k < 4; k++)
    free((void *)h->transpose.array[k]);
  dfgnn__edge_program_expected_free(&h->expected);
  dfgnn_edge_program_destroy((dfgnn_edge_program *)h->problem.program);
  free(h);
}

/* ---- the check ----------------------------------------------------------- */

static const instance *checked(const dfgnn_program_harness *h) {
  return h->part.graph ? &h->part : &h->whole;
}

/* The job of what is checked, in host memory. */
static dfgnn_status host_job(dfgnn_program_harness *h, dfgnn_program_job *job,
                             dfgnn_binding *binding,
                             dfgnn_program_array *arrays,
                             const dfgnn_matrix *m) {
  const instance *t = checked(h);
  const dfgnn_dag *dag = h->shape->lowered->dag;
  const dfgnn_view *views[] = {&h->transpose};
  const dfgnn_setting setting = {
      .matrix = m, .device = &h->ctx->info, .program = h->shape};
  dfgnn_status status = DFGNN_OK;
  if (!h->transpose.bytes) {
    h->transpose.request.kind = DFGNN_VIEW_TRANSPOSE;
    status = dfgnn__view_build(&h->transpose, m);
  }
  if (status)
    return status;
  dfgnn__program_job_of(job, binding, &setting, views);
  job->columns = dfgnn__transposed(m, &h->transpose);
  job->column_edges = h->transpose.array[2];
  job->seed = h->seed;
  for (int i = 0; i < t->count; i++)
    arrays[i] = (dfgnn_program_array){.data = t->ports[i].host,
                                      .dtype = t->tensors[i].dtype};
  job->inputs = arrays;
  job->outputs = arrays + dag->input_count;
  return DFGNN_OK;
}

static dfgnn_status expect(dfgnn_program_harness *h) {
  dfgnn_matrix m;
  dfgnn_program_job job;
  dfgnn_binding binding;
  dfgnn_program_array arrays[DFGNN_DAG_INPUTS + DFGNN_DAG_OUTPUTS];
  const int64_t most = MOST_VALUES / values_of_edge(h) + 64;
  dfgnn_status status = read_graph(h, &m, h->whole.graph);
  if (!status && m.edges + m.destinations + m.sources > most) {
    status = make_part(h, &m, most / 2);
    if (!status)
      status = read_graph(h, &m, h->part.graph);
  }
  if (!status)
    status = host_job(h, &job, &binding, arrays, &m);
  return status ? status : dfgnn__edge_program_expect(&h->expected, &job);
}

static dfgnn_status poison(dfgnn_program_harness *h, const instance *t, int i) {
  const port *p = &t->ports[i];
  unsigned char guard[DFGNN_GUARD];
  char *bytes = malloc(p->bytes + 1);
  if (!bytes)
    return no_memory(p->bytes);
  memset(guard, DFGNN_GUARD_BYTE, sizeof guard);
  memset(bytes, POISON, p->bytes);
  dfgnn_status status = copy(h, p->memory, guard, sizeof guard);
  if (!status)
    status = copy(h, p->memory + DFGNN_GUARD, bytes, p->bytes);
  if (!status)
    status = copy(h, p->memory + DFGNN_GUARD + p->bytes, guard, sizeof guard);
  free(bytes);
  return status;
}

static dfgnn_status check_guards(dfgnn_program_harness *h, const instance *t,
                                 int i) {
  const port *p = &t->ports[i];
  const char *const at[] = {p->memory, p->memory + DFGNN_GUARD + p->bytes};
  unsigned char found[DFGNN_GUARD];
  dfgnn_status status = DFGNN_OK;
  for (int side = 0; side < 2 && !status; side++) {
    status = copy(h, found, at[side], sizeof found);
    for (int k = 0; k < DFGNN_GUARD && !status; k++)
      if (found[k] != DFGNN_GUARD_BYTE)
        status = dfgnn__fail(
            DFGNN_ERROR_WRONG, "wrote %s %s: byte %d of the guard is 0x%02x",
            side ? "beyond" : "before", t->tensors[i].name, k, found[k]);
  }
  return status;
}

static dfgnn_status compare(dfgnn_accuracy *accuracy, dfgnn_program_harness *h,
                            const instance *t, int i, int output) {
  const port *p = &t->ports[i];
  dfgnn_status status = copy(h, p->host, p->memory + DFGNN_GUARD, p->bytes);
  if (status)
    return status;
  const dfgnn_program_array array = {.data = p->host,
                                     .dtype = t->tensors[i].dtype};
  const dfgnn_program_errors errors = dfgnn__edge_program_errors(
      &array, h->expected.values[output], h->expected.bounds[output],
      h->expected.counts[output]);
  if (errors.relative > accuracy->rel_error)
    accuracy->rel_error = errors.relative;
  if (errors.of_bound > accuracy->of_bound)
    accuracy->of_bound = errors.of_bound;
  if (errors.of_bound <= 1)
    return DFGNN_OK;
  return dfgnn__fail(DFGNN_ERROR_WRONG,
                     "%s, number %lld: found %.9g, expected %.9g, an error of "
                     "%.2g bounds",
                     t->tensors[i].name, (long long)errors.at, errors.found,
                     errors.expected, errors.of_bound);
}

/* Executes over poisoned outputs; compares them if what they should be is
 * known. */
static dfgnn_status run(dfgnn_accuracy *accuracy, dfgnn_program_harness *h,
                        const instance *t, const dfgnn_plan *plan,
                        void *workspace) {
  const int inputs = h->shape->lowered->dag->input_count;
  dfgnn_args args = DFGNN_ARGS_INIT;
  dfgnn_status status = DFGNN_OK;
  set_args(&args, h, t);
  for (int i = inputs; i < t->count && !status; i++)
    status = poison(h, t, i);
  if (!status)
    status = dfgnn_execute(plan, &args, workspace, NULL);
  if (!status)
    status = h->ctx->backend->synchronize(h->ctx->device, NULL);
  for (int i = inputs; i < t->count && !status; i++) {
    status = check_guards(h, t, i);
    if (!status && t == checked(h))
      status = compare(accuracy, h, t, i, i - inputs);
  }
  return status;
}

/* Runs the plan's variant on the part. */
static dfgnn_status run_part(dfgnn_accuracy *accuracy, dfgnn_program_harness *h,
                             const char *variant) {
  dfgnn_plan *plan;
  void *workspace = NULL;
  dfgnn_status status = dfgnn_plan_create_forced(&plan, h->ctx, h->part.graph,
                                                 &h->problem, variant);
  if (status)
    return status;
  const size_t bytes = dfgnn_plan_workspace(plan);
  if (bytes)
    status = h->ctx->backend->allocate(h->ctx->device, &workspace, bytes);
  if (!status)
    status = run(accuracy, h, &h->part, plan, workspace);
  if (workspace)
    h->ctx->backend->release(h->ctx->device, workspace);
  dfgnn_plan_destroy(plan);
  return status;
}

dfgnn_status dfgnn__program_harness_check(dfgnn_accuracy *accuracy,
                                          dfgnn_program_harness *h,
                                          const dfgnn_plan *plan,
                                          void *workspace) {
  *accuracy = (dfgnn_accuracy){0, 0};
  if (!h->prepared) {
    h->outcome = expect(h);
    h->prepared = 1;
  }
  if (h->outcome)
    return dfgnn__fail_prefix(h->outcome, "no reference");
  dfgnn_status status = DFGNN_OK;
  if (h->part.graph)
    status = run_part(accuracy, h, plan->variant->name);
  return status ? status : run(accuracy, h, &h->whole, plan, workspace);
}
