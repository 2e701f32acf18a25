/* edge_forward.c - forward attention with edge features: W multiplies the
 * queries of a block of rows before their edges are walked, and their sums of
 * edge features after; GATv2's W multiplies chunks of edges */
#include "kernels/attention/cpu/edges.h"

enum { SIMD, SCHEDULE };
enum { ROWS = 16 }; /* of a block */

typedef struct forward {
  const dfgnn_problem *problem;
  dfgnn_cpu_edges edges;
  dfgnn_cpu_job job;
  int shorts; /* may a row of few edges take one call? */
} forward;

/* The memory of a thread; arrays are of scalars unless typed. */
typedef struct scratch {
  dfgnn_cpu_softmax *states; /* [heads] */
  double *after;             /* [ROWS, heads] the factors of sums */
  char *query;               /* [ROWS, heads, dim] scaled */
  char *projected;           /* [ROWS, heads, features] W^T query */
  char *shift;               /* [ROWS, heads] <query, b> */
  char *weights;             /* [ROWS, heads] sums of weights, factors of b */
  char *features;            /* [ROWS, heads, features] sums of e */
  char *sums;                /* [ROWS, heads] of values, sum_bytes apart */
  char *scores;              /* [heads, stride] */
  char *attr;                /* [EDGES, width] */
  char *arguments;           /* [EDGES, heads dim] GATv2 */
  char *source;              /* [heads dim] GATv2 */
  const void *attr_at;       /* features of the edges window .. beyond - 1 */
  int64_t window, beyond;
  int64_t last; /* the edge where the thread's rows end */
  size_t end;
} scratch;

/* The distance from the scores of a head to those of the next. */
#define STRIDE (DFGNN_CPU_EDGES + 16)

static char *place(scratch *s, char *memory, size_t bytes) {
  size_t at = s->end;
  s->end += dfgnn__cpu_aligned(bytes + DFGNN_CPU_PADDING);
  return memory + at;
}

static int64_t features_of(const dfgnn_problem *p) {
  return p->edge_dim < 0 ? p->dim : p->edge_dim;
}

static scratch scratch_in(char *memory, const dfgnn_problem *p,
                          size_t sum_bytes) {
  size_t size = dfgnn__cpu_scalar_size(p), heads = (size_t)p->heads;
  size_t dim = (size_t)p->dim, features = (size_t)features_of(p);
  size_t width = p->edge_dim < 0 ? heads * dim : features;
  size_t gatv2 = p->op == DFGNN_OP_GATV2;
  scratch s = {.end = 0};
  s.states = (dfgnn_cpu_softmax *)place(&s, memory, heads * sizeof *s.states);
  s.after = (double *)place(&s, memory, ROWS * heads * sizeof *s.after);
  s.query = place(&s, memory, ROWS * heads * dim * size);
  s.projected = place(&s, memory, ROWS * heads * features * size);
  s.shift = place(&s, memory, ROWS * heads * size);
  s.weights = place(&s, memory, ROWS * heads * size);
  s.features = place(&s, memory, ROWS * heads * features * size);
  s.sums = place(&s, memory, ROWS * heads * sum_bytes);
  s.scores = place(&s, memory, heads * STRIDE * size);
  s.attr = place(&s, memory, DFGNN_CPU_EDGES * width * size);
  s.arguments = place(&s, memory, gatv2 * DFGNN_CPU_EDGES * heads * dim * size);
  s.source = place(&s, memory, heads * dim * size);
  return s;
}

static dfgnn_cpu_choice choice(const dfgnn_setting *setting) {
  const int *p = setting->parameter;
  scratch s = scratch_in(NULL, setting->problem, dfgnn__cpu_sum_bytes(setting));
  return (dfgnn_cpu_choice){.simd = p[SIMD],
                            .schedule = p[SCHEDULE],
                            .thread_bytes = s.end,
                            .shared_bytes =
                                dfgnn__cpu_edges_bytes(setting->problem)};
}

static size_t workspace(const dfgnn_setting *setting) {
  dfgnn_cpu_choice c = choice(setting);
  return dfgnn__cpu_norm_bytes(setting) + dfgnn__cpu_workspace(setting, &c);
}

static const char *applicable(const dfgnn_setting *setting) {
  const dfgnn_problem *p = setting->problem;
  if (!p->edge_dim && !p->qk_norm)
    return "is for edge features and normalised queries";
  return dfgnn__cpu_simd_missing(setting->parameter[SIMD]);
}

/* ---- a block of rows ----------------------------------------------------- */

static char *sum_of(const forward *w, const scratch *s, int64_t row,
                    int64_t head) {
  return s->sums + (size_t)(row * w->job.heads + head) * w->job.sum_bytes;
}

static void load_row(const forward *w, char *to, const dfgnn_cpu_tensor *t,
                     int64_t node) {
  const dfgnn_cpu_job *job = &w->job;
  for (int64_t h = 0; h < job->heads; h++)
    w->edges.loops->load(dfgnn__cpu_at(&w->edges, to, h * job->dim),
                         t->base + node * t->node + h * t->head, t->feature,
                         job->dim);
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
    load_row(w, dfgnn__cpu_at(e, s->query, r * row), &job->query, first + r);
  if (!gt) {
    for (int64_t r = 0; r < rows && e->bias; r++)
      job->kernels->combine(dfgnn__cpu_at(e, s->query, r * row), 1, e->bias, 1,
                            row);
    return;
  }
  job->kernels->multiply(s->query, rows * row, job->scale);
  for (int64_t h = 0; h < heads && e->weight; h++) {
    dfgnn_cpu_matrices m = {
        .to = dfgnn__cpu_at(e, s->projected, h * e->features),
        .a = dfgnn__cpu_at(e, s->query, h * dim),
        .b = dfgnn__cpu_at(e, e->weight, h * dim * e->features),
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
    m.to = dfgnn__cpu_at(e, s->shift, h);
    m.b = dfgnn__cpu_at(e, e->bias, h * dim);
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
  int64_t sum = (int64_t)(job->sum_bytes / job->scalar_size);
  int projects = job->op == DFGNN_OP_GT && e->values && e->weight;
  for (int64_t h = 0; h < heads && projects; h++) {
    dfgnn_cpu_matrices m = {.to = sum_of(w, s, 0, h),
                            .a = dfgnn__cpu_at(e, s->features, h * e->features),
                            .b = dfgnn__cpu_at(e, e->transposed, h * dim),
                            .rows = rows,
                            .inner = e->features,
                            .columns = dim,
                            .to_row = heads * sum,
                            .a_row = heads * e->features,
                            .a_inner = 1,
                            .b_row = heads * dim,
                            .add = 1};
    e->loops->multiply(&m);
    if (!e->bias)
      continue;
    m.a = dfgnn__cpu_at(e, s->weights, h);
    m.b = dfgnn__cpu_at(e, e->bias, h * dim);
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
                      const void *attr, int64_t count) {
  const dfgnn_cpu_edges *e = &w->edges;
  int64_t heads = w->job.heads, dim = w->job.dim;
  const void *query = e->weight ? s->projected : s->query;
  dfgnn_cpu_matrices m = {
      .to = s->scores,
      .a = dfgnn__cpu_at(e, (void *)query, r * heads * e->features),
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
    m.to = dfgnn__cpu_at(e, s->scores, h * STRIDE);
    m.a = dfgnn__cpu_at(e, s->query, (r * heads + h) * dim);
    m.b = dfgnn__cpu_at(e, (void *)attr, h * dim);
    e->loops->products(&m);
  }
}

static void add_shift(const forward *w, const scratch *s, int64_t r,
                      int64_t count) {
  int64_t heads = w->job.heads;
  for (int64_t h = 0; h < heads; h++) {
    char *scores = dfgnn__cpu_at(&w->edges, s->scores, h * STRIDE);
    const char *shift = dfgnn__cpu_at(&w->edges, s->shift, r * heads + h);
    for (int64_t k = 0; k < count; k++)
      if (w->edges.scalar_size == sizeof(double))
        ((double *)scores)[k] += *(const double *)shift;
      else
        ((float *)scores)[k] += *(const float *)shift;
  }
}

static void score_gt(const forward *w, const scratch *s, int64_t row, int64_t r,
                     int64_t begin, int64_t end, const void *attr) {
  const dfgnn_cpu_job *job = &w->job;
  for (int64_t h = 0; h < job->heads; h++)
    job->kernels->score[0][DFGNN_OP_GT](
        job, row, h, begin, end,
        dfgnn__cpu_at(&w->edges, s->scores, h * STRIDE));
  if (w->edges.keys)
    add_edges(w, s, r, attr, end - begin);
  if (w->edges.keys && w->edges.bias)
    add_shift(w, s, r, end - begin);
}

static double bias_at(const dfgnn_cpu_job *job, int64_t i) {
  return job->scalar_size == sizeof(double) ? ((const double *)job->bias)[i]
                                            : ((const float *)job->bias)[i];
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
  int64_t row = job->heads * job->dim;
  for (int64_t k = 0; k < end - begin; k++) {
    int64_t at = (begin + k - s->window) * row;
    char *z = dfgnn__cpu_at(e, s->arguments, at);
    const void *projected =
        e->weight ? z : dfgnn__cpu_at(e, (void *)s->attr_at, at);
    load_row(w, s->source, &job->value, job->indices[begin + k]);
    e->loops->add(z, dfgnn__cpu_at(e, s->query, r * row), s->source, projected,
                  row);
    e->loops->scores(dfgnn__cpu_at(e, s->scores, k), STRIDE, z, e->att,
                     job->heads, job->dim, job->slope);
    for (int64_t h = 0; job->bias && h < job->heads; h++) {
      char *at = dfgnn__cpu_at(e, s->scores, h * STRIDE + k);
      double more = bias_at(job, (begin + k) * job->heads + h);
      if (job->scalar_size == sizeof(double))
        *(double *)at += more;
      else
        *(float *)at += (float)more;
    }
  }
}

/* ---- a row --------------------------------------------------------------- */

static void add_weights(const forward *w, const scratch *s, int64_t r,
                        int64_t head, int64_t count, double before) {
  const char *p = dfgnn__cpu_at(&w->edges, s->scores, head * STRIDE);
  char *to = dfgnn__cpu_at(&w->edges, s->weights, r * w->job.heads + head);
  double sum = 0;
  for (int64_t k = 0; k < count; k++)
    sum += w->edges.scalar_size == sizeof(double) ? ((const double *)p)[k]
                                                  : ((const float *)p)[k];
  if (w->edges.scalar_size == sizeof(double))
    *(double *)to = before < 0 ? sum : before * *(double *)to + sum;
  else
    *(float *)to = (float)(before < 0 ? sum : before * *(float *)to + sum);
}

/* Are `count` numbers of edges finite? */
static int finite_numbers(const dfgnn_cpu_edges *e, const void *attr,
                          int64_t count) {
  double spoilt = 0;
  for (int64_t i = 0; i < count; i++)
    spoilt += 0 * (e->scalar_size == sizeof(double) ? ((const double *)attr)[i]
                                                    : ((const float *)attr)[i]);
  return spoilt == 0;
}

/* Computes the product m without the edges whose weight is 0: 0 times an
 * infinite feature would be NaN. */
static void multiply_kept(const dfgnn_cpu_edges *e, dfgnn_cpu_matrices m) {
  const int64_t count = m.inner;
  char *a = (char *)m.a, *b = (char *)m.b;
  if (!m.add)
    memset(m.to, 0, (size_t)m.columns * e->scalar_size);
  m.add = m.inner = 1;
  for (int64_t k = 0; k < count; k++) {
    m.a = dfgnn__cpu_at(e, a, k);
    m.b = dfgnn__cpu_at(e, b, k * m.b_row);
    if (e->scalar_size == sizeof(double) ? *(const double *)m.a != 0
                                         : *(const float *)m.a != 0)
      e->loops->multiply(&m);
  }
}

/* Sums the edge features of one head by weights. */
static void sum_features(const forward *w, const scratch *s, int64_t r,
                         int64_t head, int64_t count, double before,
                         const void *attr) {
  const dfgnn_cpu_edges *e = &w->edges;
  int64_t heads = w->job.heads, at = (r * heads + head) * e->features;
  dfgnn_cpu_matrices m = {.to = dfgnn__cpu_at(e, s->features, at),
                          .a = dfgnn__cpu_at(e, s->scores, head * STRIDE),
                          .b = attr,
                          .rows = 1,
                          .inner = count,
                          .columns = e->features,
                          .a_inner = 1,
                          .b_row = e->width,
                          .add = before >= 0};
  if (!e->weight) { /* projected features are added to values */
    m.to = sum_of(w, s, r, head);
    m.b = dfgnn__cpu_at(e, (void *)attr, head * e->features);
    m.add = 1;
  } else if (before >= 0 && before != 1) {
    w->job.kernels->multiply(m.to, e->features, before);
  }
  if (w->problem->dropout && !finite_numbers(e, attr, count * e->width))
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
  dfgnn_cpu_short row = {
      .heads = heads,
      .dim = job->dim,
      .features = e->features,
      .count = last - first,
      .indices = job->indices + first,
      .far = {job->key.base, job->value.base},
      .node = {job->key.node, job->value.node},
      .own = {dfgnn__cpu_at(e, s->query, at * job->dim)},
      .attr =
          dfgnn__cpu_at(e, (void *)s->attr_at, (first - s->window) * e->width),
      .sums = sum_of(w, s, r, 0),
      .sum_row = (int64_t)(job->sum_bytes / job->scalar_size),
      .states = s->states};
  if (e->keys) {
    row.by[0] = dfgnn__cpu_at(e, s->projected, at * e->features);
    row.shift[0] = e->bias ? dfgnn__cpu_at(e, s->shift, at) : NULL;
  }
  if (e->values) {
    row.sums_of_attr[1] = dfgnn__cpu_at(e, s->features, at * e->features);
    row.totals[1] = e->bias ? dfgnn__cpu_at(e, s->weights, at) : NULL;
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
    const void *attr = w->edges.width
                           ? dfgnn__cpu_at(&w->edges, (void *)s->attr_at,
                                           (begin - s->window) * w->edges.width)
                           : NULL;
    if (gt)
      score_gt(w, s, row, r, begin, end, attr);
    else
      score_gatv2(w, s, r, begin, end);
    for (int64_t h = 0; h < heads; h++) {
      char *scores = dfgnn__cpu_at(&w->edges, s->scores, h * STRIDE);
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
  int64_t heads = w->job.heads;
  if (dfgnn__cpu_offset(&w->job, row) != dfgnn__cpu_offset(&w->job, row + 1))
    return;
  for (int64_t h = 0; h < heads; h++)
    memset(sum_of(w, s, r, h), 0, w->job.sum_bytes);
  memset(dfgnn__cpu_at(&w->edges, s->features, r * heads * w->edges.features),
         0, (size_t)(heads * w->edges.features) * w->edges.scalar_size);
  memset(dfgnn__cpu_at(&w->edges, s->weights, r * heads), 0,
         (size_t)heads * w->edges.scalar_size);
}

static void attend_rows(const dfgnn_cpu_job *job, void *data, char *memory,
                        int64_t begin, int64_t end) {
  const forward *w = data;
  scratch s = scratch_in(memory, w->problem, job->sum_bytes);
  s.last = dfgnn__cpu_offset(job, end);
  for (int64_t row = begin; row < end; row += ROWS) {
    int64_t rows = end - row < ROWS ? end - row : ROWS;
    begin_block(w, &s, row, rows);
    for (int64_t r = 0; r < rows; r++) {
      clear_row(w, &s, row + r, r);
      attend(w, &s, row + r, r);
    }
    finish_block(w, &s, row, rows);
  }
}

static dfgnn_status launch(const dfgnn_launch *given) {
  dfgnn_cpu_choice c = choice(&given->setting);
  const dfgnn_problem *p = given->setting.problem;
  dfgnn_launch launch;
  dfgnn_args args;
  forward w = {.problem = p};
  dfgnn__cpu_norm_begin(&launch, &args, given,
                        dfgnn__cpu_edge_loops(c.simd, p->dtype),
                        given->setting.device->units, given->workspace);
  launch.workspace =
      (char *)given->workspace + dfgnn__cpu_norm_bytes(&given->setting);
  char *shared = dfgnn__cpu_begin(&w.job, &launch, &c);
  dfgnn__cpu_edges_begin(&w.edges, given, c.simd, shared);
  w.shorts = w.edges.keys &&
             dfgnn__cpu_edges_short(&w.edges, &w.job, &w.job.key, &w.job.value);
  dfgnn__cpu_rows(&w.job, c.schedule, 4 * ROWS, attend_rows, &w);
  return DFGNN_OK;
}

DFGNN_FAMILIES(attention_cpu_edge_forward) = {
    {
        .name = "cpu.attention.fwd.edges",
        .algorithm = "edges",
        .backend = "cpu",
        .ops = DFGNN_BIT(DFGNN_OP_GT) | DFGNN_BIT(DFGNN_OP_GATV2),
        .passes = DFGNN_BIT(DFGNN_PASS_FORWARD),
        .dtypes = DFGNN_DTYPES_ALL,
        .revision = 1,
        .deterministic = 1,
        .weights = 1,
        .bias = 1,
        .dropout = 1,
        .edge_ops = DFGNN_BIT(DFGNN_OP_GT) | DFGNN_BIT(DFGNN_OP_GATV2),
        .qk_norm = 1,
        .parameters = {DFGNN_CPU_SIMD, DFGNN_CPU_SCHEDULE},
        .applicable = applicable,
        .workspace = workspace,
        .launch = launch,
        .block = DFGNN_CPU_BLOCK,
    },
    DFGNN_FAMILIES_END,
};
