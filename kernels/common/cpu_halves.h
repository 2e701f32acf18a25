/* cpu_halves.h - rows of 16-bit numbers to and from float32 on a CPU */
#ifndef DFGNN_KERNELS_CPU_HALVES_H
#define DFGNN_KERNELS_CPU_HALVES_H

#include <stdint.h>

#include "dfgnn_types.h"

/* dtype: DFGNN_F16 or DFGNN_BF16.  Rounds as half.h does. */
void dfgnn__widen_row(dfgnn_dtype dtype, float *to, const uint16_t *from,
                      int64_t count);
void dfgnn__narrow_row(dfgnn_dtype dtype, uint16_t *to, const float *from,
                       int64_t count);

#endif
