/* cpu_panel.h - pieces of rows as vectors in registers, for SpMM and reductions
 * with one instruction set and storage type.  See cpu_vector.h. */
#ifndef DFGNN_KERNELS_CPU_PANEL_H
#define DFGNN_KERNELS_CPU_PANEL_H

#include "kernels/common/cpu_vector.h"
#include "kernels/common/cpu_walk.h"

CPU_INLINE const scalar *row_at(const char *base, int64_t index,
                                int64_t stride) {
  return (const scalar *)(base + index * stride);
}

CPU_INLINE void prefetch_row(const char *base, int64_t index, int64_t stride,
                             int64_t bytes) {
  const char *row = base + index * stride;
  for (int64_t i = 0; i < bytes; i += 64)
    __builtin_prefetch(row + i);
}

/* The last vector of a row is cut: only its lanes of t are touched. */
CPU_INLINE vec v_load_cut(const scalar *p, tail t, const int cut) {
  return cut ? v_load_tail(p, t) : v_load(p);
}

CPU_INLINE void v_store_cut(scalar *p, vec x, tail t, const int cut) {
  if (cut)
    v_store_tail(p, x, t);
  else
    v_store(p, x);
}

/* Calls f(d, width, cut) for panels that cover the features: of `widest` (1, 2
 * or 4) vectors, of fewer, and the vector that is cut. */
#define EACH_PANEL(widest, dim, f)                                             \
  do {                                                                         \
    int64_t d = 0;                                                             \
    for (; (widest) >= 4 && d + 4 * VECTOR <= (dim); d += 4 * VECTOR)          \
      f(d, 4, 0);                                                              \
    for (; (widest) >= 2 && d + 2 * VECTOR <= (dim); d += 2 * VECTOR)          \
      f(d, 2, 0);                                                              \
    for (; d + VECTOR <= (dim); d += VECTOR)                                   \
      f(d, 1, 0);                                                              \
    if (d < (dim))                                                             \
      f(d, 1, 1);                                                              \
  } while (0)

/* Adds one state of sums to another. */
CPU_INLINE void add_to(scalar *to, const scalar *from, int64_t count) {
  int64_t d = 0;
  for (; d + VECTOR <= count; d += VECTOR)
    v_store(to + d, v_add(v_load(to + d), v_load(from + d)));
  for (; d < count; d++)
    to[d] += from[d];
}

CPU_INLINE void store_times(scalar *to, const scalar *from, int64_t count,
                            scalar factor) {
  vec f = v_set(factor);
  int64_t d = 0;
  for (; d + VECTOR <= count; d += VECTOR)
    v_store(to + d, v_mul(v_load(from + d), f));
  if (d < count) {
    tail t = v_tail(count - d);
    v_store_tail(to + d, v_mul(v_load_tail(from + d, t), f), t);
  }
}

#endif
