/* Sums and reductions of messages of edges: every CPU variant against the
 * float64 reference, and what the reference computes against the formulas by
 * hand. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/common/messages.h"
#include "tests/unit/fixture.h"

/* Other types than float, whose loops are of the same source, take one of the
 * operators that share out the problems, each kind and pass another. */
static int has_turn(const variant_test *test) {
  const int turn = (int)test->message + (int)test->pass + (int)test->dtype;
  return test->dtype == DFGNN_F32 || getenv("DFGNN_TEST_FULL") ||
         turn % MESSAGE_TURNS == test->share;
}

#define TAKE(i)                                                                \
  variant_test test = message_test_make(i);                                    \
  ck_assert_int_gt(variant_test_count("cpu", &test), 1);                       \
  if (!has_turn(&test))                                                        \
  return

TEST_LOOP(every_variant_matches_the_reference_on_every_shape, 0,
          MESSAGE_TESTS) {
  TAKE(_i);
  check_every_variant("cpu", &test);
}

TEST_LOOP(any_strides_are_followed, 0, MESSAGE_TESTS) {
  TAKE(_i);
  check_strides("cpu", &test);
}

TEST_LOOP(every_call_gives_the_same_bits, 0, MESSAGE_TESTS) {
  TAKE(_i);
  check_repeats("cpu", &test);
}

/* ---- by hand ------------------------------------------------------------- */

/* Destination 0 has the edges from sources 1 and 0, destination 1 none. */
enum { NODES = 2, EDGES = 2, DIM = 2, FIELDS = 1 };
static const int32_t offsets[] = {0, 2, 2};
static const int32_t indices[] = {1, 0};
static const float x[NODES * DIM] = {1, -2, 3, 4};
static const float attr[EDGES * FIELDS] = {-1, 2};
/* The second halves of weight and bias are those of the value. */
static const float weight[2 * DIM * FIELDS] = {2, .5f, -1, 3};
static const float bias[2 * DIM] = {.5f, 0, .25f, -1};
static const float a[NODES * DIM] = {.25f, -1, 9, 9};
static const float b[NODES * DIM] = {1, 2, -3, .5f};
static const float grad[NODES * DIM] = {10, 20, 30, 40};
static const float grad_min[NODES * DIM] = {1, 2, 3, 4};
static const float grad_max[NODES * DIM] = {-1, 5, 6, 7};
static const float grad_std[NODES * DIM] = {4, -2, 1, 1};

typedef struct results {
  float out[NODES * DIM], x[NODES * DIM], a[NODES * DIM], b[NODES * DIM];
  float attr[EDGES * FIELDS], weight[2 * DIM * FIELDS], bias[2 * DIM];
  float least[NODES * DIM], most[NODES * DIM], std[NODES * DIM];
  int32_t arg_min[NODES * DIM], arg_max[NODES * DIM];
} results;

static dfgnn_status attempt(results *r, dfgnn_op op, dfgnn_pass pass,
                            dfgnn_message message, int64_t edge_dim) {
  dfgnn_csr csr = csr32(NODES, NODES, offsets, indices);
  dfgnn_problem problem = DFGNN_PROBLEM_INIT;
  dfgnn_args args = DFGNN_ARGS_INIT;
  dfgnn_context *ctx = context_on("cpu", "", 1);
  dfgnn_graph *graph;
  problem.op = op;
  problem.pass = pass;
  problem.dim = DIM;
  problem.message = message;
  problem.edge_dim = edge_dim;
  args.value = x;
  args.edge_attr = attr;
  args.edge_weight = weight;
  args.edge_bias = bias;
  args.gate_dst = a;
  args.gate_src = b;
  args.out = r->out;
  args.out_min = r->least;
  args.out_max = r->most;
  args.out_std = r->std;
  args.arg_min = r->arg_min;
  args.arg_max = r->arg_max;
  args.grad_out = grad;
  args.grad_out_min = grad_min;
  args.grad_out_max = grad_max;
  args.grad_out_std = grad_std;
  args.grad_value = r->x;
  args.grad_gate_dst = r->a;
  args.grad_gate_src = r->b;
  args.grad_edge_attr = r->attr;
  args.grad_edge_weight = r->weight;
  args.grad_edge_bias = r->bias;
  ck_ok(dfgnn_graph_create_csr(&graph, ctx, &csr, NULL));
  dfgnn_status status = dfgnn_call(ctx, graph, &problem, &args, NULL);
  dfgnn_graph_destroy(graph);
  dfgnn_context_destroy(ctx);
  return status;
}

static void run_op(results *r, dfgnn_op op, dfgnn_pass pass,
                   dfgnn_message message) {
  ck_ok(attempt(r, op, pass, message, FIELDS));
}

static void run(results *r, dfgnn_pass pass, dfgnn_message message) {
  run_op(r, DFGNN_OP_SPMM_SUM, pass, message);
}

static void same(const float *found, const double *expected, int count) {
  for (int i = 0; i < count; i++)
    ck_assert_double_eq_tol((double)found[i], expected[i], 1e-5);
}

/* W e + b is (-1.5, -.5) for edge 0 and (4.5, 1) for edge 1; with x added it is
 * (1.5, 3.5) and (5.5, -1). */
TEST(relu_is_that_of_the_formula) {
  results r;
  memset(&r, 0, sizeof r);
  run(&r, DFGNN_PASS_FORWARD, DFGNN_MESSAGE_RELU);
  same(r.out, (double[]){1.5 + 5.5, 3.5, 0, 0}, 4);
  run(&r, DFGNN_PASS_BACKWARD, DFGNN_MESSAGE_RELU);
  same(r.x, (double[]){10, 0, 10, 20}, 4);
  same(r.attr, (double[]){2 * 10 + .5 * 20, 2 * 10}, 2);
  same(r.weight, (double[]){-1 * 10 + 2 * 10, -1 * 20}, 2);
  same(r.bias, (double[]){20, 20}, 2);
}

static double sigma(double z) { return 1 / (1 + exp(-z)); }

TEST(gates_are_those_of_the_formula) {
  results r;
  memset(&r, 0, sizeof r);
  double z[2][2] = {{.25 - 3 - 1.5, -1 + .5 - .5}, {.25 + 1 + 4.5, -1 + 2 + 1}};
  double s[2][2], slope[2][2];
  for (int e = 0; e < 2; e++)
    for (int d = 0; d < 2; d++) {
      double value = (double)x[indices[e] * DIM + d];
      s[e][d] = sigma(z[e][d]);
      slope[e][d] = (double)grad[d] * value * s[e][d] * (1 - s[e][d]);
    }
  run(&r, DFGNN_PASS_FORWARD, DFGNN_MESSAGE_GATE);
  same(r.out,
       (double[]){3 * s[0][0] + s[1][0], 4 * s[0][1] - 2 * s[1][1], 0, 0}, 4);
  run(&r, DFGNN_PASS_BACKWARD, DFGNN_MESSAGE_GATE);
  same(r.x, (double[]){10 * s[1][0], 20 * s[1][1], 10 * s[0][0], 20 * s[0][1]},
       4);
  same(r.b, (double[]){slope[1][0], slope[1][1], slope[0][0], slope[0][1]}, 4);
  same(r.a,
       (double[]){slope[0][0] + slope[1][0], slope[0][1] + slope[1][1], 0, 0},
       4);
  same(r.attr,
       (double[]){2 * slope[0][0] + .5 * slope[0][1],
                  2 * slope[1][0] + .5 * slope[1][1]},
       2);
  same(r.weight,
       (double[]){-slope[0][0] + 2 * slope[1][0],
                  -slope[0][1] + 2 * slope[1][1]},
       2);
  same(r.bias, (double[]){slope[0][0] + slope[1][0], slope[0][1] + slope[1][1]},
       2);
}

/* The message of edge 0 is (1.5, 3.5), that of edge 1 is (5.5, 0). */
TEST(extremes_say_which_edge_they_came_from) {
  results r;
  memset(&r, 0, sizeof r);
  run_op(&r, DFGNN_OP_REDUCE_MAX, DFGNN_PASS_FORWARD, DFGNN_MESSAGE_RELU);
  same(r.out, (double[]){5.5, 3.5, 0, 0}, 4);
  ck_assert_mem_eq(r.arg_max, ((int32_t[]){1, 0, -1, -1}), sizeof r.arg_max);
  run_op(&r, DFGNN_OP_REDUCE_MAX, DFGNN_PASS_BACKWARD, DFGNN_MESSAGE_RELU);
  same(r.x, (double[]){10, 0, 0, 20}, 4);
  same(r.attr, (double[]){.5 * 20, 2 * 10}, 2);
  same(r.weight, (double[]){2 * 10, -1 * 20}, 2);
  same(r.bias, (double[]){10, 20}, 2);
  run_op(&r, DFGNN_OP_REDUCE_MIN, DFGNN_PASS_FORWARD, DFGNN_MESSAGE_RELU);
  same(r.out, (double[]){1.5, 0, 0, 0}, 4);
  ck_assert_mem_eq(r.arg_min, ((int32_t[]){0, 1, -1, -1}), sizeof r.arg_min);
  run_op(&r, DFGNN_OP_REDUCE_MIN, DFGNN_PASS_BACKWARD, DFGNN_MESSAGE_RELU);
  same(r.x, (double[]){0, 0, 10, 0}, 4);
}

/* The deviation of two messages is half their difference, and its slope is half
 * the sign of that. */
TEST(moments_are_those_of_the_formula) {
  results r;
  memset(&r, 0, sizeof r);
  run_op(&r, DFGNN_OP_REDUCE_PNA, DFGNN_PASS_FORWARD, DFGNN_MESSAGE_RELU);
  same(r.out, (double[]){3.5, 1.75, 0, 0}, 4);
  same(r.least, (double[]){1.5, 0, 0, 0}, 4);
  same(r.most, (double[]){5.5, 3.5, 0, 0}, 4);
  same(r.std, (double[]){2, 1.75, 0, 0}, 4);
  run_op(&r, DFGNN_OP_REDUCE_PNA, DFGNN_PASS_BACKWARD, DFGNN_MESSAGE_RELU);
  /* mean / 2, the extreme, and half the gradient of the deviation */
  double edge[2][2] = {{5 + 1 - 2, 10 + 5 - 1}, {5 - 1 + 2, 0}};
  same(r.x, (double[]){edge[1][0], edge[1][1], edge[0][0], edge[0][1]}, 4);
  same(r.bias, (double[]){edge[0][0] + edge[1][0], edge[0][1]}, 2);
}

TEST(values_have_features_of_the_edge) {
  results r;
  memset(&r, 0, sizeof r);
  double z[2][2] = {{.25 - 3 - 1.5, -1 + .5 - .5}, {.25 + 1 + 4.5, -1 + 2 + 1}};
  double value[2][2] = {{3 + 1.25, 4 - 4}, {1 - 1.75, -2 + 5}};
  double s[2][2], slope[2][2], passed[2][2];
  for (int e = 0; e < 2; e++)
    for (int d = 0; d < 2; d++) {
      s[e][d] = sigma(z[e][d]);
      passed[e][d] = (double)grad[d] * s[e][d];
      slope[e][d] = passed[e][d] * value[e][d] * (1 - s[e][d]);
    }
  run(&r, DFGNN_PASS_FORWARD, DFGNN_MESSAGE_GATE_VALUE);
  same(r.out,
       (double[]){s[0][0] * value[0][0] + s[1][0] * value[1][0],
                  s[0][1] * value[0][1] + s[1][1] * value[1][1], 0, 0},
       4);
  run(&r, DFGNN_PASS_BACKWARD, DFGNN_MESSAGE_GATE_VALUE);
  same(r.x, (double[]){passed[1][0], passed[1][1], passed[0][0], passed[0][1]},
       4);
  same(r.a,
       (double[]){slope[0][0] + slope[1][0], slope[0][1] + slope[1][1], 0, 0},
       4);
  same(r.weight,
       (double[]){
           -slope[0][0] + 2 * slope[1][0], -slope[0][1] + 2 * slope[1][1],
           -passed[0][0] + 2 * passed[1][0], -passed[0][1] + 2 * passed[1][1]},
       4);
  same(r.bias,
       (double[]){slope[0][0] + slope[1][0], slope[0][1] + slope[1][1],
                  passed[0][0] + passed[1][0], passed[0][1] + passed[1][1]},
       4);
  for (int e = 0; e < 2; e++)
    same(&r.attr[e],
         (double[]){2 * slope[e][0] + .5 * slope[e][1] - passed[e][0] +
                    3 * passed[e][1]},
         1);
}

static const struct {
  dfgnn_op op;
  dfgnn_message message;
  int64_t edge_dim;
  const char *expected;
} refused[] = {
    {DFGNN_OP_REDUCE_STD, DFGNN_MESSAGE_RELU, 1,
     "problem.message is relu, which operator reduce-std does not have; "
     "out_std of reduce-pna"},
    {DFGNN_OP_REDUCE_VAR, DFGNN_MESSAGE_GATE, 0,
     "problem.message is gate, which operator reduce-var does not have"},
    {DFGNN_OP_SPMM_WEIGHTED, DFGNN_MESSAGE_RELU, 1,
     "problem.message is relu, which operator spmm-weighted does not have"},
    {DFGNN_OP_REDUCE_MAX, DFGNN_MESSAGE_RELU, 0,
     "problem.message is relu, but problem.edge_dim is 0"},
    {DFGNN_OP_SPMM_SUM, DFGNN_MESSAGE_GATE_VALUE, DFGNN_EDGE_PROJECTED,
     "problem.message is gate-value, but problem.edge_dim is -1"},
    {DFGNN_OP_REDUCE_PNA, DFGNN_MESSAGE_GATE_VALUE, 0,
     "problem.message is gate-value, but problem.edge_dim is 0"}};

TEST_LOOP(what_has_no_formula_is_refused_by_name, 0,
          sizeof refused / sizeof *refused) {
  results r;
  memset(&r, 0, sizeof r);
  ck_assert_int_eq(attempt(&r, refused[_i].op, DFGNN_PASS_FORWARD,
                           refused[_i].message, refused[_i].edge_dim),
                   DFGNN_ERROR_INVALID);
  ck_assert_msg(strstr(dfgnn_last_error(), refused[_i].expected) != NULL, "%s",
                dfgnn_last_error());
}

TEST_MAIN("messages", .timeout = 300)
