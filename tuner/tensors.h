/* tensors.h - what a harness holds, shared by its making and its check */
#ifndef DFGNN_TUNER_TENSORS_H
#define DFGNN_TUNER_TENSORS_H

#include "lib/graph.h"
#include "lib/operator.h"
#include "lib/plan.h"
#include "tuner/harness.h"

#define DFGNN_GUARD 256       /* bytes before and after each output */
#define DFGNN_GUARD_BYTE 0xa5 /* what they hold */
#define DFGNN_GIVEN_BYTE 0x3f /* .75 in float, in other types some number */
#define DFGNN_CHUNK ((size_t)1 << 20)
#define DFGNN_PARALLEL 100000 /* numbers that are worth waking threads for */

/* One tensor of the problem.  memory is DFGNN_GUARD bytes before its first. */
typedef struct dfgnn_buffer {
  const dfgnn_tensor *tensor;
  char *memory; /* on the device */
  char *host;   /* of an input: what was copied; of an output: what came back */
  size_t bytes;
  double *expected;      /* of an output, for the checked rows */
  float *fixed, *summed; /* of their bounds: see kernels/common/accuracy.h */
  double rms;
} dfgnn_buffer;

/* Which nodes are checked. */
typedef struct dfgnn_checked {
  int64_t *index; /* NULL: all */
  int64_t count;
} dfgnn_checked;

struct dfgnn_harness {
  dfgnn_context *ctx;
  dfgnn_graph *graph;
  const dfgnn_operator *op;
  dfgnn_problem problem;
  dfgnn_args args;  /* what execute gets: no optional output unasked for */
  dfgnn_args check; /* the same with every output */
  dfgnn_buffer buffers[DFGNN_MAX_TENSORS];
  int count;
  char *workspace;
  size_t workspace_bytes;
  unsigned char *poison, *guard; /* DFGNN_CHUNK and DFGNN_GUARD bytes */
  unsigned char *given; /* DFGNN_CHUNK bytes that gradients are added to */
  dfgnn_checked rows, columns; /* destinations and sources */
  int64_t *first_edge; /* [rows.count + 1], in what is expected by edge */
  char *host_offsets, *host_indices;
  dfgnn_view transpose; /* on the host, if a result is by source */
  int prepared;         /* the reference was tried, and said: */
  dfgnn_status expected;
  dfgnn_accuracy accuracy; /* of the last check */
};

/* DFGNN_ERROR_MEMORY, of the host. */
dfgnn_status dfgnn__harness_memory(size_t bytes);
/* Either way between host and device. */
dfgnn_status dfgnn__harness_copy(dfgnn_harness *h, void *to, const void *from,
                                 size_t bytes);
/* DFGNN_DTYPE_COUNT: 32-bit integers. */
dfgnn_dtype dfgnn__harness_type(const dfgnn_harness *h,
                                const dfgnn_tensor *tensor);

#endif
