/* kernels.c - the inner loops of CPU reductions for one instruction
 * set and storage type */
#include "kernels/common/cpu_panel.h"
#include "kernels/common/cpu_select.h"
#include "kernels/reduce/cpu/reduce.h"

enum { LOW = 1, HIGH = 2, MOMENTS = 4, ARGS = 8 }; /* results of a loop */
enum { WIDEST = 4 };                               /* vectors of a panel */

/* The state of some edges, for a vector of features. */
typedef struct known {
  vec mean;   /* minus the row's first element */
  vec square; /* the sum of squared differences from the mean */
  vec low, high, arg_low, arg_high;
} known;

/* A state in memory has the components that `what` names, in this order. */
CPU_INLINE known load_known(const scalar *p, int64_t width, tail t,
                            const int cut, const int what) {
  known k = {v_zero(), v_zero(), v_zero(), v_zero(), v_zero(), v_zero()};
#define NEXT(component)                                                        \
  do {                                                                         \
    component = s_load_cut(p, t, cut);                                         \
    p += width;                                                                \
  } while (0)
  if (what & MOMENTS) {
    NEXT(k.mean);
    NEXT(k.square);
  }
  if (what & LOW)
    NEXT(k.low);
  if (what & HIGH)
    NEXT(k.high);
  if (what & LOW && what & ARGS)
    NEXT(k.arg_low);
  if (what & HIGH && what & ARGS)
    NEXT(k.arg_high);
#undef NEXT
  return k;
}

CPU_INLINE void store_known(scalar *p, const known *k, int64_t width, tail t,
                            const int cut, const int what) {
#define NEXT(component)                                                        \
  do {                                                                         \
    s_store_cut(p, component, t, cut);                                         \
    p += width;                                                                \
  } while (0)
  if (what & MOMENTS) {
    NEXT(k->mean);
    NEXT(k->square);
  }
  if (what & LOW)
    NEXT(k->low);
  if (what & HIGH)
    NEXT(k->high);
  if (what & LOW && what & ARGS)
    NEXT(k->arg_low);
  if (what & HIGH && what & ARGS)
    NEXT(k->arg_high);
#undef NEXT
}

/* Merges b, the state of `count` edges, into a, that of the `before` edges
 * before them. */
CPU_INLINE void join(known *a, const known *b, int64_t before, int64_t count,
                     const int what) {
  if (what & MOMENTS) {
    double share = (double)count / (double)(before + count);
    vec difference = v_sub(b->mean, a->mean);
    a->mean = v_fma(difference, v_set((scalar)share), a->mean);
    a->square = v_fma(v_mul(difference, difference),
                      v_set((scalar)((double)before * share)),
                      v_add(a->square, b->square));
  }
  if (what & LOW)
    v_take(&a->low, &a->arg_low, b->low, b->arg_low, 1, what & ARGS);
  if (what & HIGH)
    v_take(&a->high, &a->arg_high, b->high, b->arg_high, -1, what & ARGS);
}

/* ---- results ------------------------------------------------------------- */

CPU_INLINE char *place(const dfgnn_cpu_reduce *job, const dfgnn_cpu_table *t,
                       int64_t row, int64_t piece) {
  return t->base + row * t->node + dfgnn__cpu_piece_at(t, &job->pieces, piece);
}

CPU_INLINE void put(const dfgnn_cpu_reduce *job, const dfgnn_cpu_table *to,
                    int64_t row, int64_t piece, int64_t d, vec x, tail t,
                    const int cut) {
  store_cut((storage *)place(job, to, row, piece) + d, x, t, cut);
}

CPU_INLINE void put_index(const dfgnn_cpu_reduce *job,
                          const dfgnn_cpu_table *to, int64_t row, int64_t piece,
                          int64_t d, vec x, tail t, const int cut) {
  int32_t *p = (int32_t *)place(job, to, row, piece) + d;
  if (cut)
    v_index_store_tail(p, x, t);
  else
    v_index_store(p, x);
}

CPU_INLINE double degree_of(const dfgnn_cpu_reduce *job, int64_t row) {
  return (double)(dfgnn__cpu_edge(job->offsets64, job->offsets, row + 1) -
                  dfgnn__cpu_edge(job->offsets64, job->offsets, row));
}

/* x / y, or 0 where y is 0. */
CPU_INLINE vec v_quotient(vec x, vec y) {
  scalar a[VECTOR], b[VECTOR];
  s_store(a, x);
  s_store(b, y);
  for (int i = 0; i < VECTOR; i++)
    a[i] = b[i] == 0 ? 0 : a[i] / b[i];
  return s_load(a);
}

CPU_INLINE scalar *record_of(const dfgnn_cpu_reduce *job, int64_t row,
                             int64_t piece) {
  return (scalar *)(job->record + row * job->record_bytes) +
         piece * job->record_piece;
}

CPU_INLINE void put_record(const dfgnn_cpu_reduce *job, int64_t row,
                           int64_t piece, int64_t d, vec mean, vec variance,
                           double degree, tail t, const int cut) {
  const storage *p = (const storage *)place(job, &job->grad_out, row, piece);
  vec grad = load_cut(p + d, t, cut);
  scalar *to = record_of(job, row, piece) + d;
  if (job->op == DFGNN_OP_REDUCE_VAR)
    grad = v_mul(grad, v_set((scalar)(2 / degree)));
  else
    grad = v_quotient(v_mul(grad, v_set((scalar)(1 / degree))),
                      v_deviation(variance));
  s_store_cut(to, grad, t, cut);
  s_store_cut(to + job->width, mean, t, cut);
}

/* The first element of a row: means are kept as differences from it, so that an
 * offset common to all elements costs no digits. */
CPU_INLINE vec origin(const dfgnn_cpu_reduce *job, int64_t row, int64_t piece,
                      int64_t d, tail t, const int cut) {
  int64_t e = dfgnn__cpu_edge(job->offsets64, job->offsets, row);
  const storage *p =
      (const storage *)place(job, &job->value, job->indices[e], piece);
  return load_cut(p + d, t, cut);
}

/* Writes the results of a row; returns 1 if a mean is NaN. */
CPU_INLINE int emit(const dfgnn_cpu_reduce *job, int64_t row, int64_t piece,
                    int64_t d, double degree, const known *k, tail t,
                    const int cut, const int what) {
  scalar share = (scalar)(degree > 0 ? 1 / degree : 0); /* 0: empty */
  if (what == MOMENTS) {
    vec variance = v_mul(k->square, v_set(share));
    if (job->record) {
      vec mean = v_add(origin(job, row, piece, d, t, cut), k->mean);
      put_record(job, row, piece, d, mean, variance, degree, t, cut);
      return v_any_nan(mean);
    }
    put(job, &job->out, row, piece, d,
        job->op == DFGNN_OP_REDUCE_STD ? v_deviation(variance) : variance, t,
        cut);
    return 0;
  }
  int nan = 0;
  if (what & MOMENTS) {
    vec variance = v_mul(k->square, v_set(share));
    vec mean = k->mean;
    if (degree > 0)
      mean = v_add(origin(job, row, piece, d, t, cut), mean);
    nan = v_any_nan(mean);
    put(job, &job->out, row, piece, d, mean, t, cut);
    put(job, &job->out_std, row, piece, d, v_deviation(variance), t, cut);
    put(job, &job->out_min, row, piece, d, k->low, t, cut);
    put(job, &job->out_max, row, piece, d, k->high, t, cut);
  } else {
    put(job, &job->out, row, piece, d, what & LOW ? k->low : k->high, t, cut);
  }
  if (what & ARGS && what & LOW && job->arg_min.base)
    put_index(job, &job->arg_min, row, piece, d, k->arg_low, t, cut);
  if (what & ARGS && what & HIGH && job->arg_max.base)
    put_index(job, &job->arg_max, row, piece, d, k->arg_high, t, cut);
  return nan;
}

/* Writes the results of a row without edges. */
CPU_INLINE void emit_empty(const dfgnn_cpu_reduce *job, int64_t row,
                           int64_t piece, int64_t d, tail t, const int cut,
                           const int what) {
  known k = {v_zero(), v_zero(), v_zero(), v_zero(), v_index(-1), v_index(-1)};
  if (!job->record) /* no edge reads the record of such a row */
    emit(job, row, piece, d, 0, &k, t, cut, what);
}

CPU_INLINE scalar element(const char *p) {
#if CPU_DTYPE == CPU_F16
  return dfgnn__f16_to_float(*(const storage *)p);
#elif CPU_DTYPE == CPU_BF16
  return dfgnn__bf16_to_float(*(const storage *)p);
#else
  return *(const storage *)p;
#endif
}

CPU_INLINE storage element_of(scalar x) {
#if CPU_DTYPE == CPU_F16
  return dfgnn__f16_from_float(x);
#elif CPU_DTYPE == CPU_BF16
  return dfgnn__bf16_from_float(x);
#else
  return x;
#endif
}

/* Computes the means of a row from plain sums, since differences from an
 * infinite element are NaN. */
static CPU_TARGET void sum_again(const dfgnn_cpu_reduce *job, int64_t row,
                                 int64_t piece) {
  int64_t begin = dfgnn__cpu_edge(job->offsets64, job->offsets, row);
  int64_t end = dfgnn__cpu_edge(job->offsets64, job->offsets, row + 1);
  const char *base = place(job, &job->value, 0, piece);
  for (int64_t d = 0; d < job->pieces.dim; d++) {
    scalar sum = 0;
    for (int64_t e = begin; e < end; e++)
      sum += element(base + job->indices[e] * job->value.node +
                     d * (int64_t)sizeof(storage));
    sum /= (scalar)(end - begin);
    if (job->record)
      record_of(job, row, piece)[job->width + d] = sum;
    else
      ((storage *)place(job, &job->out, row, piece))[d] = element_of(sum);
  }
}

/* ---- forward ------------------------------------------------------------- */

typedef struct gather {
  const dfgnn_cpu_reduce *job;
  const char *base;
  const int32_t *index;
  int64_t count, ahead;
  int64_t number; /* of the first edge, in its row */
  int64_t before; /* edges in the state */
  scalar *state;
  int64_t row, piece;
  double degree; /* > 0: the row ends here */
  int nan;
} gather;

CPU_INLINE void prefetch_ahead(const gather *g, int64_t d, int64_t e) {
  if (d == 0 && e < g->ahead)
    prefetch_row(g->base, g->index[e + g->job->prefetch], g->job->value.node,
                 g->job->pieces.dim * (int64_t)sizeof(storage));
}

CPU_INLINE void panel(gather *g, int64_t d, tail t, const int width,
                      const int cut, const int what) {
  const dfgnn_cpu_reduce *job = g->job;
  const char *base = g->base + d * (int64_t)sizeof(storage);
  vec first[WIDEST], sum[WIDEST], square[WIDEST];
  known k[WIDEST];
  const storage *v = row_at(base, g->index[0], job->value.node);
  vec number = v_index(g->number);

  prefetch_ahead(g, d, 0);
  CPU_EACH(i, width) {
    first[i] = load_cut(v + i * VECTOR, t, cut);
    sum[i] = square[i] = v_zero();
    k[i].low = k[i].high = first[i];
    k[i].arg_low = k[i].arg_high = number;
  }
  for (int64_t e = 1; e < g->count; e++) {
    v = row_at(base, g->index[e], job->value.node);
    if (what & ARGS)
      number = v_index(g->number + e);
    prefetch_ahead(g, d, e);
    CPU_EACH(i, width) {
      vec x = load_cut(v + i * VECTOR, t, cut);
      if (what & MOMENTS) {
        vec y = v_sub(x, first[i]);
        sum[i] = v_add(sum[i], y);
        square[i] = v_fma(y, y, square[i]);
      }
      if (what & LOW)
        v_take(&k[i].low, &k[i].arg_low, x, number, 1, what & ARGS);
      if (what & HIGH)
        v_take(&k[i].high, &k[i].arg_high, x, number, -1, what & ARGS);
    }
  }
  vec share = v_set((scalar)(1 / (double)g->count));
  scalar *state = g->state + d;
  CPU_EACH(i, width) {
    int64_t at = d + i * VECTOR;
    if (what & MOMENTS) {
      vec mean = v_mul(sum[i], share);
      vec from = origin(job, g->row, g->piece, at, t, cut);
      k[i].mean = v_add(v_sub(first[i], from), mean);
      k[i].square = v_max(v_zero(), v_sub(square[i], v_mul(sum[i], mean)));
    }
    if (g->before) {
      known all = load_known(state + i * VECTOR, job->width, t, cut, what);
      join(&all, &k[i], g->before, g->count, what);
      k[i] = all;
    }
    if (g->degree > 0)
      g->nan |= emit(job, g->row, g->piece, at, g->degree, &k[i], t, cut, what);
    else
      store_known(state + i * VECTOR, &k[i], job->width, t, cut, what);
  }
}

CPU_INLINE void fold_row(const dfgnn_cpu_reduce *job, int64_t row,
                         int64_t piece, int64_t begin, int64_t end, void *state,
                         int whole, const int what) {
  int64_t dim = job->pieces.dim;
  tail t = v_tail(dim % VECTOR);
  if (begin == end) {
#define EMPTY(d, width, cut)                                                   \
  CPU_EACH(i, width)                                                           \
  emit_empty(job, row, piece, d + i * VECTOR, t, cut, what)
    EACH_PANEL(WIDEST, dim, EMPTY);
#undef EMPTY
    return;
  }
  gather g = {.job = job,
              .base = place(job, &job->value, 0, piece),
              .state = (scalar *)state + piece * dim,
              .row = row,
              .piece = piece};
  int64_t first = dfgnn__cpu_edge(job->offsets64, job->offsets, row);
  for (int64_t e = begin; e < end; e += g.count) {
    g.index = job->indices + e;
    g.count =
        end - e < DFGNN_CPU_REDUCE_CHUNK ? end - e : DFGNN_CPU_REDUCE_CHUNK;
    g.ahead = job->prefetch ? job->edges - job->prefetch - e : 0;
    g.number = e - first;
    g.before = e - begin;
    g.degree = whole && e + g.count == end ? (double)(end - begin) : 0;
#define PANEL(d, width, cut) panel(&g, d, t, width, cut, what)
    EACH_PANEL(WIDEST, dim, PANEL);
#undef PANEL
  }
  if (g.nan)
    sum_again(job, row, piece);
}

CPU_INLINE void merge_row(const dfgnn_cpu_reduce *job, int64_t piece, void *to,
                          const void *from, int64_t before, int64_t count,
                          const int what) {
  int64_t dim = job->pieces.dim;
  tail t = v_tail(dim % VECTOR);
  scalar *a = (scalar *)to + piece * dim;
  const scalar *b = (const scalar *)from + piece * dim;
#define MERGE(d, vectors, cut)                                                 \
  CPU_EACH(i, vectors) {                                                       \
    int64_t at = d + i * VECTOR;                                               \
    known x = load_known(a + at, job->width, t, cut, what);                    \
    known y = load_known(b + at, job->width, t, cut, what);                    \
    join(&x, &y, before, count, what);                                         \
    store_known(a + at, &x, job->width, t, cut, what);                         \
  }
  EACH_PANEL(WIDEST, dim, MERGE);
#undef MERGE
}

CPU_INLINE void finish_row(const dfgnn_cpu_reduce *job, int64_t row,
                           int64_t piece, const void *state, const int what) {
  int64_t dim = job->pieces.dim;
  tail t = v_tail(dim % VECTOR);
  const scalar *from = (const scalar *)state + piece * dim;
  double degree = degree_of(job, row);
  int nan = 0;
#define FINISH(d, vectors, cut)                                                \
  CPU_EACH(i, vectors) {                                                       \
    int64_t at = d + i * VECTOR;                                               \
    known k = load_known(from + at, job->width, t, cut, what);                 \
    nan |= emit(job, row, piece, at, degree, &k, t, cut, what);                \
  }
  EACH_PANEL(WIDEST, dim, FINISH);
#undef FINISH
  if (nan)
    sum_again(job, row, piece);
}

#define FOLDING(name, what)                                                    \
  static CPU_TARGET void fold_##name(const void *job, int64_t row,             \
                                     int64_t piece, int64_t begin,             \
                                     int64_t end, void *state, int whole) {    \
    fold_row(job, row, piece, begin, end, state, whole, what);                 \
  }                                                                            \
  static CPU_TARGET void merge_##name(const void *job, int64_t piece,          \
                                      void *to, const void *from,              \
                                      int64_t before, int64_t count) {         \
    merge_row(job, piece, to, from, before, count, what);                      \
  }                                                                            \
  static CPU_TARGET void finish_##name(const void *job, int64_t row,           \
                                       int64_t piece, void *state) {           \
    finish_row(job, row, piece, state, what);                                  \
  }
FOLDING(min, LOW)
FOLDING(max, HIGH)
FOLDING(moments, MOMENTS)
FOLDING(pna, LOW | HIGH | MOMENTS)
FOLDING(min_arg, LOW | ARGS)
FOLDING(max_arg, HIGH | ARGS)
FOLDING(pna_arg, LOW | HIGH | MOMENTS | ARGS)

#include "kernels/reduce/cpu/backward.h"

#define FORWARD(name)                                                          \
  { fold_##name, merge_##name, finish_##name }
#define BACKWARD(name)                                                         \
  { fold_##name, merge_sum, finish_sum }

const dfgnn_cpu_reduce_kernels CPU_TABLE_OF(dfgnn__cpu_reduce) = {
    .folding =
        {
            [DFGNN_CPU_FOLD_MIN] = FORWARD(min),
            [DFGNN_CPU_FOLD_MAX] = FORWARD(max),
            [DFGNN_CPU_FOLD_MOMENTS] = FORWARD(moments),
            [DFGNN_CPU_FOLD_PNA] = FORWARD(pna),
            [DFGNN_CPU_FOLD_MIN_ARG] = FORWARD(min_arg),
            [DFGNN_CPU_FOLD_MAX_ARG] = FORWARD(max_arg),
            [DFGNN_CPU_FOLD_PNA_ARG] = FORWARD(pna_arg),
            [DFGNN_CPU_FOLD_BACK_SELECT] = BACKWARD(select),
            [DFGNN_CPU_FOLD_BACK_MOMENTS] = BACKWARD(back_moments),
            [DFGNN_CPU_FOLD_BACK_PNA] = BACKWARD(back_pna),
            [DFGNN_CPU_FOLD_BACK_PNA_REST] = BACKWARD(back_rest),
        },
    .record = record,
    .scatter = scatter,
    .narrow = narrow_columns,
};
