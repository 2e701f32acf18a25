/* engine_script.h - a scripted CUDA driver and compiler, and an engine over
 * them in a folder of its own */
#ifndef DFGNN_TESTS_ENGINE_SCRIPT_H
#define DFGNN_TESTS_ENGINE_SCRIPT_H

#include <stdatomic.h>
#include <sys/wait.h>

#include "kernels/engine/driver.h"
#include "kernels/engine/engine.h"
#include "tests/unit/fixture.h"

/* ---- the scripts --------------------------------------------------------- */

extern struct nvrtc_script {
  atomic_int compiled;
  int fails;  /* CompileProgram's result */
  int newest; /* the newest architecture */
  pthread_mutex_t lock;
  char target[64]; /* the last compilation's first option */
  char code[64];   /* the result of every compilation */
} nvrtc_script;

extern struct gpu_script {
  int major, minor;
  atomic_int loaded, unloaded, launched;
  int load_fails, launch_fails; /* errors to return */
  char refuses[64];             /* code that no load takes */
  atomic_uint shared;           /* the last launch's */
  int max_shared;               /* bytes that FuncSetAttribute allowed */
  int carveouts;                /* calls that set one */
  atomic_int pushed;
} gpu;
extern _Thread_local cu_context gpu_current_context;

/* ---- an engine ----------------------------------------------------------- */

extern char folder[], cache[64], pack_path[64];
extern dfgnn_engine *engine;
extern dfgnn_queue queue;
/* The source and the name of the programs. */
#define SCRIPT_SOURCE "kernels/common/cuda_common.cuh"
#define SCRIPT_NAME "dfgnn::something"
static const dfgnn_grid one = {.blocks = {1}, .threads = 32};

/* A test's fixture.  Each test runs in a process of its own, so the
 * once-a-process state of the engine is fresh. */
void engine_setup(void);
void engine_teardown(void);

void open_engine(void);
dfgnn_program program_of(int n);
/* Launches program n. */
dfgnn_status launch(int n, dfgnn_grid grid);
/* Opens the engine and launches so many programs. */
void fill_cache(int programs);
/* Executes statements on the cache. */
void in_sql(const char *sql);
/* Writes text over the beginning of a file, and cuts it to `keep` bytes unless
 * that is negative. */
void overwrite(const char *path, const char *text, off_t keep);
/* Writes so many programs to the pack. */
void write_pack(int programs, const char *architecture);
const char *problem_of_the_pack(void);

/* Runs the body in a child process, whose engine knows nothing of this one. */
#define IN_A_NEW_PROCESS(body)                                                 \
  do {                                                                         \
    pid_t child_ = fork();                                                     \
    int result_ = 0;                                                           \
    if (child_ == 0) {                                                         \
      engine = NULL;                                                           \
      nvrtc_script.compiled = 0;                                               \
      body;                                                                    \
      _exit(0);                                                                \
    }                                                                          \
    ck_assert_int_eq(waitpid(child_, &result_, 0), child_);                    \
    ck_assert_msg(WIFEXITED(result_) && WEXITSTATUS(result_) == 0,             \
                  "the child ended with status %d", result_);                  \
  } while (0)
#define EXPECT(x)                                                              \
  do {                                                                         \
    if (!(x)) {                                                                \
      fprintf(stderr, "%s:%d: not so: %s (%s)\n", __FILE__, __LINE__, #x,      \
              dfgnn_last_error());                                             \
      _exit(1);                                                                \
    }                                                                          \
  } while (0)

/* Asserts that a child launches three kernels and compiles n of them. */
#define EXPECT_COMPILED(n)                                                     \
  IN_A_NEW_PROCESS({                                                           \
    open_engine();                                                             \
    for (int i = 0; i < 3; i++)                                                \
      EXPECT(!launch(i, one));                                                 \
    EXPECT(nvrtc_script.compiled == (n));                                      \
    EXPECT(gpu.launched == 3);                                                 \
  })

#endif
