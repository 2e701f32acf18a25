/* heads_forward.h - scores, softmax and sums of values for all heads of a row
 * at once; a part of kernels.c.  See heads.h. */

/* ---- scores -------------------------------------------------------------- */

/* AGNN: turns products into scores, which are scaled cosines; leaves the
 * inverse norms of the gathered rows in z, unless that is s. */
CPU_INLINE void cosines_across(const across *x, const dfgnn_cpu_job *job,
                               int64_t row, int64_t begin, int64_t count,
                               scalar *s, scalar *z) {
  const scalar *inverse = (const scalar *)job->own_inverse;
  const vec scale = v_set((scalar)job->scale);
  scalar factor[DFGNN_CPU_MOST_HEADS + VECTOR];
  int64_t at[VECTOR];
  if (inverse) {
    inverse += row * x->heads;
  } else {
    const scalar *own = features(&job->query, row, 0);
    own_products(x, own, own, factor);
    invert_norms(x, factor);
    inverse = factor;
  }
  for (int64_t h = 0; h < x->places; h += VECTOR)
    v_store(factor + h, v_mul(scale, together(x, load_heads(x, inverse, h))));
  for (int64_t e = 0; e < count; e += x->edges) {
    rows_of(x, job->indices + begin + e, count - e, x->heads, at);
    for (int64_t h = 0; h < x->places; h += VECTOR) {
      const int64_t i = e * x->places + h;
      const vec f = gather_heads(x, job->inverse, at, count - e, h);
      if (z != s)
        v_store(z + i, f);
      v_store(s + i, v_mul(v_load(s + i), v_mul(f, v_load(factor + h))));
    }
  }
}

/* GAT: the sums of the scores of both ends, and of the edge. */
CPU_INLINE void arguments_across(const across *x, const dfgnn_cpu_job *job,
                                 int64_t row, int64_t begin, int64_t count,
                                 scalar *s) {
  const scalar *own = (const scalar *)job->score_dst + row * x->heads;
  int64_t at[VECTOR], among[VECTOR];
  for (int64_t e = 0; e < count; e += x->edges) {
    rows_of(x, job->indices + begin + e, count - e, x->heads, at);
    if (job->score_edge)
      edges_of(x, job, begin + e, count - e, among);
    for (int64_t h = 0; h < x->places; h += VECTOR) {
      vec sum = v_add(together(x, load_heads(x, own, h)),
                      gather_heads(x, job->score_src, at, count - e, h));
      if (job->score_edge)
        sum = v_add(sum, gather_heads(x, job->score_edge, among, count - e, h));
      v_store(s + e * x->places + h, sum);
    }
  }
}

CPU_INLINE void bias_across(const across *x, const dfgnn_cpu_job *job,
                            int64_t begin, int64_t count, scalar *s) {
  int64_t at[VECTOR];
  for (int64_t e = 0; e < count; e += x->edges) {
    edges_of(x, job, begin + e, count - e, at);
    for (int64_t h = 0; h < x->places; h += VECTOR) {
      scalar *to = s + e * x->places + h;
      v_store(to,
              v_add(v_load(to), gather_heads(x, job->bias, at, count - e, h)));
    }
  }
}

/* Computes the scores of edges, whose parts are added to keys unless they are
 * NULL; GAT leaves what leaky ReLU is of in z, AGNN the inverse norms of the
 * gathered rows, unless z is s. */
static CPU_TARGET void scores_across(const across *x, const dfgnn_cpu_job *job,
                                     int64_t row, int64_t begin, int64_t count,
                                     const scalar *parts, scalar *s,
                                     scalar *z) {
  int64_t numbers = count * x->places;
  vec slope = v_set((scalar)job->slope);
  if (job->op == DFGNN_OP_GAT) {
    arguments_across(x, job, row, begin, count, z);
    for (int64_t i = 0; i < numbers; i += VECTOR)
      v_store(s + i, v_leaky(v_load(z + i), slope));
  } else {
    products_across(x, job, row, begin, count, s, job->op, parts);
  }
  if (job->op == DFGNN_OP_GT && job->scale != 1)
    scale_by(s, numbers, (scalar)job->scale);
  if (job->op == DFGNN_OP_AGNN)
    cosines_across(x, job, row, begin, count, s, z);
  if (job->bias)
    bias_across(x, job, begin, count, s);
}

/* ---- softmax ------------------------------------------------------------- */

/* Calls f(i) with the numbers of a vector of heads, of all edges. */
#define ALONG(q, period, numbers, f)                                           \
  for (int64_t i = (q); i < (numbers); i += (period)) {                        \
    f;                                                                         \
  }

/* Finds the highest scores of heads: m->top [period]. */
CPU_INLINE void find_tops(const across *x, const across_memory *m,
                          int64_t numbers) {
  scalar *s = m->scores;
  fill_last(s, numbers, -INFINITY);
  for (int64_t q = 0; q < x->period; q += VECTOR) {
    vec top = v_set(-INFINITY);
    ALONG(q, x->period, numbers, top = v_max(v_load(s + i), top))
    for (int64_t step = x->places; step < VECTOR; step *= 2)
      top = v_max(top, v_turn(top, step));
    v_store(m->top + q, top);
  }
}

/* Replaces scores by e^(score - top), and sums them: m->total [period]. */
CPU_INLINE void exponentials(const across *x, const across_memory *m,
                             int64_t numbers) {
  const vec least = v_set(LOWEST), minus = v_set(-1);
  scalar *s = m->scores;
  for (int64_t q = 0; q < x->period; q += VECTOR) {
    vec sum = v_zero();
    vec shift = v_mul(v_max(v_load(m->top + q), least), minus);
    ALONG(q, x->period, numbers, vec p = v_exp(v_add(v_load(s + i), shift));
          sum = v_add(sum, p); v_store(s + i, p))
    v_store(m->total + q, together(x, sum));
  }
}

/* Replaces the scores of `count` edges by e^(score - shift), updates the states
 * of the heads, and finds the factors of what was summed before. */
static CPU_TARGET void weigh_across(const across *x, const across_memory *m,
                                    int64_t count, dfgnn_cpu_softmax *states) {
  int64_t numbers = count * x->places;
  find_tops(x, m, numbers);
  for (int64_t h = 0; h < x->heads; h++) {
    scalar old = (scalar)states[h].shift;
    m->top[h] = m->top[h] > old ? m->top[h] : old;
  }
  for (int64_t i = x->places; i < x->period; i++)
    m->top[i] = m->top[i & (x->places - 1)];
  exponentials(x, m, numbers);
  for (int64_t h = 0; h < x->heads; h++) {
    double old = states[h].shift, new = (double)m->top[h], factor = 1;
    if (old != new)
      factor = old == -INFINITY ? 0 : exp(old - new);
    states[h].shift = new;
    states[h].sum = states[h].sum * factor + (double)m->total[h];
    m->factors[h] = (scalar)factor;
  }
}

static CPU_TARGET void drop_across(const across *x, const dfgnn_cpu_job *job,
                                   int64_t begin, int64_t count, scalar *s) {
  const uint32_t threshold = job->drop_threshold;
  scalar kept = (scalar)job->drop_scale;
  for (int64_t e = 0; e < count; e++) {
    int64_t drawn = dfgnn__cpu_drawn(job, begin + e);
    scalar *w = s + e * x->places;
    for (int64_t h = 0; h < x->heads; h += 2) {
      uint64_t word =
          dfgnn__dropout_word(job->drop_key, drawn, x->heads, h / 2);
      w[h] *= (uint32_t)(word >> 32) < threshold ? 0 : kept;
      if (h + 1 < x->heads)
        w[h + 1] *= (uint32_t)word < threshold ? 0 : kept;
    }
  }
}

static CPU_TARGET void keep_across(const across *x, scalar *to, const scalar *s,
                                   int64_t count) {
  if (x->places == x->heads) {
    memcpy(to, s, (size_t)(count * x->heads) * sizeof *s);
    return;
  }
  for (int64_t e = 0; e < count; e++)
    store_heads(x, to + e * x->heads, s + e * x->places);
}

/* ---- weighted sums ------------------------------------------------------- */

typedef struct gather_across {
  const across *x;
  const dfgnn_cpu_tensor *from;
  const int32_t *index;
  int64_t count, ahead, prefetch;
  const scalar *weights; /* [count, places] */
  int carries;           /* is the sum so far added? */
  const scalar *before;  /* [heads], of the sum so far; NULL: 1 */
  const scalar *after;   /* [heads], if out is not NULL; NULL: factor */
  scalar factor;
  scalar *sum;
  scalar *out; /* NULL: to sum */
  int careful; /* is a row whose weight is 0 left out, since 0 times an infinity
                * is NaN? */
  const scalar *parts; /* of edges, added to rows, or NULL */
} gather_across;

/* The vectors of a head: VECTOR features or fewer, or a number of vectors that
 * is known (1, 2, 4) or not. */
enum { NARROW = 0, ANY = -1 };

/* The heads that the vectors of a panel of features belong to: at is a head, or
 * the first of a vector of heads of which `lanes` are these. */
typedef struct owners {
  int64_t at[8];
  lanes lanes[8];
} owners;

CPU_INLINE owners owners_of(const across *x, int64_t d, const int width,
                            const int vectors) {
  owners o;
  CPU_EACH(i, width) {
    int64_t number = d / VECTOR + i;
    o.lanes[i] = x->owners[0];
    if (vectors == NARROW) {
      o.at[i] = number / x->dim * VECTOR;
      o.lanes[i] = x->owners[number % x->dim];
    } else if (i == 0 || vectors == ANY) {
      o.at[i] = (d + i * VECTOR) / x->dim;
    }
  }
  return o;
}

/* The numbers of the heads that the i-th vector of features belongs to. */
CPU_INLINE vec of_heads(const scalar *numbers, const owners *o, int i,
                        const int vectors) {
  if (vectors == NARROW)
    return v_pick(v_load(numbers + o->at[i]), o->lanes[i]);
  return v_set(numbers[vectors == ANY ? o->at[i] : o->at[0] + i / vectors]);
}

/* The same of the numbers [edges, places] of edge e, the edges in turn.  A
 * vector that has several edges is loaded as it was stored, which a load across
 * two stores would wait for, and is kept for them in `held`. */
CPU_INLINE vec of_edge(const across *x, const scalar *numbers, int64_t e,
                       const owners *o, int i, const int vectors, vec *held) {
  if (vectors != NARROW || x->places >= VECTOR)
    return of_heads(numbers, o, i, vectors);
  if (i == 0)
    *held = e & (x->edges - 1) ? v_turn(*held, x->places) : v_load(numbers);
  return v_pick(*held, o->lanes[i]);
}

CPU_INLINE void panel_across(const gather_across *g, int64_t d, const int width,
                             const int vectors, const int edges) {
  const across *x = g->x;
  const scalar *part = g->parts ? g->parts + d : NULL;
  const int64_t stride = g->from->node, places = x->places, count = g->count;
  const int64_t ahead = d == 0 ? g->ahead : 0;
  const char *base = g->from->base + d * (int64_t)sizeof(scalar);
  const int32_t *index = g->index;
  const scalar *w = g->weights;
  const owners o = owners_of(x, d, width, vectors);
  vec a[8], held = v_zero();
  CPU_EACH(i, width) { a[i] = v_zero(); }
  for (int64_t e = 0; e < count; e++, w += places) {
    const scalar *v = row_at(base, index[e], stride);
    if (e < ahead)
      prefetch_row(g->from->base, index[e + g->prefetch], stride,
                   x->row * (int64_t)sizeof(scalar));
    CPU_EACH(i, width) {
      vec weight = of_edge(x, w, e, &o, i, vectors, &held);
      vec y = v_load(v + i * VECTOR);
      if (edges && part)
        y = v_add(y, v_load(part + i * VECTOR));
      if (edges && g->careful)
        y = v_unless_zero(weight, y);
      a[i] = v_fma(weight, y, a[i]);
    }
    if (edges && part)
      part += x->row;
  }
  CPU_EACH(i, width) {
    int64_t at = d + i * VECTOR;
    if (g->carries && g->before)
      a[i] =
          v_fma(of_heads(g->before, &o, i, vectors), v_load(g->sum + at), a[i]);
    else if (g->carries)
      a[i] = v_add(v_load(g->sum + at), a[i]);
    if (g->out)
      v_store(g->out + at,
              v_mul(a[i], g->after ? of_heads(g->after, &o, i, vectors)
                                   : v_set(g->factor)));
    else
      v_store(g->sum + at, a[i]);
  }
}

/* Sums panels of 8 vectors and 4; returns where the rest begins. */
CPU_INLINE int64_t panels_across(const gather_across *g, const int vectors,
                                 const int edges) {
  int64_t d = 0, row = g->x->row;
  for (; d + 8 * VECTOR <= row; d += 8 * VECTOR)
    panel_across(g, d, 8, vectors, edges);
  if (d + 4 * VECTOR <= row) {
    panel_across(g, d, 4, vectors, edges);
    d += 4 * VECTOR;
  }
  return d;
}

/* Sums the vectors from d on, one at a time. */
CPU_INLINE void rest_across(const gather_across *g, int64_t d,
                            const int edges) {
  for (; d + VECTOR <= g->x->row; d += VECTOR)
    if (g->x->dim < VECTOR)
      panel_across(g, d, 1, NARROW, edges);
    else
      panel_across(g, d, 1, ANY, edges);
}

/* Calls f(vectors) with a constant. */
#define BY_VECTORS(x, f)                                                       \
  do {                                                                         \
    if ((x)->dim < VECTOR)                                                     \
      f(NARROW);                                                               \
    else if ((x)->depth == 1)                                                  \
      f(1);                                                                    \
    else if ((x)->depth == 2)                                                  \
      f(2);                                                                    \
    else if (VECTOR < DFGNN_CPU_NARROW_DIM / 2 && (x)->depth == 4)             \
      f(4);                                                                    \
    else                                                                       \
      f(ANY);                                                                  \
  } while (0)

#define PANELS(vectors) d = panels_across(g, vectors, 0)
static CPU_TARGET void accumulate_across(const gather_across *g) {
  int64_t d;
  if (g->careful || g->parts) {
    d = g->x->dim < VECTOR ? panels_across(g, NARROW, 1)
                           : panels_across(g, ANY, 1);
    rest_across(g, d, 1);
  } else {
    BY_VECTORS(g->x, PANELS);
    rest_across(g, d, 0);
  }
}

/* ---- a row --------------------------------------------------------------- */

/* Writes the log-sum-exps of a row, and the factors of its heads; returns 1 if
 * none is 0. */
CPU_INLINE int finish_across(const across *x, const dfgnn_cpu_job *job,
                             int64_t row, const dfgnn_cpu_softmax *states,
                             scalar *after) {
  int all = 1;
  for (int64_t h = 0; h < x->heads; h++) {
    after[h] = (scalar)dfgnn__cpu_finish(job, row, h, &states[h]);
    all &= after[h] != 0;
  }
  return all;
}

/* The same of a row whose scores were weighed in one piece; returns 0, and
 * nothing is written, if some sum is 0. */
CPU_INLINE int finish_whole(const across *x, const dfgnn_cpu_job *job,
                            int64_t row, const across_memory *m,
                            scalar *after) {
  const vec one = v_set(1), minus = v_set(-1);
  vec least = v_set(-INFINITY);
  scalar *lse = job->lse;
  for (int64_t q = 0; q < x->period; q += VECTOR)
    least = v_max(v_mul(v_load(m->total + q), minus), least);
  if (!(v_top(least) < 0))
    return 0;
  for (int64_t q = 0; q < x->period; q += VECTOR) {
    const vec total = v_load(m->total + q);
    v_store(m->total + q, v_add(v_load(m->top + q), v_log(total)));
    v_store(after + q, v_div(one, total));
  }
  if (lse)
    store_heads(x, lse + row * x->heads, m->total);
  return 1;
}

CPU_INLINE void weigh_row(const across *x, const dfgnn_cpu_job *job,
                          int64_t row, const across_memory *m, int64_t begin,
                          int64_t end, dfgnn_cpu_softmax *states, int *all) {
  int64_t count = end - begin;
  find_tops(x, m, count * x->places);
  exponentials(x, m, count * x->places);
  if (!job->weights && finish_whole(x, job, row, m, m->top)) {
    *all = 1;
    return;
  }
  for (int64_t h = 0; h < x->heads; h++)
    states[h] = (dfgnn_cpu_softmax){(double)m->top[h], (double)m->total[h]};
  *all = finish_across(x, job, row, states, m->top);
}

CPU_INLINE void attend_row(const across *x, const dfgnn_cpu_job *job,
                           int64_t row, const across_memory *m, window *w) {
  int64_t begin = dfgnn__cpu_offset(job, row);
  int64_t end = dfgnn__cpu_offset(job, row + 1);
  dfgnn_cpu_softmax states[DFGNN_CPU_MOST_HEADS];
  const int whole = end - begin <= x->chunk;
  scalar *after = m->top;
  int all = 0;
  for (int64_t h = 0; (!whole || begin == end) && h < x->heads; h++)
    states[h] = (dfgnn_cpu_softmax)DFGNN_CPU_SOFTMAX_INIT;
  for (int64_t e = begin, count; e < end; e += count) {
    count = chunk_at(x, job, w, row, e, end);
    const scalar *parts = parts_at(w, x, e);
    scores_across(x, job, row, e, count, parts && w->term->keys ? parts : NULL,
                  m->scores, m->scores);
    if (job->weights)
      keep_across(x, (scalar *)job->weights + e * x->heads, m->scores, count);
    if (whole)
      weigh_row(x, job, row, m, begin, end, states, &all);
    else
      weigh_across(x, m, count, states);
    if (job->drops)
      drop_across(x, job, e, count, m->scores);
    if (!whole && e + count == end)
      all = finish_across(x, job, row, states, after);
    const gather_across g = {
        .x = x,
        .from = &job->value,
        .index = job->indices + e,
        .count = count,
        .ahead = job->prefetch ? job->edges - job->prefetch - e : 0,
        .prefetch = job->prefetch,
        .weights = m->scores,
        .carries = e != begin,
        .before = m->factors,
        .after = after,
        .sum = m->sum,
        .careful = parts && job->drops && job->term->careful,
        .parts = parts && w->term->values ? parts : NULL,
        .out = !all               ? NULL
               : writes_rows(job) ? (scalar *)features(&job->out, row, 0)
               : closes_rows(job) ? m->sum
                                  : NULL};
    accumulate_across(&g);
    if (e + count == end && g.out == m->sum)
      close_row(&x->padding, (scalar *)features(&job->out, row, 0), m->sum,
                x->row, v_set(1));
    for (int64_t h = 0; e + count == end && !g.out && h < x->heads; h++)
      if (after[h] != 0)
        store(job, row, h, m->sum + h * x->dim, (double)after[h]);
  }
  if (begin == end)
    finish_across(x, job, row, states, after);
  for (int64_t h = 0; job->weights && h < x->heads; h++)
    dfgnn__cpu_normalize(job, h, begin, end, &states[h]);
}

static CPU_TARGET void attend(const dfgnn_cpu_job *job, int64_t begin,
                              int64_t end, void *memory) {
  const across x = across_of(job);
  const across_memory m = memory_of(&x, memory);
  window w = window_of(&x, job, end, m.sum + x.row + VECTOR);
  for (int64_t row = begin; row < end; row++)
    attend_row(&x, job, row, &m, &w);
}
