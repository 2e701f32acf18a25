/* cpu_simd.h - the instruction sets that CPU families choose from, and the
 * threads that they run on */
#ifndef DFGNN_KERNELS_CPU_SIMD_H
#define DFGNN_KERNELS_CPU_SIMD_H

#include <stddef.h>

#include "kernels/common/variant.h"

#define DFGNN_CPU_SIMD                                                         \
  {                                                                            \
    "simd", 3, {0, 1, 2}, { "portable", "avx2", "avx512" }                     \
  }

/* NULL if this machine has the instruction set, else why not. */
static inline const char *dfgnn__cpu_simd_missing(int simd) {
#ifdef __x86_64__
  if (simd == 1 &&
      !(__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")))
    return "the processor has no AVX2 and FMA";
  if (simd == 2 && !(__builtin_cpu_supports("avx512f") &&
                     __builtin_cpu_supports("avx512bw") &&
                     __builtin_cpu_supports("avx512vl") &&
                     __builtin_cpu_supports("avx512dq")))
    return "the processor has no AVX-512 F, BW, VL and DQ";
  return NULL;
#else
  return simd == 0 ? NULL : "the processor is not an x86-64";
#endif
}

/* Numbers of edges and nodes that one thread reads in the time in which others
 * wake, 20 to 50 us. */
#define DFGNN_CPU_ALONE (1 << 17)

/* The threads of a call: small graphs do not wake a team. */
static inline int dfgnn__cpu_threads(const dfgnn_setting *setting) {
  const dfgnn_matrix *m = setting->matrix;
  const int64_t row = setting->problem->heads * setting->problem->dim;
  return (m->edges + m->destinations + m->sources) * row < DFGNN_CPU_ALONE
             ? 1
             : setting->device->units;
}

#endif
