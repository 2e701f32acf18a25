/* edge_rows_gt.c - the rows of GT's gradients with edge features
 *
 * W^T q and W^T dO are computed for a block of rows.  With them, scores and
 * <dO, v + W e> are products with e, and de is a sum of them by dS and P r.
 * The gradients of q and W follow from each row's sums of dS e and of P r e. */
#include "kernels/attention/cpu/edge_backward.h"

enum { ROWS = 16 }; /* of a block */

/* Arrays of scalars. */
typedef struct scratch {
  char *query, *grad_out;  /* [ROWS, heads, dim]; query scaled */
  char *by_query, *by_out; /* [ROWS, heads, features] W^T query, W^T grad_out */
  char *shift[2];          /* [ROWS, heads] <query, b>, <grad_out, b> */
  char *keys, *values;     /* [ROWS, heads, features] sums of e */
  char *totals[2];         /* [ROWS, heads] of dS, of P r */
  char *sums;              /* [ROWS, heads] of grad_query, sum_bytes apart */
  char *attr, *grad_attr;  /* [EDGES, width] */
  size_t end;
} scratch;

static char *place(scratch *s, char *memory, size_t bytes) {
  size_t at = s->end;
  s->end += dfgnn__cpu_aligned(bytes + DFGNN_CPU_PADDING);
  return memory + at;
}

static scratch scratch_in(char *memory, const dfgnn_problem *p,
                          size_t sum_bytes) {
  size_t size = dfgnn__cpu_scalar_size(p), rows = ROWS * (size_t)p->heads;
  size_t dim = (size_t)p->dim;
  size_t features = p->edge_dim < 0 ? dim : (size_t)p->edge_dim;
  size_t width = p->edge_dim < 0 ? (size_t)p->heads * dim : features;
  scratch s = {.end = 0};
  s.query = place(&s, memory, rows * dim * size);
  s.grad_out = place(&s, memory, rows * dim * size);
  s.by_query = place(&s, memory, rows * features * size);
  s.by_out = place(&s, memory, rows * features * size);
  s.keys = place(&s, memory, rows * features * size);
  s.values = place(&s, memory, rows * features * size);
  for (int k = 0; k < 2; k++) {
    s.shift[k] = place(&s, memory, rows * size);
    s.totals[k] = place(&s, memory, rows * size);
  }
  s.sums = place(&s, memory, rows * sum_bytes);
  s.attr = place(&s, memory, DFGNN_CPU_EDGES * width * size);
  s.grad_attr = place(&s, memory, DFGNN_CPU_EDGES * width * size);
  return s;
}

size_t dfgnn__cpu_edge_rows_gt_bytes(const dfgnn_setting *setting) {
  return scratch_in(NULL, setting->problem, dfgnn__cpu_sum_bytes(setting)).end;
}

typedef struct walk {
  const dfgnn_cpu_edge_backward *w;
  const dfgnn_cpu_edges *e;
  const dfgnn_cpu_edge_loops *loops;
  int64_t heads, dim, features, edges;
  int shorts; /* may a row of few edges take one call? */
  dfgnn_cpu_edge_sums sums;
  scratch s;
} walk;

static char *at(const walk *k, void *array, int64_t i) {
  return dfgnn__cpu_at(k->e, array, i);
}

static char *sum_of(const walk *k, int64_t r, int64_t head) {
  return k->s.sums +
         (size_t)(r * k->heads + head) * k->w->nodes.rows.job.sum_bytes;
}

/* ---- a block, before its edges ------------------------------------------- */

/* to = W^T x, and shift = <x, b>, for the heads of a block of rows. */
static void project(const walk *k, char *to, char *shift, char *x,
                    int64_t rows) {
  for (int64_t h = 0; h < k->heads && k->e->weight; h++) {
    dfgnn_cpu_matrices m = {.to = at(k, to, h * k->features),
                            .a = at(k, x, h * k->dim),
                            .b = at(k, k->e->weight, h * k->dim * k->features),
                            .rows = rows,
                            .inner = k->dim,
                            .columns = k->features,
                            .to_row = k->heads * k->features,
                            .a_row = k->heads * k->dim,
                            .a_inner = 1,
                            .b_row = k->features};
    k->loops->multiply(&m);
    if (!k->e->bias)
      continue;
    m.to = at(k, shift, h);
    m.b = at(k, k->e->bias, h * k->dim);
    m.columns = m.b_row = 1;
    m.to_row = k->heads;
    k->loops->multiply(&m);
  }
}

static int has_edges(const dfgnn_cpu_side *side, int64_t row) {
  return dfgnn__cpu_offset(&side->job, row) !=
         dfgnn__cpu_offset(&side->job, row + 1);
}

static void begin_block(const walk *k, int64_t first, int64_t rows) {
  const dfgnn_cpu_side *side = &k->w->nodes.rows;
  const scratch *s = &k->s;
  int64_t row = k->heads * k->dim;
  size_t size = k->e->scalar_size;
  for (int64_t r = 0; r < rows; r++) {
    if (!has_edges(side, first + r)) { /* 0 times an infinity is NaN */
      memset(at(k, s->query, r * row), 0, (size_t)row * size);
      memset(at(k, s->grad_out, r * row), 0, (size_t)row * size);
      continue;
    }
    dfgnn__cpu_edge_load_row(k->w, at(k, s->query, r * row), &side->job.query,
                             first + r);
    dfgnn__cpu_edge_load_row(k->w, at(k, s->grad_out, r * row),
                             &side->product.query, first + r);
  }
  side->job.kernels->multiply(s->query, rows * row, side->job.scale);
  if (k->e->keys)
    project(k, s->by_query, s->shift[0], s->query, rows);
  if (k->e->values)
    project(k, s->by_out, s->shift[1], s->grad_out, rows);
  memset(s->keys, 0, (size_t)(rows * k->heads * k->features) * size);
  memset(s->values, 0, (size_t)(rows * k->heads * k->features) * size);
  for (int i = 0; i < 2; i++)
    memset(s->totals[i], 0, (size_t)(rows * k->heads) * size);
  memset(s->sums, 0, (size_t)(rows * k->heads) * side->job.sum_bytes);
}

/* ---- the edges of a row -------------------------------------------------- */

/* to [heads, edges] += products of rows of x with e, and shifts. */
static void add_products(const walk *k, char *to, char *by, char *x,
                         char *shift, int64_t r, const void *attr,
                         int64_t count) {
  int64_t row = r * k->heads;
  dfgnn_cpu_matrices m = {.to = to,
                          .a = at(k, by, row * k->features),
                          .b = attr,
                          .rows = k->heads,
                          .inner = k->features,
                          .columns = count,
                          .to_row = k->edges,
                          .a_row = k->features,
                          .b_row = k->e->width,
                          .add = 1};
  if (k->e->weight) {
    k->loops->products(&m);
  } else {
    m.rows = 1;
    for (int64_t h = 0; h < k->heads; h++) {
      m.to = at(k, to, h * k->edges);
      m.a = at(k, x, (row + h) * k->dim);
      m.b = at(k, (void *)attr, h * k->dim);
      k->loops->products(&m);
    }
  }
  for (int64_t h = 0; k->e->bias && h < k->heads; h++)
    for (int64_t i = 0; i < count; i++)
      if (k->e->scalar_size == sizeof(double))
        ((double *)to)[h * k->edges + i] += ((double *)shift)[row + h];
      else
        ((float *)to)[h * k->edges + i] += ((float *)shift)[row + h];
}

/* to [heads, features] += terms [heads, edges] times e; total += their sums. */
static void add_features(const walk *k, char *to, char *total, char *terms,
                         int64_t r, const void *attr, int64_t count) {
  int64_t row = r * k->heads;
  const dfgnn_cpu_matrices m = {.to = at(k, to, row * k->features),
                                .a = terms,
                                .b = attr,
                                .rows = k->heads,
                                .inner = count,
                                .columns = k->features,
                                .to_row = k->features,
                                .a_row = k->edges,
                                .a_inner = 1,
                                .b_row = k->e->width,
                                .add = 1};
  k->loops->multiply(&m);
  int totals = k->e->bias || k->sums.bias;
  for (int64_t h = 0; totals && h < k->heads; h++)
    for (int64_t i = 0; i < count; i++)
      if (k->e->scalar_size == sizeof(double))
        ((double *)total)[row + h] += ((double *)terms)[h * k->edges + i];
      else
        ((float *)total)[row + h] += ((float *)terms)[h * k->edges + i];
}

/* grad_attr [count, width] = terms [heads, edges] times rows of `by`, or of x
 * if e is projected; add: += */
static void spread(const walk *k, char *terms, char *by, char *x, int64_t r,
                   int64_t count, int add) {
  int64_t row = r * k->heads;
  dfgnn_cpu_matrices m = {.to = k->s.grad_attr,
                          .a = terms,
                          .b = at(k, by, row * k->features),
                          .rows = count,
                          .inner = k->heads,
                          .columns = k->features,
                          .to_row = k->e->width,
                          .a_row = 1,
                          .a_inner = k->edges,
                          .b_row = k->features,
                          .add = add};
  if (k->e->weight) {
    k->loops->multiply(&m);
    return;
  }
  m.inner = 1;
  for (int64_t h = 0; h < k->heads; h++) {
    m.to = at(k, k->s.grad_attr, h * k->dim);
    m.a = at(k, terms, h * k->edges);
    m.b = at(k, x, (row + h) * k->dim);
    k->loops->multiply(&m);
  }
}

static void store_features(const walk *k, int64_t begin, int64_t count) {
  char *to = k->w->args->grad_edge_attr;
  k->loops->store(to + (size_t)(begin * k->e->width) * k->e->element_size,
                  (int64_t)k->e->element_size, k->s.grad_attr,
                  count * k->e->width);
}

static void write_features(const walk *k, char *weights, char *gradients,
                           int64_t r, int64_t begin, int64_t count) {
  const scratch *s = &k->s;
  if (!k->w->args->grad_edge_attr || !k->e->width)
    return;
  if (k->e->keys)
    spread(k, gradients, s->by_query, s->query, r, count, 0);
  if (k->e->values)
    spread(k, weights, s->by_out, s->grad_out, r, count, k->e->keys);
  store_features(k, begin, count);
}

/* Walks a row of few edges in one call; returns 0 if it cannot be served so. */
static int walk_short(const walk *k, int64_t row, int64_t r, int64_t begin,
                      int64_t end) {
  const dfgnn_cpu_side *side = &k->w->nodes.rows;
  const dfgnn_cpu_job *job = &side->job;
  const scratch *s = &k->s;
  const int64_t at_row = r * k->heads, count = end - begin;
  if (!k->shorts || count > DFGNN_CPU_SHORT)
    return 0;
  dfgnn_cpu_short x = {
      .heads = k->heads,
      .dim = k->dim,
      .features = k->features,
      .count = count,
      .indices = job->indices + begin,
      .far = {job->key.base, side->product.key.base},
      .node = {job->key.node, side->product.key.node},
      .own = {at(k, s->query, at_row * k->dim),
              at(k, s->grad_out, at_row * k->dim)},
      .attr = dfgnn__cpu_edges_load(k->e, begin, count, s->attr),
      .sums = side->wants_scores ? sum_of(k, r, 0) : NULL,
      .sum_row = (int64_t)(job->sum_bytes / job->scalar_size),
      .ends = at(k, (void *)job->ends, 2 * row * k->heads),
      .weights = dfgnn__cpu_edge_weights(k->w, 0, begin),
      .gradients = dfgnn__cpu_edge_gradients(k->w, 0, begin),
      .stride = k->edges,
      .grad_attr = k->w->args->grad_edge_attr ? s->grad_attr : NULL};
  const int uses[] = {k->e->keys, k->e->values};
  const int sums[] = {k->e->keys,
                      k->e->values && dfgnn__cpu_edge_sums_wanted(&k->sums)};
  for (int i = 0; i < 2; i++) {
    if (uses[i]) {
      x.by[i] = at(k, i ? s->by_out : s->by_query, at_row * k->features);
      x.shift[i] = k->e->bias ? at(k, s->shift[i], at_row) : NULL;
    }
    if (sums[i]) {
      x.sums_of_attr[i] = at(k, i ? s->values : s->keys, at_row * k->features);
      if (k->e->bias || k->sums.bias)
        x.totals[i] = at(k, s->totals[i], at_row);
    }
  }
  if (!k->loops->grade_short(&x))
    return 0;
  if (x.grad_attr)
    store_features(k, begin, count);
  return 1;
}

static void walk_chunk(const walk *k, int64_t row, int64_t r, int64_t begin,
                       int64_t end) {
  const dfgnn_cpu_side *side = &k->w->nodes.rows;
  const dfgnn_cpu_kernels *kernels = side->job.kernels;
  const scratch *s = &k->s;
  int64_t count = end - begin;
  char *weights = dfgnn__cpu_edge_weights(k->w, 0, begin);
  char *gradients = dfgnn__cpu_edge_gradients(k->w, 0, begin);
  const void *attr =
      k->e->width ? dfgnn__cpu_edges_load(k->e, begin, count, s->attr) : NULL;
  for (int64_t h = 0; h < k->heads; h++) {
    kernels->score[0][DFGNN_OP_GT](&side->job, row, h, begin, end,
                                   at(k, weights, h * k->edges));
    kernels->score[0][DFGNN_OP_GT](&side->product, row, h, begin, end,
                                   at(k, gradients, h * k->edges));
  }
  if (k->e->keys)
    add_products(k, weights, s->by_query, s->query, s->shift[0], r, attr,
                 count);
  if (k->e->values)
    add_products(k, gradients, s->by_out, s->grad_out, s->shift[1], r, attr,
                 count);
  dfgnn__cpu_edge_terms(k->w, row, begin, end);
  for (int64_t h = 0; side->wants_scores && h < k->heads; h++)
    kernels->accumulate(&side->scores, h, begin, end,
                        at(k, gradients, h * k->edges), sum_of(k, r, h), 1, -1,
                        1);
  if (k->e->keys && k->e->weight)
    add_features(k, s->keys, s->totals[0], gradients, r, attr, count);
  if (k->e->values && dfgnn__cpu_edge_sums_wanted(&k->sums))
    add_features(k, s->values, s->totals[1], weights, r, attr, count);
  if (k->e->keys && !k->e->weight && side->wants_scores)
    for (int64_t h = 0; h < k->heads; h++) {
      const dfgnn_cpu_matrices m = {.to = sum_of(k, r, h),
                                    .a = at(k, gradients, h * k->edges),
                                    .b = at(k, (void *)attr, h * k->dim),
                                    .rows = 1,
                                    .inner = count,
                                    .columns = k->dim,
                                    .a_inner = 1,
                                    .b_row = k->e->width,
                                    .add = 1};
      k->loops->multiply(&m);
    }
  write_features(k, weights, gradients, r, begin, count);
}

/* ---- a block, after its edges -------------------------------------------- */

/* Adds W (sum of dS e) + b (sum of dS) to the sums of grad_query. */
static void finish_sums(const walk *k, int64_t rows) {
  int64_t sum = (int64_t)(k->w->nodes.rows.job.sum_bytes / k->e->scalar_size);
  for (int64_t h = 0; h < k->heads; h++) {
    dfgnn_cpu_matrices m = {.to = sum_of(k, 0, h),
                            .a = at(k, k->s.keys, h * k->features),
                            .b = at(k, k->e->transposed, h * k->dim),
                            .rows = rows,
                            .inner = k->features,
                            .columns = k->dim,
                            .to_row = k->heads * sum,
                            .a_row = k->heads * k->features,
                            .a_inner = 1,
                            .b_row = k->heads * k->dim,
                            .add = 1};
    k->loops->multiply(&m);
    if (!k->e->bias)
      continue;
    m.a = at(k, k->s.totals[0], h);
    m.b = at(k, k->e->bias, h * k->dim);
    m.inner = 1;
    m.a_row = k->heads;
    k->loops->multiply(&m);
  }
}

/* Adds x^T (sums of e) to the gradient of W, and x^T totals to that of b. */
static void add_parameters(const walk *k, char *x, char *features, char *totals,
                           int64_t rows) {
  for (int64_t h = 0; h < k->heads; h++) {
    dfgnn_cpu_matrices m = {.a = at(k, x, h * k->dim),
                            .b = at(k, features, h * k->features),
                            .rows = k->dim,
                            .inner = rows,
                            .columns = k->features,
                            .to_row = k->features,
                            .a_row = 1,
                            .a_inner = k->heads * k->dim,
                            .b_row = k->heads * k->features,
                            .add = 1};
    if (k->sums.weight) {
      m.to = at(k, k->sums.weight, h * k->dim * k->features);
      k->loops->multiply(&m);
    }
    if (k->sums.bias) {
      m.to = at(k, k->sums.bias, h * k->dim);
      m.b = at(k, totals, h);
      m.columns = m.to_row = 1;
      m.b_row = k->heads;
      k->loops->multiply(&m);
    }
  }
}

static void write_query(const walk *k, int64_t row, int64_t r) {
  const dfgnn_cpu_side *side = &k->w->nodes.rows;
  const dfgnn_problem *p = k->w->problem;
  const dfgnn_args *args = k->w->args;
  const dfgnn_cpu_tensor x =
      dfgnn__cpu_tensor_of(p, args->query, &args->query_strides);
  for (int64_t h = 0; h < k->heads; h++) {
    char *sum = sum_of(k, r, h);
    if (!has_edges(side, row)) /* W times 0 may be NaN */
      memset(sum, 0, side->job.sum_bytes);
    if (p->qk_norm) {
      side->job.kernels->multiply(sum, k->dim, side->job.scale);
      k->loops->denormalize(sum, x.base + row * x.node + h * x.head, x.feature,
                            args->query_norm, k->dim,
                            p->qk_norm == DFGNN_QK_NORM_LAYER, args->norm_eps,
                            k->sums.norm);
      if (args->grad_query)
        side->job.kernels->store(&side->scores, row, h, sum, 1);
    } else if (side->wants_scores) {
      side->job.kernels->store(&side->scores, row, h, sum, side->job.scale);
    }
  }
}

void dfgnn__cpu_edge_rows_gt(const dfgnn_cpu_edge_backward *w, char *memory,
                             int64_t begin, int64_t end,
                             const dfgnn_cpu_edge_sums *sums) {
  const dfgnn_cpu_side *side = &w->nodes.rows;
  const dfgnn_cpu_job *job = &side->job;
  walk k = {.w = w,
            .e = &w->edges,
            .loops = w->edges.loops,
            .heads = job->heads,
            .dim = job->dim,
            .features = w->edges.features,
            .edges = job->edges,
            .shorts = !side->grad_bias &&
                      dfgnn__cpu_edges_short(&w->edges, job, &job->key,
                                             &side->product.key),
            .sums = *sums,
            .s = scratch_in(memory, w->problem, job->sum_bytes)};
  for (int64_t first = begin; first < end; first += ROWS) {
    int64_t rows = end - first < ROWS ? end - first : ROWS;
    begin_block(&k, first, rows);
    for (int64_t r = 0; r < rows; r++) {
      int64_t e = dfgnn__cpu_offset(job, first + r);
      int64_t last = dfgnn__cpu_offset(job, first + r + 1);
      if (e < last && walk_short(&k, first + r, r, e, last))
        continue;
      for (int64_t next; e < last; e = next) {
        next = last - e < DFGNN_CPU_EDGES ? last : e + DFGNN_CPU_EDGES;
        walk_chunk(&k, first + r, r, e, next);
      }
    }
    if (k.e->weight && k.e->keys) {
      finish_sums(&k, rows);
      add_parameters(&k, k.s.query, k.s.keys, k.s.totals[0], rows);
    }
    if (k.e->weight && k.e->values)
      add_parameters(&k, k.s.grad_out, k.s.values, k.s.totals[1], rows);
    for (int64_t r = 0; r < rows; r++)
      write_query(&k, first + r, r);
  }
}
