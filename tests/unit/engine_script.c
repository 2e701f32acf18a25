/* engine_script.c - see engine_script.h */
#include "tests/unit/engine_script.h"

#include <sqlite3.h>

#include "kernels/engine/cache.h"

struct nvrtc_script nvrtc_script = {.lock = PTHREAD_MUTEX_INITIALIZER};
struct gpu_script gpu;
_Thread_local cu_context gpu_current_context;

/* ---- a scripted compiler ------------------------------------------------- */

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
  *context = gpu_current_context;
  return 0;
}
static cu_result gpu_set(cu_context context) {
  gpu_current_context = context;
  return 0;
}
static cu_result gpu_push(cu_context context) {
  gpu_current_context = context;
  gpu.pushed++;
  return 0;
}
static cu_result gpu_pop(cu_context *context) {
  *context = gpu_current_context;
  gpu_current_context = NULL;
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

/* ---- an engine ----------------------------------------------------------- */

char folder[] = "/tmp/dfgnn-engine-XXXXXX";
char cache[64], pack_path[64];
dfgnn_engine *engine;
dfgnn_queue queue;

void engine_setup(void) {
  memset(&gpu, 0, sizeof gpu);
  gpu.major = 9;
  nvrtc_script.newest = 90;
  snprintf(nvrtc_script.code, sizeof nvrtc_script.code, "good code");
  strcpy(folder, "/tmp/dfgnn-engine-XXXXXX");
  ck_assert_ptr_nonnull(mkdtemp(folder));
  snprintf(cache, sizeof cache, "%s/kernels.db", folder);
  snprintf(pack_path, sizeof pack_path, "%s/some.pack", folder);
  setenv("DFGNN_KERNEL_CACHE", cache, 1);
  setenv("DFGNN_KERNEL_PACK", "", 1);
  dfgnn__driver_replace(&scripted_driver);
  dfgnn__compiler_replace(&scripted_nvrtc);
}

void engine_teardown(void) {
  char command[128];
  dfgnn__engine_close(engine);
  engine = NULL;
  snprintf(command, sizeof command, "rm -rf %s", folder);
  ck_assert_int_eq(system(command), 0);
}

void open_engine(void) {
  ck_ok(dfgnn__engine_open(&engine, 0));
  queue = (dfgnn_queue){.engine = engine};
}

dfgnn_program program_of(int n) {
  const dfgnn_program p = DFGNN_PROGRAM(
      SCRIPT_SOURCE, SCRIPT_NAME, DFGNN_TYPE(DFGNN_BF16), n, DFGNN_TYPE_I64);
  return p;
}

dfgnn_status launch(int n, dfgnn_grid grid) {
  const dfgnn_program p = program_of(n);
  int argument = 42;
  return dfgnn__launch_struct(&queue, &p, grid, &argument);
}

void fill_cache(int programs) {
  open_engine();
  for (int i = 0; i < programs; i++)
    ck_ok(launch(i, one));
}

void in_sql(const char *sql) {
  sqlite3 *db = NULL;
  ck_assert_int_eq(sqlite3_open(cache, &db), SQLITE_OK);
  ck_assert_msg(!sqlite3_exec(db, sql, NULL, NULL, NULL), "%s",
                sqlite3_errmsg(db));
  sqlite3_close(db);
}

void overwrite(const char *path, const char *text, off_t keep) {
  FILE *file = fopen(path, "r+");
  if (!file)
    file = fopen(path, "w");
  ck_assert_ptr_nonnull(file);
  fputs(text, file);
  fclose(file);
  if (keep >= 0)
    ck_assert_int_eq(truncate(path, keep), 0);
}

void write_pack(int programs, const char *architecture) {
  dfgnn_pack_writer *writer = NULL;
  dfgnn_cache_info info;
  ck_ok(dfgnn__pack_create(&writer, pack_path));
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

const char *problem_of_the_pack(void) {
  dfgnn_pack_info info = {0};
  ck_assert(dfgnn__pack_describe(&info, 0));
  return info.problem;
}
