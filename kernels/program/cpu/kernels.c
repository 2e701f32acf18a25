/* kernels.c - the evaluator, which kernels/cpu.am compiles for each instruction
 * set and type of sums; the compiler makes vectors of its loops */
#include "kernels/common/cpu_vector.h"
#include "kernels/program/cpu/table.h"

#define REAL scalar
#if CPU_DTYPE == CPU_F64
#define REAL_IS_DOUBLE 1
#else
#define REAL_IS_DOUBLE 0
#endif

#if CPU_ISA == CPU_AVX2
#define REAL_TARGET "avx2,fma"
#elif CPU_ISA == CPU_AVX512
#define REAL_TARGET "avx512f,avx512bw,avx512vl,avx512dq,avx2,fma"
#endif
#define REAL_PRAGMA(x) _Pragma(#x)
#define REAL_PRAGMA_OF(x) REAL_PRAGMA(x)

#ifdef REAL_TARGET
#ifdef __clang__
REAL_PRAGMA_OF(clang attribute push(__attribute__((target(REAL_TARGET))),
                                    apply_to = function))
#else
REAL_PRAGMA_OF(GCC target(REAL_TARGET))
#endif
#endif

/* Loops become vectors from -O3 on, and a choice between two values only if
 * both may be computed. */
#ifndef __clang__
#pragma GCC optimize("O3", "no-trapping-math", "no-math-errno")
#endif

#include "kernels/program/cpu/evaluate.h"

#define NAME_OF(table) dfgnn__program_##table
#define NAME(table) NAME_OF(table)

dfgnn_status NAME(CPU_TABLE)(const dfgnn_program_job *job) {
  return evaluate(job);
}

#if defined(REAL_TARGET) && defined(__clang__)
#pragma clang attribute pop
#endif
