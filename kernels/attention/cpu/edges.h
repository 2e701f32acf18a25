/* edges.h - what the CPU families with edge features share
 *
 * Scores with edge features are <W^T q_i, e_ij> beside <q_i, k_j>, and sums of
 * values W (sum of P e_ij): W meets rows, a block of them at a time, and never
 * edges.  GATv2, which is not linear in W e, meets a chunk of edges at a time.
 * All are small products of matrices of scalars. */
#ifndef DFGNN_ATTENTION_CPU_EDGES_H
#define DFGNN_ATTENTION_CPU_EDGES_H

#include "kernels/attention/cpu/attention.h"

/* Matrices of scalars; distances in scalars. */
typedef struct dfgnn_cpu_matrices {
  void *to;
  const void *a, *b;
  int64_t rows, inner, columns;
  int64_t to_row, a_row, a_inner, b_row;
  int add; /* 1: to what is in to */
} dfgnn_cpu_matrices;

/* Rows of so few edges are a call each, all of their heads together. */
#define DFGNN_CPU_SHORT 8
#define DFGNN_CPU_SHORT_HEADS 32

/* A short row of GT; arrays of scalars where nothing else is said.  Side 0 is
 * scores: query and key; side 1 values: grad_out and value. */
typedef struct dfgnn_cpu_short {
  int64_t heads, dim, features, count;
  const int32_t *indices;
  const char *far[2];    /* rows [heads, dim] of storage, adjacent */
  int64_t node[2];       /* bytes from row to row */
  const void *own[2];    /* [heads, dim] */
  const void *by[2];     /* [heads, features] W^T of it; NULL: meets no e */
  const void *shift[2];  /* [heads] <own, b>; NULL: 0 */
  const void *attr;      /* [count, features] */
  void *sums;            /* [heads], sum_row apart: of values (attend), of
                          * keys (grade), or NULL */
  void *sums_of_attr[2]; /* [heads, features] of dS e, of P e; or NULL */
  void *totals[2];       /* [heads] of dS, of P; or NULL */
  int64_t sum_row;
  dfgnn_cpu_softmax *states; /* attend: [heads] */
  const void *ends;          /* grade: see dfgnn_cpu_job */
  void *weights, *gradients; /* grade: [heads, stride] P and dS */
  int64_t stride;
  void *grad_attr; /* grade: [count, features], or NULL */
} dfgnn_cpu_short;

typedef struct dfgnn_cpu_edge_loops {
  /* `count` numbers, `stride` bytes apart, from and to storage. */
  void (*load)(void *to, const char *from, int64_t stride, int64_t count);
  void (*store)(char *to, int64_t stride, const void *from, int64_t count);
  /* to[r][c] = sum over k of a[r][k] b[k][c] */
  void (*multiply)(const dfgnn_cpu_matrices *m);
  /* to[r][c] = sum over k of a[r][k] b[c][k] */
  void (*products)(const dfgnn_cpu_matrices *m);
  /* Forward and gradients of a short row; 0 if it holds what is not finite, and
   * nothing was done. */
  int (*attend_short)(const dfgnn_cpu_short *s);
  int (*grade_short)(const dfgnn_cpu_short *s);
  /* to = x + y + z */
  void (*add)(void *to, const void *x, const void *y, const void *z,
              int64_t count);
  /* GATv2: scores[h * stride] of an edge whose arguments of leaky ReLU are
   * z [heads, dim]. */
  void (*scores)(void *scores, int64_t stride, const void *z, const void *att,
                 int64_t heads, int64_t dim, double slope);
  /* z to the gradient dS att leaky'(z), which goes to sum, too, and dS
   * leaky(z) to att_sum (NULL: not wanted). */
  void (*slopes)(void *z, const void *gradients, int64_t stride,
                 const void *att, int64_t heads, int64_t dim, double slope,
                 void *sum, void *att_sum);
  /* A row normalised, of storage; weight of storage or NULL. */
  void (*normalize)(char *to, const char *from, int64_t stride,
                    const void *weight, int64_t count, int centred, double eps);
  /* gradient of the normalised row, of scalars, to that of x; what the weight
   * gets is added to weight_sum (NULL: not wanted). */
  void (*denormalize)(void *gradient, const char *x, int64_t stride,
                      const void *weight, int64_t count, int centred,
                      double eps, void *weight_sum);
} dfgnn_cpu_edge_loops;

const dfgnn_cpu_edge_loops *dfgnn__cpu_edge_loops(int simd, dfgnn_dtype dtype);

/* What a launch with edge features or norms works on. */
typedef struct dfgnn_cpu_edges {
  const dfgnn_cpu_edge_loops *loops;
  int64_t features; /* of an edge and head: F, or dim of projected ones; 0 */
  int64_t width;    /* numbers an edge: F, or heads x dim */
  const char *attr;
  size_t element_size, scalar_size;
  int convert;      /* attr is not of scalars */
  int keys, values; /* what of GT the features are added to */
  char *weight;     /* [heads dim, F] scalars; NULL: projected */
  char *transposed; /* [F, heads dim] */
  char *bias;       /* [heads dim], or NULL */
  char *att;        /* [heads dim] GATv2 */
} dfgnn_cpu_edges;

/* Bytes for weight, transposed, bias and att; fills them, and returns their
 * end. */
size_t dfgnn__cpu_edges_bytes(const dfgnn_problem *problem);
char *dfgnn__cpu_edges_begin(dfgnn_cpu_edges *edges, const dfgnn_launch *launch,
                             int simd, char *memory);

/* Features of the edges e .. e + count - 1 as scalars, in buffer if need be;
 * rows are edges->width apart. */
const void *dfgnn__cpu_edges_load(const dfgnn_cpu_edges *edges, int64_t e,
                                  int64_t count, void *buffer);

/* May short rows of this call go to attend_short() and grade_short()?  Their
 * keys and values are adjacent, their heads few, and nothing is added to scores
 * or dropped. */
int dfgnn__cpu_edges_short(const dfgnn_cpu_edges *edges,
                           const dfgnn_cpu_job *job,
                           const dfgnn_cpu_tensor *key,
                           const dfgnn_cpu_tensor *value);

/* Bytes of normalised copies; a launch whose query and key are those copies,
 * for which complete and args are the place. */
size_t dfgnn__cpu_norm_bytes(const dfgnn_setting *setting);
void dfgnn__cpu_norm_begin(dfgnn_launch *to, dfgnn_args *args,
                           const dfgnn_launch *launch,
                           const dfgnn_cpu_edge_loops *loops, int threads,
                           char *memory);

static inline char *dfgnn__cpu_at(const dfgnn_cpu_edges *edges, void *array,
                                  int64_t i) {
  return (char *)array + (size_t)i * edges->scalar_size;
}

/* Edges whose scores are made at a time. */
#define DFGNN_CPU_EDGES 64

#endif
