/* Gradients: the references against finite differences, and what the variants
 * promise beside agreeing with them. */
#include <math.h>

#include "lib/views.h"
#include "tests/common/messages.h"
#include "tests/common/session.h"

/* ---- finite differences -------------------------------------------------- */

enum { N = 6, M = 5, E = 15, HEADS = 2, DIM = 3, MASKED = 4, MOST = 64 };

/* Row 1 is isolated, row 2 has an edge twice, only row 4 attends to source 3.
 */
static const int32_t offsets[N + 1] = {0, 3, 3, 7, 9, 12, 15};
static const int32_t indices[E] = {0, 1, 4, 2, 0, 0, 1, 4, 2, 3, 3, 1, 0, 2, 4};

typedef struct fixture {
  dfgnn_problem forward, backward;
  dfgnn_matrix matrix;
  dfgnn_view transpose;
  dfgnn_args args; /* every tensor of both passes */
  void *memory[MOST];
  int count;
  unsigned state;
} fixture;

static double number(fixture *f) {
  f->state = f->state * 1664525u + 1013904223u;
  return (double)(f->state >> 8) / (1 << 23) - 1;
}

static int64_t elements(const dfgnn_tensor *t, const dfgnn_problem *problem) {
  return dfgnn__tensor_elements(t, problem, N, M, E);
}

/* Allocates doubles, whose memory serves for integers, too. */
static double *allocate(fixture *f, int64_t count) {
  double *memory = calloc((size_t)count + 1, sizeof *memory);
  ck_assert_int_lt(f->count, MOST);
  f->memory[f->count++] = memory;
  return memory;
}

static void allocate_all(fixture *f, const dfgnn_problem *problem) {
  const dfgnn_operator *op = dfgnn__operator(problem->op, problem->pass);
  for (const dfgnn_tensor *t = op->tensors; t->name; t++) {
    void **slot = dfgnn__tensor_slot(t, &f->args);
    if (*slot || !dfgnn__tensor_used(t, problem))
      continue;
    int64_t count = elements(t, problem);
    double *numbers = *slot = allocate(f, count);
    for (int64_t i = 0; i < count && t->element != DFGNN_ELEMENT_INDEX; i++)
      numbers[i] = number(f);
  }
}

/* Calls a reference and returns its results, which have memory of their own. */
static dfgnn_args refer(fixture *f, const dfgnn_problem *problem) {
  const dfgnn_operator *op = dfgnn__operator(problem->op, problem->pass);
  dfgnn_args complete;
  dfgnn_expected expected = {.row_count = N,
                             .column_count = M,
                             .transpose = &f->transpose,
                             .to = DFGNN_ARGS_INIT};
  for (const dfgnn_tensor *t = op->tensors; t->name; t++)
    if (!dfgnn__role_reads(t->role) && dfgnn__tensor_used(t, problem))
      *dfgnn__tensor_slot(t, &expected.to) = allocate(f, elements(t, problem));
  ck_ok(dfgnn__args_complete(&complete, &f->args, problem));
  ck_ok(op->reference(problem, &f->matrix, &complete, &expected));
  return expected.to;
}

static void forget(fixture *f, int count) {
  while (f->count > count)
    free(f->memory[--f->count]);
}

static const dfgnn_tensor *tensor(const dfgnn_problem *problem,
                                  const char *name) {
  const dfgnn_operator *op = dfgnn__operator(problem->op, problem->pass);
  int i = dfgnn__tensor_find(op, name);
  return i < 0 ? NULL : &op->tensors[i];
}

/* The sum of every output times its gradient; an lse of -inf adds nothing. */
static double loss(fixture *f) {
  int before = f->count;
  dfgnn_args results = refer(f, &f->forward);
  const dfgnn_operator *op = dfgnn__operator(f->backward.op, f->backward.pass);
  double sum = 0;
  for (const dfgnn_tensor *t = op->tensors; t->name; t++) {
    if (strncmp(t->name, "grad_", strlen("grad_")) ||
        (t->role != DFGNN_ROLE_INPUT && t->role != DFGNN_ROLE_MODIFIER))
      continue;
    const double *gradient = *dfgnn__tensor_slot(t, &f->args);
    const double *out = *dfgnn__tensor_slot(
        tensor(&f->forward, t->name + strlen("grad_")), &results);
    for (int64_t i = 0; i < elements(t, &f->backward); i++)
      sum += isinf(out[i]) ? 0 : gradient[i] * out[i];
  }
  forget(f, before);
  return sum;
}

/* Copies forward's results to where backward reads them. */
static void save(fixture *f) {
  int before = f->count;
  dfgnn_args results = refer(f, &f->forward);
  const dfgnn_operator *op = dfgnn__operator(f->backward.op, f->backward.pass);
  for (const dfgnn_tensor *t = op->tensors; t->name; t++) {
    if (t->role != DFGNN_ROLE_SAVED)
      continue;
    const double *from = *dfgnn__tensor_slot(t, &results);
    void *to = *dfgnn__tensor_slot(t, &f->args);
    for (int64_t i = 0; i < elements(t, &f->backward); i++)
      if (t->element == DFGNN_ELEMENT_INDEX)
        ((int32_t *)to)[i] = (int32_t)from[i];
      else
        ((double *)to)[i] = from[i];
  }
  forget(f, before);
}

enum { BIAS = 1, DROPOUT = 2, MASK = 4, CASES = 8 };

/* Row MASKED and an edge of row 0 have a bias of -inf. */
static void mask(fixture *f) {
  double *bias = (double *)f->args.bias;
  for (int32_t e = 0; e < E; e++)
    for (int h = 0; h < HEADS; h++)
      if (e == 1 || (e >= offsets[MASKED] && e < offsets[MASKED + 1]))
        bias[e * HEADS + h] = -INFINITY;
}

static void open_fixture(fixture *f, const dfgnn_problem *base, int flags) {
  dfgnn_problem problem = *base;
  *f = (fixture){.matrix = {.destinations = N,
                            .sources = M,
                            .edges = E,
                            .max_degree = 4,
                            .offsets = offsets,
                            .indices = indices},
                 .transpose = {.request = {.kind = DFGNN_VIEW_TRANSPOSE}},
                 .args = DFGNN_ARGS_INIT,
                 .state = shape_seed() + (unsigned)base->op};
  problem.dtype = DFGNN_F64;
  problem.heads = HEADS;
  problem.dim = DIM;
  problem.bias = flags & BIAS;
  problem.dropout = flags & DROPOUT;
  ck_ok(dfgnn__problem_complete(&f->forward, &problem));
  problem.pass = DFGNN_PASS_BACKWARD;
  ck_ok(dfgnn__problem_complete(&f->backward, &problem));
  ck_ok(dfgnn__view_build(&f->transpose, &f->matrix));
  allocate_all(f, &f->forward);
  allocate_all(f, &f->backward);
  f->args.dropout = flags & DROPOUT ? 0.4 : 0;
  f->args.seed_value = 3;
  if (flags & MASK)
    mask(f);
  save(f);
}

static void close_fixture(fixture *f) {
  forget(f, 0);
  for (int k = 0; k < 4; k++)
    free((void *)f->transpose.array[k]);
}

static void check_gradient(fixture *f, const dfgnn_tensor *gradient,
                           const double *found) {
  const double step = 1e-5;
  const dfgnn_tensor *t = tensor(&f->forward, gradient->name + strlen("grad_"));
  double *x = *dfgnn__tensor_slot(t, &f->args);
  for (int64_t i = 0; i < elements(t, &f->forward); i++) {
    double here = x[i], expected = 0;
    if (isfinite(here)) {
      x[i] = here + step;
      expected = loss(f);
      x[i] = here - step;
      expected = (expected - loss(f)) / (2 * step);
      x[i] = here;
    }
    ck_assert_msg(fabs(found[i] - expected) <= 1e-7 * (1 + fabs(expected)),
                  "%s: %s[%d] is %.12g, by differences %.12g",
                  dfgnn_name(DFGNN_NAMES_OP, f->forward.op), gradient->name,
                  (int)i, found[i], expected);
  }
}

/* Returns the number of gradients. */
static int check_gradients(const dfgnn_problem *problem, int flags) {
  const dfgnn_operator *o = dfgnn__operator(problem->op, DFGNN_PASS_BACKWARD);
  int gradients = 0;
  fixture f;
  open_fixture(&f, problem, flags);
  dfgnn_args results = refer(&f, &f.backward);
  for (const dfgnn_tensor *t = o->tensors; t->name; t++)
    if (t->role == DFGNN_ROLE_GRADIENT && dfgnn__tensor_used(t, &f.backward)) {
      check_gradient(&f, t, *dfgnn__tensor_slot(t, &results));
      gradients++;
    }
  close_fixture(&f);
  return gradients;
}

TEST_LOOP(reference_gradients_are_those_of_finite_differences, 0,
          (int)DFGNN_OP_COUNT *CASES) {
  dfgnn_problem problem = PROBLEM(.op = (dfgnn_op)(_i / CASES));
  int flags = _i % CASES, attention = DFGNN_OPS_ATTENTION >> problem.op & 1;
  if ((!attention && flags) || (flags & MASK && !(flags & BIAS)))
    return;
  ck_assert_int_gt(check_gradients(&problem, flags), 0);
}

enum { KINDS = MESSAGE_COUNT(message_kinds) };

TEST_LOOP(gradients_of_messages_are_those_of_finite_differences, 0,
          KINDS *MESSAGE_COUNT(message_ops)) {
  dfgnn_problem problem =
      PROBLEM(.op = message_ops[_i / KINDS],
              .message = message_kinds[_i % KINDS].message,
              .edge_dim = message_kinds[_i % KINDS].edge_dim);
  ck_assert_int_gt(check_gradients(&problem, 0), 1);
}

/* ---- edge features ------------------------------------------------------- */

typedef struct edge_case {
  dfgnn_op op;
  int64_t edge_dim;
  dfgnn_edge_use use;
  int gradients; /* their number, without that of the bias */
} edge_case;

static const edge_case edge_cases[] = {
    {.op = DFGNN_OP_GT, .edge_dim = 5, .gradients = 6},
    {.op = DFGNN_OP_GT, .edge_dim = 5, .use = DFGNN_EDGE_KEYS, .gradients = 6},
    {.op = DFGNN_OP_GT,
     .edge_dim = 5,
     .use = DFGNN_EDGE_VALUES,
     .gradients = 6},
    {.op = DFGNN_OP_GT, .edge_dim = DFGNN_EDGE_PROJECTED, .gradients = 4},
    {.op = DFGNN_OP_GT,
     .edge_dim = DFGNN_EDGE_PROJECTED,
     .use = DFGNN_EDGE_KEYS,
     .gradients = 4},
    {.op = DFGNN_OP_GT,
     .edge_dim = DFGNN_EDGE_PROJECTED,
     .use = DFGNN_EDGE_VALUES,
     .gradients = 4},
    {.op = DFGNN_OP_GATV2, .edge_dim = 5, .gradients = 6},
    {.op = DFGNN_OP_GATV2, .edge_dim = DFGNN_EDGE_PROJECTED, .gradients = 4},
    {.op = DFGNN_OP_GAT, .edge_dim = DFGNN_EDGE_PROJECTED, .gradients = 4},
};
enum { EDGE_CASES = sizeof edge_cases / sizeof *edge_cases };

static dfgnn_problem problem_of(const edge_case *c) {
  return PROBLEM(.op = c->op, .edge_dim = c->edge_dim, .edge_use = c->use);
}

TEST_LOOP(gradients_with_edge_features_are_those_of_finite_differences, 0,
          2 * EDGE_CASES) {
  const edge_case *c = &edge_cases[_i / 2];
  dfgnn_problem problem = problem_of(c);
  int all = _i % 2;
  ck_assert_int_eq(check_gradients(&problem, all ? BIAS | DROPOUT | MASK : 0),
                   c->gradients + all);
}

/* Row d of W times the features of edge e, plus b. */
static double projected(const fixture *f, int e, int head, int d) {
  const double *attr = f->args.edge_attr, *w = f->args.edge_projection;
  int64_t features = f->forward.edge_dim;
  int at = head * DIM + d;
  if (features < 0)
    return attr[e * HEADS * DIM + at];
  double sum = ((const double *)f->args.edge_bias)[at];
  for (int k = 0; k < features; k++)
    sum += w[at * features + k] * attr[e * features + k];
  return sum;
}

/* Every edge gets a source of its own, whose key and value have the features
 * of the edge added: attention without edge features computes the same. */
static void check_own_sources(fixture *f) {
  const double *key = f->args.key, *value = f->args.value;
  double k[E * HEADS * DIM], v[E * HEADS * DIM];
  int32_t own[E];
  dfgnn_problem plain = f->forward;
  dfgnn_matrix matrix = f->matrix;
  dfgnn_args args = f->args;
  int keys = plain.edge_dim && plain.edge_use != DFGNN_EDGE_VALUES;
  int values = plain.edge_dim && plain.edge_use != DFGNN_EDGE_KEYS;
  for (int e = 0; e < E; e++)
    for (int h = 0; h < HEADS; h++) {
      int from = (indices[e] * HEADS + h) * DIM, to = (e * HEADS + h) * DIM;
      own[e] = e;
      memcpy(k + to, key + from, DIM * sizeof *k);
      for (int d = 0; d < DIM; d++) {
        k[to + d] += keys ? projected(f, e, h, d) : 0;
        v[to + d] = value[from + d] + (values ? projected(f, e, h, d) : 0);
      }
    }
  dfgnn_args with = refer(f, &f->forward);
  plain.edge_dim = 0;
  plain.edge_use = DFGNN_EDGE_BOTH;
  args.key = k;
  args.value = v;
  matrix.sources = E;
  matrix.indices = own;
  fixture other = *f;
  other.forward = plain;
  other.args = args;
  other.matrix = matrix;
  dfgnn_args without = refer(&other, &plain);
  memcpy(f->memory, other.memory, sizeof f->memory);
  f->count = other.count;
  const struct {
    const double *found, *expected;
    int count;
  } results[] = {{with.out, without.out, N * HEADS * DIM},
                 {with.lse, without.lse, N * HEADS}};
  for (int r = 0; r < 2; r++)
    for (int i = 0; i < results[r].count; i++) {
      double x = results[r].found[i], y = results[r].expected[i];
      ck_assert_msg(x == y || fabs(x - y) <= 1e-12 * (1 + fabs(y)),
                    "%s[%d] is %.15g, expected %.15g", r ? "lse" : "out", i, x,
                    y);
    }
}

TEST_LOOP(edge_features_are_as_if_each_edge_had_a_source_of_its_own, 0,
          EDGE_CASES) {
  dfgnn_problem problem = problem_of(&edge_cases[_i]);
  fixture f;
  if (problem.op != DFGNN_OP_GT)
    return;
  open_fixture(&f, &problem, BIAS | DROPOUT);
  check_own_sources(&f);
  close_fixture(&f);
}

/* ---- variants ------------------------------------------------------------ */

static void open_op(session *s, dfgnn_op op, dfgnn_pass pass, int which,
                    int threads) {
  const dfgnn_problem problem =
      PROBLEM(.op = op, .pass = pass, .heads = HEADS, .dim = 20,
              .dropout = DFGNN_OPS_ATTENTION >> op & 1);
  s->shape = shape_make(which, shape_seed());
  s->ctx = context_on("cpu", "", threads);
  open_session(s, &problem);
}

static void execute_by(session *s, const char *variant,
                       const dfgnn_args *args) {
  execute(s, forced_on(s->ctx, s->graph, &s->problem, variant), args);
}

/* Asserts that a gradient that is wanted alone is as it is among all. */
static void check_alone(session *s, const char *variant,
                        const dfgnn_tensor *wanted) {
  dfgnn_args all = *dfgnn__harness_args(s->harness), one = all;
  size_t bytes = bytes_of(s, wanted);
  float *expected = zeros_of((int64_t)bytes, 1);
  float *found = zeros_of((int64_t)bytes, 1);
  double rms = 0;
  execute_by(s, variant, &all);
  memcpy(expected, *dfgnn__tensor_slot(wanted, &all), bytes);
  for (const dfgnn_tensor *t = operator_of(s)->tensors; t->name; t++)
    if (t->role == DFGNN_ROLE_GRADIENT && t != wanted)
      *dfgnn__tensor_slot(t, &one) = NULL;
  *dfgnn__tensor_slot(wanted, &one) = found;
  execute_by(s, variant, &one);
  size_t count = bytes / sizeof *found;
  for (size_t i = 0; i < count; i++)
    rms += (double)expected[i] * expected[i] / (double)count;
  for (size_t i = 0; i < count; i++)
    ck_assert_msg(fabsf(found[i] - expected[i]) <=
                      1e-5 * (fabs((double)expected[i]) + sqrt(rms)),
                  "%s: %s[%zu] is %g alone, %g among all", variant,
                  wanted->name, i, (double)found[i], (double)expected[i]);
}

TEST_LOOP(each_gradient_can_be_asked_for_alone, 0, DFGNN_OP_COUNT) {
  const dfgnn_operator *op = dfgnn__operator((dfgnn_op)_i, DFGNN_PASS_BACKWARD);
  session s;
  int checks = 0;
  open_op(&s, (dfgnn_op)_i, DFGNN_PASS_BACKWARD, 4, 2);
  for (size_t i = 0; i < dfgnn__variant_count(); i++)
    for (const dfgnn_tensor *t = op->tensors; t->name; t++)
      if (t->role == DFGNN_ROLE_GRADIENT && dfgnn__tensor_used(t, &s.problem) &&
          applies(dfgnn__variant(i), s.graph, &s.problem)) {
        check_alone(&s, dfgnn__variant(i)->name, t);
        checks++;
      }
  ck_assert_int_gt(checks, 0);
  close_session(&s);
}

/* Gradients of parameters are summed in an order that no thread changes. */
TEST_LOOP(parameters_have_the_same_gradient_for_any_number_of_threads, 0,
          DFGNN_OP_GATV2 + 1) {
  session one, three;
  int compared = 0;
  if (_i != DFGNN_OP_AGNN && _i != DFGNN_OP_GATV2)
    return;
  open_op(&one, (dfgnn_op)_i, DFGNN_PASS_BACKWARD, 4, 1);
  open_op(&three, (dfgnn_op)_i, DFGNN_PASS_BACKWARD, 4, 3);
  const dfgnn_args *a = dfgnn__harness_args(one.harness);
  const dfgnn_args *b = dfgnn__harness_args(three.harness);
  for (size_t i = 0; i < dfgnn__variant_count(); i++) {
    const dfgnn_variant *v = dfgnn__variant(i);
    if (!applies(v, one.graph, &one.problem))
      continue;
    execute_by(&one, v->name, a);
    execute_by(&three, v->name, b);
    ck_assert_msg(
        _i == DFGNN_OP_AGNN
            ? !memcmp(a->grad_beta, b->grad_beta, sizeof(float))
            : !memcmp(a->grad_att, b->grad_att, HEADS * 20 * sizeof(float)),
        "%s differs between one thread and three", v->name);
    compared++;
  }
  ck_assert_int_gt(compared, 0);
  close_session(&one);
  close_session(&three);
}

/* ---- dropout ------------------------------------------------------------- */

TEST(dropout_follows_its_seed_wherever_that_is) {
  session s;
  uint64_t seed = 12345;
  open_op(&s, DFGNN_OP_GT, DFGNN_PASS_FORWARD, 6, 1);
  dfgnn_args args = *dfgnn__harness_args(s.harness);
  size_t bytes = bytes_of(&s, tensor(&s.problem, "out"));
  char *by_value = zeros_of((int64_t)bytes, 1);
  const char *variant =
      "cpu.attention.fwd.online/simd=portable,prefetch=0,schedule=serial";

  args.seed_value = seed;
  execute_by(&s, variant, &args);
  memcpy(by_value, args.out, bytes);
  args.seed_value = 1;
  args.seed = &seed;
  execute_by(&s, variant, &args);
  ck_assert(!memcmp(by_value, args.out, bytes));
  seed++;
  execute_by(&s, variant, &args);
  ck_assert(memcmp(by_value, args.out, bytes) != 0);
  close_session(&s);
}

/* Where all values are 1, out is the sum of the kept weights, over 1 - p. */
TEST(dropout_keeps_the_mean_of_out) {
  session s;
  double sum = 0;
  open_op(&s, DFGNN_OP_GT, DFGNN_PASS_FORWARD, 6, 1);
  int64_t rows = s.graph->matrix.destinations;
  ck_ok(dfgnn__harness_set(s.harness, "value", 0, -1, 1));
  dfgnn_args args = *dfgnn__harness_args(s.harness);
  execute_by(
      &s, "cpu.attention.fwd.online/simd=portable,prefetch=0,schedule=serial",
      &args);
  for (int64_t i = 0; i < rows * HEADS; i++)
    sum += (double)((const float *)args.out)[i * 20];
  sum /= (double)(rows * HEADS);
  ck_assert_msg(fabs(sum - 1) < 0.1, "the mean of out is %g", sum);
  close_session(&s);
}

TEST_MAIN("cpu", .timeout = 60)
