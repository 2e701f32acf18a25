/* check_gpu_execute.c - promises of dfgnn_execute on a GPU: any stream, capture
 * and replay, the same bits every time, little host time */
#include "tests/gpu/gpu.h"

static const char *const graph_spec =
    "powerlaw:nodes=900,edges=12000,max-degree=700,seed=11";

typedef struct call {
  dfgnn_plan *plan;
  dfgnn_harness *harness;
  void *workspace;
  void *first, *again; /* host copies of out */
  size_t bytes;
} call;

/* Returns 0 if the variant does not apply. */
static int open_call(call *c, dfgnn_context *gpu, dfgnn_graph *graph,
                     const dfgnn_problem *problem, const char *variant) {
  memset(c, 0, sizeof *c);
  dfgnn_status status =
      dfgnn_plan_create_forced(&c->plan, gpu, graph, problem, variant);
  if (status == DFGNN_ERROR_UNSUPPORTED)
    return 0;
  ck_assert_msg(status == DFGNN_OK, "%s: %s", variant, dfgnn_last_error());
  ck_ok(dfgnn__harness_create(&c->harness, gpu, graph, problem, 7));
  ck_ok(dfgnn__harness_workspace(&c->workspace, c->harness, c->plan));
  c->bytes =
      (size_t)(graph->matrix.destinations * problem->heads * problem->dim) *
      dfgnn_dtype_size(problem->dtype);
  c->first = malloc(c->bytes);
  c->again = malloc(c->bytes);
  return 1;
}

static void close_call(call *c) {
  free(c->first);
  free(c->again);
  dfgnn__harness_destroy(c->harness);
  dfgnn_plan_destroy(c->plan);
}

static void execute(const call *c, cu_stream stream) {
  ck_ok(dfgnn_execute(c->plan, dfgnn__harness_args(c->harness), c->workspace,
                      stream));
}

/* Reads the output and then overwrites it. */
static void fetch(const call *c, void *to) {
  void *out = dfgnn__harness_args(c->harness)->out;
  ck_cu(CtxSynchronize);
  copy_memory(to, out, c->bytes);
  fill_device(out, 0xff, c->bytes);
  ck_cu(CtxSynchronize);
}

typedef void (*promise)(call *c, const char *variant);

/* Calls check for each CUDA variant and each operator to which it applies. */
static void for_each_variant(promise check, int deterministic_only) {
  dfgnn_context *gpu = gpu_context();
  dfgnn_graph *graph = graph_of(gpu, graph_spec);
  int checked = 0;
  for (size_t i = 0; i < dfgnn__variant_count(); i++) {
    const dfgnn_variant *v = dfgnn__variant(i);
    if (strcmp(v->family->backend, "cuda") || i % (size_t)few() ||
        (deterministic_only && !v->family->deterministic))
      continue;
    for (int op = 0; op < DFGNN_OP_COUNT; op++) {
      call c;
      dfgnn_problem problem = PROBLEM(.op = (dfgnn_op)op, .dim = 32, .heads = 2,
                                      .deterministic = deterministic_only);
      if ((quick() && op) || !(v->family->ops & DFGNN_BIT(op)) ||
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

static void same_bits(const call *c, const char *variant, const char *what) {
  ck_assert_msg(!memcmp(c->first, c->again, c->bytes), "%s: %s", variant, what);
}

static void repeats_its_bits(call *c, const char *variant) {
  execute(c, NULL);
  fetch(c, c->first);
  for (int i = 0; i < (quick() ? 1 : 4); i++) {
    execute(c, NULL);
    fetch(c, c->again);
    same_bits(c, variant, "a second run gives other bits");
  }
}

IN_CASE("execute")

TEST(a_deterministic_variant_repeats_its_bits) {
  for_each_variant(repeats_its_bits, 1);
}

static void runs_on_a_stream(call *c, const char *variant) {
  cu_stream stream = NULL;
  execute(c, NULL);
  fetch(c, c->first);
  stream = make_stream();
  execute(c, stream);
  ck_cu(StreamSynchronize, stream);
  fetch(c, c->again);
  ck_cu(StreamDestroy, stream);
  same_bits(c, variant, "another stream gives other bits");
}

TEST(execute_runs_on_the_callers_stream) {
  NOT_QUICK;
  for_each_variant(runs_on_a_stream, 1);
}

static void replays(call *c, const char *variant) {
  cu_stream stream = NULL;
  cu_graph graph = NULL;
  cu_graph_exec exec = NULL;
  execute(c, NULL);
  fetch(c, c->first);
  stream = make_stream();
  ck_cu(StreamBeginCapture, stream, CU_CAPTURE_GLOBAL);
  dfgnn_status status = dfgnn_execute(c->plan, dfgnn__harness_args(c->harness),
                                      c->workspace, stream);
  cu_result ended = dfgnn__driver()->StreamEndCapture(stream, &graph);
  ck_assert_msg(!status && !ended, "%s: capture failed: %s, error %d", variant,
                dfgnn_last_error(), ended);
  ck_cu(GraphInstantiate, &exec, graph, 0);
  for (int i = 0; i < 2; i++) {
    ck_cu(GraphLaunch, exec, stream);
    ck_cu(StreamSynchronize, stream);
    fetch(c, c->again);
    same_bits(c, variant, "a replay gives other bits");
  }
  ck_cu(GraphExecDestroy, exec);
  ck_cu(GraphDestroy, graph);
  ck_cu(StreamDestroy, stream);
}

TEST(a_captured_execute_replays_to_the_same_bits) {
  NOT_QUICK;
  for_each_variant(replays, 1);
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
  call c = {NULL};
  dfgnn_problem problem = PROBLEM(.deterministic = 1);
  c.plan = plan_on(gpu, graph, &problem);
  ck_ok(dfgnn__harness_create(&c.harness, gpu, graph, &problem, 7));
  ck_ok(dfgnn__harness_workspace(&c.workspace, c.harness, c.plan));
  c.bytes =
      (size_t)(graph->matrix.destinations * problem.heads * problem.dim) * 4;
  c.first = malloc(c.bytes);
  c.again = malloc(c.bytes);
  execute(&c, NULL);
  fetch(&c, c.first);
  for (int i = 0; i < 50; i++)
    execute(&c, stream);
  done(c.plan);
  c.plan = NULL;
  disown(graph);
  if (ordered)
    dfgnn_graph_destroy_on(graph, stream);
  else
    dfgnn_graph_destroy(graph);
  for (int k = 0; k < 4; k++)
    done(graph_of(gpu, spec));
  fetch(&c, c.again);
  same_bits(&c, ordered ? "destroy_on" : "destroy",
            "a graph was given back while it was read");
  close_call(&c);
}

TEST(a_graph_is_destroyed_behind_its_work) {
  NOT_QUICK;
  dfgnn_context *gpu = gpu_context();
  cu_stream stream = NULL;
  stream = make_stream();
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
      execute(c, stream);
    sample[b] = 1e6 * (seconds_now() - begin) / CALLS;
  }
  qsort(sample, BATCHES, sizeof *sample, by_value);
  return sample[BATCHES / 2];
}

static void prints_its_host_time(call *c, const char *variant) {
  const dfgnn_variant *v = dfgnn__variant_find(variant);
  cu_stream stream = NULL;
  stream = make_stream();
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
  dfgnn_context *gpu = gpu_context();
  dfgnn_graph *graph = graph_of(gpu, "uniform:nodes=64,edges=256,seed=1");
  int checked = 0;
  for (size_t i = 0; i < dfgnn__variant_count(); i++) {
    const dfgnn_variant *v = dfgnn__variant(i);
    dfgnn_problem problem = DFGNN_PROBLEM_INIT;
    call c;
    if (strcmp(v->family->backend, "cuda") ||
        (i && v->family == dfgnn__variant(i - 1)->family) ||
        !open_call(&c, gpu, graph, &problem, v->name))
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
    ck_assert(open_call(&c, gpu, graph, &problem, cases[k].variant));
    ck_assert_msg(takes_places(c.plan), "%s takes rows as they come",
                  cases[k].variant);
    ck_assert_msg(dfgnn__harness_check(&error, c.harness, c.plan) == DFGNN_OK,
                  "%s: %s", cases[k].variant, dfgnn_last_error());
    close_call(&c);
  }
}

GPU_MAIN("gpu_execute")
