/* plan.h - how an MLP on edges is divided among kernels, launches and blocks */
#ifndef DFGNN_MLP_CUDA_PLAN_H
#define DFGNN_MLP_CUDA_PLAN_H

#include "kernels/engine/engine.h"
#include "kernels/mlp/job.h"

enum {
  DFGNN_MLP_RESIDENT = 1, /* all weights in a block's shared memory, inner
                           * values in registers: widths up to 128 */
  DFGNN_MLP_STREAMED = 2  /* a kernel for each layer of a launch's edges */
};
enum { DFGNN_MLP_MMA = 1, DFGNN_MLP_WGMMA = 2 };
enum { DFGNN_MLP_FREE = 1, DFGNN_MLP_LOCKSTEP = 2 };
enum { DFGNN_MLP_OWN = 1, DFGNN_MLP_LIBRARY = 2 };

/* These may be tuned; 0 leaves a choice to the rule. */
typedef struct dfgnn_mlp_tuning {
  int64_t way;      /* DFGNN_MLP_RESIDENT or DFGNN_MLP_STREAMED */
  int64_t warps;    /* resident: of a block */
  int64_t span;     /* resident: tiles of 16 edges whose rows are summed
                     * together */
  int64_t lockstep; /* resident: DFGNN_MLP_FREE, or DFGNN_MLP_LOCKSTEP: the
                     * warps of a block begin each tile together, and read its
                     * instructions together, which are more than the caches
                     * near them hold */
  int64_t product;  /* streamed: DFGNN_MLP_OWN, our kernels multiply, or
                     * DFGNN_MLP_LIBRARY, cuBLASLt does */
  int64_t columns;  /* streamed, own: of a block's product, 128 or 256 */
  int64_t stages;   /* streamed, own: copies of operands, 2 to 4 */
  int64_t wgmma;    /* own products of a layer (streamed) and of the gradients
                     * of weights: DFGNN_MLP_MMA or DFGNN_MLP_WGMMA */
  int64_t launch_bytes; /* what the kernels of a launch leave for each other, at
                         * most; the resident way has launches backward alone */
} dfgnn_mlp_tuning;

/* A member of a tuning, and the values that a tuner tries. */
typedef struct dfgnn_mlp_knob {
  const char *name;
  size_t offset;
  int ways; /* which read it: a sum of 1 << way */
  int count;
  int64_t value[6];
} dfgnn_mlp_knob;

enum { DFGNN_MLP_KNOBS = 9 };
extern const dfgnn_mlp_knob dfgnn__mlp_knobs[DFGNN_MLP_KNOBS];

typedef struct dfgnn_mlp_plan {
  const dfgnn_mlp_job *job;
  dfgnn_mlp_tuning by; /* without a 0 */
  int flags, units;
  int64_t edges_of_span, spans; /* of the sums at destinations; of all edges */
  int64_t edges_of_launch;
  int weight_tiles, splits; /* of the gradients of weights */
  size_t packed_bytes, shared_bytes;
  /* Places in the workspace. */
  size_t packed, partial, partial_arg, edge_rows, grad_first, norm_partial,
      weight_partial, position, last;
  size_t sums, gemm; /* library: of a product, and what cuBLASLt works in */
  size_t bias_partial[DFGNN_MLP_LAYERS]; /* library: of [parts, width] */
  size_t input[DFGNN_MLP_LAYERS], grad_z[DFGNN_MLP_LAYERS];
  size_t z[DFGNN_MLP_LAYERS];
  size_t table[2 * DFGNN_MLP_LAYERS]; /* streamed weights, and transposed */
  size_t bytes;
} dfgnn_mlp_plan;

/* Numbers of 16 bytes, of a group of columns; padded widths. */
static inline int dfgnn__mlp_group(dfgnn_dtype dtype) {
  return 64 / (int)dfgnn_dtype_size(dtype);
}
static inline int dfgnn__mlp_padded(const dfgnn_edge_mlp *mlp, int l) {
  const int group = dfgnn__mlp_group(mlp->dtype);
  const int64_t width = l < 0 ? mlp->edge_dim : mlp->width[l];
  return (int)((width + group - 1) / group) * group;
}

/* Does the pass keep inner values for the other, or read what it kept? */
static inline int dfgnn__mlp_is_kept(const dfgnn_mlp_job *job) {
  return job->args.kept[0] != NULL;
}

static inline int dfgnn__mlp_by_library(const dfgnn_mlp_plan *plan) {
  return plan->by.product == DFGNN_MLP_LIBRARY;
}
/* Library: parts of the gradient of the bias of layer l. */
int dfgnn__mlp_bias_parts(const dfgnn_mlp_plan *plan, int l);

/* Has a layer's product enough work for a library? */
int dfgnn__mlp_is_wide(const dfgnn_edge_mlp *mlp);
/* Is the gradient of any weight or bias asked for? */
int dfgnn__mlp_wants_weights(const dfgnn_mlp_job *job);
int dfgnn__mlp_wants_norm(const dfgnn_mlp_job *job);
/* Do rows of e, of parts and of e' lie at multiples of 16 bytes? */
int dfgnn__mlp_has_vector_rows(const dfgnn_mlp_job *job);
/* Are rows of e copied, since products cannot read them where they are? */
int dfgnn__mlp_copies_edges(const dfgnn_mlp_plan *plan);

/* NULL if there are kernels for it, else what is missing. */
const char *dfgnn__mlp_cuda_missing(const dfgnn_mlp_job *job,
                                    const dfgnn_device_info *device);
/* NULL if they run divided as `tuning` says, else what is wrong with it. */
const char *dfgnn__mlp_cuda_refuses(const dfgnn_mlp_job *job,
                                    const dfgnn_device_info *device,
                                    const dfgnn_mlp_tuning *tuning);
/* `tuning`, or nothing if it is NULL, completed by the rule. */
dfgnn_mlp_tuning dfgnn__mlp_rule(const dfgnn_mlp_job *job,
                                 const dfgnn_device_info *device,
                                 const dfgnn_mlp_tuning *tuning);

dfgnn_mlp_plan dfgnn__mlp_plan(const dfgnn_mlp_job *job,
                               const dfgnn_device_info *device,
                               const dfgnn_mlp_tuning *tuning);

/* How many tables a layer has: 0, 1, or 2 with that of its transpose.  A
 * library reads weights where they are, unless they have to be rounded. */
int dfgnn__mlp_table_kinds(const dfgnn_mlp_plan *plan);
/* Streamed weights as the kernels read them: rows of the table of layer l, or
 * of its transpose, and numbers of a row. */
int64_t dfgnn__mlp_table_rows(const dfgnn_mlp_plan *plan, int l,
                              int transposed);
int64_t dfgnn__mlp_table_stride(const dfgnn_mlp_plan *plan, int l,
                                int transposed);

#endif
