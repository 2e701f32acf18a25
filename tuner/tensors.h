/* tensors.h - the data of a harness, shared by harness.c, expect.c and check.c
 */
#ifndef DFGNN_TUNER_TENSORS_H
#define DFGNN_TUNER_TENSORS_H

#include <string.h>

#include "kernels/common/host_view.h"
#include "lib/graph.h"
#include "lib/operator.h"
#include "lib/plan.h"
#include "tuner/guarded.h"
#include "tuner/harness.h"

#define DFGNN_GIVEN_BYTE 0x3f /* .75 in float, in other types some number */
#define DFGNN_PARALLEL 100000 /* up to so many numbers, one thread works */

/* One tensor of the problem. */
typedef struct dfgnn_buffer {
  const dfgnn_tensor *tensor;
  dfgnn_guarded data;
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

struct dfgnn_harness {
  dfgnn_context *ctx;
  dfgnn_graph *graph;
  const dfgnn_operator *op;
  dfgnn_problem problem;
  dfgnn_strides strides;  /* of tensors that have some; zeros: dense */
  int shift;              /* numbers before each tensor */
  const dfgnn_args *lent; /* a call's, in place of args; NULL: none are */
  dfgnn_args args;  /* for execute, without outputs that may be left out */
  dfgnn_args check; /* the same tensors with every output */
  dfgnn_buffer buffers[DFGNN_MAX_TENSORS];
  int count;
  char *workspace;
  size_t workspace_bytes;
  struct dfgnn_harness_pool *pool; /* NULL: inputs are kept on the host, and
                                    * results can be checked */
  double spare_s;    /* for which the reference may take; infinity: any */
  dfgnn_args masked; /* as check, with zeros as gradients of other rows */
  void *mask[DFGNN_MAX_TENSORS]; /* the memory of these */
  int masks;                     /* 0: nothing needs them */
  dfgnn_checked rows, columns;   /* destinations and sources */
  int64_t *first_edge; /* [rows.count + 1]: each row's first edge in expected */
  dfgnn_host_graph host; /* with edge_order if the problem has an edge_list,
                          * which kernels of CPUs alone take */
  dfgnn_view transpose;  /* on the host, if an output belongs to sources */
  int prepared;          /* the reference ran, with the status: */
  dfgnn_status expected;
  dfgnn_accuracy accuracy;               /* found by the last check */
  struct dfgnn_program_harness *program; /* tuner/program.h; NULL: an operator's
                                          * tensors are here */
};

/* expect.c: chooses the nodes that are checked, and computes what is expected
 * there; the inputs' values on the host are gone then. */
dfgnn_status dfgnn__harness_expect(dfgnn_harness *h,
                                   const dfgnn_matrix *matrix);
/* The checked nodes of an output.  An output without a node dimension counts as
 * that of one node. */
dfgnn_checked dfgnn__checked_nodes(const dfgnn_harness *h,
                                   const dfgnn_buffer *b);
/* How many numbers of an output belong to the k-th checked node; *first is
 * where they begin in b->expected. */
int64_t dfgnn__checked_numbers(const dfgnn_harness *h, const dfgnn_buffer *b,
                               int64_t k, int64_t *first);
/* 1: an output of sources. */
int dfgnn__by_source(const dfgnn_tensor *tensor);
/* 1: the gradient of a parameter, to which all edges add. */
int dfgnn__is_total(const dfgnn_buffer *b);
/* 1: the features of the tensor have gaps or an order of their own. */
static inline int dfgnn__is_strided(const dfgnn_harness *h,
                                    const dfgnn_tensor *tensor) {
  return tensor->strides && h->strides.node;
}
/* 1: rows of the tensor are in the order of the graph's list. */
static inline int dfgnn__is_listed(const dfgnn_harness *h,
                                   const dfgnn_tensor *tensor) {
  return h->host.matrix.edge_order && strstr(tensor->name, "edge_attr");
}
/* The row of a tensor by edge that belongs to an edge. */
static inline int64_t dfgnn__edge_row(const dfgnn_harness *h,
                                      const dfgnn_tensor *tensor,
                                      int64_t edge) {
  const dfgnn_matrix *m = &h->host.matrix;
  return dfgnn__is_listed(h, tensor)
             ? dfgnn__index_at(m->edge_order, m->offsets64, edge)
             : edge;
}
double dfgnn__harness_number(dfgnn_dtype dtype, const char *host, int64_t i);

static inline int64_t dfgnn__edge_count(const dfgnn_matrix *matrix,
                                        int64_t node) {
  return dfgnn__offset_at(matrix, node + 1) - dfgnn__offset_at(matrix, node);
}
/* The type of a tensor's elements; DFGNN_DTYPE_COUNT: 32-bit integers. */
dfgnn_dtype dfgnn__harness_type(const dfgnn_harness *h,
                                const dfgnn_tensor *tensor);

#endif
