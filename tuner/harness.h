/* harness.h - a problem's tensors with random values, and the check of a plan
 * against the float64 reference
 *
 * Used by the tuner before a candidate may win, by dfgnn-bench for rel_error
 * and by the tests; it loops over lib/operator.h and knows no operator by name.
 */
#ifndef DFGNN_TUNER_HARNESS_H
#define DFGNN_TUNER_HARNESS_H

#include "dfgnn.h"

typedef struct dfgnn_harness dfgnn_harness;

/* Allocates every tensor of the problem on the context's device, with canaries
 * before and after each.  Inputs have mean 0 and variance 1 (a sum of four
 * uniform numbers; parameters of the layer 1 / D) and are the same on every
 * device for a seed. */
dfgnn_status dfgnn__harness_create(dfgnn_harness **harness, dfgnn_context *ctx,
                                   dfgnn_graph *graph,
                                   const dfgnn_problem *problem, uint64_t seed);
void dfgnn__harness_destroy(dfgnn_harness *harness);

/* Random numbers on a context's device, from which the inputs of harnesses that
 * check nothing are copied: to make and keep them on the host takes longer than
 * to time a hundred variants. */
typedef struct dfgnn_harness_pool dfgnn_harness_pool;
dfgnn_status dfgnn__harness_pool_create(dfgnn_harness_pool **pool,
                                        dfgnn_context *ctx);
void dfgnn__harness_pool_destroy(dfgnn_harness_pool *pool);
/* Does as dfgnn__harness_create, with a pool, for executions alone. */
dfgnn_status dfgnn__harness_create_unchecked(
    dfgnn_harness **harness, dfgnn_context *ctx, dfgnn_graph *graph,
    const dfgnn_problem *problem, uint64_t seed, dfgnn_harness_pool *pool);

/* Does as dfgnn__harness_create, with strides for the tensors that have some
 * and a shift: so many numbers behind an aligned address they all begin.  Plans
 * must not write between the features. */
dfgnn_status
dfgnn__harness_create_strided(dfgnn_harness **harness, dfgnn_context *ctx,
                              dfgnn_graph *graph, const dfgnn_problem *problem,
                              uint64_t seed, const dfgnn_strides *strides,
                              int shift);

/* Does likewise with the tensors of a call, which outlive the harness and whose
 * outputs executions overwrite; work that fills them is waited for. */
dfgnn_status dfgnn__harness_lend(dfgnn_harness **harness, dfgnn_context *ctx,
                                 dfgnn_graph *graph,
                                 const dfgnn_problem *problem,
                                 const dfgnn_args *args);

/* Sets the numbers first .. first + count - 1 of an input, in the order of the
 * problem's layout; count -1: all from first.  Call it before the first check.
 */
dfgnn_status dfgnn__harness_set(dfgnn_harness *harness, const char *tensor,
                                int64_t first, int64_t count, double value);

/* Sets the numbers as dfgnn__harness_set does, number i to number(data, i). */
dfgnn_status dfgnn__harness_fill(dfgnn_harness *harness, const char *tensor,
                                 int64_t first, int64_t count,
                                 double (*number)(const void *, int64_t),
                                 const void *data);

/* The arguments, in device memory, for dfgnn_execute. */
const dfgnn_args *dfgnn__harness_args(const dfgnn_harness *harness);
/* A workspace of at least the plan's bytes, valid until the next call of this
 * or of the check. */
dfgnn_status dfgnn__harness_workspace(void **workspace, dfgnn_harness *harness,
                                      const dfgnn_plan *plan);

/* A plan with the harness's arguments and a workspace, to be timed:
 * backend->time() takes dfgnn__harness_execute as f and a call as data. */
typedef struct dfgnn_harness_call {
  const dfgnn_plan *plan;
  const dfgnn_args *args;
  void *workspace;
} dfgnn_harness_call;
dfgnn_status dfgnn__harness_call(dfgnn_harness_call *call,
                                 dfgnn_harness *harness,
                                 const dfgnn_plan *plan);
dfgnn_status dfgnn__harness_execute(void *call, void *stream);

/* Lets the checks sample rows where the reference of all would take longer than
 * a measurement may: of edges and nodes times heads and features (and features
 * of edges) 2^24 for each second, 2^22 at least, or a 256th of all.  Call it
 * before the first check. */
void dfgnn__harness_spare(dfgnn_harness *harness, double seconds);

/* Poisons outputs and workspace, executes, and compares what the plan wrote
 * with the reference, which is computed once: all rows up to 10 M edges and 64
 * M numbers of out, above that a sample (tuner/sample.c).  Gradients of
 * parameters, to which all rows add, are then compared by a second run in which
 * the gradients of the other rows are zeros.
 * rel_error is the largest of |x - r| / (|r| + rms(r)).
 * DFGNN_ERROR_WRONG, with the row, if an error is above what rounding allows
 * (kernels/common/accuracy.h), given how the plan's family sums, or a canary is
 * overwritten. */
dfgnn_status dfgnn__harness_check(double *rel_error, dfgnn_harness *harness,
                                  const dfgnn_plan *plan);

/* The errors that the last check found; for a wrong plan, in the outputs up to
 * the wrong one. */
typedef struct dfgnn_accuracy {
  double rel_error;
  double of_bound; /* the largest error as a part of its bound; > 1: wrong */
} dfgnn_accuracy;

dfgnn_accuracy dfgnn__harness_accuracy(const dfgnn_harness *harness);

#endif
