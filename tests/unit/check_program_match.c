/* Programs that are operators of the library, and programs that nearly are. */
#include "kernels/program/match.h"
#include "tests/common/programs.h"

typedef struct expected {
  const char *text;
  dfgnn_op op;
  const char *arguments; /* of the inputs in order */
  const char *outputs;
  double scale, slope, dropout;
  int64_t edge_dim;
  dfgnn_edge_use edge_use;
  dfgnn_message message;
} expected;

/* An expected row names the operator, its arguments, and all else that is not
 * 0. */
#define IS(of, named, ...)                                                     \
  .op = DFGNN_OP_##of, .arguments = named, ##__VA_ARGS__

/* Attention as its users write it: names, order and axes of size 1 differ. */
static const expected operators[] = {
    {.text = "dst q[2,8]; src k[2,8], v[2,8]\n"
             "out = sum_in(softmax_in(0.35 * sum(k * q)) * v)",
     IS(GT, "query,key,value", .scale = 0.35)},
    {.text = "dst q[8]; src k[8]\n"
             "out = sum_in(k * softmax_in(dot(q, k)))",
     IS(GT, "query,key value", .scale = 1)},
    {.text = "dst a[2,8]; src b[2,8], c[2,8]; edge d[2,8], w[2,1]\n"
             "s = w + sum((d + b) * a) / 4\n"
             "return o = sum_in((d + c) * dropout(softmax_in(s), 0.2)),\n"
             "  l = logsumexp_in(s)",
     IS(GT, "query,key,value,edge_attr,bias", .outputs = "out,lse",
        .scale = 0.25, .dropout = 0.2, .edge_dim = DFGNN_EDGE_PROJECTED)},
    /* sums that drop their axis, as torch's do */
    {.text = "dst q[4,8]; src k[4,8], v[4,8]; edge e[4,8]\n"
             "s = reshape(sum(q * (k + e)), [4]) * 0.5\n"
             "out = sum_in(reshape(softmax_in(s), [4,1]) * v)",
     IS(GT, "query,key,value,edge_attr", .scale = 0.5,
        .edge_dim = DFGNN_EDGE_PROJECTED, .edge_use = DFGNN_EDGE_KEYS)},
    {.text = "dst q[16]; src k[16], v[2,8]; edge e[3]; param W[16,3], b[16]\n"
             "x = reshape(linear(e, W, b), [2,8])\n"
             "w = softmax_in(sum(reshape(q, [2,8]) * reshape(k, [2,8])) * .3)\n"
             "return out = reshape(sum_in(w * (v + x)), [16]), w = w",
     IS(GT, "query,key,value,edge_attr,edge_projection,edge_bias",
        .outputs = "out,weights", .scale = 0.3, .edge_dim = 3,
        .edge_use = DFGNN_EDGE_VALUES)},
    {.text = "dst x[2,5]; src y[2,5]; param a[2,5]\n"
             "out = sum_in(softmax_in(dot(a, leaky_relu(y + x, .1))) * y)",
     IS(GATV2, "query,value,att", .slope = 0.1)},
    {.text = "dst x[5]; src y[5]; edge e[4]; param a[5], W[5,4]\n"
             "h = leaky_relu(y + (linear(e, W) + x), .1)\n"
             "out = sum_in(softmax_in(dot(h, a)) * y)",
     IS(GATV2, "query,value,edge_attr,att,edge_projection", .slope = 0.1,
        .edge_dim = 4)},
    {.text = "dst a[3,1]; src b[3,1], h[3,4]; edge c[3,1]\n"
             "out = sum_in(softmax_in(leaky_relu(a + b + c, 0.3)) * h)",
     IS(GAT, "score_dst,score_src,value,score_edge", .slope = 0.3,
        .edge_dim = DFGNN_EDGE_PROJECTED)},
    {.text = "dst a[3]; src b[3], h[3,4]\n"
             "w = softmax_in(leaky_relu(a + b, 0.3))\n"
             "out = sum_in(reshape(w, [3,1]) * h)",
     IS(GAT, "score_dst,score_src,value", .slope = 0.3)},
    {.text = "dst g[6]; src h[6]; param t\n"
             "n = h / max(sqrt(dot(h, h)), 1e-12)\n"
             "c = dot(n, g / max(sqrt(dot(g, g)), 1e-12))\n"
             "out = sum_in(softmax_in(t * c) * h)",
     IS(AGNN, "query,value,beta")},
    {.text = "src h[3,4]; out = sum_in(h)", IS(SPMM_SUM, "value")},
    {.text = "dst r; src h[7], c; out = sum_in(r * h * c)",
     IS(SPMM_SUM, "scale_dst,value,scale_src")},
    {.text = "src h[7]; out = mean_in(h)", IS(SPMM_MEAN, "value")},
    {.text = "src h[2,7]; edge w; out = sum_in(h * w)",
     IS(SPMM_WEIGHTED, "value,edge_weight")},
    {.text = "src h[2,7]; edge w[2]; out = sum_in(h * reshape(w, [2,1]))",
     IS(SPMM_WEIGHTED, "value,edge_weight")},
    {.text = "src h[5]; out = max_in(h)", IS(REDUCE_MAX, "value")},
    {.text = "src h[2,5]; out = min_in(h)", IS(REDUCE_MIN, "value")},
    {.text = "src h[5]; edge e[5]; out = sum_in(relu(e + h))",
     IS(SPMM_SUM, "value,edge_attr", .edge_dim = DFGNN_EDGE_PROJECTED,
        .message = DFGNN_MESSAGE_RELU)},
    {.text = "src h[5]; edge e[2]; param W[5,2], b[5]\n"
             "out = mean_in(relu(linear(e, W, b) + h))",
     IS(SPMM_MEAN, "value,edge_attr,edge_projection,edge_bias", .edge_dim = 2,
        .message = DFGNN_MESSAGE_RELU)},
    {.text = "dst a[5]; src b[5], x[5]; out = sum_in(x * sigmoid(b + a))",
     IS(SPMM_SUM, "gate_dst,gate_src,value", .message = DFGNN_MESSAGE_GATE)},
    {.text = "dst a[5]; src b[5], x[5]; edge e[5]\n"
             "out = min_in(x * sigmoid(e + b + a))",
     IS(REDUCE_MIN, "gate_dst,gate_src,value,edge_attr",
        .edge_dim = DFGNN_EDGE_PROJECTED, .message = DFGNN_MESSAGE_GATE)}};
enum { OPERATORS = sizeof operators / sizeof *operators };

static const char *const near_misses[] = {
    /* the softmax is not that of the score */
    "dst q[8]; src k[8], v[8]; edge b\n"
    "s = dot(q, k)\n"
    "out = sum_in(exp(s + b - logsumexp_in(s)) * v)",
    /* sums over heads, as many as there are features */
    "dst q[4,4]; src k[4,4], v[4,4]\n"
    "out = sum_in(softmax_in(sum(q * k, -2)) * v)",
    /* heads behind features, which the operator would read as if before */
    "dst q[8,2]; src k[8,2], v[2,8]\n"
    "s = reshape(sum(q * k, -2), [2,1])\n"
    "out = sum_in(softmax_in(s) * v)",
    "dst q[D,H]; src k[D,H], v[H,D]; edge b[H,1]\n"
    "s = transpose(sum(q * k, -2), -2, -1)\n"
    "out = sum_in(softmax_in(s / 3 + b) * v)",
    "dst x[4,4]; src y[4,4], v[4,4]; edge f[3]; param W[16,3]\n"
    "e = reshape(linear(f, W), [4,4])\n"
    "s = reshape(sum((y + e) * x, -2), [4,1])\n"
    "out = sum_in(softmax_in(s) * v)",
    /* two scales */
    "dst q[8]; src k[8], v[8]\n"
    "out = sum_in(exp(0.5 * dot(q, k) - logsumexp_in(0.4 * dot(q, k))) * v)",
    /* edges that are not the same in keys and values */
    "dst q[8]; src k[8], v[8]; edge e[8], f[8]\n"
    "out = sum_in(softmax_in(dot(q, k + e)) * (v + f))",
    /* a second output that the operator has not */
    "dst q[8]; src k[8], v[8]\n"
    "return o = sum_in(softmax_in(dot(q, k)) * v), x = sum_in(v)",
    "src v[8]; return o = sum_in(v) * 2",
    /* a scale that reaches nodes without edges */
    "dst r; src v[8]; out = r * sum_in(v)",
    /* out-edges */
    "dst v[8]; out = sum_out(v)",
    /* a softmax for each channel */
    "dst q[8]; src k[8]; out = sum_in(softmax_in(q - k) * k)",
    /* the weights of one head for all features of another layout */
    "dst a[4]; src b[4], h[4,4]\n"
    "out = sum_in(softmax_in(leaky_relu(a + b, 0.2)) * h)",
    /* values of two sides */
    "dst x[5]; src y[5]; param a[5]\n"
    "out = sum_in(softmax_in(dot(a, leaky_relu(x + y, .2))) * (x + y))",
    /* two dropouts */
    "dst q[8]; src k[8], v[8]\n"
    "out = sum_in(dropout(dropout(softmax_in(dot(q, k)), .1), .1) * v)",
    /* a value that is computed before it is summed */
    "src v[8]; out = sum_in(tanh(v))", "src v[8]; out = max_in(v) + 1",
    "src v[8]; edge w[8]; out = sum_in(v * w)",
    "dst a[5]; src b[5], x[5]; out = sum_in(x * tanh(b + a))"};
enum { NEAR_MISSES = sizeof near_misses / sizeof *near_misses };

static dfgnn_edge_operator operator_of(const dfgnn_edge_program *program) {
  dfgnn_edge_operator found = DFGNN_EDGE_OPERATOR_INIT;
  ck_ok(dfgnn_edge_program_operator(&found, program));
  return found;
}

/* The arguments of all inputs, or outputs, with commas between them. */
static void list_arguments(char *text, size_t size,
                           const dfgnn_edge_program *program, int outputs) {
  int count = outputs ? dfgnn_edge_program_output_count(program)
                      : dfgnn_edge_program_input_count(program);
  size_t used = 0;
  text[0] = 0;
  for (int i = 0; i < count; i++) {
    dfgnn_edge_value value = DFGNN_EDGE_VALUE_INIT;
    ck_ok(outputs ? dfgnn_edge_program_output(&value, program, i)
                  : dfgnn_edge_program_input(&value, program, i));
    used += (size_t)snprintf(text + used, size - used, "%s%s", i ? "," : "",
                             value.argument);
  }
}

TEST_LOOP(an_operator_written_as_a_program_is_recognised, 0, OPERATORS) {
  const expected *e = &operators[_i];
  dfgnn_edge_program *program = made(e->text);
  dfgnn_edge_operator found = operator_of(program);
  char arguments[256], outputs[256];
  ck_assert_msg(found.found, "not recognised:\n%s",
                dfgnn_edge_program_text(program));
  ck_assert_int_eq(found.op, e->op);
  ck_assert_int_eq(found.pass, DFGNN_PASS_FORWARD);
  ck_assert_int_eq(found.message, e->message);
  ck_assert_int_eq(found.edge_use, e->edge_use);
  ck_assert_int_eq(found.edge_dim, e->edge_dim);
  ck_assert(found.dropout == e->dropout);
  ck_assert(found.slope == e->slope);
  if (e->op == DFGNN_OP_GT)
    ck_assert_double_eq_tol(found.scale, e->scale, 1e-15);
  list_arguments(arguments, sizeof arguments, program, 0);
  list_arguments(outputs, sizeof outputs, program, 1);
  ck_assert_str_eq(arguments, e->arguments);
  ck_assert_str_eq(outputs, e->outputs ? e->outputs : "out");
}

/* Each row of the table is found by itself: none is shadowed or wrong. */
TEST(each_operator_of_the_table_is_itself) {
  char text[DFGNN_NAMED_TEXT];
  dfgnn_op op;
  int i = 0;
  for (; dfgnn__operator_text(text, &op, i); i++) {
    dfgnn_edge_program *program = made(text);
    dfgnn_edge_operator found = operator_of(program);
    ck_assert_msg(found.found && found.op == op, "%d: %s", found.found, text);
    for (int k = 0; k < dfgnn_edge_program_input_count(program); k++) {
      dfgnn_edge_value value = DFGNN_EDGE_VALUE_INIT;
      ck_ok(dfgnn_edge_program_input(&value, program, k));
      ck_assert_msg(!strcmp(value.name, value.argument), "%s is \"%s\" in:\n%s",
                    value.name, value.argument, text);
    }
  }
  ck_assert_int_gt(i, 30);
}

TEST_LOOP(a_program_that_is_nearly_an_operator_is_none, 0, NEAR_MISSES) {
  dfgnn_edge_program *program = made(near_misses[_i]);
  dfgnn_edge_operator found = operator_of(program);
  ck_assert_msg(!found.found, "taken for %s:\n%s",
                dfgnn_name(DFGNN_NAMES_OP, found.op),
                dfgnn_edge_program_text(program));
}

TEST(sizes_with_names_and_a_scale_of_them_are_the_tensors) {
  dfgnn_edge_program *program =
      made("dst q[H,D]; src k[H,D], v[H,D]\n"
           "out = sum_in(softmax_in(sum(q * k) / sqrt(size([D]))) * v)");
  dfgnn_edge_operator found = operator_of(program);
  ck_assert_int_eq(found.found, 1);
  ck_assert_int_eq(found.heads, 0);
  ck_assert_int_eq(found.dim, 0);
  ck_assert(found.scale == 0);
}

/* ---- what they compute --------------------------------------------------- */

static program_graph a_graph(void) {
  return program_graph_on(context_on("cpu", "", 2), program_csr(40, 60));
}

/* Runs a program twice, as the operator that it is and as itself. */
static void run_both_ways(const dfgnn_edge_program *program,
                          const program_graph *f, const tensors *in,
                          tensors *out) {
  tensors own;
  outputs_of(&own, program, &f->shape, DFGNN_F64);
  ck_ok(dfgnn_edge_program_execute(program, f->graph, in->at, in->count,
                                   out->at, out->count, 42, NULL));
  setenv("DFGNN_PROGRAMS", "own", 1);
  ck_ok(dfgnn_edge_program_execute(program, f->graph, in->at, in->count, own.at,
                                   own.count, 42, NULL));
  unsetenv("DFGNN_PROGRAMS");
  int same = 1;
  for (int i = 0; i < own.count; i++)
    for (int64_t k = 0; k < own.elements[i]; k++) {
      double a = ((double *)out->at[i].data)[k];
      double b = ((double *)own.at[i].data)[k];
      ck_assert_msg(a == b || fabs(a - b) <= 1e-11 * (1 + fabs(b)),
                    "%s[%lld] is %.17g as an operator, %.17g as itself:\n%s",
                    own.value[i].name, (long long)k, a, b,
                    dfgnn_edge_program_text(program));
      same &= a == b;
    }
  /* Their sums have other orders; equal bits would mean that one way ran. */
  if (program && own.elements[0] > 500 && dfgnn_edge_program_hash(program))
    ck_assert_msg(!same || operator_of(program).op >= DFGNN_OP_SPMM_SUM,
                  "the operator did not run:\n%s",
                  dfgnn_edge_program_text(program));
}

TEST_LOOP(both_passes_are_those_of_the_operator, 0, OPERATORS) {
  const expected *e = &operators[_i];
  program_graph f = a_graph();
  dfgnn_edge_program *forward = made(e->text), *kept, *gradient;
  unsigned char first[MOST] = {1};
  uint64_t state = 11;
  tensors in, out, grad_in, grad_out;
  ck_ok(dfgnn_edge_program_keep(&kept, forward, first, NULL));
  own_program(kept);
  ck_ok(dfgnn_edge_program_gradient(&gradient, kept, first, NULL));
  own_program(gradient);
  inputs_of(&in, kept, NULL, NULL, &f.shape, DFGNN_F64, &state);
  outputs_of(&out, kept, &f.shape, DFGNN_F64);
  run_both_ways(kept, &f, &in, &out);
  dfgnn_edge_operator found = operator_of(gradient);
  /* attention whose keys are its values has one gradient of two arguments, and
   * the ties of extremes are shared by programs */
  int shared = strchr(e->arguments, ' ') != NULL;
  int extreme = e->op == DFGNN_OP_REDUCE_MIN || e->op == DFGNN_OP_REDUCE_MAX;
  int scaled = strstr(e->arguments, "scale_") != NULL;
  ck_assert_msg(found.found == !(shared || extreme || scaled),
                "%d, gradient:\n%s", found.found,
                dfgnn_edge_program_text(gradient));
  if (found.found) {
    ck_assert_int_eq(found.op, e->op);
    ck_assert_int_eq(found.pass, DFGNN_PASS_BACKWARD);
    inputs_of(&grad_in, gradient, &in, &out, &f.shape, DFGNN_F64, &state);
    outputs_of(&grad_out, gradient, &f.shape, DFGNN_F64);
    run_both_ways(gradient, &f, &grad_in, &grad_out);
  }
}

TEST_MAIN("program_match", .timeout = 60)
