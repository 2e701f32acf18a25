/* edge_rows_gt.c - the rows of GT's gradients with edge features, for a type of
 * scalars
 *
 * W^T q and W^T dO are computed for a block of rows.  With them, scores and
 * <dO, v + W e> are products with e, and de is a sum of them by dS and P r.
 * The gradients of q and W follow from each row's sums of dS e and of P r e. */
#include "kernels/attention/cpu/edge_walk.h"

enum { ROWS = 16 }; /* of a block */

typedef struct scratch {
  scalar *query, *grad_out;  /* [ROWS, heads, dim]; query scaled */
  scalar *by_query, *by_out; /* [ROWS, heads, features] W^T query, grad_out */
  scalar *shift[2];          /* [ROWS, heads] <query, b>, <grad_out, b> */
  scalar *keys, *values;     /* [ROWS, heads, features] sums of e */
  scalar *totals[2];         /* [ROWS, heads] of dS, of P r */
  scalar *sums;              /* [ROWS, heads] of grad_query, sum_row apart */
  scalar *attr, *grad_attr;  /* [EDGES, width] */
  int64_t sum_row;
} scratch;

static scratch scratch_in(room *m, const dfgnn_problem *p, size_t sum_bytes) {
  size_t rows = ROWS * (size_t)p->heads, dim = (size_t)p->dim;
  size_t features = features_of(p), width = width_of(p);
  return (scratch){.query = place_scalars(m, rows * dim),
                   .grad_out = place_scalars(m, rows * dim),
                   .by_query = place_scalars(m, rows * features),
                   .by_out = place_scalars(m, rows * features),
                   .shift = {place_scalars(m, rows), place_scalars(m, rows)},
                   .keys = place_scalars(m, rows * features),
                   .values = place_scalars(m, rows * features),
                   .totals = {place_scalars(m, rows), place_scalars(m, rows)},
                   .sums = place(m, rows * sum_bytes),
                   .attr = place_scalars(m, DFGNN_CPU_EDGES * width),
                   .grad_attr = place_scalars(m, DFGNN_CPU_EDGES * width),
                   .sum_row = (int64_t)(sum_bytes / sizeof(scalar))};
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
  const scalar *weight, *transposed, *bias; /* W, its transpose, b or NULL */
  int64_t heads, dim, features, edges;
  int shorts; /* may a row of few edges take one call? */
  dfgnn_cpu_edge_sums sums;
  scratch s;
} walk;

static scalar *sum_of(const walk *k, int64_t r, int64_t head) {
  return k->s.sums + (r * k->heads + head) * k->s.sum_row;
}

/* ---- a block, before its edges ------------------------------------------- */

/* to = W^T x, and shift = <x, b>, for the heads of a block of rows. */
static void project(const walk *k, scalar *to, scalar *shift, const scalar *x,
                    int64_t rows) {
  for (int64_t h = 0; h < k->heads && k->e->weight; h++) {
    dfgnn_cpu_matrices m = {.to = to + h * k->features,
                            .a = x + h * k->dim,
                            .b = k->weight + h * k->dim * k->features,
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
    m.to = shift + h;
    m.b = k->bias + h * k->dim;
    m.columns = m.b_row = 1;
    m.to_row = k->heads;
    k->loops->multiply(&m);
  }
}

static void begin_block(const walk *k, int64_t first, int64_t rows) {
  const dfgnn_cpu_side *side = &k->w->nodes.rows;
  const scratch *s = &k->s;
  int64_t row = k->heads * k->dim;
  for (int64_t r = 0; r < rows; r++) {
    if (!has_edges(&side->job, first + r)) { /* 0 times an infinity is NaN */
      clear(s->query + r * row, row);
      clear(s->grad_out + r * row, row);
      continue;
    }
    load_row(k->e, &side->job, s->query + r * row, &side->job.query, first + r);
    load_row(k->e, &side->job, s->grad_out + r * row, &side->product.query,
             first + r);
  }
  side->job.kernels->multiply(s->query, rows * row, side->job.scale);
  if (k->e->keys)
    project(k, s->by_query, s->shift[0], s->query, rows);
  if (k->e->values)
    project(k, s->by_out, s->shift[1], s->grad_out, rows);
  clear(s->keys, rows * k->heads * k->features);
  clear(s->values, rows * k->heads * k->features);
  for (int i = 0; i < 2; i++)
    clear(s->totals[i], rows * k->heads);
  clear(s->sums, rows * k->heads * s->sum_row);
}

/* ---- the edges of a row -------------------------------------------------- */

/* to [heads, edges] += products of rows of x with e, and shifts. */
static void add_products(const walk *k, scalar *to, const scalar *by,
                         const scalar *x, const scalar *shift, int64_t r,
                         const scalar *attr, int64_t count) {
  int64_t row = r * k->heads;
  dfgnn_cpu_matrices m = {.to = to,
                          .a = by + row * k->features,
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
      m.to = to + h * k->edges;
      m.a = x + (row + h) * k->dim;
      m.b = attr + h * k->dim;
      k->loops->products(&m);
    }
  }
  for (int64_t h = 0; k->e->bias && h < k->heads; h++)
    for (int64_t i = 0; i < count; i++)
      to[h * k->edges + i] += shift[row + h];
}

/* to [heads, features] += terms [heads, edges] times e; total += their sums. */
static void add_features(const walk *k, scalar *to, scalar *total,
                         const scalar *terms, int64_t r, const scalar *attr,
                         int64_t count) {
  int64_t row = r * k->heads;
  const dfgnn_cpu_matrices m = {.to = to + row * k->features,
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
      total[row + h] += terms[h * k->edges + i];
}

/* grad_attr [count, width] = terms [heads, edges] times rows of `by`, or of x
 * if e is projected; add: += */
static void spread(const walk *k, const scalar *terms, const scalar *by,
                   const scalar *x, int64_t r, int64_t count, int add) {
  int64_t row = r * k->heads;
  dfgnn_cpu_matrices m = {.to = k->s.grad_attr,
                          .a = terms,
                          .b = by + row * k->features,
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
    m.to = k->s.grad_attr + h * k->dim;
    m.a = terms + h * k->edges;
    m.b = x + (row + h) * k->dim;
    k->loops->multiply(&m);
  }
}

static void write_features(const walk *k, const scalar *weights,
                           const scalar *gradients, int64_t r, int64_t begin,
                           int64_t count) {
  const scratch *s = &k->s;
  if (!k->e->grad_attr || !k->e->width)
    return;
  if (k->e->keys)
    spread(k, gradients, s->by_query, s->query, r, count, 0);
  if (k->e->values)
    spread(k, weights, s->by_out, s->grad_out, r, count, k->e->keys);
  dfgnn__cpu_edges_store(k->e, begin, count, s->grad_attr);
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
      .own = {s->query + at_row * k->dim, s->grad_out + at_row * k->dim},
      .attr = dfgnn__cpu_edges_load(k->e, begin, count, s->attr),
      .sums = side->wants_scores ? sum_of(k, r, 0) : NULL,
      .sum_row = s->sum_row,
      .ends = (const scalar *)job->ends + 2 * row * k->heads,
      .weights = weights_at(side, 0, begin),
      .gradients = gradients_at(side, 0, begin),
      .stride = k->edges,
      .grad_attr = k->e->grad_attr ? s->grad_attr : NULL};
  const int uses[] = {k->e->keys, k->e->values};
  const int sums[] = {k->e->keys,
                      k->e->values && dfgnn__cpu_edge_sums_wanted(&k->sums)};
  for (int i = 0; i < 2; i++) {
    if (uses[i]) {
      x.by[i] = (i ? s->by_out : s->by_query) + at_row * k->features;
      x.shift[i] = k->e->bias ? s->shift[i] + at_row : NULL;
    }
    if (sums[i]) {
      x.sums_of_attr[i] = (i ? s->values : s->keys) + at_row * k->features;
      if (k->e->bias || k->sums.bias)
        x.totals[i] = s->totals[i] + at_row;
    }
  }
  if (!k->loops->grade_short(&x))
    return 0;
  if (x.grad_attr)
    dfgnn__cpu_edges_store(k->e, begin, count, s->grad_attr);
  return 1;
}

static void walk_chunk(const walk *k, int64_t row, int64_t r, int64_t begin,
                       int64_t end) {
  const dfgnn_cpu_side *side = &k->w->nodes.rows;
  const dfgnn_cpu_kernels *kernels = side->job.kernels;
  const scratch *s = &k->s;
  int64_t count = end - begin;
  scalar *weights = weights_at(side, 0, begin);
  scalar *gradients = gradients_at(side, 0, begin);
  const scalar *attr =
      k->e->width ? dfgnn__cpu_edges_load(k->e, begin, count, s->attr) : NULL;
  for (int64_t h = 0; h < k->heads; h++) {
    kernels->score[0][DFGNN_OP_GT](&side->job, row, h, begin, end,
                                   weights + h * k->edges);
    kernels->score[0][DFGNN_OP_GT](&side->product, row, h, begin, end,
                                   gradients + h * k->edges);
  }
  if (k->e->keys)
    add_products(k, weights, s->by_query, s->query, s->shift[0], r, attr,
                 count);
  if (k->e->values)
    add_products(k, gradients, s->by_out, s->grad_out, s->shift[1], r, attr,
                 count);
  find_terms(side, row, begin, end);
  for (int64_t h = 0; side->wants_scores && h < k->heads; h++)
    kernels->accumulate(&side->scores, h, begin, end, gradients + h * k->edges,
                        sum_of(k, r, h), 1, -1, 1);
  if (k->e->keys && k->e->weight)
    add_features(k, s->keys, s->totals[0], gradients, r, attr, count);
  if (k->e->values && dfgnn__cpu_edge_sums_wanted(&k->sums))
    add_features(k, s->values, s->totals[1], weights, r, attr, count);
  if (k->e->keys && !k->e->weight && side->wants_scores)
    for (int64_t h = 0; h < k->heads; h++) {
      const dfgnn_cpu_matrices m = {.to = sum_of(k, r, h),
                                    .a = gradients + h * k->edges,
                                    .b = attr + h * k->dim,
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
  for (int64_t h = 0; h < k->heads; h++) {
    dfgnn_cpu_matrices m = {.to = sum_of(k, 0, h),
                            .a = k->s.keys + h * k->features,
                            .b = k->transposed + h * k->dim,
                            .rows = rows,
                            .inner = k->features,
                            .columns = k->dim,
                            .to_row = k->heads * k->s.sum_row,
                            .a_row = k->heads * k->features,
                            .a_inner = 1,
                            .b_row = k->heads * k->dim,
                            .add = 1};
    k->loops->multiply(&m);
    if (!k->e->bias)
      continue;
    m.a = k->s.totals[0] + h;
    m.b = k->bias + h * k->dim;
    m.inner = 1;
    m.a_row = k->heads;
    k->loops->multiply(&m);
  }
}

/* Adds x^T (sums of e) to the gradient of W, and x^T totals to that of b. */
static void add_parameters(const walk *k, const scalar *x,
                           const scalar *features, const scalar *totals,
                           int64_t rows) {
  for (int64_t h = 0; h < k->heads; h++) {
    dfgnn_cpu_matrices m = {.a = x + h * k->dim,
                            .b = features + h * k->features,
                            .rows = k->dim,
                            .inner = rows,
                            .columns = k->features,
                            .to_row = k->features,
                            .a_row = 1,
                            .a_inner = k->heads * k->dim,
                            .b_row = k->heads * k->features,
                            .add = 1};
    if (k->sums.weight) {
      m.to = (scalar *)k->sums.weight + h * k->dim * k->features;
      k->loops->multiply(&m);
    }
    if (k->sums.bias) {
      m.to = (scalar *)k->sums.bias + h * k->dim;
      m.b = totals + h;
      m.columns = m.to_row = 1;
      m.b_row = k->heads;
      k->loops->multiply(&m);
    }
  }
}

static void write_query(const walk *k, int64_t row, int64_t r) {
  const dfgnn_cpu_side *side = &k->w->nodes.rows;
  for (int64_t h = 0; h < k->heads; h++) {
    scalar *sum = sum_of(k, r, h);
    if (!has_edges(&side->job, row)) /* W times 0 may be NaN */
      clear(sum, k->s.sum_row);
    if (side->wants_scores)
      side->job.kernels->store(&side->scores, row, h, sum, side->job.scale);
  }
}

static void rows(const dfgnn_cpu_job *job, void *data, char *memory,
                 int64_t begin, int64_t end) {
  const dfgnn_cpu_edge_part *part = data;
  const dfgnn_cpu_edge_backward *w = part->w;
  const dfgnn_cpu_side *side = &w->nodes.rows;
  room m = {memory, 0};
  walk k = {.w = w,
            .e = &w->edges,
            .loops = w->edges.loops,
            .weight = w->edges.weight,
            .transposed = w->edges.transposed,
            .bias = w->edges.bias,
            .heads = job->heads,
            .dim = job->dim,
            .features = w->edges.features,
            .edges = job->edges,
            .shorts = !side->grad_bias &&
                      dfgnn__cpu_edges_short(&w->edges, job, &job->key,
                                             &side->product.key),
            .sums = part->sums,
            .s = scratch_in(&m, w->problem, job->sum_bytes)};
  for (int64_t first = begin; first < end; first += ROWS) {
    int64_t count = end - first < ROWS ? end - first : ROWS;
    begin_block(&k, first, count);
    for (int64_t r = 0; r < count; r++) {
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
      finish_sums(&k, count);
      add_parameters(&k, k.s.query, k.s.keys, k.s.totals[0], count);
    }
    if (k.e->weight && k.e->values)
      add_parameters(&k, k.s.grad_out, k.s.values, k.s.totals[1], count);
    for (int64_t r = 0; r < count; r++)
      write_query(&k, first + r, r);
  }
}

const dfgnn_cpu_edge_walk CPU_TABLE_OF(dfgnn__cpu_edge_rows_gt) = {
    .bytes = bytes, .rows = rows};
