/* guarded.h - tensors with guards around them, and parts of graphs: what the
 * harness of edge programs is made of */
#ifndef DFGNN_TUNER_GUARDED_H
#define DFGNN_TUNER_GUARDED_H

#include "lib/graph.h"

/* memory begins DFGNN_GUARD bytes before the tensor. */
typedef struct dfgnn_guarded {
  const char *name;
  char *memory; /* on the device */
  char *host;   /* an input's values, or an output's that were read */
  size_t bytes;
} dfgnn_guarded;

dfgnn_status dfgnn__guarded_make(dfgnn_guarded *g, dfgnn_context *ctx,
                                 const char *name, size_t bytes);
void dfgnn__guarded_free(dfgnn_guarded *g, dfgnn_context *ctx);
void *dfgnn__guarded_data(const dfgnn_guarded *g);
/* Uniform numbers of -scale to scale, the same on every machine. */
dfgnn_status dfgnn__guarded_fill(dfgnn_guarded *g, dfgnn_context *ctx,
                                 dfgnn_dtype dtype, double scale,
                                 uint64_t seed);
/* Fills an output with NaNs, and its guards. */
dfgnn_status dfgnn__guarded_poison(const dfgnn_guarded *g, dfgnn_context *ctx);
/* DFGNN_ERROR_WRONG if something was written before or beyond it. */
dfgnn_status dfgnn__guarded_check(const dfgnn_guarded *g, dfgnn_context *ctx);
/* Copies it to g->host. */
dfgnn_status dfgnn__guarded_read(dfgnn_guarded *g, dfgnn_context *ctx);

/* A graph's arrays in host memory. */
typedef struct dfgnn_host_graph {
  dfgnn_matrix matrix;
  char *offsets;
  int32_t *indices;
  int32_t *relation; /* by edge; NULL: edges have none */
} dfgnn_host_graph;

dfgnn_status dfgnn__host_graph_read(dfgnn_host_graph *host, dfgnn_context *ctx,
                                    dfgnn_graph *graph);
void dfgnn__host_graph_free(dfgnn_host_graph *host);

/* A graph on the device with the arrays that it is made of, which graphs of
 * CPUs borrow. */
typedef struct dfgnn_part {
  dfgnn_graph *graph;
  int64_t *offsets;
  int32_t *indices;
} dfgnn_part;

/* Some of a host graph's rows: the longest one, then rows at equal steps, of
 * `most` edges and rows in all; rows are cut where they are longer than any
 * variant calls long.  Edges have relations in turn if the graph's have some.
 * *part is zeros before, and is freed after a failure, too. */
dfgnn_status dfgnn__part_create(dfgnn_part *part, dfgnn_context *ctx,
                                const dfgnn_matrix *host, int64_t most);
void dfgnn__part_free(dfgnn_part *part);

/* A plan of one variant, with its workspace. */
typedef struct dfgnn_readied {
  dfgnn_plan *plan;
  void *workspace;
} dfgnn_readied;

/* Readies a variant for a problem on a part; *readied is freed after a failure,
 * too. */
dfgnn_status dfgnn__part_ready(dfgnn_readied *readied, dfgnn_context *ctx,
                               const dfgnn_part *part,
                               const dfgnn_problem *problem,
                               const char *variant);
void dfgnn__readied_free(dfgnn_readied *readied, dfgnn_context *ctx);

#endif
