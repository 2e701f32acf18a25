/* Compiled bodies of edge programs on CPUs: the bits of the evaluator's loops,
 * and what may happen to the compiler. */
#define _GNU_SOURCE
#include <sys/stat.h>
#include <sys/wait.h>

#include "tests/common/program_texts.h"
#include "tests/common/programs.h"
#include "tests/common/random_program.h"

#include "kernels/engine/cc.h"
#include "kernels/program/cpu/bodies.h"
#include "lib/edge_program.h"

static char folder[64], cache[80], temporary[80];

static void begin(void) {
  test_folder(folder);
  snprintf(cache, sizeof cache, "%s/kernels.db", folder);
  snprintf(temporary, sizeof temporary, "%s/tmp", folder);
  ck_assert_int_eq(mkdir(temporary, 0700), 0);
  setenv("DFGNN_KERNEL_CACHE", cache, 1);
  setenv("TMPDIR", temporary, 1);
}

/* Nothing stays in the folder for temporary files. */
static void is_tidy(void) {
  ck_assert_msg(rmdir(temporary) == 0 && mkdir(temporary, 0700) == 0,
                "%s is not empty", temporary);
}

static int has_compiler(void) {
  return system("cc --version >/dev/null 2>&1") == 0;
}

/* A compiler that is a shell script, with the arguments of cc. */
static void use_script(const char *text) {
  char path[80];
  snprintf(path, sizeof path, "%s/compiler", folder);
  FILE *to = fopen(path, "w");
  ck_assert_ptr_nonnull(to);
  fprintf(to, "#!/bin/sh\necho >>%s/runs\n%s\n", folder, text);
  ck_assert_int_eq(fclose(to), 0);
  ck_assert_int_eq(chmod(path, 0700), 0);
  setenv("DFGNN_CC", path, 1);
}

/* How often the script has run. */
static int runs(void) {
  char path[80];
  struct stat info;
  snprintf(path, sizeof path, "%s/runs", folder);
  return stat(path, &info) ? 0 : (int)info.st_size;
}

/* ---- the compiler -------------------------------------------------------- */

static pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER;

static dfgnn_status load(void **found, const char *text,
                         const atomic_int *stop) {
  static const char *const none[] = {NULL};
  return dfgnn__cc_load(found, text, "number", none, stop, &loading);
}

static const char number[] =
    "__attribute__((visibility(\"default\"))) int number = 42;\n";

TEST(without_a_compiler_there_are_no_bodies) {
  void *found = &found;
  begin();
  static const char *const names[] = {"", "/nowhere/cc", "no-such-compiler",
                                      "/tmp"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    setenv("DFGNN_CC", names[i], 1);
    ck_fails(load(&found, number, NULL), DFGNN_ERROR_UNSUPPORTED,
             "there is no C compiler");
    ck_assert_ptr_null(found);
  }
}

TEST(a_compiler_that_fails_is_told_of) {
  static const struct {
    const char *script, *message;
  } cases[] = {
      {"exit 3", "it gives no reason"},
      {"echo 'x.c:1: error: bad' >&2; exit 1", "fails: x.c:1: error: bad"},
      {"kill -SEGV $$", "fails"},
      {"exit 0", "body.so cannot be read"},
      {"for a; do case $a in *.so) echo no library >$a;; esac; done",
       "cannot be loaded"},
      {"for a; do case $a in *.so) ln -s /etc/passwd $a;; esac; done",
       "body.so cannot be read"},
      {"for a; do case $a in *.so) mkfifo $a;; esac; done",
       "body.so cannot be read"}};
  void *found;
  begin();
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    use_script(cases[i].script);
    ck_fails(load(&found, number, NULL), DFGNN_ERROR_UNSUPPORTED,
             cases[i].message);
    ck_assert_ptr_null(found);
    ck_assert_int_eq(runs(), (int)i + 1);
    is_tidy();
  }
}

TEST(no_folder_for_its_files_is_no_body) {
  void *found;
  begin();
  use_script("exit 0");
  setenv("TMPDIR", "/nowhere", 1);
  ck_fails(load(&found, number, NULL), DFGNN_ERROR_UNSUPPORTED, "/nowhere");
  ck_assert_int_eq(runs(), 0);
}

static void *set_soon(void *data) {
  usleep(100000);
  atomic_store((atomic_int *)data, 1);
  return NULL;
}

TEST(a_compiler_that_hangs_is_ended_with_all_it_started) {
  atomic_int stop = 0;
  pthread_t thread;
  void *found;
  char path[80];
  begin();
  use_script("sleep 1000 & echo $! >\"$TMPDIR/../child\"; wait");
  pthread_create(&thread, NULL, set_soon, &stop);
  ck_fails(load(&found, number, &stop), DFGNN_ERROR_UNSUPPORTED,
           "was told to stop");
  pthread_join(thread, NULL);
  is_tidy();
  snprintf(path, sizeof path, "%s/child", folder);
  FILE *in = fopen(path, "r");
  int child = 0;
  ck_assert_ptr_nonnull(in);
  ck_assert_int_eq(fscanf(in, "%d", &child), 1);
  fclose(in);
  for (int i = 0; i < 100 && !kill(child, 0); i++)
    usleep(20000);
  ck_assert(kill(child, 0) != 0);
}

/* Loads the number in a process of its own. */
static void load_in_child(void) {
  void *found;
  int status = -1;
  const pid_t child = fork();
  if (child == 0)
    _exit(load(&found, number, NULL) || *(int *)found != 42);
  ck_assert_int_eq(waitpid(child, &status, 0), child);
  ck_assert_int_eq(status, 0);
}

TEST(what_was_compiled_once_is_found_by_every_process) {
  void *found;
  begin();
  if (!has_compiler())
    return;
  use_script("exec cc \"$@\"");
  for (int i = 0; i < 3; i++)
    load_in_child();
  ck_assert_int_eq(runs(), 1);
  ck_ok(load(&found, "__attribute__((visibility(\"default\"))) int number = 7;",
             NULL));
  ck_assert_int_eq(*(int *)found, 7);
  ck_assert_int_eq(runs(), 2);
  is_tidy();
}

/* A cache that others may write is not read: what lies there is not loaded. */
TEST(a_cache_that_others_may_write_is_left_alone) {
  void *found;
  begin();
  if (!has_compiler())
    return;
  use_script("exec cc \"$@\"");
  load_in_child();
  ck_assert_int_eq(chmod(cache, 0666), 0);
  ck_ok(load(&found, number, NULL));
  ck_assert_int_eq(*(int *)found, 42);
  ck_assert_int_eq(runs(), 2);
}

/* ---- programs ------------------------------------------------------------ */

static program_graph graph_with(int hub) {
  return program_graph_on(context_on("cpu", "", 2), program_csr(31, hub));
}

/* Runs a program, and waits for its body. */
static void run(const dfgnn_edge_program *program, const program_graph *f,
                const tensors *in, tensors *out) {
  dfgnn__bodies_hurry(1);
  run_program(program, f, in, out);
  dfgnn__bodies_hurry(-1);
}

static void has_the_same(const tensors *a, const tensors *b, int order,
                         const char *text) {
  for (int i = 0; i < a->count; i++)
    for (int64_t k = 0; k < a->elements[i]; k++) {
      const double x = dfgnn__number_at(a->at[i].dtype, a->at[i].data, k);
      const double y = dfgnn__number_at(b->at[i].dtype, b->at[i].data, k);
      ck_assert_msg(!memcmp(&x, &y, sizeof x) || (isnan(x) && isnan(y)),
                    "order %d, output %s: %.17g without a body, %.17g with "
                    "one:\n%s",
                    order, a->value[i].name, x, y, text);
    }
}

/* Has a program the same bits with a body, and have its gradients?  Returns how
 * many bodies were made. */
static int check_bodies(const char *text, const program_graph *f,
                        dfgnn_dtype dtype, int orders) {
  const int before = dfgnn__bodies_count();
  dfgnn_edge_program *program = made(text);
  tensors in, plain, compiled, next;
  uint64_t state = 17;
  inputs_of(&in, program, NULL, NULL, &f->shape, dtype, &state);
  for (int order = 0; order <= orders; order++) {
    dfgnn_edge_program *kept = kept_of(program);
    outputs_of(&plain, kept, &f->shape, dtype);
    outputs_of(&compiled, kept, &f->shape, dtype);
    char compiler[80];
    snprintf(compiler, sizeof compiler, "%s", getenv("DFGNN_CC"));
    setenv("DFGNN_CC", "", 1);
    run(kept, f, &in, &plain);
    setenv("DFGNN_CC", compiler, 1);
    run(kept, f, &in, &compiled);
    has_the_same(&plain, &compiled, order, dfgnn_edge_program_text(kept));
    program = gradient_of(kept);
    inputs_of(&next, program, &in, &plain, &f->shape, dtype, &state);
    in = next;
  }
  return dfgnn__bodies_count() - before;
}

/* Rows of few edges, of more than a block, and one that threads share. */
TEST_LOOP(a_body_has_the_bits_of_the_loops, 0, PROGRAMS) {
  static const dfgnn_dtype dtypes[] = {DFGNN_F32, DFGNN_F64, DFGNN_BF16};
  begin();
  if (has_compiler()) {
    /* the bits are the same however hard the compiler tries */
    use_script(_i % 4 ? "exec cc \"$@\" -O1" : "exec cc \"$@\"");
    program_graph f = graph_with(_i % 2 ? 9000 : 700);
    const int orders = number_of("DFGNN_TEST_ORDERS", 1);
    ck_assert_int_eq(check_bodies(programs[_i], &f, dtypes[_i % 3], orders),
                     orders + 1);
  }
}

TEST(bodies_of_random_programs_have_the_bits_of_the_loops) {
  const int first = number_of("DFGNN_TEST_SEED", 1);
  int bodies = 0; /* fewer than programs: some have the same text */
  begin();
  program_graph f = graph_with(700);
  use_script("exec cc \"$@\"");
  for (int i = 0; has_compiler() && i < number_of("DFGNN_TEST_PROGRAMS", 2);
       i++) {
    random_program p;
    random_text(&p, (uint64_t)(first + i));
    fprintf(stderr, "random program %d\n", first + i);
    bodies += check_bodies(p.text, &f, i % 4 == 3 ? DFGNN_F64 : DFGNN_F32, 1);
  }
  ck_assert(bodies > 0 || !has_compiler());
}

TEST_LOOP(a_program_runs_whatever_the_compiler_does, 0, 4) {
  static const char *const scripts[] = {
      "exit 1", "for a; do case $a in *.so) echo no library >$a;; esac; done",
      "kill -KILL $$", "exec /nowhere/cc"};
  tensors in, plain, other;
  uint64_t state = 17;
  begin();
  program_graph f = graph_with(700);
  dfgnn_edge_program *program = made(programs[0]);
  inputs_of(&in, program, NULL, NULL, &f.shape, DFGNN_F32, &state);
  outputs_of(&plain, program, &f.shape, DFGNN_F32);
  outputs_of(&other, program, &f.shape, DFGNN_F32);
  setenv("DFGNN_CC", "", 1);
  run(program, &f, &in, &plain);
  use_script(scripts[_i]);
  for (int i = 0; i < 3; i++)
    run(program, &f, &in, &other);
  ck_assert_int_eq(runs(), 1);
  ck_assert_int_eq(dfgnn__bodies_count(), 0);
  has_the_same(&plain, &other, 0, programs[0]);
  is_tidy();
}

/* A child of fork() has no thread that compiles, and does not wait for one. */
TEST(a_fork_while_the_compiler_works_goes_on) {
  tensors in, out;
  uint64_t state = 17;
  begin();
  program_graph f = graph_with(9000);
  dfgnn_edge_program *program = made(programs[0]);
  inputs_of(&in, program, NULL, NULL, &f.shape, DFGNN_F32, &state);
  outputs_of(&out, program, &f.shape, DFGNN_F32);
  use_script("sleep 2; exit 1");
  for (int i = 0; i < 200 && !runs(); i++)
    run_program(program, &f, &in, &out);
  ck_assert_int_eq(runs(), 1);
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    run(program, &f, &in, &out);
    dfgnn_edge_program *another = made(programs[1]);
    inputs_of(&in, another, NULL, NULL, &f.shape, DFGNN_F32, &state);
    outputs_of(&out, another, &f.shape, DFGNN_F32);
    run(another, &f, &in, &out);
    exit(runs() != 2); /* which has no thread to wait for */
  }
  int status = -1;
  ck_assert_int_eq(waitpid(child, &status, 0), child);
  ck_assert_int_eq(status, 0);
}

/* The end of a process does not wait for its compiler. */
TEST(a_process_ends_while_the_compiler_works) {
  begin();
  use_script("sleep 1000");
  const pid_t child = fork();
  if (child == 0) {
    tensors in, out;
    uint64_t state = 17;
    alarm(20);
    program_graph f = graph_with(9000);
    dfgnn_edge_program *program = made(programs[0]);
    inputs_of(&in, program, NULL, NULL, &f.shape, DFGNN_F32, &state);
    outputs_of(&out, program, &f.shape, DFGNN_F32);
    for (int i = 0; i < 200 && !runs(); i++)
      run_program(program, &f, &in, &out);
    exit(runs() != 1);
  }
  int status = -1;
  ck_assert_int_eq(waitpid(child, &status, 0), child);
  ck_assert_int_eq(status, 0);
  is_tidy();
}

TEST_MAIN("program_bodies", .timeout = 120)
