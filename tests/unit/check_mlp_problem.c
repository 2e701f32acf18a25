/* MLPs on edges as problems: their texts, keys, plans and variants. */
#include "db/field.h"
#include "lib/edge_mlp.h"
#include "lib/key.h"
#include "lib/registry.h"
#include "tests/common/mlps.h"
#include "tests/unit/fixture.h"

static dfgnn_problem parsed(const char *text, dfgnn_dtype dtype,
                            dfgnn_pass pass) {
  dfgnn_problem problem = DFGNN_PROBLEM_INIT;
  ck_ok(dfgnn_edge_mlp_parse(&problem, text, dtype, DFGNN_MATH_F32, pass));
  return problem;
}

START_TEST(a_text_comes_back_without_its_defaults) {
  static const struct {
    const char *given, *kept;
    dfgnn_pass pass;
  } texts[] = {
      {"edge=8,width=16", "edge=8,width=16", DFGNN_PASS_FORWARD},
      {"width=16x4,edge=0,reduce=sum,parts=both,out=1,bias=1,last=relu",
       "edge=0,width=16x4,last=relu", DFGNN_PASS_FORWARD},
      {"edge=4,width=16x8,gate=1,residual=1,norm=rms,affine=0,"
       "activation=leaky-relu,reduce=mean,reduce-src=max,factor=dst,bias=0",
       "edge=4,width=16x8,activation=leaky-relu,gate=1,norm=rms,residual=1,"
       "reduce=mean,reduce-src=max,bias=0,affine=0,factor=dst",
       DFGNN_PASS_FORWARD},
      /* nothing is between the layers of one, and no gradient is forward */
      {"edge=8,width=16,activation=relu,grads=edge", "edge=8,width=16",
       DFGNN_PASS_FORWARD},
      {"edge=8,width=16,grads=edge+parts", "edge=8,width=16,grads=edge+parts",
       DFGNN_PASS_BACKWARD},
      {"edge=8,width=16,grads=edge+parts+parameters", "edge=8,width=16",
       DFGNN_PASS_BACKWARD},
      {"edge=8,width=16,grads=none", "edge=8,width=16,grads=none",
       DFGNN_PASS_BACKWARD},
      {"edge=8,width=16x8,kept=1", "edge=8,width=16x8,kept=1",
       DFGNN_PASS_FORWARD},
      /* of one layer without a norm nothing is worth keeping */
      {"edge=8,width=16,kept=1", "edge=8,width=16", DFGNN_PASS_BACKWARD},
      {"edge=4096,width=4096x4096x4096x4096,activation=gelu-tanh,"
       "last=leaky-relu,gate=1,norm=layer,reduce=mean,reduce-src=mean,"
       "parts=dst,bias=0,affine=0,factor=both,out=0,kept=1,"
       "grads=edge+parts+parameters",
       "edge=4096,width=4096x4096x4096x4096,activation=gelu-tanh,"
       "last=leaky-relu,gate=1,norm=layer,reduce=mean,reduce-src=mean,"
       "parts=dst,bias=0,affine=0,factor=both,out=0,kept=1,"
       "grads=edge+parts+parameters",
       DFGNN_PASS_BACKWARD},
  };
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    const dfgnn_problem p = parsed(texts[i].given, DFGNN_F32, texts[i].pass);
    ck_assert_str_eq(dfgnn_edge_mlp_text(&p), texts[i].kept);
    const dfgnn_problem again = parsed(texts[i].kept, DFGNN_F32, texts[i].pass);
    ck_assert_ptr_eq(again.mlp, p.mlp);
  }
  const dfgnn_problem other = DFGNN_PROBLEM_INIT;
  ck_assert_ptr_null(dfgnn_edge_mlp_text(&other));
}
END_TEST

START_TEST(a_wrong_text_is_refused_with_what_was_expected) {
  static const struct {
    const char *text, *says;
  } wrong[] = {
      {"", "has no edge"},
      {"edge=8", "has no width"},
      {"edge=8,width=", "width is ''"},
      {"edge=8,width=16x", "1 to 4 numbers"},
      {"edge=8,width=1x2x3x4x5", "1 to 4 numbers"},
      {"edge=8,width=5000", "1 to 4 numbers"},
      {"edge=-1,width=8", "a number of 0 to 4096"},
      {"edge=8 ,width=8", "a number of 0 to 4096"},
      {"edge=99999999999999999999,width=8", "a number of 0 to 4096"},
      {"edge=8,width=8,gate=2", "one of 0, 1"},
      {"edge=8,width=7,gate=1", "even number"},
      {"edge=8,width=8,norm=batch", "one of none, layer, rms"},
      {"edge=8,width=8,grads=all", "edge, parts, parameters and factors"},
      {"edge=8,width=8,grads=edge+", "edge, parts, parameters and factors"},
      {"edge=8,width=8,edge=4", "second 'edge'"},
      {"edge=8,width=8x4,width=8", "second 'width'"},
      {"edge=8,,width=8", "words key=value"},
      {"edge=8,width", "words key=value"},
      {"edge=8,width=8,aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa=1",
       "words key=value"},
  };
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    dfgnn_problem p = DFGNN_PROBLEM_INIT;
    const dfgnn_status status = dfgnn_edge_mlp_parse(
        &p, wrong[i].text, DFGNN_F32, DFGNN_MATH_F32, DFGNN_PASS_BACKWARD);
    ck_assert_msg(status == DFGNN_ERROR_FORMAT || status == DFGNN_ERROR_INVALID,
                  "'%s' gave %d", wrong[i].text, (int)status);
    ck_assert_msg(strstr(dfgnn_last_error(), wrong[i].says), "'%s' says '%s'",
                  wrong[i].text, dfgnn_last_error());
  }
}
END_TEST

START_TEST(an_mlp_is_in_the_key_and_comes_back_from_a_row) {
  const dfgnn_problem problem = parsed("edge=8,width=16x8,activation=silu",
                                       DFGNN_BF16, DFGNN_PASS_BACKWARD);
  dfgnn_measurement row = {.backend = "cpu", .arch = "x", .model = "m"};
  dfgnn_problem back;
  dfgnn__key_fill(&row, &problem, 0);
  ck_assert_str_eq(row.op, "edge_mlp");
  ck_assert_str_eq(row.program_text, "edge=8,width=16x8,activation=silu");
  ck_assert_int_eq(row.dim, 16);
  ck_ok(dfgnn__key_problem(&back, &row));
  ck_assert_ptr_eq(back.mlp, problem.mlp);
  dfgnn_measurement other = row;
  const dfgnn_problem wider = parsed("edge=8,width=16x16,activation=silu",
                                     DFGNN_BF16, DFGNN_PASS_BACKWARD);
  dfgnn__key_fill(&other, &wider, 0);
  ck_assert(dfgnn__key_gate(&other) != dfgnn__key_gate(&row));
  other.program = row.program; /* a text under another's hash */
  ck_fails(dfgnn__key_problem(&back, &other), DFGNN_ERROR_FORMAT, "hash");
  other.program_text = NULL; /* as in a recording that was written by hand */
  ck_fails(dfgnn__key_problem(&back, &other), DFGNN_ERROR_FORMAT,
           "without 'program_text'");
}
END_TEST

/* ---- calls --------------------------------------------------------------- */

enum { NODES = 40, EDGES = 600 };

static dfgnn_graph *graph_in(dfgnn_context *ctx) {
  static int32_t dst[EDGES], src[EDGES];
  dfgnn_coo coo = DFGNN_COO_INIT;
  dfgnn_graph *graph;
  for (int e = 0; e < EDGES; e++) {
    dst[e] = e % 3 ? (e * 7) % NODES : 5;
    src[e] = (e * 11) % NODES;
  }
  coo.destinations = coo.sources = NODES;
  coo.edges = EDGES;
  coo.destination = dst;
  coo.source = src;
  coo.index_type = DFGNN_INDEX_I32;
  ck_ok(dfgnn_graph_create_coo(&graph, ctx, &coo, NULL));
  return graph;
}

static dfgnn_edge_mlp mesh(dfgnn_dtype dtype) {
  dfgnn_edge_mlp mlp = DFGNN_EDGE_MLP_INIT;
  mlp.dtype = dtype;
  mlp.layers = 2;
  mlp.edge_dim = mlp.width[1] = 12;
  mlp.width[0] = 24;
  mlp.activation = DFGNN_ACTIVATION_ELU;
  mlp.slope = 0.7;
  mlp.norm = DFGNN_NORM_LAYER;
  mlp.epsilon = 1e-5;
  mlp.residual = 1;
  mlp.reduce_dst = DFGNN_REDUCE_MAX;
  mlp.reduce_src = DFGNN_REDUCE_MEAN;
  mlp.edge_list = 1;
  return mlp;
}

START_TEST(a_call_is_the_problem_of_its_text) {
  const dfgnn_edge_mlp mlp = mesh(DFGNN_F16);
  mlp_case c;
  dfgnn_problem called = DFGNN_PROBLEM_INIT;
  mlp_make(&c, &mlp, NODES, NODES, EDGES, 1, 3);
  ck_ok(dfgnn_edge_mlp_problem(&called, &mlp, &c.forward, DFGNN_PASS_FORWARD));
  ck_assert_str_eq(dfgnn_edge_mlp_text(&called),
                   "edge=12,width=24x12,activation=elu,norm=layer,residual=1,"
                   "reduce=max,reduce-src=mean,factor=src");
  ck_assert_int_eq(called.dtype, DFGNN_F16);
  ck_ok(
      dfgnn_edge_mlp_problem(&called, &mlp, &c.backward, DFGNN_PASS_BACKWARD));
  ck_assert_int_eq(called.pass, DFGNN_PASS_BACKWARD);
  /* What has no gradient is not there, and what wants none is left out. */
  c.backward.grad_out_dst = NULL;
  c.backward.arg_dst = NULL;
  c.backward.grad_edge = NULL;
  c.backward.grad_src_factor = NULL;
  ck_ok(
      dfgnn_edge_mlp_problem(&called, &mlp, &c.backward, DFGNN_PASS_BACKWARD));
  ck_assert_str_eq(dfgnn_edge_mlp_text(&called),
                   "edge=12,width=24x12,activation=elu,norm=layer,residual=1,"
                   "reduce=none,reduce-src=mean,factor=src,"
                   "grads=parts+parameters");
  mlp_free(&c);
}
END_TEST

/* Runs both passes as a variant, over what is there. */
static dfgnn_status run_as(dfgnn_graph *graph, const mlp_case *c,
                           const dfgnn_variant *v, dfgnn_pass pass) {
  const dfgnn_edge_mlp_args *args =
      pass == DFGNN_PASS_FORWARD ? &c->forward : &c->backward;
  dfgnn_args call = DFGNN_ARGS_INIT;
  dfgnn_problem problem = DFGNN_PROBLEM_INIT;
  dfgnn_plan *plan;
  ck_ok(dfgnn_edge_mlp_problem(&problem, &c->mlp, args, pass));
  dfgnn_status status =
      dfgnn_plan_create_forced(&plan, graph->ctx, graph, &problem, v->name);
  if (status)
    return status;
  call.mlp = &c->mlp;
  call.mlp_args = args;
  ck_ok(dfgnn_execute(plan, &call, NULL, NULL));
  dfgnn_plan_destroy(plan);
  return DFGNN_OK;
}

START_TEST(every_variant_is_right) {
  static const dfgnn_dtype dtypes[] = {DFGNN_F32, DFGNN_BF16, DFGNN_F64};
  dfgnn_context *ctx = context_on("cpu", "", 2);
  dfgnn_graph *graph = graph_in(ctx);
  int ran = 0;
  for (size_t t = 0; t < sizeof dtypes / sizeof *dtypes; t++) {
    const dfgnn_edge_mlp mlp = mesh(dtypes[t]);
    mlp_case c;
    mlp_make(&c, &mlp, NODES, NODES, EDGES, 1, 5);
    for (size_t i = 0; i < dfgnn__variant_count(); i++) {
      const dfgnn_variant *v = dfgnn__variant(i);
      if (strncmp(v->name, "cpu.mlp.", 8) ||
          run_as(graph, &c, v, DFGNN_PASS_FORWARD) == DFGNN_ERROR_UNSUPPORTED)
        continue;
      ck_ok(run_as(graph, &c, v, DFGNN_PASS_BACKWARD));
      for (int pass = 0; pass < DFGNN_PASS_COUNT; pass++) {
        const char *where = "";
        double worst = -1;
        ck_ok(dfgnn_edge_mlp_check(&worst, &where, &mlp, graph,
                                   pass ? &c.backward : &c.forward,
                                   (dfgnn_pass)pass));
        ck_assert_msg(worst <= 1, "%s, pass %d: %s is %g bounds off", v->name,
                      pass, where, worst);
      }
      ran++;
    }
    mlp_free(&c);
  }
  ck_assert_int_ge(ran, 36); /* 12 of the portable ones, for each type */
  dfgnn_graph_destroy(graph);
  dfgnn_context_destroy(ctx);
}
END_TEST

START_TEST(a_plan_refuses_the_tensors_of_another_problem) {
  const dfgnn_edge_mlp mlp = mesh(DFGNN_F32);
  dfgnn_context *ctx = context_on("cpu", "", 1);
  dfgnn_graph *graph = graph_in(ctx);
  dfgnn_problem problem = DFGNN_PROBLEM_INIT;
  dfgnn_args call = DFGNN_ARGS_INIT;
  dfgnn_plan *plan;
  mlp_case c;
  mlp_make(&c, &mlp, NODES, NODES, EDGES, 0, 5);
  ck_ok(dfgnn_edge_mlp_problem(&problem, &mlp, &c.forward, DFGNN_PASS_FORWARD));
  ck_ok(dfgnn_plan_create(&plan, ctx, graph, &problem));
  ck_assert_int_eq(dfgnn_plan_source(plan), DFGNN_SOURCE_RULE);
  call.mlp = &mlp;
  call.mlp_args = &c.forward;
  ck_ok(dfgnn_execute(plan, &call, NULL, NULL));
  c.forward.src_part = NULL;
  ck_fails(dfgnn_execute(plan, &call, NULL, NULL), DFGNN_ERROR_INVALID,
           "parts=dst");
  call.mlp = NULL;
  ck_fails(dfgnn_execute(plan, &call, NULL, NULL), DFGNN_ERROR_INVALID, "mlp");
  dfgnn_plan_destroy(plan);
  problem.mlp = NULL;
  ck_fails(dfgnn_plan_create(&plan, ctx, graph, &problem), DFGNN_ERROR_INVALID,
           "problem.mlp is NULL");
  problem.mlp = (const struct dfgnn_mlp_shape *)&mlp;
  ck_fails(dfgnn_plan_create(&plan, ctx, graph, &problem), DFGNN_ERROR_INVALID,
           "no shape of an MLP");
  mlp_free(&c);
  dfgnn_graph_destroy(graph);
  dfgnn_context_destroy(ctx);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("mlp problem");
  TCase *tc = tcase_create("mlp problem");
  tcase_set_timeout(tc, 300);
  tcase_add_test(tc, a_text_comes_back_without_its_defaults);
  tcase_add_test(tc, a_wrong_text_is_refused_with_what_was_expected);
  tcase_add_test(tc, an_mlp_is_in_the_key_and_comes_back_from_a_row);
  tcase_add_test(tc, a_call_is_the_problem_of_its_text);
  tcase_add_test(tc, every_variant_is_right);
  tcase_add_test(tc, a_plan_refuses_the_tensors_of_another_problem);
  suite_add_tcase(suite, tc);
  return run_tests(suite);
}
