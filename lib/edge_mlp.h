/* edge_mlp.h - MLPs on edges as problems
 *
 * A form is known for the life of the process, so that problems are compared by
 * the address of their shape. */
#ifndef DFGNN_LIB_EDGE_MLP_H
#define DFGNN_LIB_EDGE_MLP_H

#include "kernels/mlp/tensors.h"
#include "lib/plan.h"

enum { DFGNN_MLP_TEXT = 384 }; /* bytes of the longest text, with its end */

struct dfgnn_mlp_shape {
  uint32_t kind; /* lib/handle.h */
  struct dfgnn_mlp_shape *next;
  dfgnn_mlp_form form;
  dfgnn_mlp_job job; /* of a setting */
  char name[17];     /* the hash of the text, for keys */
  char text[DFGNN_MLP_TEXT];
};

/* edge_mlp_check.c: copies and checks what a caller gave. */
dfgnn_status dfgnn__edge_mlp_prepare(dfgnn_mlp_job *job,
                                     const dfgnn_edge_mlp *mlp,
                                     dfgnn_graph *graph,
                                     const dfgnn_edge_mlp_args *args,
                                     dfgnn_pass pass);
/* The same without a graph, of `edges` edges at least. */
dfgnn_status dfgnn__edge_mlp_take(dfgnn_mlp_job *job, const dfgnn_edge_mlp *mlp,
                                  const dfgnn_edge_mlp_args *args,
                                  dfgnn_pass pass);
dfgnn_status dfgnn__edge_mlp_check(const dfgnn_edge_mlp *mlp);
/* NULL if the graph's device runs the job, else what is missing. */
const char *dfgnn__edge_mlp_missing(const dfgnn_mlp_job *job,
                                    const dfgnn_graph *graph);
/* The problem that a checked job is. */
dfgnn_status dfgnn__edge_mlp_problem_of(dfgnn_problem *problem,
                                        const dfgnn_mlp_job *job);
/* dfgnn_edge_mlp_check of outputs that the CPU's kernels wrote (exact), whose
 * bound is tighter: they round nothing but results. */
dfgnn_status dfgnn__edge_mlp_compare(double *worst, const char **where,
                                     const dfgnn_edge_mlp *mlp,
                                     dfgnn_graph *graph,
                                     const dfgnn_edge_mlp_args *args,
                                     dfgnn_pass pass, int exact);

/* edge_mlp_text.c */
void dfgnn__edge_mlp_print(char text[DFGNN_MLP_TEXT],
                           const dfgnn_mlp_form *form);
/* Reads a text into a form whose dtype, math and pass are set. */
dfgnn_status dfgnn__edge_mlp_read(dfgnn_mlp_form *form, const char *text);

/* edge_mlp_shape.c: the one shape of a settled form. */
dfgnn_status dfgnn__edge_mlp_known(const struct dfgnn_mlp_shape **shape,
                                   const dfgnn_mlp_form *form);
/* The shape of a stored row, whose text has to have that hash. */
dfgnn_status dfgnn__edge_mlp_stored(const struct dfgnn_mlp_shape **shape,
                                    const char *hash, const char *text,
                                    const dfgnn_problem *problem);
/* Completes a problem of OP_MLP. */
dfgnn_status dfgnn__edge_mlp_complete(dfgnn_problem *complete,
                                      const dfgnn_problem *problem);
/* The job of a setting's problem; NULL if it has none. */
const dfgnn_mlp_job *dfgnn__edge_mlp_job(const dfgnn_problem *problem);

/* Launches a plan of OP_MLP; the rest as dfgnn_execute. */
dfgnn_status dfgnn__edge_mlp_launch(const dfgnn_plan *plan,
                                    const dfgnn_launch *launch);

#endif
