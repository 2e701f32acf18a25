#include "tuner/program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/error.h"
#include "lib/edge_program.h"
#include "lib/signature.h"
#include "lib/views.h"
#include "tuner/tensors.h"

enum { MOST_VALUES = 24 << 20 }; /* of all of a program that is checked */

/* Tensors for a graph. */
typedef struct instance {
  dfgnn_graph *graph;
  int count; /* inputs, then outputs */
  dfgnn_guarded *ports;
  dfgnn_edge_tensor *tensors;
} instance;

struct dfgnn_program_harness {
  dfgnn_context *ctx;
  const dfgnn_program_job *shape; /* of the problem */
  dfgnn_problem problem;
  uint64_t seed;
  instance whole, part; /* part.graph NULL: the whole graph is checked */
  /* of the graph that is checked, on the host: */
  dfgnn_excerpt cut; /* the graph of `part` */
  dfgnn_host_graph host;
  dfgnn_view transpose, relations;
  dfgnn_program_expected expected;
  int prepared; /* the evaluation ran, with the status: */
  dfgnn_status outcome;
};

static const dfgnn_port *port_of(const dfgnn_program_harness *h, int i,
                                 int *output) {
  const dfgnn_dag *dag = h->shape->lowered->dag;
  *output = i - dag->input_count;
  return *output < 0 ? &dag->inputs[i] : &dag->outputs[*output];
}

static int64_t rows_of(const dfgnn_graph *graph, dfgnn_place place) {
  int64_t counts[DFGNN_PLACES];
  dfgnn__program_counts(counts, &graph->matrix);
  return counts[place];
}

/* ---- tensors ------------------------------------------------------------- */

static dfgnn_status make_port(dfgnn_program_harness *h, instance *t, int i) {
  int output;
  const dfgnn_port *p = port_of(h, i, &output);
  const dfgnn_program_array *array =
      output < 0 ? &h->shape->inputs[i] : &h->shape->outputs[output];
  const dfgnn_extent extent = dfgnn__bind_port(p, h->shape->binding);
  const int64_t elements = extent.all * rows_of(t->graph, p->place);
  dfgnn_guarded *made = &t->ports[i];
  dfgnn_edge_tensor *tensor = &t->tensors[i];
  *made = (dfgnn_guarded){.name = p->name,
                          .bytes = (size_t)elements *
                                   dfgnn_dtype_size(array->dtype)};
  DFGNN_TRY(dfgnn__guarded_make(made, h->ctx, 1));
  *tensor = (dfgnn_edge_tensor){.name = p->name,
                                .data = dfgnn__guarded_data(made),
                                .dtype = array->dtype,
                                .rank = p->rank};
  for (int k = 0; k < p->rank; k++)
    tensor->axes[k] = extent.axis[DFGNN_DAG_AXES - p->rank + k];
  if (output >= 0)
    return DFGNN_OK;
  return dfgnn__guarded_fill(made, h->ctx, array->dtype,
                             dfgnn__mix(h->seed + (uint64_t)i) << 20);
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
    return dfgnn__harness_memory((size_t)count * sizeof *t->tensors);
  for (int i = 0; i < count && !status; i++)
    status = make_port(h, t, i);
  return status;
}

static void free_instance(dfgnn_program_harness *h, instance *t) {
  for (int i = 0; t->ports && i < t->count; i++)
    dfgnn__guarded_free(&t->ports[i], h->ctx);
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

/* Values of an edge, and of the nodes that it may bring along. */
static int64_t values_of_edge(const dfgnn_program_harness *h) {
  const dfgnn_lowered *l = h->shape->lowered;
  int64_t values = 1;
  for (int32_t n = 0; n < l->dag->count; n++)
    if (l->needed[n] && l->dag->nodes[n].place > DFGNN_PLACE_PARAM)
      values += h->shape->extents[n].all;
  return values;
}

/* ---- creation ------------------------------------------------------------ */

dfgnn_status dfgnn__program_harness_create(dfgnn_program_harness **harness,
                                           dfgnn_args *args, dfgnn_graph *graph,
                                           const dfgnn_problem *problem,
                                           uint64_t seed) {
  dfgnn_program_harness *h = calloc(1, sizeof *h);
  if (!h)
    return dfgnn__harness_memory(sizeof *h);
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
  dfgnn__excerpt_free(&h->cut);
  for (int k = 0; k < 4; k++)
    free((void *)h->transpose.array[k]);
  for (int k = 0; k < 3; k++)
    free((void *)h->relations.array[k]); /* [3] is the host graph's */
  dfgnn__host_graph_free(&h->host);
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
  const dfgnn_setting setting = {
      .matrix = m, .device = &h->ctx->info, .program = h->shape};
  dfgnn_status status = DFGNN_OK;
  if (!h->transpose.bytes) {
    h->transpose.request.kind = DFGNN_VIEW_TRANSPOSE;
    status = dfgnn__view_build(&h->transpose, m);
  }
  if (!status && m->relations && !h->relations.bytes) {
    const dfgnn_matrix by_relation =
        dfgnn__graph_by_relation(m, h->host.relation, m->relations);
    h->relations.request.kind = DFGNN_VIEW_TRANSPOSE;
    status = dfgnn__view_build(&h->relations, &by_relation);
    h->relations.request.kind = DFGNN_VIEW_RELATIONS;
    h->relations.array[3] = h->host.relation;
  }
  if (status)
    return status;
  const dfgnn_view *views[] = {&h->transpose,
                               m->relations ? &h->relations : NULL, NULL};
  dfgnn__program_job_of(job, binding, &setting, NULL);
  dfgnn__program_take_views(job, m, views);
  job->seed = h->seed;
  for (int i = 0; i < t->count; i++)
    arrays[i] = (dfgnn_program_array){.data = t->ports[i].host,
                                      .dtype = t->tensors[i].dtype};
  job->inputs = arrays;
  job->outputs = arrays + dag->input_count;
  return DFGNN_OK;
}

static dfgnn_status expect(dfgnn_program_harness *h) {
  dfgnn_matrix *m = &h->host.matrix;
  dfgnn_program_job job;
  dfgnn_binding binding;
  dfgnn_program_array arrays[DFGNN_DAG_INPUTS + DFGNN_DAG_OUTPUTS];
  const int64_t most = MOST_VALUES / values_of_edge(h) + 64;
  dfgnn_status status =
      dfgnn__host_graph_read(&h->host, h->ctx, h->whole.graph, 1);
  if (!status && m->edges + m->destinations + m->sources > most) {
    status = dfgnn__excerpt_create(&h->cut, h->ctx, m, most / 2);
    if (!status)
      status = make_instance(h, &h->part, h->cut.graph);
    if (!status)
      status = dfgnn__host_graph_read(&h->host, h->ctx, h->cut.graph, 1);
  }
  if (!status)
    status = host_job(h, &job, &binding, arrays, m);
  return status ? status
                : dfgnn__edge_program_expect(&h->expected, h->problem.program,
                                             &job,
                                             h->ctx->backend->engine != NULL);
}

static dfgnn_status compare(dfgnn_accuracy *accuracy, dfgnn_program_harness *h,
                            const instance *t, int i, int output) {
  const dfgnn_guarded *p = &t->ports[i];
  DFGNN_TRY(dfgnn__guarded_read(p, h->ctx));
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
    status = dfgnn__guarded_poison(&t->ports[i], h->ctx, DFGNN_POISON_BYTE);
  if (!status)
    status = dfgnn__guarded_run(h->ctx, plan, workspace, &args);
  for (int i = inputs; i < t->count && !status; i++) {
    status = dfgnn__guarded_check(&t->ports[i], h->ctx);
    if (!status && t == checked(h))
      status = compare(accuracy, h, t, i, i - inputs);
  }
  return status;
}

/* Runs the plan's variant on the part. */
static dfgnn_status run_part(dfgnn_accuracy *accuracy, dfgnn_program_harness *h,
                             const char *variant) {
  dfgnn_readied part;
  dfgnn_status status =
      dfgnn__excerpt_ready(&part, h->ctx, &h->cut, &h->problem, variant);
  if (!status)
    status = run(accuracy, h, &h->part, part.plan, part.workspace);
  dfgnn__readied_free(&part, h->ctx);
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
