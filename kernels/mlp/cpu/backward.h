/* backward.h - gradients of a tile of edges, whose values were computed again
 */
#ifndef DFGNN_KERNELS_MLP_CPU_BACKWARD_H
#define DFGNN_KERNELS_MLP_CPU_BACKWARD_H

#include "kernels/mlp/cpu/forward.h"

/* One side's reduction: what the gradient of an edge takes from its node. */
typedef struct side {
  dfgnn_reduce reduce;
  const storage *grad, *factor; /* NULL: none */
  storage *grad_factor;
  const int32_t *arg;
  const int64_t *node;   /* of each edge of the tile */
  const int32_t *number; /* of each edge of the tile, among its node's; for
                          * extremes alone */
  const int64_t *degree; /* of each node, or NULL: read it from offsets */
} side;

/* ---- the gradient with respect to e' ------------------------------------- */

static scalar share_of(const tile *t, const side *s, int64_t node) {
  const dfgnn_matrix *m = &t->p->job->rows;
  if (s->reduce != DFGNN_REDUCE_MEAN)
    return 1;
  return 1 / (scalar)(s->degree ? s->degree[node]
                                : offset_of(m, node + 1) - offset_of(m, node));
}

/* The gradient of the edge's factor is <gradient of the node, e'>. */
CPU_TARGET static void add_side(const tile *t, const side *s) {
  const int64_t c = t->p->out;
  for (int64_t i = 0; s->grad && i < t->count; i++) {
    const int64_t node = s->node[i], place = t->place[i];
    scalar *to = t->grad + i * t->p->out_row;
    load_row(t->sum, s->grad + node * c, c);
    if (dfgnn__mlp_is_extreme(s->reduce)) {
      const int32_t *arg = s->arg + node * c, number = s->number[i];
      for (int64_t k = 0; k < c; k++)
        to[k] += arg[k] == number ? t->sum[k] : 0;
      continue;
    }
    const scalar share = share_of(t, s, node);
    const scalar factor =
        s->factor ? share * load_one(s->factor + place) : share;
    if (s->grad_factor) {
      const scalar grad =
          share * dot_row(t->sum, t->out + i * t->p->out_row, c);
      store_row(s->grad_factor + place, &grad, 1);
    }
    for (int64_t k = 0; k < c; k++)
      to[k] += factor * t->sum[k];
  }
}

static void start_gradient(const tile *t) {
  const plan *p = t->p;
  const storage *grad = p->job->args.grad_edge_out;
  for (int64_t i = 0; i < t->count; i++) {
    scalar *to = t->grad + i * p->out_row;
    if (grad)
      load_row(to, grad + t->place[i] * p->out, p->out);
    else
      memset(to, 0, (size_t)p->out * sizeof *to);
  }
}

/* ---- residual, norm, gate ------------------------------------------------ */

static void start_edge_gradient(const tile *t) {
  const plan *p = t->p;
  if (!p->job->args.grad_edge)
    return;
  for (int64_t i = 0; i < t->count; i++) {
    scalar *to = t->grad_edge + i * p->edge_row;
    memset(to, 0, (size_t)p->edge_row * sizeof *to);
    if (p->job->mlp.residual)
      memcpy(to, t->grad + i * p->out_row, (size_t)p->out * sizeof *to);
  }
}

/* The gradient of the norm, in place; its parameters' go to a share's sums. */
CPU_TARGET static void normalize_backward(const tile *t, scalar *sums) {
  const plan *p = t->p;
  const dfgnn_edge_mlp_args *args = &p->job->args;
  const int64_t c = p->out;
  const int centred = p->job->mlp.norm == DFGNN_NORM_LAYER;
  scalar *weight = args->grad_norm_weight ? sums + p->norm_weight_sums : NULL;
  scalar *bias = args->grad_norm_bias ? sums + p->norm_bias_sums : NULL;
  for (int64_t i = 0; i < t->count; i++) {
    scalar *g = t->grad + i * p->out_row;
    const scalar *normal = t->normal + i * p->out_row;
    for (int64_t k = 0; weight && k < c; k++)
      weight[k] += g[k] * normal[k];
    for (int64_t k = 0; bias && k < c; k++)
      bias[k] += g[k];
    for (int64_t k = 0; p->norm_weight && k < c; k++)
      g[k] *= p->norm_weight[k];
    const scalar along = dot_row(g, normal, c) / (scalar)c;
    const scalar mean = centred ? sum_row(g, c) / (scalar)c : 0;
    for (int64_t k = 0; k < c; k++)
      g[k] = (g[k] - mean - normal[k] * along) * t->inverse[i];
  }
}

/* slope *= gradient of e', so that it is the gradient of the last layer's z;
 * returns where that is. */
CPU_TARGET static scalar *last_gradient(const tile *t) {
  const plan *p = t->p;
  const int last = p->layers - 1;
  const int64_t c = p->out, row = p->layer[last].row;
  if (p->direct)
    return t->grad;
  for (int64_t i = 0; i < t->count; i++) {
    const scalar *g = t->grad + i * p->out_row;
    scalar *to = t->slope[last] + i * row;
    for (int64_t k = 0; k < c; k++)
      to[k] *= g[k];
    for (int64_t k = 0; p->job->mlp.gate && k < c; k++)
      to[c + k] *= g[k];
  }
  return t->slope[last];
}

/* ---- layers -------------------------------------------------------------- */

CPU_TARGET static void add_columns(scalar *to, const scalar *from, int64_t rows,
                                   int64_t width, int64_t row) {
  for (int64_t n = 0; n < width; n += VECTOR) {
    vec sum = s_load(to + n);
    for (int64_t i = 0; i < rows; i++)
      sum = v_add(sum, s_load(from + i * row + n));
    s_store(to + n, sum);
  }
}

static void multiply_transposed(const tile *t, const gemm_operands *g) {
#if HAVE_AMX
  if (t->p->amx) {
    amx_gemm_transposed(g, t->copied);
    return;
  }
#else
  (void)t;
#endif
  gemm_transposed(g);
}

/* Adds the gradients of a layer's parameters; grad: with respect to z. */
static void add_parameters(const tile *t, int l, const scalar *grad,
                           scalar *sums) {
  const plan *p = t->p;
  const layer *y = &p->layer[l];
  if (p->job->args.grad_bias[l])
    add_columns(sums + y->bias_sums, grad, t->count, y->width, y->row);
  if (p->job->args.grad_weight[l])
    multiply_transposed(
        t, &(gemm_operands){.c = sums + y->weight_sums,
                            .c_row = padded(y->in),
                            .a = grad,
                            .a_step = y->row,
                            .b = l ? t->value[l - 1] : t->edge,
                            .b_panel = GEMM_PANEL,
                            .b_k = l ? p->layer[l - 1].row : p->edge_row,
                            .rows = y->width,
                            .columns = y->in,
                            .inner = t->count,
                            .add = 1});
}

/* to [+]= grad W, the gradient with respect to what layer l read. */
static void pull_back(const tile *t, int l, const scalar *grad, scalar *to,
                      int64_t to_row, int add) {
  const layer *y = &t->p->layer[l];
  multiply_packed(t, &(gemm_operands){.c = to,
                                      .c_row = to_row,
                                      .a = grad,
                                      .a_step = y->row,
                                      .b = y->backward,
                                      .b_panel = GEMM_PANEL * y->width,
                                      .b_k = GEMM_PANEL,
                                      .rows = t->count,
                                      .columns = y->in,
                                      .inner = y->width,
                                      .add = add});
}

CPU_TARGET static void multiply(scalar *to, const scalar *by, int64_t n) {
  for (int64_t i = 0; i < n; i += VECTOR)
    s_store(to + i, v_mul(s_load(to + i), s_load(by + i)));
}

static void write_edge_gradient(const tile *t) {
  const plan *p = t->p;
  storage *to = p->job->args.grad_edge;
  for (int64_t i = 0; i < t->count; i++)
    store_row(to + t->place[i] * p->edge, t->grad_edge + i * p->edge_row,
              p->edge);
}

/* From the gradient with respect to e' to that of the first layer's z, which is
 * returned, [tile, row of the layer].  A layer's gradient takes the place of
 * its values, which its parameters' gradients have been made of. */
static const scalar *differentiate_tile(const tile *t, scalar *sums) {
  const plan *p = t->p;
  start_edge_gradient(t);
  if (p->job->mlp.norm != DFGNN_NORM_NONE)
    normalize_backward(t, sums);
  scalar *grad = last_gradient(t);
  for (int l = p->layers - 1; l > 0; l--) {
    add_parameters(t, l, grad, sums);
    pull_back(t, l, grad, t->value[l - 1], p->layer[l - 1].row, 0);
    multiply(t->value[l - 1], t->slope[l - 1], t->count * p->layer[l - 1].row);
    grad = t->value[l - 1];
  }
  add_parameters(t, 0, grad, sums);
  if (p->job->args.grad_edge) {
    pull_back(t, 0, grad, t->grad_edge, p->edge_row, 1);
    write_edge_gradient(t);
  }
  return grad;
}

#endif
