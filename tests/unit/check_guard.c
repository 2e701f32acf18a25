/* check_guard.c - CPU kernels touch no byte beyond any array, nor between the
 * features of a strided one
 *
 * Every array that a call gets, of the graph and its tensors, ends where a page
 * begins that nobody may touch, and in a second round begins behind one.  A
 * kernel that reads or writes beyond by a byte ends the process, and the last
 * line of the log names its variant.  A strided tensor ends with its last
 * number, as a slice of columns of another's memory does. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "tests/unit/fixture.h"

#include <signal.h>
#include <sys/mman.h>

#include "dfgnn_tune.h"
#include "lib/operator.h"

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
  offsets[0] = 0;
  for (int i = 0; i < ROWS; i++)
    offsets[i + 1] = offsets[i] + degree[i];
  for (int e = 0; e < EDGES; e++)
    indices[e] = (e * 3 + 4) % COLUMNS;
  const dfgnn_csr csr = csr32(ROWS, COLUMNS, offsets, indices);
  return graph_on(ctx, &csr);
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

enum { OF_ANOTHER = 0x5a }; /* bytes between the features of a tensor */

/* The strides of a tensor in turn: the gap after a head fills vectors of 4, 8
 * or 16 numbers, and the gap after a node is odd. */
static dfgnn_strides strides_of(const dfgnn_problem *p, size_t turn) {
  static const int64_t vectors[] = {4, 8, 16, 1};
  const int64_t step = vectors[turn % 4];
  const int64_t head = (p->dim + step - 1) / step * step;
  if (p->layout == DFGNN_LAYOUT_NDH)
    return (dfgnn_strides){p->dim * (p->heads + 1), 1, p->heads + 1};
  return (dfgnn_strides){p->heads * head + (turn % 3 ? 0 : 5), head, 1};
}

/* Marks in `inside`, of the bytes of a strided tensor, those of its numbers;
 * returns its last number's end.  inside may be NULL. */
static size_t inside_of(unsigned char *inside, const dfgnn_problem *p,
                        int64_t nodes, const dfgnn_strides *s, size_t size) {
  size_t end = 0;
  for (int64_t i = 0; i < nodes * p->heads * p->dim; i++) {
    const int64_t head = i / p->dim % p->heads, d = i % p->dim;
    const size_t at = (size_t)(i / (p->heads * p->dim) * s->node +
                               head * s->head + d * s->feature) *
                      size;
    if (inside)
      memset(inside + at, 1, size);
    end = at + size > end ? at + size : end;
  }
  return end;
}

typedef struct gap {
  const char *tensor;
  const unsigned char *data;
  unsigned char *inside;
  size_t bytes;
} gap;

static void gaps_are_untouched(const gap *g, const char *variant) {
  for (size_t i = 0; i < g->bytes; i++)
    ck_assert_msg(g->inside[i] || g->data[i] == OF_ANOTHER,
                  "%s: byte %zu of %s is between features, and was written",
                  variant, i, g->tensor);
}

/* Memory for a strided tensor, whose gaps are another's. */
static void *strided(gap *g, dfgnn_args *args, const dfgnn_tensor *t,
                     const dfgnn_problem *p, size_t turn) {
  const size_t size = dfgnn__tensor_element_size(t, p);
  const int64_t nodes = t->shape & DFGNN_DIM_N ? ROWS : COLUMNS;
  const dfgnn_strides s = strides_of(p, turn);
  *(dfgnn_strides *)((char *)args + t->strides) = s;
  g->tensor = t->name;
  g->bytes = inside_of(NULL, p, nodes, &s, size);
  g->inside = calloc(g->bytes, 1);
  ck_assert_ptr_nonnull(g->inside);
  inside_of(g->inside, p, nodes, &s, size);
  unsigned char *data = guarded(g->bytes, size);
  g->data = data;
  fill(data, t, p, (int64_t)(g->bytes / size));
  for (size_t i = 0; i < g->bytes; i++)
    if (!g->inside[i])
      data[i] = OF_ANOTHER;
  return data;
}

static void mark_rows_without_edges(void *data, const dfgnn_problem *p) {
  const int64_t width = p->heads * p->dim;
  for (int64_t k = 0; k < width; k++)
    ((int32_t *)data)[width + k] = ((int32_t *)data)[5 * width + k] = -1;
}

/* Runs a variant; 0 if it cannot run the problem.  turn: of strides; -1: its
 * tensors have none. */
static int run(dfgnn_context *ctx, dfgnn_graph *graph, const dfgnn_problem *p,
               const char *variant, int turn) {
  const dfgnn_operator *op = dfgnn__operator(p->op, p->pass);
  const int before = array_count;
  gap gaps[DFGNN_MAX_TENSORS];
  int gap_count = 0;
  dfgnn_args args = DFGNN_ARGS_INIT;
  dfgnn_plan *plan = NULL;
  if (dfgnn_plan_create_forced(&plan, ctx, graph, p, variant))
    return 0;
  for (const dfgnn_tensor *t = op->tensors; t->name; t++) {
    if (!dfgnn__tensor_used(t, p))
      continue;
    if (turn >= 0 && t->strides) {
      *dfgnn__tensor_slot(t, &args) =
          strided(&gaps[gap_count++], &args, t, p, (size_t)turn);
      continue;
    }
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
  args.dropout = p->dropout ? 0.3 : 0;
  const size_t bytes = dfgnn_plan_workspace(plan);
  printf("%s %s %s %s, %lld heads x %lld%s\n", variant,
         dfgnn_name(DFGNN_NAMES_OP, p->op),
         dfgnn_name(DFGNN_NAMES_PASS, p->pass),
         dfgnn_name(DFGNN_NAMES_DTYPE, p->dtype), (long long)p->heads,
         (long long)p->dim, turn >= 0 ? ", strided" : "");
  fflush(stdout);
  ck_ok(dfgnn_execute(plan, &args, bytes ? guarded(bytes, 64) : NULL, NULL));
  while (gap_count > 0) {
    gaps_are_untouched(&gaps[--gap_count], variant);
    free(gaps[gap_count].inside);
  }
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
static void run_variants(dfgnn_op op, dfgnn_pass pass, int strides) {
  static const struct {
    int64_t heads, dim;
  } widths[] = {{1, 1},  {3, 3},  {1, 17},  {2, 20}, {1, 64}, {8, 7},
                {5, 13}, {2, 33}, {1, 100}, {8, 8},  {1, 7}};
  enum { WIDTHS = sizeof widths / sizeof *widths };
  dfgnn_context *ctx = cpu_context("");
  dfgnn_graph *graph = make_graph(ctx);
  const char *wanted = getenv("DFGNN_TEST_FAMILY");
  int runs = 0, has_variants = 0;
  size_t turn = 0;
  for (size_t i = 0; i < dfgnn_variant_count(); i++) {
    dfgnn_variant_info info = DFGNN_VARIANT_INFO_INIT;
    ck_ok(dfgnn_variant_get(&info, i));
    if (strcmp(info.backend, "cpu") || !(info.ops >> op & 1) ||
        !(info.passes >> pass & 1) || (wanted && !strstr(info.name, wanted)))
      continue;
    has_variants = 1;
    for (int k = 0; k < 4; k++, turn++) {
      dfgnn_problem p =
          PROBLEM(.op = op, .pass = pass, .heads = widths[turn % WIDTHS].heads,
                  .dim = widths[turn % WIDTHS].dim,
                  .dtype = (dfgnn_dtype)(turn / WIDTHS % DFGNN_DTYPE_COUNT),
                  .layout = turn % 3 == 2 ? DFGNN_LAYOUT_NDH : DFGNN_LAYOUT_NHD,
                  .max_workspace = -1);
      add_extras(&p, k);
      runs += run(ctx, graph, &p, info.name, strides ? (int)turn : -1);
    }
  }
  done(ctx);
  forget(0);
  ck_assert_int_gt(runs, wanted || !has_variants ? -1 : 3);
}

#define TAKE(i)                                                                \
  const dfgnn_op op = (dfgnn_op)((i) / (int)DFGNN_PASS_COUNT);                 \
  const dfgnn_pass pass = (dfgnn_pass)((i) % (int)DFGNN_PASS_COUNT);           \
  if (!dfgnn__operator(op, pass))                                              \
  return
enum { TESTS = (int)DFGNN_OP_COUNT * (int)DFGNN_PASS_COUNT };

START_TEST(no_kernel_touches_what_follows_an_array) {
  TAKE(_i);
  at_end = 1;
  run_variants(op, pass, 0);
}

START_TEST(no_kernel_touches_what_precedes_an_array) {
  TAKE(_i);
  at_end = 0;
  run_variants(op, pass, 0);
}

START_TEST(no_kernel_touches_what_is_between_features) {
  TAKE(_i);
  at_end = 1;
  run_variants(op, pass, 1);
}

/* Sanitizers have a handler of their own, which would end it by an exit. */
START_TEST(a_byte_beyond_ends_the_process) {
  signal(SIGSEGV, SIG_DFL);
  at_end = 1;
  volatile char *bytes = guarded(13, 1);
  bytes[12] = 1;
  bytes[13] = 1;
}

START_TEST(a_byte_before_ends_the_process) {
  signal(SIGSEGV, SIG_DFL);
  volatile char *bytes = guarded(13, 1);
  bytes[0] = bytes[-1];
}

int main(void) {
  Suite *suite = suite_create("guard");
  TCase *tests = tcase_create("cpu");
  tcase_set_timeout(tests, 60);
  tcase_add_loop_test(tests, no_kernel_touches_what_follows_an_array, 0, TESTS);
  tcase_add_loop_test(tests, no_kernel_touches_what_precedes_an_array, 0,
                      TESTS);
  tcase_add_loop_test(tests, no_kernel_touches_what_is_between_features, 0,
                      TESTS);
  tcase_add_test_raise_signal(tests, a_byte_beyond_ends_the_process, SIGSEGV);
  tcase_add_test_raise_signal(tests, a_byte_before_ends_the_process, SIGSEGV);
  suite_add_tcase(suite, tests);
  return run_tests(suite);
}
