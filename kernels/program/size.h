/* size.h - widths of values: a number, or names that tensors give a number to
 *
 * A size is a linear form, constant + sum of times[n] * name n, so that
 * programs with names (q[D], cat of D and 3) are checked before any tensor is
 * seen. */
#ifndef DFGNN_PROGRAM_SIZE_H
#define DFGNN_PROGRAM_SIZE_H

#include <stdint.h>
#include <string.h>

enum { DFGNN_DAG_AXES = 3 }; /* of every value */
#define DFGNN_SIZE_NAMES 8
#define DFGNN_SIZE_MAX (1 << 20)

typedef struct dfgnn_size {
  int32_t constant;
  int8_t times[DFGNN_SIZE_NAMES];
} dfgnn_size;

static inline dfgnn_size dfgnn__size(int32_t constant) {
  return (dfgnn_size){.constant = constant};
}

static inline int dfgnn__size_same(dfgnn_size a, dfgnn_size b) {
  return a.constant == b.constant &&
         memcmp(a.times, b.times, sizeof a.times) == 0;
}

static inline int dfgnn__size_is(dfgnn_size a, int32_t constant) {
  return dfgnn__size_same(a, dfgnn__size(constant));
}

static inline int dfgnn__size_named(dfgnn_size a) {
  return !dfgnn__size_same(a, dfgnn__size(a.constant));
}

/* Are the axes of two shapes the same? */
static inline int dfgnn__shape_same(const dfgnn_size *a, const dfgnn_size *b) {
  int same = 1;
  for (int i = 0; i < DFGNN_DAG_AXES; i++)
    same &= dfgnn__size_same(a[i], b[i]);
  return same;
}

/* *sum = a + factor * b; 0 if it does not fit. */
static inline int dfgnn__size_add(dfgnn_size *sum, dfgnn_size a, int factor,
                                  dfgnn_size b) {
  int64_t constant = a.constant + (int64_t)factor * b.constant;
  if (constant > DFGNN_SIZE_MAX || constant < -DFGNN_SIZE_MAX)
    return 0;
  dfgnn_size out = {.constant = (int32_t)constant};
  for (int i = 0; i < DFGNN_SIZE_NAMES; i++) {
    int64_t times = a.times[i] + (int64_t)factor * b.times[i];
    if (times > 127 || times < -127)
      return 0;
    out.times[i] = (int8_t)times;
  }
  *sum = out;
  return 1;
}

/* The number that a size is when name i has values[i]. */
static inline int64_t dfgnn__size_value(dfgnn_size a, const int64_t *values) {
  int64_t x = a.constant;
  for (int i = 0; i < DFGNN_SIZE_NAMES; i++)
    if (a.times[i])
      x += a.times[i] * values[i];
  return x;
}

#endif
