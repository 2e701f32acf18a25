/* xla_ffi.h - the part of XLA's C API that dfgnn_xla_cpu and _cuda use
 *
 * XLA calls a handler with a call frame, and a handler calls XLA through a
 * table of functions; both only ever grow at their ends, and a change that
 * would break this raises the major version (0).  The layouts are those of
 * xla/ffi/api/c_api.h, which jax.ffi.include_dir() holds; declaring the few
 * structures that are used lets one libdfgnn serve every JAX with jax.ffi.
 * Names are XLA's, in dfgnn's spelling. */
#ifndef DFGNN_LIB_XLA_FFI_H
#define DFGNN_LIB_XLA_FFI_H

#include <stddef.h>
#include <stdint.h>

enum { XLA_MAJOR_VERSION = 0 };

typedef struct xla_error xla_error;
typedef struct xla_execution xla_execution;

typedef enum xla_error_code {
  XLA_INVALID_ARGUMENT = 3,
  XLA_RESOURCE_EXHAUSTED = 8,
  XLA_UNIMPLEMENTED = 12,
  XLA_INTERNAL = 13
} xla_error_code;

typedef enum xla_type {
  XLA_S32 = 4,
  XLA_S64 = 5,
  XLA_U32 = 8,
  XLA_F16 = 10,
  XLA_F32 = 11,
  XLA_F64 = 12,
  XLA_BF16 = 16
} xla_type;

enum { XLA_EXTENSION_METADATA = 1 };
enum { XLA_STAGE_EXECUTE = 3 };
enum { XLA_ATTRIBUTE_SCALAR = 3, XLA_ATTRIBUTE_STRING = 4 };

typedef struct xla_extension {
  size_t struct_size;
  int type;
  struct xla_extension *next;
} xla_extension;

typedef struct xla_version {
  size_t struct_size;
  xla_extension *extensions;
  int major, minor;
} xla_version;

/* XLA asks a handler for these instead of running it. */
typedef struct xla_metadata {
  size_t struct_size;
  xla_version version;
  uint32_t traits;
} xla_metadata;

typedef struct xla_metadata_extension {
  xla_extension base;
  xla_metadata *metadata;
} xla_metadata_extension;

typedef struct xla_text {
  const char *start;
  size_t length;
} xla_text;

typedef struct xla_scalar {
  int type; /* xla_type */
  void *value;
} xla_scalar;

typedef struct xla_buffer {
  size_t struct_size;
  xla_extension *extensions;
  int type; /* xla_type */
  void *data;
  int64_t rank;
  int64_t *dims;
} xla_buffer;

typedef struct xla_buffers { /* arguments, and results */
  size_t struct_size;
  xla_extension *extensions;
  int64_t count;
  int *kinds;
  xla_buffer **buffers;
} xla_buffers;

typedef struct xla_attributes {
  size_t struct_size;
  xla_extension *extensions;
  int64_t count;
  int *kinds;
  xla_text **names;
  void **values; /* xla_scalar, xla_text */
} xla_attributes;

/* ---- the functions that a handler may call --------------------------------
 */

typedef struct xla_error_arguments {
  size_t struct_size;
  xla_extension *extensions;
  const char *message;
  int code; /* xla_error_code */
} xla_error_arguments;

typedef struct xla_error_message_arguments {
  size_t struct_size;
  xla_extension *extensions;
  xla_error *error;
  const char *message; /* out; lives as long as the error */
} xla_error_message_arguments;

typedef struct xla_error_destroy_arguments {
  size_t struct_size;
  xla_extension *extensions;
  xla_error *error;
} xla_error_destroy_arguments;

typedef struct xla_stream_arguments {
  size_t struct_size;
  xla_extension *extensions;
  xla_execution *execution;
  void *stream; /* out: a CUstream */
} xla_stream_arguments;

typedef struct xla_allocate_arguments {
  size_t struct_size;
  xla_extension *extensions;
  xla_execution *execution;
  size_t size, alignment;
  void *data; /* out */
} xla_allocate_arguments;

typedef struct xla_free_arguments {
  size_t struct_size;
  xla_extension *extensions;
  xla_execution *execution;
  size_t size;
  void *data;
} xla_free_arguments;

typedef struct xla_ordinal_arguments {
  size_t struct_size;
  xla_extension *extensions;
  xla_execution *execution;
  int32_t ordinal; /* out */
} xla_ordinal_arguments;

typedef struct xla_api {
  size_t struct_size;
  xla_extension *extensions;
  xla_version version;
  const void *internal;
  xla_error *(*error_create)(xla_error_arguments *);
  void (*error_message)(xla_error_message_arguments *);
  void (*error_destroy)(xla_error_destroy_arguments *);
  void (*handler_register)(void);
  xla_error *(*stream_get)(xla_stream_arguments *);
  void (*type_register)(void);
  void (*execution_get)(void);
  void (*state_set)(void);
  void (*state_get)(void);
  xla_error *(*memory_allocate)(xla_allocate_arguments *);
  xla_error *(*memory_free)(xla_free_arguments *);
  void (*thread_pool_schedule)(void);
  void (*thread_pool_threads)(void);
  void (*future_create)(void);
  void (*future_set_available)(void);
  void (*future_set_error)(void);
  void (*run_id_get)(void);
  xla_error *(*ordinal_get)(xla_ordinal_arguments *);
} xla_api;

typedef struct xla_frame {
  size_t struct_size;
  xla_extension *extensions;
  const xla_api *api;
  xla_execution *execution;
  int stage;
  xla_buffers arguments, results;
  xla_attributes attributes;
} xla_frame;

#endif
