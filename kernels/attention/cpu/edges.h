/* edges.h - the inner loops and copies of the CPU families with edge features
 *
 * Edge features add <W^T q_i, e_ij> to a score and W (sum of P e_ij) to a sum
 * of values: W multiplies blocks of rows and never edges.  GATv2's score is not
 * linear in W e, so there W multiplies a chunk of edges at a time.  All of
 * these are small products of matrices of scalars. */
#ifndef DFGNN_ATTENTION_CPU_EDGES_H
#define DFGNN_ATTENTION_CPU_EDGES_H

#include "kernels/attention/cpu/attention.h"

/* The operands of a product of matrices of scalars; distances in scalars. */
typedef struct dfgnn_cpu_matrices {
  void *to;
  const void *a, *b;
  int64_t rows, inner, columns;
  int64_t to_row, a_row, a_inner, b_row;
  int add; /* 1: the product is added to what is in to */
} dfgnn_cpu_matrices;

/* Rows of at most so many edges and heads take one call for all heads. */
#define DFGNN_CPU_SHORT 8
#define DFGNN_CPU_SHORT_HEADS 32

/* A short row of GT; arrays are of scalars unless another type is named.  Side
 * 0 is that of scores (own query, far key), side 1 that of values (own
 * grad_out, far value). */
typedef struct dfgnn_cpu_short {
  int64_t heads, dim, features, count;
  const int32_t *indices;
  const char *far[2];    /* rows [heads, dim] of storage, adjacent */
  int64_t node[2];       /* bytes from row to row */
  const void *own[2];    /* [heads, dim] */
  const void *by[2];     /* [heads, features] W^T own; NULL: e is not used */
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
  /* Convert `count` numbers, `stride` bytes apart, from storage and to it. */
  void (*load)(void *to, const char *from, int64_t stride, int64_t count);
  void (*store)(char *to, int64_t stride, const void *from, int64_t count);
  /* to[r][c] = sum over k of a[r][k] b[k][c] */
  void (*multiply)(const dfgnn_cpu_matrices *m);
  /* to[r][c] = sum over k of a[r][k] b[c][k] */
  void (*products)(const dfgnn_cpu_matrices *m);
  /* Forward pass and gradients of a short row; they return 0, and nothing is
   * done, if a number is not finite. */
  int (*attend_short)(const dfgnn_cpu_short *s);
  int (*grade_short)(const dfgnn_cpu_short *s);
  /* to = x + y + z */
  void (*add)(void *to, const void *x, const void *y, const void *z,
              int64_t count);
  /* GATv2: computes scores[h * stride] of an edge whose arguments of leaky ReLU
   * are z [heads, dim]. */
  void (*scores)(void *scores, int64_t stride, const void *z, const void *att,
                 int64_t heads, int64_t dim, double slope);
  /* GATv2: replaces z by its gradient dS att leaky'(z), adds that to sum, and
   * adds dS leaky(z) to att_sum (NULL: not wanted). */
  void (*slopes)(void *z, const void *gradients, int64_t stride,
                 const void *att, int64_t heads, int64_t dim, double slope,
                 void *sum, void *att_sum);
} dfgnn_cpu_edge_loops;

const dfgnn_cpu_edge_loops *dfgnn__cpu_edge_loops(int simd, dfgnn_dtype dtype);

/* The edge features of a launch, and the matrices that multiply them. */
typedef struct dfgnn_cpu_edges {
  const dfgnn_cpu_edge_loops *loops;
  int64_t features; /* of an edge and head: F, or dim if projected; or 0 */
  int64_t width;    /* numbers an edge: F, or heads x dim */
  const char *attr;
  char *grad_attr;   /* NULL: not wanted */
  const void *order; /* the row of each edge in both, as wide as offsets; NULL:
                      * its number */
  int offsets64;
  size_t element_size, scalar_size;
  int convert;      /* attr is not of scalars */
  int keys, values; /* GT: are features added to keys, to values? */
  void *weight;     /* [heads dim, F] scalars; NULL: projected */
  void *transposed; /* [F, heads dim] */
  void *bias;       /* [heads dim], or NULL */
  void *att;        /* [heads dim] GATv2 */
} dfgnn_cpu_edges;

/* The bytes of weight, transposed, bias and att; dfgnn__cpu_edges_begin() fills
 * them and returns their end. */
size_t dfgnn__cpu_edges_bytes(const dfgnn_problem *problem);
char *dfgnn__cpu_edges_begin(dfgnn_cpu_edges *edges, const dfgnn_launch *launch,
                             int simd, char *memory);

/* Returns the features of the edges e .. e + count - 1 as scalars, in buffer if
 * need be; rows are edges->width apart. */
const void *dfgnn__cpu_edges_load(const dfgnn_cpu_edges *edges, int64_t e,
                                  int64_t count, void *buffer);
/* Writes the gradients of their features from scalars. */
void dfgnn__cpu_edges_store(const dfgnn_cpu_edges *edges, int64_t e,
                            int64_t count, const void *from);
/* The row of an edge's features. */
static inline int64_t dfgnn__cpu_edges_row(const dfgnn_cpu_edges *edges,
                                           int64_t e) {
  return !edges->order      ? e
         : edges->offsets64 ? ((const int64_t *)edges->order)[e]
                            : ((const int32_t *)edges->order)[e];
}

/* May short rows of this call go to attend_short() and grade_short()?  Their
 * keys and values are adjacent, their heads few, and nothing is added to scores
 * or dropped. */
int dfgnn__cpu_edges_short(const dfgnn_cpu_edges *edges,
                           const dfgnn_cpu_job *job,
                           const dfgnn_cpu_tensor *key,
                           const dfgnn_cpu_tensor *value);

/* Edges whose scores are computed at a time. */
#define DFGNN_CPU_EDGES 64

/* The operands of a forward pass. */
typedef struct dfgnn_cpu_edge_forward {
  const dfgnn_problem *problem;
  dfgnn_cpu_edges edges;
  dfgnn_cpu_job job;
  int shorts; /* may a row of few edges take one call? */
} dfgnn_cpu_edge_forward;

/* A walk for a type of scalars; its data is a dfgnn_cpu_edge_forward, or a
 * dfgnn_cpu_edge_part of a backward pass. */
typedef struct dfgnn_cpu_edge_walk {
  size_t (*bytes)(const dfgnn_setting *setting); /* of a thread's memory */
  dfgnn_cpu_body rows;
  dfgnn_cpu_body columns; /* GATv2's gradients */
} dfgnn_cpu_edge_walk;

/* Defines  const dfgnn_cpu_edge_walk *function(problem). */
#define DFGNN_CPU_EDGE_WALK(function, prefix)                                  \
  extern const dfgnn_cpu_edge_walk prefix##_f32, prefix##_f64;                 \
  static const dfgnn_cpu_edge_walk *function(const dfgnn_problem *problem) {   \
    return problem->dtype == DFGNN_F64 ? &prefix##_f64 : &prefix##_f32;        \
  }

#endif
