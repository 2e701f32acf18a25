#include "kernels/common/cpu_simd.h"
#include "kernels/common/cpu_tables.h"
#include "kernels/mlp/cpu/table.h"

DFGNN_CPU_TABLES(dfgnn__mlp_kernels, dfgnn_mlp_kernels, dfgnn__mlp)

dfgnn_status dfgnn__mlp_cpu(const dfgnn_mlp_job *job) {
  int simd = job->blocks.simd ? job->blocks.simd - 1 : 2;
  while (dfgnn__cpu_simd_missing(simd))
    simd--;
  return dfgnn__mlp_kernels(simd, job->mlp.dtype)->run(job);
}
