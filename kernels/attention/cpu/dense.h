/* dense.h - blocks of rows as products of matrices
 *
 * Left operands are rows of scalars.  Right ones are cut into panels of so many
 * columns, each of which lies as [depth][columns]. */
#ifndef DFGNN_ATTENTION_CPU_DENSE_H
#define DFGNN_ATTENTION_CPU_DENSE_H

#include "kernels/attention/cpu/attention.h"

/* Rows of a register tile; products round rows up to a multiple. */
#define DFGNN_CPU_DENSE_ROWS 6
/* The widest panel of all: 4 vectors of 16. */
#define DFGNN_CPU_DENSE_PANEL 64

struct dfgnn_cpu_dense {
  /* Packs the right operand of scores: the `count` nodes from `first` on are
   * columns, features are the depth. */
  void (*keys)(const dfgnn_cpu_job *job, int64_t head, int64_t first,
               int64_t count, void *to);
  /* Packs the right operand of sums: features are columns, nodes the depth. */
  void (*values)(const dfgnn_cpu_job *job, int64_t head, int64_t first,
                 int64_t count, void *to);
  /* Packs the left operand of scores, `stride` scalars a row. */
  void (*queries)(const dfgnn_cpu_job *job, int64_t head, int64_t first,
                  int64_t count, void *to, int64_t stride);
  /* c = a b: `rows` rows of `columns` scalars, strides in scalars; c is written
   * in whole vectors. */
  void (*product)(const void *a, int64_t a_stride, int64_t rows, const void *b,
                  int64_t depth, void *c, int64_t c_stride, int64_t columns);
};

#endif
