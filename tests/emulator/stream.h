/* stream.h - streams, captures and graphs of the emulated driver
 *
 * Work of a stream is done at once, so streams keep nothing but the capture
 * that they are in. */
#ifndef DFGNN_EMULATOR_STREAM_H
#define DFGNN_EMULATOR_STREAM_H

#include "grid.h"
#include "kernels/engine/driver.h"

enum {
  ERROR_VALUE = 1,
  ERROR_MEMORY = 2,
  ERROR_CONTEXT = 201,
  ERROR_BAD_IMAGE = 200,
  ERROR_HANDLE = 400,
  ERROR_NOT_FOUND = 500,
  ERROR_UNSUPPORTED_IN_CAPTURE = 900,
  ERROR_CAPTURE_INVALIDATED = 901,
  ERROR_CAPTURE_UNMATCHED = 903,
  ERROR_CAPTURE_UNJOINED = 904,
  ERROR_CAPTURE_IMPLICIT = 906,
  ERROR_WRONG_THREAD = 908
};

typedef enum step_kind {
  STEP_LAUNCH,
  STEP_COPY,
  STEP_FILL,
  STEP_CALL
} step_kind;

typedef struct graph_step {
  step_kind kind;
  emulated_launch launch;
  size_t offsets[16]; /* places of the arguments in values */
  _Alignas(16) char values[8 * 1024];
  cu_pointer to, from;
  size_t bytes;
  unsigned char byte;
  void (*call)(const void *values);
} graph_step;

/* The functions of the driver, which the library exports. */
#define F(name, symbol, parameters)                                            \
  __attribute__((visibility("default"))) cu_result symbol parameters;
DFGNN_DRIVER_FUNCTIONS(F)
#undef F

/* A step that calls a function of another library with a copy of its values. */
__attribute__((visibility("default"))) cu_result
emulated_call(cu_stream stream, void (*call)(const void *values),
              const void *values, size_t bytes);
/* Does a step, or records it in the stream's capture. */
cu_result emulated_do(cu_stream stream, const graph_step *step);
/* Whether calls that may wait for the device are refused now; the captures that
 * forbid it become invalid. */
cu_result emulated_forbidden(void);
cu_result emulated_needs_context(void);

#endif
