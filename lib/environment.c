/* environment.c - the DFGNN_* variables */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/error.h"
#include "lib/context.h"

extern char **environ;

static const char *const variables[][2] = {
    {"DFGNN_STORE", "colon-separated tuning stores; the first is written"},
    {"DFGNN_TRUSTED_KEYS", "public key, or directory of them: read only stores "
                           "signed with one"},
    {"DFGNN_PORTFOLIOS", "a file of portfolios in place of the library's own"},
    {"DFGNN_EFFORT", "stored, estimate, measure, race or paper"},
    {"DFGNN_FORCE_VARIANT", "run this variant wherever its family applies"},
    {"DFGNN_PROGRAMS", "own: edge programs that are operators run as programs"},
    {"DFGNN_DETERMINISTIC", "1: deterministic variants only, 0: any"},
    {"DFGNN_PAPER_CAPACITY", "bytes of shared memory in the paper's rule"},
    {"DFGNN_RECORD", "folder that gets the problems no measurement answered"},
    {"DFGNN_TUNE_BUDGET", "seconds for each problem that effort measure tunes"},
    {"DFGNN_HOST", "name of this host in measurements; empty: none"},
    {"DFGNN_LOG", "none, error, warn, info or debug"},
    {"DFGNN_MAX_FILE", "largest uncompressed graph file in bytes"},
    {"DFGNN_CC", "C compiler for edge programs on CPUs (cc); empty: none"},
    {"DFGNN_NVRTC", "path of libnvrtc.so, which compiles GPU kernels"},
    {"DFGNN_KERNEL_SOURCE", "checkout to take device code from"},
    {"DFGNN_KERNEL_CACHE", "file of compiled kernels; empty: none"},
    {"DFGNN_KERNEL_CACHE_MB",
     "largest size of that file in MiB (256); 0: none"},
    {"DFGNN_KERNEL_PACK", "colon-separated packs of compiled kernels"},
    {"DFGNN_KERNEL_LOG", "1: print the compiler's log where it fails"},
    {"DFGNN_PACKAGE_STORE", "path of the store that the package brings"},
    {"DFGNN_LIBRARY", "path of libdfgnn.so, for the Python package"},
    {"DFGNN_MEASURE", "0: the Python package measures no kernels by itself"},
    {"DFGNN_EXTENSION", "0: the Python package calls by ctypes alone"},
    {"DFGNN_CHECK", "edges: the Python package compares a list of edges in "
                    "each call"},
    {"DFGNN_TEST_QUICK", "1: a small part of the GPU tests"},
};

/* The values of variables that have few; a value that is empty counts as none.
 */
static const char *const words[][7] = {
    {"DFGNN_PROGRAMS", "own"},
    {"DFGNN_LOG", "none", "error", "warn", "info", "debug"},
    {"DFGNN_KERNEL_LOG", "0", "1"},
    {"DFGNN_MEASURE", "0", "1"},
    {"DFGNN_EXTENSION", "0", "1"},
    {"DFGNN_CHECK", "edges"},
};

static const char *const levels[] = {"default", "none", "error",
                                     "warn",    "info", "debug"};

const char *dfgnn__environment_variable(size_t i, const char **meaning) {
  if (i >= sizeof variables / sizeof *variables)
    return NULL;
  if (meaning)
    *meaning = variables[i][1];
  return variables[i][0];
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
    if (strlen(variables[i][0]) == length &&
        !strncmp(variables[i][0], entry, length))
      return 1;
  return 0;
}

/* row: of words. */
static void warn_foreign_word(const dfgnn_context *ctx,
                              const char *const *row) {
  const char *value = getenv(row[0]);
  char expected[64] = "";
  if (!value || !*value)
    return;
  for (const char *const *word = row + 1; *word; word++) {
    if (!strcmp(value, *word))
      return;
    const char *before = word == row + 1 ? "" : word[1] ? ", " : " or ";
    snprintf(expected + strlen(expected), sizeof expected - strlen(expected),
             "%s%s", before, *word);
  }
  dfgnn__log(ctx, DFGNN_LOG_WARN, "%s is '%s', expected %s; it is ignored",
             row[0], value, expected);
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
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    warn_foreign_word(ctx, words[i]);
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
