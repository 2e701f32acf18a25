/* dense_kernels.h - the inner loops of dense blocks; a part of kernels.c */
#include "kernels/attention/cpu/dense.h"

/* ---- products of matrices, in tiles of registers ------------------------- */

/* Vectors of a panel: the registers have room for six rows of them. */
#if CPU_ISA == CPU_AVX512
#define TILE 4
#else
#define TILE 2
#endif
#define DENSE_PANEL (TILE * VECTOR)

/* Transposes scalars [VECTOR][VECTOR]: writes the first `count` columns,
 * `stride` scalars apart. */
CPU_INLINE void transpose(const scalar *rows, scalar *to, int64_t stride,
                          int64_t count) {
#if CPU_ISA == CPU_AVX512
  vec r[16], t[16];
  CPU_EACH(i, 16) { r[i] = _mm512_loadu_ps((const float *)rows + 16 * i); }
  CPU_EACH(i, 8) {
    t[2 * i] = _mm512_unpacklo_ps(r[2 * i], r[2 * i + 1]);
    t[2 * i + 1] = _mm512_unpackhi_ps(r[2 * i], r[2 * i + 1]);
  }
  CPU_EACH(i, 8) {
    __m512d a = _mm512_castps_pd(t[i / 2 * 4 + i % 2]);
    __m512d b = _mm512_castps_pd(t[i / 2 * 4 + i % 2 + 2]);
    r[2 * i] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, b));
    r[2 * i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, b));
  }
  CPU_EACH(k, 4) {
    vec a = _mm512_shuffle_f32x4(r[k], r[4 + k], 0x88);
    vec b = _mm512_shuffle_f32x4(r[8 + k], r[12 + k], 0x88);
    vec c = _mm512_shuffle_f32x4(r[k], r[4 + k], 0xdd);
    vec d = _mm512_shuffle_f32x4(r[8 + k], r[12 + k], 0xdd);
    t[k] = _mm512_shuffle_f32x4(a, b, 0x88);
    t[4 + k] = _mm512_shuffle_f32x4(c, d, 0x88);
    t[8 + k] = _mm512_shuffle_f32x4(a, b, 0xdd);
    t[12 + k] = _mm512_shuffle_f32x4(c, d, 0xdd);
  }
  CPU_EACH(i, 16) {
    if (i < count)
      _mm512_storeu_ps((float *)to + i * stride, t[i]);
  }
#else
  for (int64_t i = 0; i < count; i++)
    for (int64_t u = 0; u < VECTOR; u++)
      to[i * stride + u] = rows[u * VECTOR + i];
#endif
}

/* Computes a tile of c; rows from `rows` on repeat the last one. */
CPU_INLINE void tile(const scalar *a, int64_t a_stride, int64_t rows,
                     const scalar *b, int64_t depth, scalar *c,
                     int64_t c_stride, const int width) {
  const scalar *from[DFGNN_CPU_DENSE_ROWS];
  vec sum[DFGNN_CPU_DENSE_ROWS * TILE];

  CPU_EACH(r, DFGNN_CPU_DENSE_ROWS) {
    from[r] = a + (r < rows ? r : rows - 1) * a_stride;
    CPU_EACH(w, width) { sum[r * TILE + w] = v_zero(); }
  }
  for (int64_t k = 0; k < depth; k++) {
    vec y[TILE];
    CPU_EACH(w, width) { y[w] = v_load(b + k * DENSE_PANEL + w * VECTOR); }
    CPU_EACH(r, DFGNN_CPU_DENSE_ROWS) {
      vec x = v_set(from[r][k]);
      CPU_EACH(w, width) {
        sum[r * TILE + w] = v_fma(x, y[w], sum[r * TILE + w]);
      }
    }
  }
  CPU_EACH(r, DFGNN_CPU_DENSE_ROWS) {
    scalar *to = c + (r < rows ? r : rows - 1) * c_stride;
    CPU_EACH(w, width) { v_store(to + w * VECTOR, sum[r * TILE + w]); }
  }
}

static CPU_TARGET void product(const void *a, int64_t a_stride, int64_t rows,
                               const void *b, int64_t depth, void *c,
                               int64_t c_stride, int64_t columns) {
  for (int64_t p = 0; p < columns; p += DENSE_PANEL) {
    const scalar *panel = (const scalar *)b + p * depth;
    int64_t vectors = (columns - p + VECTOR - 1) / VECTOR;
    for (int64_t r = 0; r < rows; r += DFGNN_CPU_DENSE_ROWS) {
      const scalar *from = (const scalar *)a + r * a_stride;
      scalar *to = (scalar *)c + r * c_stride + p;
      switch (vectors < TILE ? vectors : TILE) {
#define CASE(width)                                                            \
  case width:                                                                  \
    tile(from, a_stride, rows - r, panel, depth, to, c_stride, width);         \
    break
        CASE(1);
        CASE(2);
#if TILE == 4
        CASE(3);
        CASE(4);
#endif
#undef CASE
      }
    }
  }
}

/* Loads the features d .. d + count - 1 of a node as scalars, and zeros up to a
 * whole vector. */
CPU_INLINE void load_features(const dfgnn_cpu_job *job,
                              const dfgnn_cpu_tensor *tensor, int64_t node,
                              int64_t head, int64_t d, int64_t count,
                              scalar *to) {
  const scalar *x = features(tensor, node, head);
  int64_t i = 0;
  if (job->packed) {
    for (; i + VECTOR <= count; i += VECTOR)
      v_store(to + i, v_load(x + d + i));
    if (i < count)
      v_store(to + i, v_load_tail(x + d + i, v_tail(count - i)));
    return;
  }
  for (; i < count; i++)
    to[i] = element((const char *)x + (d + i) * tensor->feature);
  for (; i % VECTOR; i++)
    to[i] = 0;
}

static CPU_TARGET void dense_keys(const dfgnn_cpu_job *job, int64_t head,
                                  int64_t first, int64_t count, void *to) {
  scalar rows[VECTOR * VECTOR];
  for (int64_t j = 0; j < count; j += VECTOR) {
    int64_t n = count - j < VECTOR ? count - j : VECTOR;
    scalar *at = (scalar *)to + j / DENSE_PANEL * DENSE_PANEL * job->dim +
                 j % DENSE_PANEL;
    memset(rows, 0, sizeof rows);
    for (int64_t u = j + VECTOR; u < count && u < j + 2 * VECTOR; u++)
      prefetch_row((const char *)features(&job->key, first + u, head), 0, 0,
                   job->packed ? job->dim * (int64_t)sizeof(scalar) : 0);
    for (int64_t d = 0; d < job->dim; d += VECTOR) {
      int64_t m = job->dim - d < VECTOR ? job->dim - d : VECTOR;
      for (int64_t u = 0; u < n; u++)
        load_features(job, &job->key, first + j + u, head, d, m,
                      rows + u * VECTOR);
      transpose(rows, at + d * DENSE_PANEL, DENSE_PANEL, m);
    }
  }
}

static CPU_TARGET void dense_values(const dfgnn_cpu_job *job, int64_t head,
                                    int64_t first, int64_t count, void *to) {
  for (int64_t d = 0; d < job->dim; d += DENSE_PANEL) {
    int64_t n = job->dim - d < DENSE_PANEL ? job->dim - d : DENSE_PANEL;
    scalar *panel = (scalar *)to + d * count;
    for (int64_t j = 0; j < count; j++)
      load_features(job, &job->value, first + j, head, d, n,
                    panel + j * DENSE_PANEL);
  }
}

/* Copies even queries that could be used in place: a tile reads several rows
 * side by side, which is slow from memory. */
static CPU_TARGET void dense_queries(const dfgnn_cpu_job *job, int64_t head,
                                     int64_t first, int64_t count, void *to,
                                     int64_t stride) {
  for (int64_t i = 0; i < count; i++)
    load_features(job, &job->query, first + i, head, 0, job->dim,
                  (scalar *)to + i * stride);
}

static const dfgnn_cpu_dense dense = {
    .keys = dense_keys,
    .values = dense_values,
    .queries = dense_queries,
    .product = product,
};

/* The lanes of x whose mark is 255, and those of fill whose mark is 0. */
CPU_INLINE vec v_marked(vec x, const uint8_t *marks, vec fill) {
#if CPU_ISA == CPU_AVX512
  __m128i m = _mm_loadu_si128((const __m128i *)marks);
  return _mm512_mask_mov_ps(fill, _mm_movepi8_mask(m), x);
#elif CPU_ISA == CPU_AVX2 && CPU_DTYPE == CPU_F64
  __m256i m = _mm256_cvtepi8_epi64(_mm_loadu_si32(marks));
  return _mm256_blendv_pd(fill, x, _mm256_castsi256_pd(m));
#elif CPU_ISA == CPU_AVX2
  __m256i m = _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)marks));
  return _mm256_blendv_ps(fill, x, _mm256_castsi256_ps(m));
#else
  for (int i = 0; i < VECTOR; i++)
    x[i] = marks[i] ? x[i] : fill[i];
  return x;
#endif
}

/* Marks are 255 for a column to which the row has an edge, else 0, up to whole
 * vectors and scalars. */
static CPU_TARGET int mark(const int32_t *index, int64_t count, int64_t first,
                           int64_t columns, uint8_t *marks) {
  int64_t whole = (columns + 15) / 16 * 16, ones = 0;
  uint64_t bytes;
  memset(marks, 0, (size_t)whole);
  for (int64_t e = 0; e < count; e++)
    marks[index[e] - first] = 255;
  for (int64_t j = 0; j < whole; j += (int64_t)sizeof bytes) {
    memcpy(&bytes, marks + j, sizeof bytes);
    ones += __builtin_popcountll(bytes);
  }
  return ones == 8 * count;
}

static CPU_TARGET void weigh_marked(void *cells, const uint8_t *marks,
                                    int64_t columns, double scale,
                                    dfgnn_cpu_softmax *state) {
  scalar *s = cells;
  vec none = v_set(-INFINITY), top = none, sum = v_zero();
  vec factor = v_set((scalar)scale);

  for (int64_t i = 0; i < columns; i += VECTOR) {
    vec x = v_marked(v_mul(factor, v_load(s + i)), marks + i, none);
    top = v_max(x, top);
    v_store(s + i, x);
  }
  double highest = v_top(top);
  vec shift = v_set(highest == -INFINITY ? 0 : (scalar)-highest);
  for (int64_t i = 0; i < columns; i += VECTOR) {
    vec p = v_marked(v_exp(v_add(v_load(s + i), shift)), marks + i, v_zero());
    sum = v_add(sum, p);
    v_store(s + i, p);
  }
  state->shift = highest;
  state->sum = v_sum(sum);
}

static CPU_TARGET void take(const dfgnn_cpu_job *job, int64_t row, int64_t head,
                            int64_t begin, int64_t count, const void *products,
                            int64_t first, void *scores) {
  const int32_t *index = job->indices + begin;
  const scalar *from = (const scalar *)products;
  scalar *s = scores;
  for (int64_t e = 0; e < count; e++)
    s[e] = from[index[e] - first];
  if (job->op == DFGNN_OP_AGNN)
    cosines(job, features(&job->query, row, head), head, index, count, s);
  else if (job->scale != 1)
    scale_by(s, count, (scalar)job->scale);
  add_bias(job, head, begin, count, s);
}

/* The weights of edges that are there twice add up. */
static CPU_TARGET void scatter(const dfgnn_cpu_job *job, int64_t begin,
                               int64_t count, const void *weights,
                               double factor, int64_t first, int64_t columns,
                               void *to) {
  const int32_t *index = job->indices + begin;
  const scalar *w = weights;
  scalar *row = to, f = (scalar)factor;
  memset(row, 0, (size_t)columns * sizeof *row);
  for (int64_t e = 0; e < count; e++)
    row[index[e] - first] += f * w[e];
}

static CPU_TARGET void span(const int32_t *index, int64_t count, int32_t *first,
                            int32_t *last) {
  int32_t low = INT32_MAX, high = -1;
  for (int64_t e = 0; e < count; e++) {
    low = index[e] < low ? index[e] : low;
    high = index[e] > high ? index[e] : high;
  }
  *first = low;
  *last = high;
}

/* The sum of 0 times the numbers is 0 if all are finite, else NaN. */
static CPU_TARGET int all_finite(const void *x, int64_t count) {
  const scalar *p = x;
  vec sum = v_zero(), zero = v_zero();
  for (int64_t i = 0; i < count; i += VECTOR)
    sum = v_fma(v_load(p + i), zero, sum);
  return v_sum(sum) == 0;
}
