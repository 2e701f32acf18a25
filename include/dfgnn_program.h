/* dfgnn_program.h - edge programs: message functions of the user's own, fused
 *
 * A program is a text that says what each edge computes from the values of its
 * destination, its source, itself and parameters, and how that is reduced:
 *
 *   dst q[H,D]; src k[H,D], v[H,D]; edge x[H,D]
 *   score = sum(q * (k + x)) / 5.65
 *   out = sum_in(softmax_in(score) * (v + x))
 *
 * It runs without a value of every edge in memory, and its gradient is a
 * program again, of any order.  dfgnn-program(5) has the language.
 *
 *   dfgnn_edge_program *program;
 *   dfgnn_edge_program_create(&program, text);
 *   dfgnn_edge_tensor in[] = {{"q", q, DFGNN_F32, 2, {8, 64}}, ...};
 *   dfgnn_edge_tensor out[] = {{"out", o, DFGNN_F32, 2, {8, 64}}};
 *   dfgnn_edge_program_execute(program, graph, in, 4, out, 1, 0, NULL);
 *
 * Programs run on the CPU and, as CUDA kernels that are generated and compiled
 * when they first run, on GPUs. */
#ifndef DFGNN_PROGRAM_H
#define DFGNN_PROGRAM_H

#include "dfgnn.h"

#ifdef __cplusplus
extern "C" {
#endif

/* An immutable program, which threads may share.  It belongs to no device. */
typedef struct dfgnn_edge_program dfgnn_edge_program;

/* Whose rows a tensor has: one for all (its first axis is left out), or one for
 * each destination, source, edge or relation, in the order of the graph's. */
typedef enum dfgnn_edge_place {
  DFGNN_EDGE_PARAM = 1,
  DFGNN_EDGE_DST = 2,
  DFGNN_EDGE_SRC = 3,
  DFGNN_EDGE_EDGE = 4,
  DFGNN_EDGE_REL = 5
} dfgnn_edge_place;

/* Gives each edge of a graph its relation, a number from 0 to count - 1, in the
 * order of the graph's edges (of the CSR matrix), for programs that have values
 * of relations (rel).  Relations need not be sorted, and one may have no edge.
 * of_edge: [E] in host memory, or in device memory that `stream` has filled
 * when its work is done so far; the graph copies it.  Where nodes are of
 * several types their tables lie one after the other in one tensor, whose rows
 * the matrix numbers.  A graph gets relations once.  Numbers of host memory are
 * checked, those of device memory are not. */
DFGNN_API dfgnn_status dfgnn_graph_set_relations(dfgnn_graph *graph,
                                                 int64_t count,
                                                 const int32_t *of_edge,
                                                 int on_device, void *stream);

/* The meaning of an input or output of a gradient's program to the program that
 * it is derived from. */
typedef enum dfgnn_edge_role {
  DFGNN_EDGE_OWN = 0,       /* nothing: the program is no gradient's */
  DFGNN_EDGE_INPUT = 1,     /* its input `of` */
  DFGNN_EDGE_OUTPUT = 2,    /* what it gave as output `of` */
  DFGNN_EDGE_COTANGENT = 3, /* the gradient that comes for output `of` */
  DFGNN_EDGE_GRADIENT = 4   /* the gradient that goes to input `of` */
} dfgnn_edge_role;

#define DFGNN_EDGE_NAME 64

/* An input or output.  Its tensor is dense, [rows of the place, axes]. */
typedef struct dfgnn_edge_value {
  size_t struct_size;
  char name[DFGNN_EDGE_NAME];
  dfgnn_edge_place place;
  int rank;        /* axes after the first, 0 to 3 */
  int64_t axes[3]; /* 0: a name in the text, which tensors give a number */
  dfgnn_edge_role role;
  int of;
  int kept; /* 1: an output for gradients, to be F32 (F64 for F64) always */
  char argument[DFGNN_EDGE_NAME]; /* the members of dfgnn_args that it is where
                                   * the program is an operator, "key value" if
                                   * it is two; "": none */
  int zero; /* 1: an output that is 0 whatever the inputs are, such as the
             * gradient of a value that is only compared */
} dfgnn_edge_value;

#define DFGNN_EDGE_VALUE_INIT DFGNN_INIT(dfgnn_edge_value)

/* Parses a text of at most 256 KiB.  DFGNN_ERROR_INVALID says line, column,
 * what was found and what was expected; DFGNN_ERROR_UNSUPPORTED names the limit
 * that a program is beyond: 96 inputs, 96 outputs, 16384 values, brackets 64
 * deep, three axes, reductions of reductions 60 deep. */
DFGNN_API dfgnn_status dfgnn_edge_program_create(dfgnn_edge_program **program,
                                                 const char *text);
DFGNN_API void dfgnn_edge_program_destroy(dfgnn_edge_program *program);

/* The name of the i-th operator that the library has as a text, such as "gat"
 * or "supergat"; NULL beyond the last.  *about (unless about is NULL) becomes
 * a line about it, with its paper.  Both live as long as the library. */
DFGNN_API const char *dfgnn_edge_program_name(const char **about, int i);
/* The program of such a name, the same as dfgnn_edge_program_create makes of
 * its text: dfgnn_edge_program_input tells its tensors.  Its sizes are names, H
 * of heads and D of features.  DFGNN_ERROR_INVALID lists the names. */
DFGNN_API dfgnn_status dfgnn_edge_program_named(dfgnn_edge_program **program,
                                                const char *name);

/* The normal form, which parses to the same program; it lives as long as the
 * program.  NULL if program is none. */
DFGNN_API const char *
dfgnn_edge_program_text(const dfgnn_edge_program *program);
/* A hash of what is computed: the same for programs that differ in names, or in
 * the order of statements, factors and terms alone.  0 if program is none. */
DFGNN_API uint64_t dfgnn_edge_program_hash(const dfgnn_edge_program *program);
/* Walks over rows and columns of the graph that an execution takes. */
DFGNN_API dfgnn_status dfgnn_edge_program_walks(
    int *rows, int *columns, const dfgnn_edge_program *program);

/* Inputs and outputs by number; count is 0 if program is none.  The caller sets
 * value->struct_size. */
DFGNN_API int dfgnn_edge_program_input_count(const dfgnn_edge_program *program);
DFGNN_API int
dfgnn_edge_program_output_count(const dfgnn_edge_program *program);
DFGNN_API dfgnn_status dfgnn_edge_program_input(
    dfgnn_edge_value *value, const dfgnn_edge_program *program, int i);
DFGNN_API dfgnn_status dfgnn_edge_program_output(
    dfgnn_edge_value *value, const dfgnn_edge_program *program, int i);

/* The operator of the library that a program is: the same formula, whatever the
 * order of its terms and the names in it.  dfgnn_edge_program_execute then runs
 * the operator's variants, tuned or chosen as for any problem.
 * dfgnn_edge_value.argument says what its tensors are to the operator. */
typedef struct dfgnn_edge_operator {
  size_t struct_size;
  int found; /* 0: the program is none of them, and all else is 0 */
  dfgnn_op op;
  dfgnn_pass pass; /* BACKWARD: a gradient of a program that is the operator */
  dfgnn_message message;
  dfgnn_edge_use edge_use;
  int64_t heads, dim, edge_dim; /* of a problem; 0: named, tensors give it */
  double scale, slope;          /* of dfgnn_args; 0: none, or scale depends on
                                 * a named size */
  double dropout;               /* 0: none */
} dfgnn_edge_operator;

#define DFGNN_EDGE_OPERATOR_INIT DFGNN_INIT(dfgnn_edge_operator)

/* The caller sets found->struct_size. */
DFGNN_API dfgnn_status dfgnn_edge_program_operator(
    dfgnn_edge_operator *found, const dfgnn_edge_program *program);

/* The program of the gradient of sum(<output, its cotangent>), where output i
 * has a cotangent if outputs[i] (NULL: all have), with respect to each input i
 * with inputs[i] (NULL: all).  Its inputs tell by role and `of` what they are:
 * inputs of `program`, outputs of it that spare a computation, cotangents
 * (grad_NAME).  Its outputs are grad_NAME of the inputs.  It may be derived
 * again.  Gradients are torch's where a function has no derivative: relu at 0
 * is 0, equal operands of max and min have one half each, equal extremes share,
 * rows without edges contribute nothing. */
DFGNN_API dfgnn_status dfgnn_edge_program_gradient(
    dfgnn_edge_program **gradient, const dfgnn_edge_program *program,
    const unsigned char *outputs, const unsigned char *inputs);
/* `program` with further outputs (value.kept), reductions that its gradient
 * reads and would make again: derive that one.  One row a node each. */
DFGNN_API dfgnn_status dfgnn_edge_program_keep(
    dfgnn_edge_program **kept, const dfgnn_edge_program *program,
    const unsigned char *outputs, const unsigned char *inputs);

/* A number for a name of a size. */
typedef struct dfgnn_edge_size {
  const char *name;
  int64_t value;
} dfgnn_edge_size;

/* `program` with numbers in place of names: what a problem takes.  The names
 * of all sizes of the text have to be among `sizes`; others are passed over.
 */
DFGNN_API dfgnn_status dfgnn_edge_program_sized(
    dfgnn_edge_program **sized, const dfgnn_edge_program *program,
    const dfgnn_edge_size *sizes, int count);

/* The problem that executing a program without names is, for tensors of
 * `dtype`: that of the operator which the program is, unless DFGNN_PROGRAMS is
 * "own", else DFGNN_OP_PROGRAM.  dfgnn_tune, dfgnn_plan_create and
 * dfgnn_plan_explain take it.  The caller sets problem->struct_size, and may
 * change what is no part of the operator: effort, cold, deterministic. */
DFGNN_API dfgnn_status dfgnn_edge_program_problem(
    dfgnn_problem *problem, const dfgnn_edge_program *program,
    dfgnn_dtype dtype);

/* A tensor by the name of an input or output.  Tensors stand in arrays, so that
 * this struct never changes its size and needs no struct_size. */
typedef struct dfgnn_edge_tensor {
  const char *name;
  void *data; /* dense, in memory of the graph's device */
  dfgnn_dtype dtype;
  int rank; /* axes after the rows of its place */
  int64_t axes[3];
} dfgnn_edge_tensor;

/* Computes the outputs, each of which has to be bound.  A program that is an
 * operator runs as that, if its tensors have the types that the operator takes
 * and DFGNN_PROGRAMS is not "own".  Sums are of double if any tensor is F64,
 * else of float; on a GPU a sum over edges may add what another output holds of
 * them, rounded to its type if outputs of nodes are.  seed: of dropout, the
 * same for a program and its gradients.  Results do not depend on the number of
 * threads.
 * DFGNN_ERROR_INVALID names a tensor that is missing, unknown, or of another
 * shape; DFGNN_ERROR_UNSUPPORTED: a value has more than 16384 elements,
 * or no kernel can be made of the program, which the message says why.  On a
 * GPU the work is put on the stream, and its memory is the context's. */
DFGNN_API dfgnn_status
dfgnn_edge_program_execute(const dfgnn_edge_program *program,
                           dfgnn_graph *graph, const dfgnn_edge_tensor *inputs,
                           int input_count, const dfgnn_edge_tensor *outputs,
                           int output_count, uint64_t seed, void *stream);

/* The problem and the arguments of which dfgnn_plan_create and dfgnn_execute
 * make the same call, for callers who keep the plan, or bring a workspace or a
 * seed in memory.  args->seed and args->seed_value are read: dropout's.  The
 * problem is that of the operator which the program is, with the tensors at the
 * members of args that dfgnn_edge_value.argument names, if it would run as
 * that; else, and if as_program is 1, DFGNN_OP_PROGRAM, whose args point to
 * `inputs` and `outputs`.  An operator for which dfgnn_plan_create finds no
 * variant still runs as_program.  The caller sets struct_size of both. */
DFGNN_API dfgnn_status dfgnn_edge_program_call(
    dfgnn_problem *problem, dfgnn_args *args, const dfgnn_edge_program *program,
    dfgnn_graph *graph, const dfgnn_edge_tensor *inputs, int input_count,
    const dfgnn_edge_tensor *outputs, int output_count, int as_program);

#ifdef __cplusplus
}
#endif
#endif
