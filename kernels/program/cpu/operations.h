/* operations.h - the operations of one and two numbers that loops.h makes loops
 * of, and which of them a node is */
#ifndef DFGNN_KERNELS_PROGRAM_CPU_OPERATIONS_H
#define DFGNN_KERNELS_PROGRAM_CPU_OPERATIONS_H

/* Each gives this for x, and for the node's number c. */
#define PROGRAM_UNARY(X)                                                       \
  X(copy, x)                                                                   \
  X(square, x *x)                                                              \
  X(cube, x *x *x)                                                             \
  X(inverse, 1 / x)                                                            \
  X(root, R_FN(sqrt)(x))                                                       \
  X(inverse_root, 1 / R_FN(sqrt)(x))                                           \
  X(power, R_FN(pow)(x, c))                                                    \
  X(small_power, real_small_power(x, (int)c))                                  \
  X(exp, real_exp(x))                                                          \
  X(expm1, real_expm1(x))                                                      \
  X(log, real_log(x))                                                          \
  X(log1p, real_log1p(x))                                                      \
  X(tanh, real_tanh(x))                                                        \
  X(sigmoid, real_sigmoid(x))                                                  \
  X(softplus, real_softplus(x))                                                \
  X(erf, real_erf(x))                                                          \
  X(abs, R_FN(fabs)(x))                                                        \
  X(sign, x > 0 ? (REAL)1 : x < 0 ? (REAL)-1 : x)                              \
  X(relu, x < 0 ? (REAL)0 : x)                                                 \
  X(leaky, x > 0 ? x : x * c)
/* These look at all numbers first. */
#define PROGRAM_ANGLE(X) X(sin, ) X(cos, )
/* Each gives this for x and y. */
#define PROGRAM_BINARY(X)                                                      \
  X(add, x + y)                                                                \
  X(mul, x *y)                                                                 \
  X(atan2, R_FN(atan2)(x, y))                                                  \
  X(max, real_max(x, y))                                                       \
  X(lt, (REAL)(x < y))                                                         \
  X(le, (REAL)(x <= y))                                                        \
  X(eq, (REAL)(x == y))

#endif
