/* choice.h - which loop of loops.h a node's operation is */
#ifndef DFGNN_KERNELS_PROGRAM_CPU_CHOICE_H
#define DFGNN_KERNELS_PROGRAM_CPU_CHOICE_H

#include "kernels/program/cpu/operations.h"
#include "kernels/program/dag.h"

#define UNARY_NUMBER(name, expression) UNARY_##name,
#define BINARY_NUMBER(name, expression) BINARY_##name,
enum { PROGRAM_UNARY(UNARY_NUMBER) PROGRAM_ANGLE(UNARY_NUMBER) UNARIES };
enum { PROGRAM_BINARY(BINARY_NUMBER) BINARIES };

static inline int unary_of_power(double c) {
  return c == 3                                           ? UNARY_cube
         : c == -1                                        ? UNARY_inverse
         : c == 0.5                                       ? UNARY_root
         : c == -0.5                                      ? UNARY_inverse_root
         : c == 2                                         ? UNARY_square
         : c > 3 && c <= DFGNN_POW_SQUARED && c == (int)c ? UNARY_small_power
                                                          : UNARY_power;
}

static inline int unary_of(const dfgnn_node *node) {
  static const uint8_t of[DFGNN_NODE_OPS] = {
      [DFGNN_NODE_EXP] = UNARY_exp,
      [DFGNN_NODE_EXPM1] = UNARY_expm1,
      [DFGNN_NODE_LOG] = UNARY_log,
      [DFGNN_NODE_LOG1P] = UNARY_log1p,
      [DFGNN_NODE_TANH] = UNARY_tanh,
      [DFGNN_NODE_SIGMOID] = UNARY_sigmoid,
      [DFGNN_NODE_SOFTPLUS] = UNARY_softplus,
      [DFGNN_NODE_ERF] = UNARY_erf,
      [DFGNN_NODE_SIN] = UNARY_sin,
      [DFGNN_NODE_COS] = UNARY_cos,
      [DFGNN_NODE_ABS] = UNARY_abs,
      [DFGNN_NODE_SIGN] = UNARY_sign,
      [DFGNN_NODE_RELU] = UNARY_relu,
      [DFGNN_NODE_LEAKY] = UNARY_leaky,
      [DFGNN_NODE_DETACH] = UNARY_copy,
      [DFGNN_NODE_EXPAND] = UNARY_copy};
  return node->op == DFGNN_NODE_POW ? unary_of_power(node->number)
                                    : of[node->op];
}

/* BINARIES: it is not of two numbers. */
static inline int binary_of(int op) {
  switch (op) {
  case DFGNN_NODE_ADD:
    return BINARY_add;
  case DFGNN_NODE_MUL:
    return BINARY_mul;
  case DFGNN_NODE_MAX:
    return BINARY_max;
  case DFGNN_NODE_ATAN2:
    return BINARY_atan2;
  case DFGNN_NODE_LT:
    return BINARY_lt;
  case DFGNN_NODE_LE:
    return BINARY_le;
  case DFGNN_NODE_EQ:
    return BINARY_eq;
  default:
    return BINARIES;
  }
}

#endif
