/* attention.h - the job, inner loops and workspace of the CPU families of
 * attention
 *
 * An algorithm is plain C over a table of inner loops, one table for each
 * instruction set and type; all algorithms share them. */
#ifndef DFGNN_ATTENTION_CPU_ATTENTION_H
#define DFGNN_ATTENTION_CPU_ATTENTION_H

#include <math.h>
#include <string.h>

#include "kernels/common/cpu_simd.h"
#include "kernels/common/dropout.h"
#include "kernels/common/number.h"
#include "kernels/common/variant.h"

/* A feature tensor: distances in bytes. */
typedef struct dfgnn_cpu_tensor {
  char *base;
  int64_t node, head, feature;
} dfgnn_cpu_tensor;

typedef struct dfgnn_cpu_kernels dfgnn_cpu_kernels;
struct dfgnn_cpu_side;  /* backward.h */
struct dfgnn_cpu_edges; /* edges.h */

typedef struct dfgnn_cpu_job {
  const dfgnn_cpu_kernels *kernels;
  dfgnn_op op;
  int64_t destinations, sources, edges, heads, dim;
  int64_t out_dim; /* dim, without the padding of heads */
  size_t element_size, scalar_size;
  int threads;
  int offsets64;
  const void *offsets;
  const int32_t *indices;
  dfgnn_cpu_tensor query, key, value, out; /* key: gathered by scores */
  const void *score_dst, *score_src, *att;
  const void *score_edge;  /* GAT [edges, heads], or NULL */
  void *inverse;           /* AGNN: [sources, heads], 1 / max(norm, 1e-12) */
  const void *own_inverse; /* the same of destinations; NULL: not known */
  void *lse, *weights;     /* or NULL */
  const void *grad_lse;    /* backward: [destinations, heads], or NULL */
  double scale, slope;
  const void *bias;    /* [edges, heads], or NULL */
  const void *numbers; /* the graph's edge of each, as wide as offsets; NULL:
                        * the same edge */
  int drops;           /* 1: weights are dropped, by the next three */
  uint64_t drop_key;
  uint32_t drop_threshold;
  double drop_scale;    /* the factor of weights that are kept */
  const int64_t *drawn; /* the number by which dropout draws for an edge of the
                         * graph; NULL: the edge's own */
  const void *ends;     /* backward: [the graph's destinations, 2, heads]: -lse
                         * (or -inf: no weights), grad_lse - <grad_out, out> */
  const struct dfgnn_cpu_edges *term; /* edge features, or NULL */
  int by_source;       /* rows are sources, and destinations are gathered */
  int packed;          /* features of every input are adjacent */
  int out_packed;      /* features of out are adjacent */
  int out_adds;        /* store adds to what is in out */
  int all_heads;       /* forward: rows are for attend() */
  int64_t prefetch;    /* rows are prefetched so many edges ahead; 0: not */
  char *thread_memory; /* one slice a thread */
  size_t thread_bytes;
  size_t sum_bytes; /* of accumulate's sum with its padding */
} dfgnn_cpu_job;

/* The running softmax of a row: the exponentials of the scores seen so far sum
 * to sum * e^shift. */
typedef struct dfgnn_cpu_softmax {
  double shift, sum;
} dfgnn_cpu_softmax;

#define DFGNN_CPU_SOFTMAX_INIT                                                 \
  { -INFINITY, 0.0 }

/* Sums of the gradients of parameters; NULL: not wanted. */
typedef struct dfgnn_cpu_parameters {
  double *beta;
  void *att;    /* [heads, dim] */
  void *weight; /* [heads, dim, F] */
  void *bias;   /* [heads, dim] */
} dfgnn_cpu_parameters;

struct dfgnn_cpu_kernels {
  int vector; /* scalars of a vector */
  /* Computes the scores of the edges begin .. end - 1 of a row. */
  void (*score[DFGNN_OP_COUNT])(const dfgnn_cpu_job *job, int64_t row,
                                int64_t head, int64_t begin, int64_t end,
                                void *scores);
  /* Replaces scores by e^(score - shift), updates state, and returns the
   * factor by which earlier sums have to be multiplied. */
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
  /* keep copies scores to weights at a stride; normalize replaces such weights
   * w by e^(w - shift) * factor. */
  void (*keep)(void *weights, const void *scores, int64_t count,
               int64_t stride);
  void (*normalize)(void *weights, int64_t count, int64_t stride, double shift,
                    double factor);
  /* Multiplies the weights of `count` edges, from begin, by 0 or drop_scale. */
  void (*drop)(const dfgnn_cpu_job *job, int64_t head, int64_t begin,
               int64_t count, void *weights);
  /* Computes job->inverse of the sources begin .. end - 1. */
  void (*norms)(const dfgnn_cpu_job *job, int64_t begin, int64_t end);
  /* Copies nodes begin .. end - 1 to a tensor with adjacent features, and
   * zeros from out_dim on. */
  void (*pack)(const dfgnn_cpu_job *job, const dfgnn_cpu_tensor *to,
               const dfgnn_cpu_tensor *from, int64_t begin, int64_t end);

  /* ---- all heads at once ---- */

  /* Is a job better done for all heads of a row at once, and can it be? */
  int (*spans_heads)(const dfgnn_cpu_job *job);
  /* The forward pass of the rows begin .. end - 1; memory:
   * dfgnn__cpu_across_bytes(). */
  void (*attend)(const dfgnn_cpu_job *job, int64_t begin, int64_t end,
                 void *memory);
  /* The same of gradients.  grade() walks rows and returns the first that is
   * left to others, or end: a row without edges, or one with a weight of zero,
   * since 0 times an infinite feature would be NaN; with edge features none is
   * left.  What rows add to the gradients of parameters is added. */
  int (*spans_side)(const struct dfgnn_cpu_side *side);
  int64_t (*grade)(const struct dfgnn_cpu_side *side, int64_t begin,
                   int64_t end, void *memory,
                   const dfgnn_cpu_parameters *parameters);

  /* Is every number finite?  x is read in whole vectors. */
  int (*finite)(const void *x, int64_t count);

  /* ---- backward ---- */

  /* Writes job->ends of nodes begin .. end - 1, from lse, query (grad_out) and
   * key (out). */
  void (*ends)(const dfgnn_cpu_job *job, int64_t begin, int64_t end, void *to);
  /* Replaces scores by weights P r, and <grad_out, value> by the gradients dS
   * of the scores (NULL: not wanted).  Returns 1 if some P is zero. */
  int (*terms)(const dfgnn_cpu_job *job, int64_t row, int64_t head,
               int64_t begin, int64_t count, void *weights, void *gradients);
  /* fetch reads the terms of edges from [heads, edges] arrays in the order of
   * the graph's edges, and returns 1 if some gradient is zero; spread writes
   * gradients to such an array. */
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
  /* AGNN: to = gradients over the norms of the gathered rows. */
  void (*divide)(const dfgnn_cpu_job *job, int64_t head, int64_t begin,
                 int64_t count, const void *gradients, void *to);
  /* AGNN: turns the sum of normalised rows times dS into the gradient of the
   * own row; returns the sum of dS cos. */
  double (*cosine)(const dfgnn_cpu_job *job, int64_t row, int64_t head,
                   void *sum);
  /* GAT: returns the sum of dS times the slopes of leaky ReLU, and writes these
   * products to edges [edges, heads] unless it is NULL. */
  double (*additive)(const dfgnn_cpu_job *job, int64_t row, int64_t head,
                     int64_t begin, int64_t end, const void *gradients,
                     void *edges);
  /* GATv2: sum = before * sum + att times the sum of dS times the slopes
   * (before < 0 starts a sum); att_sum, unless it is NULL, += the sum of dS
   * times the values of leaky ReLU. */
  void (*slopes)(const dfgnn_cpu_job *job, int64_t row, int64_t head,
                 int64_t begin, int64_t end, const void *gradients, void *sum,
                 double before, void *att_sum);
};

/* Edges whose values are added up on their own before they join the sum of a
 * row. */
#define DFGNN_CPU_BLOCK 256

/* Work for all heads at once: the most heads; the numbers of a chunk's edges
 * and heads. */
#define DFGNN_CPU_MOST_HEADS 256
#define DFGNN_CPU_ACROSS 1024

/* More heads, and wider ones, are walked one after the other; wider ones are
 * not padded. */
#define DFGNN_CPU_NARROW_HEADS 64
#define DFGNN_CPU_NARROW_DIM 64
#define DFGNN_CPU_PADDED_DIM 32

/* Edges whose features are projected at a time. */
#define DFGNN_CPU_WINDOW 64

/* The widest vector in bytes: buffers must reach so far beyond their end. */
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
  size_t shared_bytes; /* of the family's own memory */
  const struct dfgnn_cpu_edges *term;
  int pads;    /* are narrow heads padded, so that they fill vectors? */
  int64_t dim; /* of heads without the padding that the problem has; 0: it has
                * none */
  const void *att; /* padded; NULL: args.att */
} dfgnn_cpu_choice;

/* The problem whose heads fill vectors, or fill one together.  The problem of
 * a family that pads: the same if its heads are several and narrow. */
dfgnn_problem dfgnn__cpu_padded(const dfgnn_problem *problem, int simd);
dfgnn_problem dfgnn__cpu_fitted(const dfgnn_problem *problem, int simd,
                                int pads);

/* The most features of a padded head. */
static inline int64_t dfgnn__cpu_most_dim(const dfgnn_problem *problem) {
  return (problem->dim + 15) / 16 * 16;
}

/* Bytes of an array [heads, dim, inner] with padded heads; copies it to memory,
 * with zeros.  att: that of GATv2, inner is 1. */
size_t dfgnn__cpu_heads_bytes(const dfgnn_problem *padded, int64_t inner);
const void *dfgnn__cpu_pad_heads(const dfgnn_problem *problem,
                                 const dfgnn_problem *padded, const void *array,
                                 int64_t inner, char *memory);
static inline size_t dfgnn__cpu_att_bytes(const dfgnn_problem *padded) {
  return DFGNN_HAS_ATT(padded->op) ? dfgnn__cpu_heads_bytes(padded, 1) : 0;
}
static inline const void *dfgnn__cpu_pad_att(const dfgnn_problem *problem,
                                             const dfgnn_problem *padded,
                                             const void *att, char *memory) {
  return DFGNN_HAS_ATT(padded->op)
             ? dfgnn__cpu_pad_heads(problem, padded, att, 1, memory)
             : att;
}

/* Bytes of the workspace: norms and packed copies, and the bytes of choice. */
size_t dfgnn__cpu_workspace(const dfgnn_setting *setting,
                            const dfgnn_cpu_choice *choice);
/* Fills the job of a forward pass, and computes norms and packed copies.
 * Returns the address of the family's own memory. */
void *dfgnn__cpu_begin(dfgnn_cpu_job *job, const dfgnn_launch *launch,
                       const dfgnn_cpu_choice *choice);

size_t dfgnn__cpu_aligned(size_t bytes);
size_t dfgnn__cpu_scalar_size(const dfgnn_problem *problem);
dfgnn_cpu_tensor dfgnn__cpu_tensor_of(const dfgnn_problem *problem,
                                      const void *base,
                                      const dfgnn_strides *strides);
/* Fills job from the launch, without norms and packed copies. */
void dfgnn__cpu_describe(dfgnn_cpu_job *job, const dfgnn_launch *launch,
                         const dfgnn_cpu_choice *choice);
/* May tensors have to be copied, so that their features are adjacent (with edge
 * features: all of a node's) and heads of `dim` features are padded?  Is that
 * so of a tensor already?  The bytes of a copy.  Copies t to memory, sets t to
 * the copy, and returns its end. */
int dfgnn__cpu_adjacent(const dfgnn_cpu_job *job, const dfgnn_cpu_tensor *t);
int dfgnn__cpu_packs(const dfgnn_problem *problem, int64_t dim);
size_t dfgnn__cpu_packed_bytes(const dfgnn_problem *problem, int64_t nodes);
char *dfgnn__cpu_pack(const dfgnn_cpu_job *job, const dfgnn_problem *problem,
                      dfgnn_cpu_tensor *t, int64_t nodes, int schedule,
                      char *memory);
/* Computes job->inverse of all sources. */
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

/* The first row of the part-th of `parts` pieces of about equal work. */
int64_t dfgnn__cpu_part(const dfgnn_cpu_job *job, int64_t part, int64_t parts);

static inline int64_t dfgnn__cpu_offset(const dfgnn_cpu_job *job, int64_t row) {
  return dfgnn__index_at(job->offsets, job->offsets64, row);
}

/* The row that edge e is in: the last whose first edge is <= e. */
int64_t dfgnn__cpu_row_of(const dfgnn_cpu_job *job, int64_t e);

/* Writes the log-sum-exp of a row whose scores are all seen.  Returns 1 / sum,
 * or 0 if the sum is 0: then out is cleared, too. */
double dfgnn__cpu_finish(const dfgnn_cpu_job *job, int64_t row, int64_t head,
                         const dfgnn_cpu_softmax *state);

static inline void *dfgnn__cpu_scalar(const dfgnn_cpu_job *job, void *array,
                                      int64_t i) {
  return (char *)array + (size_t)i * job->scalar_size;
}

/* Turns scores in args.weights into the weights of a row's edges begin ..
 * end - 1. */
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

/* Copies weights, or scores to be normalised, to args.weights, if wanted. */
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
  return job->numbers ? dfgnn__index_at(job->numbers, job->offsets64, k) : k;
}

/* The number by which dropout draws for an edge. */
static inline int64_t dfgnn__cpu_drawn(const dfgnn_cpu_job *job, int64_t k) {
  int64_t edge = dfgnn__cpu_number(job, k);
  return job->drawn ? job->drawn[edge] : edge;
}

/* Clears out of a row without weights. */
void dfgnn__cpu_clear(const dfgnn_cpu_job *job, int64_t row, int64_t head);

/* Finishes a row whose scores have been weighed in one piece. */
void dfgnn__cpu_attend(const dfgnn_cpu_job *job, int64_t row, int64_t head,
                       int64_t begin, int64_t end, void *weights, void *sum,
                       const dfgnn_cpu_softmax *state);

int dfgnn__cpu_all_zero(const dfgnn_cpu_job *job, const void *scalars,
                        int64_t count);

/* Bytes for attend(): a chunk, three numbers a head, the sum of a row. */
static inline size_t dfgnn__cpu_across_bytes(const dfgnn_problem *problem) {
  return (size_t)(DFGNN_CPU_ACROSS + 4 * DFGNN_CPU_MOST_HEADS +
                  problem->heads * dfgnn__cpu_most_dim(problem)) *
             sizeof(double) +
         5 * DFGNN_CPU_PADDING;
}

/* Bytes for the parts of a window of edges; see heads_edges.h. */
static inline size_t dfgnn__cpu_window_bytes(const dfgnn_problem *problem) {
  const size_t row = (size_t)(problem->heads * problem->dim);
  const size_t width = problem->edge_dim > 0 ? (size_t)problem->edge_dim : row;
  return !problem->edge_dim || problem->op == DFGNN_OP_GAT
             ? 0
             : DFGNN_CPU_WINDOW * (row + 2 * width) * sizeof(double) +
                   3 * DFGNN_CPU_PADDING;
}

/* Bytes of accumulate's sum, and of scores [heads, edges]. */
size_t dfgnn__cpu_sum_bytes(const dfgnn_setting *setting);
size_t dfgnn__cpu_score_bytes(const dfgnn_setting *setting);

#endif
