/* generate.h - CUDA source for the walks of a program
 *
 * The source is made for the sizes and types of the tensors, and has a kernel
 * for each walk, dfgnn::edge_program_rows<w>, and one that merges its hubs,
 * edge_program_merge<w>, one for values of no place before each walk,
 * edge_program_values<w>, and edge_program_totals. */
#ifndef DFGNN_PROGRAM_CUDA_GENERATE_H
#define DFGNN_PROGRAM_CUDA_GENERATE_H

#include "kernels/program/job.h"

/* The parameters that are tuned. */
typedef struct dfgnn_program_tuning {
  int lanes;    /* of a side, 1 to 32 */
  int group;    /* lanes of a row, lanes to 32 */
  int unroll;   /* edges in flight of a side */
  int long_row; /* edges; rows of more have a block each; 0: none has */
  int vector;   /* most features that a lane loads at once, 1 to 4 */
} dfgnn_program_tuning;

/* A number of a walk's totals: sums over everything of a node. */
typedef struct dfgnn_program_total {
  int32_t node;
  int walk, first;
} dfgnn_program_total;

typedef struct dfgnn_generated_walk {
  int lanes, group;
  int own_shared, edge_shared; /* numbers of a row, and of a side */
  int cut;   /* the only stage that has edges; -1: there are several, or none */
  int state; /* numbers that a lane has of its reductions */
  int totals;
  int total_first, total_count; /* of generated->totals */
} dfgnn_generated_walk;

typedef struct dfgnn_generated {
  char *text;
  int is_double;
  int long_row; /* 0: no row is long */
  /* Arrays: inputs, outputs, then nodes; array_of[n] is -1 if a node has none.
   */
  int array_count;
  int32_t *array_of;
  dfgnn_generated_walk walks[DFGNN_WALKS];
  int total_count;
  dfgnn_program_total *totals;
} dfgnn_generated;

enum { DFGNN_GENERATED_ARRAYS = 448 }; /* a launch's parameters have 4 KB */

/* DFGNN_ERROR_UNSUPPORTED says what cannot be generated.  job has no need of
 * memory: data of its tensors may be NULL. */
dfgnn_status dfgnn__program_generate(dfgnn_generated **generated,
                                     const dfgnn_program_job *job,
                                     const dfgnn_program_tuning *tuning);
void dfgnn__generated_free(dfgnn_generated *generated);

#endif
