/* compiler.h - NVRTC, opened at run time
 *
 * It is looked for in this order: the file that DFGNN_NVRTC names; one that the
 * process has loaded already, as torch has; the loader's path; a toolkit under
 * /usr/local; the wheels of the Python environments in PATH. */
#ifndef DFGNN_ENGINE_COMPILER_H
#define DFGNN_ENGINE_COMPILER_H

#include "kernels/engine/engine.h"

enum { DFGNN_KEY_BYTES = 32, DFGNN_MAX_ARCHITECTURES = 64 };

/* Compiled code of one program. */
typedef struct dfgnn_image {
  void *code; /* an ELF cubin; PTX text, with its final 0, if ptx */
  size_t bytes;
  char *symbol; /* the kernel's name within it */
  int ptx;      /* for a GPU newer than the compiler */
} dfgnn_image;

void dfgnn__image_free(dfgnn_image *image);

typedef struct dfgnn_compiler_info {
  char path[512]; /* of the library; "" if none was found */
  int major, minor;
  int architecture_count;
  int architectures[DFGNN_MAX_ARCHITECTURES]; /* 90 for sm_90, rising */
  char problem[512];                          /* why none was found */
} dfgnn_compiler_info;

/* Opened once a process. */
const dfgnn_compiler_info *dfgnn__compiler(void);

/* The target that an architecture ("sm_90") is compiled for: itself or, if it
 * is newer than the compiler, PTX of the newest that the compiler knows
 * ("compute_90").  DFGNN_ERROR_UNSUPPORTED without a compiler, with what to
 * install; DFGNN_ERROR_INVALID for a name that is none or that is older than
 * the compiler supports. */
dfgnn_status dfgnn__compiler_target(char *target, size_t size,
                                    const char *architecture);

/* The keys of a program's code, BLAKE2b of all that it depends on: the sources
 * that it includes, its expression, the options and the target; `full` depends
 * on the compiler's version, too. */
typedef struct dfgnn_keys_of {
  unsigned char program[DFGNN_KEY_BYTES], full[DFGNN_KEY_BYTES];
} dfgnn_keys_of;
dfgnn_status dfgnn__compiler_keys(dfgnn_keys_of *keys,
                                  const dfgnn_program *program,
                                  const char *target);

/* Safe to call from several threads.  DFGNN_ERROR_UNSUPPORTED with the
 * compiler's first error line if it does not compile. */
dfgnn_status dfgnn__compile(dfgnn_image *image, const dfgnn_program *program,
                            const char *target);

/* For tests: functions in place of NVRTC's. */
typedef struct dfgnn_nvrtc {
  int (*Version)(int *major, int *minor);
  int (*GetNumSupportedArchs)(int *count);
  int (*GetSupportedArchs)(int *list);
  const char *(*GetErrorString)(int error);
  int (*CreateProgram)(void **program, const char *text, const char *name,
                       int headers, const char *const *texts,
                       const char *const *names);
  int (*DestroyProgram)(void **program);
  int (*AddNameExpression)(void *program, const char *expression);
  int (*CompileProgram)(void *program, int count, const char *const *options);
  int (*GetProgramLogSize)(void *program, size_t *size);
  int (*GetProgramLog)(void *program, char *log);
  int (*GetLoweredName)(void *program, const char *expression,
                        const char **name);
  int (*GetCUBINSize)(void *program, size_t *size);
  int (*GetCUBIN)(void *program, char *code);
  int (*GetPTXSize)(void *program, size_t *size);
  int (*GetPTX)(void *program, char *code);
} dfgnn_nvrtc;
void dfgnn__compiler_replace(const dfgnn_nvrtc *nvrtc);

#endif
