#include "kernels/common/cpu_simd.h"
#include "kernels/program/cpu/bodies.h"
#include "kernels/program/cpu/table.h"

dfgnn_program_evaluator dfgnn__program_evaluator(int simd, int is_double) {
  static const dfgnn_program_evaluator table[3][2] = {
      {dfgnn__program_portable_f32, dfgnn__program_portable_f64},
#ifdef __x86_64__
      {dfgnn__program_avx2_f32, dfgnn__program_avx2_f64},
      {dfgnn__program_avx512_f32, dfgnn__program_avx2_f64}
#endif
  };
  return dfgnn__cpu_simd_missing(simd) ? NULL : table[simd][is_double];
}

dfgnn_status dfgnn__program_cpu(const dfgnn_program_job *given) {
  dfgnn_program_job job = *given;
  const int is_double = dfgnn__program_is_double(given);
  const int simd = given->blocks.simd;
  dfgnn__body_find(&job, simd, is_double);
  return dfgnn__program_evaluator(simd, is_double)(&job);
}

int dfgnn__program_cpu_prepared(const dfgnn_program_job *job) {
  const int is_double = dfgnn__program_is_double(job);
  int best = 2;
  while (!dfgnn__program_evaluator(best, is_double))
    best--;
  return dfgnn__body_settled(job, best, is_double);
}
