/* run.h - runs generated kernels */
#ifndef DFGNN_PROGRAM_CUDA_RUN_H
#define DFGNN_PROGRAM_CUDA_RUN_H

#include "kernels/program/cuda/generate.h"

/* The views by which blocks take long rows, for a job whose graph is known:
 * long_row as dfgnn_program_tuning has it; the largest degrees
 * of rows and columns; units: of the device.  At most 4. */
int dfgnn__program_long_views(dfgnn_view_request *requests,
                              const dfgnn_program_job *job, int64_t long_row,
                              int64_t longest_row, int64_t longest_column,
                              int units);
/* Those by which groups of lanes take rows by falling degree; at most 2. */
int dfgnn__program_order_views(dfgnn_view_request *requests,
                               const dfgnn_program_job *job);
void dfgnn__program_take_rows(dfgnn_program_job *job, int64_t long_row,
                              const dfgnn_view *const *views, int count);

/* Bytes of device memory, 256-byte aligned, that a run needs; units: of the
 * device. */
size_t dfgnn__program_cuda_workspace(const dfgnn_program_job *job,
                                     const dfgnn_generated *generated,
                                     int units);

/* Puts the walks of a program on the queue's stream.  source: the name that the
 * engine gave the text. */
dfgnn_status dfgnn__program_cuda(const dfgnn_program_job *job,
                                 const dfgnn_generated *generated,
                                 const char *source, const dfgnn_queue *queue,
                                 int units, void *workspace);

#endif
