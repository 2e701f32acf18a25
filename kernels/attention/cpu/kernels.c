/* kernels.c - the inner loops of CPU attention for one instruction set and
 * type */
#include <float.h>
#include <math.h>

#include "kernels/attention/cpu/attention.h"
#include "kernels/attention/cpu/backward.h"
#include "kernels/attention/cpu/edges.h"
#include "kernels/common/cpu_pairs.h"

/* Weights that are added up in vectors before they join a double. */
#define WEIGHED (64 * VECTOR)

CPU_INLINE const scalar *row_at(const char *base, int64_t index,
                                int64_t stride) {
  return (const scalar *)(base + index * stride);
}

CPU_INLINE const scalar *features(const dfgnn_cpu_tensor *tensor, int64_t node,
                                  int64_t head) {
  return (const scalar *)(tensor->base + node * tensor->node +
                          head * tensor->head);
}

CPU_INLINE void prefetch_row(const char *base, int64_t index, int64_t stride,
                             int64_t bytes) {
  const char *row = base + index * stride;
  for (int64_t i = 0; i < bytes; i += 64)
    __builtin_prefetch(row + i);
}

/* ---- one feature at a time: for features that are not adjacent ----------- */

CPU_INLINE scalar element(const char *p) { return *(const scalar *)p; }

CPU_INLINE scalar strided_score(const dfgnn_cpu_job *job, const char *q,
                                const char *k, const scalar *att,
                                const int op) {
  scalar sum = 0;
  for (int64_t d = 0; d < job->dim; d++) {
    scalar a = element(q + d * job->query.feature);
    scalar b = element(k + d * job->key.feature);
    if (op == DFGNN_OP_GATV2)
      sum += element((const char *)(att + d)) *
             (a + b > 0 ? a + b : (scalar)job->slope * (a + b));
    else
      sum += a * b;
  }
  return sum;
}

CPU_INLINE void strided_accumulate(const dfgnn_cpu_job *job, const char *value,
                                   const int32_t *index, int64_t count,
                                   const scalar *weights, scalar *sum,
                                   scalar before) {
  for (int64_t d = 0; d < job->dim; d++) {
    scalar x = 0;
    for (int64_t e = 0; e < count; e++)
      x += weights[e] *
           element(value + index[e] * job->value.node + d * job->value.feature);
    sum[d] = before >= 0 ? before * sum[d] + x : x;
  }
}

/* ---- scores -------------------------------------------------------------- */

/* The products of one destination row with `flight` gathered rows. */
CPU_INLINE void products(const dfgnn_cpu_job *job, const scalar *q,
                         const scalar *att, const scalar *const *k, scalar *to,
                         const int flight, const int op) {
  int64_t dim = job->dim, d = 0;
  vec slope = v_set((scalar)job->slope), a[8];

  CPU_EACH(u, flight) { a[u] = v_zero(); }
  for (; d + VECTOR <= dim; d += VECTOR) {
    vec x = v_load(q + d);
    vec w = op == DFGNN_OP_GATV2 ? v_load(att + d) : x;
    CPU_EACH(u, flight) {
      vec y = v_load(k[u] + d);
      if (op == DFGNN_OP_GATV2)
        y = v_leaky(v_add(x, y), slope);
      a[u] = v_fma(w, y, a[u]);
    }
  }
  if (d < dim) {
    tail t = v_tail(dim - d);
    vec x = v_load_tail(q + d, t);
    vec w = op == DFGNN_OP_GATV2 ? v_load_tail(att + d, t) : x;
    CPU_EACH(u, flight) {
      vec y = v_load_tail(k[u] + d, t);
      if (op == DFGNN_OP_GATV2)
        y = v_leaky(v_add(x, y), slope);
      a[u] = v_fma(w, y, a[u]);
    }
  }
  const int summed = flight / SUMS * SUMS;
  CPU_UNROLL
  for (int u = 0; u < summed; u += SUMS)
    v_sums(to + u, a + u);
  CPU_UNROLL
  for (int u = summed; u < flight; u++)
    to[u] = v_sum(a[u]);
}

CPU_INLINE void gather_products(const dfgnn_cpu_job *job, const scalar *q,
                                const scalar *att, const char *base,
                                const int32_t *index, int64_t count,
                                int64_t ahead, scalar *to, const int flight,
                                const int op) {
  int64_t stride = job->key.node, bytes = job->dim * (int64_t)sizeof(scalar);
  const scalar *k[8];
  int64_t e = 0;

  for (; e + flight <= count; e += flight) {
    CPU_EACH(u, flight) {
      k[u] = row_at(base, index[e + u], stride);
      if (e + u < ahead)
        prefetch_row(base, index[e + u + job->prefetch], stride, bytes);
    }
    products(job, q, att, k, to + e, flight, op);
  }
  for (int64_t f = e; f < count && f < ahead; f++)
    prefetch_row(base, index[f + job->prefetch], stride, bytes);
  for (int u = 0; u < flight && e + u < count; u++)
    k[u] = row_at(base, index[e + u], stride);
  const scalar *const *rest = k;
  if (flight > 4 && e + 4 <= count) {
    products(job, q, att, rest, to + e, 4, op);
    e += 4;
    rest += 4;
  }
  if (e + 2 <= count) {
    products(job, q, att, rest, to + e, 2, op);
    e += 2;
    rest += 2;
  }
  if (e < count)
    products(job, q, att, rest, to + e, 1, op);
}

CPU_INLINE void scale_by(scalar *x, int64_t count, scalar factor) {
  vec f = v_set(factor);
  int64_t i = 0;
  for (; i + VECTOR <= count; i += VECTOR)
    v_store(x + i, v_mul(f, v_load(x + i)));
  for (; i < count; i++)
    x[i] *= factor;
}

CPU_INLINE void additive(const dfgnn_cpu_job *job, int64_t row, int64_t head,
                         int64_t begin, int64_t count, scalar *s) {
  const int32_t *index = job->indices + begin;
  const scalar *edges = (const scalar *)job->score_edge + head;
  const scalar *source = (const scalar *)job->score_src + head;
  scalar a = ((const scalar *)job->score_dst)[row * job->heads + head];
  vec slope = v_set((scalar)job->slope), shift = v_set(a);
  int64_t e = 0;
  for (; e < count; e++)
    s[e] = source[index[e] * job->heads];
  for (e = 0; job->score_edge && e < count; e++)
    s[e] += edges[dfgnn__cpu_number(job, begin + e) * job->heads];
  for (e = 0; e + VECTOR <= count; e += VECTOR)
    v_store(s + e, v_leaky(v_add(shift, v_load(s + e)), slope));
  for (; e < count; e++)
    s[e] = s[e] + a > 0 ? s[e] + a : (scalar)job->slope * (s[e] + a);
}

/* AGNN: turns products into scores, which are scaled cosines. */
CPU_INLINE void cosines(const dfgnn_cpu_job *job, const scalar *q, int64_t head,
                        const int32_t *index, int64_t count, scalar *s) {
  const scalar *inverse = (const scalar *)job->inverse + head;
  int64_t dim = job->dim;
  scalar square = 0;
  if (job->packed) {
    vec sum = v_zero();
    int64_t d = 0;
    for (; d + VECTOR <= dim; d += VECTOR)
      sum = v_fma(v_load(q + d), v_load(q + d), sum);
    if (d < dim) {
      vec x = v_load_tail(q + d, v_tail(dim - d));
      sum = v_fma(x, x, sum);
    }
    square = v_sum(sum);
  } else {
    for (int64_t d = 0; d < dim; d++) {
      scalar x = element((const char *)q + d * job->query.feature);
      square += x * x;
    }
  }
  double norm = sqrt((double)square);
  scalar factor = (scalar)(job->scale / (norm < 1e-12 ? 1e-12 : norm));
  for (int64_t e = 0; e < count; e++)
    s[e] *= factor * inverse[index[e] * job->heads];
}

CPU_INLINE void add_bias(const dfgnn_cpu_job *job, int64_t head, int64_t begin,
                         int64_t count, scalar *s) {
  const scalar *bias = (const scalar *)job->bias + head;
  for (int64_t e = 0; job->bias && e < count; e++)
    s[e] += bias[dfgnn__cpu_number(job, begin + e) * job->heads];
}

CPU_INLINE void score(const dfgnn_cpu_job *job, int64_t row, int64_t head,
                      int64_t begin, int64_t end, scalar *s, const int flight,
                      const int op) {
  const int32_t *index = job->indices + begin;
  int64_t count = end - begin;

  if (op == DFGNN_OP_GAT) {
    additive(job, row, head, begin, count, s);
    add_bias(job, head, begin, count, s);
    return;
  }
  const scalar *q = features(&job->query, row, head);
  const scalar *att =
      job->att ? (const scalar *)job->att + head * job->dim : NULL;
  const char *base = job->key.base + head * job->key.head;
  if (job->packed) {
    int64_t ahead = job->prefetch ? job->edges - job->prefetch - begin : 0;
    gather_products(job, q, att, base, index, count, ahead, s, flight, op);
  } else {
    for (int64_t e = 0; e < count; e++)
      s[e] = strided_score(job, (const char *)q,
                           base + index[e] * job->key.node, att, op);
  }
  if (op == DFGNN_OP_GT && job->scale != 1)
    scale_by(s, count, (scalar)job->scale);
  if (op == DFGNN_OP_AGNN)
    cosines(job, q, head, index, count, s);
  add_bias(job, head, begin, count, s);
}

/* Edges in flight, for which there are registers. */
enum { FLIGHT = CPU_ISA == CPU_AVX512 ? 8 : 4 };

#define SCORE(name, op)                                                        \
  static CPU_TARGET void name(const dfgnn_cpu_job *job, int64_t row,           \
                              int64_t head, int64_t begin, int64_t end,        \
                              void *scores) {                                  \
    score(job, row, head, begin, end, scores, FLIGHT, op);                     \
  }
SCORE(score_gt, DFGNN_OP_GT)
SCORE(score_agnn, DFGNN_OP_AGNN)
SCORE(score_gat, DFGNN_OP_GAT)
SCORE(score_gatv2, DFGNN_OP_GATV2)

/* ---- softmax ------------------------------------------------------------- */

static CPU_TARGET double weigh(void *scores, int64_t count,
                               dfgnn_cpu_softmax *state) {
  scalar *s = scores;
  int64_t whole = count / VECTOR * VECTOR;
  tail t = v_tail(count - whole);
  vec none = v_set(-INFINITY), top = none, sum = v_zero();

  for (int64_t i = 0; i < whole; i += VECTOR)
    top = v_max(v_load(s + i), top);
  if (whole < count)
    top = v_max(v_keep(v_load_tail(s + whole, t), t, none), top);
  double highest = v_top(top);
  double old = state->shift, new = highest > old ? highest : old;
  /* Scores that are all -inf, or NaN, are left as they are. */
  vec shift = v_set(new == -INFINITY ? 0 : (scalar) - new);

  double total = 0;
  for (int64_t i = 0; i < whole;) {
    int64_t stop = whole - i < WEIGHED ? whole : i + WEIGHED;
    for (sum = v_zero(); i < stop; i += VECTOR) {
      vec p = v_exp(v_add(v_load(s + i), shift));
      sum = v_add(sum, p);
      v_store(s + i, p);
    }
    total += v_sum(sum);
  }
  if (whole < count) {
    vec p = v_exp(v_add(v_load_tail(s + whole, t), shift));
    total += v_sum(v_keep(p, t, v_zero()));
    v_store_tail(s + whole, p, t);
  }
  double factor = old == new ? 1 : exp(old - new);
  state->shift = new;
  state->sum = state->sum * factor + total;
  return factor;
}

static CPU_TARGET void keep(void *weights, const void *scores, int64_t count,
                            int64_t stride) {
  const scalar *s = scores;
  scalar *w = weights;
  for (int64_t e = 0; e < count; e++)
    w[e * stride] = s[e];
}

static CPU_TARGET void normalize(void *weights, int64_t count, int64_t stride,
                                 double shift, double factor) {
  scalar *w = weights, lanes[VECTOR];
  vec minus = v_set((scalar)-shift), f = v_set((scalar)factor);
  for (int64_t e = 0; e < count; e += VECTOR) {
    int n = count - e < VECTOR ? (int)(count - e) : VECTOR;
    for (int i = 0; i < VECTOR; i++)
      lanes[i] = i < n ? w[(e + i) * stride] : 0;
    v_store(lanes, v_mul(f, v_exp(v_add(v_load(lanes), minus))));
    for (int i = 0; i < n; i++)
      w[(e + i) * stride] = lanes[i];
  }
}

static CPU_TARGET void drop(const dfgnn_cpu_job *job, int64_t head,
                            int64_t begin, int64_t count, void *weights) {
  scalar *w = weights, kept = (scalar)job->drop_scale;
  for (int64_t e = 0; e < count; e++)
    w[e] *= dfgnn__dropped(job->drop_key, dfgnn__cpu_drawn(job, begin + e),
                           job->heads, head, job->drop_threshold)
                ? 0
                : kept;
}

static CPU_TARGET void multiply(void *x, int64_t count, double factor) {
  scale_by(x, count, (scalar)factor);
}

/* ---- weighted sums ------------------------------------------------------- */

/* The operands of one call of accumulate. */
typedef struct gather {
  const dfgnn_cpu_job *job;
  const char *base;
  const int32_t *index;
  int64_t count, ahead;
  const scalar *weights;
  scalar before, after;
} gather;

/* Sums `width` vectors of the features from d on, `flight` edges at a time;
 * the last vector is cut to t if cut. */
CPU_INLINE void panel(const gather *g, int64_t d, scalar *sum, scalar *out,
                      tail t, const int width, const int flight,
                      const int cut) {
  int64_t stride = g->job->value.node, e = 0;
  const char *base = g->base + d * (int64_t)sizeof(scalar);
  int64_t bytes = g->job->dim * (int64_t)sizeof(scalar);
  int64_t ahead = d == 0 ? g->ahead : 0;
  vec a[8];

  CPU_EACH(i, width * flight) { a[i] = v_zero(); }
  for (; e + flight <= g->count; e += flight)
    CPU_EACH(u, flight) {
      vec w = v_set(g->weights[e + u]);
      const scalar *v = row_at(base, g->index[e + u], stride);
      if (e + u < ahead)
        prefetch_row(g->base, g->index[e + u + g->job->prefetch], stride,
                     bytes);
      CPU_EACH(i, width) {
        vec x = cut && i == width - 1 ? v_load_tail(v + i * VECTOR, t)
                                      : v_load(v + i * VECTOR);
        a[u * width + i] = v_fma(w, x, a[u * width + i]);
      }
    }
  for (; flight > 1 && e < g->count; e++) {
    vec w = v_set(g->weights[e]);
    const scalar *v = row_at(base, g->index[e], stride);
    if (e < ahead)
      prefetch_row(g->base, g->index[e + g->job->prefetch], stride, bytes);
    CPU_EACH(i, width) {
      vec x = cut && i == width - 1 ? v_load_tail(v + i * VECTOR, t)
                                    : v_load(v + i * VECTOR);
      a[i] = v_fma(w, x, a[i]);
    }
  }
  CPU_UNROLL
  for (int u = 1; u < flight; u++)
    CPU_EACH(i, width) { a[i] = v_add(a[i], a[u * width + i]); }
  CPU_EACH(i, width) {
    if (g->before >= 0) /* to sum by blocks keeps the digits of a long sum */
      a[i] = v_fma(v_set(g->before), v_load(sum + d + i * VECTOR), a[i]);
    if (!out)
      v_store(sum + d + i * VECTOR, a[i]);
    else if (cut && i == width - 1)
      v_store_tail(out + d + i * VECTOR, v_mul(a[i], v_set(g->after)), t);
    else
      v_store(out + d + i * VECTOR, v_mul(a[i], v_set(g->after)));
  }
}

CPU_INLINE void panels(const gather *g, scalar *sum, scalar *out) {
  const int64_t dim = g->job->dim;
  const tail t = v_tail(dim % VECTOR);
  int64_t d = 0;
#define PANELS_OF(width, flight)                                               \
  for (; d + width * VECTOR <= dim; d += width * VECTOR)                       \
  panel(g, d, sum, out, t, width, flight, 0)
  PANELS_OF(8, 1);
  PANELS_OF(4, 2);
  PANELS_OF(2, 4);
  PANELS_OF(1, 4);
#undef PANELS_OF
  if (d < dim)
    panel(g, d, sum, out, t, 1, 4, 1);
}

static CPU_TARGET void store(const dfgnn_cpu_job *job, int64_t row,
                             int64_t head, const void *sum, double after) {
  const scalar *from = sum;
  char *to = job->out.base + row * job->out.node + head * job->out.head;
  int64_t d = 0;
  if (job->out_adds) {
    for (; d < job->out_dim; d++) {
      scalar *at = (scalar *)(to + d * job->out.feature);
      *at += from[d] * (scalar)after;
    }
    return;
  }
  if (job->out_packed) {
    const vec f = v_set((scalar)after);
    const tail t = v_tail(job->out_dim % VECTOR);
    for (; d + VECTOR <= job->out_dim; d += VECTOR)
      v_store((scalar *)to + d, v_mul(f, v_load(from + d)));
    if (d < job->out_dim)
      v_store_tail((scalar *)to + d, v_mul(f, v_load(from + d)), t);
    return;
  }
  for (; d < job->out_dim; d++)
    *(scalar *)(to + d * job->out.feature) = from[d] * (scalar)after;
}

static CPU_TARGET void accumulate(const dfgnn_cpu_job *job, int64_t head,
                                  int64_t begin, int64_t end,
                                  const void *weights, void *sum, double before,
                                  int64_t row, double after) {
  gather g = {job,
              job->value.base + head * job->value.head,
              job->indices + begin,
              end - begin,
              job->prefetch ? job->edges - job->prefetch - begin : 0,
              weights,
              (scalar)before,
              (scalar)after};
  int direct = job->packed && job->out_packed && !job->out_adds && row >= 0 &&
               job->out_dim == job->dim;
  for (;;) {
    int64_t left = end - begin;
    g.count = left < DFGNN_CPU_BLOCK ? left : DFGNN_CPU_BLOCK;
    if (job->packed)
      panels(&g, sum,
             direct && g.count == left
                 ? (scalar *)features(&job->out, row, head)
                 : NULL);
    else
      strided_accumulate(job, g.base, g.index, g.count, g.weights, sum,
                         g.before);
    if (g.count == left)
      break;
    begin += g.count;
    g.index += g.count;
    g.weights += g.count;
    g.ahead -= g.count;
    g.before = 1;
  }
  if (row >= 0 && !direct)
    store(job, row, head, sum, after);
}

/* A factor of 0 gives 0 even where it multiplies an infinity. */
static CPU_TARGET void combine(void *to, double a, const void *from, double b,
                               int64_t count) {
  scalar *x = to;
  const scalar *y = from;
  vec f = v_set((scalar)a), g = v_set((scalar)b);
  int64_t d = 0;
  for (; a != 0 && b != 0 && d + VECTOR <= count; d += VECTOR)
    v_store(x + d, v_fma(f, v_load(x + d), v_mul(g, v_load(y + d))));
  for (; d < count; d++)
    x[d] = (a != 0 ? (scalar)a * x[d] : 0) + (b != 0 ? (scalar)b * y[d] : 0);
}

#include "kernels/attention/cpu/heads.h"
#include "kernels/attention/cpu/heads_edges.h"
#include "kernels/attention/cpu/heads_forward.h"

/* ---- before the rows ----------------------------------------------------- */

static CPU_TARGET void norms(const dfgnn_cpu_job *job, int64_t begin,
                             int64_t end) {
  scalar *inverse = job->inverse;
  if (narrow_heads(job) && adjacent_heads(job, &job->key)) {
    norms_across(job, begin, end);
    return;
  }
  for (int64_t j = begin; j < end; j++)
    for (int64_t h = 0; h < job->heads; h++) {
      const scalar *x = features(&job->key, j, h);
      scalar square = 0;
      if (job->packed) {
        const scalar *rows[1] = {x};
        products(job, x, NULL, rows, &square, 1, DFGNN_OP_AGNN);
      } else {
        for (int64_t d = 0; d < job->dim; d++) {
          scalar y = element((const char *)x + d * job->key.feature);
          square += y * y;
        }
      }
      double norm = sqrt((double)square);
      inverse[j * job->heads + h] = (scalar)(1 / (norm < 1e-12 ? 1e-12 : norm));
    }
}

/* Copies the `own` features of a head, and zeros up to `dim`. */
CPU_INLINE void pack_head(scalar *to, const scalar *from, int64_t dim,
                          int64_t own, tail dim_rest, tail own_rest) {
  for (int64_t d = 0; d < dim; d += VECTOR) {
    vec x = v_zero();
    if (d + VECTOR <= own)
      x = v_load(from + d);
    else if (d < own)
      x = v_load_tail(from + d, own_rest);
    if (d + VECTOR <= dim)
      v_store(to + d, x);
    else
      v_store_tail(to + d, x, dim_rest);
  }
}

static CPU_TARGET void pack(const dfgnn_cpu_job *job,
                            const dfgnn_cpu_tensor *to,
                            const dfgnn_cpu_tensor *from, int64_t begin,
                            int64_t end) {
  const int adjacent = from->feature == (int64_t)sizeof(scalar);
  const tail all = v_tail(job->dim % VECTOR),
             own = v_tail(job->out_dim % VECTOR);
  if (pads_vectors(job, from)) {
    const padding p = padding_of(job);
    for (int64_t j = begin; j < end; j++)
      pad_row(&p, (scalar *)features(to, j, 0), features(from, j, 0),
              job->heads * job->dim);
    return;
  }
  for (int64_t j = begin; j < end; j++)
    for (int64_t h = 0; h < job->heads; h++) {
      const char *x = from->base + j * from->node + h * from->head;
      scalar *y = (scalar *)(to->base + j * to->node + h * to->head);
      if (adjacent) {
        pack_head(y, (const scalar *)x, job->dim, job->out_dim, all, own);
        continue;
      }
      for (int64_t d = 0; d < job->dim; d++)
        y[d] = d < job->out_dim ? *(const scalar *)(x + d * from->feature) : 0;
    }
}

/* The sum of 0 times the numbers is 0 if all are finite, else NaN. */
static CPU_TARGET int all_finite(const void *x, int64_t count) {
  const scalar *p = x;
  vec sum = v_zero(), zero = v_zero();
  for (int64_t i = 0; i < count; i += VECTOR)
    sum = v_fma(v_load(p + i), zero, sum);
  return v_sum(sum) == 0;
}

#include "kernels/attention/cpu/gradients.h"
#include "kernels/attention/cpu/heads_backward.h"

const dfgnn_cpu_kernels CPU_TABLE_OF(dfgnn__cpu) = {
    .vector = VECTOR,
    .score = {score_gt, score_agnn, score_gat, score_gatv2},
    .weigh = weigh,
    .spans_heads = attends_heads,
    .attend = attend,
    .spans_side = spans_side,
    .grade = grade,
    .accumulate = accumulate,
    .store = store,
    .combine = combine,
    .multiply = multiply,
    .keep = keep,
    .normalize = normalize,
    .drop = drop,
    .norms = norms,
    .pack = pack,
    .finite = all_finite,
    .ends = ends,
    .terms = terms,
    .fetch = fetch,
    .spread = spread,
    .has_zero = has_zero,
    .compact = compact,
    .divide = divide,
    .cosine = cosine,
    .additive = additive_slopes,
    .slopes = slopes,
};
