/* check_gpu_execute.c - promises of dfgnn_execute on a GPU: any stream, capture
 * and replay, the same bits every time, any gradient alone, little host time,
 * and dropout that follows a seed in device memory */
#include <math.h>

#include "tests/common/session.h"
#include "tests/gpu/gpu.h"
#include "tuner/tensors.h"

static const char *const graph_spec =
    "powerlaw:nodes=900,edges=12000,max-degree=700,seed=11";

typedef struct result {
  const dfgnn_tensor *tensor;
  size_t bytes;
  void *first, *again; /* host copies */
} result;

typedef struct call {
  session s; /* its context and graph are shared */
  dfgnn_plan *plan;
  void *workspace;
  dfgnn_args args;
  result results[DFGNN_MAX_TENSORS];
  int count;
} call;

static void list_results(call *c) {
  for (const dfgnn_tensor *t = operator_of(&c->s)->tensors; t->name; t++) {
    if ((t->role != DFGNN_ROLE_GRADIENT && t->role != DFGNN_ROLE_OUTPUT) ||
        !*dfgnn__tensor_slot(t, &c->args))
      continue;
    const size_t bytes = bytes_of(&c->s, t);
    c->results[c->count++] = (result){
        .tensor = t, bytes, .first = malloc(bytes), .again = malloc(bytes)};
  }
  ck_assert_int_gt(c->count, 0);
}

/* A call by a variant, or by the one that is chosen.  Returns 0 if the variant
 * does not apply. */
static int open_call(call *c, dfgnn_graph *graph, const dfgnn_problem *problem,
                     const char *variant) {
  *c = (call){.s = {.ctx = graph->ctx, .graph = graph}};
  ck_ok(dfgnn__problem_complete(&c->s.problem, problem));
  if (!variant)
    ck_ok(dfgnn_plan_create(&c->plan, graph->ctx, graph, problem));
  else if (!serves(&c->plan, graph, &c->s.problem,
                   dfgnn__variant_find(variant)))
    return 0;
  ck_ok(dfgnn__harness_create(&c->s.harness, graph->ctx, graph, problem, 7));
  ck_ok(dfgnn__harness_workspace(&c->workspace, c->s.harness, c->plan));
  c->args = *dfgnn__harness_args(c->s.harness);
  list_results(c);
  return 1;
}

static void close_call(call *c) {
  for (int k = 0; k < c->count; k++) {
    free(c->results[k].first);
    free(c->results[k].again);
  }
  dfgnn__harness_destroy(c->s.harness);
  dfgnn_plan_destroy(c->plan);
}

static void run(const call *c, const dfgnn_args *args, cu_stream stream) {
  ck_ok(dfgnn_execute(c->plan, args, c->workspace, stream));
}

static void poison(call *c) {
  for (int k = 0; k < c->count; k++)
    fill_device(*dfgnn__tensor_slot(c->results[k].tensor, &c->args), 0xff,
                c->results[k].bytes);
}

/* Reads the results and then overwrites them. */
static void fetch(call *c, int again) {
  ck_cu(CtxSynchronize);
  for (int k = 0; k < c->count; k++) {
    const result *r = &c->results[k];
    copy_memory(again ? r->again : r->first,
                *dfgnn__tensor_slot(r->tensor, &c->args), r->bytes);
  }
  poison(c);
}

static int same_bits(const call *c) {
  for (int k = 0; k < c->count; k++)
    if (memcmp(c->results[k].first, c->results[k].again, c->results[k].bytes))
      return 0;
  return 1;
}

/* Fetches results that have to be those of the first time. */
static void fetch_same(call *c, const char *variant, const char *fault) {
  fetch(c, 1);
  ck_assert_msg(same_bits(c), "%s: %s", variant, fault);
}

typedef void (*promise)(call *c, const char *variant);

/* Calls check for each deterministic CUDA variant and each operator to which it
 * applies; gradients have bias and dropout in turn. */
static void for_each_variant(dfgnn_pass pass, promise check) {
  dfgnn_graph *graph = graph_of(gpu_context(), graph_spec);
  int checked = 0;
  for (size_t i = 0; i < dfgnn__variant_count(); i += (size_t)few())
    for (int op = 0; op < (quick() ? 1 : DFGNN_OP_COUNT); op++) {
      const char *variant = dfgnn__variant(i)->name;
      const int extras =
          pass == DFGNN_PASS_BACKWARD && DFGNN_OPS_ATTENTION >> op & 1;
      const dfgnn_problem problem =
          PROBLEM(.op = (dfgnn_op)op, .pass = pass, .dim = 32, .heads = 2,
                  .bias = extras && i & 1, .dropout = extras && i & 2);
      call c;
      if (!dfgnn__variant(i)->family->deterministic ||
          !dfgnn__operator(problem.op, pass) ||
          !open_call(&c, graph, &problem, variant))
        continue;
      poison(&c);
      run(&c, &c.args, NULL);
      fetch(&c, 0);
      check(&c, variant);
      close_call(&c);
      checked++;
    }
  printf("%d variants and operators\n", checked);
  ck_assert_int_gt(checked, 0);
}

static void repeats_its_bits(call *c, const char *variant) {
  for (int i = 0; i < (quick() ? 1 : 4); i++) {
    run(c, &c->args, NULL);
    fetch_same(c, variant, "a second run gives other bits");
  }
}

IN_CASE("execute")

TEST(a_deterministic_variant_repeats_its_bits) {
  for_each_variant(DFGNN_PASS_FORWARD, repeats_its_bits);
}

static void runs_on_a_stream(call *c, const char *variant) {
  cu_stream stream = make_stream();
  run(c, &c->args, stream);
  ck_cu(StreamSynchronize, stream);
  fetch_same(c, variant, "another stream gives other bits");
  ck_cu(StreamDestroy, stream);
}

TEST(execute_runs_on_the_callers_stream) {
  NOT_QUICK;
  for_each_variant(DFGNN_PASS_FORWARD, runs_on_a_stream);
}

/* Captures the execution of a plan, and of a second one where there is one. */
static cu_graph_exec capture(const call *c, const dfgnn_plan *before,
                             void *workspace, cu_stream stream) {
  cu_graph graph = NULL;
  cu_graph_exec exec = NULL;
  dfgnn_status status = DFGNN_OK;
  ck_cu(StreamBeginCapture, stream, CU_CAPTURE_GLOBAL);
  if (before)
    status = dfgnn_execute(before, &c->args, workspace, stream);
  if (!status)
    status = dfgnn_execute(c->plan, &c->args, c->workspace, stream);
  cu_result ended = dfgnn__driver()->StreamEndCapture(stream, &graph);
  ck_assert_msg(!status && !ended, "%s: capture failed: %s, error %d",
                dfgnn_plan_variant(c->plan), dfgnn_last_error(), ended);
  ck_cu(GraphInstantiate, &exec, graph, 0);
  ck_cu(GraphDestroy, graph);
  return exec;
}

static void replay(cu_graph_exec exec, cu_stream stream) {
  ck_cu(GraphLaunch, exec, stream);
  ck_cu(StreamSynchronize, stream);
}

static void replays(call *c, const char *variant) {
  cu_stream stream = make_stream();
  cu_graph_exec exec = capture(c, NULL, NULL, stream);
  for (int i = 0; i < 2; i++) {
    replay(exec, stream);
    fetch_same(c, variant, "a replay gives other bits");
  }
  ck_cu(GraphExecDestroy, exec);
  ck_cu(StreamDestroy, stream);
}

TEST(a_captured_execute_replays_to_the_same_bits) {
  NOT_QUICK;
  for_each_variant(DFGNN_PASS_FORWARD, replays);
}

TEST(tuning_during_a_capture_is_refused) {
  NOT_QUICK;
  dfgnn_context *gpu = gpu_context();
  dfgnn_graph *graph = graph_of(gpu, graph_spec);
  dfgnn_plan *plan = NULL;
  cu_stream stream = NULL;
  cu_graph captured = NULL;
  dfgnn_problem problem = PROBLEM(.effort = DFGNN_EFFORT_MEASURE);
  ck_cu(StreamCreate, &stream, 0);
  ck_cu(StreamBeginCapture, stream, CU_CAPTURE_THREAD_LOCAL);
  dfgnn_status by_plan = dfgnn_plan_create(&plan, gpu, graph, &problem);
  dfgnn_status by_tune = dfgnn_tune(NULL, gpu, graph, &problem, NULL);
  (void)dfgnn__driver()->StreamEndCapture(stream, &captured);
  ck_assert_int_eq(by_plan, DFGNN_ERROR_CAPTURING);
  ck_assert_int_eq(by_tune, DFGNN_ERROR_CAPTURING);
  if (captured)
    ck_cu(GraphDestroy, captured);
  ck_cu(StreamDestroy, stream);
}

/* If the memory of a graph were given back at once, the graphs that are made
 * after it would overwrite the memory while the last of many executions reads
 * it. */
static void destroys_behind_its_work(dfgnn_context *gpu, cu_stream stream,
                                     int ordered) {
  const char *spec = few() > 1 ? "uniform:nodes=200,edges=2000,seed=1"
                               : "uniform:nodes=20000,edges=2000000,seed=1";
  dfgnn_graph *graph = graph_of(gpu, spec);
  const dfgnn_problem problem = DFGNN_PROBLEM_INIT;
  call c;
  open_call(&c, graph, &problem, NULL);
  run(&c, &c.args, NULL);
  fetch(&c, 0);
  for (int i = 0; i < 50; i++)
    run(&c, &c.args, stream);
  dfgnn_plan_destroy(c.plan);
  c.plan = NULL;
  disown(graph);
  if (ordered)
    dfgnn_graph_destroy_on(graph, stream);
  else
    dfgnn_graph_destroy(graph);
  for (int k = 0; k < 4; k++)
    done(graph_of(gpu, spec));
  fetch_same(&c, ordered ? "destroy_on" : "destroy",
             "a graph was given back while it was read");
  close_call(&c);
}

TEST(a_graph_is_destroyed_behind_its_work) {
  NOT_QUICK;
  dfgnn_context *gpu = gpu_context();
  cu_stream stream = make_stream();
  for (int ordered = 0; ordered < 2; ordered++)
    destroys_behind_its_work(gpu, stream, ordered);
  ck_cu(StreamDestroy, stream);
}

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* The host time of a call of dfgnn_execute on an idle queue: the median of
 * batches short enough that the launch queue never fills. */
static double host_us(const call *c, cu_stream stream) {
  enum { BATCHES = 31, CALLS = 50 };
  double sample[BATCHES];
  for (int b = 0; b < BATCHES; b++) {
    ck_cu(CtxSynchronize);
    double begin = seconds_now();
    for (int i = 0; i < CALLS; i++)
      run(c, &c->args, stream);
    sample[b] = 1e6 * (seconds_now() - begin) / CALLS;
  }
  qsort(sample, BATCHES, sizeof *sample, by_value);
  return sample[BATCHES / 2];
}

static void prints_its_host_time(call *c, const char *variant) {
  const dfgnn_variant *v = dfgnn__variant_find(variant);
  cu_stream stream = make_stream();
  double us = host_us(c, NULL), other = host_us(c, stream);
  ck_cu(CtxSynchronize);
  ck_cu(StreamDestroy, stream);
  printf("host %6.2f us, on a stream %6.2f us  %s\n", us, other, variant);
  /* 3.3 us on an H200 */
  if (!strcmp(v->family->algorithm, "online"))
    ck_assert_msg(us < 6, "%s: %.2f us of host time a call", variant, us);
}

TEST(a_call_of_one_launch_costs_the_host_little) {
  NOT_QUICK;
  dfgnn_graph *graph =
      graph_of(gpu_context(), "uniform:nodes=64,edges=256,seed=1");
  int checked = 0;
  for (size_t i = 0; i < dfgnn__variant_count(); i++) {
    const dfgnn_variant *v = dfgnn__variant(i);
    const dfgnn_problem problem = DFGNN_PROBLEM_INIT;
    call c;
    if ((i && v->family == dfgnn__variant(i - 1)->family) ||
        !open_call(&c, graph, &problem, v->name))
      continue;
    prints_its_host_time(&c, v->name);
    close_call(&c);
    checked++;
  }
  ck_assert_int_gt(checked, 0);
}

static int takes_places(const dfgnn_plan *plan) {
  for (int k = 0; k < DFGNN_MAX_VIEWS && plan->views[k]; k++)
    if (plan->views[k]->request.kind == DFGNN_VIEW_PLACE_ORDER)
      return 1;
  return 0;
}

IN_CASE("places")

/* Forward walks over whole rows take them by their first neighbour where tables
 * are larger than the cache, which here every table is. */
TEST(rows_by_their_first_neighbour_are_right) {
  static const struct {
    dfgnn_op op;
    int64_t edge_dim;
    const char *variant;
  } cases[] = {
      {DFGNN_OP_GT, 11,
       "cuda.attention.fwd.edges/lanes=32,unroll=1,rows=8,blocks=1,edges=all"},
      {DFGNN_OP_GATV2, 11,
       "cuda.attention.fwd.lift/lanes=32,unroll=2,warps=8,blocks=2,edges=all"},
      {DFGNN_OP_GAT, 0,
       "cuda.attention.fwd.online/lanes=16,unroll=2,warps=4,rows=1,span=once,"
       "order=natural,heads=warp,norm=row"}};
  dfgnn_context *gpu = gpu_context();
  dfgnn_graph *graph =
      graph_of(gpu, "uniform:nodes=3000,sources=9000,edges=9000,seed=5");
  gpu->info.cache_bytes = 0;
  for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
    double error = 0;
    call c;
    dfgnn_problem problem =
        PROBLEM(.op = cases[k].op, .edge_dim = cases[k].edge_dim, .heads = 2,
                .dim = 32);
    ck_assert(open_call(&c, graph, &problem, cases[k].variant));
    ck_assert_msg(takes_places(c.plan), "%s takes rows as they come",
                  cases[k].variant);
    ck_assert_msg(dfgnn__harness_check(&error, c.s.harness, c.plan) == DFGNN_OK,
                  "%s: %s", cases[k].variant, dfgnn_last_error());
    close_call(&c);
  }
}

/* ---- gradients ----------------------------------------------------------- */

IN_CASE("backward")

/* The largest difference between two runs over the root mean square of the
 * first. */
static double distance(const result *r) {
  const float *x = r->first, *y = r->again;
  const size_t count = r->bytes / sizeof *x;
  double squares = 0, most = 0;
  for (size_t k = 0; k < count; k++) {
    double d = fabs((double)x[k] - (double)y[k]);
    squares += (double)x[k] * (double)x[k];
    most = d > most ? d : most;
    if (x[k] != x[k] || y[k] != y[k])
      return INFINITY;
  }
  return most / (sqrt(squares / (double)count) + 1e-30);
}

static int is_poison(const result *r) {
  const unsigned char *bytes = r->again;
  for (size_t b = 0; b < r->bytes; b++)
    if (bytes[b] != 0xff)
      return 0;
  return 1;
}

static void gives_one_alone(call *c, const char *variant) {
  for (int k = 0; k < c->count; k++) {
    const result *wanted = &c->results[k];
    dfgnn_args one = c->args;
    for (int other = 0; other < c->count; other++)
      if (other != k)
        *dfgnn__tensor_slot(c->results[other].tensor, &one) = NULL;
    run(c, &one, NULL);
    fetch(c, 1);
    ck_assert_msg(distance(wanted) < 1e-4, "%s: %s alone differs by %g",
                  variant, wanted->tensor->name, distance(wanted));
    for (int other = 0; other < c->count; other++)
      ck_assert_msg(other == k || is_poison(&c->results[other]),
                    "%s: %s is written, only %s was wanted", variant,
                    c->results[other].tensor->name, wanted->tensor->name);
  }
}

TEST(a_gradient_may_be_wanted_alone) {
  for_each_variant(DFGNN_PASS_BACKWARD, gives_one_alone);
}

static void check_seeds(dfgnn_context *gpu, dfgnn_graph *graph, int op) {
  dfgnn_problem problem = PROBLEM(.op = (dfgnn_op)op, .dim = 32, .heads = 2,
                                  .pass = DFGNN_PASS_BACKWARD, .dropout = 1);
  /* the seed in device memory that forward and backward read, and which results
   * are then those of the first time */
  static const struct {
    uint64_t seed;
    int same;
    const char *fault;
  } replayed[] = {{1, 1, NULL},
                  {2, 0, "another seed drops the same"},
                  {1, 1, "a seed drops otherwise again"}};
  uint64_t *seed = device_memory(sizeof *seed);
  cu_stream stream = make_stream();
  call c;
  ck_assert(open_call(&c, graph, &problem, NULL));
  problem.pass = DFGNN_PASS_FORWARD;
  dfgnn_plan *forward = plan_on(gpu, graph, &problem);
  void *workspace = device_memory(dfgnn_plan_workspace(forward) + 256);
  c.args.dropout = 0.4;
  c.args.seed = seed;
  cu_graph_exec exec = capture(&c, forward, workspace, stream);
  poison(&c);
  for (int k = 0; k < 3; k++) {
    copy_memory(seed, &replayed[k].seed, sizeof *seed);
    replay(exec, stream);
    fetch(&c, k > 0);
    ck_assert_msg(!k || same_bits(&c) == replayed[k].same, "operator %d: %s",
                  op, replayed[k].fault);
  }
  dfgnn_args direct = c.args;
  direct.seed = NULL;
  direct.seed_value = 1;
  ck_ok(dfgnn_execute(forward, &direct, workspace, NULL));
  run(&c, &direct, NULL);
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
  dfgnn_graph *graph = graph_of(gpu_context(), graph_spec);
  const dfgnn_problem problem =
      PROBLEM(.op = DFGNN_OP_GATV2, .pass = DFGNN_PASS_BACKWARD, .dim = 32,
              .heads = 2);
  for (int k = 0; k < 2 * 5; k++) {
    call c;
    double error = 0;
    ck_assert(open_call(&c, graph, &problem, variants[k % 2]));
    c.s.harness->check.slope = slopes[k / 2];
    ck_assert_msg(dfgnn__harness_check(&error, c.s.harness, c.plan) == DFGNN_OK,
                  "%s, slope %g: %s", variants[k % 2], slopes[k / 2],
                  dfgnn_last_error());
    close_call(&c);
  }
}

GPU_MAIN("gpu_execute")
