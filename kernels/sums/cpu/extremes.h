/* extremes.h - extremes and moments of copies; a part of kernels.c
 *
 * A mean is kept as its difference from an origin, the first message of the
 * row's first chunk, so that an offset common to all messages costs no
 * digits. */

/* ---- the state of some edges --------------------------------------------- */

/* A state has the components that `what` names, for a vector of features. */
typedef struct known {
  vec origin, mean, square; /* mean: above the origin; square: the sum of
                             * squared differences from the mean */
  vec low, high, arg_low, arg_high;
} known;

/* Calls NEXT with each component, in their order in memory. */
#define EACH_KNOWN(k, what, NEXT)                                              \
  do {                                                                         \
    if ((what)&MOMENTS) {                                                      \
      NEXT((k)->origin);                                                       \
      NEXT((k)->mean);                                                         \
      NEXT((k)->square);                                                       \
    }                                                                          \
    if ((what)&LOW)                                                            \
      NEXT((k)->low);                                                          \
    if ((what)&HIGH)                                                           \
      NEXT((k)->high);                                                         \
    if ((what)&LOW && (what)&ARGS)                                             \
      NEXT((k)->arg_low);                                                      \
    if ((what)&HIGH && (what)&ARGS)                                            \
      NEXT((k)->arg_high);                                                     \
  } while (0)

CPU_INLINE known load_known(const scalar *p, int64_t width, tail t,
                            const int cut, const int what) {
  known k;
  k.origin = k.mean = k.square = v_zero();
  k.low = k.high = k.arg_low = k.arg_high = v_zero();
#define LOAD(component) component = v_load_cut(p, t, cut), p += width
  EACH_KNOWN(&k, what, LOAD);
#undef LOAD
  return k;
}

CPU_INLINE void store_known(scalar *p, const known *k, int64_t width, tail t,
                            const int cut, const int what) {
#define STORE(component) v_store_cut(p, component, t, cut), p += width
  EACH_KNOWN(k, what, STORE);
#undef STORE
}

/* Differences from an infinite origin would make the mean NaN. */
CPU_INLINE vec origin_of(vec first) {
  return v_where_equal(v_sub(first, first), v_zero(), first);
}

/* Sets the moments of `count` messages from the sums of their differences from
 * the origin and of their squares. */
CPU_INLINE void set_moments(known *k, vec sum, vec square, int64_t count) {
  k->mean = v_mul(sum, v_set((scalar)(1 / (double)count)));
  k->square = v_max(v_zero(), v_sub(square, v_mul(sum, k->mean)));
}

/* Merges b, the state of `count` edges, into a, that of the `before` edges
 * before them.  The mean is a weighted sum, in which an infinite mean stays
 * infinite. */
CPU_INLINE void join(known *a, const known *b, int64_t before, int64_t count,
                     const int what) {
  if (what & MOMENTS) {
    double share = (double)count / (double)(before + count);
    vec mean = v_add(v_sub(b->origin, a->origin), b->mean);
    vec difference = v_sub(mean, a->mean);
    a->square = v_fma(v_mul(difference, difference),
                      v_set((scalar)((double)before * share)),
                      v_add(a->square, b->square));
    a->mean = v_fma(mean, v_set((scalar)share),
                    v_mul(a->mean, v_set((scalar)(1 - share))));
  }
  if (what & LOW)
    v_take(&a->low, &a->arg_low, b->low, b->arg_low, 1, what & ARGS);
  if (what & HIGH)
    v_take(&a->high, &a->arg_high, b->high, b->arg_high, -1, what & ARGS);
}

/* ---- results ------------------------------------------------------------- */

/* x / y, or 0 where y is 0. */
CPU_INLINE vec v_quotient(vec x, vec y) {
  scalar a[VECTOR], b[VECTOR];
  v_store(a, x);
  v_store(b, y);
  for (int i = 0; i < VECTOR; i++)
    a[i] = b[i] == 0 ? 0 : a[i] / b[i];
  return v_load(a);
}

CPU_INLINE scalar *record_of(const sums_job *job, int64_t row, int64_t piece) {
  return (scalar *)(job->record + row * job->record_bytes) +
         piece * job->record_piece;
}

CPU_INLINE void put_record(const sums_job *job, int64_t row, int64_t piece,
                           int64_t d, vec mean, vec variance, double degree,
                           tail t, const int cut) {
  const scalar *p = row_of(job, &job->reduced.out, row, piece);
  vec grad = v_load_cut(p + d, t, cut);
  scalar *to = record_of(job, row, piece) + d;
  if (job->op == DFGNN_OP_REDUCE_VAR)
    grad = v_mul(grad, v_set((scalar)(2 / degree)));
  else
    grad = v_quotient(v_mul(grad, v_set((scalar)(1 / degree))),
                      v_deviation(variance));
  v_store_cut(to, grad, t, cut);
  v_store_cut(to + job->width, mean, t, cut);
}

CPU_INLINE void put_moments(const sums_job *job, int64_t row, int64_t piece,
                            int64_t d, double degree, const known *k, tail t,
                            const int cut, const int what) {
  const dfgnn_cpu_reduced *to = &job->reduced;
  scalar share = (scalar)(degree > 0 ? 1 / degree : 0); /* 0: empty */
  vec mean = v_add(k->origin, k->mean);
  vec variance = v_mul(k->square, v_set(share));
  if (job->record && !(what & LOW))
    put_record(job, row, piece, d, mean, variance, degree, t, cut);
  else if (!(what & LOW))
    put(job, &to->out, row, piece, d,
        job->op == DFGNN_OP_REDUCE_STD ? v_deviation(variance) : variance, t,
        cut);
  else {
    put(job, &to->out, row, piece, d, mean, t, cut);
    put(job, &to->std, row, piece, d, v_deviation(variance), t, cut);
  }
}

/* Writes the results of a row. */
CPU_INLINE void emit(const sums_job *job, int64_t row, int64_t piece, int64_t d,
                     double degree, const known *k, tail t, const int cut,
                     const int what) {
  const dfgnn_cpu_reduced *to = &job->reduced;
  if (what & MOMENTS)
    put_moments(job, row, piece, d, degree, k, t, cut, what);
  if (what & LOW)
    put(job, what & MOMENTS ? &to->least : &to->out, row, piece, d, k->low, t,
        cut);
  if (what & HIGH)
    put(job, what & MOMENTS ? &to->most : &to->out, row, piece, d, k->high, t,
        cut);
  if (what & LOW && what & ARGS)
    put_index(job, &to->arg_min, row, piece, d, k->arg_low, t, cut);
  if (what & HIGH && what & ARGS)
    put_index(job, &to->arg_max, row, piece, d, k->arg_high, t, cut);
}

/* Writes the results of a row without edges.  No edge reads its record. */
static CPU_TARGET void emit_empty(const sums_job *job, int64_t row,
                                  int64_t piece) {
  int64_t dim = job->pieces.dim;
  known k = {.arg_low = v_index(-1), .arg_high = v_index(-1)};
  for (int64_t d = 0; !job->record && d < dim; d += VECTOR)
    emit(job, row, piece, d, 0, &k, v_tail(dim % VECTOR), dim - d < VECTOR,
         job->found);
}

static CPU_TARGET void merge_found(const void *data, int64_t piece, void *to,
                                   const void *from, int64_t before,
                                   int64_t count) {
  const sums_job *job = data;
  int64_t dim = job->pieces.dim;
  for (int64_t d = 0; d < dim; d += VECTOR) {
    int cut = dim - d < VECTOR;
    tail t = v_tail(dim % VECTOR);
    scalar *at = (scalar *)to + piece * dim + d;
    known a = load_known(at, job->width, t, cut, job->found);
    known b = load_known((const scalar *)from + piece * dim + d, job->width, t,
                         cut, job->found);
    join(&a, &b, before, count, job->found);
    store_known(at, &a, job->width, t, cut, job->found);
  }
}

static CPU_TARGET void finish_found(const void *data, int64_t row,
                                    int64_t piece, void *state) {
  const sums_job *job = data;
  int64_t dim = job->pieces.dim;
  for (int64_t d = 0; d < dim; d += VECTOR) {
    int cut = dim - d < VECTOR;
    tail t = v_tail(dim % VECTOR);
    known k = load_known((const scalar *)state + piece * dim + d, job->width, t,
                         cut, job->found);
    emit(job, row, piece, d, (double)degree_of(job, job->offsets, row), &k, t,
         cut, job->found);
  }
}

/* ---- copies -------------------------------------------------------------- */

typedef struct finding {
  const sums_job *job;
  const char *base;
  const int32_t *index;
  int64_t count, ahead;
  int64_t number; /* of the first edge, in its row */
  int64_t before; /* edges in the state */
  scalar *state;
  int64_t row, piece;
  double degree; /* > 0: the row ends here */
} finding;

CPU_INLINE void prefetch_ahead(const finding *g, int64_t d, int64_t e) {
  if (d == 0 && e < g->ahead)
    prefetch_row(g->base, g->index[e + g->job->prefetch],
                 g->job->far.first.node,
                 g->job->pieces.dim * (int64_t)sizeof(scalar));
}

CPU_ALWAYS void find_panel(finding *g, int64_t d, tail t, const int width,
                           const int cut, const int what) {
  const sums_job *job = g->job;
  const char *base = g->base + d * (int64_t)sizeof(scalar);
  vec sum[WIDEST], square[WIDEST];
  known k[WIDEST];
  const scalar *v = row_at(base, g->index[0], job->far.first.node);
  vec number = v_index(g->number);

  prefetch_ahead(g, d, 0);
  CPU_EACH(i, width) {
    vec first = v_load_cut(v + i * VECTOR, t, cut);
    k[i].origin = what & MOMENTS ? origin_of(first) : v_zero();
    sum[i] = v_sub(first, k[i].origin);
    square[i] = v_mul(sum[i], sum[i]);
    k[i].low = k[i].high = first;
    k[i].arg_low = k[i].arg_high = number;
  }
  for (int64_t e = 1; e < g->count; e++) {
    v = row_at(base, g->index[e], job->far.first.node);
    if (what & ARGS)
      number = v_index(g->number + e);
    prefetch_ahead(g, d, e);
    CPU_EACH(i, width) {
      vec x = v_load_cut(v + i * VECTOR, t, cut);
      if (what & MOMENTS) {
        vec y = v_sub(x, k[i].origin);
        sum[i] = v_add(sum[i], y);
        square[i] = v_fma(y, y, square[i]);
      }
      if (what & LOW)
        v_take(&k[i].low, &k[i].arg_low, x, number, 1, what & ARGS);
      if (what & HIGH)
        v_take(&k[i].high, &k[i].arg_high, x, number, -1, what & ARGS);
    }
  }
  scalar *state = g->state + d;
  CPU_EACH(i, width) {
    int64_t at = d + i * VECTOR;
    if (what & MOMENTS)
      set_moments(&k[i], sum[i], square[i], g->count);
    if (g->before) {
      known all = load_known(state + i * VECTOR, job->width, t, cut, what);
      join(&all, &k[i], g->before, g->count, what);
      k[i] = all;
    }
    if (g->degree > 0)
      emit(job, g->row, g->piece, at, g->degree, &k[i], t, cut, what);
    else
      store_known(state + i * VECTOR, &k[i], job->width, t, cut, what);
  }
}

/* The vectors of a panel.  Moments and extremes together keep up to seven
 * vectors for each.  Portable kernels have one width: see widest(). */
CPU_INLINE int widest_found(const int what) {
  return CPU_ISA == CPU_PORTABLE            ? 1
         : (what & MOMENTS) && (what & LOW) ? 2
                                            : WIDEST;
}

CPU_INLINE void find_row(const sums_job *job, int64_t row, int64_t piece,
                         int64_t begin, int64_t end, void *state, int whole,
                         const int what) {
  int64_t dim = job->pieces.dim;
  int64_t first = dfgnn__cpu_edge(job->offsets64, job->offsets, row);
  tail t = v_tail(dim % VECTOR);
  finding g = {.job = job,
               .base = place(job, &job->far.first, 0, piece),
               .state = (scalar *)state + piece * dim,
               .row = row,
               .piece = piece};
  if (begin == end)
    emit_empty(job, row, piece);
  for (int64_t e = begin; e < end; e += g.count) {
    g.index = job->indices + e;
    g.count = end - e < CHUNK ? end - e : CHUNK;
    g.ahead = edges_ahead(job, e);
    g.number = e - first;
    g.before = e - begin;
    g.degree = whole && e + g.count == end ? (double)(end - begin) : 0;
#define PANEL_OF(d, width, cut) find_panel(&g, d, t, width, cut, what)
    EACH_PANEL(widest_found(what), dim, PANEL_OF);
#undef PANEL_OF
  }
}

#define FIND(name, what)                                                       \
  static CPU_TARGET void find_##name(const void *job, int64_t row,             \
                                     int64_t piece, int64_t begin,             \
                                     int64_t end, void *state, int whole) {    \
    find_row(job, row, piece, begin, end, state, whole, what);                 \
  }
FIND(min, LOW)
FIND(max, HIGH)
FIND(moments, MOMENTS)
FIND(pna, LOW | HIGH | MOMENTS)
FIND(min_arg, LOW | ARGS)
FIND(max_arg, HIGH | ARGS)
FIND(pna_arg, LOW | HIGH | MOMENTS | ARGS)
