/* dense.h - blocks of rows as products of matrices
 *
 * A "word" is a scalar, or (dot products of bfloat16) a pair of storage
 * elements that are multiplied and added as one; it is as wide as a scalar.
 * Left operands are rows of words.  Right ones are cut into panels of so many
 * columns, each of which lies as [depth in words][columns]. */
#ifndef DFGNN_ATTENTION_CPU_DENSE_H
#define DFGNN_ATTENTION_CPU_DENSE_H

#include "kernels/attention/cpu/attention.h"

/* Rows of a register tile; products round rows up to a multiple. */
#define DFGNN_CPU_DENSE_ROWS 6
/* The widest panel of all: 4 vectors of 16. */
#define DFGNN_CPU_DENSE_PANEL 64

struct dfgnn_cpu_dense {
  int elements; /* of a word: 1 or 2 */
  /* Packs the right operand of scores: the `count` nodes from `first` on are
   * columns, features are the depth. */
  void (*keys)(const dfgnn_cpu_job *job, int64_t head, int64_t first,
               int64_t count, void *to);
  /* Packs the right operand of sums: features are columns, nodes the depth. */
  void (*values)(const dfgnn_cpu_job *job, int64_t head, int64_t first,
                 int64_t count, void *to);
  /* Packs the left operand of scores, `stride` words a row. */
  void (*queries)(const dfgnn_cpu_job *job, int64_t head, int64_t first,
                  int64_t count, void *to, int64_t stride);
  /* Rounds a left operand of `count` scalars, in place, to words. */
  void (*round)(void *row, int64_t count);
  /* c = a b: `rows` rows of `columns` scalars, strides in scalars; c is written
   * in whole vectors. */
  void (*product)(const void *a, int64_t a_stride, int64_t rows, const void *b,
                  int64_t depth, void *c, int64_t c_stride, int64_t columns);
};

/* Words of a number of elements. */
static inline int64_t dfgnn__cpu_words(const dfgnn_cpu_dense *dense,
                                       int64_t elements) {
  return (elements + dense->elements - 1) / dense->elements;
}

/* These serve bfloat16, with the instructions of AVX512-BF16. */
extern const dfgnn_cpu_dense dfgnn__cpu_dense_dot;

#endif
