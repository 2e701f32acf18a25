/* The text of edge programs, their normal form and their gradients. */
#include "tests/unit/fixture.h"

#include "dfgnn_program.h"
#include "kernels/program/lower.h"
#include "kernels/program/make.h"

static const uint8_t all[DFGNN_DAG_INPUTS] = {[0 ... DFGNN_DAG_INPUTS - 1] = 1};

OWNED(dag, dfgnn_dag, dfgnn__dag_free)
OWNED(lowered, dfgnn_lowered, dfgnn__lowered_free)

static dfgnn_dag *parsed(const char *text) {
  dfgnn_dag *dag = NULL;
  ck_ok(dfgnn__dag_parse(&dag, text));
  return own_dag(dag);
}

static dfgnn_dag *kept_of(const dfgnn_dag *dag) {
  dfgnn_dag *kept = NULL;
  ck_ok(dfgnn__dag_kept(&kept, dag, all, all));
  return own_dag(kept);
}

static uint64_t hash_of(const char *text) {
  return dfgnn__dag_hash(parsed(text));
}

static void is_printed(const dfgnn_dag *dag, const char *expected) {
  char *text = test_own(dfgnn__dag_text(dag), free);
  ck_assert_ptr_nonnull(text);
  ck_assert_str_eq(text, expected);
}

/* The printed form of a text. */
static void becomes(const char *text, const char *expected) {
  is_printed(parsed(text), expected);
}

static const char attention[] =
    "dst q[H,D]; src k[H,D], v[H,D]; edge e[H,D], b[H,1]\n"
    "score = sum(q * (k + e)) * 0.25 + b  # scaled\n"
    "out = sum_in(softmax_in(score) * (v + e))\n";

static const char *const programs[] = {
    attention,
    "dst x[D]; src y[D]; param a[D]\n"
    "out = sum_in(softmax_in(dot(a, leaky_relu(x + y, .2))) * y)",
    "dst q[D]; src k[D], v[D]\n"
    "c = dot(q, k) / sqrt(dot(q, q) * dot(k, k) + 1e-6)\n"
    "out = sum_in(softmax_in(c) * v)",
    "dst q[D]; src k[D]; out = max_in(tanh(k - q))",
    "dst x[3]; src y[3], f[D]; edge r[2]; param W[K,D+5], c[K]\n"
    "m = cat(f, y - x, r)\n"
    "return o = max_in(relu(linear(m, W, c))), z = mean_out(elu(m[D:]))",
    "dst t[3]; src u[3]; edge w; param g[K]\n"
    "d = sqrt(sum((t - u) ** 2))\n"
    "b = exp(-square(d - g))\n"
    "return basis = dropout(b * w, 0.1), far = min_in(d),\n"
    "  where_ = sum_out(where(d < 1, softplus(w), gelu(w)))",
    "edge s[H,1], x[H,D]; out = sum_in(softmax(s, -2) * x)",
    "dst x[4]; param p[2,2]; y = reshape(x, [2,2]) + p\n"
    "return y = reshape(y, [4]) - 1, p = sum_all(y)",
    "param p[D]; return p = sum_all(p), one = sum_all(1)"};
enum { PROGRAMS = sizeof programs / sizeof *programs };

/* ---- text ---------------------------------------------------------------- */

TEST_LOOP(what_is_printed_is_the_same_program, 0, PROGRAMS) {
  dfgnn_dag *dag = parsed(programs[_i]);
  char *text = test_own(dfgnn__dag_text(dag), free);
  dfgnn_dag *again = parsed(text);
  ck_assert_msg(dfgnn__dag_hash(again) == dfgnn__dag_hash(dag), "%s", text);
  is_printed(again, text);
}

TEST(a_wrong_text_names_line_and_column_what_was_found_and_expected) {
  static const struct {
    const char *text, *message;
  } wrong[] = {
      {"dst q[D", "found the end of the text, expected \"]\""},
      {"dst q[D]\nout = softmax_in(q, 3)",
       "line 2, column 21: argument 2 of softmax_in, expected at most 1"},
      {"dst q[D], k[3]; out = q + k",
       "line 1, column 25: [D] and [3] do not go together: expected axes"},
      {"dst q; out = q ** q", "column 16: an exponent that is no number"},
      {"x = 1e999", "column 5: found \"1e999\", expected a number"},
      {"dst q; return a=q, a=q", "column 20: a is returned twice"},
      {"dst q, q", "column 8: q is declared twice"},
      {"dst q[2,3,4,5]", "column 13: found a fourth axis"},
      {"dst q[0]", "found an axis of size 0, expected at least 1"},
      {"dst q; y = foo(q)", "column 12: there is no function \"foo\""},
      {"dst q; y = k", "column 12: \"k\" is not declared"},
      {"edge e; return o = e as dst", "\"o\" is a value of edge, which dst"},
      {"@", "column 1: found \"@\""},
      {"\x01", "found byte 0x01"},
      {"dst q; z = leaky_relu(q, q)",
       "argument 2 of leaky_relu is a value that differs from place to place, "
       "expected a number"},
      {"dst q; z = leaky_relu()", "leaky_relu with 0 arguments, expected at "
                                  "least 1"},
      {"dst q[8]; z = q[6:10]", "a slice of 4 from 6 on does not fit into [8]"},
      {"dst q; q = 1", "\"q\" has a value already"},
      {"dst q; z = sum(q, 1)", "axis 1 of sum, expected -1"},
      {"dst q[3]; param w[4,2]; z = linear(q, w)", "a linear map of [3] by"},
      {"dst q[D]; z = reshape(q, [2,D])",
       "[D] cannot be reshaped to [2,D]: expected as many elements"},
      {"dst q[H,D]; z = q[D:]",
       "a slice of 0 from D on does not fit into [H,D]"},
      {"dst q; return sum(q)",
       "\"sum\" has no value: expected NAME or NAME = VALUE"},
      {"edge e; z = dropout(e, 2)", "dropout of probability 2"},
      {"dst q\nreturn q\nz = 1", "line 3, column 1: found \"z\" after return"},
      {"dst return", "found \"return\", expected the name of an input"},
      {"dst q", "the program has no value to return"},
      {"", "the program has no value to return"}};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    dfgnn_dag *dag = NULL;
    ck_assert_msg(dfgnn__dag_parse(&dag, wrong[i].text) == DFGNN_ERROR_INVALID,
                  "%s", wrong[i].text);
    ck_assert_msg(strstr(dfgnn_last_error(), wrong[i].message) != NULL,
                  "'%s' does not hold '%s'", dfgnn_last_error(),
                  wrong[i].message);
    ck_assert(strstr(dfgnn_last_error(), "line ") != NULL);
    ck_assert_ptr_null(dag);
  }
}

static char *repeated(const char *first, const char *text, int times,
                      const char *last) {
  size_t size = strlen(first) + strlen(text) * (size_t)times + strlen(last) + 1;
  char *all_text = zeros_of((int64_t)size, 1), *end = all_text;
  end = stpcpy(end, first);
  for (int i = 0; i < times; i++)
    end = stpcpy(end, text);
  stpcpy(end, last);
  return all_text;
}

TEST(a_hostile_text_is_refused) {
  static const struct {
    const char *first, *text;
    int times;
    const char *last;
    dfgnn_status status;
    const char *message;
  } hostile[] = {
      {"dst q; z = ", "(", 100000, "", DFGNN_ERROR_INVALID, "65 deep"},
      {"dst q; z = ", "-", 100000, "q", DFGNN_ERROR_INVALID, "65 deep"},
      {"dst q; z = ", "exp(", 65, "", DFGNN_ERROR_INVALID, "65 deep"},
      {"dst ", "q", 70, "", DFGNN_ERROR_INVALID, "a name of 70 characters"},
      {"z = ", "1", 70, "", DFGNN_ERROR_INVALID, "a number of 70 characters"},
      {"", " ", DFGNN_DAG_TEXT + 1, "", DFGNN_ERROR_UNSUPPORTED, "bytes"},
      {"dst q; z = q", "+tanh(q)*exp(q)", 10, "", DFGNN_OK, ""},
      {"dst q; z = cat(q", ",q", 16, ")", DFGNN_ERROR_INVALID, "at most 16"}};
  for (size_t i = 0; i < sizeof hostile / sizeof *hostile; i++) {
    dfgnn_dag *dag = NULL;
    char *text = repeated(hostile[i].first, hostile[i].text, hostile[i].times,
                          hostile[i].last);
    if (hostile[i].status)
      ck_fails(dfgnn__dag_parse(&dag, text), hostile[i].status,
               hostile[i].message);
    else
      parsed(text);
  }
}

/* Factors double from line to line: as a list, they would take hours. */
TEST(squares_of_squares_are_powers) {
  char text[512] = "dst q[4]; src k[4]\na0 = q * k\n", *end = strchr(text, 0);
  for (int i = 0; i < 9; i++)
    end += sprintf(end, "a%d = a%d * a%d\n", i + 1, i, i);
  strcpy(end, "out = sum_in(a9)");
  becomes(text, "dst q[4]\nsrc k[4]\n"
                "return out = sum_in(pow(k, 512)) * "
                "where((0 < degree(dst)), pow(q, 512), 0)\n");
  char more[1024] = "dst q\na0 = q\n";
  end = strchr(more, 0);
  for (int i = 0; i < 40; i++)
    end += sprintf(end, "a%d = a%d * a%d\n", i + 1, i, i);
  dfgnn_dag *dag = NULL;
  ck_fails(dfgnn__dag_parse(&dag, more), DFGNN_ERROR_UNSUPPORTED, "multiplied");
}

/* Each line has a factor more than the one before. */
TEST(products_of_ever_more_factors_are_refused) {
  char *text = zeros_of(1 << 18, 1), *end = stpcpy(text, "dst q; z0 = q\n");
  for (int i = 1; i < 2000; i++)
    end += sprintf(end, "z%d = z%d * exp(%d * q)\n", i, i - 1, i);
  dfgnn_dag *dag = NULL;
  ck_fails(dfgnn__dag_parse(&dag, text), DFGNN_ERROR_UNSUPPORTED,
           "factors and terms");
}

TEST(a_program_of_too_many_values_is_refused) {
  char *text = zeros_of(1 << 18, 1), *end = stpcpy(text, "dst q; z0 = q\n");
  for (int i = 1; end - text < DFGNN_DAG_TEXT - 64; i++)
    end += sprintf(end, "z%d=exp(exp(exp(z%d)))\n", i, i - 1);
  dfgnn_dag *dag = NULL;
  ck_fails(dfgnn__dag_parse(&dag, text), DFGNN_ERROR_UNSUPPORTED, "more than");
}

/* ---- normal form --------------------------------------------------------- */

TEST(programs_that_differ_in_writing_are_equal) {
  static const char *const alike[][2] = {
      {"dst q; src k; a = exp(q * k); b = a + a",
       "dst x\nsrc y\nreturn z = 2 * exp(y * x)"},
      {"dst q; z = q * 1 + 0 - 0 * degree(dst)", "dst q; return a = q + 0"},
      {"dst q; z = q - q", "dst q; z = 0 * q"},
      {"dst q; z = q * q * q * q", "dst q; z = (q * q) ** 2"},
      {"dst q; z = q * exp(q) * q * q", "dst q; z = pow(q, 3) * exp(q)"},
      {"dst q[D]; src k[D]; z = sum_in(q * k)",
       "dst q[D]; src k[D]; z = where(0 < degree(dst), q, 0) * sum_in(k)"},
      {"dst q[D]; src k[D]; edge w; z = sum_in(w * dot(q, k))",
       "dst q[D]; src k[D]; edge w\n"
       "z = dot(where(0 < degree(dst), q, 0), sum_in(k * w))"},
      {"src k; z = sum_in(k * degree(dst))",
       "src k; z = degree(dst) * sum_in(k)"},
      {"dst q[D]; z = sum_in(q)",
       "dst q[D]; z = where(0 < degree(dst), q, 0) * degree(dst)"},
      /* nobody sees q where there are no edges */
      {"dst q; src k; edge e; z = e * sum_in(q * k)",
       "dst q; src k; edge e; z = e * q * sum_in(k)"},
      {"param a[D]; edge e; z = sum(a * e)", "param a[D]; edge e; z=e*sum(a)"},
      {"src a; z = max(a, 3)", "src a; z = max(1 + 2, a)"},
      {"dst q[6]; z = cat(q, q)[6:12]", "dst q[6]; z = q[:]"}};
  for (size_t i = 0; i < sizeof alike / sizeof *alike; i++)
    ck_assert_msg(hash_of(alike[i][0]) == hash_of(alike[i][1]), "%s and %s",
                  alike[i][0], alike[i][1]);
}

TEST(programs_that_differ_have_different_hashes) {
  static const char *const different[] = {
      "dst q; z = exp(q)",        "dst q[D]; z = exp(q)",
      "src q; z = exp(q)",        "dst q; z = tanh(q)",
      "dst q; z = exp(2 * q)",    "dst q, k; z = exp(k)",
      "dst q, k; z = exp(q)",     "dst q; return z = exp(q) as edge",
      "edge q; z = sum_in(q)",    "edge q; z = sum_out(q)",
      "dst q; z = pow(q, 3)",     "dst q; z = pow(q, 4)",
      "dst q; z = 0 * q",         "dst q; z = 0",
      "dst q; z = q / q",         "dst q; z = 1",
      "edge q; z = max_in(q)",    "edge q; z = min_in(q)",
      "edge q[3]; z = sum(q)",    "edge q[1,3,1]; z = sum(q, -2)",
      "edge q[3]; z = q[0:2]",    "edge q[3]; z = q[1:3]",
      "edge q; z=dropout(q, .1)", "edge q; z=dropout(q, .2)"};
  enum { COUNT = sizeof different / sizeof *different };
  uint64_t hashes[COUNT];
  for (int i = 0; i < COUNT; i++) {
    hashes[i] = hash_of(different[i]);
    for (int k = 0; k < i; k++)
      ck_assert_msg(hashes[i] != hashes[k], "%s and %s", different[i],
                    different[k]);
  }
}

TEST(the_normal_form_is_printed) {
  becomes("dst q; src k[3]; edge w\n"
          "a = (q + 1) * 2 * 3; s = sum_in(a * k * w)\n"
          "return s, t = sqrt(a) / q as dst[2]\n",
          "dst q\nsrc k[3]\nedge w\n"
          "t1 = 1 + q\n"
          "return s = 6 * sum_in(k * w) * where((0 < degree(dst)), t1, 0),\n"
          "       t = sqrt(6 * t1) / q as dst[2]\n");
}

TEST(axes_are_not_lost_where_values_vanish) {
  ck_assert(hash_of("dst x[5]; y = sum(x - x + 1)") !=
            hash_of("dst x[5]; y = 1"));
  ck_assert(hash_of("dst x[5]; y = sum(x ** 0)") != hash_of("dst x[5]; y = 1"));
  becomes("dst x[5]; y = cat(x * 0, x)[3:7]",
          "dst x[5]\nreturn y = cat(0 * x, x)[3:7]\n");
}

TEST(a_slice_may_begin_where_a_name_says) {
  static const char *const last = "dst x[D]\nreturn y = x[D-2:D-1]\n";
  becomes(last, last);
  dfgnn_dag *gradient;
  ck_ok(dfgnn__dag_gradient(&gradient, parsed(last), all, all));
  own_dag(gradient);
}

TEST(the_gradient_of_a_slice_that_is_whole_has_no_zeros_beside_it) {
  static const dfgnn_edge_size two = {"D", 2};
  dfgnn_edge_program *program, *gradient, *sized;
  ck_ok(dfgnn_edge_program_create(&program, "src x[D]; y = tanh(x)[:2]"));
  ck_ok(dfgnn_edge_program_gradient(&gradient, program, NULL, NULL));
  ck_ok(dfgnn_edge_program_sized(&sized, gradient, &two, 1));
  ck_assert_ptr_null(strstr(dfgnn_edge_program_text(sized), "cat"));
  dfgnn_edge_program_destroy(sized);
  dfgnn_edge_program_destroy(gradient);
  dfgnn_edge_program_destroy(program);
}

TEST(a_sum_over_all_nodes_sees_those_without_edges) {
  static const char *const kept = "dst x\n"
                                  "return y = sum_all(where((0 < degree(dst)), "
                                  "x, 0)) as edge\n";
  becomes(kept, kept);
  becomes("dst x; return y = where(0 < degree(dst), x, 0) as edge",
          "dst x\nreturn y = x as edge\n");
}

/* ---- gradients ----------------------------------------------------------- */

TEST(the_gradient_of_attention_reads_what_was_kept) {
  dfgnn_dag *kept = kept_of(parsed(attention)), *gradient;
  ck_assert_int_eq(kept->output_count, 2);
  static const uint8_t first[2] = {1, 0};
  ck_ok(dfgnn__dag_gradient(&gradient, kept, first, all));
  own_dag(gradient);
  is_printed(gradient,
             "dst q[H,D]\nsrc k[H,D], v[H,D]\nedge e[H,D], b[H,1]\n"
             "dst out[H,D], kept_0[H,1], grad_out[H,D]\n"
             "t1 = k + e\n"
             "t2 = exp(b + 0.25 * sum(q * t1) - kept_0)\n"
             "t3 = grad_out * t2\n"
             "t4 = t2 * sum(grad_out * (v + e)) - t2 * sum(out * grad_out)\n"
             "return grad_q = 0.25 * sum_in(t1 * t4),\n"
             "       grad_k = 0.25 * sum_out(q * t4),\n"
             "       grad_v = sum_out(t3),\n"
             "       grad_e = t3 + 0.25 * q * t4,\n"
             "       grad_b = t4\n");
  const dfgnn_port *kept_input = &gradient->inputs[6];
  ck_assert_str_eq(kept_input->name, "kept_0");
  ck_assert_int_eq(kept_input->role, DFGNN_PORT_OUTPUT);
  ck_assert_int_eq(kept_input->of, 1);
  ck_assert_int_eq(gradient->outputs[3].role, DFGNN_PORT_GRADIENT);
}

TEST_LOOP(gradients_are_programs_that_have_gradients, 0, PROGRAMS) {
  dfgnn_dag *dag = parsed(programs[_i]);
  for (int order = 1; order <= 3; order++) {
    dfgnn_dag *kept = kept_of(dag), *gradient;
    ck_ok(dfgnn__dag_gradient(&gradient, kept, all, all));
    own_dag(gradient);
    ck_assert_int_eq(gradient->output_count, kept->input_count);
    char *text = test_own(dfgnn__dag_text(gradient), free);
    dfgnn_dag *again = parsed(text);
    ck_assert_msg(dfgnn__dag_hash(again) == dfgnn__dag_hash(gradient),
                  "order %d: %s", order, text);
    for (int i = 0; i < kept->input_count; i++)
      ck_assert_int_eq(again->outputs[i].place, kept->inputs[i].place);
    dag = gradient;
  }
}

/* How many steps of a kind look at edges in a walk of a program's gradient. */
static int edge_steps(const char *text, int walk, int kind) {
  dfgnn_dag *kept = kept_of(parsed(text)), *gradient;
  dfgnn_lowered *lowered = NULL;
  int count = 0;
  ck_ok(dfgnn__dag_gradient(&gradient, kept, all, all));
  ck_ok(dfgnn__lower(&lowered, own_dag(gradient)));
  own_lowered(lowered);
  ck_assert_int_eq(lowered->walk_count, 2);
  for (int i = 0; i < lowered->walks[walk].count; i++)
    count += lowered->walks[walk].steps[i].kind == kind &&
             lowered->walks[walk].steps[i].level == DFGNN_LEVEL_EDGE;
  return count;
}

TEST(walks_of_a_gradient_share_numbers_of_heads) {
  static const char shared[] = "dst q[H,D]; src k[H,D], v[H,D]\n"
                               "out = sum_in(softmax_in(sum(q * k)) * v)";
  static const char wide[] =
      "dst q[H,D]; src k[H,D]; out = sum_in(softmax_in(q * k) * k)";
  ck_assert_int_eq(edge_steps(shared, 0, DFGNN_STEP_KEEP), 2);
  ck_assert_int_eq(edge_steps(shared, 1, DFGNN_STEP_KEEP), 0);
  ck_assert_int_eq(edge_steps(shared, 1, DFGNN_STEP_COMPUTE), 0);
  ck_assert_int_eq(edge_steps(wide, 0, DFGNN_STEP_KEEP), 0);
}

TEST_MAIN("program")
