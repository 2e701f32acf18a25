/* Operators that have names: their hashes are those of a golden file, their
 * programs and gradients are right, and programs that equal them are them.
 *
 *   DFGNN_TEST_WRITE=1 tests/unit/check_named       writes the file anew */
#include "lib/key.h"
#include "tests/common/programs.h"

enum { LINE = 256 };

static dfgnn_edge_program *named(const char *name) {
  dfgnn_edge_program *program = NULL;
  ck_ok(dfgnn_edge_program_named(&program, name));
  return own_program(program);
}

/* Two heads and five features. */
static dfgnn_edge_program *sized(const dfgnn_edge_program *program) {
  const dfgnn_edge_size sizes[] = {{"H", 2}, {"D", 5}};
  dfgnn_edge_program *own = NULL;
  ck_ok(dfgnn_edge_program_sized(&own, program, sizes, 2));
  return own_program(own);
}

static void path_of(char *path, size_t size) {
  const char *top = getenv("top_srcdir");
  snprintf(path, size, "%s/tests/unit/named.golden", top ? top : ".");
}

/* The hash that stores have, which no name of a value enters, and one of the
 * text. */
static void put_hashes(FILE *file, const dfgnn_edge_program *program) {
  fprintf(file, " %016llx %016llx",
          (unsigned long long)dfgnn_edge_program_hash(program),
          (unsigned long long)dfgnn__fold_text(
              0, dfgnn_edge_program_text(program)));
}

/* A line for each: its name, the operator that the program is, the hashes of
 * the program and of its gradient. */
static void put_all(FILE *file) {
  const char *name;
  for (int i = 0; (name = dfgnn_edge_program_name(NULL, i)); i++) {
    dfgnn_edge_program *program = named(name);
    dfgnn_edge_operator found = DFGNN_EDGE_OPERATOR_INIT;
    ck_ok(dfgnn_edge_program_operator(&found, program));
    fprintf(file, "%s %s", name,
            found.found ? dfgnn_name(DFGNN_NAMES_OP, found.op) : "program");
    put_hashes(file, program);
    put_hashes(file, gradient_of(kept_of(program)));
    fputc('\n', file);
  }
}

TEST(each_text_and_its_gradient_is_that_of_the_golden_file) {
  char path[4096], line[LINE], expected[LINE];
  path_of(path, sizeof path);
  const int write = number_of("DFGNN_TEST_WRITE", 0);
  FILE *golden = fopen(path, write ? "w" : "r"), *now = tmpfile();
  ck_assert_msg(golden && now, "%s: cannot open", path);
  put_all(write ? golden : now);
  rewind(now);
  for (int n = 1; !write; n++) {
    const char *is = fgets(line, sizeof line, now);
    const char *was = fgets(expected, sizeof expected, golden);
    ck_assert_msg(!is == !was && (!is || !strcmp(is, was)),
                  "%s, line %d:\n%sexpected:\n%s", path, n,
                  is ? is : "nothing\n", was ? was : "nothing\n");
    if (!is)
      break;
  }
  fclose(now);
  ck_assert_int_eq(fclose(golden), 0);
}

TEST(each_program_and_its_gradient_is_right) {
  program_graph f =
      program_graph_on(context_on("cpu", "", 2), program_csr(31, 90));
  const char *name, *about;
  int i = 0;
  for (; (name = dfgnn_edge_program_name(&about, i)); i++) {
    dfgnn_edge_program *kept = kept_of(sized(named(name)));
    dfgnn_edge_program *gradient = gradient_of(kept);
    uint64_t state = 23;
    tensors in, out, grad_in, grad_out;
    ck_assert_msg(*about, "%s says nothing about itself", name);
    inputs_of(&in, kept, NULL, NULL, &f.shape, DFGNN_F32, &state);
    outputs_of(&out, kept, &f.shape, DFGNN_F32);
    run_program(kept, &f, &in, &out);
    are_within_bounds(kept, f.graph, &in, &out, 0, name);
    inputs_of(&grad_in, gradient, &in, &out, &f.shape, DFGNN_F32, &state);
    outputs_of(&grad_out, gradient, &f.shape, DFGNN_F32);
    run_program(gradient, &f, &grad_in, &grad_out);
    are_within_bounds(gradient, f.graph, &grad_in, &grad_out, 0, name);
  }
  ck_assert_int_gt(i, 20);
}

/* Every operator of the library that a program can be has a name, which is its
 * own. */
TEST(an_operator_of_the_library_is_the_program_of_its_name) {
  const char *name;
  int found = 0, op;
  for (int i = 0; (name = dfgnn_edge_program_name(NULL, i)); i++) {
    dfgnn_edge_operator is = DFGNN_EDGE_OPERATOR_INIT;
    if (dfgnn_parse(&op, DFGNN_NAMES_OP, name))
      continue;
    ck_ok(dfgnn_edge_program_operator(&is, named(name)));
    ck_assert_msg(is.found && (int)is.op == op, "%s", name);
    found++;
  }
  ck_assert_int_eq(found, DFGNN_OP_REDUCE_MAX + 1);
}

/* A program that somebody else wrote is the same problem. */
TEST(a_program_that_equals_a_named_one_is_the_same_problem) {
  dfgnn_edge_program *theirs =
      made("dst y[3,7]; src x[3,7]; dst left[3,1]; src right[3,1]\n"
           "p = softmax_in(leaky_relu(sigmoid(sum(x * y)) * (right + left), "
           ".2))\n"
           "result = sum_in(x * p)");
  const dfgnn_edge_size sizes[] = {{"D", 7}, {"H", 3}};
  dfgnn_problem a = DFGNN_PROBLEM_INIT, b = DFGNN_PROBLEM_INIT;
  dfgnn_edge_program *ours = NULL;
  ck_ok(dfgnn_edge_program_sized(&ours, named("supergat"), sizes, 2));
  own_program(ours);
  ck_ok(dfgnn_edge_program_problem(&a, theirs, DFGNN_F32));
  ck_ok(dfgnn_edge_program_problem(&b, ours, DFGNN_F32));
  ck_assert_int_eq(a.op, DFGNN_OP_PROGRAM);
  ck_assert_int_eq(a.op, b.op);
  ck_assert_str_eq(a.program->name, b.program->name);
}

TEST(what_has_no_name_is_refused) {
  dfgnn_edge_program *program = NULL;
  ck_invalid(dfgnn_edge_program_named(&program, "supergatt"),
             "unknown operator 'supergatt', expected one of: gt, gt-edges");
  ck_invalid(dfgnn_edge_program_named(&program, "attention"), "attention");
  ck_invalid(dfgnn_edge_program_named(&program, ""), "unknown operator ''");
  ck_invalid(dfgnn_edge_program_named(&program, NULL), "name is NULL");
  ck_invalid(dfgnn_edge_program_named(NULL, "gt"), "program is NULL");
  const char *about = "";
  ck_assert_ptr_null(dfgnn_edge_program_name(&about, 1000));
  ck_assert_ptr_null(about);
  ck_assert_ptr_null(dfgnn_edge_program_name(NULL, -1));
}

TEST_MAIN("named", .timeout = 60)
