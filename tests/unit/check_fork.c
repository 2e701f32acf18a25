/* A child of fork() may use the library after its parent ran in parallel. */
#include "tests/unit/fixture.h"

#include <sys/wait.h>

#include "lib/context.h"

#define NODES 5000
#define DIM 16
#define SECONDS 30 /* after which a child that hangs is ended by its alarm */

static dfgnn_context *ctx;
static dfgnn_graph *graph;
static dfgnn_csr csr;
static dfgnn_problem problem = DFGNN_PROBLEM_INIT;
static float feature[NODES * DIM], out[NODES * DIM], before[NODES * DIM];

static int degree(int64_t i) { return 3 + (int)(i % 4); }

static dfgnn_status call(dfgnn_context *c, dfgnn_graph *g) {
  dfgnn_args args =
      ARGS(.query = feature, .key = feature, .value = feature, .out = out);
  memset(out, 0, sizeof out);
  return dfgnn_call(c, g, &problem, &args, NULL);
}

static void begin(void) {
  csr = ring(NODES, degree);
  problem.dim = DIM;
  for (int i = 0; i < NODES * DIM; i++)
    feature[i] = (float)(i % 11) / 11;
  ctx = cpu_context("");
  graph = graph_on(ctx, &csr);
  ck_ok(call(ctx, graph)); /* the pool has threads now */
  memcpy(before, out, sizeof out);
}

/* Runs the body in a child; returns its exit status, or minus its signal. */
static int in_child(int (*body)(void)) {
  int status = 0;
  fflush(NULL);
  pid_t child = fork();
  if (child == 0) {
    alarm(SECONDS);
    _exit(body());
  }
  ck_assert_int_gt(child, 0);
  ck_assert_int_eq(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static int parents_graph(void) {
  return call(ctx, graph) || memcmp(out, before, sizeof out) ? 1 : 0;
}

static int graph_of_its_own(void) {
  dfgnn_context *c = NULL;
  dfgnn_graph *g = NULL;
  dfgnn_options options =
      INIT(dfgnn_options, .device = "cpu", .store = "", .threads = 2);
  if (dfgnn_context_create(&c, &options) ||
      dfgnn_graph_create_csr(&g, c, &csr, NULL) || call(c, g) ||
      memcmp(out, before, sizeof out))
    return 1;
  dfgnn_graph_destroy(g);
  dfgnn_context_destroy(c);
  return 0;
}

/* OpenMP itself has all the threads it is asked for. */
static int threads_of_openmp(void) {
  int threads = 0;
#pragma omp parallel num_threads(3) reduction(+ : threads)
  threads++;
  return threads;
}

static int generates(void) {
  dfgnn_csr *made = NULL;
  if (dfgnn_csr_generate(&made, "powerlaw:nodes=20000,edges=200000,seed=3"))
    return 1;
  dfgnn_csr_free(made);
  return 0;
}

static int grandchild(void) { return in_child(parents_graph); }

TEST(a_child_runs_the_parents_graph) {
  for (int k = 0; k < 3; k++) {
    ck_assert_int_eq(in_child(parents_graph), 0);
    ck_assert_int_eq(parents_graph(), 0);
  }
  ck_assert_int_eq(in_child(grandchild), 0);
}

TEST(a_child_runs_a_graph_of_its_own) {
  ck_assert_int_eq(in_child(graph_of_its_own), 0);
  ck_assert_int_eq(in_child(generates), 0);
}

TEST(a_child_has_threads) {
  ck_assert_int_eq(in_child(threads_of_openmp), 3);
  ck_assert_int_eq(threads_of_openmp(), 3);
}

TEST(a_child_made_inside_a_parallel_region_runs) {
  int status = -1;
#pragma omp parallel num_threads(2)
#pragma omp master
  status = in_child(parents_graph);
  ck_assert_int_eq(status, 0);
}

static int refused(void) {
  dfgnn_graph *g = NULL;
  dfgnn_plan *p = NULL;
  return call(ctx, graph) == DFGNN_ERROR_DEVICE &&
                 strstr(dfgnn_last_error(), "before fork()") &&
                 dfgnn_graph_create_csr(&g, ctx, &csr, NULL) ==
                     DFGNN_ERROR_DEVICE &&
                 dfgnn_plan_create(&p, ctx, graph, &problem) ==
                     DFGNN_ERROR_DEVICE &&
                 dfgnn_context_reload(ctx) == DFGNN_ERROR_DEVICE
             ? 0
             : 1;
}

/* A copy of the CPU's backend says, like CUDA's, that it does not survive. */
TEST(a_device_that_does_not_survive_is_refused) {
  dfgnn_backend backend = *ctx->backend;
  const dfgnn_backend *real = ctx->backend;
  ck_assert_int_eq(backend.survives_fork, 1);
  backend.survives_fork = 0;
  ctx->backend = &backend;
  ck_ok(call(ctx, graph));
  ck_assert_int_eq(in_child(refused), 0);
  ck_ok(call(ctx, graph));
  ctx->backend = real;
}

TEST_MAIN("fork", .setup = begin, .timeout = 120)
