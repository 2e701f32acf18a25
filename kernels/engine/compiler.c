/* compiler.c - finds NVRTC and compiles programs with it */
#define _GNU_SOURCE /* dladdr */
#include "kernels/engine/compiler.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/engine/constants.h"
#include "kernels/engine/library.h"
#include "kernels/engine/sources.h"
#include "lib/base/error.h"

static dfgnn_nvrtc nvrtc;
static dfgnn_compiler_info info;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static const dfgnn_library_function functions[] = {
    {"nvrtcVersion", offsetof(dfgnn_nvrtc, Version)},
    {"nvrtcGetNumSupportedArchs", offsetof(dfgnn_nvrtc, GetNumSupportedArchs)},
    {"nvrtcGetSupportedArchs", offsetof(dfgnn_nvrtc, GetSupportedArchs)},
    {"nvrtcGetErrorString", offsetof(dfgnn_nvrtc, GetErrorString)},
    {"nvrtcCreateProgram", offsetof(dfgnn_nvrtc, CreateProgram)},
    {"nvrtcDestroyProgram", offsetof(dfgnn_nvrtc, DestroyProgram)},
    {"nvrtcAddNameExpression", offsetof(dfgnn_nvrtc, AddNameExpression)},
    {"nvrtcCompileProgram", offsetof(dfgnn_nvrtc, CompileProgram)},
    {"nvrtcGetProgramLogSize", offsetof(dfgnn_nvrtc, GetProgramLogSize)},
    {"nvrtcGetProgramLog", offsetof(dfgnn_nvrtc, GetProgramLog)},
    {"nvrtcGetLoweredName", offsetof(dfgnn_nvrtc, GetLoweredName)},
    {"nvrtcGetCUBINSize", offsetof(dfgnn_nvrtc, GetCUBINSize)},
    {"nvrtcGetCUBIN", offsetof(dfgnn_nvrtc, GetCUBIN)},
    {"nvrtcGetPTXSize", offsetof(dfgnn_nvrtc, GetPTXSize)},
    {"nvrtcGetPTX", offsetof(dfgnn_nvrtc, GetPTX)},
};

/* ---- finding NVRTC ------------------------------------------------------- */

static void describe(void) {
  int count = 0;
  (void)nvrtc.Version(&info.major, &info.minor);
  if (nvrtc.GetNumSupportedArchs(&count) || count < 1 ||
      count > DFGNN_MAX_ARCHITECTURES ||
      nvrtc.GetSupportedArchs(info.architectures))
    count = 0;
  info.architecture_count = count;
}

static int take(void *library, const char *name) {
  Dl_info where;
  const char *missing = dfgnn__library_functions(
      &nvrtc, library, functions, sizeof functions / sizeof *functions);
  if (missing) {
    snprintf(info.problem, sizeof info.problem, "%.300s has no %s", name,
             missing);
    dlclose(library);
    return 0;
  }
  if (dladdr((void *)nvrtc.Version, &where) && where.dli_fname)
    name = where.dli_fname;
  snprintf(info.path, sizeof info.path, "%s", name);
  describe();
  return 1;
}

static int load(const char *path, int flags) {
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL | flags);
  return library && take(library, path);
}

static int load_found(const char *path, void *context) {
  (void)context;
  return load(path, 0);
}

static int find_anywhere(void) {
  static const char *const names[] = {"libnvrtc.so.13", "libnvrtc.so.12"};
  static const char *const folders[] = {"nvidia/cu*/lib",
                                        "nvidia/cuda_nvrtc/lib", NULL};
  for (int i = 0; i < 2; i++)
    if (load(names[i], RTLD_NOLOAD))
      return 1;
  for (int i = 0; i < 2; i++)
    if (load(names[i], 0))
      return 1;
  return dfgnn__library_find("libnvrtc.so.1[23]", folders, load_found, NULL);
}

static void find(void) {
  const char *given = getenv("DFGNN_NVRTC");
  if (given && *given) {
    if (!load(given, 0) && !*info.problem) {
      const char *reason = dlerror();
      snprintf(info.problem, sizeof info.problem, "DFGNN_NVRTC: %.400s",
               reason ? reason : given);
    }
    return;
  }
  if (!find_anywhere() && !*info.problem)
    snprintf(info.problem, sizeof info.problem,
             "libnvrtc.so.13 and libnvrtc.so.12 are nowhere to be found");
}

const dfgnn_compiler_info *dfgnn__compiler(void) {
  pthread_once(&once, find);
  return &info;
}

static void find_nothing(void) {}

void dfgnn__compiler_replace(const dfgnn_nvrtc *replacement) {
  pthread_once(&once, find_nothing);
  memset(&info, 0, sizeof info);
  if (!replacement) {
    snprintf(info.problem, sizeof info.problem,
             "a test took the compiler away");
    return;
  }
  nvrtc = *replacement;
  snprintf(info.path, sizeof info.path, "a scripted compiler");
  describe();
}

/* ---- targets and keys ---------------------------------------------------- */

static dfgnn_status no_compiler(void) {
  return dfgnn__fail(
      DFGNN_ERROR_UNSUPPORTED,
      "there is no CUDA compiler: %s; install NVRTC (pip install "
      "nvidia-cuda-nvrtc, or a CUDA toolkit), name one with DFGNN_NVRTC, or "
      "use a pack of compiled kernels",
      dfgnn__compiler()->problem);
}

dfgnn_status dfgnn__compiler_target(char *target, size_t size,
                                    const char *architecture) {
  const dfgnn_compiler_info *c = dfgnn__compiler();
  int number = 0, length = 0, newest = 0;
  if (!*c->path)
    return no_compiler();
  if (sscanf(architecture, "sm_%d%n", &number, &length) != 1 ||
      architecture[length])
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "'%s' is no architecture, expected one such as sm_90",
                       architecture);
  for (int i = 0; i < c->architecture_count; i++) {
    if (c->architectures[i] == number) {
      snprintf(target, size, "sm_%d", number);
      return DFGNN_OK;
    }
    newest = c->architectures[i] > newest ? c->architectures[i] : newest;
  }
  if (number > newest && newest > 0) {
    snprintf(target, size, "compute_%d", newest);
    return DFGNN_OK;
  }
  return dfgnn__fail(DFGNN_ERROR_INVALID,
                     "%s (CUDA %d.%d) does not compile for %s", c->path,
                     c->major, c->minor, architecture);
}

static const char *const common_options[] = {"-std=c++17", "-default-device",
                                             "-DDFGNN_API="};
enum { OPTION_COUNT = sizeof common_options / sizeof *common_options };

static void add_text(crypto_generichash_state *state, const char *text) {
  crypto_generichash_update(state, (const unsigned char *)text,
                            strlen(text) + 1);
}

dfgnn_status dfgnn__compiler_keys(dfgnn_keys_of *keys,
                                  const dfgnn_program *program,
                                  const char *target) {
  const dfgnn_source_file *files[DFGNN_MAX_CLOSURE];
  const dfgnn_compiler_info *c = dfgnn__compiler();
  crypto_generichash_state state;
  char text[512];
  int count = 0;
  DFGNN_TRY(dfgnn__source_closure(files, &count, program->source));
  crypto_generichash_init(&state, NULL, 0, DFGNN_KEY_BYTES);
  add_text(&state, "dfgnn kernel 1");
  add_text(&state, target);
  for (int i = 0; i < OPTION_COUNT; i++)
    add_text(&state, common_options[i]);
  dfgnn__program_text(text, sizeof text, program);
  add_text(&state, text);
  for (int i = 0; i < count; i++) {
    add_text(&state, files[i]->name);
    add_text(&state, files[i]->text);
  }
  crypto_generichash_final(&state, keys->program, DFGNN_KEY_BYTES);
  snprintf(text, sizeof text, "NVRTC %d.%d", c->major, c->minor);
  crypto_generichash_init(&state, NULL, 0, DFGNN_KEY_BYTES);
  crypto_generichash_update(&state, keys->program, DFGNN_KEY_BYTES);
  add_text(&state, text);
  crypto_generichash_final(&state, keys->full, DFGNN_KEY_BYTES);
  return DFGNN_OK;
}

/* ---- compiling ----------------------------------------------------------- */

void dfgnn__image_free(dfgnn_image *image) {
  free(image->code);
  free(image->symbol);
  memset(image, 0, sizeof *image);
}

/* The first line of the log that has the word "error"; cuts the log there. */
static const char *first_error(char *log) {
  for (char *line = strtok(log, "\n"); line; line = strtok(NULL, "\n"))
    if (strstr(line, "error"))
      return line;
  return "the compiler gives no reason";
}

static dfgnn_status refused(void *handle, const char *text, int error) {
  dfgnn_status status;
  const char *whole = getenv("DFGNN_KERNEL_LOG");
  size_t size = 0;
  char *log = NULL;
  if (!nvrtc.GetProgramLogSize(handle, &size) && size > 1)
    log = calloc(size + 1, 1);
  if (log && nvrtc.GetProgramLog(handle, log))
    *log = 0;
  if (log && whole && !strcmp(whole, "1"))
    fprintf(stderr, "%s\n%s\n", text, log);
  status =
      dfgnn__fail(DFGNN_ERROR_UNSUPPORTED, "%s does not compile: %s", text,
                  log && *log ? first_error(log) : nvrtc.GetErrorString(error));
  free(log);
  return status;
}

static int take_code(dfgnn_image *image, void *handle, int ptx) {
  int error = ptx ? nvrtc.GetPTXSize(handle, &image->bytes)
                  : nvrtc.GetCUBINSize(handle, &image->bytes);
  image->ptx = ptx;
  image->code = error ? NULL : malloc(image->bytes + 1);
  if (image->code)
    error = ptx ? nvrtc.GetPTX(handle, image->code)
                : nvrtc.GetCUBIN(handle, image->code);
  return error;
}

dfgnn_status dfgnn__compile(dfgnn_image *image, const dfgnn_program *program,
                            const char *target) {
  const dfgnn_source_file *files[DFGNN_MAX_CLOSURE];
  const char *texts[DFGNN_MAX_CLOSURE], *names[DFGNN_MAX_CLOSURE];
  const char *lowered = NULL;
  char text[512], expression[512], main_text[2048], option[64];
  void *handle = NULL;
  int count = 0;
  memset(image, 0, sizeof *image);
  if (!*dfgnn__compiler()->path)
    return no_compiler();
  dfgnn_status status = dfgnn__source_closure(files, &count, program->source);
  if (status)
    return status;
  for (int i = 0; i < count; i++) {
    texts[i] = files[i]->text;
    names[i] = files[i]->name;
  }
  dfgnn__program_text(text, sizeof text, program);
  dfgnn__program_expression(expression, sizeof expression, program);
  dfgnn__program_source(main_text, sizeof main_text, program);
  snprintf(option, sizeof option, "--gpu-architecture=%s", target);
  const char *options[1 + OPTION_COUNT] = {option};
  memcpy(options + 1, common_options, sizeof common_options);
  int error = nvrtc.CreateProgram(&handle, main_text, "program.cu", count,
                                  texts, names);
  if (error)
    return dfgnn__fail(DFGNN_ERROR_UNSUPPORTED, "nvrtcCreateProgram: %s",
                       nvrtc.GetErrorString(error));
  error = nvrtc.AddNameExpression(handle, expression);
  if (!error)
    error = nvrtc.CompileProgram(handle, 1 + OPTION_COUNT, options);
  if (error) {
    status = refused(handle, text, error);
    goto out;
  }
  error = take_code(image, handle, !strncmp(target, "compute_", 8));
  if (!error)
    error = nvrtc.GetLoweredName(handle, expression, &lowered);
  if (!error && lowered)
    image->symbol = strdup(lowered);
  if (error || !image->code || !image->symbol)
    status = error ? dfgnn__fail(DFGNN_ERROR_UNSUPPORTED, "%s: %s", text,
                                 nvrtc.GetErrorString(error))
                   : dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
out:
  (void)nvrtc.DestroyProgram(&handle);
  if (status)
    dfgnn__image_free(image);
  return status;
}
