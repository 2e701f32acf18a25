/* check_served.c - no problem that was served is lost
 *
 * tests/data/served.txt is a table of problems that the registry served when it
 * was made.  A line has an operator, a pass, what the edges carry, and the
 * types that fare alike; then for each backend a digit of a shape, and a group
 * of digits of a graph.  Bits of a digit: 1 in the layout nhd, 2 in ndh, 4 with
 * deterministic variants alone, 8 without a workspace.  The reference serves
 * nothing.
 *
 * To make it anew, once what is served has grown:
 *   REGENERATE=1 top_srcdir=.. tests/unit/check_served */
#include "tests/unit/fixture.h"

#include "lib/operator.h"
#include "lib/registry.h"

static const struct {
  int heads, dim;
} shapes[] = {{1, 1},   {1, 3},   {1, 32},  {1, 100}, {1, 128},
              {2, 64},  {3, 20},  {4, 48},  {8, 16},  {16, 32},
              {16, 64}, {8, 256}, {1, 512}, {1, 1500}};

/* Graphs as the registry sees them: one of mean degree 10, and a large one with
 * a super node, whose offsets have 64 bits. */
static const struct {
  int64_t nodes, edges, max_degree;
} graphs[] = {{10000, 100000, 700},
              {(int64_t)1 << 27, (int64_t)3 << 30, (int64_t)1 << 24}};

/* Features that edges carry, beside a message of their own. */
static const struct {
  const char *name;
  int bias, dropout, weights, accumulate;
} extras[] = {{.name = ""},
              {.name = "+bias", .bias = 1},
              {.name = "+dropout", .dropout = 1},
              {.name = "+bias+dropout", .bias = 1, .dropout = 1},
              {.name = "+weights", .weights = 1},
              {.name = "+bias+weights", .bias = 1, .weights = 1},
              {.name = "+dropout+weights", .dropout = 1, .weights = 1},
              {.name = "+accumulate", .accumulate = 1},
              {.name = "+bias+dropout+accumulate",
               .bias = 1,
               .dropout = 1,
               .accumulate = 1}};

static const struct {
  const char *name;
  int64_t edge_dim;
  dfgnn_edge_use use;
  dfgnn_message message;
} modes[] = {
    {.name = "plain"},
    {.name = "edge:1", .edge_dim = 1},
    {.name = "edge:11", .edge_dim = 11},
    {.name = "edge:64", .edge_dim = 64},
    {.name = "edge:300", .edge_dim = 300},
    {.name = "edge:11:keys", .edge_dim = 11, .use = DFGNN_EDGE_KEYS},
    {.name = "edge:11:values", .edge_dim = 11, .use = DFGNN_EDGE_VALUES},
    {.name = "projected", .edge_dim = DFGNN_EDGE_PROJECTED},
    {.name = "projected:keys",
     .edge_dim = DFGNN_EDGE_PROJECTED,
     .use = DFGNN_EDGE_KEYS},
    {.name = "projected:values",
     .edge_dim = DFGNN_EDGE_PROJECTED,
     .use = DFGNN_EDGE_VALUES},
    {.name = "relu:projected",
     .edge_dim = DFGNN_EDGE_PROJECTED,
     .message = DFGNN_MESSAGE_RELU},
    {.name = "relu:11", .edge_dim = 11, .message = DFGNN_MESSAGE_RELU},
    {.name = "relu:300", .edge_dim = 300, .message = DFGNN_MESSAGE_RELU},
    {.name = "gate", .message = DFGNN_MESSAGE_GATE},
    {.name = "gate:projected",
     .edge_dim = DFGNN_EDGE_PROJECTED,
     .message = DFGNN_MESSAGE_GATE},
    {.name = "gate:11", .edge_dim = 11, .message = DFGNN_MESSAGE_GATE},
    {.name = "gate-value:8",
     .edge_dim = 8,
     .message = DFGNN_MESSAGE_GATE_VALUE},
    {.name = "gate-value:300",
     .edge_dim = 300,
     .message = DFGNN_MESSAGE_GATE_VALUE}};

static const struct {
  const char *name;
  dfgnn_dtype dtype;
  dfgnn_math math;
} types[] = {{"f32", DFGNN_F32, DFGNN_MATH_F32},
             {"tf32", DFGNN_F32, DFGNN_MATH_TF32},
             {"f16", DFGNN_F16, DFGNN_MATH_F32},
             {"bf16", DFGNN_BF16, DFGNN_MATH_F32},
             {"f64", DFGNN_F64, DFGNN_MATH_F32}};

static const char *const backends[] = {"cpu", "cuda"};

#define COUNT(table) (sizeof(table) / sizeof *(table))
enum {
  GROUP = COUNT(shapes) + 1, /* of a graph, and the point or end behind it */
  DIGITS = COUNT(graphs) * GROUP,
  NAME = 80,
  ROWS = 4000,
  TYPES = COUNT(types),
  LINE = 400
};

/* A problem but for shape, layout and graph: a digit, as a number, for each. */
typedef struct row {
  char name[NAME]; /* operator, pass, what edges carry */
  char digits[TYPES][COUNT(backends)][DIGITS];
} row;

static row *table;
static size_t rows, served_bits;

static dfgnn_device_info device_of(const char *backend) {
  dfgnn_device_info d = DFGNN_DEVICE_INFO_INIT;
  snprintf(d.backend, sizeof d.backend, "%s", backend);
  if (strcmp(backend, "cuda"))
    return (d.units = 2), d;
  snprintf(d.arch, sizeof d.arch, "sm_90");
  d.units = 132;
  d.cache_bytes = 60 << 20;
  d.shared_bytes = 227 << 10;
  return d;
}

/* cuSPARSE serves where a machine has it, so it does not count. */
static int counts(const dfgnn_family *f) {
  return !f->reference && strcmp(f->algorithm, "cusparse");
}

/* Does any variant that may be chosen serve the problem?  The one that served
 * last is asked first. */
static int is_served(const dfgnn_setting *setting) {
  static size_t last;
  size_t count = dfgnn__variant_count();
  for (size_t k = 0; k < count; k++) {
    size_t i = (last + k) % count;
    const dfgnn_variant *v = dfgnn__variant(i);
    if (counts(v->family) && !dfgnn__variant_refusal(v, setting))
      return (last = i), 1;
  }
  return 0;
}

/* The digit of a problem on a graph and a backend. */
static int digit(dfgnn_problem problem, size_t g, const char *backend) {
  dfgnn_matrix matrix = {.destinations = graphs[g].nodes,
                         .sources = graphs[g].nodes,
                         .edges = graphs[g].edges,
                         .max_degree = graphs[g].max_degree,
                         .offsets64 = graphs[g].edges > INT32_MAX};
  dfgnn_signature signature = DFGNN_SIGNATURE_INIT;
  signature.destinations = signature.sources = graphs[g].nodes;
  signature.edges = graphs[g].edges;
  signature.max_degree = graphs[g].max_degree;
  signature.mean_degree = (double)graphs[g].edges / (double)graphs[g].nodes;
  signature.graphs = 1;
  signature.largest_graph = graphs[g].nodes;
  dfgnn_device_info device = device_of(backend);
  dfgnn_setting setting = {.problem = &problem,
                           .matrix = &matrix,
                           .signature = &signature,
                           .device = &device};
  int bits = is_served(&setting);
  problem.deterministic = 1;
  bits |= is_served(&setting) << 2;
  problem.deterministic = 0;
  problem.max_workspace = 0;
  bits |= is_served(&setting) << 3;
  problem.max_workspace = -1;
  problem.layout = DFGNN_LAYOUT_NDH;
  bits |= is_served(&setting) << 1;
  return bits;
}

/* Fills a row; 0 if the library has no such problem. */
static int fill(row *r, dfgnn_problem problem) {
  for (size_t t = 0; t < TYPES; t++)
    for (size_t s = 0; s < COUNT(shapes); s++) {
      dfgnn_problem complete;
      problem.dtype = types[t].dtype;
      problem.math = types[t].math;
      problem.heads = shapes[s].heads;
      problem.dim = shapes[s].dim;
      if (dfgnn__problem_complete(&complete, &problem))
        return 0;
      for (size_t b = 0; b < COUNT(backends); b++)
        for (size_t g = 0; g < COUNT(graphs); g++) {
          int d = digit(complete, g, backends[b]);
          r->digits[t][b][g * GROUP + s] = (char)d;
          served_bits += (size_t)__builtin_popcount((unsigned)d);
        }
    }
  return 1;
}

static void make_table(void) {
  table = calloc(ROWS, sizeof *table);
  for (int op = 0; op < DFGNN_OP_COUNT; op++)
    for (int pass = 0; pass < DFGNN_PASS_COUNT; pass++)
      for (size_t m = 0; m < COUNT(modes); m++)
        for (size_t e = 0; e < COUNT(extras); e++) {
          ck_assert_uint_lt(rows, ROWS);
          dfgnn_problem p = DFGNN_PROBLEM_INIT;
          p.op = (dfgnn_op)op;
          p.pass = (dfgnn_pass)pass;
          p.edge_dim = modes[m].edge_dim;
          p.edge_use = modes[m].use;
          p.message = modes[m].message;
          p.bias = extras[e].bias;
          p.dropout = extras[e].dropout;
          p.weights = extras[e].weights;
          p.accumulate = extras[e].accumulate;
          p.deterministic = 0;
          p.max_workspace = -1;
          if (!fill(&table[rows], p))
            continue;
          snprintf(table[rows].name, NAME, "%s %s %s%s",
                   dfgnn_name(DFGNN_NAMES_OP, p.op),
                   dfgnn_name(DFGNN_NAMES_PASS, p.pass), modes[m].name,
                   extras[e].name);
          rows++;
        }
}

/* ---- the file ------------------------------------------------------------ */

static const char *path(void) {
  static char name[1000];
  const char *top = getenv("top_srcdir");
  snprintf(name, sizeof name, "%s/tests/data/served.txt", top ? top : ".");
  return name;
}

static void write_digits(FILE *file, const char *digits) {
  for (size_t i = 0; i + 1 < DIGITS; i++)
    if (i % GROUP == GROUP - 1)
      fputc('.', file);
    else
      fprintf(file, "%x", (unsigned)digits[i]);
}

/* Types that fare alike share a line, and types that nothing serves have none.
 */
static void write_row(FILE *file, const row *r) {
  static const char nothing[sizeof r->digits[0]];
  for (size_t t = 0; t < TYPES; t++) {
    size_t first = 0;
    while (memcmp(r->digits[first], r->digits[t], sizeof r->digits[t]))
      first++;
    if (first < t || !memcmp(nothing, r->digits[t], sizeof nothing))
      continue;
    fprintf(file, "%s ", r->name);
    for (size_t u = t; u < TYPES; u++)
      if (!memcmp(r->digits[u], r->digits[t], sizeof r->digits[t]))
        fprintf(file, "%s%s", u > t ? "," : "", types[u].name);
    for (size_t b = 0; b < COUNT(backends); b++) {
      fputc(' ', file);
      write_digits(file, r->digits[t][b]);
    }
    fputc('\n', file);
  }
}

static void write_table(void) {
  FILE *file = fopen(path(), "w");
  ck_assert_msg(file != NULL, "cannot write %s", path());
  for (size_t i = 0; i < rows; i++)
    write_row(file, &table[i]);
  fclose(file);
}

/* Says what is lost of a problem and type; returns the bits that were served.
 */
static size_t compare(const row *r, size_t t, size_t b, const char *was,
                      int *lost) {
  size_t bits = 0;
  ck_assert_uint_eq(strlen(was), DIGITS - 1);
  for (size_t i = 0; i + 1 < DIGITS; i++) {
    if (i % GROUP == GROUP - 1)
      continue;
    char text[] = {was[i], 0};
    unsigned before = (unsigned)strtoul(text, NULL, 16);
    unsigned gone = before & ~(unsigned)r->digits[t][b][i];
    bits += (size_t)__builtin_popcount(before);
    if (gone && ++*lost <= 20)
      fprintf(stderr, "lost: %s %s %d x %d on %s, graph %zu:%s%s%s%s\n",
              r->name, types[t].name, shapes[i % GROUP].heads,
              shapes[i % GROUP].dim, backends[b], i / GROUP,
              gone & 1 ? " nhd" : "", gone & 2 ? " ndh" : "",
              gone & 4 ? " deterministic" : "",
              gone & 8 ? " without a workspace" : "");
  }
  return bits;
}

static const row *find(const char *name) {
  for (size_t i = 0; i < rows; i++)
    if (!strcmp(table[i].name, name))
      return &table[i];
  ck_abort_msg("%s names '%s', which no longer is a problem", path(), name);
}

static size_t compare_line(const char *line, int *lost) {
  char op[NAME], pass[NAME], edges[NAME], list[NAME], name[3 * NAME];
  char was[COUNT(backends)][LINE];
  size_t bits = 0;
  ck_assert_int_eq(sscanf(line, "%79s %79s %79s %79s %399s %399s", op, pass,
                          edges, list, was[0], was[1]),
                   6);
  snprintf(name, sizeof name, "%s %s %s", op, pass, edges);
  const row *r = find(name);
  for (char *type = strtok(list, ","); type; type = strtok(NULL, ",")) {
    size_t t = 0;
    while (t < TYPES && strcmp(types[t].name, type))
      t++;
    ck_assert_msg(t < TYPES, "%s has an unknown type, %s", path(), type);
    for (size_t b = 0; b < COUNT(backends); b++)
      bits += compare(r, t, b, was[b], lost);
  }
  return bits;
}

START_TEST(what_was_served_is_served) {
  char line[LINE];
  int lost = 0;
  size_t bits = 0;
  make_table();
  ck_assert_uint_gt(served_bits, 0);
  if (getenv("REGENERATE"))
    write_table();
  FILE *file = fopen(path(), "r");
  ck_assert_msg(file != NULL, "cannot read %s", path());
  while (fgets(line, sizeof line, file))
    bits += compare_line(line, &lost);
  fclose(file);
  printf("%zu served in %zu rows, %zu before, %d lost\n", served_bits, rows,
         bits, lost);
  ck_assert_uint_gt(bits, 100000);
  ck_assert_msg(lost == 0, "%d problems that were served are not", lost);
  free(table);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("served");
  TCase *tests = tcase_create("served");
  tcase_set_timeout(tests, 120);
  tcase_add_test(tests, what_was_served_is_served);
  suite_add_tcase(suite, tests);
  return run_tests(suite);
}
