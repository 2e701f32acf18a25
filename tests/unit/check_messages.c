/* Sums and reductions of messages of edges: every CPU variant against the
 * float64 reference, and what the reference computes against the formulas by
 * hand. */
#include <math.h>
#include <stdlib.h>

#include "tests/common/messages.h"

#define BACKEND "cpu"
#define TESTS MESSAGE_TESTS

/* Other types than float, whose loops are of the same source, take one of the
 * operators that share out the problems, each kind and pass another; types of
 * 16 bits, which are computed in float on copies, one pass each.  A full test,
 * as each night's is, takes all. */
static int has_turn(const variant_test *test) {
  const int turn = (int)test->message + (int)test->pass + (int)test->dtype;
  const int forward = test->pass == DFGNN_PASS_FORWARD;
  if (test->dtype == DFGNN_F32 || getenv("DFGNN_TEST_FULL"))
    return 1;
  if (test->dtype == (forward ? DFGNN_BF16 : DFGNN_F16))
    return 0;
  return turn % MESSAGE_TURNS == test->share;
}

#define TAKE(i)                                                                \
  variant_test test = message_test_make(i);                                    \
  ck_assert_int_gt(variant_test_count(BACKEND, &test), 1);                     \
  if (!has_turn(&test))                                                        \
  return
#include "tests/common/promises.h"

IN_CASE("formulas")

/* ---- by hand ------------------------------------------------------------- */

/* Destination 0 has the edges from sources 1 and 0, destination 1 none.  (Their
 * gradients are compared with differences by check_backward.) */
enum { NODES = 2, EDGES = 2, DIM = 2, FIELDS = 1, NUMBERS = NODES * DIM };
static const int32_t offsets[] = {0, 2, 2};
static const int32_t indices[] = {1, 0};
static const float x[NUMBERS] = {1, -2, 3, 4};
static const float attr[EDGES * FIELDS] = {-1, 2};
/* The second halves of weight and bias are those of the value. */
static const float weight[2 * DIM * FIELDS] = {2, .5f, -1, 3};
static const float bias[2 * DIM] = {.5f, 0, .25f, -1};
static const float a[NUMBERS] = {.25f, -1, 9, 9};
static const float b[NUMBERS] = {1, 2, -3, .5f};

typedef struct results {
  float out[NUMBERS], least[NUMBERS], most[NUMBERS], std[NUMBERS];
  int32_t arg_min[NUMBERS], arg_max[NUMBERS];
} results;

static dfgnn_status attempt(results *r, dfgnn_op op, dfgnn_message message,
                            int64_t edge_dim) {
  const dfgnn_csr csr = csr32(NODES, NODES, offsets, indices);
  dfgnn_context *ctx = context_on("cpu", "", 1);
  memset(r, 0, sizeof *r);
  dfgnn_problem problem =
      PROBLEM(.op = op, .dim = DIM, .message = message, .edge_dim = edge_dim);
  dfgnn_args args =
      ARGS(.value = x, .edge_attr = attr, .edge_projection = weight,
           .edge_bias = bias, .gate_dst = a, .gate_src = b, .out = r->out,
           .out_min = r->least, .out_max = r->most, .out_std = r->std,
           .arg_min = r->arg_min, .arg_max = r->arg_max);
  return dfgnn_call(ctx, graph_on(ctx, &csr), &problem, &args, NULL);
}

static results run(dfgnn_op op, dfgnn_message message) {
  results r;
  ck_ok(attempt(&r, op, message, FIELDS));
  return r;
}

/* Row 0 is looked at; row 1 has no edges. */
static void same(const float *found, double first, double second) {
  const double expected[] = {first, second, 0, 0};
  for (int i = 0; i < NUMBERS; i++)
    ck_assert_double_eq_tol((double)found[i], expected[i], 1e-5);
}

/* W e + b is (-1.5, -.5) for edge 0 and (4.5, 1) for edge 1; with x added it is
 * (1.5, 3.5) and (5.5, -1). */
TEST(relu_is_that_of_the_formula) {
  results r = run(DFGNN_OP_SPMM_SUM, DFGNN_MESSAGE_RELU);
  same(r.out, 1.5 + 5.5, 3.5);
  r = run(DFGNN_OP_REDUCE_MAX, DFGNN_MESSAGE_RELU);
  same(r.out, 5.5, 3.5);
  ck_assert_mem_eq(r.arg_max, ((int32_t[]){1, 0, -1, -1}), sizeof r.arg_max);
  r = run(DFGNN_OP_REDUCE_MIN, DFGNN_MESSAGE_RELU);
  same(r.out, 1.5, 0);
  ck_assert_mem_eq(r.arg_min, ((int32_t[]){0, 1, -1, -1}), sizeof r.arg_min);
  r = run(DFGNN_OP_REDUCE_PNA, DFGNN_MESSAGE_RELU);
  same(r.out, 3.5, 1.75);
  same(r.least, 1.5, 0);
  same(r.most, 5.5, 3.5);
  same(r.std, 2, 1.75); /* half the difference of two */
}

static double sigma(double z) { return 1 / (1 + exp(-z)); }

TEST(gates_are_those_of_the_formula) {
  const double s[2][2] = {{sigma(.25 - 3 - 1.5), sigma(-1 + .5 - .5)},
                          {sigma(.25 + 1 + 4.5), sigma(-1 + 2 + 1)}};
  const double value[2][2] = {{3 + 1.25, 4 - 4}, {1 - 1.75, -2 + 5}};
  results r = run(DFGNN_OP_SPMM_SUM, DFGNN_MESSAGE_GATE);
  same(r.out, 3 * s[0][0] + s[1][0], 4 * s[0][1] - 2 * s[1][1]);
  r = run(DFGNN_OP_SPMM_SUM, DFGNN_MESSAGE_GATE_VALUE);
  same(r.out, s[0][0] * value[0][0] + s[1][0] * value[1][0],
       s[0][1] * value[0][1] + s[1][1] * value[1][1]);
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
  ck_invalid(
      attempt(&r, refused[_i].op, refused[_i].message, refused[_i].edge_dim),
      refused[_i].expected);
}

TEST_MAIN("messages", .timeout = 300)
