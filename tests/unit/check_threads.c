/* Contexts, graphs, plans, races, stores and programs that threads share: every
 * thread gets the numbers of a thread alone.  `make check-threads` runs this
 * under ThreadSanitizer, which says whether they got them by luck. */
#include "tests/unit/fixture.h"

#include <stdatomic.h>

#include "db/store.h"
#include "dfgnn_program.h"
#include "kernels/common/cpu_team.h"
#include "lib/graph.h"

enum { THREADS = 6, NODES = 60, DIM = 8, SIZE = NODES * DIM };
#define SECONDS 60 /* for a test; ThreadSanitizer makes it ten times slower */

static char directory[64], store[96];
static dfgnn_csr csr;
static float feature[SIZE];

static int degree(int64_t i) { return (int)(i % 9); }

static void set_up(void) {
  test_folder(directory);
  snprintf(store, sizeof store, "%s/a.db", directory);
  csr = ring(NODES, degree);
  for (int i = 0; i < SIZE; i++)
    feature[i] = (float)(i % 13) / 13;
}

/* ---- threads that begin together ----------------------------------------- */

static pthread_barrier_t barrier;

typedef struct worker {
  void (*work)(int number);
  int number;
} worker;

static void *start(void *data) {
  const worker *w = data;
  pthread_barrier_wait(&barrier);
  w->work(w->number);
  return NULL;
}

/* Runs work(0) .. work(THREADS - 1) at once. */
static void together(void (*work)(int number)) {
  pthread_t thread[THREADS];
  worker workers[THREADS];
  ck_assert(!pthread_barrier_init(&barrier, NULL, THREADS));
  for (int i = 0; i < THREADS; i++) {
    workers[i] = (worker){work, i};
    ck_assert(!pthread_create(&thread[i], NULL, start, &workers[i]));
  }
  for (int i = 0; i < THREADS; i++)
    ck_assert(!pthread_join(thread[i], NULL));
  pthread_barrier_destroy(&barrier);
}

/* ---- problems and their results ------------------------------------------ */

/* All that a call of any of the problems writes. */
typedef struct results {
  float out[SIZE], lse[NODES], gradient[3][SIZE];
  int32_t arg[SIZE];
} results;

static const struct {
  dfgnn_op op;
  dfgnn_pass pass;
} problems[] = {{DFGNN_OP_GT, DFGNN_PASS_FORWARD},
                {DFGNN_OP_GT, DFGNN_PASS_BACKWARD},
                {DFGNN_OP_AGNN, DFGNN_PASS_FORWARD},
                {DFGNN_OP_SPMM_SUM, DFGNN_PASS_FORWARD},
                {DFGNN_OP_SPMM_SUM, DFGNN_PASS_BACKWARD},
                {DFGNN_OP_REDUCE_MAX, DFGNN_PASS_FORWARD}};
enum { PROBLEMS = sizeof problems / sizeof *problems };

static dfgnn_problem problem_of(int p) {
  return PROBLEM(.op = problems[p].op, .pass = problems[p].pass, .dim = DIM);
}

static dfgnn_args args_of(results *r) {
  memset(r, 0, sizeof *r);
  return ARGS(.query = feature, .key = feature, .value = feature,
              .grad_out = feature, .out = r->out, .lse = r->lse,
              .arg_max = r->arg, .grad_query = r->gradient[0],
              .grad_key = r->gradient[1], .grad_value = r->gradient[2]);
}

static void execute(results *r, const dfgnn_plan *plan) {
  const dfgnn_args args = args_of(r);
  execute_plan(plan, &args);
}

static void plan_and_execute(results *r, dfgnn_context *ctx, dfgnn_graph *graph,
                             int p) {
  dfgnn_problem problem = problem_of(p);
  dfgnn_plan *plan = plan_on(ctx, graph, &problem);
  execute(r, plan);
  done(plan);
}

/* The results that a thread alone gets, and the bytes that its graph took. */
static results alone[PROBLEMS];
static size_t bytes_alone;

static void find_results(void) {
  dfgnn_context *ctx = cpu_context("");
  dfgnn_graph *graph = graph_on(ctx, &csr);
  for (int p = 0; p < PROBLEMS; p++)
    plan_and_execute(&alone[p], ctx, graph, p);
  bytes_alone = dfgnn_graph_bytes(graph);
  done(graph);
  done(ctx);
}

static void same(const results *r, int p) {
  ck_assert_mem_eq(r, &alone[p], sizeof *r);
}

/* ---- what they share ----------------------------------------------------- */

static dfgnn_context *shared_ctx;
static dfgnn_graph *shared_graph;
static dfgnn_plan *shared_plan;

static void share(const char *stores) {
  shared_ctx = cpu_context(stores);
  shared_graph = graph_on(shared_ctx, &csr);
}

static void share_no_more(void) {
  done(shared_graph);
  done(shared_ctx);
}

static void make_a_context(int number) {
  (void)number;
  done(cpu_context(""));
}

static void work_alone(int number) {
  char name[96], said[96];
  dfgnn_csr *none = NULL;
  results r;
  dfgnn_context *ctx = cpu_context("");
  dfgnn_graph *graph = graph_on(ctx, &csr);
  snprintf(name, sizeof name, "%s/none-%d.mtx", directory, number);
  snprintf(said, sizeof said, "/none-%d.mtx", number);
  ck_assert_int_eq(dfgnn_csr_read(&none, name), DFGNN_ERROR_IO);
  plan_and_execute(&r, ctx, graph, number % PROBLEMS);
  same(&r, number % PROBLEMS);
  ck_fails(dfgnn_csr_read(&none, name), DFGNN_ERROR_IO, said);
  done(graph);
  done(ctx);
}

TEST(threads_with_contexts_of_their_own) {
  together(make_a_context); /* the first ones of the process */
  find_results();
  for (int i = 0; i < 3; i++)
    together(work_alone);
}

static void make_plans(int number) {
  results r;
  for (int k = 0; k < 2 * PROBLEMS; k++) {
    int p = (k + number) % PROBLEMS;
    plan_and_execute(&r, shared_ctx, shared_graph, p);
    same(&r, p);
  }
}

TEST(threads_that_share_a_graph_make_its_views_once) {
  find_results();
  for (int i = 0; i < 4; i++) { /* each time the views are not there yet */
    share("");
    together(make_plans);
    ck_assert_uint_eq(dfgnn_graph_bytes(shared_graph), bytes_alone);
    share_no_more();
  }
}

static void execute_shared(int number) {
  results r;
  (void)number;
  for (int k = 0; k < 20; k++) {
    execute(&r, shared_plan);
    same(&r, 0);
  }
}

TEST(threads_execute_one_plan) {
  dfgnn_problem problem = problem_of(0);
  find_results();
  share("");
  shared_plan = plan_on(shared_ctx, shared_graph, &problem);
  together(execute_shared);
  done(shared_plan);
  share_no_more();
}

static void call(int number) {
  results r;
  for (int k = 0; k < 12; k++) {
    int p = (k + number) % PROBLEMS;
    dfgnn_problem problem = problem_of(p);
    dfgnn_args args = args_of(&r);
    ck_ok(dfgnn_call(shared_ctx, shared_graph, &problem, &args, NULL));
    same(&r, p);
    dfgnn_graph *graph = graph_on(shared_ctx, &csr);
    args = args_of(&r);
    ck_ok(dfgnn_call(shared_ctx, graph, &problem, &args, NULL));
    same(&r, p);
    done(graph);
  }
}

TEST(threads_call_in_one_context) {
  find_results();
  share("");
  together(call);
  share_no_more();
}

/* ---- stores -------------------------------------------------------------- */

/* Whether a new context chooses by what the store says of the graph. */
static int is_stored(const dfgnn_problem *problem) {
  dfgnn_context *ctx = cpu_context(store);
  dfgnn_plan *plan;
  dfgnn_graph *graph = graph_on(ctx, &csr);
  ck_ok(dfgnn_plan_create(&plan, ctx, graph, problem));
  dfgnn_source source = dfgnn_plan_source(plan);
  dfgnn_plan_destroy(plan);
  done(graph);
  done(ctx);
  return source == DFGNN_SOURCE_EXACT || source == DFGNN_SOURCE_NEAR;
}

static void close_to(const results *r, int p) {
  for (int i = 0; i < SIZE; i++)
    ck_assert_float_eq_tol(r->out[i], alone[p].out[i], 1e-4F);
}

static atomic_int raced;

/* Every thread asks for the racing plan, runs it and lets it go. */
static void race(int number) {
  dfgnn_problem problem = problem_of(0);
  results r;
  (void)number;
  problem.effort = DFGNN_EFFORT_RACE;
  for (int k = 0; k < 10; k++) {
    dfgnn_plan *plan = plan_on(shared_ctx, shared_graph, &problem);
    execute(&r, plan);
    close_to(&r, 0); /* the entrants add in orders of their own */
    ck_assert_ptr_nonnull(dfgnn_plan_variant(plan));
    dfgnn_explanation *explanation;
    ck_ok(dfgnn_plan_explain(&explanation, plan));
    raced += strstr(explanation->because, "the first calls race") != NULL;
    dfgnn_explanation_free(explanation);
    done(plan);
  }
}

TEST(threads_run_one_race) {
  dfgnn_problem problem = problem_of(0);
  find_results();
  share(store);
  together(race);
  share_no_more();
  ck_assert_int_gt(raced, 0);
  ck_assert(is_stored(&problem));
}

/* Tunes the problem of its number: every second thread in the shared context,
 * the others in one of their own, all into one file. */
static void tune(int number) {
  dfgnn_problem problem = problem_of(0);
  dfgnn_context *ctx = number % 2 ? cpu_context(store) : shared_ctx;
  dfgnn_graph *graph = shared_graph;
  dfgnn_counters counters = DFGNN_COUNTERS_INIT;
  char digest[DFGNN_DIGEST_SIZE];
  dfgnn_tune_options options = INIT(dfgnn_tune_options, .budget_s = .05);
  problem.dim = 1 + number;
  if (number % 2)
    graph = graph_on(ctx, &csr);
  ck_ok(dfgnn_tune(NULL, ctx, graph, &problem, &options));
  ck_ok(dfgnn_context_reload(ctx));
  ck_ok(dfgnn_context_counters(&counters, ctx));
  ck_ok(dfgnn_context_digest(digest, ctx));
  ck_assert_uint_gt(counters.loaded_rows, 0);
  if (number % 2) {
    done(graph);
    done(ctx);
  }
}

TEST(threads_tune_into_one_store) {
  share(store);
  together(tune);
  share_no_more();
  for (int number = 0; number < THREADS; number++) {
    dfgnn_problem problem = problem_of(0);
    problem.dim = 1 + number;
    ck_assert_msg(is_stored(&problem), "dim %d", 1 + number);
  }
}

/* Opens the store, which all make at once, and pins a variant for a graph. */
static void pin(int number) {
  const char *variant = "cpu.attention.fwd.online";
  for (int k = 0; k < 8; k++) {
    dfgnn_store *s;
    ck_ok(dfgnn__store_open(&s, store, DFGNN_STORE_WRITE));
    ck_ok(dfgnn__store_pin(
        s, &(dfgnn_pin){.op = "gt",
                        .pass = "forward",
                        .dtype = "f32",
                        .fingerprint = (uint64_t)(1 + 8 * number + k),
                        .variant = variant}));
    dfgnn__store_close(s);
  }
}

static int count_pin(void *data, const dfgnn_pin *found) {
  (void)found;
  ++*(int *)data;
  return 0;
}

TEST(threads_write_one_store) {
  dfgnn_store *s;
  int pins = 0;
  together(pin);
  ck_ok(dfgnn__store_open(&s, store, DFGNN_STORE_READ));
  ck_ok(dfgnn__store_each_pin(s, count_pin, &pins));
  dfgnn__store_close(s);
  ck_assert_int_eq(pins, 8 * THREADS);
}

/* ---- edge programs ------------------------------------------------------- */

static const char program_text[] = "dst q[D]; src k[D], v[D]\n"
                                   "out = sum_in(softmax_in(sum(q * k)) * v)\n";
static dfgnn_edge_program *program;
static float program_out[SIZE], program_gradient[SIZE];

/* Executes the program and the gradient that it derives of it for itself. */
static void run_program(float out[SIZE], float gradient_of_v[SIZE]) {
  static const unsigned char of_v[] = {0, 0, 1};
  dfgnn_edge_program *gradient;
  dfgnn_edge_tensor in[8], result;
  int count = 0;
  const dfgnn_edge_tensor tensor = {NULL, feature, DFGNN_F32, 1, {DIM}};
  static const char *const names[] = {"q", "k", "v"};
  for (; count < 3; count++) {
    in[count] = tensor;
    in[count].name = names[count];
  }
  result = tensor;
  result.name = "out";
  result.data = out;
  ck_ok(dfgnn_edge_program_execute(program, shared_graph, in, 3, &result, 1, 0,
                                   NULL));
  ck_ok(dfgnn_edge_program_gradient(&gradient, program, NULL, of_v));
  dfgnn_edge_value value[8];
  count = dfgnn_edge_program_input_count(gradient);
  ck_assert_int_le(count, 8);
  for (int i = 0; i < count; i++) {
    value[i] = (dfgnn_edge_value)DFGNN_EDGE_VALUE_INIT;
    ck_ok(dfgnn_edge_program_input(&value[i], gradient, i));
    in[i] = tensor;
    in[i].name = value[i].name;
    if (value[i].role == DFGNN_EDGE_OUTPUT)
      in[i].data = out;
  }
  result.name = "grad_v";
  result.data = gradient_of_v;
  ck_ok(dfgnn_edge_program_execute(gradient, shared_graph, in, count, &result,
                                   1, 0, NULL));
  dfgnn_edge_program_destroy(gradient);
}

static void program_again(int number) {
  float out[SIZE] = {0}, gradient[SIZE] = {0};
  (void)number;
  for (int k = 0; k < 3; k++) {
    run_program(out, gradient);
    ck_assert_mem_eq(out, program_out, sizeof out);
    ck_assert_mem_eq(gradient, program_gradient, sizeof gradient);
  }
}

TEST(threads_share_an_edge_program) {
  ck_ok(dfgnn_edge_program_create(&program, program_text));
  share("");
  run_program(program_out, program_gradient);
  share_no_more();
  share(""); /* its columns are not there yet */
  together(program_again);
  share_no_more();
  dfgnn_edge_program_destroy(program);
}

/* ---- tasks of a CPU kernel ----------------------------------------------- */

enum { TASK_THREADS = 3, COUNT = 1000 };

typedef struct tasks {
  int64_t step;
  _Atomic int times[COUNT];
  _Atomic int beyond; /* calls with a range or thread that is not */
} tasks;

static void count_tasks(void *data, int64_t begin, int64_t end) {
  tasks *t = data;
  const int thread = dfgnn__cpu_thread();
  t->beyond += begin < 0 || end > COUNT || thread < 0 || thread >= TASK_THREADS;
  t->beyond += begin % t->step != 0 || end - begin > t->step;
  for (int64_t i = begin; i < end; i++)
    t->times[i]++;
}

static void run_tasks(int number) {
  for (int k = 0; k < 40; k++) {
    const int64_t count = COUNT - 7 * k, step = 1 + (number * 31 + k * 17) % 90;
    tasks t = {.step = step};
    dfgnn__cpu_for(k % TASK_THREADS + 1, count, step, count_tasks, &t);
    ck_assert_int_eq(t.beyond, 0);
    ck_assert_int_eq(dfgnn__cpu_thread(), 0);
    for (int64_t i = 0; i < COUNT; i++)
      ck_assert_int_eq(t.times[i], i < count);
  }
}

TEST(each_task_runs_once_whoever_takes_it) { together(run_tasks); }

TEST_MAIN("threads", .setup = set_up, .timeout = SECONDS)
