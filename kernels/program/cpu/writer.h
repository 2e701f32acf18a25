/* writer.h - what generate.c writes a body of, and which steps its functions do
 */
#ifndef DFGNN_KERNELS_PROGRAM_CPU_WRITER_H
#define DFGNN_KERNELS_PROGRAM_CPU_WRITER_H

#include <stdio.h>

#include "kernels/program/cpu/generate.h"

/* How functions go over a block. */
typedef enum shape {
  EACH_EDGE, /* all steps of one edge, then those of the next */
  FLAT,      /* a step for all numbers of all edges */
  SCORES     /* a log-sum-exp over all edges */
} shape;

/* How an operand depends on the edge. */
typedef enum reach { ONCE, OF_ROW, OF_EDGE, OF_END } reach;

typedef struct writer {
  FILE *to;
  dfgnn_body *body;
  const dfgnn_program_job *job;
  const dfgnn_dag *dag;
  const dfgnn_walk *walk;
  int walk_number, is_double, too_many;
  uint8_t *made;  /* 1 + level of values that the walk makes */
  int32_t *steps; /* of the list that is written */
  int step_count;
  int32_t *group; /* the function of a list's value; -1: of none */
  uint8_t *cheap; /* wide values that are sooner made again than read */
  uint8_t *local; /* values that are not in memory */
  uint8_t *emits; /* steps of the function that is written */
  uint8_t *used;  /* nodes of the function that is written: 1, or 2 if it makes
                   * them, 3 a reduction that is local while it runs */
  int node_count, node_room, call_count, list_count;
} writer;

static inline const dfgnn_node *at(const writer *w, int32_t n) {
  return &w->dag->nodes[n];
}
static inline int32_t argument(const writer *w, int32_t n, int i) {
  return dfgnn__dag_argument(w->dag, n, i);
}
static inline const dfgnn_extent *extent(const writer *w, int32_t n) {
  return &w->job->extents[n];
}

/* The values that a node is made of, fused products' in place of these. */
int dfgnn__writer_reads(const writer *w, int32_t n, int32_t *of);
int dfgnn__writer_is_read(const writer *w, int32_t reader, int32_t n);
/* Is it a step that functions do? */
int dfgnn__writer_looks_at_edges(const writer *w, const dfgnn_step *step);
reach dfgnn__writer_reach(const writer *w, int32_t n);
shape dfgnn__writer_shape(const writer *w, int32_t n);
/* Gives the list's steps to functions, those of a shape together; returns the
 * number behind the last function, -1 if a list lacks its arguments. */
int dfgnn__writer_group(writer *w, int first);
/* Is it a sum, a product or a comparison of what is gathered, or of such? */
int dfgnn__writer_is_cheap(const writer *w, int32_t n);
/* Finds the values that are not in memory. */
void dfgnn__writer_locals(writer *w, int first, int end, int long_row);

#endif
