/* check_gpu_symmetric.c - gradients by one walk: over graphs that equal their
 * transpose, or by additions in memory, which waive determinism */
#include "tests/common/shapes.h"
#include "tests/common/strided.h"
#include "tests/gpu/gpu.h"

#define NODES 300

static const int dims[] = {128, 64, 32, 16, 256, 100, 20};
static const int heads[] = {1, 1, 8, 8, 1, 3, 2};
enum { WIDTHS = sizeof dims / sizeof *dims };

static unsigned state;

static unsigned below(unsigned bound) {
  state = state * 1664525u + 1013904223u;
  return (unsigned)((uint64_t)(state >> 8) * bound >> 24);
}

/* The number of edges between i and j: some edges are there twice, some are
 * self loops, one node is a super node, and every seventh is isolated. */
static unsigned edges_between(unsigned i, unsigned j) {
  unsigned drawn = below(40);
  if (i % 7 == 3 || j % 7 == 3)
    return 0;
  if (i == 1 || j == 1)
    return 1;
  return drawn == 0 ? 2 : drawn < 4;
}

static shape symmetric_shape(void) {
  static unsigned char count[NODES][NODES];
  shape s = {"a symmetric graph", DFGNN_CSR_INIT};
  int32_t *offsets = calloc(NODES + 1, sizeof *offsets), *indices, edges = 0;
  state = shape_seed();
  for (unsigned i = 0; i < NODES; i++)
    for (unsigned j = 0; j <= i; j++)
      count[i][j] = count[j][i] = (unsigned char)edges_between(i, j);
  for (int i = 0; i < NODES; i++) {
    for (int j = 0; j < NODES; j++)
      edges += count[i][j];
    offsets[i + 1] = edges;
  }
  indices = malloc((size_t)edges * sizeof *indices);
  edges = 0;
  for (int i = 0; i < NODES; i++)
    for (int j = 0; j < NODES; j++)
      for (int k = 0; k < count[i][j]; k++)
        indices[edges++] = j;
  s.csr = csr32(NODES, NODES, offsets, indices);
  return s;
}

typedef struct session {
  dfgnn_context *ctx;
  shape shape;
  dfgnn_graph *graph;
  dfgnn_problem problem;
} session;

static void open_session(session *s, int wide) {
  s->ctx = gpu_context();
  s->shape = symmetric_shape();
  if (wide)
    shape_widen(&s->shape);
  ck_ok(dfgnn_graph_create_csr(&s->graph, s->ctx, &s->shape.csr, NULL));
}

static void close_session(session *s) {
  dfgnn_graph_destroy(s->graph);
  dfgnn_context_destroy(s->ctx);
  shape_free(&s->shape);
}

static void set_problem(session *s, int op, int dtype, int width) {
  dfgnn_problem problem = DFGNN_PROBLEM_INIT;
  problem.op = (dfgnn_op)op;
  problem.pass = DFGNN_PASS_BACKWARD;
  problem.dtype = (dfgnn_dtype)dtype;
  problem.dim = dims[width];
  problem.heads = heads[width];
  problem.deterministic = 0;
  ck_ok(dfgnn__problem_complete(&s->problem, &problem));
}

static int is_one_walk(const dfgnn_variant *v) {
  return !strcmp(v->family->backend, "cuda") &&
         (!strcmp(v->family->algorithm, "symmetric") ||
          !strcmp(v->family->algorithm, "red"));
}

/* Calls f with a plan of each variant that applies; returns the sum of what f
 * returns, which is the number of its checks. */
static int each_plan(session *s,
                     int (*f)(session *, const dfgnn_family *, dfgnn_plan *,
                              void *),
                     void *data) {
  int count = 0, met = 0;
  for (size_t i = 0; i < dfgnn__variant_count(); i++) {
    const dfgnn_variant *v = dfgnn__variant(i);
    dfgnn_setting setting = dfgnn__setting(s->graph, &s->problem);
    dfgnn_plan *plan;
    if (!is_one_walk(v) || dfgnn__variant_refusal(v, &setting) || met++ % few())
      continue;
    ck_ok(dfgnn_plan_create_forced(&plan, s->ctx, s->graph, &s->problem,
                                   v->name));
    count += f(s, v->family, plan, data);
    dfgnn_plan_destroy(plan);
  }
  return count;
}

static int matches_reference(session *s, const dfgnn_family *family,
                             dfgnn_plan *plan, void *harness) {
  double error = 0;
  (void)family;
  ck_assert_msg(dfgnn__harness_check(&error, harness, plan) == DFGNN_OK,
                "%s, %s %s, %d heads of %d: %s", dfgnn_plan_variant(plan),
                dfgnn_name(DFGNN_NAMES_OP, s->problem.op),
                dfgnn_name(DFGNN_NAMES_DTYPE, s->problem.dtype),
                (int)s->problem.heads, (int)s->problem.dim, dfgnn_last_error());
  return 1;
}

START_TEST(one_walk_matches_the_reference) {
  int checks[2] = {0};
  for (int wide = 0; wide < (quick() ? 1 : 2); wide++) {
    session s;
    open_session(&s, wide);
    for (int op = 0; op <= DFGNN_OP_GATV2; op += quick() ? 3 : 1)
      for (int dtype = 0; dtype <= DFGNN_BF16; dtype += quick() ? 2 : 1)
        for (int width = wide; width < WIDTHS; width += quick() ? 3 : 1) {
          dfgnn_harness *harness;
          set_problem(&s, op, dtype, width);
          ck_ok(dfgnn__harness_create(&harness, s.ctx, s.graph, &s.problem,
                                      shape_seed()));
          checks[wide] += each_plan(&s, matches_reference, harness);
          dfgnn__harness_destroy(harness);
        }
    close_session(&s);
    ck_assert_int_gt(checks[wide], 0);
  }
  printf("%d checks\n", checks[0] + checks[1]);
}
END_TEST

static int strided_matches(session *s, const dfgnn_family *family,
                           dfgnn_plan *plan, void *tensors) {
  double error = strided_error(tensors, s->ctx, plan);
  (void)family;
  ck_assert_msg(error <= 1, "%s, %s: %g times the bound: %s",
                dfgnn_plan_variant(plan),
                dfgnn_name(DFGNN_NAMES_DTYPE, s->problem.dtype), error,
                dfgnn_last_error());
  return 1;
}

START_TEST(strides_of_the_caller_are_followed) {
  /* Strides for 2 heads of 20 features: two with gaps, one whose features lie
   * apart. */
  static const dfgnn_strides strides[] = {
      {2 * 24 + 8, 24, 1}, {2 * 23 + 5, 23, 1}, {2 * 60 + 3, 60, 3}};
  session s;
  int checks = 0;
  open_session(&s, 0);
  for (int k = 0; k < 6; k++) {
    set_problem(&s, DFGNN_OP_GT, k / 3 ? DFGNN_BF16 : DFGNN_F32, WIDTHS - 1);
    strided *tensors =
        strided_make(s.ctx, &s.shape, &s.problem, &strides[k % 3], 7);
    ck_assert_msg(tensors != NULL, "%s", dfgnn_last_error());
    checks += each_plan(&s, strided_matches, tensors);
    strided_free(tensors, s.ctx);
  }
  ck_assert_int_gt(checks, 0);
  close_session(&s);
}
END_TEST

/* Poisons the gradients, executes, and returns the gradients. */
static char *run(session *s, dfgnn_plan *plan, dfgnn_harness *harness,
                 size_t bytes) {
  const dfgnn_args *args = dfgnn__harness_args(harness);
  void *const grads[] = {args->grad_query, args->grad_key, args->grad_value};
  char *host = malloc(3 * bytes);
  void *workspace;
  (void)s;
  ck_ok(dfgnn__harness_workspace(&workspace, harness, plan));
  for (int k = 0; k < 3; k++)
    fill_device(grads[k], 0xff, bytes);
  ck_ok(dfgnn_execute(plan, args, workspace, NULL));
  for (int k = 0; k < 3; k++)
    copy_memory(host + (size_t)k * bytes, grads[k], bytes);
  return host;
}

static int repeats_its_bits(session *s, const dfgnn_family *family,
                            dfgnn_plan *plan, void *harness) {
  size_t bytes = (size_t)(NODES * s->problem.heads * s->problem.dim) *
                 dfgnn_dtype_size(s->problem.dtype);
  if (!family->deterministic)
    return 0;
  char *first = run(s, plan, harness, bytes);
  char *again = run(s, plan, harness, bytes);
  ck_assert_msg(!memcmp(first, again, 3 * bytes),
                "%s: a second run gives other bits", dfgnn_plan_variant(plan));
  free(first);
  free(again);
  return 1;
}

START_TEST(a_deterministic_variant_repeats_its_bits) {
  session s;
  open_session(&s, 0);
  for (int width = 0; width < 3; width++) {
    dfgnn_harness *harness;
    set_problem(&s, DFGNN_OP_GT, DFGNN_F32, width);
    ck_ok(dfgnn__harness_create(&harness, s.ctx, s.graph, &s.problem, 7));
    int checks = each_plan(&s, repeats_its_bits, harness);
    ck_assert(checks > 0 || few() > 1); /* a sample may have none */
    dfgnn__harness_destroy(harness);
  }
  close_session(&s);
}
END_TEST

static void refuses(session *s, const char *name) {
  dfgnn_graph *graph;
  dfgnn_plan *plan = NULL;
  ck_ok(dfgnn_graph_create_csr(&graph, s->ctx, &s->shape.csr, NULL));
  ck_fails(dfgnn_plan_create_forced(&plan, s->ctx, graph, &s->problem, name),
           DFGNN_ERROR_UNSUPPORTED, "not its transpose");
  ck_ok(dfgnn_plan_create(&plan, s->ctx, graph, &s->problem));
  dfgnn_plan_destroy(plan);
  dfgnn_graph_destroy(graph);
}

START_TEST(other_graphs_are_refused_with_the_reason) {
  static const char name[] = "cuda.attention.bwd.symmetric/"
                             "lanes=32,unroll=1,rows=1,span=once,heads=grid";
  session s;
  open_session(&s, 0);
  set_problem(&s, DFGNN_OP_GT, DFGNN_F32, 0);
  int32_t *indices = (int32_t *)s.shape.csr.indices;
  const int32_t *offsets = s.shape.csr.offsets;
  int32_t last = (int32_t)s.shape.csr.edges - 1, kept = indices[last];
  ck_assert_int_gt(kept, 0);
  indices[last] = kept - 1; /* one edge leads elsewhere */
  refuses(&s, name);
  indices[last] = kept;
  ck_assert_int_gt(offsets[2] - offsets[1], 2);
  int32_t swap = indices[offsets[1]]; /* the same edges, one row not in order */
  indices[offsets[1]] = indices[offsets[1] + 1];
  indices[offsets[1] + 1] = swap;
  refuses(&s, name);
  close_session(&s);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("gpu_symmetric");
  TCase *tests = tcase_create("symmetric");
  tcase_set_timeout(tests, 0);
  tcase_add_test(tests, one_walk_matches_the_reference);
  tcase_add_test(tests, strides_of_the_caller_are_followed);
  tcase_add_test(tests, a_deterministic_variant_repeats_its_bits);
  tcase_add_test(tests, other_graphs_are_refused_with_the_reason);
  suite_add_tcase(suite, tests);
  return run_on_gpu(suite);
}
