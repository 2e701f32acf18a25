/* accuracy.c - how far a right result may be from the exact one */
#include "kernels/common/accuracy.h"

#include <math.h>

#define UNIT_F64 0x1p-53
#define UNIT_F32 0x1p-24
#define UNIT_F16 0x1p-11
#define UNIT_BF16 0x1p-8
#define UNIT_TF32 0x1p-10 /* tensor cores cut lower bits */

dfgnn_arithmetic dfgnn__arithmetic(const dfgnn_problem *problem,
                                   const dfgnn_family *family) {
  int wide = problem->dtype == DFGNN_F64;
  return (dfgnn_arithmetic){.unit = wide ? UNIT_F64 : UNIT_F32,
                            .block = family ? family->block : 0,
                            .exact = wide};
}

double dfgnn__term_roundoff(const dfgnn_problem *problem) {
  double unit = problem->dtype == DFGNN_F16        ? UNIT_F16
                : problem->dtype == DFGNN_BF16     ? UNIT_BF16
                : problem->dtype == DFGNN_F64      ? 0
                : problem->math == DFGNN_MATH_TF32 ? UNIT_TF32
                                                   : 0;
  return unit / UNIT_F32 * (unit / UNIT_F32);
}

/* The largest number of additions that a term goes through. */
static double height(int64_t block, int64_t terms) {
  if (block <= 0 || terms <= block)
    return (double)terms;
  return (double)block + ceil(4 * (double)terms / (double)block);
}

/* 16-bit results may be stored, and read again, between two launches. */
static double storage(dfgnn_dtype dtype, double magnitude) {
  switch (dtype) {
  case DFGNN_F64:
    return magnitude * UNIT_F64;
  case DFGNN_F16:
    return 2 * (magnitude * UNIT_F16 + 0x1p-25);
  case DFGNN_BF16:
    return 2 * magnitude * UNIT_BF16 + 0x1p-126;
  default:
    return magnitude * UNIT_F32 + 0x1p-126;
  }
}

double dfgnn__bound(const dfgnn_arithmetic *arithmetic, dfgnn_dtype dtype,
                    double expected, double fixed, double summed,
                    int64_t terms) {
  double levels = height(arithmetic->block, terms), computed;
  if (dtype == DFGNN_DTYPE_COUNT)
    return fixed;
  if (fixed == 0 && summed == 0)
    return 0;
  fixed *= fixed;
  summed *= summed;
  if (arithmetic->exact) {
    fixed *= 2;
    levels += (double)terms;
  }
  computed = DFGNN_BOUND * arithmetic->unit * sqrt(fixed + levels * summed);
  return computed + storage(dtype, fabs(expected) + computed);
}
