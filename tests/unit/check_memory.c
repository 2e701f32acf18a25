/* check_memory.c - without memory calls fail, and say so: no process ends
 *
 * A child runs a scenario in which the n-th allocation fails, for each n that
 * there is.  It may end with any status of the library, but by no signal. */
#include "tests/unit/fixture.h"

#include <signal.h>
#include <sys/wait.h>

#include "dfgnn_program.h"

/* Sanitizers have an allocator of their own. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define REPLACED 0
#else
#define REPLACED 1
#endif

static long left = -1; /* allocations before the one that fails; -1: none */
static long made;

#if REPLACED
extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t),
    *__libc_realloc(void *, size_t);
static int fails(void) {
  made++;
  return left >= 0 && left-- == 0;
}
void *malloc(size_t size) { return fails() ? NULL : __libc_malloc(size); }
void *calloc(size_t count, size_t size) {
  return fails() ? NULL : __libc_calloc(count, size);
}
void *realloc(void *memory, size_t size) {
  return fails() ? NULL : __libc_realloc(memory, size);
}
#endif

static char folder[64], store[128], file[128];

static void make_files(void) {
  dfgnn_csr *csr = generated("knn:nodes=40,k=3,seed=1");
  strcpy(folder, "/tmp/dfgnn-memory-XXXXXX");
  ck_assert_ptr_nonnull(mkdtemp(folder));
  snprintf(store, sizeof store, "%s/tuning.db", folder);
  snprintf(file, sizeof file, "%s/graph.mtx", folder);
  ck_ok(dfgnn_csr_write(csr, file));
}

static void remove_files(void) {
  char command[128];
  snprintf(command, sizeof command, "rm -rf %s", folder);
  ck_assert_int_eq(system(command), 0);
}

/* ---- scenarios ----------------------------------------------------------- */

static dfgnn_status open_context(dfgnn_context **ctx, const char *path) {
  dfgnn_options options = INIT(dfgnn_options, .device = "cpu", .store = path,
                               .threads = 1, .log_level = DFGNN_LOG_NONE);
  return dfgnn_context_create(ctx, &options);
}

static void with_context(void) {
  dfgnn_context *ctx = NULL;
  if (!open_context(&ctx, ""))
    dfgnn_context_destroy(ctx);
}

static void with_store(void) {
  dfgnn_context *ctx = NULL;
  if (!open_context(&ctx, store))
    dfgnn_context_destroy(ctx);
}

static void with_graph(void) {
  dfgnn_csr *csr = NULL;
  if (!dfgnn_csr_read(&csr, file))
    dfgnn_csr_free(csr);
}

static void with_plan(void) {
  static const int32_t offsets[] = {0, 2, 2, 3}, indices[] = {0, 1, 1};
  const dfgnn_csr csr = csr32(3, 2, offsets, indices);
  dfgnn_context *ctx = NULL;
  dfgnn_graph *graph = NULL;
  dfgnn_plan *plan = NULL;
  dfgnn_problem problem = PROBLEM(.pass = DFGNN_PASS_BACKWARD);
  if (open_context(&ctx, ""))
    return;
  if (!dfgnn_graph_create_csr(&graph, ctx, &csr, NULL)) {
    if (!dfgnn_plan_create(&plan, ctx, graph, &problem))
      dfgnn_plan_destroy(plan);
    dfgnn_graph_destroy(graph);
  }
  dfgnn_context_destroy(ctx);
}

static void with_program(void) {
  dfgnn_edge_program *program = NULL, *kept = NULL, *gradient = NULL;
  if (dfgnn_edge_program_create(&program,
                                "dst q[H,D]; src k[H,D], v[H,D]\n"
                                "s = sum(q * k) / sqrt(degree(dst))\n"
                                "out = sum_in(softmax_in(s) * v / q)"))
    return;
  if (!dfgnn_edge_program_keep(&kept, program, NULL, NULL) &&
      !dfgnn_edge_program_gradient(&gradient, kept, NULL, NULL))
    dfgnn_edge_program_destroy(gradient);
  dfgnn_edge_program_destroy(kept);
  dfgnn_edge_program_destroy(program);
}

static const struct {
  const char *name;
  void (*run)(void);
} scenarios[] = {{"a context", with_context},
                 {"a store", with_store},
                 {"a graph", with_graph},
                 {"a plan", with_plan},
                 {"a program", with_program}};
enum { SCENARIOS = sizeof scenarios / sizeof *scenarios };

/* Runs a scenario in a child; returns what wait tells of it. */
static int run(int scenario, long fails_at, int report) {
  int result = 0;
  fflush(NULL);
  pid_t child = fork();
  ck_assert_int_ge(child, 0);
  if (child == 0) {
    made = 0;
    left = fails_at;
    scenarios[scenario].run();
    left = -1;
    if (report >= 0 && write(report, &made, sizeof made) != sizeof made)
      _exit(2);
    _exit(0);
  }
  ck_assert_int_eq(waitpid(child, &result, 0), child);
  return result;
}

static long allocations_of(int scenario) {
  long count = 0;
  int ends[2];
  ck_assert(!pipe(ends));
  ck_assert_int_eq(run(scenario, -1, ends[1]), 0);
  ck_assert_int_eq(read(ends[0], &count, sizeof count), sizeof count);
  close(ends[0]);
  close(ends[1]);
  return count;
}

TEST_LOOP(no_allocation_that_fails_ends_the_process, 0, SCENARIOS) {
  enum { MOST = 400 }; /* of a scenario with more, evenly spread */
  if (!REPLACED)
    return;
  const long count = allocations_of(_i);
  const long step = count > MOST ? count / MOST : 1;
  ck_assert_int_gt(count, 5);
  for (long n = 0; n < count; n += n < MOST / 2 ? 1 : step) {
    const int result = run(_i, n, -1);
    ck_assert_msg(!WIFSIGNALED(result),
                  "%s: allocation %ld of %ld fails: signal %d",
                  scenarios[_i].name, n, count, WTERMSIG(result));
  }
}

/* Later calls find what the first did not get. */
TEST(a_context_is_made_when_there_is_memory_again) {
  int failed = 0;
  if (!REPLACED)
    return;
  for (long n = 0; n < 40; n++) {
    dfgnn_context *ctx = NULL;
    left = n;
    const dfgnn_status status = open_context(&ctx, "");
    left = -1;
    ck_assert(status == DFGNN_OK || status == DFGNN_ERROR_MEMORY);
    failed += status != DFGNN_OK;
    if (!status)
      dfgnn_context_destroy(ctx);
    ck_ok(open_context(&ctx, ""));
    dfgnn_context_destroy(ctx);
  }
  ck_assert_int_gt(failed, 0);
}

TEST_MAIN("memory", .setup = make_files, .teardown = remove_files,
          .timeout = 120)
