/* forward.h - the values of a tile of edges, and what the backward pass reads
 * of them */
#ifndef DFGNN_KERNELS_MLP_CPU_FORWARD_H
#define DFGNN_KERNELS_MLP_CPU_FORWARD_H

#include "kernels/mlp/cpu/plan.h"

/* A thread's memory.  Rows of edges are [tile, row] with the row of the plan.
 */
typedef struct tile {
  const plan *p;
  int64_t index, begin, count;
  int64_t *row, *column, *place;   /* [tile] of each edge: its destination, its
                                    * source, its place in the list */
  scalar *edge;                    /* e */
  scalar *value[DFGNN_MLP_LAYERS]; /* a(z), of the last layer z */
  scalar *slope[DFGNN_MLP_LAYERS]; /* a'(z), where the pass is backward */
  scalar *out;                     /* e' */
  scalar *normal;                  /* what the norm's weight is a factor of */
  scalar *inverse;                 /* [tile] 1 / sqrt(variance + epsilon) */
  scalar *grad;                    /* with respect to e', then to z */
  scalar *grad_edge;
  uint16_t *copied; /* operands of AMX */
  scalar *sum;      /* [out_row or the first layer's row] */
  int32_t *number;  /* [tile] of each among its destination's */
  int32_t *arg;     /* [out_row or the first layer's row] */
} tile;

/* A thread's memory of p->scratch numbers. */
static void make_tile(tile *t, const plan *p, scalar *memory,
                      int64_t *integers) {
  int64_t used = 0;
  *t = (tile){.p = p};
  t->edge = take(memory, &used, p->tile * p->edge_row);
  t->grad_edge = take(memory, &used, p->tile * p->edge_row);
  for (int l = 0; l < p->layers; l++) {
    t->value[l] = take(memory, &used, p->tile * p->layer[l].row);
    t->slope[l] = take(memory, &used, p->tile * p->layer[l].row);
  }
  t->out = take(memory, &used, p->tile * p->out_row);
  t->normal = take(memory, &used, p->tile * p->out_row);
  t->grad = take(memory, &used, p->tile * p->out_row);
  t->inverse = take(memory, &used, p->tile);
  if (p->direct)
    t->value[p->layers - 1] = t->out;
  t->copied = (uint16_t *)take(memory, &used, p->copied);
  t->sum = take(memory, &used, most(p->out_row, p->layer[0].row));
  t->row = integers;
  t->column = t->row + p->tile;
  t->place = t->column + p->tile;
  t->number = (int32_t *)(t->place + p->tile);
  t->arg = t->number + p->tile;
}

/* ---- inputs -------------------------------------------------------------- */

static void take_edges(tile *t, int64_t index) {
  const plan *p = t->p;
  const dfgnn_matrix *m = &p->job->rows;
  t->index = index;
  t->begin = index * p->tile;
  t->count = least(p->tile, m->edges - t->begin);
  int64_t row = row_with(m, t->begin);
  for (int64_t i = 0; i < t->count; i++) {
    while (offset_of(m, row + 1) <= t->begin + i)
      row++;
    t->row[i] = row;
    t->number[i] = (int32_t)(t->begin + i - offset_of(m, row));
    t->column[i] = m->indices[t->begin + i];
    t->place[i] = place_of(m, t->begin + i);
  }
}

static void load_edges(const tile *t) {
  const plan *p = t->p;
  const storage *edge = p->job->args.edge;
  for (int64_t i = 0; p->edge && i < t->count; i++)
    load_row(t->edge + i * p->edge_row, edge + t->place[i] * p->edge, p->edge);
}

/* The first layer's sum before the product: its bias and the parts of nodes. */
CPU_TARGET static void load_parts(const tile *t) {
  const layer *y = &t->p->layer[0];
  const dfgnn_edge_mlp_args *args = &t->p->job->args;
  const storage *dst = args->dst_part, *src = args->src_part;
  for (int64_t i = 0; i < t->count; i++) {
    scalar *to = t->value[0] + i * y->row;
    for (int64_t n = 0; n < padded(y->width); n += VECTOR)
      s_store(to + n, y->bias ? s_load(y->bias + n) : v_zero());
    if (dst)
      add_row(to, dst + t->row[i] * y->width, y->width);
    if (src)
      add_row(to, src + t->column[i] * y->width, y->width);
  }
}

/* ---- layers -------------------------------------------------------------- */

CPU_TARGET static void add_bias(const tile *t, const layer *y, scalar *values) {
  for (int64_t i = 0; y->bias && i < t->count; i++, values += y->row)
    for (int64_t n = 0; n < padded(y->width); n += VECTOR)
      s_store(values + n, v_add(s_load(values + n), s_load(y->bias + n)));
}

static void multiply_packed(const tile *t, const gemm_operands *g) {
#if HAVE_AMX
  if (t->p->amx) {
    amx_gemm(g, t->copied);
    return;
  }
#else
  (void)t;
#endif
  gemm(g);
}

static void apply_layer(const tile *t, int l) {
  const layer *y = &t->p->layer[l];
  if (l == 0)
    load_parts(t);
  if (y->forward)
    multiply_packed(t, &(gemm_operands){.c = t->value[l],
                                        .c_row = y->row,
                                        .a = l ? t->value[l - 1] : t->edge,
                                        .a_step = l ? t->p->layer[l - 1].row
                                                    : t->p->edge_row,
                                        .b = y->forward,
                                        .b_panel = GEMM_PANEL * y->in,
                                        .b_k = GEMM_PANEL,
                                        .rows = t->count,
                                        .columns = y->width,
                                        .inner = y->in,
                                        .add = l == 0});
  if (l > 0)
    add_bias(t, y, t->value[l]);
}

/* Numbers between the rows are never written: they are activated for nothing,
 * and have to be numbers. */
static void clear_between(const tile *t) {
  for (int l = 0; l < t->p->layers; l++)
    memset(t->value[l], 0,
           (size_t)(t->p->tile * t->p->layer[l].row) * sizeof(scalar));
}

static void activate_layer(const tile *t, int l) {
  const dfgnn_edge_mlp *mlp = &t->p->job->mlp;
  activate(mlp->activation, t->count * t->p->layer[l].row, t->value[l],
           t->p->backward ? t->slope[l] : NULL, t->value[l],
           (scalar)mlp->slope);
}

/* out = sigmoid(first half of z) * last(second half); slope becomes the
 * derivatives with respect to both. */
CPU_TARGET static void open_gate(const tile *t) {
  const plan *p = t->p;
  const dfgnn_edge_mlp *mlp = &p->job->mlp;
  const int64_t c = p->out, last = p->layers - 1, row = p->layer[last].row;
  scalar *second = t->normal, *slopes = t->grad; /* not yet in use */
  for (int64_t i = 0; i < t->count; i++) {
    const scalar *z = t->value[last] + i * row;
    scalar *to = t->out + i * p->out_row, *slope = t->slope[last] + i * row;
    memcpy(second, z + c, (size_t)c * sizeof *z);
    activate(DFGNN_ACTIVATION_SIGMOID, padded(c), to, slopes, z, 0);
    activate(mlp->last, padded(c), second, slopes + p->out_row, second,
             (scalar)mlp->slope);
    for (int64_t k = 0; k < c; k++) {
      const scalar s = to[k], f = second[k];
      slope[k] = slopes[k] * f;
      slope[c + k] = s * slopes[p->out_row + k];
      to[k] = s * f;
    }
  }
}

static void activate_last(const tile *t) {
  const plan *p = t->p;
  const dfgnn_edge_mlp *mlp = &p->job->mlp;
  const int last = p->layers - 1;
  if (mlp->gate)
    open_gate(t);
  else if (!p->direct)
    activate(mlp->last, t->count * p->out_row, t->out,
             p->backward ? t->slope[last] : NULL, t->value[last],
             (scalar)mlp->slope);
}

/* ---- norm and residual --------------------------------------------------- */

CPU_INLINE scalar sum_row(const scalar *x, int64_t n) {
  vec sum = v_zero();
  int64_t i = 0;
  for (; i + VECTOR <= n; i += VECTOR)
    sum = v_add(sum, s_load(x + i));
  if (i < n)
    sum = v_add(sum, s_load_tail(x + i, v_tail(n - i)));
  return v_sum(sum);
}

CPU_INLINE scalar dot_row(const scalar *x, const scalar *y, int64_t n) {
  vec sum = v_zero();
  int64_t i = 0;
  for (; i + VECTOR <= n; i += VECTOR)
    sum = v_fma(s_load(x + i), s_load(y + i), sum);
  if (i < n) {
    const tail t = v_tail(n - i);
    sum = v_fma(s_load_tail(x + i, t), s_load_tail(y + i, t), sum);
  }
  return v_sum(sum);
}

CPU_TARGET static void normalize(const tile *t) {
  const plan *p = t->p;
  const int64_t c = p->out;
  const int centred = p->job->mlp.norm == DFGNN_NORM_LAYER;
  for (int64_t i = 0; i < t->count; i++) {
    scalar *x = t->out + i * p->out_row, *normal = t->normal + i * p->out_row;
    const scalar mean = centred ? sum_row(x, c) / (scalar)c : 0;
    for (int64_t k = 0; k < c; k++)
      normal[k] = x[k] - mean;
    const scalar square = dot_row(normal, normal, c) / (scalar)c;
    const scalar inverse =
        1 / (scalar)sqrt((double)square + p->job->mlp.epsilon);
    t->inverse[i] = inverse;
    for (int64_t k = 0; k < c; k++) {
      normal[k] *= inverse;
      x[k] = p->norm_weight ? normal[k] * p->norm_weight[k] : normal[k];
    }
    for (int64_t k = 0; p->norm_bias && k < c; k++)
      x[k] += p->norm_bias[k];
  }
}

static void add_residual(const tile *t) {
  const plan *p = t->p;
  for (int64_t i = 0; i < t->count; i++) {
    const scalar *e = t->edge + i * p->edge_row;
    scalar *x = t->out + i * p->out_row;
    for (int64_t k = 0; k < p->out; k++)
      x[k] += e[k];
  }
}

/* t->out becomes e' of the tile. */
static void compute_tile(const tile *t) {
  load_edges(t);
  for (int l = 0; l < t->p->layers; l++) {
    apply_layer(t, l);
    if (l + 1 < t->p->layers)
      activate_layer(t, l);
  }
  activate_last(t);
  if (t->p->job->mlp.norm != DFGNN_NORM_NONE)
    normalize(t);
  if (t->p->job->mlp.residual)
    add_residual(t);
}

#endif
