/* heads_backward.h - gradients of attention for all heads of a row at once; a
 * part of kernels.c.  See heads.h and gradients.h. */

typedef struct grade_memory {
  scalar *weights, *gradients; /* [chunk, places] P r and dS */
  scalar *kept,
      *more; /* the same: factors of dropout; what an operator needs */
  scalar *shift, *minus, *total; /* [period] */
  scalar *values, *scores, *att; /* [row] sums */
} grade_memory;

CPU_INLINE grade_memory grade_memory_of(const across *x, void *memory) {
  const int64_t chunk = x->chunk * x->places + VECTOR;
  grade_memory m = {.weights = memory};
  m.gradients = m.weights + chunk;
  m.kept = m.gradients + chunk;
  m.more = m.kept + chunk;
  m.shift = m.more + chunk;
  m.minus = m.shift + x->period + VECTOR;
  m.total = m.minus + x->period + VECTOR;
  m.values = m.total + x->period + VECTOR;
  m.scores = m.values + x->row + VECTOR;
  m.att = m.scores + x->row + VECTOR;
  return m;
}

/* Is a walk better done for all heads at once, and can it be? */
static CPU_TARGET int spans_side(const dfgnn_cpu_side *s) {
  return s->terms == DFGNN_CPU_COMPUTE && spans_heads(&s->job) &&
         (!s->wants_gradients || (adjacent_heads(&s->job, &s->product.query) &&
                                  adjacent_heads(&s->job, &s->product.key))) &&
         (!s->wants_values || adjacent_heads(&s->job, &s->values.value)) &&
         (!s->wants_scores || adjacent_heads(&s->job, &s->scores.value));
}

/* ---- terms of edges ------------------------------------------------------ */

/* Adds the ends of the own row to scores and to <grad_out, value>. */
CPU_INLINE void add_own_ends(const across *x, const dfgnn_cpu_job *job,
                             int64_t row, int64_t numbers,
                             const grade_memory *m) {
  const scalar *pair = (const scalar *)job->ends + 2 * row * x->heads;
  for (int64_t i = 0; i < x->period; i++) {
    int64_t h = x->places < VECTOR ? i & (x->places - 1) : i;
    m->shift[i] = h < x->heads ? pair[2 * h] : 0;
    m->minus[i] = h < x->heads ? pair[2 * h + 1] : 0;
  }
  for (int64_t q = 0; q < x->period; q += VECTOR) {
    vec shift = s_load(m->shift + q), minus = s_load(m->minus + q);
    ALONG(q, x->period, numbers,
          s_store(m->weights + i, v_add(s_load(m->weights + i), shift));
          s_store(m->gradients + i, v_add(s_load(m->gradients + i), minus)))
  }
}

/* The same for the ends of the gathered rows. */
CPU_INLINE void add_far_ends(const across *x, const dfgnn_cpu_job *job,
                             int64_t begin, int64_t count,
                             const grade_memory *m) {
  const scalar *ends = job->ends;
  for (int64_t e = 0; e < count; e++) {
    const scalar *pairs = ends + 2 * job->indices[begin + e] * x->heads;
    for (int64_t h = 0; h < x->heads; h += VECTOR) {
      int64_t left = x->heads - h, low = 2 * left, high = 2 * left - VECTOR;
      tail t = v_tail(left < VECTOR ? left : VECTOR);
      vec a = s_load_tail(pairs + 2 * h, v_tail(low < VECTOR ? low : VECTOR));
      vec b = high <= 0 ? v_zero()
                        : s_load_tail(pairs + 2 * h + VECTOR,
                                      v_tail(high < VECTOR ? high : VECTOR));
      scalar *w = m->weights + e * x->places + h;
      scalar *g = m->gradients + e * x->places + h;
      s_store_tail(w, v_add(s_load_tail(w, t), v_even(a, b)), t);
      s_store_tail(g, v_add(s_load_tail(g, t), v_odd(a, b)), t);
    }
  }
}

CPU_INLINE void draw_across(const across *x, const dfgnn_cpu_job *job,
                            int64_t begin, int64_t count, scalar *kept) {
  for (int64_t i = 0; i < count * x->places; i++)
    kept[i] = 1;
  drop_across(x, job, begin, count, kept);
}

/* Computes P r and dS of a chunk; returns 1 if some P is zero. */
static CPU_TARGET int terms_across(const across *x, const dfgnn_cpu_side *s,
                                   int64_t row, int64_t begin, int64_t count,
                                   const grade_memory *m) {
  const dfgnn_cpu_job *job = &s->job, *product = &s->product;
  int64_t numbers = count * x->places;
  scalar *w = m->weights, *g = m->gradients;
  scores_across(x, job, row, begin, count, w, m->total);
  if (s->wants_gradients) {
    sums_of(x, product, features(&product->query, row, 0), NULL,
            product->indices + begin, count, 0, g, DFGNN_OP_GT);
    if (product->scale != 1)
      scale_by(g, numbers, (scalar)product->scale);
  } else {
    memset(g, 0, (size_t)(numbers + VECTOR) * sizeof *g);
  }
  if (job->drops) {
    draw_across(x, job, begin, count, m->kept);
    for (int64_t i = 0; i < numbers; i += VECTOR)
      s_store(g + i, v_mul(s_load(g + i), s_load(m->kept + i)));
  }
  if (job->by_source)
    add_far_ends(x, job, begin, count, m);
  else
    add_own_ends(x, job, row, numbers, m);
  for (int64_t e = 0; e < count; e++)
    for (int64_t h = x->heads; h < x->places; h++)
      w[e * x->places + h] = 0; /* what rounds up counts as no zero */
  for (int64_t i = numbers; i % VECTOR; i++)
    w[i] = 0;
  vec none = v_set(-1), top = none;
  for (int64_t i = 0; i < numbers; i += VECTOR) {
    vec p = v_exp(s_load(w + i));
    top = v_max(v_mul(p, none), top);
    s_store(g + i, v_mul(p, s_load(g + i)));
    s_store(w + i, job->drops ? v_mul(p, s_load(m->kept + i)) : p);
  }
  return v_top(top) == 0;
}

/* GAT: adds dS times the slopes of leaky ReLU to scalars [heads], and writes
 * these products to edges. */
CPU_INLINE void additive_across(const across *x, const dfgnn_cpu_job *job,
                                int64_t row, int64_t begin, int64_t count,
                                const grade_memory *m, double *scalars,
                                scalar *edges) {
  int64_t numbers = count * x->places;
  vec slope = v_set((scalar)job->slope);
  scalar *z = m->more;
  arguments_across(x, job, row, begin, count, z);
  for (int64_t i = numbers; i % VECTOR; i++)
    m->gradients[i] = 0;
  for (int64_t q = 0; q < x->period; q += VECTOR) {
    vec sum = v_zero();
    ALONG(q, x->period, numbers, vec d = s_load(m->gradients + i);
          vec sloped = v_step(s_load(z + i), d, v_mul(d, slope));
          sum = v_add(sum, sloped); s_store(z + i, sloped))
    s_store(m->total + q, sum);
  }
  for (int64_t i = 0; i < x->period; i++) {
    int64_t h = x->places < VECTOR ? i & (x->places - 1) : i;
    if (h < x->heads)
      scalars[h] += (double)m->total[i];
  }
  if (edges)
    keep_across(x, edges + begin * x->heads, z, count);
}

/* AGNN: gradients over the norms of the gathered rows. */
CPU_INLINE void divide_across(const across *x, const dfgnn_cpu_job *job,
                              int64_t begin, int64_t count, const scalar *g,
                              scalar *to) {
  const scalar *inverse = job->inverse;
  for (int64_t e = 0; e < count; e++)
    for (int64_t h = 0; h < x->heads; h += VECTOR) {
      int64_t left = x->heads - h, at = e * x->places + h;
      tail t = v_tail(left < VECTOR ? left : VECTOR);
      const scalar *f = inverse + job->indices[begin + e] * x->heads + h;
      s_store_tail(to + at, v_mul(s_load_tail(g + at, t), s_load_tail(f, t)),
                   t);
    }
}

/* GATv2: see slopes().  The sum of `att` begins, or is added to. */
CPU_INLINE void slopes_panel(const across *x, const dfgnn_cpu_job *job,
                             int64_t row, int64_t begin, int64_t count,
                             const scalar *g, scalar *sum, int fresh,
                             scalar *att_sum, int64_t d, lanes l,
                             const int width, const int narrow) {
  const storage *q = features(&job->query, row, 0) + d;
  const storage *att = (const storage *)job->att + d;
  vec slope = v_set((scalar)job->slope), own[4], along[4], across_sum[4];
  int64_t head[4];
  CPU_EACH(i, width) {
    own[i] = v_load(q + i * VECTOR);
    along[i] = across_sum[i] = v_zero();
    head[i] = (d + i * VECTOR) / x->dim;
  }
  for (int64_t e = 0; e < count; e++) {
    const storage *k =
        row_at(job->key.base, job->indices[begin + e], job->key.node) + d;
    const scalar *ds = g + e * x->places;
    CPU_EACH(i, width) {
      vec y = v_add(own[i], v_load(k + i * VECTOR));
      vec above = of_heads(ds, head[i], l, narrow);
      vec step = v_step(y, above, v_mul(above, slope));
      along[i] = v_add(along[i], step);
      if (att_sum)
        across_sum[i] = v_fma(step, y, across_sum[i]);
    }
  }
  CPU_EACH(i, width) {
    scalar *to = sum + d + i * VECTOR, *a = att_sum + d + i * VECTOR;
    vec old = fresh ? v_zero() : s_load(to);
    s_store(to, v_fma(v_load(att + i * VECTOR), along[i], old));
    if (att_sum)
      s_store(a, v_add(s_load(a), across_sum[i]));
  }
}

static CPU_TARGET void slopes_across(const across *x, const dfgnn_cpu_job *job,
                                     int64_t row, int64_t begin, int64_t count,
                                     const scalar *g, scalar *sum, int fresh,
                                     scalar *att_sum) {
  lanes l = v_lanes(x->dim);
#define SLOPES(d, width)                                                       \
  if (x->dim < VECTOR)                                                         \
    slopes_panel(x, job, row, begin, count, g, sum, fresh, att_sum, d, l,      \
                 width, 1);                                                    \
  else                                                                         \
    slopes_panel(x, job, row, begin, count, g, sum, fresh, att_sum, d, l,      \
                 width, 0)
  int64_t d = 0;
  for (; d + 4 * VECTOR <= x->row; d += 4 * VECTOR)
    SLOPES(d, 4);
  for (; d < x->row; d += VECTOR)
    SLOPES(d, 1);
#undef SLOPES
}

/* ---- a row --------------------------------------------------------------- */

/* Adds a chunk to the sum of values or scores; written: its last, and the sum
 * times after goes to to->out. */
CPU_INLINE void add_across(const across *x, const dfgnn_cpu_job *to,
                           int64_t row, int64_t begin, int64_t count,
                           const scalar *weights, const scalar *ones, int fresh,
                           const scalar *after, scalar *sum, int written) {
  const gather_across g = {
      .x = x,
      .from = &to->value,
      .index = to->indices + begin,
      .count = count,
      .weights = weights,
      .before = fresh ? NULL : ones,
      .after = after,
      .sum = sum,
      .out = written ? (storage *)features(&to->out, row, 0) : NULL};
  accumulate_across(&g);
}

CPU_INLINE int writes(const dfgnn_cpu_job *job) {
  return job->out_packed && !job->out_adds && adjacent_heads(job, &job->out);
}

/* The walk of a row with edges. */
static CPU_TARGET int grade(const dfgnn_cpu_side *s, int64_t row, void *memory,
                            dfgnn_cpu_graded *graded) {
  const dfgnn_cpu_job *job = &s->job;
  const across x = across_of(job);
  const grade_memory m = grade_memory_of(&x, memory);
  const int direct = (job->op == DFGNN_OP_GT || job->op == DFGNN_OP_GAT) &&
                     (!s->wants_values || writes(&s->values)) &&
                     (!s->wants_scores || writes(&s->scores));
  int64_t begin = dfgnn__cpu_offset(job, row);
  int64_t end = dfgnn__cpu_offset(job, row + 1);
  scalar ones[DFGNN_CPU_MOST_HEADS + VECTOR];
  scalar scale[DFGNN_CPU_MOST_HEADS + VECTOR];
  for (int64_t h = 0; h < x.heads + VECTOR; h++) {
    ones[h] = 1;
    scale[h] = (scalar)job->scale;
  }
  *graded = (dfgnn_cpu_graded){.values = m.values, .scores = m.scores};
  graded->written = direct;
  if (s->grad_att) {
    graded->att = m.att;
    memset(m.att, 0, (size_t)x.row * sizeof *m.att);
  }
  for (int64_t e = begin; e < end; e += x.chunk) {
    int64_t count = end - e < x.chunk ? end - e : x.chunk;
    int fresh = e == begin, last = direct && e + count == end;
    if (terms_across(&x, s, row, e, count, &m))
      return 0;
    if (s->grad_bias)
      keep_across(&x, (scalar *)s->grad_bias + e * x.heads, m.gradients, count);
    if (s->grad_scalar || s->grad_score_edge)
      additive_across(&x, job, row, e, count, &m, graded->scalars,
                      s->grad_score_edge);
    if (s->wants_values)
      add_across(&x, &s->values, row, e, count, m.weights, ones, fresh, ones,
                 m.values, last);
    if (!s->wants_scores)
      continue;
    if (job->op == DFGNN_OP_GATV2) {
      slopes_across(&x, job, row, e, count, m.gradients,
                    job->by_source ? m.values : m.scores,
                    job->by_source ? 0 : fresh, graded->att);
      continue;
    }
    const scalar *g = m.gradients;
    if (job->op == DFGNN_OP_AGNN) {
      divide_across(&x, job, e, count, g, m.more);
      g = m.more;
    }
    add_across(&x, &s->scores, row, e, count, g, ones, fresh, scale, m.scores,
               last);
  }
  return 1;
}
