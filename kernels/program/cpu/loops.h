/* loops.h - the inner loops of programs: one operation over n elements
 *
 * A file defines REAL and REAL_IS_DOUBLE, and the instruction set by a pragma;
 * the compiler vectorises.  Strides of operands are 0 or 1. */
#ifndef DFGNN_KERNELS_PROGRAM_CPU_LOOPS_H
#define DFGNN_KERNELS_PROGRAM_CPU_LOOPS_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "kernels/program/cpu/functions.h"
#include "kernels/program/dag.h"

/* ---- of one, two and three operands -------------------------------------- */

#define UNARY(name, expression)                                                \
  static void loop_##name(int64_t n, REAL *restrict out, const REAL *a,        \
                          int64_t sa, REAL c) {                                \
    (void)c;                                                                   \
    if (!sa) {                                                                 \
      const REAL x = *a, y = expression;                                       \
      for (int64_t i = 0; i < n; i++)                                          \
        out[i] = y;                                                            \
      return;                                                                  \
    }                                                                          \
    for (int64_t i = 0; i < n; i++) {                                          \
      const REAL x = a[i];                                                     \
      out[i] = expression;                                                     \
    }                                                                          \
  }

UNARY(copy, x)
UNARY(square, x *x)
UNARY(cube, x *x *x)
UNARY(inverse, 1 / x)
UNARY(root, R_FN(sqrt)(x))
UNARY(inverse_root, 1 / R_FN(sqrt)(x))
UNARY(power, R_FN(pow)(x, c))
UNARY(small_power, real_small_power(x, (int)c))
UNARY(exp, real_exp(x))
UNARY(expm1, real_expm1(x))
UNARY(log, real_log(x))
UNARY(log1p, real_log1p(x))
UNARY(tanh, real_tanh(x))
UNARY(sigmoid, real_sigmoid(x))
UNARY(softplus, real_softplus(x))
UNARY(erf, real_erf(x))
UNARY(small_sin, real_sin(x))
UNARY(small_cos, real_cos(x))
UNARY(any_sin, R_FN(sin)(x))
UNARY(any_cos, R_FN(cos)(x))
UNARY(abs, R_FN(fabs)(x))
UNARY(sign, x > 0 ? (REAL)1 : x < 0 ? (REAL)-1 : x)
UNARY(relu, x < 0 ? (REAL)0 : x)
UNARY(leaky, x > 0 ? x : x * c)

/* Large angles, infinities and NaN take the C library's function. */
static int angles_are_small(int64_t n, const REAL *a, int64_t stride) {
  int64_t small = 0;
  for (int64_t i = 0; i < (stride ? n : 1); i++)
    small += R_FN(fabs)(a[i]) <= REAL_MOST_ANGLE;
  return small == (stride ? n : 1);
}
static void loop_sin(int64_t n, REAL *restrict out, const REAL *a,
                     int64_t stride, REAL c) {
  (angles_are_small(n, a, stride) ? loop_small_sin : loop_any_sin)(n, out, a,
                                                                   stride, c);
}
static void loop_cos(int64_t n, REAL *restrict out, const REAL *a,
                     int64_t stride, REAL c) {
  (angles_are_small(n, a, stride) ? loop_small_cos : loop_any_cos)(n, out, a,
                                                                   stride, c);
}

typedef void (*unary_loop)(int64_t, REAL *restrict, const REAL *, int64_t,
                           REAL);

static unary_loop unary_of(int op, REAL number) {
  switch (op) {
  case DFGNN_NODE_POW:
    return number == 3         ? loop_cube
           : number == -1      ? loop_inverse
           : number == R(0.5)  ? loop_root
           : number == R(-0.5) ? loop_inverse_root
           : number == 2       ? loop_square
           : number > 3 && number <= DFGNN_POW_SQUARED && number == (int)number
               ? loop_small_power
               : loop_power;
  case DFGNN_NODE_EXP:
    return loop_exp;
  case DFGNN_NODE_EXPM1:
    return loop_expm1;
  case DFGNN_NODE_LOG:
    return loop_log;
  case DFGNN_NODE_LOG1P:
    return loop_log1p;
  case DFGNN_NODE_TANH:
    return loop_tanh;
  case DFGNN_NODE_SIGMOID:
    return loop_sigmoid;
  case DFGNN_NODE_SOFTPLUS:
    return loop_softplus;
  case DFGNN_NODE_ERF:
    return loop_erf;
  case DFGNN_NODE_SIN:
    return loop_sin;
  case DFGNN_NODE_COS:
    return loop_cos;
  case DFGNN_NODE_ABS:
    return loop_abs;
  case DFGNN_NODE_SIGN:
    return loop_sign;
  case DFGNN_NODE_RELU:
    return loop_relu;
  case DFGNN_NODE_LEAKY:
    return loop_leaky;
  default: /* DETACH, EXPAND */
    return loop_copy;
  }
}

#define BINARY(name, before, expression)                                       \
  static void loop_##name(int64_t n, REAL *restrict out, const REAL *a,        \
                          int64_t sa, const REAL *b, int64_t sb) {             \
    if (sa && sb) {                                                            \
      for (int64_t i = 0; i < n; i++) {                                        \
        const REAL x = a[i], y = b[i];                                         \
        out[i] = before expression;                                            \
      }                                                                        \
    } else if (sa) {                                                           \
      const REAL y = *b;                                                       \
      for (int64_t i = 0; i < n; i++) {                                        \
        const REAL x = a[i];                                                   \
        out[i] = before expression;                                            \
      }                                                                        \
    } else if (sb) {                                                           \
      const REAL x = *a;                                                       \
      for (int64_t i = 0; i < n; i++) {                                        \
        const REAL y = b[i];                                                   \
        out[i] = before expression;                                            \
      }                                                                        \
    } else {                                                                   \
      const REAL x = *a, y = *b;                                               \
      for (int64_t i = 0; i < n; i++)                                          \
        out[i] = before expression;                                            \
    }                                                                          \
  }

BINARY(add, , x + y)
BINARY(mul, , x *y)
BINARY(atan2, , R_FN(atan2)(x, y))
BINARY(max, , real_max(x, y))
BINARY(lt, , (REAL)(x < y))
BINARY(le, , (REAL)(x <= y))
BINARY(eq, , (REAL)(x == y))
BINARY(mul_add, out[i] +, x *y)

typedef void (*binary_loop)(int64_t, REAL *restrict, const REAL *, int64_t,
                            const REAL *, int64_t);

static binary_loop binary_of(int op) {
  switch (op) {
  case DFGNN_NODE_ADD:
    return loop_add;
  case DFGNN_NODE_MUL:
    return loop_mul;
  case DFGNN_NODE_MAX:
    return loop_max;
  case DFGNN_NODE_ATAN2:
    return loop_atan2;
  case DFGNN_NODE_LT:
    return loop_lt;
  case DFGNN_NODE_LE:
    return loop_le;
  default:
    return loop_eq;
  }
}

/* Strides are constants where each call's are inlined, so that loops become
 * vectors. */
static inline __attribute__((always_inline)) void
choose(int64_t n, REAL *restrict out, const REAL *c, int64_t sc, const REAL *a,
       int64_t sa, const REAL *b, int64_t sb) {
  for (int64_t i = 0; i < n; i++) {
    const REAL x = a[i * sa], y = b[i * sb];
    out[i] = c[i * sc] != 0 ? x : y;
  }
}

static void loop_where(int64_t n, REAL *restrict out, const REAL *c, int64_t sc,
                       const REAL *a, int64_t sa, const REAL *b, int64_t sb) {
  if (sc && sa && sb)
    choose(n, out, c, 1, a, 1, b, 1);
  else if (sc && sa)
    choose(n, out, c, 1, a, 1, b, 0);
  else if (sc && sb)
    choose(n, out, c, 1, a, 0, b, 1);
  else if (sc)
    choose(n, out, c, 1, a, 0, b, 0);
  else
    choose(n, out, c, 0, a, sa, b, sb);
}

/* ---- sums ---------------------------------------------------------------- */

/* Sixteen sums side by side, added as a tree: one order for all lengths. */
enum { PARTIAL_SUMS = 16 };

static REAL tree(REAL *s) {
  for (int width = PARTIAL_SUMS / 2; width; width /= 2)
    for (int i = 0; i < width; i++)
      s[i] += s[i + width];
  return s[0];
}

static REAL sum_of(int64_t n, const REAL *a) {
  REAL s[PARTIAL_SUMS] = {0};
  int64_t i = 0;
  for (; i + PARTIAL_SUMS <= n; i += PARTIAL_SUMS)
    for (int k = 0; k < PARTIAL_SUMS; k++)
      s[k] += a[i + k];
  for (int k = 0; i + k < n; k++)
    s[k] += a[i + k];
  return tree(s);
}

static REAL dot_of(int64_t n, const REAL *a, int64_t sa, const REAL *b,
                   int64_t sb) {
  if (!sa && !sb)
    return (REAL)n * *a * *b;
  if (!sa)
    return *a * sum_of(n, b);
  if (!sb)
    return *b * sum_of(n, a);
  REAL s[PARTIAL_SUMS] = {0};
  int64_t i = 0;
  for (; i + PARTIAL_SUMS <= n; i += PARTIAL_SUMS)
    for (int k = 0; k < PARTIAL_SUMS; k++)
      s[k] += a[i + k] * b[i + k];
  for (int k = 0; i + k < n; k++)
    s[k] += a[i + k] * b[i + k];
  return tree(s);
}

#endif
