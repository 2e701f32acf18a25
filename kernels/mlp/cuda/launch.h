/* launch.h - a run of an MLP on edges, and what both of its ways launch */
#ifndef DFGNN_MLP_CUDA_LAUNCH_H
#define DFGNN_MLP_CUDA_LAUNCH_H

#include "kernels/mlp/cuda/params.h"
#include "kernels/mlp/cuda/plan.h"

enum { MLP_THREADS = 256 };

typedef struct dfgnn_mlp_run {
  dfgnn_mlp_plan plan;
  const dfgnn_mlp_job *job;
  const dfgnn_queue *queue;
  char *workspace;
  mlp_graph graph;
  dfgnn_matrix columns;     /* where the pass reduces at sources, and */
  const void *column_edges; /* the graph's edges of them */
} dfgnn_mlp_run;

/* Blocks for so many items, `each` of them in a block. */
static inline unsigned dfgnn__mlp_blocks(int64_t items, int64_t each) {
  const int64_t blocks = (items + each - 1) / each;
  return (unsigned)(blocks < 1 ? 1 : blocks);
}
static inline int64_t dfgnn__mlp_least(int64_t a, int64_t b) {
  return a < b ? a : b;
}

/* Parameters that both ways have; spans are all that there are. */
mlp_forward_params dfgnn__mlp_forward_params(const dfgnn_mlp_run *r);
mlp_backward_params dfgnn__mlp_backward_params(const dfgnn_mlp_run *r);

/* Kept rows of z of layer l from an edge on; NULL if they are not kept. */
void *dfgnn__mlp_kept_rows(const dfgnn_mlp_run *r, int l, int64_t edge);

/* Fills rows that no edge writes: zeros, and -1 for the edges of extremes. */
dfgnn_status dfgnn__mlp_clear(const dfgnn_mlp_run *r, void *rows, int64_t count,
                              int64_t width);
dfgnn_status dfgnn__mlp_clear_args(const dfgnn_mlp_run *r);

/* Adds the parts of rows that spans cut.  extreme: 1 for maxima, -1 for minima,
 * 0 for sums; padded: numbers of a part. */
dfgnn_status dfgnn__mlp_merge(const dfgnn_mlp_run *r, const mlp_sums *sums,
                              int64_t width, int padded, int extreme);
/* 1, -1 or 0, as above. */
int dfgnn__mlp_extreme(dfgnn_reduce reduce);

/* Sums of padded rows, at place `from` of the workspace and in the order of the
 * graph, at sources or at destinations. */
dfgnn_status dfgnn__mlp_sum_at_sources(const dfgnn_mlp_run *r, void *to,
                                       size_t from, int64_t width, int padded,
                                       int mean);
dfgnn_status dfgnn__mlp_sum_at_destinations(const dfgnn_mlp_run *r, void *to,
                                            size_t from, int64_t width,
                                            int padded);
/* out_src and arg_src from rows of e'. */
dfgnn_status dfgnn__mlp_reduce_at_sources(const dfgnn_mlp_run *r);

/* Adds the launch's edges to the gradients of weights. */
dfgnn_status dfgnn__mlp_multiply_weights(const dfgnn_mlp_run *r,
                                         const mlp_backward_params *b,
                                         int64_t first_edge);
/* Writes the gradients of weights and biases, and those of the norm from
 * `parts` parts. */
dfgnn_status dfgnn__mlp_finish_gradients(const dfgnn_mlp_run *r, int64_t parts);

/* The way back from e' to the last layer's z, whose rows are in memory: p's
 * launch has its edges.  grad_z: rows of the gradient with respect to z. */
mlp_streamed_params dfgnn__mlp_streamed_params(const dfgnn_mlp_run *r);
dfgnn_status dfgnn__mlp_last_rows(const dfgnn_mlp_run *r,
                                  const mlp_streamed_params *p, void *grad_z);
/* Copies rows of e of a launch's edges, where products cannot read those of the
 * call. */
dfgnn_status dfgnn__mlp_copy_input(const dfgnn_mlp_run *r,
                                   const mlp_streamed_params *p);
/* Blocks of mlp_last_rows, each of which has a part of the norm's gradients. */
unsigned dfgnn__mlp_row_blocks(const dfgnn_mlp_run *r, int64_t edges);

/* A way for each pass. */
dfgnn_status dfgnn__mlp_resident(const dfgnn_mlp_run *r);
dfgnn_status dfgnn__mlp_streamed(const dfgnn_mlp_run *r);

#endif
