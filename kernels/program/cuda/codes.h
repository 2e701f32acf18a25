/* codes.h - the generated sources of a program, each made once */
#ifndef DFGNN_PROGRAM_CUDA_CODES_H
#define DFGNN_PROGRAM_CUDA_CODES_H

#include <pthread.h>

#include "kernels/program/cuda/generate.h"

typedef struct dfgnn_program_code {
  struct dfgnn_program_code *next;
  struct dfgnn_code_key *key;
  dfgnn_generated *generated;
  const char *source; /* the name that the engine gave the text */
} dfgnn_program_code;

/* The sources of one program, which threads may share. */
typedef struct dfgnn_program_codes {
  pthread_mutex_t lock;
  dfgnn_program_code *first;
  struct dfgnn_body_code *bodies; /* for CPUs: kernels/program/cpu/bodies.h */
} dfgnn_program_codes;

void dfgnn__program_codes_begin(dfgnn_program_codes *codes);
void dfgnn__program_codes_end(dfgnn_program_codes *codes);

/* The source for tensors like those of `job`, which has codes; it lives as long
 * as they do. */
dfgnn_status dfgnn__program_code(const dfgnn_program_code **code,
                                 const dfgnn_program_job *job,
                                 const dfgnn_program_tuning *tuning);

#endif
