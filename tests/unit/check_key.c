/* The key of a problem, which a call and a measurement must share. */
#include "tests/unit/fixture.h"

#include "db/field.h"
#include "dfgnn_program.h"
#include "lib/key.h"

/* If a member of dfgnn_problem were in no key, measurements would answer for
 * problems that differ from theirs.  So a new member is an error here, until it
 * is in the table of db/field.c and in this test. */
#pragma GCC diagnostic push
#pragma GCC diagnostic error "-Wmissing-field-initializers"
static const dfgnn_problem usual = {sizeof usual,
                                    DFGNN_OP_GT,
                                    DFGNN_PASS_FORWARD,
                                    DFGNN_F32,
                                    DFGNN_MATH_F32,
                                    DFGNN_LAYOUT_NHD,
                                    DFGNN_EFFORT_DEFAULT,
                                    1,  /* heads */
                                    64, /* dim */
                                    1,  /* deterministic */
                                    0,  /* weights */
                                    0,  /* cold */
                                    -1, /* max_workspace */
                                    0,  /* bias */
                                    0,  /* dropout */
                                    0,  /* edge_dim */
                                    DFGNN_EDGE_BOTH,
                                    DFGNN_MESSAGE_COPY,
                                    0, /* accumulate */
                                    0, /* edge_list */
                                    NULL /* program */};
#pragma GCC diagnostic pop

static dfgnn_measurement row_of(const dfgnn_problem *problem) {
  dfgnn_measurement row = {.backend = "cpu", .arch = "x", .model = "m"};
  dfgnn__key_fill(&row, problem, 0);
  return row;
}

TEST(a_program_is_in_the_key_and_comes_back_from_a_row) {
  dfgnn_problem problem = DFGNN_PROBLEM_INIT, other, back;
  dfgnn_edge_program *one, *two, *named;
  ck_ok(dfgnn_edge_program_create(
      &one, "src x[8]; edge w\nout = sum_in(w * relu(x))"));
  ck_ok(dfgnn_edge_program_create(
      &two, "src x[8]; edge w\nout = sum_in(w * tanh(x))"));
  ck_ok(dfgnn_edge_program_create(
      &named, "src y[8]; edge b\nz = relu(y); out = sum_in(z * b)"));
  ck_ok(dfgnn_edge_program_problem(&problem, one, DFGNN_F32));
  ck_assert_int_eq(problem.op, DFGNN_OP_PROGRAM);
  ck_assert_int_eq(problem.dim, 8);
  const dfgnn_measurement row = row_of(&problem);
  ck_assert_int_eq(strlen(row.program), 16);
  ck_assert_ptr_eq(strchr(row.program_text, '\n'), NULL);
  ck_ok(dfgnn__key_problem(&back, &row));
  ck_assert_uint_eq(dfgnn_edge_program_hash(back.program),
                    dfgnn_edge_program_hash(one));
  other = problem;
  other.program = two;
  dfgnn_measurement differs = row_of(&other);
  ck_assert(dfgnn__key_sized(&differs) != dfgnn__key_sized(&row));
  ck_assert(!dfgnn__same_problem(&differs, &row));
  other.program = named; /* names do not enter */
  differs = row_of(&other);
  ck_assert(dfgnn__same_problem(&differs, &row));
  differs.program_text = "src x[8]; out = sum_in(exp(x))"; /* another's */
  differs.program = "0123456789abcdef";
  ck_fails(dfgnn__key_problem(&back, &differs), DFGNN_ERROR_UNSUPPORTED,
           "0123456789abcdef");
  dfgnn_edge_program_destroy(one);
  dfgnn_edge_program_destroy(two);
  dfgnn_edge_program_destroy(named);
}

TEST(every_member_of_a_problem_is_in_its_key) {
  const dfgnn_measurement row = row_of(&usual);
  int checked = 0;
#define DIFFERS(member, value)                                                 \
  do {                                                                         \
    dfgnn_problem p = usual, back;                                             \
    p.member = value;                                                          \
    const dfgnn_measurement other = row_of(&p);                                \
    ck_assert_msg(dfgnn__key_sized(&other) != dfgnn__key_sized(&row),          \
                  #member " is not in the hash");                              \
    ck_assert_msg(!dfgnn__same_problem(&other, &row),                          \
                  #member " is not compared");                                 \
    ck_ok(dfgnn__key_problem(&back, &other));                                  \
    ck_assert_msg(back.member == p.member, #member " is lost");                \
    checked++;                                                                 \
  } while (0)
  DIFFERS(op, DFGNN_OP_GAT);
  DIFFERS(pass, DFGNN_PASS_BACKWARD);
  DIFFERS(dtype, DFGNN_F16);
  DIFFERS(math, DFGNN_MATH_TF32);
  DIFFERS(layout, DFGNN_LAYOUT_NDH);
  DIFFERS(heads, 8);
  DIFFERS(dim, 65);
  DIFFERS(deterministic, 0);
  DIFFERS(weights, 1);
  DIFFERS(cold, 1);
  DIFFERS(bias, 1);
  DIFFERS(dropout, 1);
  DIFFERS(edge_dim, 16);
  DIFFERS(edge_dim, DFGNN_EDGE_PROJECTED);
  DIFFERS(edge_use, DFGNN_EDGE_KEYS);
  DIFFERS(message, DFGNN_MESSAGE_GATE);
  ck_assert_int_eq(checked, 16); /* not effort, max_workspace, accumulate,
                                  * edge_list; program has its own test */
}

TEST(offsets_and_edge_features_are_in_the_gate) {
  const dfgnn_measurement row = row_of(&usual);
  dfgnn_measurement other = row;
  dfgnn__key_fill(&other, &usual, 1);
  ck_assert_uint_ne(dfgnn__key_gate(&other), dfgnn__key_gate(&row));
  other = row;
  other.edge_dim = 16;
  ck_assert_uint_ne(dfgnn__key_gate(&other), dfgnn__key_gate(&row));
  ck_assert(!dfgnn__same_problem(&other, &row));
}

TEST(sizes_are_no_part_of_the_gate) {
  dfgnn_problem wide = usual;
  wide.heads = 8;
  wide.dim = 16;
  const dfgnn_measurement row = row_of(&usual), other = row_of(&wide);
  ck_assert_uint_eq(dfgnn__key_gate(&other), dfgnn__key_gate(&row));
}

TEST(names_that_the_library_has_not_are_refused) {
  dfgnn_measurement row = row_of(&usual);
  dfgnn_problem back;
  row.dtype = "f8";
  ck_assert_int_ne(dfgnn__key_problem(&back, &row), DFGNN_OK);
  ck_assert_msg(strstr(dfgnn_last_error(), "f8") != NULL, "%s",
                dfgnn_last_error());
}

TEST(a_difference_is_told_in_words_of_the_measurement) {
  dfgnn_problem measured = usual, wanted = usual;
  char text[256];
  dfgnn_measurement a = row_of(&measured), b = row_of(&wanted);
  dfgnn__key_difference(text, sizeof text, &a, &b);
  ck_assert_str_eq(text, "");
  wanted.dropout = wanted.bias = 1;
  wanted.deterministic = 0;
  wanted.op = DFGNN_OP_GAT;
  wanted.heads = 8; /* a size, not told */
  b = row_of(&wanted);
  dfgnn__key_difference(text, sizeof text, &a, &b);
  ck_assert_str_eq(text, "with operator gt, with determinism, without bias, "
                         "without dropout");
  wanted = usual;
  wanted.edge_dim = 64;
  b = row_of(&wanted);
  measured.edge_dim = 16;
  measured.edge_use = DFGNN_EDGE_KEYS;
  a = row_of(&measured);
  dfgnn__key_difference(text, sizeof text, &a, &b);
  ck_assert_str_eq(text, "with 16 edge features, with edge features of keys");
  dfgnn__key_difference(text, 12, &a, &b); /* no room: cut, not written over */
  ck_assert_str_eq(text, "with 16 edg");
}

TEST(a_problem_is_told_with_its_extras) {
  dfgnn_problem p = usual;
  char text[192];
  dfgnn__key_text(text, sizeof text, &p);
  ck_assert_str_eq(text, "gt forward, 1 heads of 64, f32");
  p.bias = p.dropout = 1;
  p.heads = 8;
  dfgnn__key_text(text, sizeof text, &p);
  ck_assert_str_eq(text,
                   "gt forward, 8 heads of 64, f32, with bias and dropout");
  p = usual;
  p.edge_dim = 11;
  p.edge_use = DFGNN_EDGE_VALUES;
  dfgnn__key_text(text, sizeof text, &p);
  ck_assert_str_eq(text,
                   "gt forward, 1 heads of 64, f32, with 11 edge features "
                   "and edge features of values");
  p = usual;
  p.op = DFGNN_OP_REDUCE_MAX;
  p.edge_dim = DFGNN_EDGE_PROJECTED;
  p.message = DFGNN_MESSAGE_RELU;
  dfgnn__key_text(text, sizeof text, &p);
  ck_assert_str_eq(text, "reduce-max forward, 1 heads of 64, f32, with "
                         "projected edge features and message relu");
}

TEST(only_optional_fields_at_zero_are_left_out) {
  const dfgnn_measurement row = row_of(&usual);
  const dfgnn_fields *fields = &dfgnn__fields[DFGNN_GROUP_PROBLEM];
  int left_out = 0;
  for (size_t i = 0; i < fields->count; i++) {
    left_out += dfgnn__field_is_left_out(&fields->field[i], &row);
    ck_assert_int_eq(dfgnn__field_is_left_out(&fields->field[i], &row),
                     fields->field[i].optional);
    ck_assert_ptr_nonnull(fields->field[i].word);
  }
  ck_assert_int_eq(left_out, 7); /* bias, dropout, edge_dim, edge_use, message,
                                  * program, program_text */
}

TEST_MAIN("key")
