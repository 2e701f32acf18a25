/* mlps.h - MLPs on edges with random tensors in host memory */
#ifndef DFGNN_TESTS_MLPS_H
#define DFGNN_TESTS_MLPS_H

#include "dfgnn_mlp.h"
#include "kernels/mlp/job.h"
#include "tests/common/programs.h"

enum { MLP_BLOCKS = 64 };

/* A forward and a backward pass of an MLP, with every tensor that it can have.
 */
typedef struct mlp_case {
  dfgnn_edge_mlp mlp;
  dfgnn_edge_mlp_args forward, backward;
  int64_t destinations, sources, edges, out;
  int count;
  struct {
    void *data;
    size_t bytes, element;
  } block[MLP_BLOCKS]; /* all memory, in the order in which it was made */
  uint64_t state;
} mlp_case;

static inline dfgnn_dtype mlp_real(const mlp_case *c) {
  return c->mlp.dtype == DFGNN_F64 ? DFGNN_F64 : DFGNN_F32;
}

/* A block of zeros (0xa5 before a kernel writes it, if scale is 0), or of
 * numbers between -scale and scale. */
static inline void *mlp_tensor(mlp_case *c, dfgnn_dtype dtype, int64_t count,
                               double scale) {
  const size_t bytes = (size_t)count * bytes_of(dtype);
  void *data = malloc(bytes + 1);
  ck_assert_int_lt(c->count, MLP_BLOCKS);
  memset(data, 0xa5, bytes + 1);
  for (int64_t i = 0; scale != 0 && i < count; i++)
    set_element(data, dtype, i, scale * uniform(&c->state));
  c->block[c->count].data = data;
  c->block[c->count].element = bytes_of(dtype);
  c->block[c->count++].bytes = bytes;
  return data;
}

static inline void mlp_inputs(mlp_case *c) {
  const dfgnn_edge_mlp *m = &c->mlp;
  dfgnn_edge_mlp_args *a = &c->forward;
  if (m->edge_dim)
    a->edge = mlp_tensor(c, m->dtype, c->edges * m->edge_dim, 1);
  a->dst_part = mlp_tensor(c, m->dtype, c->destinations * m->width[0], 1);
  a->src_part = mlp_tensor(c, m->dtype, c->sources * m->width[0], 1);
  for (int l = 0; l < m->layers; l++) {
    const int64_t in = dfgnn__mlp_in_width(m, l);
    if (in)
      a->weight[l] =
          mlp_tensor(c, m->dtype, m->width[l] * in, 1.7 / sqrt((double)in));
    a->bias[l] = mlp_tensor(c, m->dtype, m->width[l], 0.5);
  }
  if (m->norm != DFGNN_NORM_NONE)
    a->norm_weight = mlp_tensor(c, m->dtype, c->out, 1);
  if (m->norm == DFGNN_NORM_LAYER)
    a->norm_bias = mlp_tensor(c, m->dtype, c->out, 1);
}

static inline int mlp_takes_factor(dfgnn_reduce reduce) {
  return reduce == DFGNN_REDUCE_SUM || reduce == DFGNN_REDUCE_MEAN;
}

static inline void mlp_outputs(mlp_case *c) {
  const dfgnn_edge_mlp *m = &c->mlp;
  dfgnn_edge_mlp_args *a = &c->forward;
  a->edge_out = mlp_tensor(c, m->dtype, c->edges * c->out, 0);
  if (m->reduce_dst)
    a->out_dst = mlp_tensor(c, m->dtype, c->destinations * c->out, 0);
  if (m->reduce_src)
    a->out_src = mlp_tensor(c, m->dtype, c->sources * c->out, 0);
  if (dfgnn__mlp_is_extreme(m->reduce_dst))
    a->arg_dst = mlp_tensor(c, DFGNN_F32, c->destinations * c->out, 0);
  if (dfgnn__mlp_is_extreme(m->reduce_src))
    a->arg_src = mlp_tensor(c, DFGNN_F32, c->sources * c->out, 0);
}

/* The backward pass has the inputs of the forward one. */
static inline void mlp_gradients(mlp_case *c) {
  const dfgnn_edge_mlp *m = &c->mlp;
  const dfgnn_dtype real = mlp_real(c);
  dfgnn_edge_mlp_args *a = &c->backward;
  *a = c->forward;
  a->edge_out = a->out_dst = a->out_src = NULL;
  a->grad_edge_out = mlp_tensor(c, m->dtype, c->edges * c->out, 1);
  if (m->reduce_dst)
    a->grad_out_dst = mlp_tensor(c, m->dtype, c->destinations * c->out, 1);
  if (m->reduce_src)
    a->grad_out_src = mlp_tensor(c, m->dtype, c->sources * c->out, 1);
  if (m->edge_dim)
    a->grad_edge = mlp_tensor(c, m->dtype, c->edges * m->edge_dim, 0);
  a->grad_dst_part = mlp_tensor(c, m->dtype, c->destinations * m->width[0], 0);
  a->grad_src_part = mlp_tensor(c, m->dtype, c->sources * m->width[0], 0);
  for (int l = 0; l < m->layers; l++) {
    const int64_t in = dfgnn__mlp_in_width(m, l);
    if (in)
      a->grad_weight[l] = mlp_tensor(c, real, m->width[l] * in, 0);
    a->grad_bias[l] = mlp_tensor(c, real, m->width[l], 0);
  }
  if (a->norm_weight)
    a->grad_norm_weight = mlp_tensor(c, real, c->out, 0);
  if (a->norm_bias)
    a->grad_norm_bias = mlp_tensor(c, real, c->out, 0);
  if (a->dst_factor)
    a->grad_dst_factor = mlp_tensor(c, m->dtype, c->edges, 0);
  if (a->src_factor)
    a->grad_src_factor = mlp_tensor(c, m->dtype, c->edges, 0);
}

/* All tensors; factors: edges have factors where sums are asked for. */
static inline void mlp_make(mlp_case *c, const dfgnn_edge_mlp *mlp,
                            int64_t destinations, int64_t sources,
                            int64_t edges, int factors, uint64_t seed) {
  *c = (mlp_case){.mlp = *mlp,
                  .forward = DFGNN_EDGE_MLP_ARGS_INIT,
                  .destinations = destinations,
                  .sources = sources,
                  .edges = edges,
                  .out = dfgnn__mlp_out_width(mlp),
                  .state = seed};
  mlp_inputs(c);
  if (factors && mlp_takes_factor(mlp->reduce_dst))
    c->forward.dst_factor = mlp_tensor(c, mlp->dtype, edges, 1);
  if (factors && mlp_takes_factor(mlp->reduce_src))
    c->forward.src_factor = mlp_tensor(c, mlp->dtype, edges, 1);
  mlp_outputs(c);
  mlp_gradients(c);
}

/* Lends memory for inner values. */
static inline void mlp_keep(mlp_case *c) {
  for (int l = 0; l < DFGNN_MLP_LAYERS; l++) {
    const int64_t width = dfgnn_edge_mlp_kept_width(&c->mlp, l);
    if (width)
      c->forward.kept[l] = c->backward.kept[l] =
          mlp_tensor(c, c->mlp.dtype, c->edges * width, 0);
    if (width)
      c->block[c->count - 1].element = 0; /* it is aligned in any case */
  }
}

static inline void mlp_free(mlp_case *c) {
  for (int i = 0; i < c->count; i++)
    free(c->block[i].data);
}

#endif
