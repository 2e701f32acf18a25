/* Dense blocks on the CPU beyond what graphs of every shape ask of all
 * variants: several tiles, strips and panels, and blocks next to those that go
 * edge by edge. */
#include <math.h>
#include <stdio.h>

#include "lib/graph.h"
#include "lib/operator.h"
#include "lib/plan.h"
#include "lib/registry.h"
#include "tests/common/shapes.h"
#include "tests/unit/fixture.h"
#include "tuner/harness.h"

static unsigned state;

static int32_t below(int32_t bound) {
  state = state * 1664525u + 1013904223u;
  return (int32_t)((uint64_t)(state >> 8) * (uint64_t)bound >> 24);
}

/* The graphs of a batch, and how many per cent of their pairs of nodes are
 * edges. */
static const struct {
  int32_t nodes, percent;
} graphs[] = {{1, 100},  {70, 60},  {7, 90}, {101, 5}, {0, 0},
              {150, 45}, {16, 100}, {2, 50}, {49, 80}};
enum { GRAPHS = sizeof graphs / sizeof *graphs, NODES = 396 };

typedef struct batch {
  int64_t first[GRAPHS + 1];
  int32_t offsets[NODES + 1], *indices;
  dfgnn_csr csr;
} batch;

/* Every seventh row of a graph is isolated; every fifth is unsorted and has
 * its first edge twice. */
static void make_batch(batch *b) {
  int32_t n = 0, edges = 0;
  b->indices = malloc(sizeof *b->indices * 2 * NODES * 150);
  b->offsets[0] = 0;
  b->first[0] = 0;
  for (int g = 0; g < GRAPHS; g++) {
    int32_t first = n;
    for (int32_t i = 0; i < graphs[g].nodes; i++) {
      int32_t begin = edges;
      for (int32_t j = 0; i % 7 != 6 && j < graphs[g].nodes; j++)
        if (below(100) < graphs[g].percent)
          b->indices[edges++] =
              i % 5 == 4 ? first + graphs[g].nodes - 1 - j : first + j;
      if (i % 5 == 4 && edges > begin) {
        b->indices[edges] = b->indices[begin];
        edges++;
      }
      b->offsets[++n] = edges;
    }
    b->first[g + 1] = n;
  }
  ck_assert_int_eq(n, NODES);
  b->csr = csr32(n, n, b->offsets, b->indices);
  b->csr.graphs = GRAPHS;
  b->csr.graph_ptr = b->first;
}

typedef struct session {
  dfgnn_context *ctx;
  dfgnn_graph *graph;
  dfgnn_problem problem;
  dfgnn_harness *harness;
} session;

static void open_session(session *s, const dfgnn_csr *csr) {
  state = shape_seed();
  s->ctx = cpu_context("");
  ck_ok(dfgnn_graph_create_csr(&s->graph, s->ctx, csr, NULL));
}

static void close_session(session *s) {
  dfgnn_graph_destroy(s->graph);
  dfgnn_context_destroy(s->ctx);
}

static void open_problem(session *s, dfgnn_op op, dfgnn_dtype dtype, int heads,
                         int dim, int extras) {
  dfgnn_problem problem = DFGNN_PROBLEM_INIT;
  problem.op = op;
  problem.dtype = dtype;
  problem.heads = heads;
  problem.dim = dim;
  problem.weights = problem.bias = problem.dropout = extras;
  ck_ok(dfgnn__problem_complete(&s->problem, &problem));
  ck_ok(dfgnn__harness_create(&s->harness, s->ctx, s->graph, &s->problem,
                              shape_seed()));
}

/* Compares all variants of the family with the reference; returns how many
 * there were. */
static int check_dense(session *s) {
  int count = 0;
  for (size_t i = 0; i < dfgnn__variant_count(); i++) {
    const dfgnn_variant *v = dfgnn__variant(i);
    dfgnn_setting setting = dfgnn__setting(s->graph, &s->problem);
    dfgnn_plan *plan;
    double error;
    if (strcmp(v->family->name, "cpu.attention.fwd.dense") != 0 ||
        dfgnn__variant_refusal(v, &setting))
      continue;
    ck_ok(dfgnn_plan_create_forced(&plan, s->ctx, s->graph, &s->problem,
                                   v->name));
    ck_assert_msg(dfgnn__harness_check(&error, s->harness, plan) == DFGNN_OK,
                  "%s, %s, %d heads of %d: %s", v->name,
                  dfgnn_name(DFGNN_NAMES_OP, s->problem.op),
                  (int)s->problem.heads, (int)s->problem.dim,
                  dfgnn_last_error());
    dfgnn_plan_destroy(plan);
    count++;
  }
  dfgnn__harness_destroy(s->harness);
  return count;
}

TEST_LOOP(blocks_of_every_size_match_the_reference, 0, DFGNN_DTYPE_COUNT) {
  static const int heads[] = {1, 3}, dims[] = {130, 33};
  session s;
  batch b;
  state = shape_seed();
  make_batch(&b);
  open_session(&s, &b.csr);
  for (int op = DFGNN_OP_GT; op <= DFGNN_OP_GATV2; op++)
    for (int k = 0; k < 2; k++) {
      open_problem(&s, (dfgnn_op)op, (dfgnn_dtype)_i, heads[k], dims[k], k);
      ck_assert_int_gt(check_dense(&s), 0);
    }
  close_session(&s);
  free(b.indices);
}

/* The graph has 70 nodes, and row 30 is no neighbour of node 20. */
TEST_LOOP(what_is_not_finite_reaches_neighbours_only, 0, DFGNN_DTYPE_COUNT) {
  enum { N = 70, DIM = 24 };
  static const double values[] = {INFINITY, -INFINITY, NAN};
  int32_t offsets[N + 1] = {0}, indices[N * N];
  session s;
  int32_t edges = 0;
  for (int32_t i = 0; i < N; i++) {
    for (int32_t j = 0; j < N; j++)
      if ((i + j) % 2 == 0 || i == j + 1)
        indices[edges++] = j;
    offsets[i + 1] = edges;
  }
  indices[offsets[30] + 10] = 22; /* instead of 20 */
  dfgnn_csr csr = csr32(N, N, offsets, indices);
  open_session(&s, &csr);
  for (int k = 0; k < 3; k++) {
    open_problem(&s, DFGNN_OP_GT, (dfgnn_dtype)_i, 1, DIM, 0);
    ck_ok(dfgnn__harness_set(s.harness, "value", 20 * DIM + 3, 1, values[k]));
    ck_assert_int_gt(check_dense(&s), 0);
    open_problem(&s, DFGNN_OP_GT, (dfgnn_dtype)_i, 1, DIM, 0);
    ck_ok(dfgnn__harness_set(s.harness, "key", 20 * DIM + 3, 1, values[k]));
    ck_assert_int_gt(check_dense(&s), 0);
  }
  close_session(&s);
}

/* The rows have more columns than the memory of a thread has room for. */
TEST(rows_wider_than_every_block_go_edge_by_edge) {
  enum { N = 9, M = 5000 };
  int32_t offsets[N + 1] = {0}, *indices = malloc(sizeof *indices * N * M);
  session s;
  for (int32_t i = 0; i < N; i++) {
    offsets[i + 1] = offsets[i] + M - 100 * i;
    for (int32_t e = 0; e < M - 100 * i; e++)
      indices[offsets[i] + e] = 100 * i + e;
  }
  dfgnn_csr csr = csr32(N, M, offsets, indices);
  open_session(&s, &csr);
  open_problem(&s, DFGNN_OP_GT, DFGNN_F32, 2, 20, 0);
  ck_assert_int_gt(check_dense(&s), 0);
  close_session(&s);
  free(indices);
}

TEST(sparse_graphs_are_refused_with_the_reason) {
  enum { N = 400 };
  int32_t offsets[N + 1] = {0}, indices[N];
  session s;
  for (int32_t i = 0; i < N; i++) {
    offsets[i + 1] = i + 1;
    indices[i] = (i + 1) % N;
  }
  dfgnn_csr csr = csr32(N, N, offsets, indices);
  open_session(&s, &csr);
  open_problem(&s, DFGNN_OP_GT, DFGNN_F32, 1, 16, 0);
  ck_assert_int_eq(check_dense(&s), 0);
  dfgnn_plan *plan;
  ck_fails(dfgnn_plan_create_forced(
               &plan, s.ctx, s.graph, &s.problem,
               "cpu.attention.fwd.dense/simd=portable,rows=256,fill=10,"
               "schedule=serial"),
           DFGNN_ERROR_UNSUPPORTED, "too few of a graph's pairs");
  close_session(&s);
}

TEST_MAIN("dense", .timeout = 120)
