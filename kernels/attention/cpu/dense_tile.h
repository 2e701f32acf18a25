/* dense_tile.h - a product of matrices in tiles of registers
 *
 * Included after cpu_vector.h by a source that defines TILE_STEP(sum, a, b):
 * sum plus the products of a word of a, in all lanes, and a vector of words of
 * b; and word, the type of a word that is broadcast by TILE_SET. */

/* Vectors of a panel: the registers have room for six rows of them. */
#if CPU_ISA == CPU_AVX512
#define TILE 4
#else
#define TILE 2
#endif
#define DENSE_PANEL (TILE * VECTOR)

/* Transposes words [VECTOR][VECTOR]: writes the first `count` columns, `stride`
 * words apart. */
CPU_INLINE void transpose(const word *rows, word *to, int64_t stride,
                          int64_t count) {
#if CPU_ISA == CPU_AVX512 && CPU_DTYPE != CPU_F64
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
CPU_INLINE void tile(const word *a, int64_t a_stride, int64_t rows,
                     const word *b, int64_t depth, scalar *c, int64_t c_stride,
                     const int width) {
  const word *from[DFGNN_CPU_DENSE_ROWS];
  vec sum[DFGNN_CPU_DENSE_ROWS * TILE];

  CPU_EACH(r, DFGNN_CPU_DENSE_ROWS) {
    from[r] = a + (r < rows ? r : rows - 1) * a_stride;
    CPU_EACH(w, width) { sum[r * TILE + w] = v_zero(); }
  }
  for (int64_t k = 0; k < depth; k++) {
    vec y[TILE];
    CPU_EACH(w, width) {
      y[w] = s_load((const scalar *)b + k * DENSE_PANEL + w * VECTOR);
    }
    CPU_EACH(r, DFGNN_CPU_DENSE_ROWS) {
      vec x = TILE_SET(from[r] + k);
      CPU_EACH(w, width) {
        sum[r * TILE + w] = TILE_STEP(sum[r * TILE + w], x, y[w]);
      }
    }
  }
  CPU_EACH(r, DFGNN_CPU_DENSE_ROWS) {
    scalar *to = c + (r < rows ? r : rows - 1) * c_stride;
    CPU_EACH(w, width) { s_store(to + w * VECTOR, sum[r * TILE + w]); }
  }
}

static CPU_TARGET void product(const void *a, int64_t a_stride, int64_t rows,
                               const void *b, int64_t depth, void *c,
                               int64_t c_stride, int64_t columns) {
  for (int64_t p = 0; p < columns; p += DENSE_PANEL) {
    const word *panel = (const word *)b + p * depth;
    int64_t vectors = (columns - p + VECTOR - 1) / VECTOR;
    for (int64_t r = 0; r < rows; r += DFGNN_CPU_DENSE_ROWS) {
      const word *from = (const word *)a + r * a_stride;
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
