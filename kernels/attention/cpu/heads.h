/* heads.h - attention for all heads of a row at once, for one instruction set
 * and storage type; a part of kernels.c
 *
 * Where heads are narrow, what is done once an edge and head costs more than
 * the products.  Here vectors lie along the heads: the numbers of a chunk of
 * edges are [edges, places], where places are the heads, rounded up to a
 * divisor or a multiple of VECTOR.  A vector has the heads of several edges if
 * these are few.  The sums of the products of many heads come from folding a
 * group of vectors into one, which needs no sum of one vector.  The numbers of
 * places that no head has are 0 before exponentials, and 1 after them. */

enum { ACROSS_EDGES = 64 }; /* of a chunk, or fewer if heads are many */

#if CPU_DTYPE == CPU_F64
#define LOWEST -DBL_MAX
#else
#define LOWEST -FLT_MAX
#endif

/* ---- padding --------------------------------------------------------------
 */

/* Heads narrower than a vector, and the padding after each.  A vector has `own`
 * numbers without it. */
typedef struct padding {
  int64_t own;
  tail rest;           /* the first `own` lanes */
  lanes spread, close; /* the places of lanes with padding, and without */
} padding;

/* Can whole vectors of heads be padded, from or to such a tensor? */
CPU_INLINE int pads_vectors(const dfgnn_cpu_job *job,
                            const dfgnn_cpu_tensor *t) {
  return ANY_LANES && job->out_dim < job->dim && job->dim < VECTOR &&
         (job->heads * job->dim) % VECTOR == 0 &&
         t->feature == (int64_t)sizeof(scalar) &&
         t->head == job->out_dim * (int64_t)sizeof(scalar);
}

#if ANY_LANES
CPU_INLINE padding padding_of(const dfgnn_cpu_job *job) {
  const int dim = (int)job->dim, own = (int)job->out_dim;
  const int all = VECTOR / dim * own;
  int32_t spread[VECTOR], close[VECTOR];
  for (int i = 0; i < VECTOR; i++) {
    /* The last lane is beyond the numbers, and zero. */
    spread[i] = i % dim < own ? i / dim * own + i % dim : VECTOR - 1;
    close[i] = i < all ? i / own * dim + i % own : 0;
  }
  return (padding){all, v_tail(all), v_lanes_at(spread), v_lanes_at(close)};
}

CPU_INLINE void pad_row(const padding *p, scalar *to, const scalar *from,
                        int64_t row) {
  for (int64_t d = 0; d < row; d += VECTOR, from += p->own)
    v_store(to + d, v_pick(v_load_tail(from, p->rest), p->spread));
}

/* Writes factor times a row, without its padding. */
CPU_INLINE void close_row(const padding *p, scalar *to, const scalar *from,
                          int64_t row, vec factor) {
  for (int64_t d = 0; d < row; d += VECTOR, to += p->own)
    v_store_tail(to, v_pick(v_mul(factor, v_load(from + d)), p->close),
                 p->rest);
}
#else
CPU_INLINE padding padding_of(const dfgnn_cpu_job *job) {
  (void)job;
  return (padding){.own = 0};
}
CPU_INLINE void pad_row(const padding *p, scalar *to, const scalar *from,
                        int64_t row) {
  (void)p, (void)to, (void)from, (void)row;
}
CPU_INLINE void close_row(const padding *p, scalar *to, const scalar *from,
                          int64_t row, vec factor) {
  (void)p, (void)to, (void)from, (void)row, (void)factor;
}
#endif

/* ---- rows -----------------------------------------------------------------
 */

typedef struct across {
  int64_t heads, dim, row; /* row: heads x dim */
  int64_t places;
  int64_t period; /* numbers after which the heads repeat in vectors */
  int64_t edges;  /* of a vector */
  int64_t chunk;  /* edges */
  /* A vector of sums comes from `group` vectors of products, `share` of each
   * edge.  Such a vector is the sum of `depth`, and an edge has `real`. */
  int64_t group, share, depth, real;
  tail rest; /* the heads of the last vector, if it is not full */
  /* Of heads narrower than a vector: the heads of the vectors of features that
   * a vector of heads belongs to. */
  lanes owners[VECTOR / 2];
  padding padding;
} across;

/* The memory of a row, DFGNN_CPU_ACROSS_BYTES at most. */
typedef struct across_memory {
  scalar *scores;      /* [chunk, places] */
  scalar *factors;     /* [period]: of the sums before a chunk */
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
  x.share = x.group / x.edges;
  x.depth = x.dim < VECTOR ? 1 : x.dim / VECTOR;
  x.real = x.row / (x.depth * VECTOR);
  x.rest = v_tail(x.heads % VECTOR);
  if (x.dim < VECTOR)
    for (int64_t i = 0; i < x.dim; i++)
      x.owners[i] =
          v_lanes(__builtin_ctzll((uint64_t)x.dim), i * (VECTOR / x.dim));
  if (job->out_dim < job->dim && job->dim < VECTOR)
    x.padding = padding_of(job);
  return x;
}

/* Are rows of the output closed? */
CPU_INLINE int closes_rows(const dfgnn_cpu_job *job) {
  return !job->out_adds && pads_vectors(job, &job->out);
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
  return t->head == job->dim * (int64_t)sizeof(scalar);
}

/* Can rows be written whole?  Inside, dim is padded; in the output, the numbers
 * after out_dim are another's. */
CPU_INLINE int writes_rows(const dfgnn_cpu_job *job) {
  return job->out_packed && !job->out_adds && job->out_dim == job->dim &&
         adjacent_heads(job, &job->out);
}

/* Are heads so many and narrow, and do they fill vectors? */
CPU_INLINE int narrow_heads(const dfgnn_cpu_job *job) {
  int64_t dim = job->dim, row = job->heads * dim;
  return job->heads > 1 && job->heads <= DFGNN_CPU_NARROW_HEADS &&
         dim <= DFGNN_CPU_NARROW_DIM && job->packed &&
         (dim % VECTOR == 0 || (VECTOR % dim == 0 && row % VECTOR == 0));
}

/* Are a job's scores better computed for all heads at once, and can they be? */
CPU_INLINE int spans_heads(const dfgnn_cpu_job *job) {
  return DFGNN_AMONG(DFGNN_OPS_BY_HAND, job->op) && narrow_heads(job) &&
         (job->op == DFGNN_OP_GAT ||
          (adjacent_heads(job, &job->key) && adjacent_heads(job, &job->query)));
}

static CPU_TARGET int attends_heads(const dfgnn_cpu_job *job) {
  return spans_heads(job) && !job->out_adds && adjacent_heads(job, &job->value);
}

/* y, or 0 where x is 0. */
CPU_INLINE vec v_unless_zero(vec x, vec y) {
#if CPU_ISA == CPU_AVX512
  return V(maskz_mov)(V_COMPARE(x, v_zero(), _CMP_NEQ_UQ), y);
#elif CPU_ISA == CPU_AVX2
  return V(and)(V(cmp)(x, v_zero(), _CMP_NEQ_UQ), y);
#else
  return v_choose((bits)(x == v_zero()), v_zero(), y);
#endif
}

/* The numbers [heads] from h on, and zeros beyond the last. */
CPU_INLINE vec load_heads(const across *x, const scalar *numbers, int64_t h) {
  return h + VECTOR <= x->heads ? v_load(numbers + h)
                                : v_load_tail(numbers + h, x->rest);
}

/* Adds the lanes of the same head, where a vector has several edges. */
CPU_INLINE vec together(const across *x, vec y) {
  for (int64_t step = x->places; step < VECTOR; step *= 2)
    y = v_add(y, v_turn(y, step));
  return y;
}

/* The numbers [heads] of the edges of a vector, which begin at at[0], ... */
CPU_INLINE vec gather_heads(const across *x, const scalar *numbers,
                            const int64_t *at, int64_t left, int64_t h) {
  vec y = load_heads(x, numbers + at[0], h);
  for (int64_t u = 1; u < x->edges && u < left; u++)
    y = v_add(
        y, v_turn(load_heads(x, numbers + at[u], 0), VECTOR - u * x->places));
  return y;
}

/* Sets the numbers from `count` on of their last vector to x. */
CPU_INLINE void fill_last(scalar *numbers, int64_t count, scalar x) {
  const int64_t rest = count % VECTOR;
  if (rest) { /* by whole vectors, which the next loads get without waiting */
    scalar *last = numbers + count - rest;
    v_store(last, v_keep(v_load(last), v_tail(rest), v_set(x)));
  }
}

/* Where numbers [nodes, stride] of the gathered rows of edges begin. */
CPU_INLINE void rows_of(const across *x, const int32_t *index, int64_t left,
                        int64_t stride, int64_t *at) {
  for (int64_t u = 0; u < x->edges && u < left; u++)
    at[u] = index[u] * stride;
}

/* Where numbers [edges, heads] of edges begin. */
CPU_INLINE void edges_of(const across *x, const dfgnn_cpu_job *job,
                         int64_t edge, int64_t left, int64_t *at) {
  for (int64_t u = 0; u < x->edges && u < left; u++)
    at[u] = dfgnn__cpu_number(job, edge + u) * x->heads;
}

CPU_INLINE void store_heads(const across *x, scalar *to, const scalar *from) {
  int64_t h = 0;
  for (; h + VECTOR <= x->heads; h += VECTOR)
    v_store(to + h, v_load(from + h));
#if CPU_ISA == CPU_AVX512
  if (h < x->heads)
    v_store_tail(to + h, v_load(from + h), x->rest);
#else /* masked stores are slow on some processors */
  for (; h < x->heads; h++)
    to[h] = from[h];
#endif
}

/* ---- products ------------------------------------------------------------ */

/* Calls f(group, depth) with constants; depth 0: any, also 2 if it is not given
 * for itself. */
#define FOLDED(x, f, two)                                                      \
  do {                                                                         \
    if ((x)->group < VECTOR) {                                                 \
      if ((x)->group == 1)                                                     \
        f(1, 1);                                                               \
      else if (VECTOR > 2 && (x)->group == 2)                                  \
        f(2, 1);                                                               \
      else if (VECTOR > 4 && (x)->group == 4)                                  \
        f(4, 1);                                                               \
      else if (VECTOR > 8)                                                     \
        f(8, 1);                                                               \
    } else if ((x)->depth == 1) {                                              \
      f(VECTOR, 1);                                                            \
    } else if ((two) && (x)->depth == 2) {                                     \
      f(VECTOR, 2);                                                            \
    } else {                                                                   \
      f(VECTOR, 0);                                                            \
    }                                                                          \
  } while (0)

/* A vector of products of rows, or the sum of the vectors of a head; with: k
 * and an edge's part are added. */
CPU_INLINE vec product_of(const scalar *q, const scalar *att, const scalar *k,
                          const scalar *part, vec slope, int64_t depth,
                          const int op, const int with) {
  vec sum = v_zero();
  for (int64_t d = 0; d < depth * VECTOR; d += VECTOR) {
    vec w = v_load(q + d), y = v_load(k + d);
    if (with)
      y = v_add(y, v_load(part + d));
    if (op == DFGNN_OP_GATV2) {
      y = v_leaky(v_add(w, y), slope);
      w = v_load(att + d);
    }
    sum = d == 0 ? v_mul(w, y) : v_fma(w, y, sum);
  }
  return sum;
}

/* The operands of the products of an own row with the rows of edges. */
typedef struct pairing {
  const scalar *own, *att;
  const char *base;
  const int32_t *index;
  int64_t stride, count, ahead, prefetch;
  const scalar *parts; /* of edges, [count, row]; NULL: nothing is added */
  vec slope;
} pairing;

/* Fetches the rows that the edges of a vector from e on are ahead of. */
CPU_INLINE void fetch_pairs(const across *x, const pairing *p, int64_t e,
                            int64_t edges) {
  for (int64_t u = e; u < e + edges && u < p->ahead; u++)
    prefetch_row(p->base, p->index[u + p->prefetch], p->stride,
                 x->row * (int64_t)sizeof(scalar));
}

/* The same as pair_rows() where a vector has the heads of `edges` edges.  full:
 * and no other places, so that the loop has no branches, and the own row stays
 * in registers. */
CPU_INLINE void pair_edges(const across *x, const pairing *p, scalar *to,
                           const int group, const int edges, const int given,
                           const int op, const int with, const int full) {
  const int64_t depth = given ? given : x->depth, step = depth * VECTOR;
  const int share = group / edges;
  const vec slope = p->slope;
  vec a[VECTOR];
  for (int64_t e = 0; e < p->count; e += edges, to += VECTOR) {
    const int64_t last = p->count - 1 - e;
    fetch_pairs(x, p, e, edges);
    CPU_EACH(u, edges) {
      const int64_t at = e + (u < last ? u : last);
      const scalar *k = row_at(p->base, p->index[at], p->stride);
      const scalar *part = with ? p->parts + at * x->row : NULL;
      CPU_EACH(i, share) {
        a[u * share + i] =
            full || i < x->real
                ? product_of(p->own + i * step, p->att + i * step, k + i * step,
                             part + i * step, slope, depth, op, with)
                : v_zero();
      }
    }
    v_store(to, v_fold(a, group));
  }
}

CPU_INLINE void pair_rows(const across *x, const pairing *p, scalar *to,
                          const int group, const int given, const int op,
                          const int with) {
  const int64_t depth = given ? given : x->depth, step = depth * VECTOR;
  const int64_t whole = x->edges == 1 ? x->real / group : 0;
  const scalar *own = p->own, *att = p->att;
  const int shift = __builtin_ctzll((uint64_t)x->share);
  const vec slope = p->slope;
  vec a[VECTOR];
#define PAIR_EDGES(several)                                                    \
  if (VECTOR >= 2 * (several) && x->edges == (several)) {                      \
    if (x->share == x->real)                                                   \
      pair_edges(x, p, to, group, several, given, op, with, 1);                \
    else                                                                       \
      pair_edges(x, p, to, group, several, 0, op, with, 0);                    \
    return;                                                                    \
  }
  if (group >= VECTOR / 2 && x->share >= x->real) {
    PAIR_EDGES(2)
    PAIR_EDGES(4)
    PAIR_EDGES(8)
  }
#undef PAIR_EDGES
  for (int64_t e = 0; e < p->count; e += x->edges) {
    fetch_pairs(x, p, e, x->edges);
    const scalar *k = row_at(p->base, p->index[e], p->stride);
    const scalar *part = with ? p->parts + e * x->row : NULL;
    scalar *sums = to + e * x->places;
    int64_t at = 0;
    for (int64_t g = 0; g < whole; g++, at += group * step, sums += VECTOR) {
      CPU_EACH(j, group) {
        a[j] = product_of(own + at + j * step, att + at + j * step,
                          k + at + j * step, part + at + j * step, slope, depth,
                          op, with);
      }
      v_store(sums, v_fold(a, group));
    }
    if (whole * group == x->real)
      continue;
    if (group < VECTOR / 2 && x->share == x->real) {
      /* a vector has the heads of several edges */
      const int64_t last = p->count - 1 - e;
      CPU_EACH(j, group) {
        int64_t i = j & (x->share - 1), u = j >> shift;
        u = u < last ? u : last;
        k = row_at(p->base, p->index[e + u], p->stride);
        part = with ? p->parts + (e + u) * x->row : NULL;
        a[j] = product_of(own + i * step, att + i * step, k + i * step,
                          part + i * step, slope, depth, op, with);
      }
      v_store(sums, v_fold(a, group));
      continue;
    }
    /* The rest of the heads, or those of several edges. */
    CPU_EACH(j, group) { a[j] = v_zero(); }
    for (int64_t u = 0; u < x->edges && e + u < p->count; u++) {
      k = row_at(p->base, p->index[e + u], p->stride);
      part = with ? p->parts + (e + u) * x->row : NULL;
      int64_t left = x->real - whole * group;
      for (int64_t i = 0; i < x->share && i < left; i++)
        a[u * x->share + i] = product_of(
            own + at + i * step, att + at + i * step, k + at + i * step,
            part + at + i * step, slope, depth, op, with);
    }
    v_store(sums, v_fold(a, group));
  }
}

#define PAIR_GT(group, depth) pair_rows(x, p, to, group, depth, DFGNN_OP_GT, 0)
#define PAIR_GATV2(group, depth)                                               \
  pair_rows(x, p, to, group, depth, DFGNN_OP_GATV2, 0)
#define PAIR_GT_PARTS(group, depth)                                            \
  pair_rows(x, p, to, group, depth, DFGNN_OP_GT, 1)
#define PAIR_GATV2_PARTS(group, depth)                                         \
  pair_rows(x, p, to, group, depth, DFGNN_OP_GATV2, 1)

static CPU_TARGET void pair_gt(const across *x, const pairing *p, scalar *to) {
  if (p->parts)
    FOLDED(x, PAIR_GT_PARTS, 0);
  else
    FOLDED(x, PAIR_GT, 1);
}
static CPU_TARGET void pair_gatv2(const across *x, const pairing *p,
                                  scalar *to) {
  if (p->parts)
    FOLDED(x, PAIR_GATV2_PARTS, 0);
  else
    FOLDED(x, PAIR_GATV2, 1);
}

/* Computes the products of an own row of job->query, and att if op is GATv2,
 * with the rows of job->key of `count` edges, to which their parts are added.
 */
CPU_INLINE void products_across(const across *x, const dfgnn_cpu_job *job,
                                int64_t row, int64_t begin, int64_t count,
                                scalar *to, dfgnn_op op, const scalar *parts) {
  const pairing p = {.own = features(&job->query, row, 0),
                     .att = job->att,
                     .base = job->key.base,
                     .index = job->indices + begin,
                     .stride = job->key.node,
                     .count = count,
                     .ahead =
                         job->prefetch ? job->edges - job->prefetch - begin : 0,
                     .prefetch = job->prefetch,
                     .parts = parts,
                     .slope = v_set((scalar)job->slope)};
  if (op == DFGNN_OP_GATV2)
    pair_gatv2(x, &p, to);
  else
    pair_gt(x, &p, to);
}

/* Computes the products of two rows, of which the second is scalars. */
CPU_INLINE void fold_rows(const across *x, const scalar *a, const scalar *b,
                          scalar *to, const int group) {
  const int64_t step = x->depth * VECTOR;
  vec y[VECTOR];
  for (int64_t first = 0; first < x->real; first += group, to += VECTOR) {
    CPU_EACH(j, group) {
      const int64_t i = first + j;
      y[j] = v_zero();
      for (int64_t d = i * step; i < x->real && d < (i + 1) * step; d += VECTOR)
        y[j] = v_fma(v_load(a + d), v_load(b + d), y[j]);
    }
    v_store(to, v_fold(y, group));
  }
}

#define FOLD_ROWS(group, depth) fold_rows(x, a, b, to, group)
static CPU_TARGET void sum_products(const across *x, const scalar *a,
                                    const scalar *b, scalar *to) {
  FOLDED(x, FOLD_ROWS, 0);
}

/* The same of two rows of scalar, and zeros in the rest of a vector. */
CPU_INLINE void own_products(const across *x, const scalar *a, const scalar *b,
                             scalar *to) {
  static const int32_t itself[1] = {0};
  const pairing p = {
      .own = a, .base = (const char *)b, .index = itself, .count = 1};
  pair_gt(x, &p, to);
  fill_last(to, x->places, 0);
}

/* numbers = 1 / max(root of numbers, 1e-12). */
CPU_INLINE void invert_norms(const across *x, scalar *numbers) {
  const vec one = v_set(1), least = v_set((scalar)1e-12);
  for (int64_t h = 0; h < x->places; h += VECTOR)
    v_store(numbers + h, v_div(one, v_max(v_root(v_load(numbers + h)), least)));
}

CPU_INLINE void norms_across(const dfgnn_cpu_job *job, int64_t begin,
                             int64_t end) {
  const across x = across_of(job);
  scalar numbers[DFGNN_CPU_MOST_HEADS + VECTOR];
  for (int64_t j = begin; j < end; j++) {
    const scalar *row = features(&job->key, j, 0);
    own_products(&x, row, row, numbers);
    invert_norms(&x, numbers);
    store_heads(&x, (scalar *)job->inverse + j * x.heads, numbers);
  }
}
