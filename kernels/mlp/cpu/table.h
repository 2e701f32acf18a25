/* table.h - a pass of an MLP for each instruction set and type */
#ifndef DFGNN_KERNELS_MLP_CPU_TABLE_H
#define DFGNN_KERNELS_MLP_CPU_TABLE_H

#include "kernels/mlp/job.h"

typedef struct dfgnn_mlp_kernels {
  dfgnn_status (*run)(const dfgnn_mlp_job *job);
} dfgnn_mlp_kernels;

const dfgnn_mlp_kernels *dfgnn__mlp_kernels(int simd, dfgnn_dtype dtype);

#endif
