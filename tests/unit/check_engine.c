/* The engine against a scripted driver and compiler: what is compiled, kept,
 * loaded and launched, and what happens when any of it fails. */
#include <check.h>
#include <fcntl.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "base/filesystem.h"
#include "base/xz.h"
#include "engine/cache.h"
#include "engine/constants.h"
#include "engine/driver.h"
#include "tests/unit/fixture.h"

/* ---- a scripted compiler ------------------------------------------------- */

static const char source[] = "kernels/common/cuda_common.cuh";
static const char name[] = "dfgnn::something";

static struct {
  atomic_int compiled;
  int fails;  /* CompileProgram's result */
  int newest; /* the newest architecture */
  pthread_mutex_t lock;
  char target[64]; /* the last compilation's first option */
  char code[64];   /* the result of every compilation */
} nvrtc_script = {.lock = PTHREAD_MUTEX_INITIALIZER};

static int nvrtc_version(int *major, int *minor) {
  *major = 13;
  *minor = 0;
  return 0;
}
static int nvrtc_count(int *count) {
  *count = 2;
  return 0;
}
static int nvrtc_list(int *list) {
  list[0] = 80;
  list[1] = nvrtc_script.newest;
  return 0;
}
static const char *nvrtc_text(int error) {
  return error ? "scripted failure" : "success";
}
static int nvrtc_create(void **program, const char *text, const char *file,
                        int headers, const char *const *texts,
                        const char *const *names) {
  (void)text, (void)file, (void)texts, (void)names;
  ck_assert_int_ge(headers, 2); /* the source and what it includes */
  *program = (void *)1;
  return 0;
}
static int nvrtc_destroy(void **program) {
  *program = NULL;
  return 0;
}
static int nvrtc_name(void *program, const char *expression) {
  (void)program, (void)expression;
  return 0;
}
static int nvrtc_compile(void *program, int count, const char *const *options) {
  (void)program, (void)count;
  pthread_mutex_lock(&nvrtc_script.lock);
  snprintf(nvrtc_script.target, sizeof nvrtc_script.target, "%s", options[0]);
  pthread_mutex_unlock(&nvrtc_script.lock);
  atomic_fetch_add(&nvrtc_script.compiled, 1);
  usleep(2000); /* so that threads and processes meet */
  return nvrtc_script.fails;
}
static const char nvrtc_log[] = "x.cuh(7): warning: w\n"
                                "x.cuh(8): error: no such thing\n";
static int nvrtc_log_size(void *program, size_t *size) {
  (void)program;
  *size = sizeof nvrtc_log;
  return 0;
}
static int nvrtc_log_text(void *program, char *log) {
  (void)program;
  memcpy(log, nvrtc_log, sizeof nvrtc_log);
  return 0;
}
static int nvrtc_lowered(void *program, const char *expression,
                         const char **lowered) {
  (void)program, (void)expression;
  *lowered = "_Z9something";
  return 0;
}
static int nvrtc_size(void *program, size_t *size) {
  (void)program;
  *size = sizeof nvrtc_script.code;
  return 0;
}
static int nvrtc_code(void *program, char *code) {
  (void)program;
  memcpy(code, nvrtc_script.code, sizeof nvrtc_script.code);
  return 0;
}

static const dfgnn_nvrtc scripted_nvrtc = {.Version = nvrtc_version,
                                           .GetNumSupportedArchs = nvrtc_count,
                                           .GetSupportedArchs = nvrtc_list,
                                           .GetErrorString = nvrtc_text,
                                           .CreateProgram = nvrtc_create,
                                           .DestroyProgram = nvrtc_destroy,
                                           .AddNameExpression = nvrtc_name,
                                           .CompileProgram = nvrtc_compile,
                                           .GetProgramLogSize = nvrtc_log_size,
                                           .GetProgramLog = nvrtc_log_text,
                                           .GetLoweredName = nvrtc_lowered,
                                           .GetCUBINSize = nvrtc_size,
                                           .GetCUBIN = nvrtc_code,
                                           .GetPTXSize = nvrtc_size,
                                           .GetPTX = nvrtc_code};

/* ---- a scripted driver --------------------------------------------------- */

static struct {
  int major, minor;
  atomic_int loaded, unloaded, launched;
  int load_fails, launch_fails; /* errors to return */
  char refuses[64];             /* code that no load takes */
  atomic_uint shared;           /* the last launch's */
  int max_shared;               /* bytes that FuncSetAttribute allowed */
  int carveouts;                /* calls that set one */
  atomic_int pushed;
} gpu;
static _Thread_local cu_context current;

static cu_result gpu_error_text(cu_result error, const char **text) {
  *text = error == CU_ERROR_MEMORY ? "out of memory" : "scripted error";
  return 0;
}
static cu_result gpu_get(int *device, int ordinal) {
  *device = ordinal;
  return ordinal > 1 ? 101 : 0;
}
static cu_result gpu_attribute(int *value, int attribute, int device) {
  (void)device;
  *value = attribute == CU_CAPABILITY_MAJOR ? gpu.major : gpu.minor;
  return 0;
}
static cu_result gpu_retain(cu_context *context, int device) {
  *context = (cu_context)(uintptr_t)(device + 1);
  return 0;
}
static cu_result gpu_release(int device) {
  (void)device;
  return 0;
}
static cu_result gpu_current(cu_context *context) {
  *context = current;
  return 0;
}
static cu_result gpu_set(cu_context context) {
  current = context;
  return 0;
}
static cu_result gpu_push(cu_context context) {
  current = context;
  gpu.pushed++;
  return 0;
}
static cu_result gpu_pop(cu_context *context) {
  *context = current;
  current = NULL;
  gpu.pushed--;
  return 0;
}
static cu_result gpu_mode(int *mode) {
  (void)mode;
  return 0;
}
static cu_result gpu_load(cu_module *module, const void *image,
                          unsigned options, int *option, void **value) {
  (void)options, (void)option, (void)value;
  if (gpu.load_fails)
    return gpu.load_fails;
  if (*gpu.refuses && !strcmp(image, gpu.refuses))
    return CU_ERROR_NO_BINARY;
  gpu.loaded++;
  *module = (cu_module)1;
  return 0;
}
static cu_result gpu_unload(cu_module module) {
  (void)module;
  gpu.unloaded++;
  return 0;
}
static cu_result gpu_function(cu_function *function, cu_module module,
                              const char *symbol) {
  (void)module;
  ck_assert_str_eq(symbol, "_Z9something");
  *function = (cu_function)1;
  return 0;
}
static cu_result gpu_function_get(int *value, int attribute,
                                  cu_function function) {
  (void)function;
  *value = attribute == CU_FUNCTION_REGISTERS     ? 40
           : attribute == CU_FUNCTION_LOCAL_BYTES ? 16
                                                  : 1024;
  return 0;
}
static cu_result gpu_function_set(cu_function function, int attribute,
                                  int value) {
  (void)function;
  if (attribute == CU_FUNCTION_MAX_SHARED)
    gpu.max_shared = value;
  else
    gpu.carveouts++;
  return 0;
}
static cu_result gpu_launch(cu_function function, unsigned x, unsigned y,
                            unsigned z, unsigned threads, unsigned by,
                            unsigned bz, unsigned shared, cu_stream stream,
                            void **arguments, void **extra) {
  (void)function, (void)stream, (void)extra;
  ck_assert_uint_ge(x * y * z * threads * by * bz, 1);
  ck_assert_int_eq(*(int *)arguments[0], 42);
  gpu.shared = shared;
  gpu.launched++;
  return gpu.launch_fails;
}

static const dfgnn_driver scripted_driver = {
    .GetErrorString = gpu_error_text,
    .DeviceGet = gpu_get,
    .DeviceGetAttribute = gpu_attribute,
    .DevicePrimaryCtxRetain = gpu_retain,
    .DevicePrimaryCtxRelease = gpu_release,
    .CtxGetCurrent = gpu_current,
    .CtxSetCurrent = gpu_set,
    .CtxPushCurrent = gpu_push,
    .CtxPopCurrent = gpu_pop,
    .ThreadExchangeStreamCaptureMode = gpu_mode,
    .ModuleLoadDataEx = gpu_load,
    .ModuleUnload = gpu_unload,
    .ModuleGetFunction = gpu_function,
    .FuncGetAttribute = gpu_function_get,
    .FuncSetAttribute = gpu_function_set,
    .LaunchKernel = gpu_launch};

/* ---- fixture ------------------------------------------------------------- */

static char folder[] = "/tmp/dfgnn-engine-XXXXXX";
static char cache[64], pack[64];
static dfgnn_engine *engine;
static dfgnn_queue queue;

/* Each test runs in a process of its own, so the once-a-process state of the
 * engine is fresh. */
static void setup(void) {
  memset(&gpu, 0, sizeof gpu);
  gpu.major = 9;
  nvrtc_script.newest = 90;
  snprintf(nvrtc_script.code, sizeof nvrtc_script.code, "good code");
  strcpy(folder, "/tmp/dfgnn-engine-XXXXXX");
  ck_assert_ptr_nonnull(mkdtemp(folder));
  snprintf(cache, sizeof cache, "%s/kernels.db", folder);
  snprintf(pack, sizeof pack, "%s/some.pack", folder);
  setenv("DFGNN_KERNEL_CACHE", cache, 1);
  setenv("DFGNN_KERNEL_PACK", "", 1);
  dfgnn__driver_replace(&scripted_driver);
  dfgnn__compiler_replace(&scripted_nvrtc);
}

static void teardown(void) {
  char command[128];
  dfgnn__engine_close(engine);
  engine = NULL;
  snprintf(command, sizeof command, "rm -rf %s", folder);
  ck_assert_int_eq(system(command), 0);
}

static void open_engine(void) {
  ck_ok(dfgnn__engine_open(&engine, 0));
  queue = (dfgnn_queue){.engine = engine};
}

static dfgnn_program program_of(int n) {
  const dfgnn_program p =
      DFGNN_PROGRAM(source, name, DFGNN_TYPE(DFGNN_BF16), n, DFGNN_TYPE_I64);
  return p;
}

static dfgnn_status launch(int n, dfgnn_grid grid) {
  const dfgnn_program p = program_of(n);
  int argument = 42;
  return dfgnn__launch_struct(&queue, &p, grid, &argument);
}

static const dfgnn_grid one = {.blocks = {1}, .threads = 32};

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

/* ---- programs ------------------------------------------------------------ */

START_TEST(a_program_reads_as_its_template_expression) {
  char text[128];
  const dfgnn_program p = program_of(7), plain = {source, name, 0, {0}};
  dfgnn__program_text(text, sizeof text, &p);
  ck_assert_str_eq(text, "dfgnn::something<dfgnn::bfloat_t, 7, int64_t>");
  dfgnn__program_text(text, sizeof text, &plain);
  ck_assert_str_eq(text, "dfgnn::something");
}
END_TEST

#define SHAPE_CONSTANTS(X) X(type) X(lanes)
typedef struct shape_constants {
  SHAPE_CONSTANTS(DFGNN_CONSTANT_MEMBER)
} shape_constants;

START_TEST(constants_with_names_are_members_of_one_type) {
  char text[256];
  const shape_constants shape = {.lanes = 32, .type = DFGNN_TYPE(DFGNN_F64)};
  const dfgnn_program p =
      DFGNN_PROGRAM_OF(source, "dfgnn::something", SHAPE_CONSTANTS, &shape);
  dfgnn__program_text(text, sizeof text, &p);
  ck_assert_str_eq(text, "dfgnn::something<type=double, lanes=32>");
  dfgnn__program_expression(text, sizeof text, &p);
  ck_assert_str_eq(text, "dfgnn::something<program_constants>");
  dfgnn__program_source(text, sizeof text, &p);
  ck_assert_ptr_nonnull(strstr(text, "struct program_constants {\n"
                                     "  using type = double;\n"
                                     "  static constexpr int lanes = 32;\n"
                                     "};\n"));
}
END_TEST

START_TEST(a_list_holds_each_program_once_and_launches_nothing) {
  dfgnn_programs *list = NULL;
  ck_ok(dfgnn__programs_create(&list));
  queue = (dfgnn_queue){.list = list};
  for (int i = 0; i < 40; i++)
    ck_ok(launch(i & 15, one));
  ck_ok(dfgnn__fill(&queue, NULL, 0, 100));
  ck_assert_uint_eq(dfgnn__programs_count(list), 16);
  ck_assert_int_eq(gpu.launched, 0);
  ck_assert_int_eq(nvrtc_script.compiled, 0);
  dfgnn__programs_destroy(list);
}
END_TEST

/* ---- launching ----------------------------------------------------------- */

START_TEST(a_kernel_is_compiled_and_loaded_once) {
  dfgnn_kernel_info info;
  const dfgnn_program p = program_of(1);
  open_engine();
  ck_assert_int_eq(dfgnn__engine_kernel_info(&info, engine, &p), 0);
  for (int i = 0; i < 5; i++)
    ck_ok(launch(1, one));
  ck_ok(launch(2, one));
  ck_assert_int_eq(nvrtc_script.compiled, 2);
  ck_assert_int_eq(gpu.loaded, 2);
  ck_assert_int_eq(gpu.launched, 6);
  ck_assert_int_eq(gpu.pushed, 0);
  ck_assert_str_eq(nvrtc_script.target, "--gpu-architecture=sm_90");
  ck_assert_int_eq(dfgnn__engine_kernel_info(&info, engine, &p), 1);
  ck_assert_int_eq(info.registers, 40);
  ck_assert_int_eq(info.local_bytes, 16);
  ck_assert_int_eq(info.code_bytes, sizeof nvrtc_script.code);
  dfgnn__engine_close(engine);
  engine = NULL;
  ck_assert_int_eq(gpu.unloaded, 2);
}
END_TEST

START_TEST(the_context_of_the_caller_is_put_back) {
  const cu_context other = (cu_context)(uintptr_t)77;
  current = other;
  open_engine();
  int entered = dfgnn__engine_enter(engine);
  ck_assert_int_eq(entered, 1);
  ck_assert_int_eq(gpu.pushed, 1);
  dfgnn__engine_leave(entered);
  ck_assert_int_eq(gpu.pushed, 0);
  current = NULL; /* a thread without one keeps the device's */
  ck_assert_int_eq(dfgnn__engine_enter(engine), 0);
  ck_assert_ptr_eq(current, (cu_context)(uintptr_t)1);
  ck_assert_int_eq(dfgnn__engine_enter(engine), 0);
}
END_TEST

START_TEST(many_kernels_are_all_found_again) {
  open_engine();
  for (int round = 0; round < 2; round++)
    for (int i = 0; i < 700; i++)
      ck_ok(launch(i, one));
  ck_assert_int_eq(nvrtc_script.compiled, 700);
}
END_TEST

START_TEST(large_shared_memory_is_asked_for_once) {
  const dfgnn_grid large = {.blocks = {1},
                            .threads = 32,
                            .shared = 100 << 10,
                            .carveout = DFGNN_CARVEOUT_SHARED};
  open_engine();
  ck_ok(launch(1, one));
  ck_assert_int_eq(gpu.max_shared, 0);
  ck_ok(launch(1, (dfgnn_grid){.threads = 32, .shared = (48 << 10) - 512}));
  ck_assert_int_eq(gpu.max_shared, (48 << 10) - 512); /* 1024 are static */
  ck_ok(launch(1, large));
  ck_ok(launch(1, large));
  ck_assert_int_eq(gpu.max_shared, 100 << 10);
  ck_assert_uint_eq(gpu.shared, 100 << 10);
  ck_assert_int_eq(gpu.carveouts, 1);
}
END_TEST

static void *launch_many(void *data) {
  for (int i = 0; i < 20; i++)
    if (launch(i, one))
      *(int *)data = 1;
  return NULL;
}

START_TEST(threads_that_want_one_kernel_wait_for_one_compilation) {
  pthread_t thread[8];
  int failed[8] = {0};
  open_engine();
  for (int i = 0; i < 8; i++)
    ck_assert(!pthread_create(&thread[i], NULL, launch_many, &failed[i]));
  for (int i = 0; i < 8; i++) {
    pthread_join(thread[i], NULL);
    ck_assert_int_eq(failed[i], 0);
  }
  ck_assert_int_eq(nvrtc_script.compiled, 20);
}
END_TEST

/* Opens the engine, which all have alike, launches and closes it. */
static void *open_and_launch(void *data) {
  dfgnn_engine *mine = NULL;
  int argument = 42, failed = dfgnn__engine_open(&mine, 0) != DFGNN_OK;
  dfgnn_queue on_mine = {.engine = mine};
  for (int i = 0; i < 20 && !failed; i++) {
    const dfgnn_program p = program_of(i);
    failed = dfgnn__launch_struct(&on_mine, &p, one, &argument) != DFGNN_OK;
  }
  dfgnn__engine_close(mine);
  *(int *)data = failed;
  return NULL;
}

START_TEST(threads_open_and_close_engines_of_one_cache) {
  pthread_t thread[8];
  int failed[8] = {0};
  for (int round = 0; round < 3; round++) {
    for (int i = 0; i < 8; i++)
      ck_assert(!pthread_create(&thread[i], NULL, open_and_launch, &failed[i]));
    for (int i = 0; i < 8; i++) {
      pthread_join(thread[i], NULL);
      ck_assert_int_eq(failed[i], 0);
    }
  }
  ck_assert_int_ge(nvrtc_script.compiled, 20);
  IN_A_NEW_PROCESS({
    open_engine();
    EXPECT(!launch(19, one));
    EXPECT(nvrtc_script.compiled == 0);
  });
}
END_TEST

START_TEST(a_list_is_prepared_by_several_threads) {
  dfgnn_programs *list = NULL;
  ck_ok(dfgnn__programs_create(&list));
  open_engine();
  for (int i = 0; i < 30; i++) {
    const dfgnn_program p = program_of(i);
    ck_ok(dfgnn__programs_add(list, &p));
  }
  ck_ok(dfgnn__engine_prepare(engine, list, 4, NULL));
  ck_assert_int_eq(nvrtc_script.compiled, 30);
  ck_ok(launch(29, one));
  ck_assert_int_eq(nvrtc_script.compiled, 30);
  atomic_int stop = 1;
  const dfgnn_program another = program_of(31);
  ck_ok(dfgnn__programs_add(list, &another));
  ck_ok(dfgnn__engine_prepare(engine, list, 4, &stop));
  ck_assert_int_eq(nvrtc_script.compiled, 30);
  dfgnn__programs_destroy(list);
}
END_TEST

/* ---- failures ------------------------------------------------------------ */

START_TEST(what_does_not_compile_says_why) {
  open_engine();
  nvrtc_script.fails = 6;
  ck_fails(launch(1, one), DFGNN_ERROR_UNSUPPORTED,
           "dfgnn::something<dfgnn::bfloat_t, 1, int64_t> does not compile: "
           "x.cuh(8): error: no such thing");
  nvrtc_script.fails = 0;
  ck_ok(launch(1, one)); /* and is tried again */
}
END_TEST

START_TEST(without_a_compiler_the_message_says_what_to_install) {
  dfgnn__compiler_replace(NULL);
  open_engine();
  ck_fails(launch(1, one), DFGNN_ERROR_UNSUPPORTED,
           "pip install nvidia-cuda-nvrtc");
  ck_assert_int_eq(gpu.launched, 0);
}
END_TEST

START_TEST(without_a_driver_opening_fails) {
  dfgnn__driver_replace(NULL);
  ck_fails(dfgnn__engine_open(&engine, 0), DFGNN_ERROR_DEVICE,
           "there is no CUDA driver");
}
END_TEST

START_TEST(errors_of_the_driver_become_statuses) {
  open_engine();
  gpu.load_fails = CU_ERROR_MEMORY;
  ck_fails(launch(1, one), DFGNN_ERROR_MEMORY,
           "cuModuleLoadDataEx: out of memory");
  gpu.load_fails = 0;
  gpu.launch_fails = 700;
  ck_fails(launch(1, one), DFGNN_ERROR_DEVICE, "scripted error (error 700)");
}
END_TEST

START_TEST(a_newer_gpu_gets_ptx_of_the_newest_known) {
  gpu.major = 12;
  gpu.minor = 1;
  open_engine();
  ck_ok(launch(1, one));
  ck_assert_str_eq(nvrtc_script.target, "--gpu-architecture=compute_90");
}
END_TEST

START_TEST(an_architecture_that_is_none_or_too_old_is_refused) {
  ck_fails(dfgnn__engine_offline(&engine, "sm_52"), DFGNN_ERROR_INVALID,
           "does not compile for sm_52");
  ck_fails(dfgnn__engine_offline(&engine, "hopper"), DFGNN_ERROR_INVALID,
           "'hopper' is no architecture, expected one such as sm_90");
  ck_fails(dfgnn__engine_offline(&engine, "sm_90x"), DFGNN_ERROR_INVALID,
           "'sm_90x' is no architecture");
}
END_TEST

/* ---- the user's cache ---------------------------------------------------- */

START_TEST(a_new_process_finds_what_another_compiled) {
  open_engine();
  ck_ok(launch(1, one));
  IN_A_NEW_PROCESS({
    open_engine();
    EXPECT(!launch(1, one));
    EXPECT(nvrtc_script.compiled == 0);
    EXPECT(!launch(2, one));
    EXPECT(nvrtc_script.compiled == 1);
  });
  dfgnn_cache_info info;
  dfgnn__cache_describe(&info);
  ck_assert_str_eq(info.path, cache);
  ck_assert_int_eq(info.entries, 2);
}
END_TEST

START_TEST(many_processes_that_ask_at_once_all_get_it) {
  enum { PROCESSES = 64 };
  pid_t child[PROCESSES];
  for (int i = 0; i < PROCESSES; i++) {
    child[i] = fork();
    if (child[i] == 0) {
      open_engine();
      EXPECT(!launch(1, one));
      EXPECT(gpu.launched == 1);
      _exit(0);
    }
  }
  for (int i = 0; i < PROCESSES; i++) {
    int result = 0;
    ck_assert_int_eq(waitpid(child[i], &result, 0), child[i]);
    ck_assert(WIFEXITED(result) && WEXITSTATUS(result) == 0);
  }
  dfgnn_cache_info info;
  dfgnn__cache_describe(&info);
  ck_assert_int_eq(info.entries, 1);
}
END_TEST

static void fill_cache(int programs) {
  open_engine();
  for (int i = 0; i < programs; i++)
    ck_ok(launch(i, one));
}

static void in_sql(const char *sql) {
  sqlite3 *db = NULL;
  ck_assert_int_eq(sqlite3_open(cache, &db), SQLITE_OK);
  ck_assert_msg(!sqlite3_exec(db, sql, NULL, NULL, NULL), "%s",
                sqlite3_errmsg(db));
  sqlite3_close(db);
}

static void write_pack(int programs, const char *architecture);
static const char *problem_of_the_pack(void);

/* Asserts that a child launches three kernels and compiles n of them. */
#define EXPECT_COMPILED(n)                                                     \
  IN_A_NEW_PROCESS({                                                           \
    open_engine();                                                             \
    for (int i = 0; i < 3; i++)                                                \
      EXPECT(!launch(i, one));                                                 \
    EXPECT(nvrtc_script.compiled == (n));                                      \
    EXPECT(gpu.launched == 3);                                                 \
  })

START_TEST(a_damaged_entry_is_compiled_again) {
  IN_A_NEW_PROCESS(fill_cache(3));
  EXPECT_COMPILED(0);
  in_sql("UPDATE kernel SET code = CAST(x'00' || substr(code, 2) AS BLOB) "
         "WHERE rowid = (SELECT min(rowid) FROM kernel)");
  EXPECT_COMPILED(1);
  in_sql("UPDATE kernel SET code = substr(code, 1, 10)");
  EXPECT_COMPILED(3);
  in_sql("UPDATE kernel SET symbol = 'another'");
  EXPECT_COMPILED(3);
  in_sql("UPDATE kernel SET bytes = 9999999");
  EXPECT_COMPILED(3);
  EXPECT_COMPILED(0);
}
END_TEST

START_TEST(an_entry_under_a_wrong_key_is_a_miss) {
  IN_A_NEW_PROCESS(fill_cache(3));
  in_sql("CREATE TEMP TABLE t AS SELECT key FROM kernel WHERE rowid = 2;"
         "DELETE FROM kernel WHERE rowid = 2;"
         "UPDATE kernel SET key = (SELECT key FROM t) WHERE rowid = 1");
  EXPECT_COMPILED(2);
}
END_TEST

START_TEST(code_that_the_driver_refuses_is_compiled_again) {
  snprintf(nvrtc_script.code, sizeof nvrtc_script.code, "of another GPU");
  IN_A_NEW_PROCESS(fill_cache(3));
  snprintf(nvrtc_script.code, sizeof nvrtc_script.code, "good code");
  strcpy(gpu.refuses, "of another GPU");
  EXPECT_COMPILED(3);
  EXPECT_COMPILED(0); /* the refused code was replaced */
}
END_TEST

/* Moves all of the cache into its one file. */
static void settle(void) { in_sql("PRAGMA wal_checkpoint(TRUNCATE)"); }

static void overwrite(const char *path, const char *text, off_t keep) {
  FILE *file = fopen(path, "r+");
  if (!file)
    file = fopen(path, "w");
  ck_assert_ptr_nonnull(file);
  fputs(text, file);
  fclose(file);
  if (keep >= 0)
    ck_assert_int_eq(truncate(path, keep), 0);
}

START_TEST(a_file_that_is_damaged_is_made_anew) {
  IN_A_NEW_PROCESS(fill_cache(3));
  settle();
  overwrite(cache, "this is no database, whatever its name", -1);
  EXPECT_COMPILED(3);
  EXPECT_COMPILED(0);
  settle();
  overwrite(cache, "", 3000);
  EXPECT_COMPILED(3);
  EXPECT_COMPILED(0);
  settle();
  overwrite(cache, "", 0);
  EXPECT_COMPILED(3);
}
END_TEST

START_TEST(the_database_of_somebody_else_is_left_alone) {
  struct stat before, after;
  in_sql("PRAGMA application_id = 7; CREATE TABLE photos (x)");
  ck_assert(!stat(cache, &before));
  EXPECT_COMPILED(3);
  EXPECT_COMPILED(3);
  ck_assert(!stat(cache, &after));
  ck_assert_int_eq(before.st_ino, after.st_ino);
  in_sql("INSERT INTO photos VALUES (1)"); /* it is still theirs */
}
END_TEST

START_TEST(a_file_of_another_kind_is_left_alone) {
  static const char thesis[] = "Chapter 1: on the fusion of kernels\n";
  char text[sizeof thesis + 1] = "";
  dfgnn_cache_info info;
  overwrite(cache, thesis, -1);
  EXPECT_COMPILED(3);
  EXPECT_COMPILED(3);
  FILE *file = fopen(cache, "r");
  ck_assert_uint_eq(fread(text, 1, sizeof text, file), strlen(thesis));
  ck_assert(!fclose(file));
  ck_assert_str_eq(text, thesis);
  dfgnn__cache_describe(&info);
  ck_assert_ptr_nonnull(strstr(info.problem, "a file of another kind"));
}
END_TEST

/* ---- what others could write ----------------------------------------------
 */

static void expect_refused(const char *reason) {
  char why[PATH_MAX + 512] = "";
  EXPECT_COMPILED(3);
  IN_A_NEW_PROCESS({
    EXPECT(dfgnn__cache_complaint(why, sizeof why));
    EXPECT(strstr(why, reason));
    EXPECT(!dfgnn__cache_complaint(why, sizeof why)); /* it is said once */
  });
}

START_TEST(a_log_of_another_user_is_not_read) {
  static const char *const suffixes[] = {"-wal", "-shm", "-journal"};
  char name[128], reason[128];
  for (int i = 0; i < 3; i++) {
    IN_A_NEW_PROCESS(fill_cache(3));
    settle();
    EXPECT_COMPILED(0);
    snprintf(name, sizeof name, "%s%s", cache, suffixes[i]);
    overwrite(name, "", -1);
    ck_assert(!chmod(name, 0666));
    snprintf(reason, sizeof reason, "%s can be written by others", suffixes[i]);
    expect_refused(reason);
    ck_assert(!chmod(name, 0600));
    if (!chown(name, 65534, (gid_t)-1)) { /* as root */
      snprintf(reason, sizeof reason, "%s belongs to another", suffixes[i]);
      if (geteuid() == 0)
        expect_refused(reason);
    }
    ck_assert(!unlink(name));
    ck_assert(!symlink("/dev/null", name));
    expect_refused("is not a regular file");
    ck_assert(!unlink(name));
  }
}
END_TEST

START_TEST(a_folder_that_others_can_write_is_refused) {
  static const mode_t modes[] = {0777, 01777, 0770, 0707};
  IN_A_NEW_PROCESS(fill_cache(3));
  write_pack(3, "sm_90");
  EXPECT_COMPILED(0);
  for (int i = 0; i < 4; i++) {
    ck_assert(!chmod(folder, modes[i]));
    expect_refused("others can write the folder");
    setenv("DFGNN_KERNEL_PACK", pack, 1);
    IN_A_NEW_PROCESS({
      EXPECT(dfgnn__pack_count() == 0);
      EXPECT(strstr(problem_of_the_pack(), "others can write the folder"));
    });
    setenv("DFGNN_KERNEL_PACK", "", 1);
  }
  ck_assert(!chmod(folder, 0700));
  EXPECT_COMPILED(0);
}
END_TEST

START_TEST(a_folder_above_that_others_can_exchange_is_refused) {
  char deep[128];
  snprintf(deep, sizeof deep, "%s/cache/kernels.db", folder);
  setenv("DFGNN_KERNEL_CACHE", deep, 1);
  IN_A_NEW_PROCESS(fill_cache(3));
  EXPECT_COMPILED(0);
  ck_assert(!chmod(folder, 01777)); /* as /tmp */
  EXPECT_COMPILED(0);
  ck_assert(!chmod(folder, 0777));
  expect_refused("others can write the folder");
}
END_TEST

START_TEST(a_home_that_is_a_link_has_a_cache) {
  char home[128], link[128], made[128];
  struct stat info;
  snprintf(home, sizeof home, "%s/disk7", folder);
  snprintf(link, sizeof link, "%s/home", folder);
  snprintf(made, sizeof made, "%s/disk7/.cache/dfgnn", folder);
  ck_assert(!mkdir(home, 0755));
  ck_assert(!symlink("disk7", link));
  unsetenv("DFGNN_KERNEL_CACHE");
  unsetenv("XDG_CACHE_HOME");
  setenv("HOME", link, 1);
  EXPECT_COMPILED(3);
  EXPECT_COMPILED(0);
  ck_assert(!stat(made, &info));
  ck_assert_int_eq(info.st_mode & 0777, 0700);
}
END_TEST

/* Whoever has no right to write sees a disk that cannot be written. */
START_TEST(a_cache_that_cannot_be_written_is_read) {
  char command[256];
  IN_A_NEW_PROCESS(fill_cache(3));
  settle();
  snprintf(command, sizeof command,
           "rm -f %s-wal %s-shm; chmod 555 %s; chmod 444 %s", cache, cache,
           folder, cache);
  ck_assert_int_eq(system(command), 0);
  IN_A_NEW_PROCESS({
    EXPECT(geteuid() != 0 || !setuid(65534));
    open_engine();
    for (int i = 0; i < 4; i++)
      EXPECT(!launch(i, one));
    EXPECT(nvrtc_script.compiled == 1);
  });
  ck_assert(!chmod(folder, 0700));
}
END_TEST

START_TEST(a_cache_that_others_can_write_is_not_used) {
  dfgnn_cache_info info;
  IN_A_NEW_PROCESS(fill_cache(3));
  ck_assert(!chmod(cache, 0666));
  EXPECT_COMPILED(3);
  dfgnn__cache_describe(&info);
  ck_assert_str_eq(info.problem, "it can be written by others");
}
END_TEST

START_TEST(a_folder_that_cannot_be_written_means_no_cache) {
  setenv("DFGNN_KERNEL_CACHE", "/proc/none/kernels.db", 1);
  EXPECT_COMPILED(3);
  EXPECT_COMPILED(3);
}
END_TEST

static const char *on_nfs(const char *path) {
  (void)path;
  return "NFS";
}

START_TEST(a_network_file_system_means_no_cache) {
  dfgnn_cache_info info;
  dfgnn__network_filesystem = on_nfs;
  EXPECT_COMPILED(3);
  EXPECT_COMPILED(3);
  dfgnn__cache_describe(&info);
  ck_assert_str_eq(info.problem, "it lies on a network file system (NFS)");
  ck_assert_int_ne(access(cache, F_OK), 0);
}
END_TEST

START_TEST(the_cache_is_bounded_and_the_least_used_go_first) {
  dfgnn_cache_info info;
  setenv("DFGNN_KERNEL_CACHE_MB", "1", 1);
  IN_A_NEW_PROCESS(fill_cache(3));
  /* Two of the three entries become large and were used long ago. */
  in_sql("UPDATE kernel SET code = randomblob(600000), used = 1 "
         "WHERE rowid IN (SELECT rowid FROM kernel ORDER BY rowid LIMIT 2)");
  IN_A_NEW_PROCESS({
    open_engine();
    EXPECT(!launch(9, one));
  });
  dfgnn__cache_describe(&info);
  ck_assert_int_lt(info.bytes, 1 << 20);
  ck_assert_int_eq(info.entries, 3);
  int64_t gone = 0;
  ck_ok(dfgnn__cache_clear(&gone));
  ck_assert_int_eq(gone, 3);
  dfgnn__cache_describe(&info);
  ck_assert_int_eq(info.entries, 0);
}
END_TEST

START_TEST(a_process_killed_while_it_stores_harms_nobody) {
  for (int i = 0; i < 20; i++) {
    pid_t child = fork();
    if (child == 0) {
      open_engine();
      for (int n = 100 * i;; n++)
        (void)launch(n, one);
    }
    usleep(10000 + 1500 * (unsigned)i);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
  }
  IN_A_NEW_PROCESS({
    open_engine();
    EXPECT(!launch(0, one));
    EXPECT(gpu.launched == 1);
  });
}
END_TEST

/* ---- packs --------------------------------------------------------------- */

static void write_pack(int programs, const char *architecture) {
  dfgnn_pack_writer *writer = NULL;
  dfgnn_cache_info info;
  ck_ok(dfgnn__pack_create(&writer, pack));
  for (int i = 0; i < programs; i++) {
    const dfgnn_program p = program_of(i);
    dfgnn_image image;
    dfgnn_keys_of keys;
    ck_ok(dfgnn__compile(&image, &p, architecture));
    ck_ok(dfgnn__compiler_keys(&keys, &p, architecture));
    ck_ok(dfgnn__pack_add(writer, &keys, &image, architecture, "expression"));
    dfgnn__image_free(&image);
  }
  ck_ok(dfgnn__pack_close(writer, 1, &info));
  ck_assert_int_eq(info.entries, programs);
}

START_TEST(a_pack_serves_a_machine_without_a_compiler) {
  write_pack(3, "sm_90");
  setenv("DFGNN_KERNEL_PACK", pack, 1);
  dfgnn__compiler_replace(NULL);
  open_engine();
  for (int i = 0; i < 3; i++)
    ck_ok(launch(i, one));
  ck_assert_int_eq(dfgnn__pack_count(), 1);
  ck_fails(launch(3, one), DFGNN_ERROR_UNSUPPORTED, "no CUDA compiler");
}
END_TEST

START_TEST(a_pack_is_compressed_where_xz_is_there) {
  char first[6] = "";
  struct stat info;
  write_pack(40, "sm_90");
  ck_assert(!stat(pack, &info));
  FILE *file = fopen(pack, "rb");
  ck_assert_uint_eq(fread(first, 1, sizeof first, file), sizeof first);
  ck_assert(!fclose(file));
  ck_assert_int_eq(dfgnn__xz_is((unsigned char *)first, sizeof first),
                   dfgnn__xz_available());
  if (dfgnn__xz_available()) /* forty programs that are much alike */
    ck_assert_int_lt(info.st_size, 40 * 200);
}
END_TEST

START_TEST(a_pack_that_grows_beyond_all_bounds_is_refused) {
  unsigned char *bytes = sqlite3_malloc64(1 << 20);
  size_t size = 1 << 20;
  if (!dfgnn__xz_available()) {
    sqlite3_free(bytes);
    return;
  }
  memset(bytes, 0, size);
  FILE *file = fopen(pack, "wb");
  ck_assert_uint_eq(fwrite(bytes, 1, size, file), size);
  ck_assert(!fclose(file));
  ck_ok(dfgnn__xz_file(pack, pack));
  file = fopen(pack, "rb");
  size = fread(bytes, 1, size, file);
  ck_assert_uint_lt(size, 1000);
  ck_assert(!fclose(file));
  ck_fails(dfgnn__xz_unpack(&bytes, &size, (1 << 20) - 1, pack),
           DFGNN_ERROR_FORMAT, "when decompressed");
  ck_ok(dfgnn__xz_unpack(&bytes, &size, 1 << 20, pack));
  ck_assert_uint_eq(size, 1 << 20);
  sqlite3_free(bytes);
}
END_TEST

START_TEST(a_pack_for_another_architecture_is_of_no_use) {
  write_pack(3, "sm_80");
  setenv("DFGNN_KERNEL_PACK", pack, 1);
  dfgnn__compiler_replace(NULL);
  open_engine();
  ck_fails(launch(0, one), DFGNN_ERROR_UNSUPPORTED, "no CUDA compiler");
}
END_TEST

static const char *problem_of_the_pack(void) {
  dfgnn_pack_info info = {0};
  ck_assert(dfgnn__pack_describe(&info, 0));
  return info.problem;
}

START_TEST(a_pack_that_others_can_write_is_refused) {
  write_pack(1, "sm_90");
  ck_assert(!chmod(pack, 0666));
  setenv("DFGNN_KERNEL_PACK", pack, 1);
  ck_assert_int_eq(dfgnn__pack_count(), 0);
  ck_assert_ptr_nonnull(
      strstr(problem_of_the_pack(), "nobody else may be able to write it"));
}
END_TEST

START_TEST(without_a_compiler_a_device_is_usable_if_a_pack_is) {
  char why[1024];
  write_pack(1, "sm_90");
  dfgnn__compiler_replace(NULL);
  setenv("DFGNN_KERNEL_PACK", pack, 1);
  IN_A_NEW_PROCESS({ EXPECT(dfgnn__engine_usable(why, sizeof why)); });
  ck_assert(!chmod(pack, 0666));
  IN_A_NEW_PROCESS({
    EXPECT(!dfgnn__engine_usable(why, sizeof why));
    EXPECT(strstr(why, "no CUDA compiler"));
    EXPECT(strstr(why, "nobody else may be able to write it"));
  });
  setenv("DFGNN_KERNEL_PACK", "", 1);
  IN_A_NEW_PROCESS({
    EXPECT(!dfgnn__engine_usable(why, sizeof why));
    EXPECT(strstr(why, "nvidia-cuda-nvrtc"));
  });
}
END_TEST

START_TEST(a_pack_that_is_none_is_refused) {
  setenv("DFGNN_KERNEL_PACK", pack, 1);
  static const struct {
    const char *text;
    off_t size; /* negative: bytes that a whole pack lacks */
  } cases[] = {{"", 0}, {"junk", 4096}, {NULL, -1000}, {NULL, 200}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    IN_A_NEW_PROCESS({
      dfgnn_pack_info info;
      (void)unlink(pack);
      if (cases[i].text)
        overwrite(pack, cases[i].text, -1);
      else
        write_pack(40, "sm_90");
      struct stat whole;
      EXPECT(!stat(pack, &whole));
      EXPECT(!truncate(pack, cases[i].size < 0 ? whole.st_size + cases[i].size
                                               : cases[i].size));
      EXPECT(dfgnn__pack_describe(&info, 0));
      EXPECT(*info.problem || info.entries == 0);
      open_engine();
      EXPECT(!launch(0, one)); /* the compiler does it */
    });
}
END_TEST

static dfgnn_status distrust(const char *path, const unsigned char *bytes,
                             size_t size) {
  (void)bytes, (void)size;
  return dfgnn__fail(DFGNN_ERROR_STORE, "%s: not signed by anybody", path);
}

START_TEST(where_keys_are_set_a_pack_must_be_signed) {
  write_pack(1, "sm_90");
  setenv("DFGNN_KERNEL_PACK", pack, 1);
  dfgnn__pack_trust(distrust);
  ck_assert_int_eq(dfgnn__pack_count(), 0);
  ck_assert_ptr_nonnull(strstr(problem_of_the_pack(), "not signed by anybody"));
}
END_TEST

START_TEST(a_pack_that_is_given_up_leaves_no_file) {
  dfgnn_pack_writer *writer = NULL;
  char command[128];
  ck_ok(dfgnn__pack_create(&writer, pack));
  ck_ok(dfgnn__pack_close(writer, 0, NULL));
  snprintf(command, sizeof command, "test -z \"$(ls %s)\"", folder);
  ck_assert_int_eq(system(command), 0);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("engine");
  TCase *tests = tcase_create("all");
  tcase_add_checked_fixture(tests, setup, teardown);
  tcase_set_timeout(tests, 60);
  tcase_add_test(tests, a_program_reads_as_its_template_expression);
  tcase_add_test(tests, constants_with_names_are_members_of_one_type);
  tcase_add_test(tests, a_list_holds_each_program_once_and_launches_nothing);
  tcase_add_test(tests, a_kernel_is_compiled_and_loaded_once);
  tcase_add_test(tests, the_context_of_the_caller_is_put_back);
  tcase_add_test(tests, many_kernels_are_all_found_again);
  tcase_add_test(tests, large_shared_memory_is_asked_for_once);
  tcase_add_test(tests, threads_that_want_one_kernel_wait_for_one_compilation);
  tcase_add_test(tests, threads_open_and_close_engines_of_one_cache);
  tcase_add_test(tests, a_list_is_prepared_by_several_threads);
  tcase_add_test(tests, what_does_not_compile_says_why);
  tcase_add_test(tests, without_a_compiler_the_message_says_what_to_install);
  tcase_add_test(tests, without_a_driver_opening_fails);
  tcase_add_test(tests, errors_of_the_driver_become_statuses);
  tcase_add_test(tests, a_newer_gpu_gets_ptx_of_the_newest_known);
  tcase_add_test(tests, an_architecture_that_is_none_or_too_old_is_refused);
  tcase_add_test(tests, a_new_process_finds_what_another_compiled);
  tcase_add_test(tests, many_processes_that_ask_at_once_all_get_it);
  tcase_add_test(tests, a_damaged_entry_is_compiled_again);
  tcase_add_test(tests, an_entry_under_a_wrong_key_is_a_miss);
  tcase_add_test(tests, code_that_the_driver_refuses_is_compiled_again);
  tcase_add_test(tests, a_file_that_is_damaged_is_made_anew);
  tcase_add_test(tests, the_database_of_somebody_else_is_left_alone);
  tcase_add_test(tests, a_file_of_another_kind_is_left_alone);
  tcase_add_test(tests, a_log_of_another_user_is_not_read);
  tcase_add_test(tests, a_folder_that_others_can_write_is_refused);
  tcase_add_test(tests, a_folder_above_that_others_can_exchange_is_refused);
  tcase_add_test(tests, a_home_that_is_a_link_has_a_cache);
  tcase_add_test(tests, a_cache_that_cannot_be_written_is_read);
  tcase_add_test(tests, a_cache_that_others_can_write_is_not_used);
  tcase_add_test(tests, a_folder_that_cannot_be_written_means_no_cache);
  tcase_add_test(tests, a_network_file_system_means_no_cache);
  tcase_add_test(tests, the_cache_is_bounded_and_the_least_used_go_first);
  tcase_add_test(tests, a_process_killed_while_it_stores_harms_nobody);
  tcase_add_test(tests, a_pack_serves_a_machine_without_a_compiler);
  tcase_add_test(tests, a_pack_is_compressed_where_xz_is_there);
  tcase_add_test(tests, a_pack_that_grows_beyond_all_bounds_is_refused);
  tcase_add_test(tests, a_pack_for_another_architecture_is_of_no_use);
  tcase_add_test(tests, a_pack_that_others_can_write_is_refused);
  tcase_add_test(tests, without_a_compiler_a_device_is_usable_if_a_pack_is);
  tcase_add_test(tests, a_pack_that_is_none_is_refused);
  tcase_add_test(tests, where_keys_are_set_a_pack_must_be_signed);
  tcase_add_test(tests, a_pack_that_is_given_up_leaves_no_file);
  suite_add_tcase(suite, tests);
  return run_tests(suite);
}
