/* guarded.h - tensors with guards around them, graphs in host memory and parts
 * of graphs: what harnesses are made of */
#ifndef DFGNN_TUNER_GUARDED_H
#define DFGNN_TUNER_GUARDED_H

#include "lib/graph.h"

#define DFGNN_GUARD 256        /* bytes before and after each tensor */
#define DFGNN_GUARD_BYTE 0xa5  /* the value of these bytes */
#define DFGNN_POISON_BYTE 0xff /* NaN in every floating-point type */

/* Fails with DFGNN_ERROR_MEMORY: the host lacks so many bytes. */
dfgnn_status dfgnn__harness_memory(size_t bytes);
/* Copies between host and device, in either direction. */
dfgnn_status dfgnn__harness_copy(dfgnn_context *ctx, void *to, const void *from,
                                 size_t bytes);

/* memory begins DFGNN_GUARD and shift bytes before the tensor. */
typedef struct dfgnn_guarded {
  const char *name;
  char *memory; /* on the device */
  size_t shift;
  char *host; /* an input's values, or an output's that were read */
  size_t bytes;
} dfgnn_guarded;

/* Gives memory to one of name, bytes and shift, and to its values on the host
 * if they are wanted there. */
dfgnn_status dfgnn__guarded_make(dfgnn_guarded *g, dfgnn_context *ctx,
                                 int on_host);
void dfgnn__guarded_free(dfgnn_guarded *g, dfgnn_context *ctx);
char *dfgnn__guarded_data(const dfgnn_guarded *g);
/* Uniform numbers of -1 to 1, the same on every machine. */
dfgnn_status dfgnn__guarded_fill(dfgnn_guarded *g, dfgnn_context *ctx,
                                 dfgnn_dtype dtype, uint64_t seed);
/* Fills an output with a byte, and its guards: what one plan overwrote must not
 * be held against the next. */
dfgnn_status dfgnn__guarded_poison(const dfgnn_guarded *g, dfgnn_context *ctx,
                                   int byte);
/* DFGNN_ERROR_WRONG if something was written before or beyond it. */
dfgnn_status dfgnn__guarded_check(const dfgnn_guarded *g, dfgnn_context *ctx);
/* Copies it to g->host. */
dfgnn_status dfgnn__guarded_read(const dfgnn_guarded *g, dfgnn_context *ctx);
/* Executes a plan on a poisoned workspace, which has a guard behind it, and
 * waits for the results.  DFGNN_ERROR_WRONG if something was written beyond it.
 */
dfgnn_status dfgnn__guarded_run(dfgnn_context *ctx, const dfgnn_plan *plan,
                                void *workspace, const dfgnn_args *args);
void dfgnn__set_number(dfgnn_dtype dtype, void *array, int64_t i, double x);

/* A graph's arrays in host memory. */
typedef struct dfgnn_host_graph {
  dfgnn_matrix matrix;
  char *offsets;
  int32_t *indices;
  int32_t *relation; /* by edge; NULL: edges have none, or they were not read */
} dfgnn_host_graph;

dfgnn_status dfgnn__host_graph_read(dfgnn_host_graph *host, dfgnn_context *ctx,
                                    dfgnn_graph *graph, int relations);
void dfgnn__host_graph_free(dfgnn_host_graph *host);

/* A graph on the device with the arrays that it is made of, which graphs of
 * CPUs borrow. */
typedef struct dfgnn_excerpt {
  dfgnn_graph *graph;
  int64_t *offsets;
  int32_t *indices;
} dfgnn_excerpt;

/* Some of a host graph's rows: the longest one, then rows at equal steps, of
 * `most` edges and rows in all; rows are cut where they are longer than any
 * variant calls long.  Edges have relations in turn if the graph's have some.
 * *part is zeros before, and is freed after a failure, too. */
dfgnn_status dfgnn__excerpt_create(dfgnn_excerpt *part, dfgnn_context *ctx,
                                   const dfgnn_matrix *host, int64_t most);
void dfgnn__excerpt_free(dfgnn_excerpt *part);

/* A plan of one variant, with its workspace and the guard behind that. */
typedef struct dfgnn_readied {
  dfgnn_plan *plan;
  void *workspace;
} dfgnn_readied;

/* Readies a variant for a problem on a part; *readied is freed after a failure,
 * too. */
dfgnn_status dfgnn__excerpt_ready(dfgnn_readied *readied, dfgnn_context *ctx,
                                  const dfgnn_excerpt *part,
                                  const dfgnn_problem *problem,
                                  const char *variant);
void dfgnn__readied_free(dfgnn_readied *readied, dfgnn_context *ctx);

#endif
