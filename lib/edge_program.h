/* edge_program.h - a program behind its handle */
#ifndef DFGNN_LIB_EDGE_PROGRAM_H
#define DFGNN_LIB_EDGE_PROGRAM_H

#include <pthread.h>
#include <stdatomic.h>

#include "dfgnn_program.h"
#include "kernels/program/cuda/codes.h"
#include "kernels/program/job.h"
#include "kernels/program/match.h"
#include "lib/plan.h"

struct dfgnn_edge_program {
  uint32_t kind; /* lib/handle.h */
  dfgnn_dag *dag;
  dfgnn_dag *written; /* the same with sums as the text has them, which results
                       * are compared with; NULL: dag */
  dfgnn_lowered *lowered;
  char *text;
  int is_gradient;
  int is_operator;   /* `match` and `pass` say which */
  dfgnn_match match; /* of a gradient: ports are grad_query, ... */
  dfgnn_pass pass;
  uint64_t hash;
  char name[17]; /* the hash, for keys */
  char *line;    /* the text on a line, "" if it is too long for a store */
  atomic_int references;
  dfgnn_program_codes codes;
  pthread_mutex_t lock;           /* guards sized */
  struct dfgnn_edge_sized *sized; /* the program for numbers that executions
                                   * had */
  /* These are set for a program without names: */
  dfgnn_binding binding;
  dfgnn_extent *extents;
  dfgnn_extent widest;
  dfgnn_status unfit; /* why no problem can be made of it */
  char *complaint;
  dfgnn_program_array *arrays;              /* of all types' jobs */
  dfgnn_program_job job[DFGNN_DTYPE_COUNT]; /* by type: of a setting */
};

/* A copy of the handle, which is destroyed like one. */
static inline dfgnn_edge_program *
dfgnn__edge_program_hold(const dfgnn_edge_program *program) {
  atomic_fetch_add(&((dfgnn_edge_program *)program)->references, 1);
  return (dfgnn_edge_program *)program;
}

/* edge_program_setting.c: fills in what a problem looks at, of a program
 * without names. */
dfgnn_status dfgnn__edge_program_settle(dfgnn_edge_program *program);
/* The jobs' types, of a program whose ports say what is kept only now. */
void dfgnn__edge_program_describe_jobs(dfgnn_edge_program *program);
void dfgnn__edge_program_unsettle(dfgnn_edge_program *program);

/* The program for some numbers of its names. */
struct dfgnn_edge_sized {
  struct dfgnn_edge_sized *next;
  int64_t names[DFGNN_SIZE_NAMES];
  dfgnn_edge_program *program;
};

/* edge_program_sized.c: the program for the numbers of a binding: itself if it
 * has no names.  It belongs to `program`. */
dfgnn_status dfgnn__edge_program_for(const dfgnn_edge_program **sized,
                                     const dfgnn_edge_program *program,
                                     const int64_t *names);
/* Completes a problem of OP_PROGRAM. */
dfgnn_status dfgnn__edge_program_complete(dfgnn_problem *complete,
                                          const dfgnn_problem *problem);
/* The problem that a program without names itself is, for tensors of a type. */
dfgnn_status dfgnn__edge_program_as_problem(dfgnn_problem *problem,
                                            const dfgnn_edge_program *program,
                                            dfgnn_dtype dtype);
/* The program of a setting's problem; NULL if it has none. */
const dfgnn_program_job *dfgnn__edge_program_job(const dfgnn_problem *problem);
/* The problem's type for arrays of these types. */
dfgnn_dtype dfgnn__edge_program_dtype(const dfgnn_dag *dag,
                                      const dfgnn_program_array *inputs,
                                      const dfgnn_program_array *outputs);
/* edge_program_known.c: the program of a stored row, by its hash and its text,
 * for the life of the process.  DFGNN_ERROR_UNSUPPORTED if the text is missing
 * or is another program's. */
dfgnn_status dfgnn__edge_program_known(const dfgnn_edge_program **program,
                                       const char *hash, const char *text,
                                       dfgnn_pass pass);

/* edge_program_check.c: what the outputs of a job are, with bounds.  on_gpu: of
 * a GPU, whose walks read back what others wrote (reread.c). */
typedef struct dfgnn_program_expected {
  double *values[DFGNN_DAG_OUTPUTS], *bounds[DFGNN_DAG_OUTPUTS];
  int64_t counts[DFGNN_DAG_OUTPUTS];
} dfgnn_program_expected;
dfgnn_status dfgnn__edge_program_expect(dfgnn_program_expected *expected,
                                        const dfgnn_edge_program *program,
                                        const dfgnn_program_job *job,
                                        int on_gpu);
void dfgnn__edge_program_expected_free(dfgnn_program_expected *expected);

/* How far the numbers of an output are off. */
typedef struct dfgnn_program_errors {
  double of_bound; /* the largest error as a part of its bound; > 1: wrong */
  double relative; /* the largest of |x - r| / (|r| + rms(r)) */
  int64_t at;      /* where of_bound is */
  double found, expected, bound;
} dfgnn_program_errors;
dfgnn_program_errors
dfgnn__edge_program_errors(const dfgnn_program_array *array,
                           const double *values, const double *bounds,
                           int64_t count);

/* edge_program_bind.c: an execution's tensors in the program's order. */
typedef struct dfgnn_edge_execution {
  dfgnn_program_job job;
  dfgnn_binding binding;
  dfgnn_program_array inputs[DFGNN_DAG_INPUTS], outputs[DFGNN_DAG_OUTPUTS];
} dfgnn_edge_execution;

/* Binds tensors by name, and sizes, for the counts of a matrix. */
dfgnn_status dfgnn__edge_program_bind(
    dfgnn_edge_execution *execution, const dfgnn_edge_program *program,
    const dfgnn_matrix *matrix, const dfgnn_edge_tensor *inputs,
    int input_count, const dfgnn_edge_tensor *outputs, int output_count);
/* Launches a plan of OP_PROGRAM; the rest as dfgnn_execute. */
dfgnn_status dfgnn__edge_program_launch(const dfgnn_plan *plan,
                                        const dfgnn_launch *launch);

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

/* The operator's problem, for numbers of the names of sizes, in f32. */
dfgnn_problem dfgnn__edge_operator_problem(const dfgnn_edge_program *program,
                                           const int64_t *names);

#endif
