/* dense_dot.c - dense blocks of bfloat16 by dot products of pairs, which
 * AVX512-BF16 adds up in float */
#include "kernels/attention/cpu/dense.h"
#ifdef __x86_64__
#define CPU_ISA CPU_AVX512
#define CPU_DTYPE CPU_BF16
#include "kernels/common/cpu_vector.h"

#undef CPU_TARGET
#undef CPU_INLINE
#define CPU_TARGET                                                             \
  __attribute__((                                                              \
      target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,fma,f16c")))
#define CPU_INLINE static inline __attribute__((always_inline)) CPU_TARGET

typedef uint32_t word; /* a pair */
#define TILE_SET(p) _mm512_castsi512_ps(_mm512_set1_epi32((int)*(p)))
#define TILE_STEP(sum, a, b)                                                   \
  _mm512_dpbf16_ps(sum, (__m512bh)_mm512_castps_si512(a),                      \
                   (__m512bh)_mm512_castps_si512(b))
#include "kernels/attention/cpu/dense_tile.h"

static const storage *row_of(const dfgnn_cpu_tensor *t, int64_t node,
                             int64_t head) {
  return (const storage *)(t->base + node * t->node + head * t->head);
}

/* Copies the features d .. d + count - 1 of a node, and zeros up to `whole`. */
CPU_INLINE void load_features(const dfgnn_cpu_job *job,
                              const dfgnn_cpu_tensor *t, int64_t node,
                              int64_t head, int64_t d, int64_t count,
                              int64_t whole, storage *to) {
  const storage *x = row_of(t, node, head);
  if (job->packed)
    memcpy(to, x + d, (size_t)count * sizeof *to);
  else
    for (int64_t i = 0; i < count; i++)
      to[i] = *(const storage *)((const char *)x + (d + i) * t->feature);
  memset(to + count, 0, (size_t)(whole - count) * sizeof *to);
}

/* A word is a pair of features of a node. */
static CPU_TARGET void keys(const dfgnn_cpu_job *job, int64_t head,
                            int64_t first, int64_t count, void *to) {
  int64_t depth = (job->dim + 1) / 2;
  word rows[VECTOR * VECTOR];
  for (int64_t j = 0; j < count; j += VECTOR) {
    int64_t n = count - j < VECTOR ? count - j : VECTOR;
    word *at =
        (word *)to + j / DENSE_PANEL * DENSE_PANEL * depth + j % DENSE_PANEL;
    memset(rows, 0, sizeof rows);
    for (int64_t u = j + VECTOR; u < count && u < j + 2 * VECTOR; u++)
      for (int64_t d = 0; d < job->dim && job->packed; d += 32)
        __builtin_prefetch(row_of(&job->key, first + u, head) + d);
    for (int64_t d = 0; d < job->dim; d += 2 * VECTOR) {
      int64_t m = job->dim - d < 2 * VECTOR ? job->dim - d : 2 * VECTOR;
      for (int64_t u = 0; u < n; u++) {
        storage *row = (storage *)(rows + u * VECTOR);
        if (job->packed && m == 2 * VECTOR)
          memcpy(row, row_of(&job->key, first + j + u, head) + d,
                 2 * VECTOR * sizeof *row);
        else
          load_features(job, &job->key, first + j + u, head, d, m, m + m % 2,
                        row);
      }
      transpose(rows, at + d / 2 * DENSE_PANEL, DENSE_PANEL, (m + 1) / 2);
    }
  }
}

/* Loads VECTOR features of a node, from d on, into lower halves of words. */
CPU_INLINE __m512i load_halves(const dfgnn_cpu_job *job, int64_t node,
                               int64_t head, int64_t d) {
  int64_t n = job->dim - d < VECTOR ? job->dim - d : VECTOR;
  storage lanes[VECTOR];
  if (job->packed)
    return _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(
        v_tail(n), row_of(&job->value, node, head) + d));
  load_features(job, &job->value, node, head, d, n, VECTOR, lanes);
  return _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)lanes));
}

/* A word is a feature of two nodes. */
static CPU_TARGET void values(const dfgnn_cpu_job *job, int64_t head,
                              int64_t first, int64_t count, void *to) {
  int64_t depth = (count + 1) / 2;
  for (int64_t k = 0; k < depth; k++)
    for (int64_t d = 0; d < job->dim; d += VECTOR) {
      int64_t node = first + 2 * k;
      word *at = (word *)to + d / DENSE_PANEL * DENSE_PANEL * depth +
                 k * DENSE_PANEL + d % DENSE_PANEL;
      __m512i low = load_halves(job, node, head, d);
      __m512i high = 2 * k + 1 < count ? load_halves(job, node + 1, head, d)
                                       : _mm512_setzero_si512();
      _mm512_storeu_si512(at,
                          _mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
    }
}

static CPU_TARGET void queries(const dfgnn_cpu_job *job, int64_t head,
                               int64_t first, int64_t count, void *to,
                               int64_t stride) {
  for (int64_t i = 0; i < count; i++)
    load_features(job, &job->query, first + i, head, 0, job->dim,
                  job->dim + job->dim % 2,
                  (storage *)((word *)to + i * stride));
}

static CPU_TARGET void round_row(void *row, int64_t count) {
  const scalar *from = row;
  storage *to = row;
  int64_t i = 0;
  for (; i + VECTOR <= count; i += VECTOR)
    v_store(to + i, s_load(from + i));
  if (i < count) {
    tail t = v_tail(count - i);
    v_store_tail(to + i, s_load_tail(from + i, t), t);
  }
}

const dfgnn_cpu_dense dfgnn__cpu_dense_dot = {
    .elements = 2,
    .keys = keys,
    .values = values,
    .queries = queries,
    .round = round_row,
    .product = product,
};
#endif
