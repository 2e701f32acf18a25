/* tensors.h - the data of a harness, shared by harness.c and check.c */
#ifndef DFGNN_TUNER_TENSORS_H
#define DFGNN_TUNER_TENSORS_H

#include "lib/graph.h"
#include "lib/operator.h"
#include "lib/plan.h"
#include "tuner/harness.h"

#define DFGNN_GUARD 256       /* bytes before and after each output */
#define DFGNN_GUARD_BYTE 0xa5 /* the value of these bytes */
#define DFGNN_GIVEN_BYTE 0x3f /* .75 in float, in other types some number */
#define DFGNN_CHUNK ((size_t)1 << 20)
#define DFGNN_PARALLEL 100000 /* up to so many numbers, one thread works */

/* One tensor of the problem.  memory begins DFGNN_GUARD bytes before it. */
typedef struct dfgnn_buffer {
  const dfgnn_tensor *tensor;
  char *memory; /* on the device */
  char *host;   /* an input's values, or an output's copied back */
  size_t bytes;
  double *expected;      /* an output's, for the checked nodes */
  float *fixed, *summed; /* parts of the bounds: kernels/common/accuracy.h */
  double rms;
} dfgnn_buffer;

/* The nodes that are checked. */
typedef struct dfgnn_checked {
  int64_t *index; /* NULL: all */
  int64_t count;
} dfgnn_checked;

struct dfgnn_program_harness;
struct dfgnn_mlp_harness;

struct dfgnn_harness {
  dfgnn_context *ctx;
  dfgnn_graph *graph;
  const dfgnn_operator *op;
  dfgnn_problem problem;
  dfgnn_args args;  /* for execute, without outputs that may be left out */
  dfgnn_args check; /* the same tensors with every output */
  dfgnn_buffer buffers[DFGNN_MAX_TENSORS];
  int count;
  char *workspace;
  size_t workspace_bytes;
  unsigned char *poison, *guard; /* DFGNN_CHUNK and DFGNN_GUARD bytes */
  unsigned char *given; /* DFGNN_CHUNK bytes that gradients are added to */
  dfgnn_checked rows, columns; /* destinations and sources */
  int64_t *first_edge; /* [rows.count + 1]: each row's first edge in expected */
  char *host_offsets, *host_indices;
  dfgnn_view transpose; /* on the host, if an output belongs to sources */
  int prepared;         /* the reference ran, with the status: */
  dfgnn_status expected;
  dfgnn_accuracy accuracy;               /* found by the last check */
  struct dfgnn_program_harness *program; /* tuner/program.h; NULL: an operator's
                                          * tensors are here */
  struct dfgnn_mlp_harness *mlp;         /* likewise: tuner/mlp.h */
};

/* guarded.c: fails with DFGNN_ERROR_MEMORY: the host lacks so many bytes. */
dfgnn_status dfgnn__harness_memory(size_t bytes);
/* Copies between host and device, in either direction. */
dfgnn_status dfgnn__harness_copy(dfgnn_harness *h, void *to, const void *from,
                                 size_t bytes);
/* The type of a tensor's elements; DFGNN_DTYPE_COUNT: 32-bit integers. */
dfgnn_dtype dfgnn__harness_type(const dfgnn_harness *h,
                                const dfgnn_tensor *tensor);

#endif
