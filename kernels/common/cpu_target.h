/* cpu_target.h - plain loops after this are made vectors of CPU_ISA's
 *
 * For a file of kernels/cpu.am whose functions carry no target attribute of
 * their own.  It includes the headers of the C library and kernels/common's
 * first, then this, and ends in CPU_TARGET_END. */
#ifndef DFGNN_KERNELS_CPU_TARGET_H
#define DFGNN_KERNELS_CPU_TARGET_H

#if CPU_ISA == CPU_AVX2
#define LOOP_TARGET "avx2,fma,f16c"
#elif CPU_ISA == CPU_AVX512
#define LOOP_TARGET "avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,f16c"
#endif
#define LOOP_PRAGMA(x) _Pragma(#x)
#define LOOP_PRAGMA_OF(x) LOOP_PRAGMA(x)

#ifdef LOOP_TARGET
#ifdef __clang__
LOOP_PRAGMA_OF(clang attribute push(__attribute__((target(LOOP_TARGET))),
                                    apply_to = function))
#else
LOOP_PRAGMA_OF(GCC target(LOOP_TARGET))
#endif
#endif

/* Loops become vectors from -O3 on, and a choice between two values only if
 * both may be computed. */
#ifndef __clang__
#pragma GCC optimize("O3", "no-trapping-math", "no-math-errno")
#endif
#ifdef CPU_LEVEL
LOOP_PRAGMA_OF(GCC optimize(CPU_LEVEL))
#endif

#if defined(LOOP_TARGET) && defined(__clang__)
#define CPU_TARGET_END _Pragma("clang attribute pop")
#else
#define CPU_TARGET_END
#endif

#endif
