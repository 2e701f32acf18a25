/* nest.h - how the axes of a result and of its operands lie: the loops that one
 * operation takes.  A file defines REAL before it. */
#ifndef DFGNN_KERNELS_PROGRAM_CPU_NEST_H
#define DFGNN_KERNELS_PROGRAM_CPU_NEST_H

#include "kernels/program/bind.h"

/* An operand: item i begins at base + (index ? index[i] : i) * item, and its
 * axes have these strides, 0 where it is spread. */
typedef struct operand {
  const REAL *base;
  const int64_t *index;
  int64_t item, stride[DFGNN_DAG_AXES];
} operand;

static inline const REAL *item_of(const operand *a, int64_t i) {
  return a->base + (a->index ? a->index[i] : i) * a->item;
}

/* Strides of a value of extent `of` where `over` is looked at. */
static inline void set_strides(operand *a, const dfgnn_extent *of) {
  int64_t stride = 1;
  for (int axis = DFGNN_DAG_AXES - 1; axis >= 0; axis--) {
    a->stride[axis] = of->axis[axis] == 1 ? 0 : stride;
    stride *= of->axis[axis];
  }
}

/* ---- loops over items and axes ------------------------------------------- */

/* The axes of a result, adjacent ones joined where all operands allow it. */
typedef struct nest {
  int64_t items, outer, middle, inner;
  int64_t outer_stride[3], middle_stride[3], inner_stride[3];
  int64_t item_stride[3];
} nest;

static inline int whole(const operand *a, const dfgnn_extent *e) {
  int64_t stride = 1;
  if (a->index || a->item != e->all)
    return 0;
  for (int axis = DFGNN_DAG_AXES - 1; axis >= 0; axis--) {
    if (e->axis[axis] != 1 && a->stride[axis] != stride)
      return 0;
    stride *= e->axis[axis];
  }
  return 1;
}

static inline int constant(const operand *a) {
  return !a->index && !a->item && !a->stride[0] && !a->stride[1] &&
         !a->stride[2];
}

static inline void set_strides_of(nest *n, const operand *a, int count) {
  for (int k = 0; k < count; k++) {
    n->outer_stride[k] = a[k].stride[0];
    n->middle_stride[k] = a[k].stride[1];
    n->inner_stride[k] = a[k].stride[2];
  }
}

static inline nest nest_of(int64_t items, const dfgnn_extent *e,
                           const operand *a, int count) {
  nest n = {items, e->axis[0], e->axis[1], e->axis[2], {0}, {0}, {0}, {0}};
  int flat = 1, joins = 1;
  for (int k = 0; k < count; k++)
    flat &= whole(&a[k], e) || constant(&a[k]);
  if (flat) {
    n.items = n.outer = n.middle = 1;
    n.inner = items * e->all;
    for (int k = 0; k < count; k++)
      n.inner_stride[k] = !constant(&a[k]);
    return n;
  }
  set_strides_of(&n, a, count);
  /* an axis of 1 joins any other */
  if (n.inner == 1) {
    n.inner = n.middle;
    n.middle = 1;
    for (int k = 0; k < count; k++)
      n.inner_stride[k] = n.middle_stride[k];
  }
  for (int k = 0; k < count; k++)
    joins &= n.middle == 1 || n.middle_stride[k] == n.inner_stride[k] * n.inner;
  if (joins) {
    n.inner *= n.middle;
    n.middle = 1;
  }
  for (int k = 0; k < count; k++)
    joins &= n.outer == 1 || n.outer_stride[k] == n.inner_stride[k] * n.inner;
  if (joins && n.middle == 1) {
    n.inner *= n.outer;
    n.outer = 1;
  }
  return n;
}

/* ---- exchanged axes ------------------------------------------------------ */

static inline operand swapped(const operand *a, int first, int second) {
  operand b = *a;
  b.stride[first] = a->stride[second];
  b.stride[second] = a->stride[first];
  return b;
}

/* The strides of a matrix product's factors, each of which a flag says to be
 * stored transposed. */
typedef struct product {
  int sums; /* elements are sums along adjacent numbers */
  int64_t x_row, x_inner, y_column, y_inner;
} product;

static inline product product_of(int flags, int64_t inner, const operand *a) {
  const int first = flags & DFGNN_MATMUL_FIRST ? 1 : 2;
  const int second = flags & DFGNN_MATMUL_SECOND ? 2 : 1;
  product p = {.x_row = a[0].stride[3 - first],
               .x_inner = a[0].stride[first],
               .y_column = a[1].stride[3 - second],
               .y_inner = a[1].stride[second]};
  p.sums = second == 2 && (p.x_inner == 1 || inner == 1);
  return p;
}

#endif
