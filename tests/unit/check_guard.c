/* check_guard.c - CPU kernels touch no byte beyond any array
 *
 * Every array that a call gets, of the graph and its tensors, ends where a page
 * begins that nobody may touch, and in a second round begins behind one.  A
 * kernel that reads or writes beyond by a byte ends the process, and the last
 * line of the log names its variant. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "tests/unit/fixture.h"

#include <signal.h>
#include <sys/mman.h>

#include "dfgnn_tune.h"
#include "lib/operator.h"
#include "lib/registry.h"

enum { MOST_ARRAYS = 64, ROWS = 7, COLUMNS = 5, EDGES = 21 };

static struct {
  char *map;
  size_t bytes;
} arrays[MOST_ARRAYS];
static int array_count, at_end;

/* Memory between two pages that cannot be touched. */
static void *guarded(size_t bytes, size_t alignment) {
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  const size_t inside = (bytes + page) / page * page;
  char *map = mmap(NULL, inside + 2 * page, PROT_NONE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ck_assert(map != MAP_FAILED && array_count < MOST_ARRAYS);
  ck_assert(!mprotect(map + page, inside, PROT_READ | PROT_WRITE));
  arrays[array_count].map = map;
  arrays[array_count++].bytes = inside + 2 * page;
  char *end = map + page + inside;
  return at_end ? end - (bytes + alignment - 1) / alignment * alignment
                : map + page;
}

static void forget(int from) {
  while (array_count > from) {
    array_count--;
    munmap(arrays[array_count].map, arrays[array_count].bytes);
  }
}

/* A row without edges, one with a single edge and one with most of them. */
static dfgnn_graph *make_graph(dfgnn_context *ctx) {
  static const int degree[ROWS] = {1, 0, 3, 11, 2, 0, 4};
  int32_t *offsets = guarded((ROWS + 1) * sizeof *offsets, sizeof *offsets);
  int32_t *indices = guarded(EDGES * sizeof *indices, sizeof *indices);
  dfgnn_graph *graph = NULL;
  offsets[0] = 0;
  for (int i = 0; i < ROWS; i++)
    offsets[i + 1] = offsets[i] + degree[i];
  for (int e = 0; e < EDGES; e++)
    indices[e] = (e * 3 + 4) % COLUMNS;
  const dfgnn_csr csr = csr32(ROWS, COLUMNS, offsets, indices);
  ck_ok(dfgnn_graph_create_csr(&graph, ctx, &csr, NULL));
  return graph;
}

/* Small numbers of the tensor's type, all different; an index is the first
 * edge of its row. */
static void fill(void *data, const dfgnn_tensor *t, const dfgnn_problem *p,
                 int64_t count) {
  for (int64_t i = 0; i < count; i++) {
    const double x = 0.1 + (double)(i % 13) / 16;
    const float single = (float)x;
    uint32_t bits;
    memcpy(&bits, &single, sizeof bits);
    if (t->element == DFGNN_ELEMENT_INDEX)
      ((int32_t *)data)[i] = 0;
    else if (p->dtype == DFGNN_F64)
      ((double *)data)[i] = x;
    else if (t->element == DFGNN_ELEMENT_SCALAR || p->dtype == DFGNN_F32)
      ((float *)data)[i] = single;
    else if (p->dtype == DFGNN_BF16)
      ((uint16_t *)data)[i] = (uint16_t)(bits >> 16);
    else /* binary16 of a number from 0.1 to 1 */
      ((uint16_t *)data)[i] = (uint16_t)(((bits >> 13) - 0x1c000) & 0x7fff);
  }
}

static void mark_rows_without_edges(void *data, const dfgnn_problem *p) {
  const int64_t width = p->heads * p->dim;
  for (int64_t k = 0; k < width; k++)
    ((int32_t *)data)[width + k] = ((int32_t *)data)[5 * width + k] = -1;
}

/* Runs a variant; 0 if it cannot run the problem. */
static int run(dfgnn_context *ctx, dfgnn_graph *graph, const dfgnn_problem *p,
               const char *variant) {
  const dfgnn_operator *op = dfgnn__operator(p->op, p->pass);
  const int before = array_count;
  dfgnn_args args = DFGNN_ARGS_INIT;
  dfgnn_plan *plan = NULL;
  if (dfgnn_plan_create_forced(&plan, ctx, graph, p, variant))
    return 0;
  for (const dfgnn_tensor *t = op->tensors; t->name; t++) {
    if (!dfgnn__tensor_used(t, p))
      continue;
    const size_t size = dfgnn__tensor_element_size(t, p);
    const int64_t count = dfgnn__tensor_elements(t, p, ROWS, COLUMNS, EDGES);
    void *data = guarded((size_t)count * size, size);
    if (dfgnn__role_reads(t->role)) {
      fill(data, t, p, count);
      if (t->element == DFGNN_ELEMENT_INDEX)
        mark_rows_without_edges(data, p);
    }
    *dfgnn__tensor_slot(t, &args) = data;
  }
  args.dropout = 0.3;
  const size_t bytes = dfgnn_plan_workspace(plan);
  printf("%s %s %s %s, %lld heads x %lld\n", variant,
         dfgnn_name(DFGNN_NAMES_OP, p->op),
         dfgnn_name(DFGNN_NAMES_PASS, p->pass),
         dfgnn_name(DFGNN_NAMES_DTYPE, p->dtype), (long long)p->heads,
         (long long)p->dim);
  fflush(stdout);
  ck_ok(dfgnn_execute(plan, &args, bytes ? guarded(bytes, 64) : NULL, NULL));
  dfgnn_plan_destroy(plan);
  forget(before);
  return 1;
}

/* A bias, dropout and weights, or the gates of messages, in turn with features
 * of edges; what a variant does not have it refuses. */
static void add_extras(dfgnn_problem *p, int k) {
  const int attention = DFGNN_OPS_ATTENTION >> p->op & 1;
  if (k == 2 && attention) {
    p->bias = p->dropout = 1;
    p->weights = p->pass == DFGNN_PASS_FORWARD;
  } else if (k == 2) {
    p->message = DFGNN_MESSAGE_GATE;
  } else if (k == 3) {
    p->edge_dim = p->op == DFGNN_OP_GAT ? DFGNN_EDGE_PROJECTED : 3;
    p->message = attention ? DFGNN_MESSAGE_COPY : DFGNN_MESSAGE_RELU;
  }
}

/* Each variant of a family takes another problem, in turn. */
static void run_variants(dfgnn_op op, dfgnn_pass pass) {
  static const struct {
    int64_t heads, dim;
  } widths[] = {{1, 1},  {3, 3},  {1, 17},  {2, 20}, {1, 64},
                {5, 13}, {2, 33}, {1, 100}, {8, 8},  {1, 7}};
  enum { WIDTHS = sizeof widths / sizeof *widths };
  dfgnn_context *ctx = cpu_context("");
  dfgnn_graph *graph = make_graph(ctx);
  const char *wanted = getenv("DFGNN_TEST_FAMILY");
  int runs = 0;
  size_t turn = 0;
  for (size_t i = 0; i < dfgnn_variant_count(); i++) {
    dfgnn_variant_info info = DFGNN_VARIANT_INFO_INIT;
    ck_ok(dfgnn_variant_get(&info, i));
    if (strcmp(info.backend, "cpu") || !(info.ops >> op & 1) ||
        !(info.passes >> pass & 1) || (wanted && !strstr(info.name, wanted)))
      continue;
    for (int k = 0; k < 4; k++, turn++) {
      dfgnn_problem p = DFGNN_PROBLEM_INIT;
      p.op = op;
      p.pass = pass;
      p.heads = widths[turn % WIDTHS].heads;
      p.dim = widths[turn % WIDTHS].dim;
      p.dtype = (dfgnn_dtype)(turn / WIDTHS % DFGNN_DTYPE_COUNT);
      p.layout = turn % 3 == 2 ? DFGNN_LAYOUT_NDH : DFGNN_LAYOUT_NHD;
      p.max_workspace = -1;
      add_extras(&p, k);
      runs += run(ctx, graph, &p, info.name);
    }
  }
  dfgnn_graph_destroy(graph);
  dfgnn_context_destroy(ctx);
  forget(0);
  ck_assert_int_gt(runs, wanted ? -1 : 3);
}

static const struct {
  dfgnn_op op;
  dfgnn_pass pass;
} passes[] = {
    {DFGNN_OP_GT, DFGNN_PASS_FORWARD},
    {DFGNN_OP_AGNN, DFGNN_PASS_FORWARD},
    {DFGNN_OP_GAT, DFGNN_PASS_FORWARD},
    {DFGNN_OP_GATV2, DFGNN_PASS_FORWARD},
    {DFGNN_OP_GT, DFGNN_PASS_BACKWARD},
    {DFGNN_OP_GATV2, DFGNN_PASS_BACKWARD},
    {DFGNN_OP_SPMM_SUM, DFGNN_PASS_FORWARD},
    {DFGNN_OP_SPMM_WEIGHTED, DFGNN_PASS_FORWARD},
    {DFGNN_OP_SPMM_WEIGHTED, DFGNN_PASS_BACKWARD},
    {DFGNN_OP_REDUCE_MAX, DFGNN_PASS_FORWARD},
    {DFGNN_OP_REDUCE_MAX, DFGNN_PASS_BACKWARD},
    {DFGNN_OP_REDUCE_PNA, DFGNN_PASS_FORWARD},
    {DFGNN_OP_REDUCE_STD, DFGNN_PASS_BACKWARD},
};

START_TEST(no_kernel_touches_what_follows_an_array) {
  at_end = 1;
  run_variants(passes[_i].op, passes[_i].pass);
}
END_TEST

START_TEST(no_kernel_touches_what_precedes_an_array) {
  at_end = 0;
  run_variants(passes[_i].op, passes[_i].pass);
}
END_TEST

/* Sanitizers have a handler of their own, which would end it by an exit. */
START_TEST(a_byte_beyond_ends_the_process) {
  signal(SIGSEGV, SIG_DFL);
  at_end = 1;
  volatile char *bytes = guarded(13, 1);
  bytes[12] = 1;
  bytes[13] = 1;
}
END_TEST

START_TEST(a_byte_before_ends_the_process) {
  signal(SIGSEGV, SIG_DFL);
  volatile char *bytes = guarded(13, 1);
  bytes[0] = bytes[-1];
}
END_TEST

int main(void) {
  const int count = sizeof passes / sizeof *passes;
  Suite *suite = suite_create("guard");
  TCase *tests = tcase_create("cpu");
  tcase_set_timeout(tests, 60);
  tcase_add_loop_test(tests, no_kernel_touches_what_follows_an_array, 0, count);
  tcase_add_loop_test(tests, no_kernel_touches_what_precedes_an_array, 0,
                      count);
  tcase_add_test_raise_signal(tests, a_byte_beyond_ends_the_process, SIGSEGV);
  tcase_add_test_raise_signal(tests, a_byte_before_ends_the_process, SIGSEGV);
  suite_add_tcase(suite, tests);
  return run_tests(suite);
}
