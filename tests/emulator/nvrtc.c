/* nvrtc.c - a compiler of CUDA programs that makes shared objects for a CPU
 *
 * It writes a program and its headers into a folder of its own and runs a C++
 * compiler on them: DFGNN_EMULATOR_CXX, or g++, with the options of
 * DFGNN_EMULATOR_FLAGS too.  Three things are not left to emulate.h: the header
 * kernels/common/ptx*.cuh are replaced by the emulator's own, dynamic shared
 * memory becomes a pointer, and all is put into a namespace without a name, so
 * that the compiler drops what a kernel does not call. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <regex.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

enum {
  MOST_NAMES = 8,
  MOST_OPTIONS = 16,
  ERROR_MEMORY = 1,
  ERROR_INPUT = 3,
  ERROR_OPTION = 5,
  ERROR_COMPILATION = 6,
  ERROR_NAME = 10,
  HEADER = 16 /* "DFGNNEMU" and the size of the shared object */
};

extern char **environ;

typedef struct program {
  char *text, *names[MOST_NAMES];
  int count, headers;
  char **header_texts, **header_names;
  char *log, *code;
  size_t bytes;
  char lowered[MOST_NAMES][16];
} program;

EXPORT int nvrtcVersion(int *major, int *minor) {
  *major = 99;
  *minor = 0;
  return 0;
}

static const int architectures[] = {80, 90};

EXPORT int nvrtcGetNumSupportedArchs(int *count) {
  *count = sizeof architectures / sizeof *architectures;
  return 0;
}

EXPORT int nvrtcGetSupportedArchs(int *list) {
  memcpy(list, architectures, sizeof architectures);
  return 0;
}

EXPORT const char *nvrtcGetErrorString(int error) {
  switch (error) {
  case 0:
    return "NVRTC_SUCCESS";
  case ERROR_MEMORY:
    return "NVRTC_ERROR_OUT_OF_MEMORY";
  case ERROR_INPUT:
    return "NVRTC_ERROR_INVALID_INPUT";
  case ERROR_OPTION:
    return "NVRTC_ERROR_INVALID_OPTION";
  case ERROR_COMPILATION:
    return "NVRTC_ERROR_COMPILATION";
  case ERROR_NAME:
    return "NVRTC_ERROR_NAME_EXPRESSION_NOT_VALID";
  default:
    return "NVRTC_ERROR_INTERNAL_ERROR";
  }
}

EXPORT int nvrtcCreateProgram(void **out, const char *text, const char *name,
                              int headers, const char *const *texts,
                              const char *const *names) {
  program *p = calloc(1, sizeof *p);
  (void)name;
  if (!p)
    return ERROR_MEMORY;
  p->text = strdup(text);
  p->header_texts = calloc((size_t)headers + 1, sizeof *p->header_texts);
  p->header_names = calloc((size_t)headers + 1, sizeof *p->header_names);
  for (int i = 0; i < headers; i++) {
    p->header_texts[i] = strdup(texts[i]);
    p->header_names[i] = strdup(names[i]);
  }
  p->headers = headers;
  *out = p;
  return 0;
}

EXPORT int nvrtcDestroyProgram(void **out) {
  program *p = *out;
  if (!p)
    return ERROR_INPUT;
  for (int i = 0; i < p->headers; i++) {
    free(p->header_texts[i]);
    free(p->header_names[i]);
  }
  for (int i = 0; i < p->count; i++)
    free(p->names[i]);
  free(p->header_texts);
  free(p->header_names);
  free(p->text);
  free(p->log);
  free(p->code);
  free(p);
  *out = NULL;
  return 0;
}

EXPORT int nvrtcAddNameExpression(void *handle, const char *expression) {
  program *p = handle;
  if (p->count == MOST_NAMES)
    return ERROR_INPUT;
  snprintf(p->lowered[p->count], sizeof *p->lowered, "kernel_%d", p->count);
  p->names[p->count++] = strdup(expression);
  return 0;
}

/* ---- sources ------------------------------------------------------------- */

static FILE *create(const char *folder, const char *name) {
  char path[1024];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  for (char *p = path + strlen(folder) + 1; (p = strchr(p, '/')); p++) {
    *p = 0;
    (void)mkdir(path, 0700);
    *p = '/';
  }
  return fopen(path, "w");
}

/* Writes a text in which `extern __shared__ T name[];` has become
 * `T *const name = the shared memory;`. */
static void write_text(FILE *to, const char *text) {
  static const char pattern[] = "extern __shared__ (__align__\\([0-9]+\\) )?"
                                "([A-Za-z0-9_ ]+) ([A-Za-z0-9_]+)\\[\\];";
  regex_t regex;
  regmatch_t m[4];
  if (regcomp(&regex, pattern, REG_EXTENDED))
    abort();
  for (; !regexec(&regex, text, 4, m, 0); text += m[0].rm_eo) {
    int type = (int)(m[2].rm_eo - m[2].rm_so);
    int name = (int)(m[3].rm_eo - m[3].rm_so);
    fprintf(to,
            "%.*s%.*s *const %.*s = static_cast<%.*s *>("
            "emulated_grid.shared);",
            (int)m[0].rm_so, text, type, text + m[2].rm_so, name,
            text + m[3].rm_so, type, text + m[2].rm_so);
  }
  fputs(text, to);
  regfree(&regex);
}

/* Headers of C come from the C library, and instructions from the emulator. */
static int is_replaced(const char *name) {
  return !strcmp(name, "kernels/common/ptx.cuh") || !strcmp(name, "stdint.h") ||
         !strcmp(name, "stddef.h");
}

static int write_sources(const program *p, const char *folder) {
  FILE *to;
  for (int i = 0; i < p->headers; i++) {
    if (is_replaced(p->header_names[i]))
      continue;
    to = create(folder, p->header_names[i]);
    if (!to)
      return 0;
    write_text(to, p->header_texts[i]);
    fclose(to);
  }
  to = create(folder, "kernels/common/ptx.cuh");
  if (!to)
    return 0;
  fputs("#include \"" EMULATOR_DIR "/ptx.cuh\"\n", to);
  fclose(to);
  to = create(folder, "program.cc");
  if (!to)
    return 0;
  fputs("#include \"emulate.h\"\nnamespace {\n", to);
  write_text(to, p->text);
  fputs("}\nEMULATED_PROGRAM(", to);
  for (int i = 0; i < p->count; i++)
    fprintf(to, "%semulated_entry<&%s>::make(\"%s\", \"%s\")", i ? ",\n  " : "",
            p->names[i], p->lowered[i], p->names[i]);
  fputs(")\n", to);
  fclose(to);
  return 1;
}

/* ---- the compiler -------------------------------------------------------- */

static char *read_whole(const char *folder, const char *name, size_t *bytes,
                        size_t before) {
  char path[1024];
  struct stat about;
  snprintf(path, sizeof path, "%s/%s", folder, name);
  FILE *from = fopen(path, "rb");
  char *text = NULL;
  if (from && !fstat(fileno(from), &about)) {
    text = calloc(before + (size_t)about.st_size + 1, 1);
    *bytes = text ? fread(text + before, 1, (size_t)about.st_size, from) : 0;
  }
  if (from)
    fclose(from);
  return text;
}

static int run(char *const *words, const char *log) {
  posix_spawn_file_actions_t actions;
  pid_t child;
  int status = -1;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 2, log,
                                   O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (!posix_spawnp(&child, words[0], &actions, NULL, words, environ))
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
      ;
  posix_spawn_file_actions_destroy(&actions);
  return status == 0;
}

/* Adds the options of a kernel to the words, without those that only NVRTC has;
 * returns the number of words, or -1 if an option is unknown. */
static int add_options(const char **words, int at, int count,
                       const char *const *options, char *architecture,
                       size_t size) {
  for (int i = 0; i < count; i++) {
    const char *o = options[i];
    int number = 0;
    if (sscanf(o, "--gpu-architecture=sm_%d", &number) == 1) {
      snprintf(architecture, size, "-D__CUDA_ARCH__=%d0", number);
      words[at++] = architecture;
    } else if (!strncmp(o, "-std=", 5) || !strncmp(o, "-D", 2)) {
      words[at++] = o;
    } else if (strcmp(o, "-default-device") != 0) {
      return -1;
    }
  }
  return at;
}

static int compile(program *p, const char *folder, int count,
                   const char *const *options) {
  const char *compiler = getenv("DFGNN_EMULATOR_CXX");
  const char *flags = getenv("DFGNN_EMULATOR_FLAGS");
  char own[512], architecture[64] = "", include[600], out[600], in[600],
                 log[600];
  const char *words[64] = {compiler && *compiler ? compiler : "g++",
                           "-O1",
                           "-w",
                           "-march=native",
                           "-ffp-contract=fast",
                           "-fno-strict-aliasing",
                           "-fno-exceptions",
                           "-fno-rtti",
                           "-fno-math-errno",
                           "-fno-trapping-math",
                           "-fvisibility=hidden",
                           "-fPIC",
                           "-shared",
                           "-I" EMULATOR_DIR};
  size_t bytes = 0;
  int at = 0;
  while (words[at])
    at++;
  snprintf(own, sizeof own, "%s", flags ? flags : "");
  for (char *rest = own, *word; at < 40 && (word = strsep(&rest, " "));)
    if (*word)
      words[at++] = word;
  at = count < MOST_OPTIONS ? add_options(words, at, count, options,
                                          architecture, sizeof architecture)
                            : -1;
  if (at < 0)
    return ERROR_OPTION;
  snprintf(include, sizeof include, "-I%s", folder);
  snprintf(out, sizeof out, "%s/program.so", folder);
  snprintf(in, sizeof in, "%s/program.cc", folder);
  snprintf(log, sizeof log, "%s/log", folder);
  words[at++] = include;
  words[at++] = "-o";
  words[at++] = out;
  words[at++] = in;
  int ok = run((char *const *)words, log);
  p->log = read_whole(folder, "log", &bytes, 0);
  p->code = ok ? read_whole(folder, "program.so", &p->bytes, HEADER) : NULL;
  if (!p->code)
    return ERROR_COMPILATION;
  memcpy(p->code, "DFGNNEMU", 8);
  memcpy(p->code + 8, &p->bytes, sizeof p->bytes);
  p->bytes += HEADER;
  return 0;
}

static int drop(const char *path, const struct stat *about, int kind,
                struct FTW *walk) {
  (void)about, (void)kind, (void)walk;
  return remove(path);
}

EXPORT int nvrtcCompileProgram(void *handle, int count,
                               const char *const *options) {
  program *p = handle;
  const char *parent = getenv("TMPDIR");
  char folder[512];
  snprintf(folder, sizeof folder, "%s/dfgnn-emulator-XXXXXX",
           parent && *parent ? parent : "/tmp");
  if (!mkdtemp(folder))
    return ERROR_INPUT;
  int error = write_sources(p, folder) ? compile(p, folder, count, options)
                                       : ERROR_INPUT;
  if (!error || !getenv("DFGNN_EMULATOR_KEEP"))
    (void)nftw(folder, drop, 16, FTW_DEPTH | FTW_PHYS);
  return error;
}

/* ---- results ------------------------------------------------------------- */

EXPORT int nvrtcGetProgramLogSize(void *handle, size_t *size) {
  const program *p = handle;
  *size = p->log ? strlen(p->log) + 1 : 1;
  return 0;
}

EXPORT int nvrtcGetProgramLog(void *handle, char *log) {
  const program *p = handle;
  strcpy(log, p->log ? p->log : "");
  return 0;
}

EXPORT int nvrtcGetLoweredName(void *handle, const char *expression,
                               const char **name) {
  program *p = handle;
  for (int i = 0; i < p->count; i++)
    if (!strcmp(p->names[i], expression)) {
      *name = p->lowered[i];
      return 0;
    }
  return ERROR_NAME;
}

EXPORT int nvrtcGetCUBINSize(void *handle, size_t *size) {
  const program *p = handle;
  *size = p->bytes;
  return p->code ? 0 : ERROR_INPUT;
}

EXPORT int nvrtcGetCUBIN(void *handle, char *code) {
  const program *p = handle;
  if (!p->code)
    return ERROR_INPUT;
  memcpy(code, p->code, p->bytes);
  return 0;
}

EXPORT int nvrtcGetPTXSize(void *handle, size_t *size) {
  (void)handle, (void)size;
  return ERROR_INPUT;
}

EXPORT int nvrtcGetPTX(void *handle, char *code) {
  (void)handle, (void)code;
  return ERROR_INPUT;
}
