/* check_edge_list.c - edge features in the order of the list that a graph was
 * made of */
#include "tests/unit/fixture.h"

#include "dfgnn_tune.h"
#include "lib/registry.h"

enum { NODES = 40, EDGES = 300, HEADS = 2, DIM = 8, FIELDS = 5 };
enum { ROW = HEADS * DIM };

static dfgnn_context *ctx;
static uint32_t state;

static void open_context(void) {
  ctx = cpu_context("");
  state = 7;
}

static uint32_t draw(void) { return (state = state * 1664525u + 1013904223u); }

static double *drawn(int64_t count) {
  double *x = zeros_of(count, sizeof *x);
  for (int64_t i = 0; i < count; i++)
    x[i] = (double)(draw() >> 8) / (1 << 24) - 0.5;
  return x;
}

/* The rows of x in another order: row order[e] becomes row e, or back. */
static double *ordered(const double *x, const int32_t *order, int64_t width,
                       int back) {
  double *y = zeros_of(EDGES * width, sizeof *y);
  for (int64_t e = 0; e < EDGES; e++)
    memcpy(y + (back ? order[e] : e) * width, x + (back ? e : order[e]) * width,
           (size_t)width * sizeof *x);
  return y;
}

static dfgnn_graph *listed_graph(void) {
  static int32_t dst[EDGES], src[EDGES];
  for (int e = 0; e < EDGES; e++) {
    dst[e] = (int32_t)(draw() >> 8) % NODES;
    src[e] = (int32_t)(draw() >> 8) % NODES;
  }
  dfgnn_coo coo = INIT(dfgnn_coo, .destinations = NODES, .sources = NODES,
                       .edges = EDGES, .destination = dst, .source = src);
  return listed_on(ctx, &coo);
}

typedef struct outputs {
  double *out, *edge, *value;
} outputs;

/* Runs a variant on features in either order and compares what it gives. */
static void compare(dfgnn_graph *graph, dfgnn_problem problem, dfgnn_args args,
                    const char *variant, int64_t width) {
  const int32_t *order = dfgnn_graph_edge_order(graph, NULL);
  const int backward = problem.pass == DFGNN_PASS_BACKWARD;
  double *attr = drawn(EDGES * width);
  double *sorted = ordered(attr, order, width, 0);
  outputs found[2];
  ck_assert_ptr_nonnull(order);
  for (int k = 0; k < 2; k++) {
    found[k] =
        (outputs){drawn(NODES * ROW), drawn(EDGES * width), drawn(NODES * ROW)};
    problem.edge_list = k;
    args.edge_attr = k ? attr : sorted;
    if (backward) {
      args.grad_value = found[k].value;
      args.grad_edge_attr = found[k].edge;
    } else {
      args.out = found[k].out;
    }
    execute_plan(forced_on(ctx, graph, &problem, variant), &args);
  }
  if (backward) {
    double *back = ordered(found[0].edge, order, width, 1);
    ck_assert_msg(!memcmp(back, found[1].edge, EDGES * (size_t)width * 8),
                  "%s: gradients of features differ", variant);
    ck_assert_msg(!memcmp(found[0].value, found[1].value, NODES * ROW * 8),
                  "%s: gradients of values differ", variant);
  } else {
    ck_assert_msg(!memcmp(found[0].out, found[1].out, NODES * ROW * 8),
                  "%s: results differ", variant);
  }
}

/* Compares all variants that serve a problem; returns how many. */
static int compare_all(dfgnn_graph *graph, dfgnn_problem problem) {
  const int64_t width = problem.edge_dim < 0 ? ROW : problem.edge_dim;
  double *given[] = {drawn(NODES * ROW),  drawn(NODES * ROW),
                     drawn(NODES * ROW),  drawn(ROW),
                     drawn(ROW * FIELDS), drawn(NODES * ROW),
                     drawn(NODES * ROW),  drawn(NODES * HEADS),
                     drawn(NODES * ROW),  drawn(NODES * ROW)};
  int compared = 0;
  dfgnn_args args =
      ARGS(.query = given[0], .key = given[1], .value = given[2],
           .att = given[3],
           .edge_projection = problem.edge_dim > 0 ? given[4] : NULL,
           .gate_dst = problem.message == DFGNN_MESSAGE_GATE ? given[5] : NULL,
           .gate_src = problem.message == DFGNN_MESSAGE_GATE ? given[6] : NULL,
           .lse = given[7], .out = given[8]);
  problem.dtype = DFGNN_F64;
  problem.heads = HEADS;
  problem.dim = DIM;
  for (int pass = 0; pass < DFGNN_PASS_COUNT; pass++) {
    problem.pass = pass;
    args.grad_out = pass ? given[9] : NULL;
    for (size_t i = 0; i < dfgnn__variant_count(); i++) {
      const dfgnn_variant *v = dfgnn__variant(i);
      const dfgnn_family *f = v->family;
      dfgnn_plan *plan;
      problem.edge_list = 1;
      if (!f->edge_list ||
          dfgnn_plan_create_forced(&plan, ctx, graph, &problem, v->name))
        continue;
      dfgnn_plan_destroy(plan);
      compare(graph, problem, args, v->name, width);
      compared++;
    }
  }
  return compared;
}

TEST(messages_read_features_where_the_list_has_them) {
  static const dfgnn_message messages[] = {DFGNN_MESSAGE_RELU,
                                           DFGNN_MESSAGE_GATE};
  dfgnn_graph *graph = listed_graph();
  dfgnn_problem problem =
      PROBLEM(.op = DFGNN_OP_SPMM_SUM, .edge_dim = DFGNN_EDGE_PROJECTED);
  for (int k = 0; k < 2; k++) {
    problem.message = messages[k];
    ck_assert_int_gt(compare_all(graph, problem), 10);
  }
}

TEST(attention_reads_features_where_the_list_has_them) {
  static const dfgnn_op ops[] = {DFGNN_OP_GT, DFGNN_OP_GATV2};
  static const int64_t dims[] = {FIELDS, DFGNN_EDGE_PROJECTED};
  dfgnn_graph *graph = listed_graph();
  for (int k = 0; k < 4; k++) {
    dfgnn_problem problem = PROBLEM(.op = ops[k / 2], .edge_dim = dims[k % 2]);
    ck_assert_int_gt(compare_all(graph, problem), 4);
  }
}

TEST(the_tuner_checks_features_where_the_list_has_them) {
  static const struct {
    dfgnn_op op;
    dfgnn_message message;
  } kinds[] = {{DFGNN_OP_SPMM_SUM, DFGNN_MESSAGE_RELU},
               {DFGNN_OP_SPMM_MEAN, DFGNN_MESSAGE_GATE},
               {DFGNN_OP_GT, DFGNN_MESSAGE_COPY},
               {DFGNN_OP_GATV2, DFGNN_MESSAGE_COPY}};
  dfgnn_graph *graph = listed_graph();
  dfgnn_tune_options options = INIT(dfgnn_tune_options, .budget_s = 0.05);
  for (int k = 0; k < 8; k++) {
    dfgnn_tune_report report = INIT(dfgnn_tune_report);
    dfgnn_problem problem =
        PROBLEM(.op = kinds[k / 2].op, .message = kinds[k / 2].message,
                .pass = k % 2, .heads = HEADS, .dim = DIM,
                .edge_dim = DFGNN_EDGE_PROJECTED, .edge_list = 1);
    ck_ok(dfgnn_tune(&report, ctx, graph, &problem, &options));
    ck_assert_int_gt(report.measured, 0);
  }
}

TEST(what_cannot_read_a_list_says_so) {
  dfgnn_graph *graph = listed_graph();
  dfgnn_plan *plan;
  dfgnn_problem problem =
      PROBLEM(.op = DFGNN_OP_REDUCE_MAX, .message = DFGNN_MESSAGE_RELU,
              .edge_dim = DFGNN_EDGE_PROJECTED, .edge_list = 1);
  ck_fails(dfgnn_plan_create(&plan, ctx, graph, &problem),
           DFGNN_ERROR_UNSUPPORTED, "no variant applies");
}

TEST_MAIN("edge_list", .setup = open_context, .timeout = 120)
