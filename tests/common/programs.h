/* programs.h - programs with the tensors that they read and write */
#ifndef DFGNN_TESTS_PROGRAMS_H
#define DFGNN_TESTS_PROGRAMS_H

#include <math.h>

#include "dfgnn_program.h"
#include "kernels/common/number.h"
#include "lib/edge_program.h"
#include "lib/graph.h"
#include "tests/unit/fixture.h"
#include "tuner/guarded.h"

enum { MOST = 64 };

typedef struct tensors {
  int count;
  dfgnn_edge_tensor at[MOST];
  dfgnn_edge_value value[MOST];
  int64_t elements[MOST];
} tensors;

typedef struct shape_of_graph {
  int64_t destinations, sources, edges, relations;
} shape_of_graph;

/* Gives the edges of graphs 3 relations, and leaves a fourth without any. */
enum { RELATIONS = 4 };
static inline void relate(dfgnn_graph *graph, int64_t edges) {
  int32_t *of_edge = zeros_of(edges, sizeof *of_edge);
  for (int64_t e = 0; e < edges; e++)
    of_edge[e] = (int32_t)(e * e % 11 % 3);
  ck_ok(dfgnn_graph_set_relations(graph, RELATIONS, of_edge, 0, NULL));
}

static inline double uniform(uint64_t *state) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return (double)(*state >> 40) / (1 << 23) - 1;
}

static inline size_t bytes_of(dfgnn_dtype dtype) {
  return dfgnn_dtype_size(dtype);
}

/* A tensor of zeros for a value whose axes are numbers. */
static inline void add_tensor(tensors *t, const dfgnn_edge_value *value,
                              const shape_of_graph *shape, dfgnn_dtype dtype) {
  const int64_t rows[] = {1,
                          1,
                          shape->destinations,
                          shape->sources,
                          shape->edges,
                          shape->relations};
  ck_assert_int_lt(t->count, MOST);
  int i = t->count++;
  int64_t elements = rows[value->place];
  t->value[i] = *value;
  t->at[i] = (dfgnn_edge_tensor){
      .name = t->value[i].name, .dtype = dtype, .rank = value->rank};
  for (int k = 0; k < value->rank; k++) {
    ck_assert_int_gt(value->axes[k], 0);
    t->at[i].axes[k] = value->axes[k];
    elements *= value->axes[k];
  }
  t->elements[i] = elements;
  t->at[i].data = zeros_of(elements, bytes_of(dtype));
}

/* Uniform in -1 to 1. */
static inline void fill_tensor(tensors *t, int i, uint64_t *state) {
  for (int64_t k = 0; k < t->elements[i]; k++)
    dfgnn__set_number(t->at[i].dtype, t->at[i].data, k, uniform(state));
}

static inline void outputs_of(tensors *t, const dfgnn_edge_program *program,
                              const shape_of_graph *shape, dfgnn_dtype dtype) {
  *t = (tensors){0};
  for (int i = 0; i < dfgnn_edge_program_output_count(program); i++) {
    dfgnn_edge_value value = DFGNN_EDGE_VALUE_INIT;
    ck_ok(dfgnn_edge_program_output(&value, program, i));
    int wide = value.kept && dtype != DFGNN_F64;
    add_tensor(t, &value, shape, wide ? DFGNN_F32 : dtype);
  }
}

/* Random inputs; those that are outputs of `forward` are taken from it. */
static inline void inputs_of(tensors *t, const dfgnn_edge_program *program,
                             const tensors *forward_in,
                             const tensors *forward_out,
                             const shape_of_graph *shape, dfgnn_dtype dtype,
                             uint64_t *state) {
  *t = (tensors){0};
  for (int i = 0; i < dfgnn_edge_program_input_count(program); i++) {
    dfgnn_edge_value value = DFGNN_EDGE_VALUE_INIT;
    ck_ok(dfgnn_edge_program_input(&value, program, i));
    const tensors *from = value.role == DFGNN_EDGE_INPUT    ? forward_in
                          : value.role == DFGNN_EDGE_OUTPUT ? forward_out
                                                            : NULL;
    add_tensor(t, &value, shape, from ? from->at[value.of].dtype : dtype);
    if (from)
      memcpy(t->at[i].data, from->at[value.of].data,
             (size_t)t->elements[i] * bytes_of(t->at[i].dtype));
    else
      fill_tensor(t, i, state);
  }
}

/* ---- programs of the test ------------------------------------------------ */

OWNED(program, dfgnn_edge_program, dfgnn_edge_program_destroy)

static inline dfgnn_edge_program *made(const char *text) {
  dfgnn_edge_program *program = NULL;
  ck_ok(dfgnn_edge_program_create(&program, text));
  return own_program(program);
}

static inline dfgnn_edge_program *kept_of(const dfgnn_edge_program *program) {
  dfgnn_edge_program *kept = NULL;
  ck_ok(dfgnn_edge_program_keep(&kept, program, NULL, NULL));
  return own_program(kept);
}

static inline dfgnn_edge_program *
gradient_of(const dfgnn_edge_program *program) {
  dfgnn_edge_program *gradient = NULL;
  ck_ok(dfgnn_edge_program_gradient(&gradient, program, NULL, NULL));
  return own_program(gradient);
}

/* ---- graphs with programs ------------------------------------------------ */

/* A graph of `rows` destinations, of which row 7 has `hub` edges and every
 * fifth none, or none has any if hub is negative; 23 sources, the last without
 * edges. */
static inline dfgnn_csr program_csr(int rows, int hub) {
  int32_t *offsets = zeros_of(rows + 1, sizeof *offsets);
  for (int i = 0; i < rows; i++)
    offsets[i + 1] = offsets[i] + (hub < 0  ? 0
                                   : i == 7 ? hub
                                   : i % 5  ? i % 9
                                            : 0);
  int32_t *indices = zeros_of(offsets[rows], sizeof *indices);
  uint64_t state = 5;
  for (int e = 0; e < offsets[rows]; e++)
    indices[e] = (int32_t)((uniform(&state) + 1) * 11);
  return csr32(rows, 23, offsets, indices);
}

/* A graph that programs run on. */
typedef struct program_graph {
  dfgnn_context *ctx;
  dfgnn_graph *graph;
  dfgnn_csr csr;
  shape_of_graph shape;
} program_graph;

static inline program_graph program_graph_on(dfgnn_context *ctx,
                                             dfgnn_csr csr) {
  program_graph g = {.ctx = ctx, .csr = csr};
  g.shape =
      (shape_of_graph){csr.destinations, csr.sources, csr.edges, RELATIONS};
  g.graph = graph_on(ctx, &g.csr);
  relate(g.graph, csr.edges);
  return g;
}

/* Runs a program as such, as its plan chooses, with seed 42. */
static inline void run_program(const dfgnn_edge_program *program,
                               const program_graph *g, const tensors *in,
                               const tensors *out) {
  dfgnn_problem problem = DFGNN_PROBLEM_INIT;
  dfgnn_args args = ARGS(.seed_value = 42);
  ck_ok(dfgnn_edge_program_call(&problem, &args, program, g->graph, in->at,
                                in->count, out->at, out->count, 1));
  ck_ok(dfgnn_call(g->ctx, g->graph, &problem, &args, NULL));
}

/* The largest ratio of an output's error to its bound, from an evaluation in
 * double on a graph of the CPU: 1 or less is right.  *where becomes the output
 * that it is of; on_gpu: a GPU made them. */
static inline double bounds_off(const dfgnn_edge_program *program,
                                dfgnn_graph *graph, const tensors *in,
                                const tensors *out, uint64_t seed, int on_gpu,
                                int *where) {
  dfgnn_edge_execution x = {.job = {.seed = seed,
                                    .lowered = program->lowered,
                                    .binding = &x.binding,
                                    .inputs = x.inputs,
                                    .outputs = x.outputs}};
  dfgnn_view_request requests[DFGNN_MAX_VIEWS] = {{0}};
  const dfgnn_view *views[DFGNN_MAX_VIEWS + 1] = {NULL};
  const dfgnn_dag *dag = program->lowered->dag;
  dfgnn_program_expected expected;
  double worst = 0;
  ck_ok(dfgnn__graph_know(graph));
  x.job.rows = graph->exact;
  const int count = dfgnn__program_views_of(program->lowered, 1, requests);
  for (int i = 0; i < count; i++)
    ck_ok(dfgnn__graph_view(&views[i], graph, &requests[i]));
  dfgnn__program_take_views(&x.job, &graph->exact, views);
  ck_ok(dfgnn__edge_program_bind(&x, program, &graph->exact, in->at, in->count,
                                 out->at, out->count));
  dfgnn_extent *extents = zeros_of(dag->count, sizeof *extents);
  x.job.extents = extents;
  ck_ok(dfgnn__bind_nodes(extents, dag, &x.binding));
  ck_ok(dfgnn__edge_program_expect(&expected, program, &x.job, on_gpu));
  for (int i = 0; i < dag->output_count; i++) {
    const dfgnn_program_errors errors =
        dfgnn__edge_program_errors(&x.outputs[i], expected.values[i],
                                   expected.bounds[i], expected.counts[i]);
    if (errors.of_bound >= worst) {
      worst = errors.of_bound;
      *where = i;
    }
  }
  dfgnn__edge_program_expected_free(&expected);
  return worst;
}

/* The outputs of a program that ran with seed 42 are within their bounds. */
static inline void are_within_bounds(const dfgnn_edge_program *program,
                                     dfgnn_graph *graph, const tensors *in,
                                     const tensors *out, int on_gpu,
                                     const char *what) {
  int where = -1;
  const double worst = bounds_off(program, graph, in, out, 42, on_gpu, &where);
  ck_assert_msg(worst <= 1, "%s, output %s is %g bounds off:\n%s", what,
                out->value[where].name, worst,
                dfgnn_edge_program_text(program));
}

/* The number of an environment variable: DFGNN_TEST_PROGRAMS=N takes N random
 * programs, from DFGNN_TEST_SEED on. */
static inline int number_of(const char *variable, int otherwise) {
  const char *value = getenv(variable);
  return value && *value ? atoi(value) : otherwise;
}

#endif
