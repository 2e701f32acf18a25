/* run.h - runs generated kernels */
#ifndef DFGNN_PROGRAM_CUDA_RUN_H
#define DFGNN_PROGRAM_CUDA_RUN_H

#include "kernels/program/cuda/generate.h"

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
