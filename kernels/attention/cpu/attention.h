/* attention.h - what the CPU families of attention share
 *
 * An algorithm is plain C over a table of inner loops, one table for each
 * instruction set and storage type; all algorithms share them.  Scores and sums
 * are "scalars": double for F64, float otherwise. */
#ifndef DFGNN_ATTENTION_CPU_ATTENTION_H
#define DFGNN_ATTENTION_CPU_ATTENTION_H

#include <math.h>
#include <string.h>

#include "kernels/common/cpu_simd.h"
#include "kernels/common/dropout.h"
#include "kernels/common/variant.h"

/* A feature tensor: distances in bytes. */
typedef struct dfgnn_cpu_tensor {
  char *base;
  int64_t node, head, feature;
} dfgnn_cpu_tensor;

typedef struct dfgnn_cpu_kernels dfgnn_cpu_kernels;
typedef struct dfgnn_cpu_dense dfgnn_cpu_dense; /* cpu_dense.h */

typedef struct dfgnn_cpu_job {
  const dfgnn_cpu_kernels *kernels;
  dfgnn_op op;
  int64_t destinations, sources, edges, heads, dim;
  size_t element_size, scalar_size;
  int threads;
  int offsets64;
  const void *offsets;
  const int32_t *indices;
  dfgnn_cpu_tensor query, key, value, out; /* key: what scores gather */
  const void *score_dst, *score_src, *att;
  const void *score_edge; /* GAT [edges, heads], or NULL */
  void *inverse;          /* AGNN: [sources, heads], 1 / max(norm, 1e-12) */
  void *lse, *weights;    /* or NULL */
  const void *grad_lse;   /* backward: [destinations, heads], or NULL */
  double scale, slope;
  const void *bias;    /* [edges, heads], or NULL */
  const void *numbers; /* of edges, as wide as offsets; NULL: as they come */
  int drops;           /* weights, by: */
  uint64_t drop_key;
  uint32_t drop_threshold;
  double drop_scale;    /* of weights that are kept */
  const int64_t *drawn; /* what dropout draws by for an edge of the graph; NULL:
                         * the edge's number */
  const void *ends;     /* backward: [the graph's destinations, heads] pairs of
                         * -lse (or -inf: no weights) and -<grad_out, out> */
  int by_source;        /* the graph's destinations are gathered */
  int packed;           /* features of every input are adjacent */
  int out_packed;       /* those of out are */
  int out_adds;         /* store adds to what is in out */
  int64_t prefetch;     /* edges ahead whose rows are asked for; 0: none */
  char *thread_memory;  /* one slice a thread */
  size_t thread_bytes;
  size_t sum_bytes; /* of accumulate's sum with its padding */
} dfgnn_cpu_job;

/* The running softmax of a row: scores seen so far sum to sum * e^shift. */
typedef struct dfgnn_cpu_softmax {
  double shift, sum;
} dfgnn_cpu_softmax;

#define DFGNN_CPU_SOFTMAX_INIT                                                 \
  { -INFINITY, 0.0 }

struct dfgnn_cpu_kernels {
  /* Scores of the edges begin .. end - 1 of a row, by edges in flight (4, 8)
   * and operator. */
  void (*score[2][DFGNN_OP_COUNT])(const dfgnn_cpu_job *job, int64_t row,
                                   int64_t head, int64_t begin, int64_t end,
                                   void *scores);
  /* Replaces scores by e^(score - shift), updates state, and returns what
   * earlier sums have to be multiplied by. */
  double (*weigh)(void *scores, int64_t count, dfgnn_cpu_softmax *state);
  /* sum = before * sum + weights x values of the edges; before < 0 starts a
   * sum.  With row >= 0 the sum is complete: after * sum goes to out, and what
   * sum holds is undefined.  sum has room for dim scalars and the padding. */
  void (*accumulate)(const dfgnn_cpu_job *job, int64_t head, int64_t begin,
                     int64_t end, const void *weights, void *sum, double before,
                     int64_t row, double after);
  /* out of a row = after * sum. */
  void (*store)(const dfgnn_cpu_job *job, int64_t row, int64_t head,
                const void *sum, double after);
  /* to = a * to + b * from. */
  void (*combine)(void *to, double a, const void *from, double b,
                  int64_t count);
  /* x *= factor. */
  void (*multiply)(void *x, int64_t count, double factor);
  /* Scores into weights at a stride, and those weights to e^(w - shift) *
   * factor. */
  void (*keep)(void *weights, const void *scores, int64_t count,
               int64_t stride);
  void (*normalize)(void *weights, int64_t count, int64_t stride, double shift,
                    double factor);
  /* Multiplies the weights of edges begin .. by 0 or drop_scale. */
  void (*drop)(const dfgnn_cpu_job *job, int64_t head, int64_t begin,
               int64_t count, void *weights);
  /* job->inverse of the sources begin .. end - 1. */
  void (*norms)(const dfgnn_cpu_job *job, int64_t begin, int64_t end);
  /* A tensor with adjacent features from one without: nodes begin .. end - 1.
   */
  void (*pack)(const dfgnn_cpu_job *job, const dfgnn_cpu_tensor *to,
               const dfgnn_cpu_tensor *from, int64_t begin, int64_t end);

  /* ---- dense blocks ---- */

  const dfgnn_cpu_dense *dense;
  /* Scores of a row's edges begin .. from its products with the nodes first ..
   */
  void (*take)(const dfgnn_cpu_job *job, int64_t row, int64_t head,
               int64_t begin, int64_t count, const void *products,
               int64_t first, void *scores);
  /* Weights x factor of those edges to a row of all `columns` nodes: zeros
   * where there is no edge. */
  void (*scatter)(const dfgnn_cpu_job *job, int64_t begin, int64_t count,
                  const void *weights, double factor, int64_t first,
                  int64_t columns, void *to);
  /* x is read in whole vectors. */
  int (*finite)(const void *x, int64_t count);
  /* The smallest and the largest index; INT32_MAX and -1 of none. */
  void (*span)(const int32_t *index, int64_t count, int32_t *first,
               int32_t *last);
  /* Marks the columns, counted from first, of a row's edges; 0 if one of them
   * is there twice. */
  int (*mark)(const int32_t *index, int64_t count, int64_t first,
              int64_t columns, uint8_t *marks);
  /* Replaces a row of products by e^(scale * product - shift) where it is
   * marked, else by zero; sets state. */
  void (*weigh_marked)(void *cells, const uint8_t *marks, int64_t columns,
                       double scale, dfgnn_cpu_softmax *state);

  /* ---- backward ---- */

  /* job->ends of nodes begin .. end - 1, from lse, query and key (grad_out and
   * out). */
  void (*ends)(const dfgnn_cpu_job *job, int64_t begin, int64_t end, void *to);
  /* Scores to weights P r, and <grad_out, value> to gradients dS of the scores
   * (NULL: not wanted).  Returns 1 if some P is zero. */
  int (*terms)(const dfgnn_cpu_job *job, int64_t row, int64_t head,
               int64_t begin, int64_t count, void *weights, void *gradients);
  /* Takes the terms of edges from [heads, edges] arrays in the order of their
   * numbers; returns 1 if some gradient is zero.  Puts gradients into one. */
  int (*fetch)(const dfgnn_cpu_job *job, int64_t head, int64_t begin,
               int64_t count, const void *from_weights,
               const void *from_gradients, void *weights, void *gradients);
  void (*spread)(const dfgnn_cpu_job *job, int64_t head, int64_t begin,
                 int64_t count, const void *gradients, void *to);
  int (*has_zero)(const void *x, int64_t count);
  /* Leaves out edges whose terms are both zero; returns how many are left. */
  int64_t (*compact)(const dfgnn_cpu_job *job, int64_t begin, int64_t count,
                     const void *weights, const void *gradients,
                     int32_t *to_indices, void *to_weights, void *to_gradients);
  /* AGNN: to = gradients over the norms of what is gathered. */
  void (*divide)(const dfgnn_cpu_job *job, int64_t head, int64_t begin,
                 int64_t count, const void *gradients, void *to);
  /* AGNN: sum, of normalised rows times dS, to the gradient of the own row;
   * returns the sum of dS cos. */
  double (*cosine)(const dfgnn_cpu_job *job, int64_t row, int64_t head,
                   void *sum);
  /* GAT: the sum of dS times the slopes; those go to edges [edges, heads] as
   * well if it is not NULL. */
  double (*additive)(const dfgnn_cpu_job *job, int64_t row, int64_t head,
                     int64_t begin, int64_t end, const void *gradients,
                     void *edges);
  /* GATv2: sum = before * sum + att times the sum of dS times the slopes
   * (before < 0 starts a sum); att_sum, if not NULL, gets dS times what att was
   * multiplied by. */
  void (*slopes)(const dfgnn_cpu_job *job, int64_t row, int64_t head,
                 int64_t begin, int64_t end, const void *gradients, void *sum,
                 double before, void *att_sum);
};

/* Edges whose values are added up on their own before they join the sum of a
 * row. */
#define DFGNN_CPU_BLOCK 256

/* Widest vector, in bytes: how far buffers must reach beyond their end. */
#define DFGNN_CPU_PADDING 64

/* ---- parameters that families share ------------------------------------- */

#define DFGNN_CPU_SCHEDULE                                                     \
  {                                                                            \
    "schedule", 3, {0, 1, 2}, { "serial", "dynamic", "balanced" }              \
  }

const dfgnn_cpu_kernels *dfgnn__cpu_kernels(int simd, dfgnn_dtype dtype);

/* ---- the workspace of a launch ------------------------------------------ */

typedef struct dfgnn_cpu_choice {
  int simd, schedule, prefetch;
  size_t thread_bytes; /* of each thread's slice */
  size_t shared_bytes; /* of the family's own */
} dfgnn_cpu_choice;

/* Bytes for what every family needs (norms, packed copies) and for choice's. */
size_t dfgnn__cpu_workspace(const dfgnn_setting *setting,
                            const dfgnn_cpu_choice *choice);
/* Fills job and does what comes before any row: norms, packed copies.
 * Returns where the family's own bytes begin.  Of the forward pass. */
void *dfgnn__cpu_begin(dfgnn_cpu_job *job, const dfgnn_launch *launch,
                       const dfgnn_cpu_choice *choice);

size_t dfgnn__cpu_aligned(size_t bytes);
size_t dfgnn__cpu_scalar_size(const dfgnn_problem *problem);
dfgnn_cpu_tensor dfgnn__cpu_tensor_of(const dfgnn_problem *problem,
                                      const void *base,
                                      const dfgnn_strides *strides);
/* What all tensors of a launch have in common. */
void dfgnn__cpu_describe(dfgnn_cpu_job *job, const dfgnn_launch *launch,
                         const dfgnn_cpu_choice *choice);
/* Are features copied to be adjacent?  Bytes of a copy; copies, and returns the
 * end. */
int dfgnn__cpu_packs(const dfgnn_problem *problem);
size_t dfgnn__cpu_packed_bytes(const dfgnn_problem *problem, int64_t nodes);
char *dfgnn__cpu_pack(const dfgnn_cpu_job *job, const dfgnn_problem *problem,
                      dfgnn_cpu_tensor *t, int64_t nodes, int schedule,
                      char *memory);
/* job->inverse of all sources. */
void dfgnn__cpu_find_norms(const dfgnn_cpu_job *job, int schedule);

/* ---- work shared out to threads ----------------------------------------- */

typedef enum dfgnn_cpu_schedule {
  DFGNN_CPU_SERIAL,   /* the calling thread does all */
  DFGNN_CPU_DYNAMIC,  /* tasks of a fixed number of rows */
  DFGNN_CPU_BALANCED, /* tasks of about equal numbers of edges */
} dfgnn_cpu_schedule;

typedef void (*dfgnn_cpu_body)(const dfgnn_cpu_job *job, void *data,
                               char *thread_memory, int64_t begin, int64_t end);

/* Calls body on ranges that cover the destinations once. */
void dfgnn__cpu_rows(const dfgnn_cpu_job *job, int schedule, int64_t rows,
                     dfgnn_cpu_body body, void *data);
/* Calls body on ranges of `step` that cover 0 .. count - 1 once. */
void dfgnn__cpu_range(const dfgnn_cpu_job *job, int schedule, int64_t count,
                      int64_t step, dfgnn_cpu_body body, void *data);

/* Where the part-th of `parts` pieces of about equal work begins. */
int64_t dfgnn__cpu_part(const dfgnn_cpu_job *job, int64_t part, int64_t parts);

static inline int64_t dfgnn__cpu_offset(const dfgnn_cpu_job *job, int64_t row) {
  return job->offsets64 ? ((const int64_t *)job->offsets)[row]
                        : ((const int32_t *)job->offsets)[row];
}

/* The row that edge e is in: the last whose first edge is <= e. */
int64_t dfgnn__cpu_row_of(const dfgnn_cpu_job *job, int64_t e);

/* The log-sum-exp of a row whose scores are all seen.  Returns 1 / sum, or 0
 * if there was nothing to sum: then out is done, too. */
double dfgnn__cpu_finish(const dfgnn_cpu_job *job, int64_t row, int64_t head,
                         const dfgnn_cpu_softmax *state);

static inline void *dfgnn__cpu_scalar(const dfgnn_cpu_job *job, void *array,
                                      int64_t i) {
  return (char *)array + (size_t)i * job->scalar_size;
}

/* The weights of a row's edges begin .. end - 1, which hold scores. */
static inline void dfgnn__cpu_normalize(const dfgnn_cpu_job *job, int64_t head,
                                        int64_t begin, int64_t end,
                                        const dfgnn_cpu_softmax *state) {
  int64_t heads = job->heads;
  char *weights =
      (char *)job->weights + (size_t)(begin * heads + head) * job->scalar_size;
  job->kernels->normalize(weights, end - begin, heads,
                          state->shift == -INFINITY ? 0 : state->shift,
                          state->sum == 0 ? 0 : 1 / state->sum);
}

/* Weights that are known go to args.weights, if that is asked for. */
static inline void dfgnn__cpu_keep(const dfgnn_cpu_job *job, int64_t head,
                                   int64_t begin, int64_t count,
                                   const void *weights) {
  if (job->weights)
    job->kernels->keep(
        dfgnn__cpu_scalar(job, job->weights, begin * job->heads + head),
        weights, count, job->heads);
}

static inline void dfgnn__cpu_drop(const dfgnn_cpu_job *job, int64_t head,
                                   int64_t begin, int64_t count,
                                   void *weights) {
  if (job->drops)
    job->kernels->drop(job, head, begin, count, weights);
}

/* The number of an edge in the graph. */
static inline int64_t dfgnn__cpu_number(const dfgnn_cpu_job *job, int64_t k) {
  if (!job->numbers)
    return k;
  return job->offsets64 ? ((const int64_t *)job->numbers)[k]
                        : ((const int32_t *)job->numbers)[k];
}

/* The number that dropout draws by. */
static inline int64_t dfgnn__cpu_drawn(const dfgnn_cpu_job *job, int64_t k) {
  int64_t edge = dfgnn__cpu_number(job, k);
  return job->drawn ? job->drawn[edge] : edge;
}

/* Clears out of a row without weights. */
void dfgnn__cpu_clear(const dfgnn_cpu_job *job, int64_t row, int64_t head);

/* The rest of a row whose scores have been weighed in one piece. */
void dfgnn__cpu_attend(const dfgnn_cpu_job *job, int64_t row, int64_t head,
                       int64_t begin, int64_t end, void *weights, void *sum,
                       const dfgnn_cpu_softmax *state);

int dfgnn__cpu_all_zero(const dfgnn_cpu_job *job, const void *scalars,
                        int64_t count);

/* Bytes of accumulate's sum, and of scores [heads, edges]. */
size_t dfgnn__cpu_sum_bytes(const dfgnn_setting *setting);
size_t dfgnn__cpu_score_bytes(const dfgnn_setting *setting);

#endif
