/* edge_attend.c - rows of forward attention with edge features, for a type of
 * scalars: W multiplies the queries of a block of rows before their edges are
 * walked, and their sums of edge features after; GATv2's W multiplies chunks of
 * edges */
#include "kernels/attention/cpu/edge_walk.h"

enum { ROWS = 16 }; /* of a block */

typedef dfgnn_cpu_edge_forward forward;

/* The memory of a thread. */
typedef struct scratch {
  dfgnn_cpu_softmax *states; /* [heads] */
  double *after;             /* [ROWS, heads] the factors of sums */
  scalar *query;             /* [ROWS, heads, dim] scaled */
  scalar *projected;         /* [ROWS, heads, features] W^T query */
  scalar *shift;             /* [ROWS, heads] <query, b> */
  scalar *weights;           /* [ROWS, heads] sums of weights, factors of b */
  scalar *features;          /* [ROWS, heads, features] sums of e */
  scalar *sums;              /* [ROWS, heads] of values, sum_row apart */
  scalar *scores;            /* [heads, STRIDE] */
  scalar *attr;              /* [EDGES, width] */
  scalar *arguments;         /* [EDGES, heads dim] GATv2 */
  scalar *source;            /* [heads dim] GATv2 */
  const scalar *attr_at;     /* features of the edges window .. beyond - 1 */
  int64_t window, beyond;
  int64_t last; /* the edge where the thread's rows end */
  int64_t sum_row;
} scratch;

static scratch scratch_in(room *m, const dfgnn_problem *p, size_t sum_bytes) {
  size_t heads = (size_t)p->heads, dim = (size_t)p->dim;
  size_t features = features_of(p), gatv2 = p->op == DFGNN_OP_GATV2;
  return (scratch){.states = place(m, heads * sizeof(dfgnn_cpu_softmax)),
                   .after = place(m, ROWS * heads * sizeof(double)),
                   .query = place_scalars(m, ROWS * heads * dim),
                   .projected = place_scalars(m, ROWS * heads * features),
                   .shift = place_scalars(m, ROWS * heads),
                   .weights = place_scalars(m, ROWS * heads),
                   .features = place_scalars(m, ROWS * heads * features),
                   .sums = place(m, ROWS * heads * sum_bytes),
                   .scores = place_scalars(m, heads * STRIDE),
                   .attr = place_scalars(m, DFGNN_CPU_EDGES * width_of(p)),
                   .arguments =
                       place_scalars(m, gatv2 * DFGNN_CPU_EDGES * heads * dim),
                   .source = place_scalars(m, heads * dim),
                   .sum_row = (int64_t)(sum_bytes / sizeof(scalar))};
}

static size_t bytes(const dfgnn_setting *setting) {
  room m = {NULL, 0};
  scratch_in(&m, setting->problem, dfgnn__cpu_sum_bytes(setting));
  return m.end;
}

/* ---- a block of rows ----------------------------------------------------- */

static scalar *sum_of(const forward *w, const scratch *s, int64_t row,
                      int64_t head) {
  return s->sums + (row * w->job.heads + head) * s->sum_row;
}

/* Loads queries as scalars.  GT: scales them, and computes W^T query and
 * <query, b>; GATv2: adds b. */
static void begin_block(const forward *w, const scratch *s, int64_t first,
                        int64_t rows) {
  const dfgnn_cpu_job *job = &w->job;
  const dfgnn_cpu_edges *e = &w->edges;
  int64_t heads = job->heads, dim = job->dim, row = heads * dim;
  int gt = job->op == DFGNN_OP_GT;
  if (gt && !e->keys)
    return;
  for (int64_t r = 0; r < rows; r++)
    load_row(&w->edges, &w->job, s->query + r * row, &job->query, first + r);
  if (!gt) {
    for (int64_t r = 0; r < rows && e->bias; r++)
      job->kernels->combine(s->query + r * row, 1, e->bias, 1, row);
    return;
  }
  job->kernels->multiply(s->query, rows * row, job->scale);
  for (int64_t h = 0; h < heads && e->weight; h++) {
    dfgnn_cpu_matrices m = {.to = s->projected + h * e->features,
                            .a = s->query + h * dim,
                            .b = (const scalar *)e->weight +
                                 h * dim * e->features,
                            .rows = rows,
                            .inner = dim,
                            .columns = e->features,
                            .to_row = heads * e->features,
                            .a_row = row,
                            .a_inner = 1,
                            .b_row = e->features};
    e->loops->multiply(&m);
    if (!e->bias)
      continue;
    m.to = s->shift + h;
    m.b = (const scalar *)e->bias + h * dim;
    m.columns = m.b_row = 1;
    m.to_row = heads;
    e->loops->multiply(&m);
  }
}

/* sums += W (sums of edge features) + b (sum of weights), and to out */
static void finish_block(const forward *w, const scratch *s, int64_t first,
                         int64_t rows) {
  const dfgnn_cpu_job *job = &w->job;
  const dfgnn_cpu_edges *e = &w->edges;
  int64_t heads = job->heads, dim = job->dim;
  int projects = job->op == DFGNN_OP_GT && e->values && e->weight;
  for (int64_t h = 0; h < heads && projects; h++) {
    dfgnn_cpu_matrices m = {.to = sum_of(w, s, 0, h),
                            .a = s->features + h * e->features,
                            .b = (const scalar *)e->transposed + h * dim,
                            .rows = rows,
                            .inner = e->features,
                            .columns = dim,
                            .to_row = heads * s->sum_row,
                            .a_row = heads * e->features,
                            .a_inner = 1,
                            .b_row = heads * dim,
                            .add = 1};
    e->loops->multiply(&m);
    if (!e->bias)
      continue;
    m.a = s->weights + h;
    m.b = (const scalar *)e->bias + h * dim;
    m.inner = 1;
    m.a_row = heads;
    e->loops->multiply(&m);
  }
  for (int64_t r = 0; r < rows; r++)
    for (int64_t h = 0; h < heads; h++)
      if (s->after[r * heads + h] != 0)
        job->kernels->store(job, first + r, h, sum_of(w, s, r, h),
                            s->after[r * heads + h]);
}

/* ---- scores -------------------------------------------------------------- */

/* scores += <W^T q, e> + <q, b>, all heads */
static void add_edges(const forward *w, const scratch *s, int64_t r,
                      const scalar *attr, int64_t count) {
  const dfgnn_cpu_edges *e = &w->edges;
  int64_t heads = w->job.heads, dim = w->job.dim;
  const scalar *query = e->weight ? s->projected : s->query;
  dfgnn_cpu_matrices m = {.to = s->scores,
                          .a = query + r * heads * e->features,
                          .b = attr,
                          .rows = heads,
                          .inner = e->features,
                          .columns = count,
                          .to_row = STRIDE,
                          .a_row = e->features,
                          .b_row = e->width,
                          .add = 1};
  if (e->weight) {
    e->loops->products(&m);
    return;
  }
  m.rows = 1;
  for (int64_t h = 0; h < heads; h++) {
    m.to = s->scores + h * STRIDE;
    m.a = s->query + (r * heads + h) * dim;
    m.b = attr + h * dim;
    e->loops->products(&m);
  }
}

static void add_shift(const forward *w, const scratch *s, int64_t r,
                      int64_t count) {
  int64_t heads = w->job.heads;
  for (int64_t h = 0; h < heads; h++)
    for (int64_t k = 0; k < count; k++)
      s->scores[h * STRIDE + k] += s->shift[r * heads + h];
}

static void score_gt(const forward *w, const scratch *s, int64_t row, int64_t r,
                     int64_t begin, int64_t end, const scalar *attr) {
  const dfgnn_cpu_job *job = &w->job;
  for (int64_t h = 0; h < job->heads; h++)
    job->kernels->score[0][DFGNN_OP_GT](job, row, h, begin, end,
                                        s->scores + h * STRIDE);
  if (w->edges.keys)
    add_edges(w, s, r, attr, end - begin);
  if (w->edges.keys && w->edges.bias)
    add_shift(w, s, r, end - begin);
}

/* Loads the features of the edges from e on, of several rows if these are
 * short, and projects those of GATv2. */
static void open_window(const forward *w, scratch *s, int64_t e) {
  const dfgnn_cpu_edges *edges = &w->edges;
  int64_t left = s->last - e, row = w->job.heads * w->job.dim;
  s->window = e;
  s->beyond = e + (left < DFGNN_CPU_EDGES ? left : DFGNN_CPU_EDGES);
  if (!edges->width)
    return;
  s->attr_at = dfgnn__cpu_edges_load(edges, e, s->beyond - e, s->attr);
  const dfgnn_cpu_matrices m = {.to = s->arguments,
                                .a = s->attr_at,
                                .b = edges->transposed,
                                .rows = s->beyond - e,
                                .inner = edges->features,
                                .columns = row,
                                .to_row = row,
                                .a_row = edges->width,
                                .a_inner = 1,
                                .b_row = row};
  if (w->job.op == DFGNN_OP_GATV2 && edges->weight)
    edges->loops->multiply(&m);
}

static void score_gatv2(const forward *w, const scratch *s, int64_t r,
                        int64_t begin, int64_t end) {
  const dfgnn_cpu_job *job = &w->job;
  const dfgnn_cpu_edges *e = &w->edges;
  int64_t heads = job->heads, row = heads * job->dim;
  for (int64_t k = 0; k < end - begin; k++) {
    int64_t at = (begin + k - s->window) * row;
    const scalar *bias = (const scalar *)job->bias + (begin + k) * heads;
    scalar *z = s->arguments + at;
    load_row(e, job, s->source, &job->value, job->indices[begin + k]);
    e->loops->add(z, s->query + r * row, s->source,
                  e->weight ? z : s->attr_at + at, row);
    e->loops->scores(s->scores + k, STRIDE, z, e->att, heads, job->dim,
                     job->slope);
    for (int64_t h = 0; job->bias && h < heads; h++)
      s->scores[h * STRIDE + k] += bias[h];
  }
}

/* ---- a row --------------------------------------------------------------- */

static void add_weights(const forward *w, const scratch *s, int64_t r,
                        int64_t head, int64_t count, double before) {
  const scalar *p = s->scores + head * STRIDE;
  scalar *to = s->weights + r * w->job.heads + head;
  double sum = 0;
  for (int64_t k = 0; k < count; k++)
    sum += (double)p[k];
  *to = (scalar)(before < 0 ? sum : before * (double)*to + sum);
}

/* Are `count` numbers of edges finite? */
static int finite_numbers(const scalar *attr, int64_t count) {
  scalar spoilt = 0;
  for (int64_t i = 0; i < count; i++)
    spoilt += 0 * attr[i];
  return spoilt == 0;
}

/* Computes the product m without the edges whose weight is 0: 0 times an
 * infinite feature would be NaN. */
static void multiply_kept(const dfgnn_cpu_edges *e, dfgnn_cpu_matrices m) {
  const int64_t count = m.inner;
  const scalar *a = m.a, *b = m.b;
  if (!m.add)
    clear(m.to, m.columns);
  m.add = m.inner = 1;
  for (int64_t k = 0; k < count; k++) {
    m.a = a + k;
    m.b = b + k * m.b_row;
    if (a[k] != 0)
      e->loops->multiply(&m);
  }
}

/* Sums the edge features of one head by weights. */
static void sum_features(const forward *w, const scratch *s, int64_t r,
                         int64_t head, int64_t count, double before,
                         const scalar *attr) {
  const dfgnn_cpu_edges *e = &w->edges;
  int64_t heads = w->job.heads, at = (r * heads + head) * e->features;
  dfgnn_cpu_matrices m = {.to = s->features + at,
                          .a = s->scores + head * STRIDE,
                          .b = attr,
                          .rows = 1,
                          .inner = count,
                          .columns = e->features,
                          .a_inner = 1,
                          .b_row = e->width,
                          .add = before >= 0};
  if (!e->weight) { /* projected features are added to values */
    m.to = sum_of(w, s, r, head);
    m.b = attr + head * e->features;
    m.add = 1;
  } else if (before >= 0 && before != 1) {
    w->job.kernels->multiply(m.to, e->features, before);
  }
  if (w->problem->dropout && !finite_numbers(attr, count * e->width))
    multiply_kept(e, m);
  else
    e->loops->multiply(&m);
}

/* Computes the states and sums of a row of few edges in one call; returns 0 if
 * the row cannot be served so. */
static int attend_short(const forward *w, scratch *s, int64_t r, int64_t first,
                        int64_t last) {
  const dfgnn_cpu_job *job = &w->job;
  const dfgnn_cpu_edges *e = &w->edges;
  int64_t heads = job->heads, at = r * heads;
  if (!w->shorts || last - first > DFGNN_CPU_SHORT || first == last)
    return 0;
  if (last > s->beyond)
    open_window(w, s, first);
  dfgnn_cpu_short row = {.heads = heads,
                         .dim = job->dim,
                         .features = e->features,
                         .count = last - first,
                         .indices = job->indices + first,
                         .far = {job->key.base, job->value.base},
                         .node = {job->key.node, job->value.node},
                         .own = {s->query + at * job->dim},
                         .attr = s->attr_at + (first - s->window) * e->width,
                         .sums = sum_of(w, s, r, 0),
                         .sum_row = s->sum_row,
                         .states = s->states};
  if (e->keys) {
    row.by[0] = s->projected + at * e->features;
    row.shift[0] = e->bias ? s->shift + at : NULL;
  }
  if (e->values) {
    row.sums_of_attr[1] = s->features + at * e->features;
    row.totals[1] = e->bias ? s->weights + at : NULL;
  }
  return e->loops->attend_short(&row);
}

static void finish_row(const forward *w, const scratch *s, int64_t row,
                       int64_t r) {
  const dfgnn_cpu_job *job = &w->job;
  for (int64_t h = 0; h < job->heads; h++)
    s->after[r * job->heads + h] =
        dfgnn__cpu_finish(job, row, h, &s->states[h]);
}

static void attend(const forward *w, scratch *s, int64_t row, int64_t r) {
  const dfgnn_cpu_job *job = &w->job;
  int64_t first = dfgnn__cpu_offset(job, row), heads = job->heads;
  int64_t last = dfgnn__cpu_offset(job, row + 1);
  int gt = job->op == DFGNN_OP_GT, values = gt && w->edges.values;
  if (attend_short(w, s, r, first, last)) {
    finish_row(w, s, row, r);
    return;
  }
  for (int64_t h = 0; h < heads; h++)
    s->states[h] = (dfgnn_cpu_softmax)DFGNN_CPU_SOFTMAX_INIT;
  for (int64_t begin = first, end; begin < last; begin = end) {
    if (begin >= s->beyond)
      open_window(w, s, begin);
    end = last < s->beyond ? last : s->beyond;
    int64_t count = end - begin;
    const scalar *attr = w->edges.width
                             ? s->attr_at + (begin - s->window) * w->edges.width
                             : NULL;
    if (gt)
      score_gt(w, s, row, r, begin, end, attr);
    else
      score_gatv2(w, s, r, begin, end);
    for (int64_t h = 0; h < heads; h++) {
      scalar *scores = s->scores + h * STRIDE;
      dfgnn__cpu_keep(job, h, begin, count, scores);
      double before = job->kernels->weigh(scores, count, &s->states[h]);
      dfgnn__cpu_drop(job, h, begin, count, scores);
      before = begin == first ? -1 : before;
      job->kernels->accumulate(job, h, begin, end, scores, sum_of(w, s, r, h),
                               before, -1, 1);
      if (values)
        sum_features(w, s, r, h, count, before, attr);
      if (values && w->edges.bias)
        add_weights(w, s, r, h, count, before);
    }
  }
  finish_row(w, s, row, r);
  for (int64_t h = 0; job->weights && h < heads; h++)
    dfgnn__cpu_normalize(job, h, first, last, &s->states[h]);
}

/* Clears the sums of a row without edges, which finish_block reads as well. */
static void clear_row(const forward *w, const scratch *s, int64_t row,
                      int64_t r) {
  int64_t heads = w->job.heads, features = w->edges.features;
  if (has_edges(&w->job, row))
    return;
  clear(sum_of(w, s, r, 0), heads * s->sum_row);
  clear(s->features + r * heads * features, heads * features);
  clear(s->weights + r * heads, heads);
}

static void rows(const dfgnn_cpu_job *job, void *data, char *memory,
                 int64_t begin, int64_t end) {
  const forward *w = data;
  room m = {memory, 0};
  scratch s = scratch_in(&m, w->problem, job->sum_bytes);
  s.last = dfgnn__cpu_offset(job, end);
  for (int64_t row = begin; row < end; row += ROWS) {
    int64_t count = end - row < ROWS ? end - row : ROWS;
    begin_block(w, &s, row, count);
    for (int64_t r = 0; r < count; r++) {
      clear_row(w, &s, row + r, r);
      attend(w, &s, row + r, r);
    }
    finish_block(w, &s, row, count);
  }
}

const dfgnn_cpu_edge_walk CPU_TABLE_OF(dfgnn__cpu_edge_attend) = {
    .bytes = bytes, .rows = rows};
