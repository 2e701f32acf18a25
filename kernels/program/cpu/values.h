/* values.h - one operation of a program on the items of a block */
#ifndef DFGNN_KERNELS_PROGRAM_CPU_VALUES_H
#define DFGNN_KERNELS_PROGRAM_CPU_VALUES_H

#include "kernels/program/bind.h"
#include "kernels/program/cpu/loops.h"

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
static void set_strides(operand *a, const dfgnn_extent *of) {
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

static int whole(const operand *a, const dfgnn_extent *e) {
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

static int constant(const operand *a) {
  return !a->index && !a->item && !a->stride[0] && !a->stride[1] &&
         !a->stride[2];
}

static void set_strides_of(nest *n, const operand *a, int count) {
  for (int k = 0; k < count; k++) {
    n->outer_stride[k] = a[k].stride[0];
    n->middle_stride[k] = a[k].stride[1];
    n->inner_stride[k] = a[k].stride[2];
  }
}

static nest nest_of(int64_t items, const dfgnn_extent *e, const operand *a,
                    int count) {
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

/* Calls the body with pointers to the elements of each operand and out, for the
 * innermost axis.  Inner strides other than 0 and 1 take one element at a time.
 */
#define NEST_BEGIN(n, e, a, out)                                               \
  for (int64_t item = 0; item < (n).items; item++) {                           \
    REAL *to = (out) + item * (e)->all;                                        \
    for (int64_t i0 = 0; i0 < (n).outer; i0++)                                 \
      for (int64_t i1 = 0; i1 < (n).middle; i1++, to += (n).inner) {
#define NEST_AT(n, a, k)                                                       \
  (item_of(&(a)[k], item) + i0 * (n).outer_stride[k] +                         \
   i1 * (n).middle_stride[k])
#define NEST_END                                                               \
  }                                                                            \
  }

static void run_unary(unary_loop f, REAL c, int64_t items,
                      const dfgnn_extent *e, REAL *out, const operand *a) {
  nest n = nest_of(items, e, a, 1);
  NEST_BEGIN(n, e, a, out)
  f(n.inner, to, NEST_AT(n, a, 0), n.inner_stride[0], c);
  NEST_END
}

static void run_binary(binary_loop f, int64_t items, const dfgnn_extent *e,
                       REAL *out, const operand *a) {
  nest n = nest_of(items, e, a, 2);
  NEST_BEGIN(n, e, a, out)
  f(n.inner, to, NEST_AT(n, a, 0), n.inner_stride[0], NEST_AT(n, a, 1),
    n.inner_stride[1]);
  NEST_END
}

static void run_where(int64_t items, const dfgnn_extent *e, REAL *out,
                      const operand *a) {
  nest n = nest_of(items, e, a, 3);
  NEST_BEGIN(n, e, a, out)
  loop_where(n.inner, to, NEST_AT(n, a, 0), n.inner_stride[0], NEST_AT(n, a, 1),
             n.inner_stride[1], NEST_AT(n, a, 2), n.inner_stride[2]);
  NEST_END
}

/* ---- along an axis ------------------------------------------------------- */

/* Sums of products of two along the last axis, of length `inner`. */
static void run_dot(int64_t items, const dfgnn_extent *e, int64_t inner,
                    REAL *out, const operand *a) {
  for (int64_t item = 0; item < items; item++) {
    const REAL *x = item_of(&a[0], item), *y = item_of(&a[1], item);
    for (int64_t i0 = 0; i0 < e->axis[0]; i0++)
      for (int64_t i1 = 0; i1 < e->axis[1]; i1++)
        *out++ = dot_of(inner, x + i0 * a[0].stride[0] + i1 * a[0].stride[1],
                        a[0].stride[2],
                        y + i0 * a[1].stride[0] + i1 * a[1].stride[1],
                        a[1].stride[2]);
  }
}

static void run_fold(int max, int axis, int64_t items, const dfgnn_extent *e,
                     int64_t length, REAL *out, const operand *a) {
  const int64_t step = a->stride[axis];
  for (int64_t item = 0; item < items; item++) {
    const REAL *x = item_of(a, item);
    for (int64_t i0 = 0; i0 < e->axis[0]; i0++)
      for (int64_t i1 = 0; i1 < e->axis[1]; i1++)
        for (int64_t i2 = 0; i2 < e->axis[2]; i2++) {
          const REAL *from =
              x + i0 * a->stride[0] + i1 * a->stride[1] + i2 * a->stride[2];
          REAL y = *from;
          if (!max && step == 1) {
            y = sum_of(length, from);
          } else {
            for (int64_t l = 1; l < length; l++)
              y = max ? real_max(y, from[l * step]) : y + from[l * step];
          }
          *out++ = y;
        }
  }
}

/* Copies a piece of rows: `size` elements of each row of the result from `at`
 * on, from elements of the operand from `begin` on. */
static void run_piece(int64_t items, const dfgnn_extent *e, int64_t at,
                      int64_t begin, int64_t size, REAL *out,
                      const operand *a) {
  for (int64_t item = 0; item < items; item++) {
    const REAL *x = item_of(a, item);
    for (int64_t i0 = 0; i0 < e->axis[0]; i0++)
      for (int64_t i1 = 0; i1 < e->axis[1]; i1++, out += e->axis[2])
        loop_copy(size, out + at,
                  x + i0 * a->stride[0] + i1 * a->stride[1] +
                      begin * a->stride[2],
                  a->stride[2], 0);
  }
}

static void run_reshape(int64_t items, int64_t elements, REAL *out,
                        const operand *a) {
  for (int64_t item = 0; item < items; item++, out += elements)
    memcpy(out, item_of(a, item), (size_t)elements * sizeof *out);
}

static void run_swap(int first, int second, int64_t items,
                     const dfgnn_extent *e, REAL *out, const operand *a) {
  int64_t stride[DFGNN_DAG_AXES];
  memcpy(stride, a->stride, sizeof stride);
  stride[first] = a->stride[second];
  stride[second] = a->stride[first];
  for (int64_t item = 0; item < items; item++) {
    const REAL *x = item_of(a, item);
    for (int64_t i0 = 0; i0 < e->axis[0]; i0++)
      for (int64_t i1 = 0; i1 < e->axis[1]; i1++)
        for (int64_t i2 = 0; i2 < e->axis[2]; i2++)
          *out++ = x[i0 * stride[0] + i1 * stride[1] + i2 * stride[2]];
  }
}

/* out = A B for each item and batch: A has rows x inner, B inner x columns,
 * where a flag says that it is stored transposed. */
static void run_matmul(int flags, int64_t items, const dfgnn_extent *e,
                       int64_t inner, REAL *out, const operand *a) {
  const int64_t rows = e->axis[1], columns = e->axis[2];
  const int first = flags & DFGNN_MATMUL_FIRST;
  const int second = flags & DFGNN_MATMUL_SECOND;
  const int64_t a_row = a[0].stride[first ? 2 : 1];
  const int64_t a_inner = a[0].stride[first ? 1 : 2];
  for (int64_t item = 0; item < items; item++)
    for (int64_t batch = 0; batch < e->axis[0]; batch++) {
      const REAL *x = item_of(&a[0], item) + batch * a[0].stride[0];
      const REAL *y = item_of(&a[1], item) + batch * a[1].stride[0];
      for (int64_t i = 0; i < rows; i++, out += columns) {
        if (second && (a_inner == 1 || inner == 1)) {
          for (int64_t j = 0; j < columns; j++)
            out[j] = dot_of(inner, x + i * a_row, a_inner,
                            y + j * a[1].stride[1], a[1].stride[2]);
          continue;
        }
        memset(out, 0, (size_t)columns * sizeof *out);
        for (int64_t k = 0; k < inner; k++) {
          const REAL factor = x[i * a_row + k * a_inner];
          if (second)
            for (int64_t j = 0; j < columns; j++)
              out[j] += factor * y[j * a[1].stride[1] + k * a[1].stride[2]];
          else
            loop_mul_add(columns, out, &factor, 0, y + k * a[1].stride[1],
                         a[1].stride[2]);
        }
      }
    }
}

#endif
