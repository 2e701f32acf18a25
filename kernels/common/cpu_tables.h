/* cpu_tables.h - the CPU kernels of an instruction set and a type
 *
 * kernels/cpu.am compiles a family's loops once for each instruction set and
 * type, into a table of functions: prefix_avx2_f32 and so on.
 *
 *     DFGNN_CPU_TABLES(function, type, prefix)
 *
 * defines  const type *function(int simd, dfgnn_dtype dtype). */
#ifndef DFGNN_KERNELS_CPU_TABLES_H
#define DFGNN_KERNELS_CPU_TABLES_H

#include "dfgnn.h"

#define DFGNN_CPU_TABLES_OF(type, prefix, isa)                                 \
  extern const type prefix##_##isa##_f32, prefix##_##isa##_f64
#define DFGNN_CPU_TABLES_X86(type, prefix)                                     \
  DFGNN_CPU_TABLES_OF(type, prefix, avx2);                                     \
  extern const type prefix##_avx512_f32

/* Doubles are rare: those of AVX-512 are AVX2's. */
#define DFGNN_CPU_TABLE_ROW(prefix, isa)                                       \
  { [DFGNN_F32] = &prefix##_##isa##_f32, [DFGNN_F64] = &prefix##_##isa##_f64 }

#ifdef __x86_64__
#define DFGNN_CPU_TABLES(function, type, prefix)                               \
  DFGNN_CPU_TABLES_OF(type, prefix, portable);                                 \
  DFGNN_CPU_TABLES_X86(type, prefix);                                          \
  const type *function(int simd, dfgnn_dtype dtype) {                          \
    static const type *const tables[3][DFGNN_DTYPE_COUNT] = {                  \
        DFGNN_CPU_TABLE_ROW(prefix, portable),                                 \
        DFGNN_CPU_TABLE_ROW(prefix, avx2),                                     \
        {[DFGNN_F32] = &prefix##_avx512_f32,                                   \
         [DFGNN_F64] = &prefix##_avx2_f64}};                                   \
    return tables[simd][dtype];                                                \
  }
#else
#define DFGNN_CPU_TABLES(function, type, prefix)                               \
  DFGNN_CPU_TABLES_OF(type, prefix, portable);                                 \
  const type *function(int simd, dfgnn_dtype dtype) {                          \
    static const type *const tables[1][DFGNN_DTYPE_COUNT] = {                  \
        DFGNN_CPU_TABLE_ROW(prefix, portable)};                                \
    return tables[simd][dtype];                                                \
  }
#endif

#endif
