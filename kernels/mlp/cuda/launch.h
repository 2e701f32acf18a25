/* launch.h - a run of an MLP on edges, and what both of its ways launch */
#ifndef DFGNN_MLP_CUDA_LAUNCH_H
#define DFGNN_MLP_CUDA_LAUNCH_H

#include "kernels/mlp/cuda/plan.h"

enum { MLP_THREADS = 256 };

typedef struct dfgnn_mlp_run {
  const dfgnn_mlp_plan *plan;
  const dfgnn_mlp_job *job;
  const dfgnn_queue *queue;
  char *workspace;
  mlp_graph graph;
  dfgnn_matrix columns;     /* where the pass adds at sources, and */
  const void *column_edges; /* the graph's edges of them */
} dfgnn_mlp_run;

/* Blocks for a number of items, `each` of them in a block. */
static inline unsigned dfgnn__mlp_blocks(int64_t items, int64_t each) {
  const int64_t blocks = (items + each - 1) / each;
  return (unsigned)(blocks < 1 ? 1 : blocks);
}
static inline int64_t dfgnn__mlp_least(int64_t a, int64_t b) {
  return a < b ? a : b;
}
/* Edges of a launch whose first is `first`. */
static inline int64_t dfgnn__mlp_edges_from(const dfgnn_mlp_run *r,
                                            int64_t first) {
  return dfgnn__mlp_least(r->graph.edges - first, r->plan->edges_of_launch);
}

/* Parameters that both ways have; spans are all that there are. */
mlp_forward_params dfgnn__mlp_forward_params(const dfgnn_mlp_run *r);
mlp_backward_params dfgnn__mlp_backward_params(const dfgnn_mlp_run *r);
mlp_rows_params dfgnn__mlp_rows_params(const dfgnn_mlp_run *r);

/* Kept rows of z of layer l from an edge on; NULL if they are not kept. */
void *dfgnn__mlp_kept_rows(const dfgnn_mlp_run *r, int l, int64_t edge);

/* Fills rows of nodes that no edge writes with zeros; NULL: there are none. */
dfgnn_status dfgnn__mlp_clear(const dfgnn_mlp_run *r, void *rows,
                              int64_t width);
/* Adds the parts of rows that spans cut. */
dfgnn_status dfgnn__mlp_merge(const dfgnn_mlp_run *r, const mlp_sums *sums,
                              int width);
/* Sums of rows of grad_first at sources, or at destinations. */
dfgnn_status dfgnn__mlp_sum_first(const dfgnn_mlp_run *r, void *to,
                                  int at_sources);

/* The way back from e' to the last layer's z: p's launch has its edges.
 * grad_z: rows of the gradient with respect to z. */
dfgnn_status dfgnn__mlp_last_rows(const dfgnn_mlp_run *r,
                                  const mlp_rows_params *p, void *grad_z);
/* Blocks of mlp_last_rows, each of which has a part of the norm's gradients. */
unsigned dfgnn__mlp_row_blocks(const dfgnn_mlp_run *r, int64_t edges);

/* Adds parts: `parts` rows of two sums of `width` numbers. */
dfgnn_status dfgnn__mlp_finish_sums(const dfgnn_mlp_run *r, size_t from,
                                    int parts, int stride, int width, float *to,
                                    float *to_second);
/* Writes the gradients of the norm from the parts of mlp_last_rows. */
dfgnn_status dfgnn__mlp_finish_norm(const dfgnn_mlp_run *r);

/* A way for each pass. */
dfgnn_status dfgnn__mlp_resident(const dfgnn_mlp_run *r);
dfgnn_status dfgnn__mlp_library(const dfgnn_mlp_run *r);

#endif
