/* Edge programs on graphs: against the evaluation in double with its bound, and
 * gradients against differences. */
#include "tests/common/program_texts.h"
#include "tests/common/programs.h"
#include "tests/common/random_program.h"

#include "kernels/program/cpu/table.h"
#include "lib/edge_program.h"

/* ---- graphs -------------------------------------------------------------- */

static program_graph graph_on_rows(int threads, int rows, int hub) {
  return program_graph_on(context_on("cpu", "", threads),
                          program_csr(rows, hub));
}

static program_graph graph_with(int threads, int hub) {
  return graph_on_rows(threads, 31, hub);
}

static program_graph graph_of(int threads) { return graph_with(threads, 700); }

TEST(an_output_that_is_always_zero_is_told) {
  const unsigned char yes[3] = {1, 1, 1};
  dfgnn_edge_program *program = made("src x[D]; out = sum_in(relu(x))");
  dfgnn_edge_program *first, *second;
  ck_ok(dfgnn_edge_program_gradient(&first, program, yes, yes));
  own_program(first);
  ck_ok(dfgnn_edge_program_gradient(&second, first, yes, yes));
  own_program(second);
  dfgnn_edge_value value = DFGNN_EDGE_VALUE_INIT;
  ck_ok(dfgnn_edge_program_output(&value, first, 0));
  ck_assert_int_eq(value.zero, 0);
  int zeros = 0;
  for (int i = 0; i < dfgnn_edge_program_output_count(second); i++) {
    ck_ok(dfgnn_edge_program_output(&value, second, i));
    ck_assert_int_eq(value.zero, !strcmp(value.name, "grad_x"));
    zeros += value.zero;
  }
  ck_assert_int_eq(zeros, 1);
}

/* ---- evaluation and its bound -------------------------------------------- */

static void is_within_its_bound(const dfgnn_edge_program *program,
                                const program_graph *f, const tensors *in,
                                tensors *out, int order) {
  char what[32];
  snprintf(what, sizeof what, "order %d", order);
  run_program(program, f, in, out);
  are_within_bounds(program, f->graph, in, out, 0, what);
}

/* A program, its gradient and that one's gradient are right. */
static void check_orders(const char *text, const program_graph *f,
                         dfgnn_dtype dtype, int orders) {
  dfgnn_edge_program *forward = made(text);
  tensors in, out, next_in, next_out;
  uint64_t state = 17;
  inputs_of(&in, forward, NULL, NULL, &f->shape, dtype, &state);
  for (int order = 0;; order++) {
    dfgnn_edge_program *kept = kept_of(forward);
    outputs_of(&out, kept, &f->shape, dtype);
    is_within_its_bound(kept, f, &in, &out, order);
    forward = gradient_of(kept);
    inputs_of(&next_in, forward, &in, &out, &f->shape, dtype, &state);
    in = next_in;
    if (order == orders)
      break;
  }
  outputs_of(&next_out, forward, &f->shape, dtype);
}

TEST_LOOP(programs_and_two_gradients_are_within_their_bound, 0, PROGRAMS) {
  program_graph f = graph_of(2);
  check_orders(programs[_i], &f, DFGNN_F32, 2);
  check_orders(programs[_i], &f, DFGNN_F64, 2);
  check_orders(programs[_i], &f, DFGNN_BF16, 1);
  check_orders(programs[_i], &f, DFGNN_F16, 1);
}

TEST_LOOP(a_graph_without_edges_has_values, 0, PROGRAMS) {
  program_graph f = graph_on_rows(2, 3, -1);
  check_orders(programs[_i], &f, DFGNN_F32, 1);
}

/* A row that threads share: within its bound, and with the same bits. */
TEST_LOOP(a_giant_row_is_shared_by_threads, 0, PROGRAMS) {
  program_graph f = graph_with(3, 9000);
  check_orders(programs[_i], &f, DFGNN_F32, 1);
}

TEST(random_programs_are_within_their_bound) {
  const int first = number_of("DFGNN_TEST_SEED", 1);
  program_graph f = graph_with(2, 60);
  for (int i = 0; i < number_of("DFGNN_TEST_PROGRAMS", 20); i++) {
    random_program p;
    random_text(&p, (uint64_t)(first + i));
    fprintf(stderr, "random program %d\n", first + i);
    check_orders(p.text, &f, i % 4 == 3 ? DFGNN_F64 : DFGNN_F32, 1);
  }
}

/* Programs whose slopes and exponents are not what float has. */
TEST(a_constant_is_rounded_too) {
  program_graph f = graph_with(2, 60);
  static const int seeds[] = {500744, 510164};
  for (int i = 0; i < 2; i++) {
    random_program p;
    random_text(&p, (uint64_t)seeds[i]);
    check_orders(p.text, &f, DFGNN_F32, 1);
  }
  check_orders("dst v[64]; out = pow(1e9 * (abs(v) + 1), 2.7)", &f, DFGNN_F32,
               0);
  check_orders("dst v[64]; out = pow(1e-9 * (abs(v) + 1), -1.3)", &f, DFGNN_F32,
               0);
}

/* ---- nodes without edges --------------------------------------------------
 */

/* Sums of nothing: of what is constant at a node, and of what is not. */
static const struct {
  const char *place, *text;
} of_nothing[] = {
    {"dst", "sum_in(v / degree(dst))"},
    {"dst", "sum_in(v * rsqrt(degree(dst)) * rsqrt(degree(src)))"},
    {"dst", "sum_in(v / q)"},
    {"dst", "sum_in(1 / q)"},
    {"dst", "sum_in(q)"},
    {"dst", "sum_in(q - q)"},
    {"dst", "sum_in(0 * q)"},
    {"dst", "sum_in(v * (q / q))"},
    {"dst", "mean_in(v * log(q))"},
    {"dst", "mean_in(exp(1 / q))"},
    {"dst", "sum_in(e * dot(q, v))"},
    {"dst", "sum_in(v * q / dot(q, q))"},
    {"dst", "sum_in(p * q * v)"},
    {"dst", "max_in(1 / q)"},
    {"dst", "min_in(q * v)"},
    {"dst", "sum_in(softmax_in(dot(q, v)) * v / q)"},
    {"dst", "sum_in(tanh(linear(q, w)) * v)"},
    {"src", "sum_out(q / degree(src))"},
    {"src", "sum_out(q / v)"},
    {"src", "mean_out(q * log(v) / v)"},
    {"src", "sum_out(e * dot(q, v))"},
    {"rel", "sum_rel(e / degree(rel))"},
    {"rel", "sum_rel(e * q / r)"},
    {"rel", "mean_rel(v * log(r))"}};
enum { NOTHINGS = sizeof of_nothing / sizeof *of_nothing };

/* Has a node of a place no edges? */
static int is_alone(const program_graph *f, dfgnn_edge_place place,
                    int64_t node) {
  const int32_t *offsets = f->csr.offsets, *indices = f->csr.indices;
  int edges = 0;
  if (place == DFGNN_EDGE_DST)
    return offsets[node] == offsets[node + 1];
  if (place == DFGNN_EDGE_REL)
    return node == RELATIONS - 1;
  for (int64_t e = 0; place == DFGNN_EDGE_SRC && e < f->shape.edges; e++)
    edges += indices[e] == node;
  return place == DFGNN_EDGE_SRC && !edges;
}

/* The numbers of a tensor for each node, edge or relation. */
static int64_t width_of(const tensors *t, int i, const program_graph *f) {
  const int64_t rows[] = {1,
                          1,
                          f->shape.destinations,
                          f->shape.sources,
                          f->shape.edges,
                          f->shape.relations};
  return t->elements[i] / rows[t->value[i].place];
}

/* Sets tensors of nodes to x where these have no edges, and elsewhere to
 * positive numbers; returns how many numbers are x. */
static int set_alone(tensors *t, const program_graph *f, double x) {
  int count = 0;
  for (int i = 0; i < t->count; i++) {
    const int64_t width = width_of(t, i, f);
    for (int64_t k = 0; k < t->elements[i]; k++) {
      const int alone = is_alone(f, t->value[i].place, k / width);
      const double had = dfgnn__number_at(t->at[i].dtype, t->at[i].data, k);
      dfgnn__set_number(t->at[i].dtype, t->at[i].data, k,
                        alone ? x : fabs(had) + 0.5);
      count += alone;
    }
  }
  return count;
}

/* Are the numbers of an output 0 where nodes have no edges? */
static void is_zero_alone(const tensors *t, int i, const program_graph *f,
                          const char *text, double x) {
  const int64_t width = width_of(t, i, f);
  for (int64_t k = 0; k < t->elements[i]; k++) {
    const double found = dfgnn__number_at(t->at[i].dtype, t->at[i].data, k);
    ck_assert_msg(!is_alone(f, t->value[i].place, k / width) || found == 0,
                  "%s: %s is %g at a node without edges, whose values are %g",
                  text, t->value[i].name, found, x);
  }
}

static void check_nothing(const char *text, const char *place, double x) {
  char whole[512];
  program_graph f = graph_with(2, 60);
  tensors in, out, grad_in, grad_out;
  uint64_t state = 7;
  snprintf(whole, sizeof whole,
           "dst q[2]; src v[2]; rel r[2]; edge e[2]; param p, w[2,2]\n"
           "return out = %s as %s[2]",
           text, place);
  dfgnn_edge_program *forward = made(whole);
  inputs_of(&in, forward, NULL, NULL, &f.shape, DFGNN_F32, &state);
  ck_assert_int_gt(set_alone(&in, &f, x), 0);
  outputs_of(&out, forward, &f.shape, DFGNN_F32);
  is_within_its_bound(forward, &f, &in, &out, 0);
  is_zero_alone(&out, 0, &f, text, x);
  dfgnn_edge_program *gradient = gradient_of(forward);
  inputs_of(&grad_in, gradient, &in, &out, &f.shape, DFGNN_F32, &state);
  for (int i = 0; i < grad_in.count; i++)
    if (grad_in.value[i].role == DFGNN_EDGE_COTANGENT) {
      tensors cotangent = {
          1, {grad_in.at[i]}, {grad_in.value[i]}, {grad_in.elements[i]}};
      ck_assert_int_gt(set_alone(&cotangent, &f, NAN), 0);
    }
  outputs_of(&grad_out, gradient, &f.shape, DFGNN_F32);
  is_within_its_bound(gradient, &f, &grad_in, &grad_out, 1);
  for (int i = 0; i < grad_out.count; i++) {
    is_zero_alone(&grad_out, i, &f, text, x);
    for (int64_t k = 0; k < grad_out.elements[i]; k++)
      ck_assert_msg(
          isfinite(dfgnn__number_at(DFGNN_F32, grad_out.at[i].data, k)),
          "%s: %s is not finite", text, grad_out.value[i].name);
  }
}

TEST_LOOP(a_node_without_edges_has_0_whatever_is_there, 0, NOTHINGS) {
  static const double there[] = {0, 1, -INFINITY, INFINITY, NAN};
  for (size_t i = 0; i < sizeof there / sizeof *there; i++)
    check_nothing(of_nothing[_i].text, of_nothing[_i].place, there[i]);
}

/* 0 * x, x - x and x / x are no numbers where x is none. */
TEST(what_is_not_finite_does_not_vanish) {
  static const char *const texts[] = {
      "0 * q",         "q - q",
      "q * 3 - 3 * q", "(q + q) / (q + q)",
      "exp(q) * 0",    "where(q < 0, 1, 2) + 0 * q",
      "sum_in(q - q)", "sum_in(0 * q)"};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    char whole[128];
    program_graph f = graph_with(2, 60);
    tensors in, out;
    uint64_t state = 7;
    snprintf(whole, sizeof whole, "dst q[2]; return out = %s as dst[2]",
             texts[i]);
    dfgnn_edge_program *program = made(whole);
    inputs_of(&in, program, NULL, NULL, &f.shape, DFGNN_F32, &state);
    for (int64_t k = 0; k < in.elements[0]; k++)
      dfgnn__set_number(DFGNN_F32, in.at[0].data, k, k % 3 ? k % 3 : INFINITY);
    outputs_of(&out, program, &f.shape, DFGNN_F32);
    is_within_its_bound(program, &f, &in, &out, 0);
    for (int64_t k = 0; k < out.elements[0]; k++) {
      const double x = dfgnn__number_at(DFGNN_F32, out.at[0].data, k);
      const int sums = !strncmp(texts[i], "sum", 3);
      const int alone = is_alone(&f, DFGNN_EDGE_DST, k / 2);
      ck_assert_msg(!isnan(x) == (k % 3 != 0 || (sums && alone)),
                    "%s is %g at %d", texts[i], x, (int)k);
    }
  }
}

/* The reference has no sums but those of the text. */
TEST(results_are_compared_with_the_text_as_it_is_written) {
  dfgnn_edge_program *program = made("dst q; src v; out = sum_in(v / q)");
  ck_assert_ptr_nonnull(strstr(dfgnn_edge_program_text(program), "where"));
  char *text = dfgnn__dag_text(program->written);
  ck_assert_str_eq(text, "dst q\nsrc v\nreturn out = sum_in(v / q)\n");
  free(text);
}

/* ---- gradients against differences --------------------------------------- */

/* sum(<output, weights>) in double. */
static double loss(const dfgnn_edge_program *program, const program_graph *f,
                   const tensors *in, tensors *out, const tensors *weights) {
  double sum = 0;
  ck_ok(dfgnn_edge_program_execute(program, f->graph, in->at, in->count,
                                   out->at, out->count, 42, NULL));
  for (int i = 0; i < weights->count; i++)
    for (int64_t k = 0; k < out->elements[i]; k++)
      if (isfinite(((double *)out->at[i].data)[k])) /* logsumexp of none */
        sum +=
            ((double *)out->at[i].data)[k] * ((double *)weights->at[i].data)[k];
  return sum;
}

static void move_inputs(tensors *in, const tensors *step, double times) {
  for (int i = 0; i < in->count; i++)
    for (int64_t k = 0; k < in->elements[i]; k++)
      ((double *)in->at[i].data)[k] += times * ((double *)step->at[i].data)[k];
}

static void tensors_like(tensors *t, const tensors *like,
                         const shape_of_graph *shape, uint64_t *state) {
  *t = (tensors){0};
  for (int i = 0; i < like->count; i++) {
    add_tensor(t, &like->value[i], shape, DFGNN_F64);
    fill_tensor(t, i, state);
  }
}

TEST_LOOP(gradients_are_what_differences_say, 0, PROGRAMS) {
  program_graph f = graph_of(2);
  dfgnn_edge_program *forward = made(programs[_i]), *gradient;
  uint64_t state = 3;
  tensors in, out, weights, step, grad_in, grad_out;
  gradient = gradient_of(forward);
  inputs_of(&in, forward, NULL, NULL, &f.shape, DFGNN_F64, &state);
  outputs_of(&out, forward, &f.shape, DFGNN_F64);
  tensors_like(&weights, &out, &f.shape, &state);
  tensors_like(&step, &in, &f.shape, &state);
  loss(forward, &f, &in, &out, &weights);
  inputs_of(&grad_in, gradient, &in, &out, &f.shape, DFGNN_F64, &state);
  for (int i = 0; i < grad_in.count; i++)
    if (grad_in.value[i].role == DFGNN_EDGE_COTANGENT)
      memcpy(grad_in.at[i].data, weights.at[grad_in.value[i].of].data,
             (size_t)grad_in.elements[i] * sizeof(double));
  outputs_of(&grad_out, gradient, &f.shape, DFGNN_F64);
  double slope = loss(gradient, &f, &grad_in, &grad_out, &step);
  const double h = 1e-6;
  move_inputs(&in, &step, h);
  double up = loss(forward, &f, &in, &out, &weights);
  move_inputs(&in, &step, -2 * h);
  double down = loss(forward, &f, &in, &out, &weights);
  double difference = (up - down) / (2 * h);
  ck_assert_msg(fabs(slope - difference) <= 1e-6 * (fabs(slope) + fabs(up) + 1),
                "gradient %.9g, difference %.9g", slope, difference);
  ck_assert(slope != 0);
}

/* ---- promises ------------------------------------------------------------ */

TEST_LOOP(bits_do_not_depend_on_the_number_of_threads, 0, PROGRAMS) {
  tensors in, out[2];
  for (int k = 0; k < 2; k++) {
    program_graph f = graph_with(1 + 3 * k, 9000);
    dfgnn_edge_program *program = made(programs[_i]);
    uint64_t state = 9;
    inputs_of(&in, program, NULL, NULL, &f.shape, DFGNN_F32, &state);
    outputs_of(&out[k], program, &f.shape, DFGNN_F32);
    ck_ok(dfgnn_edge_program_execute(program, f.graph, in.at, in.count,
                                     out[k].at, out[k].count, 1, NULL));
  }
  for (int i = 0; i < out[0].count; i++)
    ck_assert_int_eq(memcmp(out[0].at[i].data, out[1].at[i].data,
                            (size_t)out[0].elements[i] * sizeof(float)),
                     0);
}

/* Runs a program by a plan, with a seed that is passed, or that lies in memory;
 * returns what ran. */
static dfgnn_op run_seeded(const dfgnn_edge_program *program,
                           const program_graph *f, const tensors *in,
                           tensors *out, uint64_t seed, int in_memory,
                           int as_program) {
  dfgnn_problem problem = DFGNN_PROBLEM_INIT;
  dfgnn_args args = DFGNN_ARGS_INIT;
  *(in_memory ? (uint64_t *)(args.seed = &seed) : &args.seed_value) = seed;
  outputs_of(out, program, &f->shape, DFGNN_F32);
  ck_ok(dfgnn_edge_program_call(&problem, &args, program, f->graph, in->at,
                                in->count, out->at, out->count, as_program));
  ck_ok(dfgnn_call(f->ctx, f->graph, &problem, &args, NULL));
  return problem.op;
}

TEST_LOOP(a_seed_in_memory_drops_as_one_that_is_passed, 0, DROPOUTS) {
  program_graph f = graph_with(1, 90);
  dfgnn_edge_program *program = made(dropouts[_i]);
  tensors in, out[3];
  uint64_t state = 4;
  int where = -1;
  inputs_of(&in, program, NULL, NULL, &f.shape, DFGNN_F32, &state);
  for (int k = 0; k < 3; k++) {
    run_seeded(program, &f, &in, &out[k], k < 2 ? 7 : 8, k > 0, 0);
    ck_assert_int_eq(
        bounds_off(program, f.graph, &in, &out[k], 7, 0, &where) <= 1, k < 2);
  }
}

TEST(a_call_that_is_kept_gives_the_same) {
  program_graph f = graph_with(1, 90);
  uint64_t state = 5;
  int operators = 0;
  for (int i = 0; i < DROPOUTS; i++) {
    dfgnn_edge_program *program = made(dropouts[i]);
    tensors in, out[3];
    inputs_of(&in, program, NULL, NULL, &f.shape, DFGNN_F32, &state);
    outputs_of(&out[0], program, &f.shape, DFGNN_F32);
    ck_ok(dfgnn_edge_program_execute(program, f.graph, in.at, in.count,
                                     out[0].at, out[0].count, 7, NULL));
    operators += run_seeded(program, &f, &in, &out[1], 7, 0, 0) == DFGNN_OP_GT;
    ck_assert_int_eq(run_seeded(program, &f, &in, &out[2], 7, 1, 1),
                     DFGNN_OP_PROGRAM);
    ck_assert_int_eq(memcmp(out[0].at[0].data, out[1].at[0].data,
                            (size_t)out[0].elements[0] * sizeof(float)),
                     0);
    for (int k = 0; k < 3; k++) {
      int where = -1;
      ck_assert(bounds_off(program, f.graph, &in, &out[k], 7, 0, &where) <= 1);
    }
  }
  ck_assert_int_gt(operators, 0);
}

TEST(attention_takes_one_walk_and_its_gradient_two) {
  static const struct {
    int program, rows, columns, gradient_rows, gradient_columns;
  } known[] = {
      {0, 1, 0, 1, 1}, {1, 1, 0, 1, 1}, {2, 1, 0, 1, 1}, {7, 1, 1, 2, 1}};
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    int rows = -1, columns = -1;
    dfgnn_edge_program *forward = made(programs[known[i].program]);
    dfgnn_edge_program *kept, *gradient;
    ck_ok(dfgnn_edge_program_walks(&rows, &columns, forward));
    ck_assert_int_eq(rows, known[i].rows);
    ck_assert_int_eq(columns, known[i].columns);
    kept = kept_of(forward);
    unsigned char first[MOST] = {0};
    memset(first, 1, (size_t)dfgnn_edge_program_output_count(forward));
    ck_ok(dfgnn_edge_program_gradient(&gradient, kept, first, NULL));
    own_program(gradient);
    ck_ok(dfgnn_edge_program_walks(&rows, &columns, gradient));
    ck_assert_msg(
        rows == known[i].gradient_rows && columns == known[i].gradient_columns,
        "program %d: %d and %d walks", known[i].program, rows, columns);
  }
}

OWNED(generated, dfgnn_generated, dfgnn__generated_free)

/* Does the second kernel of a program's source call a function?  of_nodes: the
 * type of results of nodes. */
static int second_walk_calls(const char *function,
                             const dfgnn_edge_program *program,
                             dfgnn_dtype dtype, dfgnn_dtype of_nodes) {
  const dfgnn_dag *dag = program->lowered->dag;
  dfgnn_program_job job = program->job[dtype];
  dfgnn_program_array outputs[MOST];
  const dfgnn_program_tuning tuning = {
      .lanes = 8, .group = 8, .unroll = 1, .vector = 1};
  dfgnn_generated *generated = NULL;
  for (int i = 0; i < dag->output_count; i++)
    outputs[i] = (dfgnn_program_array){
        .dtype = dag->outputs[i].place == DFGNN_PLACE_EDGE ? dtype : of_nodes};
  job.outputs = outputs;
  ck_ok(dfgnn__program_generate(&generated, &job, &tuning));
  own_generated(generated);
  const char *walk = strstr(generated->text, "struct walk<1>");
  ck_assert_ptr_nonnull(walk);
  ck_assert_ptr_nonnull(strstr(generated->text, function));
  return strstr(walk, function) != NULL;
}

TEST(rows_that_one_walk_writes_are_read_by_the_next_where_that_is_cheaper) {
  static const char two[] = "dst a[8]; src b[8]; edge e[8]\n"
                            "out = sum_in(silu(e + a + b))";
  /* the second walk gathers one row, which caches may have */
  static const char one[] = "dst a[8]; src b[8]; m = tanh(a * b)\n"
                            "return m = m, in = sum_in(m), out = sum_out(m)";
  /* a product of the value: no sum of what is written */
  static const char product[] =
      "dst a[8]; src b[8]; edge e[8], w\n"
      "m = tanh(e + a * b)\n"
      "return m = m, in = sum_in(m), out = sum_out(m * w)";
  /* whose bits an extreme's gradient compares */
  static const char extreme[] =
      "dst a[8]; src b[8]; edge e[8]; m = tanh(e + a * b)\n"
      "return m = m, most = max_in(m), out = sum_out(m)";
  for (int dtype = 0; dtype < DFGNN_DTYPE_COUNT; dtype++) {
    const int wide = dtype == DFGNN_F32 || dtype == DFGNN_F64;
    const dfgnn_dtype t = (dfgnn_dtype)dtype;
    ck_assert(!second_walk_calls("f_sigmoid", gradient_of(made(two)), t, t));
    ck_assert(second_walk_calls("f_tanh", made(one), t, t));
    ck_assert(second_walk_calls("f_tanh", made(product), t, t));
    ck_assert_int_eq(second_walk_calls("f_tanh", made(extreme), t, t), !wide);
    /* rows of 16 bits are no terms of sums of 32 */
    ck_assert_int_eq(
        second_walk_calls("f_sigmoid", gradient_of(made(two)), t, DFGNN_F32),
        !wide);
  }
}

TEST(tensors_that_do_not_fit_are_named) {
  program_graph f = graph_of(1);
  float data[4096] = {0};
  dfgnn_edge_program *program =
      made("dst q[H,D]; src k[H,D]; edge b[H,1]\n"
           "out = sum_in(softmax_in(sum(q * k) + b) * k)");
  dfgnn_edge_tensor in[] = {{"q", data, DFGNN_F32, 2, {2, 4, 0}},
                            {"k", data, DFGNN_F32, 2, {2, 4, 0}},
                            {"b", data, DFGNN_F32, 2, {2, 1, 0}},
                            {"q", data, DFGNN_F32, 2, {2, 4, 0}}};
  dfgnn_edge_tensor out = {"out", data, DFGNN_F32, 2, {2, 4, 0}};
  int rows;
#define RUN(count, status, text)                                               \
  ck_fails(dfgnn_edge_program_execute(program, f.graph, in, count, &out, 1, 0, \
                                      NULL),                                   \
           status, text)
  RUN(2, DFGNN_ERROR_INVALID, "no tensor for the input \"b\"");
  RUN(4, DFGNN_ERROR_INVALID, "two tensors for the input \"q\"");
  in[1].axes[1] = 5;
  RUN(3, DFGNN_ERROR_INVALID, "k: found an axis of size 5, expected D = 4");
  in[1].axes[1] = -2;
  RUN(3, DFGNN_ERROR_INVALID,
      "k: found an axis of size -2, expected at least 1");
  in[1].axes[1] = 4;
  in[1].rank = 1;
  RUN(3, DFGNN_ERROR_INVALID, "k: found 1 axes after the src's, expected 2");
  in[1].rank = 2;
  in[2].name = "c";
  RUN(3, DFGNN_ERROR_INVALID, "the program has no input \"c\"");
  in[2].name = "b";
  in[2].data = NULL;
  RUN(3, DFGNN_ERROR_INVALID, "b: data is NULL");
  in[2].data = data;
  in[0].dtype = (dfgnn_dtype)8;
  RUN(3, DFGNN_ERROR_INVALID, "q: dtype is 8, expected 0..3");
  in[0].dtype = DFGNN_F32;
  out.axes[0] = 3;
  RUN(3, DFGNN_ERROR_INVALID, "out: found an axis of size 3, expected H = 2");
#undef RUN
  ck_invalid(dfgnn_edge_program_execute(NULL, f.graph, in, 3, &out, 1, 0, NULL),
             "program is NULL");
  ck_invalid(
      dfgnn_edge_program_execute(program, f.graph, NULL, 3, &out, 1, 0, NULL),
      "inputs is NULL, but there are 3");
  ck_invalid(
      dfgnn_edge_program_execute(program, f.graph, in, 3, NULL, 1, 0, NULL),
      "outputs is NULL");
  ck_invalid(dfgnn_edge_program_walks(NULL, &rows, program), "rows is NULL");
  ck_invalid(dfgnn_edge_program_walks(&rows, NULL, program), "columns is NULL");
}

TEST(relations_that_are_wrong_or_missing_are_named) {
  float data[64] = {0};
  int32_t of_edge[4096] = {0};
  dfgnn_context *ctx = context_on("cpu", "", 1);
  int32_t none[4] = {0};
  dfgnn_csr csr = csr32(3, 2, none, none);
  program_graph f = graph_of(1);
  dfgnn_graph *plain = graph_on(ctx, &csr);
  dfgnn_edge_program *program = made("src x; rel a; out = sum_in(a * x)");
  dfgnn_edge_tensor in[] = {{"x", data, DFGNN_F32, 0, {0}},
                            {"a", data, DFGNN_F32, 0, {0}}};
  dfgnn_edge_tensor out = {"out", data, DFGNN_F32, 0, {0}};
  ck_invalid(
      dfgnn_edge_program_execute(program, plain, in, 2, &out, 1, 0, NULL),
      "the graph's edges have none");
  ck_invalid(dfgnn_graph_set_relations(plain, 0, of_edge, 0, NULL),
             "count is 0, expected 1");
  ck_invalid(dfgnn_graph_set_relations(f.graph, 2, of_edge, 0, NULL),
             "the graph has 4 relations already");
  ck_invalid(dfgnn_graph_set_relations(NULL, 2, of_edge, 0, NULL),
             "graph is NULL");
  done(f.graph);
  f.graph = graph_on(f.ctx, &f.csr);
  ck_invalid(dfgnn_graph_set_relations(f.graph, 2, NULL, 0, NULL),
             "of_edge is NULL");
  of_edge[5] = 2;
  ck_invalid(dfgnn_graph_set_relations(f.graph, 2, of_edge, 0, NULL),
             "of_edge[5] is 2, expected 0 to 1");
  ck_ok(dfgnn_graph_set_relations(f.graph, 3, of_edge, 0, NULL));
  ck_ok(dfgnn_edge_program_execute(program, f.graph, in, 2, &out, 1, 0, NULL));
}

TEST(a_linear_map_that_is_too_wide_is_refused) {
  program_graph f = graph_of(1);
  float data[1 << 15] = {0};
  dfgnn_edge_program *program =
      made("src x[D]; param W[K,D]; out = sum_in(linear(x, W))");
  dfgnn_edge_tensor in[] = {{"x", data, DFGNN_F32, 1, {200}},
                            {"W", data, DFGNN_F32, 2, {100, 200}}};
  dfgnn_edge_tensor out = {"out", data, DFGNN_F32, 1, {100}};
  ck_fails(
      dfgnn_edge_program_execute(program, f.graph, in, 2, &out, 1, 0, NULL),
      DFGNN_ERROR_UNSUPPORTED, "takes 20000 products an edge");
}

/* Each instruction set gives what the bound allows. */
TEST(all_instruction_sets_are_there) {
  ck_assert_ptr_nonnull(dfgnn__program_evaluator(0, 0));
  ck_assert_ptr_nonnull(dfgnn__program_evaluator(0, 1));
}

TEST_MAIN("program_run", .timeout = 60)
