/* gemm.h - products of small matrices of scalars, in registers
 *
 * C [+]= A B, where B and C have rows of whole vectors: their widths are padded
 * to VECTOR.  B comes in panels of GEMM_PANEL columns, packed one after the
 * other (weights) or as it lies in memory (values of a tile). */
#ifndef DFGNN_KERNELS_MLP_CPU_GEMM_H
#define DFGNN_KERNELS_MLP_CPU_GEMM_H

#include "kernels/common/cpu_vector.h"

/* GEMM_ROWS * GEMM_VECTORS sums, GEMM_VECTORS of B and one of A are in
 * registers: of 32, or of 16. */
#if CPU_ISA == CPU_AVX512
#define GEMM_ROWS 6
#define GEMM_VECTORS 4
#elif CPU_ISA == CPU_AVX2
#define GEMM_ROWS 6
#define GEMM_VECTORS 2
#else
#define GEMM_ROWS 4
#define GEMM_VECTORS 2
#endif
#define GEMM_PANEL (GEMM_VECTORS * VECTOR)

typedef struct gemm_operands {
  scalar *c;
  int64_t c_row;
  const scalar *a; /* element (i, k) is a[i * a_row + k * a_k] */
  int64_t a_step;  /* a_row, and a_k is 1; if transposed a_k, and a_row is 1 */
  const scalar *b; /* element (k, n) is
                    * b[n / PANEL * b_panel + k * b_k + n % PANEL] */
  int64_t b_panel, b_k;
  int64_t rows, columns, inner;
  int add; /* to what is in C */
} gemm_operands;

static inline int64_t padded(int64_t width) {
  return (width + VECTOR - 1) / VECTOR * VECTOR;
}

CPU_INLINE void gemm_block(int rows, int vectors, int transposed,
                           const gemm_operands *g, int64_t row,
                           int64_t column) {
  scalar *c = g->c + row * g->c_row + column;
  const scalar *a = g->a + (transposed ? row : row * g->a_step);
  const scalar *b = g->b + column / GEMM_PANEL * g->b_panel;
  const int64_t a_row = transposed ? 1 : g->a_step;
  const int64_t a_k = transposed ? g->a_step : 1;
  vec sum[GEMM_ROWS][GEMM_VECTORS];
  CPU_EACH(i, rows)
  CPU_EACH(v, vectors)
  sum[i][v] = g->add ? s_load(c + i * g->c_row + v * VECTOR) : v_zero();
  for (int64_t k = 0; k < g->inner; k++, a += a_k, b += g->b_k) {
    vec x[GEMM_VECTORS];
    CPU_EACH(v, vectors) x[v] = s_load(b + v * VECTOR);
    CPU_EACH(i, rows) {
      const vec y = v_set(a[i * a_row]);
      CPU_EACH(v, vectors) sum[i][v] = v_fma(y, x[v], sum[i][v]);
    }
  }
  CPU_EACH(i, rows)
  CPU_EACH(v, vectors) s_store(c + i * g->c_row + v * VECTOR, sum[i][v]);
}

CPU_INLINE void gemm_panel(int vectors, int transposed, const gemm_operands *g,
                           int64_t column) {
  int64_t row = 0;
  for (; row + GEMM_ROWS <= g->rows; row += GEMM_ROWS)
    gemm_block(GEMM_ROWS, vectors, transposed, g, row, column);
  for (; row + 2 <= g->rows; row += 2)
    gemm_block(2, vectors, transposed, g, row, column);
  for (; row < g->rows; row++)
    gemm_block(1, vectors, transposed, g, row, column);
}

CPU_INLINE void gemm_panels(int transposed, const gemm_operands *g) {
  for (int64_t column = 0; column < g->columns; column += GEMM_PANEL) {
    const int64_t left = (g->columns - column + VECTOR - 1) / VECTOR;
    switch (left < GEMM_VECTORS ? left : GEMM_VECTORS) {
    case 1:
      gemm_panel(1, transposed, g, column);
      break;
#if GEMM_VECTORS > 2
    case 2:
      gemm_panel(2, transposed, g, column);
      break;
    case 3:
      gemm_panel(3, transposed, g, column);
      break;
#endif
    default:
      gemm_panel(GEMM_VECTORS, transposed, g, column);
    }
  }
}

CPU_TARGET static void gemm(const gemm_operands *g) { gemm_panels(0, g); }

/* A is [inner, rows]. */
CPU_TARGET static void gemm_transposed(const gemm_operands *g) {
  gemm_panels(1, g);
}

/* Numbers of a packed B. */
static inline int64_t packed_size(int64_t inner, int64_t columns) {
  return (columns + GEMM_PANEL - 1) / GEMM_PANEL * GEMM_PANEL * inner;
}

#endif
