#include "kernels/common/cpu_simd.h"
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

dfgnn_status dfgnn__program_cpu(const dfgnn_program_job *job) {
  const dfgnn_dag *dag = job->lowered->dag;
  int is_double = 0, simd = job->blocks.simd ? job->blocks.simd - 1 : 2;
  for (int i = 0; i < dag->input_count; i++)
    is_double |= job->inputs[i].dtype == DFGNN_F64;
  for (int i = 0; i < dag->output_count; i++)
    is_double |= job->outputs[i].dtype == DFGNN_F64;
  while (!dfgnn__program_evaluator(simd, is_double))
    simd--;
  return dfgnn__program_evaluator(simd, is_double)(job);
}
