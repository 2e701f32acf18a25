/* Sums of messages of edges: every CPU variant against the float64 reference,
 * and what the reference computes against the formulas by hand. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/common/messages.h"

#define TEST(i)                                                                \
  variant_test test = message_test_make(i);                                    \
  ck_assert_int_gt(variant_test_count("cpu", &test), 1)

START_TEST(every_variant_matches_the_reference_on_every_shape) {
  TEST(_i);
  check_every_variant("cpu", &test);
}
END_TEST

START_TEST(any_strides_are_followed) {
  TEST(_i);
  check_strides("cpu", &test);
}
END_TEST

START_TEST(every_call_gives_the_same_bits) {
  TEST(_i);
  check_repeats("cpu", &test);
}
END_TEST

/* ---- by hand ------------------------------------------------------------- */

/* Destination 0 has the edges from sources 1 and 0, destination 1 none. */
enum { NODES = 2, EDGES = 2, DIM = 2, FIELDS = 1 };
static const int32_t offsets[] = {0, 2, 2};
static const int32_t indices[] = {1, 0};
static const float x[NODES * DIM] = {1, -2, 3, 4};
static const float attr[EDGES * FIELDS] = {-1, 2};
static const float weight[DIM * FIELDS] = {2, .5f};
static const float bias[DIM] = {.5f, 0};
static const float a[NODES * DIM] = {.25f, -1, 9, 9};
static const float b[NODES * DIM] = {1, 2, -3, .5f};
static const float grad[NODES * DIM] = {10, 20, 30, 40};

typedef struct results {
  float out[NODES * DIM], x[NODES * DIM], a[NODES * DIM], b[NODES * DIM];
  float attr[EDGES * FIELDS], weight[DIM * FIELDS], bias[DIM];
} results;

static void run(results *r, dfgnn_pass pass, dfgnn_message message) {
  dfgnn_options options = DFGNN_OPTIONS_INIT;
  dfgnn_csr csr = DFGNN_CSR_INIT;
  dfgnn_problem problem = DFGNN_PROBLEM_INIT;
  dfgnn_args args = DFGNN_ARGS_INIT;
  dfgnn_context *ctx;
  dfgnn_graph *graph;
  options.device = "cpu";
  options.store = "";
  options.threads = 1;
  csr.destinations = csr.sources = NODES;
  csr.edges = EDGES;
  csr.offsets = offsets;
  csr.indices = indices;
  problem.op = DFGNN_OP_SPMM_SUM;
  problem.pass = pass;
  problem.dim = DIM;
  problem.message = message;
  problem.edge_dim = FIELDS;
  args.value = x;
  args.edge_attr = attr;
  args.edge_weight = weight;
  args.edge_bias = bias;
  args.gate_dst = a;
  args.gate_src = b;
  args.out = r->out;
  args.grad_out = grad;
  args.grad_value = r->x;
  args.grad_gate_dst = r->a;
  args.grad_gate_src = r->b;
  args.grad_edge_attr = r->attr;
  args.grad_edge_weight = r->weight;
  args.grad_edge_bias = r->bias;
  ck_assert_int_eq(dfgnn_context_create(&ctx, &options), DFGNN_OK);
  ck_assert_int_eq(dfgnn_graph_create(&graph, ctx, &csr), DFGNN_OK);
  ck_assert_msg(dfgnn_call(ctx, graph, &problem, &args, NULL) == DFGNN_OK, "%s",
                dfgnn_last_error());
  dfgnn_graph_destroy(graph);
  dfgnn_context_destroy(ctx);
}

static void same(const float *found, const double *expected, int count) {
  for (int i = 0; i < count; i++)
    ck_assert_double_eq_tol((double)found[i], expected[i], 1e-5);
}

/* Parts W e + b are (-1.5, -.5) of edge 0 and (4.5, 1) of edge 1, sums x + part
 * (1.5, 3.5) and (5.5, -1). */
START_TEST(relu_is_that_of_the_formula) {
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
END_TEST

static double sigma(double z) { return 1 / (1 + exp(-z)); }

START_TEST(gates_are_those_of_the_formula) {
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
END_TEST

int main(void) {
  Suite *suite = suite_create("messages");
  TCase *tcase = tcase_create("cpu");
  tcase_set_timeout(tcase, 120);
  tcase_add_test(tcase, relu_is_that_of_the_formula);
  tcase_add_test(tcase, gates_are_those_of_the_formula);
  tcase_add_loop_test(tcase, every_variant_matches_the_reference_on_every_shape,
                      0, MESSAGE_TESTS);
  tcase_add_loop_test(tcase, any_strides_are_followed, 0, MESSAGE_TESTS);
  tcase_add_loop_test(tcase, every_call_gives_the_same_bits, 0, MESSAGE_TESTS);
  suite_add_tcase(suite, tcase);
  SRunner *runner = srunner_create(suite);
  srunner_run_all(runner, CK_NORMAL);
  int failed = srunner_ntests_failed(runner);
  srunner_free(runner);
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
