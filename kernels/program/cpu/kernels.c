/* kernels.c - the evaluator, which kernels/cpu.am compiles for each instruction
 * set and type of sums; the compiler makes vectors of its loops */
#include "kernels/common/cpu_vector.h"
#include "kernels/program/cpu/table.h"

#define REAL scalar
#if CPU_ISA != CPU_PORTABLE || defined __aarch64__
#define REAL_FUSED 1
#endif
#if CPU_DTYPE == CPU_F64
#define REAL_IS_DOUBLE 1
#else
#define REAL_IS_DOUBLE 0
#endif

#include "kernels/common/cpu_target.h"

#ifdef __clang__
#pragma clang fp contract(off)
#else
#pragma GCC optimize("fp-contract=off")
#endif

#include "kernels/program/cpu/evaluate.h"

#define NAME_OF(table) dfgnn__program_##table
#define NAME(table) NAME_OF(table)

dfgnn_status NAME(CPU_TABLE)(const dfgnn_program_job *job) {
  return evaluate(job);
}

CPU_TARGET_END
