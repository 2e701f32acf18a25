/* heads_backward.h - gradients of attention for all heads of a row at once; a
 * part of kernels.c.  See heads.h and gradients.h. */

typedef struct grade_memory {
  scalar *weights, *gradients; /* [chunk, places] P r and dS */
  scalar *kept,
      *more; /* the same: factors of dropout; what an operator needs */
  scalar *values, *scores, *att; /* [row] sums */
} grade_memory;

CPU_INLINE grade_memory grade_memory_of(const across *x, void *memory) {
  const int64_t chunk = x->chunk * x->places + VECTOR;
  grade_memory m = {.weights = memory};
  m.gradients = m.weights + chunk;
  m.kept = m.gradients + chunk;
  m.more = m.kept + chunk;
  m.values = m.more + chunk;
  m.scores = m.values + x->row + VECTOR;
  m.att = m.scores + x->row + VECTOR;
  return m;
}

/* Is a walk better done for all heads at once, and can it be? */
static CPU_TARGET int spans_side(const dfgnn_cpu_side *s) {
  if (s->job.term)
    return 1;
  return spans_heads(&s->job) &&
         (!s->wants_gradients || (adjacent_heads(&s->job, &s->product.query) &&
                                  adjacent_heads(&s->job, &s->product.key))) &&
         (!s->wants_values || adjacent_heads(&s->job, &s->values.value)) &&
         (!s->wants_scores || adjacent_heads(&s->job, &s->scores.value));
}

/* ---- terms of edges ------------------------------------------------------ */

/* Replaces scores by P r, and <grad_out, value> by dS; returns 1 if some P is
 * zero. */
CPU_INLINE int grade_terms(const across *x, const dfgnn_cpu_job *job,
                           int64_t row, int64_t begin, int64_t count,
                           const grade_memory *m, const int drops) {
  const scalar *ends = job->ends, *own = ends + 2 * row * x->heads;
  const vec none = v_set(-1), one = v_set(1);
  const int careful = !job->term || job->term->careful;
  int64_t at[VECTOR];
  vec top = none;
  for (int64_t e = 0; e < count; e += x->edges) {
    if (job->by_source)
      rows_of(x, job->indices + begin + e, count - e, 2 * x->heads, at);
    for (int64_t h = 0; h < x->places; h += VECTOR) {
      const int64_t i = e * x->places + h;
      vec shift, minus;
      if (job->by_source) {
        shift = gather_heads(x, ends, at, count - e, h);
        minus = gather_heads(x, ends + x->heads, at, count - e, h);
      } else {
        shift = together(x, load_heads(x, own, h));
        minus = together(x, load_heads(x, own + x->heads, h));
      }
      vec kept = drops ? v_load(m->kept + i) : one;
      vec p = v_exp(v_add(v_load(m->weights + i), shift));
      vec g = v_load(m->gradients + i);
      if (drops && careful)
        g = v_unless_zero(kept, g);
      g = drops ? v_fma(kept, g, minus) : v_add(g, minus);
      top = v_max(v_mul(p, none), top);
      v_store(m->gradients + i, v_mul(p, careful ? v_unless_zero(p, g) : g));
      v_store(m->weights + i, drops ? v_mul(p, kept) : p);
    }
  }
  return v_top(top) == 0;
}

/* Reads the numbers [edges, heads] of a chunk; returns the highest of
 * -|number|, and -1 at least. */
CPU_INLINE vec read_numbers(const across *x, const dfgnn_cpu_job *job,
                            const scalar *from, int64_t begin, int64_t count,
                            scalar *to) {
  const int64_t numbers = count * x->places;
  const vec minus = v_set(-1);
  vec top = minus;
  if (!job->numbers && x->places == x->heads) {
    int64_t i = 0;
    from += begin * x->heads;
    for (; i + VECTOR <= numbers; i += VECTOR)
      v_store(to + i, v_load(from + i));
    if (i < numbers)
      v_store(to + i, v_load_tail(from + i, v_tail(numbers - i)));
  } else {
    int64_t at[VECTOR];
    for (int64_t e = 0; e < count; e += x->edges) {
      edges_of(x, job, begin + e, count - e, at);
      for (int64_t h = 0; h < x->places; h += VECTOR)
        v_store(to + e * x->places + h,
                gather_heads(x, from, at, count - e, h));
    }
  }
  fill_last(to, numbers, 1);
  for (int64_t i = 0; i < numbers; i += VECTOR) {
    const vec y = v_load(to + i);
    top = v_max(v_mul(v_max(y, v_mul(y, minus)), minus), top);
  }
  return top;
}

/* Reads dS of a chunk from memory [edges, heads], and P r if values are wanted;
 * returns 1 if some are zero. */
static CPU_TARGET int read_terms(const across *x, const dfgnn_cpu_side *s,
                                 int64_t begin, int64_t count,
                                 const grade_memory *m) {
  vec top = read_numbers(x, &s->job, (const scalar *)s->gradients, begin, count,
                         m->gradients);
  if (s->wants_values)
    top = v_max(read_numbers(x, &s->job, (const scalar *)s->weights, begin,
                             count, m->weights),
                top);
  return v_top(top) == 0;
}

/* Leaves P r and dS of a chunk in memory [edges, heads]; a walk over columns
 * only dS, by the numbers of the edges. */
static CPU_TARGET void spill_terms(const across *x, const dfgnn_cpu_side *s,
                                   int64_t begin, int64_t count,
                                   const grade_memory *m) {
  scalar *weights = (scalar *)s->weights, *gradients = (scalar *)s->gradients;
  if (!s->job.by_source) {
    keep_across(x, weights + begin * x->heads, m->weights, count);
    keep_across(x, gradients + begin * x->heads, m->gradients, count);
    return;
  }
  for (int64_t e = 0; e < count; e++)
    store_heads(x, gradients + dfgnn__cpu_number(&s->job, begin + e) * x->heads,
                m->gradients + e * x->places);
}

/* Computes P r and dS of a chunk of edges and their parts; returns 1 if some P
 * is zero. */
static CPU_TARGET int terms_across(const across *x, const dfgnn_cpu_side *s,
                                   int64_t row, int64_t begin, int64_t count,
                                   const scalar *parts, const grade_memory *m) {
  const dfgnn_cpu_job *job = &s->job, *product = &s->product;
  const int keys = parts && job->term->keys;
  const int values = parts && job->term->values;
  const int64_t numbers = count * x->places;
  scalar *w = m->weights, *g = m->gradients;
  scores_across(x, job, row, begin, count, keys ? parts : NULL, w, m->more);
  if (s->wants_gradients)
    products_across(x, product, row, begin, count, g, DFGNN_OP_GT,
                    values ? parts : NULL);
  else
    memset(g, 0, (size_t)(numbers + VECTOR) * sizeof *g);
  if (s->wants_gradients && product->scale != 1)
    scale_by(g, numbers, (scalar)product->scale);
  if (job->drops) {
    for (int64_t i = 0; i < numbers; i += VECTOR)
      v_store(m->kept + i, v_set(1));
    drop_across(x, job, begin, count, m->kept);
  }
  fill_last(w, numbers, 0); /* what lies beyond counts as no zero */
  fill_last(g, numbers, 0);
  return job->drops ? grade_terms(x, job, row, begin, count, m, 1)
                    : grade_terms(x, job, row, begin, count, m, 0);
}

/* GAT: adds dS times the slopes of leaky ReLU to scalars [heads], and writes
 * these products to edges.  m->more has the arguments of leaky ReLU. */
CPU_INLINE void additive_across(const across *x, const dfgnn_cpu_job *job,
                                int64_t begin, int64_t count,
                                const grade_memory *m, double *scalars,
                                scalar *edges) {
  const int64_t numbers = count * x->places;
  const vec slope = v_set((scalar)job->slope);
  scalar *z = m->more, sums[VECTOR];
  fill_last(m->gradients, numbers, 0);
  for (int64_t q = 0; q < x->period; q += VECTOR) {
    vec sum = v_zero();
    ALONG(q, x->period, numbers, vec d = v_load(m->gradients + i);
          vec sloped = v_step(v_load(z + i), d, v_mul(d, slope));
          sum = v_add(sum, sloped); if (edges) v_store(z + i, sloped))
    v_store(sums, together(x, sum));
    for (int64_t i = 0; i < VECTOR && q + i < x->heads; i++)
      scalars[q + i] += (double)sums[i];
  }
  if (edges)
    keep_across(x, edges + begin * x->heads, z, count);
}

/* The operands of slopes_across(). */
typedef struct sloping {
  const dfgnn_cpu_job *job;
  int64_t row, begin, count;
  const scalar *gradients;
  scalar *sum, *att_sum; /* att_sum: NULL: not wanted */
  int fresh;             /* the sum begins */
  scalar *parts;         /* of edges, or NULL */
  int kept;              /* are they replaced by their gradients? */
  int careful;           /* see dfgnn_cpu_edges */
} sloping;

/* GATv2: see slopes().  The sum of `att` is added to. */
CPU_INLINE void slopes_panel(const across *x, const sloping *s, int64_t d,
                             const int width, const int vectors) {
  const dfgnn_cpu_job *job = s->job;
  const scalar *ds = s->gradients;
  scalar *part = s->parts ? s->parts + d : NULL;
  const scalar *q = features(&job->query, s->row, 0) + d;
  const scalar *att = (const scalar *)job->att + d;
  const int32_t *index = job->indices + s->begin;
  const char *base = job->key.base + d * (int64_t)sizeof(scalar);
  const int64_t stride = job->key.node, places = x->places;
  const vec slope = v_set((scalar)job->slope);
  const int careful = s->careful;
  const owners o = owners_of(x, d, width, vectors);
  vec own[4], along[4], across_sum[4], held = v_zero();
  CPU_EACH(i, width) {
    own[i] = v_load(q + i * VECTOR);
    along[i] = across_sum[i] = v_zero();
  }
  for (int64_t e = 0; e < s->count; e++, ds += places) {
    const scalar *k = row_at(base, index[e], stride);
    CPU_EACH(i, width) {
      vec y = v_add(own[i], v_load(k + i * VECTOR));
      vec above = of_edge(x, ds, e, &o, i, vectors, &held);
      if (part)
        y = v_add(y, v_load(part + i * VECTOR));
      if (careful)
        y = v_unless_zero(above, y);
      vec step = v_step(y, above, v_mul(above, slope));
      along[i] = v_add(along[i], step);
      if (s->att_sum)
        across_sum[i] = v_fma(step, y, across_sum[i]);
      if (s->kept)
        v_store(part + i * VECTOR, v_mul(step, v_load(att + i * VECTOR)));
    }
    if (part)
      part += x->row;
  }
  CPU_EACH(i, width) {
    scalar *to = s->sum + d + i * VECTOR, *a = s->att_sum + d + i * VECTOR;
    vec old = s->fresh ? v_zero() : v_load(to);
    v_store(to, v_fma(v_load(att + i * VECTOR), along[i], old));
    if (s->att_sum)
      v_store(a, v_add(v_load(a), across_sum[i]));
  }
}

static CPU_TARGET void slopes_across(const across *x, const sloping *s) {
#define SLOPES(d, width, vectors) slopes_panel(x, s, d, width, vectors)
#define SLOPES_4(vectors)                                                      \
  for (; d + 4 * VECTOR <= x->row; d += 4 * VECTOR)                            \
  SLOPES(d, 4, vectors)
  int64_t d = 0;
  BY_VECTORS(x, SLOPES_4);
  for (; d < x->row; d += VECTOR)
    if (x->dim < VECTOR)
      SLOPES(d, 1, NARROW);
    else
      SLOPES(d, 1, ANY);
#undef SLOPES_4
#undef SLOPES
}

/* GT: replaces the parts of edges by their gradients. */
static CPU_TARGET void grade_parts(const across *x, const dfgnn_cpu_side *s,
                                   int64_t row, int64_t count,
                                   const grade_memory *m, scalar *parts) {
  const scalar *query = features(&s->job.query, row, 0);
  const scalar *grad_out = features(&s->product.query, row, 0);
  const int keys = s->job.term->keys, values = s->job.term->values;
  const vec scale = v_set((scalar)s->job.scale);
  const int vectors = x->dim < VECTOR ? NARROW : ANY;
  for (int64_t d = 0; d < x->row; d += VECTOR) {
    const owners o = owners_of(x, d, 1, vectors);
    const vec q = v_mul(scale, v_load(query + d)), g = v_load(grad_out + d);
    vec held[2] = {v_zero(), v_zero()};
    for (int64_t e = 0, at = 0; e < count; e++, at += x->places) {
      vec sum = v_zero();
      if (keys)
        sum = v_mul(of_edge(x, m->gradients + at, e, &o, 0, vectors, &held[0]),
                    q);
      if (values)
        sum = v_fma(of_edge(x, m->weights + at, e, &o, 0, vectors, &held[1]), g,
                    sum);
      v_store(parts + e * x->row + d, sum);
    }
  }
}

/* ---- a row --------------------------------------------------------------- */

/* Adds a chunk to the sum of values or scores; written: it is the last, and
 * the sum times factor goes to the output.  parts: those of edges, added to
 * rows, or NULL. */
CPU_INLINE void add_across(const across *x, const dfgnn_cpu_job *to,
                           int64_t row, int64_t begin, int64_t count,
                           const scalar *parts, const scalar *weights,
                           int careful, int fresh, double factor, scalar *sum,
                           int written) {
  const gather_across g = {
      .x = x,
      .from = &to->value,
      .index = to->indices + begin,
      .count = count,
      .ahead = to->prefetch ? to->edges - to->prefetch - begin : 0,
      .prefetch = to->prefetch,
      .weights = weights,
      .carries = !fresh,
      .factor = (scalar)factor,
      .sum = sum,
      .careful = careful,
      .parts = parts,
      .out = written ? (scalar *)features(&to->out, row, 0) : NULL};
  accumulate_across(&g);
}

/* Writes factor times a sum to the output. */
CPU_INLINE void store_row(const across *x, const dfgnn_cpu_job *to, int64_t row,
                          const scalar *sum, double factor) {
  if (writes_rows(to)) {
    scalar *out = (scalar *)features(&to->out, row, 0);
    const vec f = v_set((scalar)factor);
    for (int64_t d = 0; d < x->row; d += VECTOR)
      v_store(out + d, v_mul(f, v_load(sum + d)));
    return;
  }
  if (closes_rows(to)) {
    close_row(&x->padding, (scalar *)features(&to->out, row, 0), sum, x->row,
              v_set((scalar)factor));
    return;
  }
  for (int64_t h = 0; h < x->heads; h++)
    store(to, row, h, sum + h * x->dim, factor);
}

/* AGNN: turns the sum of normalised rows times dS into the gradient of the own
 * row, see cosine(); returns the sum of dS cos. */
CPU_INLINE double cosine_across(const across *x, const dfgnn_cpu_job *job,
                                int64_t row, scalar *sum) {
  const scalar *own = features(&job->query, row, 0);
  const scalar *inverses = (const scalar *)job->own_inverse + row * x->heads;
  const vec scale = v_set((scalar)job->scale), minus = v_set(-1);
  const vec most = v_div(v_set(1), v_set((scalar)1e-12));
  scalar along[DFGNN_CPU_MOST_HEADS + VECTOR];
  scalar factor[DFGNN_CPU_MOST_HEADS + VECTOR];
  scalar totals[DFGNN_CPU_MOST_HEADS + VECTOR];
  sum_products(x, own, sum, along);
  for (int64_t h = 0; h < x->heads; h += VECTOR) {
    vec inverse = load_heads(x, inverses, h);
    vec total = v_mul(v_load(along + h), inverse);
    /* A norm that was raised to 1e-12 is a constant. */
    vec kept =
        v_step(v_fma(inverse, minus, most), v_mul(total, minus), v_zero());
    v_store(along + h, v_mul(kept, inverse));
    v_store(factor + h, v_mul(scale, inverse));
    v_store(totals + h, total);
  }
  const int vectors = x->dim < VECTOR ? NARROW : ANY;
  for (int64_t d = 0; d < x->row; d += VECTOR) {
    const owners o = owners_of(x, d, 1, vectors);
    vec f = of_heads(factor, &o, 0, vectors);
    vec a = of_heads(along, &o, 0, vectors);
    v_store(sum + d, v_mul(f, v_fma(a, v_load(own + d), v_load(sum + d))));
  }
  double all = 0;
  for (int64_t h = 0; h < x->heads; h++)
    all += (double)totals[h];
  return all;
}

/* Writes the gradients that follow from the sums of a row, but for those that
 * add_across() has written; empty: it was not called. */
CPU_INLINE void finish_row(const across *x, const dfgnn_cpu_side *s,
                           int64_t row, const grade_memory *m,
                           const double *scalars, double *beta, int empty) {
  const dfgnn_cpu_job *job = &s->job;
  if (s->grad_scalar) {
    scalar *to = (scalar *)s->grad_scalar + row * x->heads;
    for (int64_t h = 0; h < x->heads; h++)
      to[h] = (scalar)(scalars[h] + (s->adds ? (double)to[h] : 0));
  }
  if (job->op == DFGNN_OP_GT || job->op == DFGNN_OP_GAT) {
    if (s->wants_values && (empty || !writes_rows(&s->values)))
      store_row(x, &s->values, row, m->values, 1);
    if (s->wants_scores && (empty || !writes_rows(&s->scores)))
      store_row(x, &s->scores, row, m->scores, job->scale);
    return;
  }
  if (job->op == DFGNN_OP_AGNN && s->wants_scores) {
    double total = cosine_across(x, job, row, m->scores);
    if (beta)
      *beta += total;
    for (int64_t d = 0; job->by_source && d < x->row; d += VECTOR)
      v_store(m->values + d,
              v_add(v_load(m->values + d), v_load(m->scores + d)));
  }
  if (job->by_source)
    store_row(x, &s->values, row, m->values, 1);
  else if (s->wants_scores && s->scores.out.base)
    store_row(x, &s->scores, row, m->scores, 1);
}

/* AGNN: m->more = dS times the inverse norms of the gathered rows, which are
 * there already if the scores were computed. */
CPU_INLINE void divide_across(const across *x, const dfgnn_cpu_side *s,
                              int64_t begin, int64_t count,
                              const grade_memory *m) {
  const dfgnn_cpu_job *job = &s->job;
  const int found = s->terms != DFGNN_CPU_READ;
  int64_t at[VECTOR];
  for (int64_t e = 0; e < count; e += x->edges) {
    if (!found)
      rows_of(x, job->indices + begin + e, count - e, x->heads, at);
    for (int64_t h = 0; h < x->places; h += VECTOR) {
      const int64_t i = e * x->places + h;
      const vec f = found ? v_load(m->more + i)
                          : gather_heads(x, job->inverse, at, count - e, h);
      const vec y = v_load(m->gradients + i);
      v_store(m->more + i, v_unless_zero(y, v_mul(y, f)));
    }
  }
}

/* Adds a chunk to the sum of scores, or GATv2's of a column to that of values.
 */
CPU_INLINE void add_scores(const across *x, const dfgnn_cpu_side *s,
                           int64_t row, int64_t begin, int64_t count,
                           const grade_memory *m, scalar *parts, int careful,
                           int fresh, int written, int wants_att) {
  const dfgnn_cpu_job *job = &s->job;
  const int keys = parts && job->term->keys;
  if (job->op == DFGNN_OP_GATV2) {
    const sloping z = {.job = job,
                       .row = row,
                       .begin = begin,
                       .count = count,
                       .gradients = m->gradients,
                       .sum = job->by_source ? m->values : m->scores,
                       .att_sum = wants_att ? m->att : NULL,
                       .fresh = !job->by_source && fresh,
                       .parts = parts,
                       .kept = parts && !job->by_source,
                       .careful = careful};
    slopes_across(x, &z);
    return;
  }
  if (job->op == DFGNN_OP_AGNN)
    divide_across(x, s, begin, count, m);
  add_across(x, &s->scores, row, begin, count, keys ? parts : NULL,
             job->op == DFGNN_OP_AGNN ? m->more : m->gradients, careful, fresh,
             job->scale, m->scores, written);
}

/* Walks a row; returns 0 if some weight is zero, where a walk by heads leaves
 * such edges out: not with edge features or terms in memory. */
CPU_INLINE int grade_row(const across *x, const dfgnn_cpu_side *s, int64_t row,
                         const grade_memory *m, window *w,
                         const dfgnn_cpu_parameters *p) {
  scalar *att = p->att;
  const dfgnn_cpu_job *job = &s->job;
  const int direct = job->op == DFGNN_OP_GT || job->op == DFGNN_OP_GAT;
  const int64_t begin = dfgnn__cpu_offset(job, row);
  const int64_t end = dfgnn__cpu_offset(job, row + 1);
  double scalars[DFGNN_CPU_MOST_HEADS];
  for (int64_t h = 0; h < x->heads; h++)
    scalars[h] = 0;
  if (att)
    memset(m->att, 0, (size_t)x->row * sizeof *m->att);
  if (begin == end) {
    memset(m->values, 0, (size_t)x->row * sizeof *m->values);
    memset(m->scores, 0, (size_t)x->row * sizeof *m->scores);
  }
  for (int64_t e = begin, count; e < end; e += count) {
    count = chunk_at(x, job, w, row, e, end);
    int fresh = e == begin, last = direct && e + count == end;
    scalar *parts = parts_at(w, x, e);
    const int zero = s->terms == DFGNN_CPU_READ
                         ? read_terms(x, s, e, count, m)
                         : terms_across(x, s, row, e, count, parts, m);
    if (zero && !job->term && s->terms == DFGNN_CPU_COMPUTE)
      return 0;
    const int careful = job->term ? job->term->careful : zero;
    if (s->terms == DFGNN_CPU_SPILL)
      spill_terms(x, s, e, count, m);
    if (s->terms == DFGNN_CPU_READ && job->op == DFGNN_OP_GAT)
      arguments_across(x, job, row, e, count, m->more);
    if (s->grad_bias)
      keep_across(x, (scalar *)s->grad_bias + e * x->heads, m->gradients,
                  count);
    if (s->grad_scalar || s->grad_score_edge)
      additive_across(x, job, e, count, m, scalars, s->grad_score_edge);
    if (s->wants_values)
      add_across(x, &s->values, row, e, count, NULL, m->weights, careful, fresh,
                 1, m->values, last && writes_rows(&s->values));
    if (s->wants_scores)
      add_scores(x, s, row, e, count, m, parts, careful, fresh,
                 last && writes_rows(&s->scores), att != NULL);
    if (wants_parts(w, p) && job->op == DFGNN_OP_GT)
      grade_parts(x, s, row, count, m, parts);
    if (wants_parts(w, p) && e + count == w->end)
      close_window(w, x, job, p);
  }
  finish_row(x, s, row, m, scalars, p->beta, begin == end);
  for (int64_t d = 0; att && d < x->row; d += VECTOR)
    v_store(att + d, v_add(v_load(att + d), v_load(m->att + d)));
  return 1;
}

static CPU_TARGET int64_t grade(const dfgnn_cpu_side *s, int64_t begin,
                                int64_t end, void *memory,
                                const dfgnn_cpu_parameters *p) {
  const dfgnn_cpu_job *job = &s->job;
  const across x = across_of(job);
  const grade_memory m = grade_memory_of(&x, memory);
  window w = window_of(&x, job, end, m.att + x.row + VECTOR);
  int64_t row = begin;
  while (row < end &&
         (job->term ||
          dfgnn__cpu_offset(job, row) < dfgnn__cpu_offset(job, row + 1)) &&
         grade_row(&x, s, row, &m, &w, p))
    row++;
  return row;
}
