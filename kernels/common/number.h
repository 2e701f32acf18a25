/* number.h - one number of an array of any storage type, in double, or of
 * either width of integers */
#ifndef DFGNN_KERNELS_NUMBER_H
#define DFGNN_KERNELS_NUMBER_H

#include "dfgnn_types.h"
#include "kernels/common/half.h"

/* Not for inner loops: the type is asked for at each number. */
static inline double dfgnn__number_at(dfgnn_dtype dtype, const void *array,
                                      int64_t i) {
  switch (dtype) {
  case DFGNN_F64:
    return ((const double *)array)[i];
  case DFGNN_F16:
    return dfgnn__f16_to_float(((const uint16_t *)array)[i]);
  case DFGNN_BF16:
    return dfgnn__bf16_to_float(((const uint16_t *)array)[i]);
  default:
    return ((const float *)array)[i];
  }
}

/* An offset, or the number of an edge: of 64 bits if wide, else of 32. */
static inline int64_t dfgnn__index_at(const void *array, int wide, int64_t i) {
  return wide ? ((const int64_t *)array)[i] : ((const int32_t *)array)[i];
}

#endif
