/* heads.h - attention for all heads of a row at once, for one instruction set
 * and storage type; a part of kernels.c
 *
 * Where heads are narrow, what is done once an edge and head costs more than
 * the products.  Here vectors lie along the heads: the numbers of a chunk of
 * edges are [edges, places], where places are the heads, rounded up to a
 * divisor or a multiple of VECTOR.  A vector has the heads of several edges if
 * these are few.  The sums of the products of many heads come from adding
 * neighbours in pairs of vectors, which needs no sum of one vector. */

enum { ACROSS_EDGES = 64 }; /* of a chunk, or fewer if heads are many */

typedef struct across {
  int64_t heads, dim, row; /* row: heads x dim */
  int64_t places;
  int64_t period; /* numbers after which the heads repeat in vectors */
  int64_t edges;  /* of a vector */
  int64_t chunk;  /* edges */
  /* A vector of sums comes from `group` sums of vectors, of `width` features
   * each; an edge has `real` such sums.  Of the group's, the j-th belongs to
   * the edge j >> shift, and is the (j & mask)-th of it. */
  int64_t group, width, real, mask;
  int shift;
} across;

/* The memory of a row, DFGNN_CPU_ACROSS_BYTES at most. */
typedef struct across_memory {
  scalar *scores;      /* [chunk, places] */
  scalar *factors;     /* [period]: of the sums before a chunk, of the whole */
  scalar *top, *total; /* [period] */
  scalar *sum;         /* [row] */
} across_memory;

CPU_INLINE across across_of(const dfgnn_cpu_job *job) {
  across x = {.heads = job->heads, .dim = job->dim};
  x.row = x.heads * x.dim;
  x.places = (x.heads + VECTOR - 1) / VECTOR * VECTOR;
  for (int64_t p = VECTOR / 2; p >= x.heads; p /= 2)
    x.places = p;
  x.period = x.places < VECTOR ? VECTOR : x.places;
  x.edges = x.places < VECTOR ? VECTOR / x.places : 1;
  x.chunk = DFGNN_CPU_ACROSS / x.places;
  x.chunk = x.chunk < ACROSS_EDGES ? x.chunk : ACROSS_EDGES;
  x.group = x.dim < VECTOR ? x.dim : VECTOR;
  x.width = x.dim < VECTOR ? VECTOR : x.dim;
  x.real = x.row / x.width;
  x.mask = -1;
  x.shift = 31;
  if (x.edges > 1) {
    x.mask = x.group / x.edges - 1;
    x.shift = __builtin_ctzll((unsigned long long)(x.group / x.edges));
  }
  return x;
}

CPU_INLINE across_memory memory_of(const across *x, void *memory) {
  across_memory m = {.scores = memory};
  m.factors = m.scores + x->chunk * x->places + VECTOR;
  m.top = m.factors + x->period + VECTOR;
  m.total = m.top + x->period + VECTOR;
  m.sum = m.total + x->period + VECTOR;
  return m;
}

CPU_INLINE int adjacent_heads(const dfgnn_cpu_job *job,
                              const dfgnn_cpu_tensor *t) {
  return t->head == job->dim * (int64_t)sizeof(storage);
}

/* Are a job's scores better computed for all heads at once, and can they be? */
CPU_INLINE int spans_heads(const dfgnn_cpu_job *job) {
  int64_t dim = job->dim, row = job->heads * dim;
  int whole = dim % VECTOR == 0 || (VECTOR % dim == 0 && row % VECTOR == 0);
  return job->heads > 1 && job->heads <= DFGNN_CPU_MOST_HEADS && dim <= 32 &&
         whole && job->packed &&
         (job->op == DFGNN_OP_GAT ||
          (adjacent_heads(job, &job->key) && adjacent_heads(job, &job->query)));
}

static CPU_TARGET int attends_heads(const dfgnn_cpu_job *job) {
  return spans_heads(job) && !job->out_adds && adjacent_heads(job, &job->value);
}

/* ---- scores -------------------------------------------------------------- */

/* The sums of a group of products: an own row with the rows of x->edges edges,
 * from the sum `first` of each on. */
CPU_INLINE vec group_sums(const across *x, const storage *own,
                          const storage *att, const storage *const *far,
                          int64_t first, vec slope, const int group,
                          const int op) {
  const storage *k[VECTOR];
  int64_t at[VECTOR];
  vec a[16]; /* of which some are never reached */
  CPU_EACH(j, group) {
    int64_t i = first + (j & x->mask);
    at[j] = (i < x->real ? i : 0) * x->width; /* what rounds up is not read */
    k[j] = far[j >> x->shift] + at[j];
    a[j] = v_zero();
  }
  for (int64_t d = 0; d < x->width; d += VECTOR)
    CPU_EACH(j, group) {
      vec q = v_load(own + at[j] + d), y = v_load(k[j] + d), w = q;
      if (op == DFGNN_OP_GATV2) {
        y = v_leaky(v_add(q, y), slope);
        w = v_load(att + at[j] + d);
      }
      a[j] = v_fma(w, y, a[j]);
    }
#define HALVE(n)                                                               \
  if (group >= 2 * n)                                                          \
    CPU_EACH(j, n) { a[j] = v_pairs(a[2 * j], a[2 * j + 1]); }
  HALVE(8)
  HALVE(4)
  HALVE(2)
  HALVE(1)
#undef HALVE
  return a[0];
}

/* Computes the products of an own row with the rows of `count` edges. */
CPU_INLINE void gather_sums(const across *x, const dfgnn_cpu_job *job,
                            const storage *own, const storage *att,
                            const int32_t *index, int64_t count, int64_t ahead,
                            scalar *to, const int group, const int op) {
  int64_t stride = job->key.node;
  vec slope = v_set((scalar)job->slope);
  const storage *far[VECTOR];
  for (int64_t e = 0; e < count; e += x->edges) {
    for (int64_t u = 0; u < x->edges; u++) {
      far[u] = row_at(job->key.base, index[e + u < count ? e + u : e], stride);
      if (e + u < ahead)
        prefetch_row(job->key.base, index[e + u + job->prefetch], stride,
                     x->row * (int64_t)sizeof(storage));
    }
    for (int64_t p = 0; p < x->places; p += VECTOR)
      s_store(
          to + e * x->places + p,
          group_sums(x, own, att, far, p / VECTOR * group, slope, group, op));
  }
}

CPU_INLINE void sums_of(const across *x, const dfgnn_cpu_job *job,
                        const storage *own, const storage *att,
                        const int32_t *index, int64_t count, int64_t ahead,
                        scalar *to, const int op) {
#define CASE(n)                                                                \
  case n:                                                                      \
    if (n <= VECTOR)                                                           \
      gather_sums(x, job, own, att, index, count, ahead, to, n, op);           \
    break
  switch (x->group) {
    CASE(1);
    CASE(2);
    CASE(4);
    CASE(8);
    CASE(16);
  }
#undef CASE
}

/* AGNN: turns products into scores, which are scaled cosines. */
CPU_INLINE void cosines_across(const across *x, const dfgnn_cpu_job *job,
                               const storage *own, const int32_t *index,
                               int64_t count, scalar *s, scalar *factor) {
  dfgnn_cpu_job self = {.key = {.base = (char *)own}};
  const int32_t itself[1] = {0};
  sums_of(x, &self, own, NULL, itself, 1, 0, factor, DFGNN_OP_AGNN);
  for (int64_t h = 0; h < x->heads; h++) {
    double norm = sqrt((double)factor[h]);
    factor[h] = (scalar)(job->scale / (norm < 1e-12 ? 1e-12 : norm));
  }
  const scalar *inverse = job->inverse;
  for (int64_t e = 0; e < count; e++)
    for (int64_t h = 0; h < x->heads; h += VECTOR) {
      int64_t left = x->heads - h;
      tail t = v_tail(left < VECTOR ? left : VECTOR);
      scalar *at = s + e * x->places + h;
      vec f = v_mul(s_load(factor + h),
                    s_load_tail(inverse + index[e] * x->heads + h, t));
      s_store_tail(at, v_mul(s_load_tail(at, t), f), t);
    }
}

/* GAT: the sums of the scores of both ends, and of the edge. */
CPU_INLINE void arguments_across(const across *x, const dfgnn_cpu_job *job,
                                 int64_t row, int64_t begin, int64_t count,
                                 scalar *s) {
  const scalar *source = job->score_src, *edges = job->score_edge;
  const scalar *own = (const scalar *)job->score_dst + row * x->heads;
  for (int64_t e = 0; e < count; e++) {
    int64_t j = job->indices[begin + e] * x->heads;
    int64_t number = edges ? dfgnn__cpu_number(job, begin + e) * x->heads : 0;
    for (int64_t h = 0; h < x->places; h += VECTOR) {
      int64_t left = x->heads - h;
      tail t = v_tail(left < VECTOR ? left : VECTOR);
      vec sum = v_add(s_load_tail(own + h, t), s_load_tail(source + j + h, t));
      if (edges)
        sum = v_add(sum, s_load_tail(edges + number + h, t));
      s_store(s + e * x->places + h, sum); /* the next edge comes after it */
    }
  }
}

static CPU_TARGET void scores_across(const across *x, const dfgnn_cpu_job *job,
                                     int64_t row, int64_t begin, int64_t count,
                                     scalar *s, scalar *factor) {
  const storage *own = features(&job->query, row, 0), *att = job->att;
  const int32_t *index = job->indices + begin;
  const scalar *bias = job->bias;
  int64_t ahead = job->prefetch ? job->edges - job->prefetch - begin : 0;
  int64_t numbers = count * x->places;
  vec slope = v_set((scalar)job->slope);
  switch (job->op) {
  case DFGNN_OP_GAT:
    arguments_across(x, job, row, begin, count, s);
    for (int64_t i = 0; i < numbers; i += VECTOR)
      s_store(s + i, v_leaky(s_load(s + i), slope));
    break;
  case DFGNN_OP_GATV2:
    sums_of(x, job, own, att, index, count, ahead, s, DFGNN_OP_GATV2);
    break;
  default:
    sums_of(x, job, own, att, index, count, ahead, s, DFGNN_OP_GT);
  }
  if (job->op == DFGNN_OP_GT && job->scale != 1)
    scale_by(s, numbers, (scalar)job->scale);
  if (job->op == DFGNN_OP_AGNN)
    cosines_across(x, job, own, index, count, s, factor);
  for (int64_t e = 0; bias && e < count; e++) {
    int64_t at = dfgnn__cpu_number(job, begin + e) * x->heads;
    for (int64_t h = 0; h < x->heads; h++)
      s[e * x->places + h] += bias[at + h];
  }
}

/* ---- softmax ------------------------------------------------------------- */

/* Calls f(i) with the numbers of a vector of heads, of all edges. */
#define ALONG(q, period, numbers, f)                                           \
  for (int64_t i = (q); i < (numbers); i += (period)) {                        \
    f;                                                                         \
  }

/* Replaces the scores of `count` edges by e^(score - shift), updates the states
 * of the heads, and finds the factors of what was summed before. */
static CPU_TARGET void weigh_across(const across *x, const across_memory *m,
                                    int64_t count, dfgnn_cpu_softmax *states) {
  scalar *s = m->scores, *minus = m->factors, news[DFGNN_CPU_MOST_HEADS];
  int64_t numbers = count * x->places, period = x->period, places = x->places;
  for (int64_t i = numbers; i % VECTOR; i++)
    s[i] = -INFINITY;
  for (int64_t q = 0; q < period; q += VECTOR) {
    vec top = v_set(-INFINITY);
    ALONG(q, period, numbers, top = v_max(s_load(s + i), top))
    s_store(m->top + q, top);
  }
  for (int64_t i = places; i < period; i++) {
    int64_t h = i & (places - 1);
    m->top[h] = m->top[i] > m->top[h] ? m->top[i] : m->top[h];
  }
  for (int64_t h = 0; h < places; h++) {
    scalar old = h < x->heads ? (scalar)states[h].shift : -INFINITY;
    scalar new = m->top[h] > old ? m->top[h] : old;
    if (h < x->heads)
      news[h] = new;
    minus[h] = new == -INFINITY ? 0 : -new;
  }
  for (int64_t i = places; i < period; i++)
    minus[i] = minus[i & (places - 1)];
  for (int64_t q = 0; q < period; q += VECTOR) {
    vec shift = s_load(minus + q), sum = v_zero();
    ALONG(q, period, numbers, vec p = v_exp(v_add(s_load(s + i), shift));
          sum = v_add(sum, p); s_store(s + i, p))
    s_store(m->total + q, sum);
  }
  for (int64_t i = places; i < period; i++)
    m->total[i & (places - 1)] += m->total[i];
  for (int64_t h = 0; h < x->heads; h++) {
    double old = states[h].shift, factor = 1;
    if (old != (double)news[h])
      factor = old == -INFINITY ? 0 : exp(old - (double)news[h]);
    states[h].shift = (double)news[h];
    states[h].sum = states[h].sum * factor + (double)m->total[h];
    m->factors[h] = (scalar)factor;
  }
}

static CPU_TARGET void drop_across(const across *x, const dfgnn_cpu_job *job,
                                   int64_t begin, int64_t count, scalar *s) {
  scalar kept = (scalar)job->drop_scale;
  for (int64_t e = 0; e < count; e++) {
    int64_t drawn = dfgnn__cpu_drawn(job, begin + e);
    for (int64_t h = 0; h < x->heads; h++)
      s[e * x->places + h] *=
          dfgnn__dropped(job->drop_key, drawn, x->heads, h, job->drop_threshold)
              ? 0
              : kept;
  }
}

static CPU_TARGET void keep_across(const across *x, scalar *to, const scalar *s,
                                   int64_t count) {
  for (int64_t e = 0; e < count; e++)
    for (int64_t h = 0; h < x->heads; h++)
      to[e * x->heads + h] = s[e * x->places + h];
}

/* ---- weighted sums ------------------------------------------------------- */

typedef struct gather_across {
  const across *x;
  const dfgnn_cpu_tensor *from;
  const int32_t *index;
  int64_t count, ahead, prefetch;
  const scalar *weights; /* [count, places] */
  const scalar *before;  /* [heads], of the sum so far; NULL: it begins */
  const scalar *after;   /* [heads], if out is not NULL */
  scalar *sum;
  storage *out; /* NULL: to sum */
} gather_across;

/* The numbers of the heads that a vector of features from d on belongs to. */
CPU_INLINE vec of_heads(const scalar *numbers, int64_t head, lanes l,
                        const int narrow) {
  return narrow ? v_spread(numbers + head, l) : v_set(numbers[head]);
}

CPU_INLINE void panel_across(const gather_across *g, int64_t d, lanes l,
                             const int width, const int narrow) {
  const across *x = g->x;
  const int64_t stride = g->from->node, places = x->places;
  const int64_t ahead = d == 0 ? g->ahead : 0;
  const char *base = g->from->base + d * (int64_t)sizeof(storage);
  int64_t head[8];
  vec a[8];
  CPU_EACH(i, width) {
    a[i] = v_zero();
    head[i] = (d + i * VECTOR) / x->dim;
  }
  for (int64_t e = 0; e < g->count; e++) {
    const storage *v = row_at(base, g->index[e], stride);
    const scalar *w = g->weights + e * places;
    if (e < ahead)
      prefetch_row(g->from->base, g->index[e + g->prefetch], stride,
                   x->row * (int64_t)sizeof(storage));
    CPU_EACH(i, width) {
      a[i] =
          v_fma(of_heads(w, head[i], l, narrow), v_load(v + i * VECTOR), a[i]);
    }
  }
  CPU_EACH(i, width) {
    int64_t at = d + i * VECTOR;
    if (g->before)
      a[i] = v_fma(of_heads(g->before, head[i], l, narrow), s_load(g->sum + at),
                   a[i]);
    if (g->out)
      v_store(g->out + at, v_mul(a[i], of_heads(g->after, head[i], l, narrow)));
    else
      s_store(g->sum + at, a[i]);
  }
}

CPU_INLINE void panels_across(const gather_across *g, const int narrow) {
  int64_t d = 0, row = g->x->row;
  lanes l = v_lanes(g->x->dim);
  for (; d + 8 * VECTOR <= row; d += 8 * VECTOR)
    panel_across(g, d, l, 8, narrow);
  if (d + 4 * VECTOR <= row) {
    panel_across(g, d, l, 4, narrow);
    d += 4 * VECTOR;
  }
  if (d + 2 * VECTOR <= row) {
    panel_across(g, d, l, 2, narrow);
    d += 2 * VECTOR;
  }
  if (d + VECTOR <= row)
    panel_across(g, d, l, 1, narrow);
}

static CPU_TARGET void accumulate_across(const gather_across *g) {
  if (g->x->dim < VECTOR)
    panels_across(g, 1);
  else
    panels_across(g, 0);
}

/* ---- a row --------------------------------------------------------------- */

/* Writes the log-sum-exps of a row, and the factors of its heads; returns 1 if
 * none is 0. */
static CPU_TARGET int finish_across(const across *x, const dfgnn_cpu_job *job,
                                    int64_t row,
                                    const dfgnn_cpu_softmax *states,
                                    scalar *after) {
  int all = 1;
  for (int64_t h = 0; h < x->heads; h++) {
    double sum = states[h].sum;
    after[h] = (scalar)(sum != 0 && !job->lse
                            ? 1 / sum
                            : dfgnn__cpu_finish(job, row, h, &states[h]));
    all &= after[h] != 0;
  }
  return all;
}

CPU_INLINE void attend_row(const across *x, const dfgnn_cpu_job *job,
                           int64_t row, const across_memory *m) {
  int64_t begin = dfgnn__cpu_offset(job, row);
  int64_t end = dfgnn__cpu_offset(job, row + 1);
  dfgnn_cpu_softmax states[DFGNN_CPU_MOST_HEADS];
  scalar *after = m->top;
  int all = 0;
  for (int64_t h = 0; h < x->heads; h++)
    states[h] = (dfgnn_cpu_softmax)DFGNN_CPU_SOFTMAX_INIT;
  for (int64_t e = begin; e < end; e += x->chunk) {
    int64_t count = end - e < x->chunk ? end - e : x->chunk;
    scores_across(x, job, row, e, count, m->scores, m->factors);
    if (job->weights)
      keep_across(x, (scalar *)job->weights + e * x->heads, m->scores, count);
    weigh_across(x, m, count, states);
    if (job->drops)
      drop_across(x, job, e, count, m->scores);
    if (e + count == end)
      all = finish_across(x, job, row, states, after);
    const gather_across g = {
        .x = x,
        .from = &job->value,
        .index = job->indices + e,
        .count = count,
        .ahead = job->prefetch ? job->edges - job->prefetch - e : 0,
        .prefetch = job->prefetch,
        .weights = m->scores,
        .before = e == begin ? NULL : m->factors,
        .after = after,
        .sum = m->sum,
        .out = all && job->out_packed && adjacent_heads(job, &job->out)
                   ? (storage *)features(&job->out, row, 0)
                   : NULL};
    accumulate_across(&g);
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
  for (int64_t row = begin; row < end; row++)
    attend_row(&x, job, row, &m);
}
