/* add.h - sums of copies, and the gradients of their weights; a part of
 * kernels.c */

enum {
  PANEL = 8, /* vectors of sums kept in registers */
  ADD_CHUNK = DFGNN_CPU_ADD_CHUNK,
  DOT_FLIGHT = 4
};

typedef struct adding {
  const sums_job *job;
  const char *base;
  const int32_t *index;
  int64_t count, ahead;
  const scalar *factors; /* of the edges */
  int fresh;             /* the first chunk: sum holds nothing yet */
  scalar *out;           /* NULL: the result goes to sum */
  scalar *sum;
  scalar after;
} adding;

/* Sums `width` vectors of the features from d on, `flight` edges at a time;
 * the last vector is cut to t if cut. */
CPU_INLINE void add_panel(const adding *g, int64_t d, tail t, const int width,
                          const int flight, const int cut) {
  int64_t stride = g->job->far.first.node, e = 0;
  const char *base = g->base + d * (int64_t)sizeof(scalar);
  int64_t bytes = g->job->pieces.dim * (int64_t)sizeof(scalar);
  int64_t ahead = d == 0 ? g->ahead : 0;
  vec a[8];

  CPU_EACH(i, width * flight) { a[i] = v_zero(); }
#define EDGE(u)                                                                \
  do {                                                                         \
    vec w = v_set(g->factors[e + u]);                                          \
    const scalar *v = row_at(base, g->index[e + u], stride);                   \
    if (e + u < ahead)                                                         \
      prefetch_row(g->base, g->index[e + u + g->job->prefetch], stride,        \
                   bytes);                                                     \
    CPU_EACH(i, width) {                                                       \
      vec x = v_load_cut(v + i * VECTOR, t, cut && i == width - 1);            \
      a[u * width + i] = v_fma(w, x, a[u * width + i]);                        \
    }                                                                          \
  } while (0)
  for (; e + flight <= g->count; e += flight)
    CPU_EACH(u, flight) EDGE(u);
  for (; flight > 1 && e < g->count; e++)
    EDGE(0);
#undef EDGE
  CPU_UNROLL
  for (int u = 1; u < flight; u++)
    CPU_EACH(i, width) { a[i] = v_add(a[i], a[u * width + i]); }
  CPU_EACH(i, width) {
    int last = cut && i == width - 1;
    if (!g->fresh)
      a[i] = v_add(v_load_cut(g->sum + d + i * VECTOR, t, last), a[i]);
    if (g->out)
      v_store_cut(g->out + d + i * VECTOR, v_mul(a[i], v_set(g->after)), t,
                  last);
    else
      v_store_cut(g->sum + d + i * VECTOR, a[i], t, last);
  }
}

CPU_INLINE void add_panels(const adding *g) {
  int64_t dim = g->job->pieces.dim;
  tail t = v_tail(dim % VECTOR);
  for (int64_t d = 0; d < dim; d += PANEL * VECTOR) {
    int64_t left = dim - d;
    int cut = left < PANEL * VECTOR && left % VECTOR != 0;
    int64_t width = (left + VECTOR - 1) / VECTOR;
    switch (width < PANEL ? 2 * width + cut : 2 * PANEL + cut) {
#define CASE(width, flight)                                                    \
  case 2 * width:                                                              \
    add_panel(g, d, t, width, flight, 0);                                      \
    break;                                                                     \
  case 2 * width + 1:                                                          \
    add_panel(g, d, t, width, flight, 1);                                      \
    break
      CASE(1, 4);
      CASE(2, 4);
      CASE(3, 2);
      CASE(4, 2);
      CASE(5, 1);
      CASE(6, 1);
      CASE(7, 1);
      CASE(8, 1);
#undef CASE
    }
  }
}

/* The factors of edges without weights: loops of their own would be half of
 * this code, and a load of one more number an edge costs nothing beside its
 * row. */
static const scalar ones[ADD_CHUNK] = {[0 ... ADD_CHUNK - 1] = 1};

CPU_INLINE void find_factors(scalar *to, const sums_job *job, int64_t head,
                             int64_t begin, int64_t count) {
  const scalar *scale = job->scale, *weight = job->weight;
  const int32_t *index = job->indices + begin;
  for (int64_t e = 0; e < count; e++)
    to[e] = scale ? scale[index[e]] : 1;
  for (int64_t e = 0; weight && e < count; e++)
    to[e] *= weight[edge_id(job, begin + e) * job->heads + head];
}

/* ---- gradients of weights ------------------------------------------------ */

/* The dot products of a row's own features with `flight` gathered rows. */
CPU_INLINE void products(scalar *to, const scalar *own, const scalar *const *x,
                         int64_t dim, const int flight) {
  vec a[DOT_FLIGHT];
  int64_t d = 0;
  CPU_EACH(u, flight) { a[u] = v_zero(); }
  for (; d + VECTOR <= dim; d += VECTOR) {
    vec y = v_load(own + d);
    CPU_EACH(u, flight) { a[u] = v_fma(y, v_load(x[u] + d), a[u]); }
  }
  if (d < dim) {
    tail t = v_tail(dim - d);
    vec y = v_load_tail(own + d, t);
    CPU_EACH(u, flight) { a[u] = v_fma(y, v_load_tail(x[u] + d, t), a[u]); }
  }
  CPU_EACH(u, flight) { to[u] = v_sum(a[u]); }
}

/* The same for features that are not adjacent: all pieces of a head at once. */
CPU_INLINE void strided_products(scalar *to, const sums_job *job,
                                 const char *own, const char *base,
                                 const int32_t *index, int64_t count) {
  for (int64_t e = 0; e < count; e++) {
    const char *x = base + index[e] * job->far.first.node;
    scalar sum = 0;
    for (int64_t d = 0; d < job->dim; d++)
      sum += *(const scalar *)(own + d * job->own.first.feature) *
             *(const scalar *)(x + d * job->far.first.feature);
    to[e] = sum;
  }
}

static CPU_TARGET void weigh(const sums_job *job, int64_t row, int64_t piece,
                             int64_t begin, int64_t count) {
  int64_t head = dfgnn__cpu_head_of(&job->pieces, piece);
  const char *own = job->own.first.base + row * job->own.first.node +
                    head * job->own.first.head;
  const char *base = job->far.first.base + head * job->far.first.head;
  const int32_t *index = job->indices + begin;
  const scalar *scale = job->scale, *after = job->after;
  scalar *grad = job->grad_weight, dots[ADD_CHUNK];
  if (piece % job->pieces.per_head)
    return;
  if (job->pieces.per_head > 1)
    strided_products(dots, job, own, base, index, count);
  else
    for (int64_t e = 0; e < count; e += DOT_FLIGHT) {
      const scalar *x[DOT_FLIGHT];
      for (int u = 0; u < DOT_FLIGHT; u++)
        x[u] =
            row_at(base, index[e + u < count ? e + u : e], job->far.first.node);
      if (e + DOT_FLIGHT <= count)
        products(dots + e, (const scalar *)own, x, job->dim, DOT_FLIGHT);
      else
        for (int u = 0; e + u < count; u++)
          products(dots + e + u, (const scalar *)own, x + u, job->dim, 1);
    }
  scalar factor = after ? after[row] : 1;
  for (int64_t e = 0; e < count; e++)
    grad[edge_id(job, begin + e) * job->heads + head] =
        dots[e] * factor * (scale ? scale[index[e]] : 1);
}

/* ---- the sums ------------------------------------------------------------ */

static CPU_TARGET void add(const void *data, int64_t row, int64_t piece,
                           int64_t begin, int64_t end, void *state, int whole) {
  const sums_job *job = data;
  int64_t head = dfgnn__cpu_head_of(&job->pieces, piece), e = begin;
  scalar factors[ADD_CHUNK];
  adding g = {.job = job,
              .base = place(job, &job->far.first, 0, piece),
              .factors = job->scale || job->weight ? factors : ones,
              .fresh = 1,
              .sum = (scalar *)state + piece * job->pieces.dim,
              .after = whole ? after_of(job, row) : 1};
  scalar *out = (scalar *)place(job, &job->to, row, piece);
  do {
    g.index = job->indices + e;
    g.count = end - e < ADD_CHUNK ? end - e : ADD_CHUNK;
    g.ahead = edges_ahead(job, e);
    if (job->grad_weight)
      weigh(job, row, piece, e, g.count);
    if (job->to.base) {
      g.out = whole && e + g.count == end ? out : NULL;
      if (job->scale || job->weight)
        find_factors(factors, job, head, e, g.count);
      add_panels(&g);
      g.fresh = 0;
    }
    e += g.count;
  } while (e < end);
}
