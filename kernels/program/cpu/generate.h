/* generate.h - C for the steps of a program that look at edges
 *
 * The functions that the text defines are the loops of loops.h over the edges
 * of a block (block.h), with the program's sizes as constants and the values
 * that one step alone hands to the next in a few local numbers.  They give what
 * the evaluator's own loops give, to the bit.  Steps of nodes, loads of 16-bit
 * features of edges, masks of dropout and writes of edges' outputs stay the
 * evaluator's. */
#ifndef DFGNN_KERNELS_PROGRAM_CPU_GENERATE_H
#define DFGNN_KERNELS_PROGRAM_CPU_GENERATE_H

#include "kernels/program/job.h"

/* A function and the nodes whose places it is given. */
typedef struct dfgnn_body_function {
  int32_t first, count; /* of dfgnn_body.nodes */
} dfgnn_body_function;

typedef struct dfgnn_body {
  char *text;
  int32_t *nodes;
  dfgnn_body_function *functions;
  int function_count;
  /* Lists of functions, each ended by -1: `lists` has where the list of a
   * walk's stage begins, for blocks of whole rows and for parts of a long row,
   * which make values of earlier stages again. */
  int32_t *calls;
  int32_t *lists;
  int32_t first_list[DFGNN_WALKS];
  uint8_t *slots; /* [walks][nodes]: values of edges that are in memory */
} dfgnn_body;

static inline const int32_t *dfgnn__body_calls(const dfgnn_body *body, int walk,
                                               int stage, int long_row) {
  return body->calls +
         body->lists[body->first_list[walk] + 2 * stage + long_row];
}

/* The body of a job, whose tensors may be without memory; NULL: no memory. */
dfgnn_body *dfgnn__body_generate(const dfgnn_program_job *job, int is_double,
                                 int fused);
void dfgnn__body_free(dfgnn_body *body);

#endif
