/* check_gpu_backward.c - promises of gradients on a GPU: the same bits every
 * time, any of them alone, GATv2's slopes, and dropout that follows a seed in
 * device memory */
#include <math.h>

#include "lib/operator.h"
#include "tests/gpu/gpu.h"
#include "tuner/tensors.h"

static const char *const graph_spec =
    "powerlaw:nodes=700,edges=9000,max-degree=500,seed=5";

#define MOST_GRADIENTS 8

typedef struct gradient {
  const char *name;
  size_t offset; /* in dfgnn_args */
  size_t elements, bytes;
  void *first, *again;
} gradient;

typedef struct call {
  dfgnn_plan *plan;
  dfgnn_harness *harness;
  void *workspace;
  dfgnn_args args;
  gradient gradients[MOST_GRADIENTS];
  int count;
} call;

static void **pointer_of(dfgnn_args *args, const gradient *g) {
  return (void **)((char *)args + g->offset);
}

static void list_gradients(call *c, const dfgnn_graph *graph,
                           const dfgnn_problem *problem) {
  const dfgnn_operator *op = dfgnn__operator(problem->op, problem->pass);
  for (const dfgnn_tensor *t = op->tensors; t->name; t++) {
    if (t->role != DFGNN_ROLE_GRADIENT || !dfgnn__tensor_used(t, problem))
      continue;
    ck_assert_int_lt(c->count, MOST_GRADIENTS);
    gradient *g = &c->gradients[c->count++];
    g->name = t->name;
    g->offset = t->offset;
    g->elements = (size_t)dfgnn__tensor_elements(
        t, problem, graph->matrix.destinations, graph->matrix.sources,
        graph->matrix.edges);
    g->bytes = g->elements * dfgnn__tensor_element_size(t, problem);
    g->first = malloc(g->bytes);
    g->again = malloc(g->bytes);
  }
  ck_assert_int_gt(c->count, 0);
}

/* Returns 0 if the variant does not apply. */
static int open_call(call *c, dfgnn_context *gpu, dfgnn_graph *graph,
                     const dfgnn_problem *problem, const char *variant) {
  memset(c, 0, sizeof *c);
  dfgnn_status status =
      variant ? dfgnn_plan_create_forced(&c->plan, gpu, graph, problem, variant)
              : dfgnn_plan_create(&c->plan, gpu, graph, problem);
  if (variant && status == DFGNN_ERROR_UNSUPPORTED)
    return 0;
  ck_assert_msg(status == DFGNN_OK, "%s: %s", variant, dfgnn_last_error());
  ck_ok(dfgnn__harness_create(&c->harness, gpu, graph, problem, 7));
  ck_ok(dfgnn__harness_workspace(&c->workspace, c->harness, c->plan));
  c->args = *dfgnn__harness_args(c->harness);
  list_gradients(c, graph, problem);
  return 1;
}

static void close_call(call *c) {
  for (int k = 0; k < c->count; k++) {
    free(c->gradients[k].first);
    free(c->gradients[k].again);
  }
  dfgnn__harness_destroy(c->harness);
  dfgnn_plan_destroy(c->plan);
}

static void poison(call *c) {
  for (int k = 0; k < c->count; k++)
    fill_device(*pointer_of(&c->args, &c->gradients[k]), 0xff,
                c->gradients[k].bytes);
  ck_cu(CtxSynchronize);
}

static void fetch(call *c, int again) {
  ck_cu(CtxSynchronize);
  for (int k = 0; k < c->count; k++) {
    gradient *g = &c->gradients[k];
    copy_memory(again ? g->again : g->first, *pointer_of(&c->args, g),
                g->bytes);
  }
}

static int same_bits(const call *c) {
  for (int k = 0; k < c->count; k++)
    if (memcmp(c->gradients[k].first, c->gradients[k].again,
               c->gradients[k].bytes))
      return 0;
  return 1;
}

/* The i-th backward problem of an operator: with bias and dropout in turn. */
static dfgnn_problem problem_of(int op, size_t i) {
  int attention = DFGNN_OPS_ATTENTION >> op & 1;
  return PROBLEM(.op = (dfgnn_op)op, .pass = DFGNN_PASS_BACKWARD, .dim = 32,
                 .heads = 2, .bias = attention && i & 1,
                 .dropout = attention && i & 2);
}

typedef void (*promise)(call *c, const char *variant);

static void for_each_variant(promise check) {
  dfgnn_context *gpu = gpu_context();
  dfgnn_graph *graph = graph_of(gpu, graph_spec);
  int checked = 0;
  for (size_t i = 0; i < dfgnn__variant_count(); i += (size_t)few()) {
    const dfgnn_variant *v = dfgnn__variant(i);
    if (strcmp(v->family->backend, "cuda") || !v->family->deterministic)
      continue;
    for (int op = 0; op < DFGNN_OP_COUNT; op++) {
      dfgnn_problem problem = problem_of(op, i);
      call c;
      if ((quick() && op) || !(v->family->ops & DFGNN_BIT(op)) ||
          !dfgnn__operator(problem.op, problem.pass) ||
          !open_call(&c, gpu, graph, &problem, v->name))
        continue;
      check(&c, v->name);
      close_call(&c);
      checked++;
    }
  }
  printf("%d variants and operators\n", checked);
  ck_assert_int_gt(checked, 0);
}

IN_CASE("backward")

/* The largest difference between two runs over the root mean square of the
 * first. */
static double distance(const gradient *g) {
  const float *x = g->first, *y = g->again;
  double squares = 0, most = 0;
  for (size_t k = 0; k < g->elements; k++) {
    double d = fabs((double)x[k] - (double)y[k]);
    squares += (double)x[k] * (double)x[k];
    most = d > most ? d : most;
    if (x[k] != x[k] || y[k] != y[k])
      return INFINITY;
  }
  return most / (sqrt(squares / (double)g->elements) + 1e-30);
}

static int is_poison(const gradient *g) {
  const unsigned char *bytes = g->again;
  for (size_t b = 0; b < g->bytes; b++)
    if (bytes[b] != 0xff)
      return 0;
  return 1;
}

static void gives_one_alone(call *c, const char *variant) {
  const dfgnn_args all = c->args;
  poison(c);
  ck_ok(dfgnn_execute(c->plan, &c->args, c->workspace, NULL));
  fetch(c, 0);
  for (int k = 0; k < c->count; k++) {
    dfgnn_args one = all;
    for (int other = 0; other < c->count; other++)
      if (other != k)
        *pointer_of(&one, &c->gradients[other]) = NULL;
    poison(c);
    ck_ok(dfgnn_execute(c->plan, &one, c->workspace, NULL));
    fetch(c, 1);
    ck_assert_msg(distance(&c->gradients[k]) < 1e-4,
                  "%s: %s alone differs by %g", variant, c->gradients[k].name,
                  distance(&c->gradients[k]));
    for (int other = 0; other < c->count; other++)
      ck_assert_msg(other == k || is_poison(&c->gradients[other]),
                    "%s: %s is written, only %s was wanted", variant,
                    c->gradients[other].name, c->gradients[k].name);
  }
}

TEST(a_gradient_may_be_wanted_alone) { for_each_variant(gives_one_alone); }

/* Sets the seed in device memory that forward and backward read. */
static void set_seed(uint64_t *seed, uint64_t value) {
  copy_memory(seed, &value, sizeof value);
}

static cu_graph_exec capture(const call *c, const dfgnn_plan *forward,
                             const dfgnn_args *args, void *workspace,
                             cu_stream stream) {
  cu_graph graph = NULL;
  cu_graph_exec exec = NULL;
  ck_cu(StreamBeginCapture, stream, CU_CAPTURE_GLOBAL);
  dfgnn_status status = dfgnn_execute(forward, args, workspace, stream);
  if (!status)
    status = dfgnn_execute(c->plan, args, c->workspace, stream);
  cu_result ended = dfgnn__driver()->StreamEndCapture(stream, &graph);
  ck_assert_msg(!status && !ended, "capture failed: %s, error %d",
                dfgnn_last_error(), ended);
  ck_cu(GraphInstantiate, &exec, graph, 0);
  ck_cu(GraphDestroy, graph);
  return exec;
}

static void replay(call *c, cu_graph_exec exec, cu_stream stream, int again) {
  poison(c);
  ck_cu(GraphLaunch, exec, stream);
  ck_cu(StreamSynchronize, stream);
  fetch(c, again);
}

static void check_seeds(dfgnn_context *gpu, dfgnn_graph *graph, int op) {
  dfgnn_problem problem = problem_of(op, 2);
  void *workspace = NULL;
  uint64_t *seed = NULL;
  cu_stream stream = NULL;
  call c;
  ck_assert(open_call(&c, gpu, graph, &problem, NULL));
  problem.pass = DFGNN_PASS_FORWARD;
  dfgnn_plan *forward = plan_on(gpu, graph, &problem);
  workspace = device_memory(dfgnn_plan_workspace(forward) + 256);
  seed = device_memory(sizeof *seed);
  stream = make_stream();
  c.args.dropout = 0.4;
  c.args.seed = seed;
  cu_graph_exec exec = capture(&c, forward, &c.args, workspace, stream);

  set_seed(seed, 1);
  replay(&c, exec, stream, 0);
  set_seed(seed, 2);
  replay(&c, exec, stream, 1);
  ck_assert_msg(!same_bits(&c), "operator %d: another seed drops the same", op);
  set_seed(seed, 1);
  replay(&c, exec, stream, 1);
  ck_assert_msg(same_bits(&c), "operator %d: a seed drops otherwise again", op);

  dfgnn_args direct = c.args;
  direct.seed = NULL;
  direct.seed_value = 1;
  poison(&c);
  ck_ok(dfgnn_execute(forward, &direct, workspace, NULL));
  ck_ok(dfgnn_execute(c.plan, &direct, c.workspace, NULL));
  fetch(&c, 1);
  ck_assert_msg(same_bits(&c), "operator %d: seed and seed_value differ", op);

  ck_cu(GraphExecDestroy, exec);
  ck_cu(StreamDestroy, stream);
  close_call(&c);
}

TEST(a_replay_drops_by_the_seed_of_its_time) {
  dfgnn_context *gpu = gpu_context();
  dfgnn_graph *graph = graph_of(gpu, graph_spec);
  for (int op = 0; op < DFGNN_OP_COUNT; op++)
    if (DFGNN_OPS_ATTENTION >> op & 1)
      check_seeds(gpu, graph, op);
}

IN_CASE("slopes")

/* The lanes' vectors and those of any stride follow slopes in different ways
 * (backward.cuh). */
TEST(gatv2_follows_any_slope) {
  static const char *const variants[] = {
      "cuda.attention.bwd.twopass/"
      "lanes=8,unroll=1,rows=1,span=once,order=natural,heads=grid",
      "cuda.attention.bwd.spill/lanes=32,unroll=2,rows=1,span=once,heads=grid"};
  static const double slopes[] = {-0.5, 0, 0.25, 1, 3};
  dfgnn_context *gpu = gpu_context();
  dfgnn_graph *graph = graph_of(gpu, graph_spec);
  dfgnn_problem problem = problem_of(DFGNN_OP_GATV2, 0);
  for (int k = 0; k < 2 * 5; k++) {
    call c;
    double error = 0;
    ck_assert(open_call(&c, gpu, graph, &problem, variants[k % 2]));
    c.harness->check.slope = slopes[k / 2];
    ck_assert_msg(dfgnn__harness_check(&error, c.harness, c.plan) == DFGNN_OK,
                  "%s, slope %g: %s", variants[k % 2], slopes[k / 2],
                  dfgnn_last_error());
    close_call(&c);
  }
}

GPU_MAIN("gpu_backward")
