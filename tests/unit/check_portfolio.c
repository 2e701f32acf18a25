/* check_portfolio.c - the members, the default and the ranking of a problem */
#include "tests/unit/fixture.h"

#include <math.h>

#include "lib/operator.h"
#include "select/portfolio.h"
#include "select/portfolio_table.h"

static const dfgnn_device_info devices[] = {
    {.backend = "cpu",
     .arch = "x86-64",
     .units = 8,
     .cache_bytes = 32 << 20,
     .shared_bytes = 1 << 20},
    {.backend = "cuda",
     .arch = "sm_90",
     .units = 132,
     .cache_bytes = 50 << 20,
     .memory_bytes = (int64_t)1 << 37,
     .shared_bytes = 227 << 10},
};
enum { DEVICES = sizeof devices / sizeof *devices };

static dfgnn_signature graph_of(int64_t nodes, int64_t edges, int64_t longest,
                                int64_t graphs) {
  const double mean = (double)edges / (double)nodes;
  return (dfgnn_signature){.struct_size = sizeof(dfgnn_signature),
                           .destinations = nodes,
                           .sources = nodes,
                           .edges = edges,
                           .max_degree = longest,
                           .mean_degree = mean,
                           .p50_degree = (int64_t)mean,
                           .p90_degree = (int64_t)mean,
                           .p99_degree = longest,
                           .degree_cv = (double)longest / mean / 4,
                           .max_source_degree = longest,
                           .p50_source_degree = (int64_t)mean,
                           .p99_source_degree = longest,
                           .reuse = 1,
                           .graphs = graphs,
                           .largest_graph = nodes / graphs,
                           .density = 0.3,
                           .fingerprint = 1};
}

static dfgnn_matrix matrix_of(const dfgnn_signature *s) {
  return (dfgnn_matrix){.destinations = s->destinations,
                        .sources = s->sources,
                        .edges = s->edges,
                        .max_degree = s->max_degree};
}

/* The setting of a problem on a graph, until the end of the block. */
#define SETTING(p, s, on)                                                      \
  ((dfgnn_setting){.problem = &(p),                                            \
                   .matrix = (dfgnn_matrix[]){matrix_of(s)},                   \
                   .signature = (s),                                           \
                   .device = (on)})

/* One edge, a small graph, a batch, a super node, a large graph. */
enum { GRAPHS = 5 };
static void graphs(dfgnn_signature to[GRAPHS]) {
  to[0] = graph_of(1, 1, 1, 1);
  to[1] = graph_of(2708, 10556, 168, 1);
  to[2] = graph_of(256 * 24, 256 * 600, 30, 256);
  to[3] = graph_of(10000, 1000000, 9000, 1);
  to[4] = graph_of(2000000, 60000000, 12000, 1);
}

static int any_variant_runs(const dfgnn_setting *setting) {
  for (size_t i = 0; i < dfgnn__variant_count(); i++)
    if (!dfgnn__variant_refusal(dfgnn__variant(i), setting))
      return 1;
  return 0;
}

static int check_members(const dfgnn_setting *setting) {
  const dfgnn_variant *member[DFGNN_PORTFOLIO_MOST];
  const char *because = NULL;
  const int count =
      dfgnn__portfolio(member, DFGNN_PORTFOLIO_MOST, setting, NULL);
  ck_assert_msg((count > 0) == any_variant_runs(setting), "%s %s %s on %s: %d",
                dfgnn_name(DFGNN_NAMES_OP, setting->problem->op),
                dfgnn_name(DFGNN_NAMES_PASS, setting->problem->pass),
                dfgnn_name(DFGNN_NAMES_DTYPE, setting->problem->dtype),
                setting->device->backend, count);
  for (int i = 0; i < count; i++) {
    ck_assert_ptr_null(dfgnn__variant_refusal(member[i], setting));
    for (int k = 0; k < i; k++)
      ck_assert_ptr_ne(member[i], member[k]);
  }
  if (!count)
    return 0;
  ck_assert_ptr_eq(dfgnn__portfolio_default(setting, NULL, &because),
                   member[0]);
  ck_assert_str_ne(because, "");
  double log_ratio[DFGNN_PORTFOLIO_MOST];
  const int ranked = dfgnn__portfolio_rank(log_ratio, member, count, setting);
  for (int i = 0; ranked && i < count; i++)
    ck_assert(log_ratio[i] >= 0 && log_ratio[i] < 10);
  return 1;
}

TEST(every_problem_that_a_variant_runs_has_members) {
  dfgnn_signature graph[GRAPHS];
  int checked = 0;
  graphs(graph);
  for (int d = 0; d < DEVICES; d++)
    for (int op = 0; op < DFGNN_OP_COUNT; op++)
      for (int pass = 0; pass < DFGNN_PASS_COUNT; pass++)
        for (int dtype = 0; dtype < DFGNN_DTYPE_COUNT; dtype++)
          for (int g = 0; g < GRAPHS; g++)
            for (int edge = 0; edge < 2; edge++) {
              dfgnn_problem problem =
                  PROBLEM(.op = (dfgnn_op)op, .pass = (dfgnn_pass)pass,
                          .dtype = (dfgnn_dtype)dtype, .heads = 1 + g,
                          .dim = 16 << g, .edge_dim = 11 * edge);
              if (!dfgnn__operator(problem.op, problem.pass))
                continue;
              const dfgnn_setting setting =
                  SETTING(problem, &graph[g], &devices[d]);
              checked += check_members(&setting);
            }
  ck_assert_int_ge(checked,
                   DEVICES * DFGNN_OP_COUNT * DFGNN_DTYPE_COUNT * GRAPHS);
}

/* A cell whose width few variants serve must not serve widths that many do. */
TEST(sums_of_any_whole_vectors_have_several_members) {
  if (!dfgnn__variant_find("cuda.spmm.fwd.row/lanes=32,vectors=1,unroll=4,"
                           "rows=1,span=once,order=natural"))
    return; /* built without CUDA */
  dfgnn_signature graph = graph_of(10000, 1000000, 9000, 1);
  const dfgnn_variant *member[DFGNN_PORTFOLIO_MOST];
  static const dfgnn_dtype dtypes[] = {DFGNN_F32, DFGNN_F16, DFGNN_BF16};
  for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
    for (int dim = 32; dim <= 512; dim += 8) {
      dfgnn_problem problem =
          PROBLEM(.op = DFGNN_OP_SPMM_SUM, .dtype = dtypes[i], .dim = dim);
      const dfgnn_setting setting = SETTING(problem, &graph, &devices[1]);
      const int count =
          dfgnn__portfolio(member, DFGNN_PORTFOLIO_MOST, &setting, NULL);
      ck_assert_msg(count >= 8, "%s, %d features: %d members",
                    dfgnn_name(DFGNN_NAMES_DTYPE, problem.dtype), dim, count);
    }
}

TEST(a_problem_that_no_cell_was_measured_for_has_members_of_two) {
  dfgnn_signature graph = graph_of(10000, 1000000, 9000, 1);
  const dfgnn_variant *member[DFGNN_PORTFOLIO_MOST];
  double unlike, log_ratio[DFGNN_PORTFOLIO_MOST];
  for (int dim = 128; dim <= 160; dim += 32) { /* gt128 is a cell, gt160 none */
    dfgnn_problem problem = PROBLEM(.dim = dim);
    const dfgnn_setting setting = SETTING(problem, &graph, &devices[1]);
    const dfgnn_portfolios *all = dfgnn__portfolios();
    dfgnn_cell *first = dfgnn__portfolios_cell(&unlike, all, &setting, NULL);
    dfgnn_cell *second = dfgnn__portfolios_cell(&unlike, all, &setting, first);
    ck_assert_ptr_ne(first, second);
    int count = dfgnn__portfolio(member, DFGNN_PORTFOLIO_MOST, &setting, NULL);
    int missing = 0;
    for (int m = 0; m < second->members; m++) {
      const dfgnn_variant *v =
          dfgnn__member_variant(&second->member[m], &setting, NULL);
      int i = 0;
      while (i < count && member[i] != v)
        i++;
      missing += v && i == count;
    }
    if (dfgnn__variant_find("cuda.spmm.fwd.row/lanes=32,vectors=1,unroll=4,"
                            "rows=1,span=once,order=natural"))
      ck_assert(dim == 128 ? missing > 0 : missing == 0);
    if (dfgnn__portfolio_rank(log_ratio, member, count, &setting))
      for (int i = 0; i < count; i++)
        ck_assert(log_ratio[i] >= 0 && log_ratio[i] < 10);
  }
}

TEST(a_broken_default_is_replaced_by_another_member) {
  dfgnn_signature graph = graph_of(2708, 10556, 168, 1);
  dfgnn_problem problem = DFGNN_PROBLEM_INIT;
  const dfgnn_setting setting = SETTING(problem, &graph, &devices[0]);
  unsigned char *broken = zeros_of((int64_t)dfgnn__variant_count(), 1);
  const char *because;
  for (int k = 0; k < 3; k++) {
    const dfgnn_variant *v =
        dfgnn__portfolio_default(&setting, broken, &because);
    ck_assert_ptr_nonnull(v);
    ck_assert_int_eq(broken[dfgnn__variant_index(v)], 0);
    broken[dfgnn__variant_index(v)] = 1;
  }
}

/* ---- the text ------------------------------------------------------------ */

TEST(the_portfolios_of_the_library_are_read_without_complaint) {
  dfgnn_portfolios all;
  size_t size;
  const char *text = dfgnn__portfolios_text(&size);
  ck_ok(dfgnn__portfolios_read(&all, "portfolios", text, size));
  ck_assert_uint_gt(all.cells, 20);
  ck_assert_uint_gt(all.graphs, 20);
  ck_assert_str_eq(all.digest, dfgnn__portfolio_digest());
  dfgnn__portfolios_free(&all);
}

#define DEVICE "device cpu any units=1 cache=1000000\n"
#define CELL DEVICE "cell c gt forward heads=1 dim=8 dtype=f32\n"
#define MEMBER CELL "member attention.fwd.online prefetch=24\n"
#define SIGNATURE                                                              \
  "signature destinations sources edges max_degree mean_degree p50_degree "    \
  "p90_degree p99_degree degree_cv isolated reuse locality graphs "            \
  "largest_graph density max_source_degree p50_source_degree "                 \
  "p99_source_degree source_cv isolated_sources\n"

static const struct {
  const char *text, *message;
} wrong_texts[] = {
    {"nonsense\n", "line 1: 'nonsense' is no statement"},
    {"\n# a comment\ncell c gt forward\n", "line 3: expected a device"},
    {"device cpu any units=0 cache=1\n", "line 1: expected 'device"},
    {"device cpu any units=1 cache=99999999999999999999\n", "line 1"},
    {DEVICE "member attention.fwd.smmf\n", "line 2: expected a cell"},
    {DEVICE "compare edges/unit\n", "'edges/unit' is no quantity"},
    {DEVICE "cell c gtx forward\n", "'gtx forward' is no operator and pass"},
    {DEVICE "cell c gt forward dim=0\n", "found 'dim=0'"},
    {CELL "member attention.fwd.nothing\n",
     "line 3: the library has no family 'cpu.attention.fwd.nothing'"},
    {CELL "member attention.fwd.online prefetch=many\n", "'prefetch=many'"},
    {CELL "member attention.fwd.online prefetch=row/0\n", "'prefetch=row/0'"},
    {CELL "member attention.fwd.online prefetch=4294967297row\n",
     "'prefetch=4294967297row'"},
    {CELL "default 1\n", "one of 0 members"},
    {MEMBER "default 2\n", "line 4: expected the number of one of 1 members"},
    {MEMBER "default 1 if edges\n", "line 4: expected 'default MEMBER if"},
    {MEMBER "default 1 if edges > nan\n", "line 4: expected 'default"},
    {MEMBER "default 1 if edges > 5\n", "'c' has no default without"},
    {MEMBER "default 1\nmember attention.fwd.smmf\n", "before defaults"},
    {MEMBER "default 1\ngraphs cora\n", "graph 'cora' is not known"},
    {MEMBER "default 1\ntimes 1 5\n", "line 5: expected 'times MEMBER'"},
    {"signature edges\n", "found 1 columns, expected 20"},
    {SIGNATURE "graph cora 1 2\n", "line 2: found 2 numbers of a graph"},
    {DEVICE "unused\n", "line 2: expected 'unused FAMILY'"},
};

TEST_LOOP(what_is_wrong_in_a_text_is_named_with_its_line, 0,
          (int)(sizeof wrong_texts / sizeof *wrong_texts)) {
  dfgnn_portfolios all = {0};
  ck_fails(dfgnn__portfolios_read(&all, "portfolios", wrong_texts[_i].text,
                                  strlen(wrong_texts[_i].text)),
           DFGNN_ERROR_FORMAT, wrong_texts[_i].message);
  ck_assert_uint_eq(all.cells, 0);
}

TEST(a_nul_ends_no_text) {
  static const char text[] = DEVICE "# a\0b\n";
  dfgnn_portfolios all = {0};
  ck_fails(dfgnn__portfolios_read(&all, "portfolios", text, sizeof text - 1),
           DFGNN_ERROR_FORMAT, "line 2: found a NUL, expected text");
}

/* The package's own are not read then, and each test has its process. */
TEST(a_named_file_serves_in_their_place_or_no_context_is_made) {
  char path[] = "portfolios-XXXXXX";
  dfgnn_context *ctx = NULL;
  const int fd = mkstemp(path);
  dfgnn_options options = INIT(dfgnn_options, .device = "cpu", .store = "");
  ck_assert_int_eq(write(fd, "nonsense\n", 9), 9);
  close(fd);
  setenv("DFGNN_PORTFOLIOS", path, 1);
  ck_fails(dfgnn_context_create(&ctx, &options), DFGNN_ERROR_FORMAT,
           "DFGNN_PORTFOLIOS: ");
  ck_assert_ptr_nonnull(strstr(dfgnn_last_error(), "line 1: 'nonsense'"));
  ck_assert_ptr_null(ctx);
  unlink(path);
}

/* Each text that a byte was cut from, or changed in, is read or refused. */
TEST(damaged_texts_are_read_or_refused) {
  size_t size;
  const char *text = dfgnn__portfolios_text(&size);
  char *copy = malloc(size);
  int refused = 0;
  for (unsigned k = 0; k < 40; k++) {
    const size_t at = (size_t)k * 2654435761u % size;
    dfgnn_portfolios all;
    memcpy(copy, text, size);
    copy[at] = (char)(copy[at] + 1 + k % 3);
    const dfgnn_status status =
        dfgnn__portfolios_read(&all, "portfolios", copy, k % 2 ? size : at + 1);
    if (status)
      ck_assert_int_eq(status, DFGNN_ERROR_FORMAT);
    else
      dfgnn__portfolios_free(&all);
    refused += status != DFGNN_OK;
  }
  free(copy);
  ck_assert_int_gt(refused, 10);
}

/* ---- members and conditions ---------------------------------------------- */

static dfgnn_portfolios read_text(const char *text) {
  dfgnn_portfolios all;
  ck_ok(dfgnn__portfolios_read(&all, "text", text, strlen(text)));
  return all;
}

TEST(lanes_follow_the_width_of_a_row) {
  if (!dfgnn__variant_find("cuda.attention.fwd.online/lanes=8,unroll=2,"
                           "warps=4,rows=1,span=once,order=natural,heads=grid,"
                           "norm=row"))
    return; /* built without CUDA */
  dfgnn_portfolios all = read_text(
      "device cuda any units=1 cache=1\n"
      "cell c gt forward heads=1 dim=128 dtype=f32\n"
      "member attention.fwd.online lanes=row/2 unroll=2 warps=4 rows=1 "
      "span=once order=natural heads=grid norm=row\n"
      "default 1\n");
  static const struct {
    int64_t dim;
    const char *lanes;
  } rows[] = {{128, "/lanes=16,"}, {64, "/lanes=8,"}, {32, "/lanes=4,"}};
  dfgnn_signature graph = graph_of(2708, 10556, 168, 1);
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    dfgnn_problem problem = PROBLEM(.dim = rows[i].dim);
    const dfgnn_setting setting = SETTING(problem, &graph, &devices[1]);
    const dfgnn_variant *v =
        dfgnn__member_variant(&all.cell[0]->member[0], &setting, NULL);
    ck_assert_ptr_nonnull(v);
    ck_assert_msg(strstr(v->name, rows[i].lanes) != NULL, "%s", v->name);
  }
  dfgnn__portfolios_free(&all);
}

/* It was measured where rows are longer than its items; where none is, other
 * items would run, and take many times as long as its times say. */
TEST(a_member_that_does_not_run_has_no_substitute) {
  dfgnn_portfolios all =
      read_text(SIGNATURE "graph hub 3000 3000 90000 1500 30 20 40 90 1 0 1 0 "
                          "1 3000 .01 1500 20 90 "
                          "1 0\n"
                          "device cuda sm_90 units=132 cache=1\n"
                          "compare max_degree\n"
                          "cell c gt forward heads=1 dim=64 dtype=f32\n"
                          "member attention.fwd.split edges=256\n"
                          "member attention.fwd.unfused\n"
                          "default 2\n"
                          "graphs hub\n"
                          "times 1 0\n"
                          "times 2 40\n");
  dfgnn_problem problem = PROBLEM(.dim = 64);
  for (int hub = 0; hub < 2; hub++) {
    dfgnn_signature graph = graph_of(3000, 90000, hub ? 2000 : 200, 1);
    const dfgnn_setting setting = SETTING(problem, &graph, &devices[1]);
    const dfgnn_variant *v =
        dfgnn__member_variant(&all.cell[0]->member[0], &setting, NULL);
    ck_assert_int_eq(v != NULL, hub);
    ck_assert(!v || strstr(v->name, "edges=256"));
    ck_assert_ptr_nonnull(
        dfgnn__member_variant(&all.cell[0]->member[1], &setting, NULL));
  }
  dfgnn__portfolios_free(&all);
}

/* A cell that was measured in parts has members with the time of a slow one on
 * graphs that they do not run on; the variant that would run there in their
 * place is another member. */
TEST(each_member_is_a_variant_of_its_own_where_it_was_best) {
  const dfgnn_portfolios *all = dfgnn__portfolios();
  const dfgnn_options options =
      INIT(dfgnn_options, .device = "cpu", .store = "");
  dfgnn_device_info here = DFGNN_DEVICE_INFO_INIT;
  dfgnn_context *ctx;
  int checked = 0;
  ck_ok(dfgnn_context_create(&ctx, &options));
  ck_ok(dfgnn_context_device(&here, ctx));
  dfgnn_context_destroy(ctx);
  for (size_t i = 0; i < all->cells; i++) {
    const dfgnn_cell *c = all->cell[i];
    if (!strcmp(c->device->info.backend, "cpu") &&
        strcmp(c->device->info.arch, here.arch))
      continue; /* this processor has not all of their instructions */
    const dfgnn_device_info *device =
        &devices[!strcmp(c->device->info.backend, "cuda")];
    const dfgnn_variant *found[DFGNN_CELL_MEMBERS];
    for (int m = 0; m < c->members; m++) {
      const dfgnn_member *member = &c->member[m];
      found[m] = NULL;
      if (!member->family || !member->measured)
        continue;
      const dfgnn_setting setting =
          SETTING(c->problem, member->measured, device);
      found[m] = dfgnn__member_variant(member, &setting, NULL);
      ck_assert_msg(found[m] != NULL, "member %d of %s runs nowhere", m + 1,
                    c->name);
      for (int k = 0; k < m; k++)
        ck_assert_msg(found[k] != found[m], "members %d and %d of %s are %s",
                      k + 1, m + 1, c->name, found[m]->name);
      checked++;
    }
  }
  ck_assert_int_gt(checked, 100);
}

TEST(a_cell_that_knows_graphs_as_large_serves_a_large_graph) {
  dfgnn_portfolios all = read_text(
      SIGNATURE
      "graph small 3000 3000 90000 1500 30 20 40 90 1 0 1 0 1 3000 .01 1500 20 "
      "90 1 0\n"
      "graph large 300000 300000 9000000 1500 30 20 40 90 1 0 1 0 1 300000 .01 "
      "1500 20 90 1 0\n"
      "device cuda sm_90 units=132 cache=1\n"
      "compare max_degree\n"
      "cell own gt forward heads=1 dim=64 dtype=f32\n"
      "member attention.fwd.unfused\n"
      "default 1\n"
      "graphs small\n"
      "times 1 0\n"
      "cell other gat forward heads=1 dim=64 dtype=f32\n"
      "member attention.fwd.unfused\n"
      "default 1\n"
      "graphs large\n"
      "times 1 0\n");
  static const struct {
    int64_t edges;
    const char *cell;
  } graphs[] = {{80000, "own"}, {200000, "own"}, {9000000, "other"}};
  for (size_t i = 0; i < sizeof graphs / sizeof *graphs; i++) {
    dfgnn_problem problem = PROBLEM(.dim = 64);
    dfgnn_signature graph = graph_of(3000, graphs[i].edges, 1500, 1);
    const dfgnn_setting setting = SETTING(problem, &graph, &devices[1]);
    double unlike;
    const dfgnn_cell *cell =
        dfgnn__portfolios_cell(&unlike, &all, &setting, NULL);
    ck_assert_str_eq(cell->name, graphs[i].cell);
    ck_assert(i == 2 ? unlike > 0 : unlike == 0);
  }
  dfgnn__portfolios_free(&all);
}

TEST(quantities_are_products_and_quotients) {
  dfgnn_signature graph = graph_of(1000, 6000, 60, 1);
  dfgnn_problem problem = PROBLEM(.heads = 2, .dim = 40, .dtype = DFGNN_BF16);
  const dfgnn_setting setting = SETTING(problem, &graph, &devices[1]);
  static const struct {
    const char *text;
    double value;
  } cases[] = {{"edges", 6000},
               {"max_degree*units/edges", 60 * 132 / 6000.0},
               {"row_bytes", 160},
               {"sources*row_bytes/cache", 160000.0 / (50 << 20)},
               {"edges/isolated", 0}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    dfgnn_quantity q;
    ck_assert_int_eq(dfgnn__quantity_parse(&q, cases[i].text), 1);
    ck_assert_double_eq_tol(dfgnn__quantity(&q, &setting), cases[i].value,
                            1e-9);
  }
  dfgnn_quantity q;
  ck_assert_int_eq(dfgnn__quantity_parse(&q, "edges//units"), 0);
  ck_assert_int_eq(dfgnn__quantity_parse(&q, ""), 0);
}

/* ---- ranking ------------------------------------------------------------- */

/* Twelve graphs: the first member is best where rows have up to 10 edges, the
 * second where they have more; the third runs where they have more alone. */
static dfgnn_portfolios two_kinds_of_graphs(void) {
  enum { KNOWN = 12 };
  char text[8192], names[256] = "graphs";
  char times[3][256] = {"times 1", "times 2", "times 3"};
  size_t used = (size_t)snprintf(text, sizeof text, "%s", SIGNATURE);
  for (int i = 0; i < KNOWN; i++) {
    const int degree = i < KNOWN / 2 ? 2 + i : 20 + i;
    const int is_long = i >= KNOWN / 2;
    used += (size_t)snprintf(
        text + used, sizeof text - used,
        "graph g%d 1000 1000 %d %d %d 5 5 5 .5 0 1 1 1 1000 .01 5 5 5 .5 0\n",
        i, 1000 * degree, 2 * degree, degree);
    snprintf(names + strlen(names), sizeof names - strlen(names), " g%d", i);
    for (int m = 0; m < 3; m++)
      snprintf(times[m] + strlen(times[m]), sizeof *times - strlen(times[m]),
               m == 0    ? is_long ? " 60" : " 0"
               : m == 1  ? is_long ? " 0" : " 90"
               : is_long ? " 30"
                         : " -");
  }
  snprintf(text + used, sizeof text - used,
           DEVICE "compare mean_degree degree_cv\n"
                  "cell c gt forward heads=1 dim=64 dtype=f32\n"
                  "member attention.fwd.unfused\n"
                  "member attention.fwd.smmf\n"
                  "member attention.fwd.online prefetch=24\n"
                  "default 1\n%s\n%s\n%s\n%s\n",
           names, times[0], times[1], times[2]);
  return read_text(text);
}

TEST(members_are_ranked_by_their_times_on_graphs_like_this) {
  dfgnn_portfolios all = two_kinds_of_graphs();
  dfgnn_problem problem = DFGNN_PROBLEM_INIT;
  double of_short[DFGNN_CELL_MEMBERS], of_long[DFGNN_CELL_MEMBERS];
  dfgnn_signature graph[2] = {graph_of(1000, 4500, 9, 1),
                              graph_of(1000, 40000, 80, 1)};
  for (int g = 0; g < 2; g++) {
    const dfgnn_setting setting = SETTING(problem, &graph[g], &devices[0]);
    ck_assert_int_eq(dfgnn__cell_predict(g ? of_long : of_short, all.cell[0],
                                         &all, &setting, -1),
                     1);
  }
  ck_assert_double_lt(of_short[0], of_short[1]);
  ck_assert_double_eq_tol(of_long[0], .6, .1);
  ck_assert_double_eq_tol(of_long[1], 0, .1);
  /* where it ran it took 1.35 times as long, and only there it is known */
  ck_assert_double_eq_tol(of_long[2], .3, 1e-9);
  dfgnn__portfolios_free(&all);
}

TEST(a_graph_that_is_left_out_has_no_part_in_its_prediction) {
  dfgnn_portfolios all = two_kinds_of_graphs();
  double with[DFGNN_CELL_MEMBERS], without[DFGNN_CELL_MEMBERS];
  dfgnn_problem problem = DFGNN_PROBLEM_INIT;
  /* the only graph on which the third is the slowest */
  ((int16_t *)all.cell[0]->member[2].time)[11] = 200;
  const dfgnn_setting setting =
      SETTING(problem, &all.graph[11].signature, &devices[0]);
  ck_assert_int_eq(dfgnn__cell_predict(with, all.cell[0], &all, &setting, -1),
                   1);
  ck_assert_int_eq(
      dfgnn__cell_predict(without, all.cell[0], &all, &setting, 11), 1);
  ck_assert_double_gt(with[2], 1.9);
  ck_assert_double_eq_tol(without[2], .3, 1e-9);
  dfgnn__portfolios_free(&all);
}

/* Choices by trees that have not seen the graph, over all surveyed cells,
 * one graph in 32. */
TEST(ranking_unseen_graphs_is_good) {
  const dfgnn_portfolios *all = dfgnn__portfolios();
  double sum = 0;
  int count = 0;
  for (size_t i = 0; i < all->cells; i++) {
    dfgnn_cell *c = all->cell[i];
    for (int g = (int)(i % 32); g < c->graphs; g += 32) {
      double predicted[DFGNN_CELL_MEMBERS];
      const dfgnn_setting setting = SETTING(
          c->problem, &all->graph[c->graph[g]].signature, &c->device->info);
      ck_assert_int_eq(
          dfgnn__cell_predict(predicted, c, all, &setting, c->graph[g]), 1);
      int best = -1;
      for (int m = 0; m < c->members; m++)
        if (c->member[m].time[g] != DFGNN_TIME_NONE &&
            (best < 0 || predicted[m] < predicted[best]))
          best = m;
      ck_assert_int_ge(best, 0);
      sum += c->member[best].time[g] / 100.0;
      count++;
    }
  }
  ck_assert_int_ge(count, 20);
  ck_assert_double_lt(exp(sum / count), 1.10);
}

TEST_MAIN("portfolio", .timeout = 300)
