/* edge_rows_gatv2.c - rows and columns of GATv2's gradients with edge features
 *
 * W e is computed for a window of edges at a time, of several rows if these are
 * short.  The gradients g of the arguments of leaky ReLU take its place; when
 * the window is full, the gradients of e and W follow from them. */
#include "kernels/attention/cpu/edge_backward.h"

/* Arrays of scalars. */
typedef struct scratch {
  char *own;                 /* [heads dim] of the row */
  char *gathered;            /* [heads dim] of the other end of an edge */
  char *sum;                 /* [heads dim] of g */
  char *values;              /* sum_bytes: the sum of P r grad_out */
  char *attr, *grad_attr;    /* [EDGES, width] */
  char *arguments;           /* [EDGES, heads dim] */
  char *weights, *gradients; /* [heads, STRIDE] of a column's edges */
  size_t end;
} scratch;

#define STRIDE (DFGNN_CPU_EDGES + 16)

static char *place(scratch *s, char *memory, size_t bytes) {
  size_t at = s->end;
  s->end += dfgnn__cpu_aligned(bytes + DFGNN_CPU_PADDING);
  return memory + at;
}

static scratch scratch_in(char *memory, const dfgnn_problem *p,
                          size_t sum_bytes) {
  size_t size = dfgnn__cpu_scalar_size(p), row = (size_t)(p->heads * p->dim);
  size_t width = p->edge_dim < 0 ? row : (size_t)p->edge_dim;
  scratch s = {.end = 0};
  s.own = place(&s, memory, row * size);
  s.gathered = place(&s, memory, row * size);
  s.sum = place(&s, memory, row * size);
  s.values = place(&s, memory, sum_bytes);
  s.attr = place(&s, memory, DFGNN_CPU_EDGES * width * size);
  s.grad_attr = place(&s, memory, DFGNN_CPU_EDGES * width * size);
  s.arguments = place(&s, memory, DFGNN_CPU_EDGES * row * size);
  s.weights = place(&s, memory, (size_t)p->heads * STRIDE * size);
  s.gradients = place(&s, memory, (size_t)p->heads * STRIDE * size);
  return s;
}

size_t dfgnn__cpu_edge_rows_gatv2_bytes(const dfgnn_setting *setting) {
  return scratch_in(NULL, setting->problem, dfgnn__cpu_sum_bytes(setting)).end;
}

typedef struct walk {
  const dfgnn_cpu_edge_backward *w;
  const dfgnn_cpu_edges *e;
  const dfgnn_cpu_edge_loops *loops;
  int64_t heads, dim, row;
  dfgnn_cpu_edge_sums sums;
  scratch s;
  const void *attr;       /* features of the window */
  int64_t window, beyond; /* edges */
} walk;

static walk walk_of(const dfgnn_cpu_edge_backward *w, char *memory,
                    const dfgnn_cpu_edge_sums *sums) {
  const dfgnn_cpu_job *job = &w->nodes.rows.job;
  return (walk){.w = w,
                .e = &w->edges,
                .loops = w->edges.loops,
                .heads = job->heads,
                .dim = job->dim,
                .row = job->heads * job->dim,
                .sums = *sums,
                .s = scratch_in(memory, w->problem, job->sum_bytes)};
}

static char *at(const walk *k, const void *array, int64_t i) {
  return dfgnn__cpu_at(k->e, (void *)array, i);
}

/* Loads the own row, and adds b, which is the same for all its edges. */
static void load_own(const walk *k, const dfgnn_cpu_tensor *t, int64_t node) {
  dfgnn__cpu_edge_load_row(k->w, k->s.own, t, node);
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
    memcpy(k->s.arguments, k->attr,
           (size_t)(count * k->row) * k->e->scalar_size);
}

/* Adds the own row and a gathered node's to W e of an edge of the window. */
static char *argue(const walk *k, const dfgnn_cpu_tensor *t, int64_t node,
                   int64_t e) {
  char *z = at(k, k->s.arguments, (e - k->window) * k->row);
  dfgnn__cpu_edge_load_row(k->w, k->s.gathered, t, node);
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
  char *to = k->w->args->grad_edge_attr;
  const char *from = k->s.arguments;
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
  if (to && k->e->weight) {
    k->loops->multiply(&m);
    from = k->s.grad_attr;
  }
  if (to)
    k->loops->store(to + (size_t)(k->window * k->e->width) * k->e->element_size,
                    (int64_t)k->e->element_size, from, count * k->e->width);
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
  const dfgnn_cpu_job *job = &k->w->nodes.rows.job;
  for (int64_t h = 0; job->bias && h < k->heads; h++) {
    char *score = dfgnn__cpu_edge_weights(k->w, h, e);
    int64_t i = e * k->heads + h;
    if (k->e->scalar_size == sizeof(double))
      *(double *)score += ((const double *)job->bias)[i];
    else
      *(float *)score += ((const float *)job->bias)[i];
  }
}

/* Walks the edges of one row that are in the window. */
static void walk_edges(const walk *k, int64_t row, int64_t begin, int64_t end) {
  const dfgnn_cpu_side *side = &k->w->nodes.rows;
  const dfgnn_cpu_job *job = &side->job;
  for (int64_t e = begin; e < end; e++) {
    char *z = argue(k, &job->value, job->indices[e], e);
    k->loops->scores(dfgnn__cpu_edge_weights(k->w, 0, e), job->edges, z,
                     k->e->att, k->heads, k->dim, job->slope);
    add_bias(k, e);
  }
  for (int64_t h = 0; h < k->heads; h++)
    job->kernels->score[0][DFGNN_OP_GT](
        &side->product, row, h, begin, end,
        dfgnn__cpu_edge_gradients(k->w, h, begin));
  dfgnn__cpu_edge_terms(k->w, row, begin, end);
  for (int64_t e = begin; e < end; e++)
    k->loops->slopes(at(k, k->s.arguments, (e - k->window) * k->row),
                     dfgnn__cpu_edge_gradients(k->w, 0, e), job->edges,
                     k->e->att, k->heads, k->dim, job->slope, k->s.sum,
                     k->sums.att);
}

static void finish_row(const walk *k, int64_t row) {
  const dfgnn_cpu_side *side = &k->w->nodes.rows;
  for (int64_t h = 0; side->scores.out.base && h < k->heads; h++)
    side->job.kernels->store(&side->scores, row, h, at(k, k->s.sum, h * k->dim),
                             1);
  if (k->sums.bias)
    side->job.kernels->combine(k->sums.bias, 1, k->s.sum, 1, k->row);
}

void dfgnn__cpu_edge_rows_gatv2(const dfgnn_cpu_edge_backward *w, char *memory,
                                int64_t begin, int64_t end,
                                const dfgnn_cpu_edge_sums *sums) {
  const dfgnn_cpu_job *job = &w->nodes.rows.job;
  walk k = walk_of(w, memory, sums);
  int64_t last = dfgnn__cpu_offset(job, end);
  for (int64_t row = begin; row < end; row++) {
    int64_t e = dfgnn__cpu_offset(job, row);
    int64_t stop = dfgnn__cpu_offset(job, row + 1);
    memset(k.s.sum, 0, (size_t)k.row * k.e->scalar_size);
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
    int64_t number = dfgnn__cpu_number(job, c);
    k->loops->load(at(k, k->s.attr, (c - i) * (int64_t)size),
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
                        side->gradients, at(k, k->s.weights, h * STRIDE),
                        at(k, k->s.gradients, h * STRIDE));
  for (int64_t i = begin; i < end; i++) {
    char *z = argue(k, &job->key, job->indices[i], i);
    k->loops->slopes(z, at(k, k->s.gradients, i - begin), STRIDE, k->e->att,
                     k->heads, k->dim, job->slope, k->s.sum, NULL);
  }
}

void dfgnn__cpu_edge_columns(const dfgnn_cpu_job *by_column, void *data,
                             char *memory, int64_t begin, int64_t end) {
  const dfgnn_cpu_edge_backward *w = data;
  const dfgnn_cpu_side *side = &w->nodes.columns;
  const dfgnn_cpu_kernels *kernels = by_column->kernels;
  const dfgnn_cpu_edge_sums none = {NULL, NULL, NULL, NULL};
  walk k = walk_of(w, memory, &none);
  int64_t last = dfgnn__cpu_offset(by_column, end);
  for (int64_t column = begin; column < end; column++) {
    int64_t first = dfgnn__cpu_offset(by_column, column), i = first;
    int64_t stop = dfgnn__cpu_offset(by_column, column + 1);
    memset(k.s.sum, 0, (size_t)k.row * k.e->scalar_size);
    load_own(&k, &w->nodes.rows.job.value, column);
    for (int64_t next; i < stop; i = next) {
      if (i >= k.beyond)
        open_columns(&k, by_column, i, last);
      next = stop < k.beyond ? stop : k.beyond;
      walk_column(&k, side, i, next);
      for (int64_t h = 0; h < k.heads; h++) { /* P r grad_out joins g */
        kernels->accumulate(&side->values, h, i, next,
                            at(&k, k.s.weights, h * STRIDE), k.s.values, -1, -1,
                            1);
        kernels->combine(at(&k, k.s.sum, h * k.dim), 1, k.s.values, 1, k.dim);
      }
    }
    for (int64_t h = 0; h < k.heads; h++)
      kernels->store(&side->values, column, h, at(&k, k.s.sum, h * k.dim), 1);
  }
}
