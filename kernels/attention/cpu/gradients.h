/* gradients.h - the inner loops of backward attention for one instruction
 * set and storage type; a part of kernels.c
 *
 * The gradient of a score is
 *
 *   dS = P (r <grad_out, value> - <grad_out, out> + grad_lse)
 *
 * where P = exp(score - lse) and r is the factor of dropout.  lse, grad_lse and
 * <grad_out, out> belong to the graph's destinations, which are the own rows of
 * a walk over rows and are gathered in a walk over columns. */

/* ---- terms of edges ------------------------------------------------------ */

/* The end of a node and head; delta is <grad_out, out>. */
CPU_INLINE void set_end(const dfgnn_cpu_job *job, int64_t node, int64_t head,
                        scalar delta, scalar *to) {
  const scalar *lse = job->lse, *by_lse = job->grad_lse;
  const int64_t at = node * job->heads + head;
  scalar *pair = to + 2 * node * job->heads + head;
  /* exp(score - inf) = 0: a row whose sum is 0 has no weights. */
  pair[0] = lse[at] == -INFINITY ? lse[at] : -lse[at];
  pair[job->heads] = (by_lse ? by_lse[at] : 0) - delta;
}

CPU_INLINE void ends_across(const dfgnn_cpu_job *job, int64_t begin,
                            int64_t end, scalar *to) {
  const across x = across_of(job);
  scalar delta[DFGNN_CPU_MOST_HEADS + VECTOR];
  for (int64_t j = begin; j < end; j++) {
    own_products(&x, features(&job->query, j, 0), features(&job->key, j, 0),
                 delta);
    for (int64_t h = 0; h < x.heads; h++)
      set_end(job, j, h, delta[h], to);
  }
}

static CPU_TARGET void ends(const dfgnn_cpu_job *job, int64_t begin,
                            int64_t end, void *to) {
  scalar delta;
  if (spans_heads(job)) {
    ends_across(job, begin, end, to);
    return;
  }
  for (int64_t j = begin; j < end; j++)
    for (int64_t h = 0; h < job->heads; h++) {
      const scalar *x = features(&job->query, j, h);
      const scalar *y = features(&job->key, j, h);
      if (job->packed)
        products(job, x, NULL, &y, &delta, 1, DFGNN_OP_GT);
      else
        delta = strided_score(job, (const char *)x, (const char *)y, NULL,
                              DFGNN_OP_GT);
      set_end(job, j, h, delta, to);
    }
}

CPU_INLINE void gather_ends(const dfgnn_cpu_job *job, int64_t head, int64_t k,
                            int n, scalar *shift, scalar *minus) {
  const scalar *pairs = (const scalar *)job->ends + head;
  const int32_t *index = job->indices + k;
  int64_t heads = job->heads;
  for (int i = 0; i < n; i++) {
    const scalar *pair = pairs + 2 * index[i] * heads;
    shift[i] = pair[0];
    minus[i] = pair[heads];
  }
}

CPU_INLINE vec kept_of(const dfgnn_cpu_job *job, int64_t head, int64_t k,
                       int n) {
  scalar kept[VECTOR] = {0};
  for (int i = 0; i < n; i++)
    kept[i] = dfgnn__dropped(job->drop_key, dfgnn__cpu_drawn(job, k + i),
                             job->heads, head, job->drop_threshold)
                  ? 0
                  : (scalar)job->drop_scale;
  return v_load(kept);
}

static CPU_TARGET int terms(const dfgnn_cpu_job *job, int64_t row, int64_t head,
                            int64_t begin, int64_t count, void *weights,
                            void *gradients) {
  scalar *w = weights, *g = gradients;
  scalar shift[VECTOR] = {0}, minus[VECTOR] = {0};
  const scalar *own = (const scalar *)job->ends + 2 * row * job->heads + head;
  vec none = v_set(-1), top = none, r = v_set(1);
  vec s = job->by_source ? r : v_set(own[0]);
  vec m = job->by_source ? r : v_set(own[job->heads]);

  for (int64_t e = 0; e < count; e += VECTOR) {
    int n = count - e < VECTOR ? (int)(count - e) : VECTOR;
    tail t = v_tail(n);
    if (job->by_source) {
      gather_ends(job, head, begin + e, n, shift, minus);
      s = v_load(shift);
      m = v_load(minus);
    }
    if (job->drops)
      r = kept_of(job, head, begin + e, n);
    vec p = v_exp(v_add(v_load_tail(w + e, t), s));
    top = v_max(v_keep(v_mul(p, none), t, none), top);
    v_store_tail(w + e, v_mul(p, r), t);
    if (g)
      v_store_tail(g + e, v_mul(p, v_fma(r, v_load_tail(g + e, t), m)), t);
  }
  return v_top(top) == 0;
}

/* ---- terms in memory ----------------------------------------------------- */

static CPU_TARGET int fetch(const dfgnn_cpu_job *job, int64_t head,
                            int64_t begin, int64_t count,
                            const void *from_weights,
                            const void *from_gradients, void *weights,
                            void *gradients) {
  const scalar *p = (const scalar *)from_weights + head * job->edges;
  const scalar *s = (const scalar *)from_gradients + head * job->edges;
  scalar *w = weights, *g = gradients;
  int zero = 0;
  for (int64_t e = 0; e < count; e++) {
    int64_t k = dfgnn__cpu_number(job, begin + e);
    w[e] = p[k];
    g[e] = s[k];
    zero |= g[e] == 0;
  }
  return zero;
}

static CPU_TARGET void spread(const dfgnn_cpu_job *job, int64_t head,
                              int64_t begin, int64_t count,
                              const void *gradients, void *to) {
  const scalar *g = gradients;
  scalar *s = (scalar *)to + head * job->edges;
  for (int64_t e = 0; e < count; e++)
    s[dfgnn__cpu_number(job, begin + e)] = g[e];
}

static CPU_TARGET int has_zero(const void *x, int64_t count) {
  const scalar *s = x;
  int zero = 0;
  for (int64_t e = 0; e < count; e++)
    zero |= s[e] == 0;
  return zero;
}

static CPU_TARGET int64_t compact(const dfgnn_cpu_job *job, int64_t begin,
                                  int64_t count, const void *weights,
                                  const void *gradients, int32_t *to_indices,
                                  void *to_weights, void *to_gradients) {
  const scalar *w = weights, *g = gradients;
  scalar *p = to_weights, *s = to_gradients;
  int64_t n = 0;
  for (int64_t e = 0; e < count; e++) {
    scalar weight = w ? w[e] : 0, gradient = g ? g[e] : 0;
    if (weight == 0 && gradient == 0)
      continue;
    to_indices[n] = job->indices[begin + e];
    p[n] = weight;
    s[n++] = gradient;
  }
  return n;
}

/* ---- AGNN ---------------------------------------------------------------- */

static CPU_TARGET void divide(const dfgnn_cpu_job *job, int64_t head,
                              int64_t begin, int64_t count,
                              const void *gradients, void *to) {
  const scalar *inverse = (const scalar *)job->inverse + head, *g = gradients;
  scalar *x = to;
  for (int64_t e = 0; e < count; e++)
    x[e] = g[e] * inverse[job->indices[begin + e] * job->heads];
}

/* The factors that turn the sum of an AGNN row into its gradient. */
typedef struct projection {
  double total;         /* the sum of dS cos */
  scalar along, factor; /* gradient = factor * (sum - along * row) */
} projection;

CPU_INLINE projection project(const dfgnn_cpu_job *job, scalar square,
                              scalar product) {
  double norm = sqrt((double)square);
  double inverse = 1 / (norm < 1e-12 ? 1e-12 : norm);
  double total = (double)product * inverse;
  /* A norm that was raised to 1e-12 is a constant. */
  return (projection){total, norm <= 1e-12 ? 0 : (scalar)(total * inverse),
                      (scalar)(job->scale * inverse)};
}

CPU_INLINE double strided_cosine(const dfgnn_cpu_job *job, const char *x,
                                 scalar *s) {
  int64_t stride = job->query.feature;
  scalar square = 0, product = 0;
  for (int64_t d = 0; d < job->dim; d++) {
    scalar y = element(x + d * stride);
    square += y * y;
    product += y * s[d];
  }
  projection p = project(job, square, product);
  for (int64_t d = 0; d < job->dim; d++)
    s[d] = p.factor * (s[d] - p.along * element(x + d * stride));
  return p.total;
}

static CPU_TARGET double cosine(const dfgnn_cpu_job *job, int64_t row,
                                int64_t head, void *sum) {
  const scalar *x = features(&job->query, row, head);
  int64_t whole = job->dim / VECTOR * VECTOR;
  tail t = v_tail(job->dim - whole);
  scalar *s = sum;
  vec square = v_zero(), product = v_zero();
  if (!job->packed)
    return strided_cosine(job, (const char *)x, s);
  for (int64_t d = 0; d < whole; d += VECTOR) {
    vec y = v_load(x + d);
    square = v_fma(y, y, square);
    product = v_fma(y, v_load(s + d), product);
  }
  if (whole < job->dim) {
    vec y = v_load_tail(x + whole, t);
    square = v_fma(y, y, square);
    product = v_fma(y, v_load_tail(s + whole, t), product);
  }
  projection p = project(job, v_sum(square), v_sum(product));
  vec factor = v_set(p.factor), minus = v_set(-p.along);
  for (int64_t d = 0; d < whole; d += VECTOR)
    v_store(s + d, v_mul(factor, v_fma(minus, v_load(x + d), v_load(s + d))));
  if (whole < job->dim)
    v_store_tail(s + whole,
                 v_mul(factor, v_fma(minus, v_load_tail(x + whole, t),
                                     v_load_tail(s + whole, t))),
                 t);
  return p.total;
}

/* ---- GAT and GATv2 ------------------------------------------------------- */

static CPU_TARGET double additive_slopes(const dfgnn_cpu_job *job, int64_t row,
                                         int64_t head, int64_t begin,
                                         int64_t end, const void *gradients,
                                         void *edges) {
  const scalar *among = (const scalar *)job->score_edge + head;
  const scalar *source = (const scalar *)job->score_src + head;
  const scalar *g = gradients;
  const int32_t *index = job->indices;
  scalar from[VECTOR] = {0};
  vec own = v_set(((const scalar *)job->score_dst)[row * job->heads + head]);
  vec slope = v_set((scalar)job->slope), sum = v_zero();
  for (int64_t e = begin; e < end; e += VECTOR, g += VECTOR) {
    int n = end - e < VECTOR ? (int)(end - e) : VECTOR;
    for (int i = 0; i < n; i++)
      from[i] = source[index[e + i] * job->heads];
    for (int i = 0; job->score_edge && i < n; i++)
      from[i] += among[dfgnn__cpu_number(job, e + i) * job->heads];
    vec d = v_load_tail(g, v_tail(n));
    vec sloped = v_step(v_add(own, v_load(from)), d, v_mul(d, slope));
    sum = v_add(sum, sloped);
    if (!edges)
      continue;
    v_store(from, sloped);
    for (int i = 0; i < n; i++)
      ((scalar *)edges)[(e + i) * job->heads + head] = from[i];
  }
  return (double)v_sum(sum);
}

/* slopes() for `width` vectors of features from d on; the last is cut to t. */
CPU_INLINE void slope_panel(const dfgnn_cpu_job *job, const scalar *q,
                            const char *base, const scalar *att,
                            const int32_t *index, int64_t count,
                            const scalar *g, scalar *sum, scalar before,
                            scalar *att_sum, int64_t d, tail t,
                            const int width) {
  vec slope = v_set((scalar)job->slope), x[4], along[4], across[4];
  CPU_EACH(i, width) {
    x[i] = i == width - 1 ? v_load_tail(q + d + i * VECTOR, t)
                          : v_load(q + d + i * VECTOR);
    along[i] = across[i] = v_zero();
  }
  for (int64_t e = 0; e < count; e++) {
    const scalar *k = row_at(base, index[e], job->key.node) + d;
    vec above = v_set(g[e]), below = v_mul(above, slope);
    CPU_EACH(i, width) {
      vec y = i == width - 1 ? v_load_tail(k + i * VECTOR, t)
                             : v_load(k + i * VECTOR);
      y = v_add(x[i], y);
      vec step = v_step(y, above, below);
      along[i] = v_add(along[i], step);
      if (att_sum)
        across[i] = v_fma(step, y, across[i]);
    }
  }
  CPU_EACH(i, width) {
    int64_t at = d + i * VECTOR;
    int cut = i == width - 1;
    vec a = cut ? v_load_tail(att + at, t) : v_load(att + at);
    vec old = before >= 0 ? v_mul(v_set(before), v_load(sum + at)) : v_zero();
    v_store(sum + at, v_fma(a, along[i], old));
    if (att_sum && cut)
      v_store_tail(att_sum + at, v_add(v_load_tail(att_sum + at, t), across[i]),
                   t);
    else if (att_sum)
      v_store(att_sum + at, v_add(v_load(att_sum + at), across[i]));
  }
}

CPU_INLINE void strided_slopes(const dfgnn_cpu_job *job, const char *q,
                               const char *base, const scalar *att,
                               const int32_t *index, int64_t count,
                               const scalar *g, scalar *sum, scalar before,
                               scalar *att_sum) {
  for (int64_t d = 0; d < job->dim; d++) {
    scalar x = element(q + d * job->query.feature), along = 0, across = 0;
    for (int64_t e = 0; e < count; e++) {
      scalar y =
          x + element(base + index[e] * job->key.node + d * job->key.feature);
      scalar step = y > 0 ? g[e] : g[e] * (scalar)job->slope;
      along += step;
      across += step * y;
    }
    sum[d] = (before >= 0 ? before * sum[d] : 0) +
             element((const char *)(att + d)) * along;
    if (att_sum)
      att_sum[d] += across;
  }
}

static CPU_TARGET void slopes(const dfgnn_cpu_job *job, int64_t row,
                              int64_t head, int64_t begin, int64_t end,
                              const void *gradients, void *sum, double before,
                              void *att_sum) {
  const scalar *q = features(&job->query, row, head);
  const scalar *att =
      job->att ? (const scalar *)job->att + head * job->dim : NULL;
  const char *base = job->key.base + head * job->key.head;
  const int32_t *index = job->indices + begin;
  int64_t count = end - begin;

  if (!job->packed) {
    strided_slopes(job, (const char *)q, base, att, index, count, gradients,
                   sum, (scalar)before, att_sum);
    return;
  }
  for (int64_t d = 0; d < job->dim; d += 4 * VECTOR) {
    int64_t left = job->dim - d;
    int64_t width = left < 4 * VECTOR ? (left + VECTOR - 1) / VECTOR : 4;
    int64_t last = left - (width - 1) * VECTOR;
    tail t = v_tail(last < VECTOR ? last : VECTOR);
    switch (width) {
#define CASE(width)                                                            \
  case width:                                                                  \
    slope_panel(job, q, base, att, index, count, gradients, sum,               \
                (scalar)before, att_sum, d, t, width);                         \
    break
      CASE(1);
      CASE(2);
      CASE(3);
      CASE(4);
#undef CASE
    }
  }
}
