/* edge_short.h - rows of few edges of GT with edge features, all heads at once;
 * a part of edge_loops.c
 *
 * A molecule's atom has two or three neighbours: work that is done once a row
 * and head costs more there than work that is done once an edge.  Numbers by
 * edges and heads are [edges, heads], so that vectors lie along the heads. */

typedef struct short_numbers {
  scalar at[DFGNN_CPU_SHORT][DFGNN_CPU_SHORT_HEADS + VECTOR];
} short_numbers;

/* The products of scalars with storage, summed by lane. */
CPU_INLINE vec gathered_dot(const scalar *a, const storage *b, int64_t count) {
  vec sum = v_zero();
  int64_t k = 0;
  for (; k + VECTOR <= count; k += VECTOR)
    sum = v_fma(s_load(a + k), v_load(b + k), sum);
  if (k < count) {
    tail t = v_tail(count - k);
    sum = v_fma(s_load_tail(a + k, t), v_load_tail(b + k, t), sum);
  }
  return sum;
}

CPU_INLINE vec short_dot(const dfgnn_cpu_short *s, const scalar *own,
                         const scalar *by, const storage *far,
                         const scalar *attr, int64_t h) {
  vec x = gathered_dot(own + h * s->dim, far + h * s->dim, s->dim);
  return by ? v_add(x, dot(by + h * s->features, attr, s->features)) : x;
}

/* to = <own, far> + <by, e> + shift for all edges and heads; returns 0 if one
 * of them is not finite. */
CPU_INLINE int short_products(const dfgnn_cpu_short *s, int side,
                              short_numbers *to) {
  const scalar *own = s->own[side], *by = s->by[side], *shift = s->shift[side];
  vec spoilt = v_zero();
  for (int64_t k = 0; k < s->count; k++) {
    const storage *far =
        (const storage *)(s->far[side] + s->indices[k] * s->node[side]);
    const scalar *attr = (const scalar *)s->attr + k * s->features;
    scalar *x = to->at[k];
    int64_t h = 0;
    for (; h + SUMS <= s->heads; h += SUMS) {
      vec parts[SUMS];
      CPU_EACH(u, SUMS) { parts[u] = short_dot(s, own, by, far, attr, h + u); }
      v_sums(x + h, parts);
    }
    for (; h < s->heads; h++)
      x[h] = v_sum(short_dot(s, own, by, far, attr, h));
    for (h = 0; shift && h < s->heads; h++)
      x[h] += shift[h];
    for (h = 0; h < s->heads; h += VECTOR) {
      tail t = v_tail(s->heads - h < VECTOR ? s->heads - h : VECTOR);
      spoilt = v_fma(v_zero(), s_load_tail(x + h, t), spoilt);
    }
  }
  return v_sum(spoilt) == 0;
}

/* to [heads, row] = sums over edges of terms times rows of storage */
CPU_INLINE void short_gather(const dfgnn_cpu_short *s, int side,
                             const short_numbers *terms, scalar *to,
                             int64_t row) {
  for (int64_t h = 0; h < s->heads; h++)
    for (int64_t d = 0; d < s->dim; d += VECTOR) {
      int64_t left = s->dim - d;
      tail t = v_tail(left < VECTOR ? left : VECTOR);
      vec sum = v_zero();
      for (int64_t k = 0; k < s->count; k++) {
        const storage *far =
            (const storage *)(s->far[side] + s->indices[k] * s->node[side]) +
            h * s->dim + d;
        sum = v_fma(v_set(terms->at[k][h]), v_load_tail(far, t), sum);
      }
      s_store_tail(to + h * row + d, sum, t);
    }
}

/* to [heads, features] = sums over edges of terms times e; total [heads]: of
 * terms, or NULL. */
CPU_INLINE void short_features(const dfgnn_cpu_short *s,
                               const short_numbers *terms, scalar *to,
                               scalar *total) {
  for (int64_t h = 0; h < s->heads; h++)
    for (int64_t f = 0; f < s->features; f += VECTOR) {
      int64_t left = s->features - f;
      tail t = v_tail(left < VECTOR ? left : VECTOR);
      vec sum = v_zero();
      for (int64_t k = 0; k < s->count; k++)
        sum = v_fma(
            v_set(terms->at[k][h]),
            s_load_tail((const scalar *)s->attr + k * s->features + f, t), sum);
      s_store_tail(to + h * s->features + f, sum, t);
    }
  for (int64_t h = 0; total && h < s->heads; h++) {
    scalar sum = 0;
    for (int64_t k = 0; k < s->count; k++)
      sum += terms->at[k][h];
    total[h] = sum;
  }
}

static CPU_TARGET int attend_short(const dfgnn_cpu_short *s) {
  short_numbers p;
  scalar shift[DFGNN_CPU_SHORT_HEADS + VECTOR];
  scalar total[DFGNN_CPU_SHORT_HEADS + VECTOR];
  vec none = v_set(-1), top = none;
  if (!short_products(s, 0, &p))
    return 0;
  for (int64_t h = 0; h < s->heads; h += VECTOR) {
    tail t = v_tail(s->heads - h < VECTOR ? s->heads - h : VECTOR);
    vec most = s_load_tail(p.at[0] + h, t), sum = v_zero();
    for (int64_t k = 1; k < s->count; k++)
      most = v_max(s_load_tail(p.at[k] + h, t), most);
    vec minus = v_mul(most, none);
    for (int64_t k = 0; k < s->count; k++) {
      vec weight = v_exp(v_add(s_load_tail(p.at[k] + h, t), minus));
      top = v_max(v_keep(v_mul(weight, none), t, none), top);
      sum = v_add(sum, weight);
      s_store_tail(p.at[k] + h, weight, t);
    }
    s_store_tail(shift + h, most, t);
    s_store_tail(total + h, sum, t);
  }
  if (v_top(top) == 0) /* 0 times an infinite value is NaN */
    return 0;
  for (int64_t h = 0; h < s->heads; h++)
    s->states[h] = (dfgnn_cpu_softmax){shift[h], total[h]};
  short_gather(s, 1, &p, s->sums, s->sum_row);
  if (s->sums_of_attr[1])
    short_features(s, &p, s->sums_of_attr[1], s->totals[1]);
  return 1;
}

/* grad_attr [count, features] = sums over heads of dS by[0] + P by[1] */
CPU_INLINE void short_spread(const dfgnn_cpu_short *s, const short_numbers *p,
                             const short_numbers *ds) {
  const scalar *by_query = s->by[0], *by_out = s->by[1];
  for (int64_t k = 0; k < s->count; k++)
    for (int64_t f = 0; f < s->features; f += VECTOR) {
      int64_t left = s->features - f;
      tail t = v_tail(left < VECTOR ? left : VECTOR);
      vec sum = v_zero();
      for (int64_t h = 0; h < s->heads; h++) {
        int64_t at = h * s->features + f;
        if (by_query)
          sum = v_fma(v_set(ds->at[k][h]), s_load_tail(by_query + at, t), sum);
        if (by_out)
          sum = v_fma(v_set(p->at[k][h]), s_load_tail(by_out + at, t), sum);
      }
      s_store_tail((scalar *)s->grad_attr + k * s->features + f, sum, t);
    }
}

static CPU_TARGET int grade_short(const dfgnn_cpu_short *s) {
  short_numbers p, ds;
  scalar ends[2][DFGNN_CPU_SHORT_HEADS + VECTOR];
  const scalar *pairs = s->ends;
  if (!short_products(s, 0, &p) || !short_products(s, 1, &ds))
    return 0;
  for (int64_t h = 0; h < s->heads; h++) {
    ends[0][h] = pairs[h];
    ends[1][h] = pairs[s->heads + h];
  }
  for (int64_t k = 0; k < s->count; k++)
    for (int64_t h = 0; h < s->heads; h += VECTOR) {
      tail t = v_tail(s->heads - h < VECTOR ? s->heads - h : VECTOR);
      vec weight = v_exp(
          v_add(s_load_tail(p.at[k] + h, t), s_load_tail(ends[0] + h, t)));
      vec rest =
          v_add(s_load_tail(ds.at[k] + h, t), s_load_tail(ends[1] + h, t));
      s_store_tail(p.at[k] + h, weight, t);
      s_store_tail(ds.at[k] + h, v_mul(weight, rest), t);
    }
  for (int64_t h = 0; h < s->heads; h++)
    for (int64_t k = 0; k < s->count; k++) {
      ((scalar *)s->weights)[h * s->stride + k] = p.at[k][h];
      ((scalar *)s->gradients)[h * s->stride + k] = ds.at[k][h];
    }
  if (s->sums)
    short_gather(s, 0, &ds, s->sums, s->sum_row);
  if (s->sums_of_attr[0])
    short_features(s, &ds, s->sums_of_attr[0], s->totals[0]);
  if (s->sums_of_attr[1])
    short_features(s, &p, s->sums_of_attr[1], s->totals[1]);
  if (s->grad_attr)
    short_spread(s, &p, &ds);
  return 1;
}
