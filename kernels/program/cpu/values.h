/* values.h - one operation of a program on the items of a block */
#ifndef DFGNN_KERNELS_PROGRAM_CPU_VALUES_H
#define DFGNN_KERNELS_PROGRAM_CPU_VALUES_H

#include "kernels/program/cpu/body.h"
#include "kernels/program/cpu/choice.h"
#include "kernels/program/cpu/functions.h"
#include "kernels/program/cpu/loops.h"
#include "kernels/program/cpu/nest.h"

typedef void (*unary_loop)(int64_t, REAL *restrict, const REAL *, int64_t,
                           REAL);
typedef void (*binary_loop)(int64_t, REAL *restrict, const REAL *, int64_t,
                            const REAL *, int64_t);
#define LOOP_ADDRESS(name, expression) loop_##name,
static const unary_loop unary_loops[] = {PROGRAM_UNARY(LOOP_ADDRESS)
                                             PROGRAM_ANGLE(LOOP_ADDRESS)};
static const binary_loop binary_loops[] = {PROGRAM_BINARY(LOOP_ADDRESS)};

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

static void run_dot(int64_t items, const dfgnn_extent *e, int64_t inner,
                    REAL *out, const operand *a) {
  for (int64_t item = 0; item < items; item++, out += e->all)
    item_dot(e->axis[0], e->axis[1], inner, out, item_of(&a[0], item),
             a[0].stride[0], a[0].stride[1], a[0].stride[2],
             item_of(&a[1], item), a[1].stride[0], a[1].stride[1],
             a[1].stride[2]);
}

static void run_fold(int max, int axis, int64_t items, const dfgnn_extent *e,
                     int64_t length, REAL *out, const operand *a) {
  for (int64_t item = 0; item < items; item++, out += e->all)
    item_fold(max, a->stride[axis], length, e->axis[0], e->axis[1], e->axis[2],
              out, item_of(a, item), a->stride[0], a->stride[1], a->stride[2]);
}

/* Copies a piece of rows: `size` elements of each row of the result from `at`
 * on, from elements of the operand from `begin` on. */
static void run_piece(int64_t items, const dfgnn_extent *e, int64_t at,
                      int64_t begin, int64_t size, REAL *out,
                      const operand *a) {
  for (int64_t item = 0; item < items; item++, out += e->all)
    item_piece(at, size, e->axis[0], e->axis[1], e->axis[2], out,
               item_of(a, item) + begin * a->stride[2], a->stride[0],
               a->stride[1], a->stride[2]);
}

static void run_reshape(int64_t items, int64_t elements, REAL *out,
                        const operand *a) {
  for (int64_t item = 0; item < items; item++, out += elements)
    memcpy(out, item_of(a, item), (size_t)elements * sizeof *out);
}

static void run_swap(int first, int second, int64_t items,
                     const dfgnn_extent *e, REAL *out, const operand *a) {
  const operand b = swapped(a, first, second);
  for (int64_t item = 0; item < items; item++, out += e->all)
    item_order(e->axis[0], e->axis[1], e->axis[2], out, item_of(a, item),
               b.stride[0], b.stride[1], b.stride[2]);
}

static void run_matmul(int flags, int64_t items, const dfgnn_extent *e,
                       int64_t inner, REAL *out, const operand *a) {
  const product p = product_of(flags, inner, a);
  for (int64_t item = 0; item < items; item++, out += e->all)
    item_matmul(p.sums, inner, e->axis[0], e->axis[1], e->axis[2], out,
                item_of(&a[0], item), a[0].stride[0], p.x_row, p.x_inner,
                item_of(&a[1], item), a[1].stride[0], p.y_column, p.y_inner);
}

#endif
