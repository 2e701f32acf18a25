/* handle.h - checks that a caller's pointer is the handle it should be
 *
 * Each opaque struct begins with a word that tells its type; destroying
 * overwrites it.  Reading it costs nothing beside a call's other use of the
 * struct. */
#ifndef DFGNN_LIB_HANDLE_H
#define DFGNN_LIB_HANDLE_H

#include "dfgnn.h"
#include <stdint.h>

typedef enum dfgnn_handle {
  DFGNN_HANDLE_NONE = 0x64656164, /* a destroyed handle */
  DFGNN_HANDLE_CONTEXT = 0x78746364,
  DFGNN_HANDLE_GRAPH = 0x72676664,
  DFGNN_HANDLE_PLAN = 0x6c706664,
  DFGNN_HANDLE_EDGE_PROGRAM = 0x67706664
} dfgnn_handle;

/* Every opaque struct's first member is its kind. */
static inline int dfgnn__is(const void *handle, dfgnn_handle kind) {
  return handle && *(const uint32_t *)handle == (uint32_t)kind;
}

static inline int dfgnn__is_context(const dfgnn_context *ctx) {
  return dfgnn__is(ctx, DFGNN_HANDLE_CONTEXT);
}
static inline int dfgnn__is_graph(const dfgnn_graph *graph) {
  return dfgnn__is(graph, DFGNN_HANDLE_GRAPH);
}
static inline int dfgnn__is_plan(const dfgnn_plan *plan) {
  return dfgnn__is(plan, DFGNN_HANDLE_PLAN);
}

/* DFGNN_ERROR_INVALID unless the handle is of its kind: "ctx is NULL", or "ctx
 * is no dfgnn_context, or one that was destroyed".  A plan must have its graph
 * still.  DFGNN_ERROR_DEVICE in a child of fork() whose device did not survive
 * it. */
dfgnn_status dfgnn__check_context(const dfgnn_context *ctx);
dfgnn_status dfgnn__check_graph(const dfgnn_graph *graph);
dfgnn_status dfgnn__check_plan(const dfgnn_plan *plan);

/* Checks both, and that the graph belongs to the context. */
dfgnn_status dfgnn__check_graph_of(const dfgnn_graph *graph,
                                   const dfgnn_context *ctx);

#endif
