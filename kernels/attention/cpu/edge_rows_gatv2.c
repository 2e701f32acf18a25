/* edge_rows_gatv2.c - rows and columns of GATv2's gradients with edge features,
 * for a type of scalars
 *
 * W e is computed for a window of edges at a time, of several rows if these are
 * short.  The gradients g of the arguments of leaky ReLU take its place; when
 * the window is full, the gradients of e and W follow from them. */
#include "kernels/attention/cpu/edge_walk.h"

typedef struct scratch {
  scalar *own;                 /* [heads dim] of the row */
  scalar *gathered;            /* [heads dim] of the other end of an edge */
  scalar *sum;                 /* [heads dim] of g */
  scalar *values;              /* sum_bytes: the sum of P r grad_out */
  scalar *attr, *grad_attr;    /* [EDGES, width] */
  scalar *arguments;           /* [EDGES, heads dim] */
  scalar *weights, *gradients; /* [heads, STRIDE] of a column's edges */
} scratch;

static scratch scratch_in(room *m, const dfgnn_problem *p, size_t sum_bytes) {
  size_t heads = (size_t)p->heads, row = heads * (size_t)p->dim;
  return (scratch){.own = place_scalars(m, row),
                   .gathered = place_scalars(m, row),
                   .sum = place_scalars(m, row),
                   .values = place(m, sum_bytes),
                   .attr = place_scalars(m, DFGNN_CPU_EDGES * width_of(p)),
                   .grad_attr = place_scalars(m, DFGNN_CPU_EDGES * width_of(p)),
                   .arguments = place_scalars(m, DFGNN_CPU_EDGES * row),
                   .weights = place_scalars(m, heads * STRIDE),
                   .gradients = place_scalars(m, heads * STRIDE)};
}

static size_t bytes(const dfgnn_setting *setting) {
  room m = {NULL, 0};
  scratch_in(&m, setting->problem, dfgnn__cpu_sum_bytes(setting));
  return m.end;
}

typedef struct walk {
  const dfgnn_cpu_edge_backward *w;
  const dfgnn_cpu_edges *e;
  const dfgnn_cpu_edge_loops *loops;
  int64_t heads, dim, row;
  dfgnn_cpu_edge_sums sums;
  scratch s;
  const scalar *attr;     /* features of the window */
  int64_t window, beyond; /* edges */
} walk;

static walk walk_of(const dfgnn_cpu_edge_part *part, char *memory) {
  const dfgnn_cpu_edge_backward *w = part->w;
  const dfgnn_cpu_job *job = &w->nodes.rows.job;
  room m = {memory, 0};
  return (walk){.w = w,
                .e = &w->edges,
                .loops = w->edges.loops,
                .heads = job->heads,
                .dim = job->dim,
                .row = job->heads * job->dim,
                .sums = part->sums,
                .s = scratch_in(&m, w->problem, job->sum_bytes)};
}

/* Loads the own row, and adds b, which is the same for all its edges. */
static void load_own(const walk *k, const dfgnn_cpu_tensor *t, int64_t node) {
  load_row(k->e, &k->w->nodes.rows.job, k->s.own, t, node);
  if (k->e->bias)
    k->w->nodes.rows.job.kernels->combine(k->s.own, 1, k->e->bias, 1, k->row);
}

/* ---- windows ------------------------------------------------------------- */

/* Computes W e of the window from the features k->attr, unless they are W e. */
static void project(const walk *k) {
  int64_t count = k->beyond - k->window;
  const dfgnn_cpu_matrices m = {.to = k->s.arguments,
                                .a = k->attr,
                                .b = k->e->transposed,
                                .rows = count,
                                .inner = k->e->features,
                                .columns = k->row,
                                .to_row = k->row,
                                .a_row = k->e->width,
                                .a_inner = 1,
                                .b_row = k->row};
  if (k->e->weight)
    k->loops->multiply(&m);
  else
    memcpy(k->s.arguments, k->attr, (size_t)(count * k->row) * sizeof(scalar));
}

/* Adds the own row and a gathered node's to W e of an edge of the window. */
static scalar *argue(const walk *k, const dfgnn_cpu_tensor *t, int64_t node,
                     int64_t e) {
  scalar *z = k->s.arguments + (e - k->window) * k->row;
  load_row(k->e, &k->w->nodes.rows.job, k->s.gathered, t, node);
  k->loops->add(z, k->s.own, k->s.gathered, z, k->row);
  return z;
}

static void open_rows(walk *k, int64_t e, int64_t last) {
  k->window = e;
  k->beyond = last - e < DFGNN_CPU_EDGES ? last : e + DFGNN_CPU_EDGES;
  k->attr = dfgnn__cpu_edges_load(k->e, e, k->beyond - e, k->s.attr);
  project(k);
}

/* Writes the gradients of the window's features, and adds to that of W. */
static void close_rows(const walk *k) {
  int64_t count = k->beyond - k->window;
  const scalar *from = k->s.arguments;
  dfgnn_cpu_matrices m = {.to = k->s.grad_attr,
                          .a = k->s.arguments,
                          .b = k->e->weight,
                          .rows = count,
                          .inner = k->row,
                          .columns = k->e->features,
                          .to_row = k->e->width,
                          .a_row = k->row,
                          .a_inner = 1,
                          .b_row = k->e->features};
  if (k->e->grad_attr && k->e->weight) {
    k->loops->multiply(&m);
    from = k->s.grad_attr;
  }
  if (k->e->grad_attr)
    dfgnn__cpu_edges_store(k->e, k->window, count, from);
  if (!k->sums.weight)
    return;
  m = (dfgnn_cpu_matrices){.to = k->sums.weight,
                           .a = k->s.arguments,
                           .b = k->attr,
                           .rows = k->row,
                           .inner = count,
                           .columns = k->e->features,
                           .to_row = k->e->features,
                           .a_row = 1,
                           .a_inner = k->row,
                           .b_row = k->e->width,
                           .add = 1};
  k->loops->multiply(&m);
}

/* ---- rows ---------------------------------------------------------------- */

static void add_bias(const walk *k, int64_t e) {
  const dfgnn_cpu_side *side = &k->w->nodes.rows;
  const scalar *bias = (const scalar *)side->job.bias + e * k->heads;
  for (int64_t h = 0; side->job.bias && h < k->heads; h++)
    *weights_at(side, h, e) += bias[h];
}

/* Walks the edges of one row that are in the window. */
static void walk_edges(const walk *k, int64_t row, int64_t begin, int64_t end) {
  const dfgnn_cpu_side *side = &k->w->nodes.rows;
  const dfgnn_cpu_job *job = &side->job;
  for (int64_t e = begin; e < end; e++) {
    scalar *z = argue(k, &job->value, job->indices[e], e);
    k->loops->scores(weights_at(side, 0, e), job->edges, z, k->e->att, k->heads,
                     k->dim, job->slope);
    add_bias(k, e);
  }
  for (int64_t h = 0; h < k->heads; h++)
    job->kernels->score[0][DFGNN_OP_GT](&side->product, row, h, begin, end,
                                        gradients_at(side, h, begin));
  find_terms(side, row, begin, end);
  for (int64_t e = begin; e < end; e++)
    k->loops->slopes(k->s.arguments + (e - k->window) * k->row,
                     gradients_at(side, 0, e), job->edges, k->e->att, k->heads,
                     k->dim, job->slope, k->s.sum, k->sums.att);
}

static void finish_row(const walk *k, int64_t row) {
  const dfgnn_cpu_side *side = &k->w->nodes.rows;
  for (int64_t h = 0; side->scores.out.base && h < k->heads; h++)
    side->job.kernels->store(&side->scores, row, h, k->s.sum + h * k->dim, 1);
  if (k->sums.bias)
    side->job.kernels->combine(k->sums.bias, 1, k->s.sum, 1, k->row);
}

static void rows(const dfgnn_cpu_job *job, void *data, char *memory,
                 int64_t begin, int64_t end) {
  walk k = walk_of(data, memory);
  int64_t last = dfgnn__cpu_offset(job, end);
  for (int64_t row = begin; row < end; row++) {
    int64_t e = dfgnn__cpu_offset(job, row);
    int64_t stop = dfgnn__cpu_offset(job, row + 1);
    clear(k.s.sum, k.row);
    load_own(&k, &job->query, row);
    for (int64_t next; e < stop; e = next) {
      if (e >= k.beyond)
        open_rows(&k, e, last);
      next = stop < k.beyond ? stop : k.beyond;
      walk_edges(&k, row, e, next);
      if (next == k.beyond)
        close_rows(&k);
    }
    finish_row(&k, row);
  }
}

/* ---- columns ------------------------------------------------------------- */

/* Loads and projects features of edges from position i of the columns on. */
static void open_columns(walk *k, const dfgnn_cpu_job *job, int64_t i,
                         int64_t last) {
  size_t size = (size_t)k->e->width;
  k->window = i;
  k->beyond = last - i < DFGNN_CPU_EDGES ? last : i + DFGNN_CPU_EDGES;
  for (int64_t c = i; c < k->beyond; c++) {
    int64_t number = dfgnn__cpu_edges_row(k->e, dfgnn__cpu_number(job, c));
    k->loops->load(k->s.attr + (c - i) * (int64_t)size,
                   k->e->attr + (size_t)number * size * k->e->element_size,
                   (int64_t)k->e->element_size, (int64_t)size);
  }
  k->attr = k->s.attr;
  project(k);
}

static void walk_column(const walk *k, const dfgnn_cpu_side *side,
                        int64_t begin, int64_t end) {
  const dfgnn_cpu_job *job = &side->job;
  for (int64_t h = 0; h < k->heads; h++)
    job->kernels->fetch(job, h, begin, end - begin, side->weights,
                        side->gradients, k->s.weights + h * STRIDE,
                        k->s.gradients + h * STRIDE);
  for (int64_t i = begin; i < end; i++) {
    scalar *z = argue(k, &job->key, job->indices[i], i);
    k->loops->slopes(z, k->s.gradients + i - begin, STRIDE, k->e->att, k->heads,
                     k->dim, job->slope, k->s.sum, NULL);
  }
}

static void columns(const dfgnn_cpu_job *by_column, void *data, char *memory,
                    int64_t begin, int64_t end) {
  walk k = walk_of(data, memory);
  const dfgnn_cpu_side *side = &k.w->nodes.columns;
  const dfgnn_cpu_kernels *kernels = by_column->kernels;
  int64_t last = dfgnn__cpu_offset(by_column, end);
  for (int64_t column = begin; column < end; column++) {
    int64_t first = dfgnn__cpu_offset(by_column, column), i = first;
    int64_t stop = dfgnn__cpu_offset(by_column, column + 1);
    clear(k.s.sum, k.row);
    load_own(&k, &k.w->nodes.rows.job.value, column);
    for (int64_t next; i < stop; i = next) {
      if (i >= k.beyond)
        open_columns(&k, by_column, i, last);
      next = stop < k.beyond ? stop : k.beyond;
      walk_column(&k, side, i, next);
      for (int64_t h = 0; h < k.heads; h++) { /* P r grad_out joins g */
        kernels->accumulate(&side->values, h, i, next, k.s.weights + h * STRIDE,
                            k.s.values, -1, -1, 1);
        kernels->combine(k.s.sum + h * k.dim, 1, k.s.values, 1, k.dim);
      }
    }
    for (int64_t h = 0; h < k.heads; h++)
      kernels->store(&side->values, column, h, k.s.sum + h * k.dim, 1);
  }
}

const dfgnn_cpu_edge_walk CPU_TABLE_OF(dfgnn__cpu_edge_rows_gatv2) = {
    .bytes = bytes, .rows = rows, .columns = columns};
