/* edge_program.h - a program behind its handle */
#ifndef DFGNN_LIB_EDGE_PROGRAM_H
#define DFGNN_LIB_EDGE_PROGRAM_H

#include <pthread.h>

#include "dfgnn_program.h"
#include "kernels/program/cuda/generate.h"
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
  pthread_mutex_t lock;          /* guards codes */
  struct dfgnn_edge_code *codes; /* lib/edge_program_cuda.c */
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
  void *workspace; /* NULL: the context's */
  void *stream;
} dfgnn_edge_call;

/* Runs the operator that the program is.  *done is 0 if the program has to run
 * itself: it is none, its tensors are not of the types that the operator takes,
 * or no variant serves the problem. */
dfgnn_status dfgnn__edge_operator_execute(int *done,
                                          const dfgnn_edge_call *call);
/* The workspace that it takes; *bytes stays as it is if it would not run. */
dfgnn_status dfgnn__edge_operator_room(size_t *bytes,
                                       const dfgnn_edge_call *call);

/* edge_program_execute.c: dfgnn_edge_program_execute of the program itself, as
 * `tuning` says on a GPU. */
dfgnn_status dfgnn__edge_program_execute_tuned(
    const dfgnn_edge_program *program, dfgnn_graph *graph,
    const dfgnn_edge_tensor *inputs, int input_count,
    const dfgnn_edge_tensor *outputs, int output_count, uint64_t seed,
    const dfgnn_program_tuning *tuning, void *stream);
/* dfgnn_edge_program_check of outputs that are there already if `executed`,
 * from another device too; all is in host memory. */
dfgnn_status
dfgnn__edge_program_compare(double *worst, int *where,
                            const dfgnn_edge_program *program,
                            dfgnn_graph *graph, const dfgnn_edge_tensor *inputs,
                            int input_count, const dfgnn_edge_tensor *outputs,
                            int output_count, uint64_t seed, int executed);

/* Runs a program as kernels that are generated, and compiled when they first
 * run; workspace: NULL, or so much as dfgnn__edge_program_cuda_room says. */
dfgnn_status dfgnn__edge_program_cuda(const dfgnn_edge_program *program,
                                      dfgnn_graph *graph,
                                      const dfgnn_program_job *job,
                                      const dfgnn_program_tuning *tuning,
                                      void *workspace, void *stream);
dfgnn_status dfgnn__edge_program_cuda_room(size_t *bytes,
                                           const dfgnn_edge_program *program,
                                           const dfgnn_graph *graph,
                                           const dfgnn_program_job *job,
                                           const dfgnn_program_tuning *tuning);
/* Lists the kernels that a program runs as on such a graph, for tensors of a
 * type; names: the numbers of its sizes' names. */
dfgnn_status dfgnn__edge_program_collect(dfgnn_programs *list,
                                         const dfgnn_edge_program *program,
                                         const dfgnn_matrix *matrix,
                                         const int64_t *names,
                                         dfgnn_dtype dtype, int units);
/* Their source, which lives as long as the program. */
dfgnn_status dfgnn__edge_program_source(const char **text,
                                        const dfgnn_edge_program *program,
                                        const dfgnn_program_job *job,
                                        const dfgnn_program_tuning *tuning);
void dfgnn__edge_codes_free(struct dfgnn_edge_code *code);

#endif
