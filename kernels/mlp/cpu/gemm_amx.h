/* gemm_amx.h - products of gemm.h in tiles of AMX: operands are rounded to
 * bf16, sums are of float
 *
 * A is copied to rows of bf16; B comes packed, or is copied, as AMX reads it:
 *
 *     panels of 16 columns, in which pair k / 2 of rows is 16 times the numbers
 *     of rows k and k + 1
 *
 * The inner size is padded with zeros to AMX_INNER.  A thread has no tiles
 * configured between calls, so that switches of threads save none. */
#ifndef DFGNN_KERNELS_MLP_CPU_GEMM_AMX_H
#define DFGNN_KERNELS_MLP_CPU_GEMM_AMX_H

#include "kernels/mlp/cpu/gemm.h"

enum { AMX_ROWS = 16, AMX_INNER = 32 };

static inline int64_t amx_inner(int64_t inner) {
  return (inner + AMX_INNER - 1) / AMX_INNER * AMX_INNER;
}

/* Numbers of bf16 of a packed B. */
static inline int64_t amx_packed(int64_t inner, int64_t columns) {
  return padded(columns) * amx_inner(inner);
}

/* Numbers of bf16 that a product of at most these sizes copies. */
static inline int64_t amx_copied(int64_t rows, int64_t inner, int64_t columns) {
  return amx_inner(inner) * (rows + padded(columns));
}

#define AMX_TARGET                                                             \
  __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,fma,"   \
                        "f16c,amx-tile,amx-bf16")))

/* Of a float that is a bf16. */
static inline uint16_t amx_number(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return (uint16_t)(bits >> 16);
}

/* ---- copies -------------------------------------------------------------- */

typedef struct amx_config {
  uint8_t palette, start, reserved[14];
  uint16_t bytes[16]; /* of a row of each tile */
  uint8_t rows[16];
} amx_config;

/* Two rows of 16 numbers, the other NULL or of zeros, as 16 pairs. */
AMX_TARGET static inline __m512i amx_pairs(const scalar *a, const scalar *b,
                                           __mmask16 there) {
  const __m512i low = _mm512_cvtepu16_epi32(
      (__m256i)_mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(there, a)));
  if (!b)
    return low;
  const __m512i high = _mm512_cvtepu16_epi32(
      (__m256i)_mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(there, b)));
  return _mm512_or_si512(low, _mm512_slli_epi32(high, 16));
}

/* to[row] = from[row], [rows, inner padded]. */
AMX_TARGET static void amx_copy_rows(uint16_t *to, const scalar *from,
                                     int64_t step, int64_t rows,
                                     int64_t inner) {
  const int64_t wide = amx_inner(inner);
  for (int64_t row = 0; row < rows; row++, from += step, to += wide)
    for (int64_t k = 0; k < wide; k += 16) {
      const int64_t left = inner - k;
      const __mmask16 there = left >= 16  ? (__mmask16)-1
                              : left <= 0 ? 0
                                          : (__mmask16)((1u << left) - 1);
      _mm256_storeu_si256(
          (__m256i *)(to + k),
          (__m256i)_mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(there, from + k)));
    }
}

/* to[column] = the column of from, [columns, inner padded]. */
AMX_TARGET static void amx_copy_columns(uint16_t *to, const scalar *from,
                                        int64_t step, int64_t columns,
                                        int64_t inner) {
  const int64_t wide = amx_inner(inner);
  const __m512i places = _mm512_mullo_epi32(
      _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
      _mm512_set1_epi32((int)(wide / 2)));
  for (int64_t column = 0; column < columns; column += 16) {
    const int64_t left = columns - column;
    const __mmask16 there =
        left >= 16 ? (__mmask16)-1 : (__mmask16)((1u << left) - 1);
    for (int64_t k = 0; k < wide; k += 2) {
      const scalar *row = from + k * step + column;
      const __m512i pairs =
          k < inner ? amx_pairs(row, k + 1 < inner ? row + step : NULL, there)
                    : _mm512_setzero_si512();
      _mm512_mask_i32scatter_epi32(to + column * wide + k, there, places, pairs,
                                   4);
    }
  }
}

/* A packed B of values of a tile, whose rows are of whole vectors. */
AMX_TARGET static void amx_copy_packed(uint16_t *to, const scalar *from,
                                       int64_t step, int64_t inner,
                                       int64_t columns) {
  const int64_t wide = amx_inner(inner);
  for (int64_t column = 0; column < columns; column += 16)
    for (int64_t k = 0; k < wide; k += 2, to += 32) {
      const scalar *row = from + k * step + column;
      _mm512_storeu_si512(
          to, k < inner ? amx_pairs(row, k + 1 < inner ? row + step : NULL,
                                    (__mmask16)-1)
                        : _mm512_setzero_si512());
    }
}

/* ---- the product --------------------------------------------------------- */

/* The tiles of a block of 16 or 32 columns: sums 0 to 3, A 4 and 5, B 6 and 7;
 * those of odd numbers but B's 7 have the second rows. */
AMX_TARGET static void amx_configure(int64_t rows) {
  const uint8_t first = (uint8_t)(rows < AMX_ROWS ? rows : AMX_ROWS);
  const uint8_t second = (uint8_t)(rows - first);
  amx_config c = {.palette = 1};
  for (int i = 0; i < 8; i++) {
    c.rows[i] = i > 5 ? AMX_ROWS : i % 2 ? second : first;
    c.bytes[i] = c.rows[i] ? 64 : 0;
  }
  _tile_loadconfig(&c);
}

/* C [+]= A B of up to 32 rows; two: more than 16; wide: 32 columns. */
AMX_TARGET static inline __attribute__((always_inline)) void
amx_block(int two, int wide, scalar *c, int64_t c_row, const uint16_t *a,
          const uint16_t *b, int64_t inner, int add) {
  const size_t c_bytes = (size_t)c_row * sizeof *c;
  const size_t a_bytes = (size_t)inner * sizeof *a;
  scalar *low = c + AMX_ROWS * c_row;
  if (add) {
    _tile_loadd(0, c, c_bytes);
    if (two)
      _tile_loadd(1, low, c_bytes);
    if (wide)
      _tile_loadd(2, c + 16, c_bytes);
    if (two && wide)
      _tile_loadd(3, low + 16, c_bytes);
  } else {
    _tile_zero(0);
    if (two)
      _tile_zero(1);
    if (wide)
      _tile_zero(2);
    if (two && wide)
      _tile_zero(3);
  }
  for (int64_t k = 0; k < inner; k += AMX_INNER) {
    _tile_loadd(4, a + k, a_bytes);
    if (two)
      _tile_loadd(5, a + AMX_ROWS * inner + k, a_bytes);
    _tile_loadd(6, b + k * 16, 64);
    _tile_dpbf16ps(0, 4, 6);
    if (two)
      _tile_dpbf16ps(1, 5, 6);
    if (wide) {
      _tile_loadd(7, b + (inner + k) * 16, 64);
      _tile_dpbf16ps(2, 4, 7);
      if (two)
        _tile_dpbf16ps(3, 5, 7);
    }
  }
  _tile_stored(0, c, c_bytes);
  if (two)
    _tile_stored(1, low, c_bytes);
  if (wide)
    _tile_stored(2, c + 16, c_bytes);
  if (two && wide)
    _tile_stored(3, low + 16, c_bytes);
}

/* a: rows of bf16; b: packed; both of the padded inner size. */
AMX_TARGET static void amx_product(const gemm_operands *g, const uint16_t *a,
                                   const uint16_t *b) {
  const int64_t inner = amx_inner(g->inner), columns = padded(g->columns);
  for (int64_t row = 0; row < g->rows; row += 2 * AMX_ROWS) {
    const int64_t rows =
        g->rows - row < 2 * AMX_ROWS ? g->rows - row : 2 * AMX_ROWS;
    if (row == 0 || rows < 2 * AMX_ROWS)
      amx_configure(rows);
    for (int64_t column = 0; column < columns; column += 32) {
      scalar *c = g->c + row * g->c_row + column;
      const uint16_t *from = a + row * inner, *with = b + column * inner;
      const int wide = column + 16 < columns;
      if (rows > AMX_ROWS && wide)
        amx_block(1, 1, c, g->c_row, from, with, inner, g->add);
      else if (rows > AMX_ROWS)
        amx_block(1, 0, c, g->c_row, from, with, inner, g->add);
      else if (wide)
        amx_block(0, 1, c, g->c_row, from, with, inner, g->add);
      else
        amx_block(0, 0, c, g->c_row, from, with, inner, g->add);
    }
  }
  _tile_release();
}

/* gemm() with a packed B. */
static void amx_gemm(const gemm_operands *g, uint16_t *copied) {
  amx_copy_rows(copied, g->a, g->a_step, g->rows, g->inner);
  amx_product(g, copied, (const uint16_t *)g->b);
}

/* gemm_transposed() with a B as it lies in memory. */
static void amx_gemm_transposed(const gemm_operands *g, uint16_t *copied) {
  uint16_t *b = copied + g->rows * amx_inner(g->inner);
  amx_copy_columns(copied, g->a, g->a_step, g->rows, g->inner);
  amx_copy_packed(b, g->b, g->b_k, g->inner, g->columns);
  amx_product(g, copied, b);
}

#endif
