/* environment.c - the DFGNN_* variables */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/error.h"
#include "lib/context.h"

extern char **environ;

/* `words`: the values that mean something, where these are few; a value that is
 * empty counts as none. */
static const struct {
  const char *name, *meaning, *words[6];
} variables[] = {
    {.name = "DFGNN_STORE",
     .meaning = "colon-separated tuning stores; the first is written"},
    {.name = "DFGNN_TRUSTED_KEYS",
     .meaning =
         "public key, or directory of them: read only stores signed with one"},
    {.name = "DFGNN_PORTFOLIOS",
     .meaning = "a file of portfolios in place of the library's own"},
    {.name = "DFGNN_EFFORT",
     .meaning = "stored, estimate, measure, race or paper"},
    {.name = "DFGNN_FORCE_VARIANT",
     .meaning = "run this variant wherever its family applies"},
    {.name = "DFGNN_PROGRAMS",
     .meaning = "own: edge programs that are operators run as programs",
     .words = {"own"}},
    {.name = "DFGNN_DETERMINISTIC",
     .meaning = "1: deterministic variants only, 0: any"},
    {.name = "DFGNN_PAPER_CAPACITY",
     .meaning = "bytes of shared memory in the paper's rule"},
    {.name = "DFGNN_RECORD",
     .meaning = "folder that gets the problems no measurement answered"},
    {.name = "DFGNN_TUNE_BUDGET",
     .meaning = "seconds for each problem that effort measure tunes"},
    {.name = "DFGNN_HOST",
     .meaning = "name of this host in measurements; empty: none"},
    {.name = "DFGNN_LOG",
     .meaning = "none, error, warn, info or debug",
     .words = {"none", "error", "warn", "info", "debug"}},
    {.name = "DFGNN_MAX_FILE",
     .meaning = "largest uncompressed graph file in bytes"},
    {.name = "DFGNN_CC",
     .meaning = "C compiler for edge programs on CPUs (cc); empty: none"},
    {.name = "DFGNN_NVRTC",
     .meaning = "path of libnvrtc.so, which compiles GPU kernels"},
    {.name = "DFGNN_KERNEL_SOURCE",
     .meaning = "checkout to take device code from"},
    {.name = "DFGNN_KERNEL_CACHE",
     .meaning = "file of compiled kernels; empty: none"},
    {.name = "DFGNN_KERNEL_CACHE_MB",
     .meaning = "largest size of that file in MiB (256); 0: none"},
    {.name = "DFGNN_KERNEL_PACK",
     .meaning = "colon-separated packs of compiled kernels"},
    {.name = "DFGNN_KERNEL_LOG",
     .meaning = "1: print the compiler's log where it fails",
     .words = {"0", "1"}},
    {.name = "DFGNN_PACKAGE_STORE",
     .meaning = "path of the store that the package brings"},
    {.name = "DFGNN_LIBRARY",
     .meaning = "path of libdfgnn.so, for the Python package"},
    {.name = "DFGNN_MEASURE",
     .meaning = "0: the Python package measures no kernels by itself",
     .words = {"0", "1"}},
    {.name = "DFGNN_EXTENSION",
     .meaning = "0: the Python package calls by ctypes alone",
     .words = {"0", "1"}},
    {.name = "DFGNN_CHECK",
     .meaning =
         "edges: the Python package compares a list of edges in each call",
     .words = {"edges"}},
    {.name = "DFGNN_TEST_QUICK", .meaning = "1: a small part of the GPU tests"},
};

static const char *const levels[] = {"default", "none", "error",
                                     "warn",    "info", "debug"};

const char *dfgnn__environment_variable(size_t i, const char **meaning) {
  if (i >= sizeof variables / sizeof *variables)
    return NULL;
  if (meaning)
    *meaning = variables[i].meaning;
  return variables[i].name;
}

dfgnn_log_level dfgnn__environment_log_level(void) {
  const char *value = getenv("DFGNN_LOG");
  for (int level = DFGNN_LOG_NONE; value && level <= DFGNN_LOG_DEBUG; level++)
    if (!strcmp(value, levels[level]))
      return (dfgnn_log_level)level;
  return DFGNN_LOG_WARN;
}

/* Names that begin with DFGNN_TEST_ are for the tests. */
static int known(const char *entry, size_t length) {
  if (!strncmp(entry, "DFGNN_TEST_", 11))
    return 1;
  for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
    if (strlen(variables[i].name) == length &&
        !strncmp(variables[i].name, entry, length))
      return 1;
  return 0;
}

static void warn_foreign_word(const dfgnn_context *ctx, const char *name,
                              const char *const *words) {
  const char *value = getenv(name);
  char expected[64] = "";
  if (!value || !*value || !words[0])
    return;
  for (const char *const *word = words; *word; word++) {
    if (!strcmp(value, *word))
      return;
    snprintf(expected + strlen(expected), sizeof expected - strlen(expected),
             "%s%s",
             word == words ? ""
             : word[1]     ? ", "
                           : " or ",
             *word);
  }
  dfgnn__log(ctx, DFGNN_LOG_WARN, "%s is '%s', expected %s; it is ignored",
             name, value, expected);
}

void dfgnn__environment_warn(const dfgnn_context *ctx) {
  static atomic_flag warned = ATOMIC_FLAG_INIT;
  if (atomic_flag_test_and_set(&warned))
    return;
  for (char **entry = environ; *entry; entry++) {
    size_t length = strcspn(*entry, "=");
    if (!strncmp(*entry, "DFGNN_", 6) && !known(*entry, length))
      dfgnn__log(ctx, DFGNN_LOG_WARN,
                 "unknown environment variable %.*s is ignored; dfgnn(7) "
                 "lists the known ones",
                 (int)length, *entry);
  }
  for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
    warn_foreign_word(ctx, variables[i].name, variables[i].words);
}

void dfgnn__log(const dfgnn_context *ctx, dfgnn_log_level level,
                const char *format, ...) {
  char text[1024], message[1024];
  va_list args;
  if (level > ctx->log_level)
    return;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  dfgnn__escape(message, sizeof message, text);
  if (ctx->log)
    ctx->log(ctx->log_data, level, message);
  else
    fprintf(stderr, "dfgnn: %s: %s\n", levels[level], message);
}
