/* edge_program.h - a program behind its handle */
#ifndef DFGNN_LIB_EDGE_PROGRAM_H
#define DFGNN_LIB_EDGE_PROGRAM_H

#include "dfgnn_program.h"
#include "kernels/program/job.h"
#include "program/match.h"

struct dfgnn_edge_program {
  uint32_t kind; /* lib/handle.h */
  dfgnn_dag *dag;
  dfgnn_lowered *lowered;
  char *text;
  int is_operator;   /* `match` and `pass` say which */
  dfgnn_match match; /* of a gradient: ports are grad_query, ... */
  dfgnn_pass pass;
};

/* DFGNN_ERROR_INVALID unless it is one. */
dfgnn_status dfgnn__check_edge_program(const dfgnn_edge_program *program);

/* edge_program_operator.c: finds the operator that a program is, or the
 * operator whose backward pass the gradient of a program is. */
void dfgnn__edge_operator_find(dfgnn_edge_program *program);
void dfgnn__edge_operator_derive(dfgnn_edge_program *gradient,
                                 const dfgnn_edge_program *forward);

/* Fills in all but the size, if the program is an operator. */
void dfgnn__edge_operator_describe(dfgnn_edge_operator *found,
                                   const dfgnn_edge_program *program);

/* Tensors of a program in its order, and what its sizes are. */
typedef struct dfgnn_edge_call {
  const dfgnn_edge_program *program;
  dfgnn_graph *graph;
  const dfgnn_binding *binding;
  const dfgnn_program_array *inputs, *outputs;
  uint64_t seed;
  void *stream;
} dfgnn_edge_call;

/* Runs the operator that the program is.  *done is 0 if the program has to run
 * itself: it is none, its tensors are not of the types that the operator takes,
 * or no variant serves the problem. */
dfgnn_status dfgnn__edge_operator_execute(int *done,
                                          const dfgnn_edge_call *call);

#endif
