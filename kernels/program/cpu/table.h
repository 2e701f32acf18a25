/* table.h - the evaluator for each instruction set and type of sums; the
 * headers that a file includes before it chooses its instruction set */
#ifndef DFGNN_KERNELS_PROGRAM_CPU_TABLE_H
#define DFGNN_KERNELS_PROGRAM_CPU_TABLE_H

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/common/cpu_team.h"
#include "kernels/common/dropout.h"
#include "kernels/common/half.h"
#include "kernels/program/job.h"
#include "lib/base/error.h"

typedef dfgnn_status (*dfgnn_program_evaluator)(const dfgnn_program_job *job);

dfgnn_status dfgnn__program_portable_f32(const dfgnn_program_job *job);
dfgnn_status dfgnn__program_portable_f64(const dfgnn_program_job *job);
#ifdef __x86_64__
dfgnn_status dfgnn__program_avx2_f32(const dfgnn_program_job *job);
dfgnn_status dfgnn__program_avx2_f64(const dfgnn_program_job *job);
dfgnn_status dfgnn__program_avx512_f32(const dfgnn_program_job *job);
#endif

/* NULL: the machine has not the instruction set: 0 portable, 1 AVX2, 2 AVX-512.
 */
dfgnn_program_evaluator dfgnn__program_evaluator(int simd, int is_double);

#endif
