/* bodies.h - compiled bodies of programs: made in the background, and taken
 * when they are there
 *
 * A program that has run for long enough on a CPU gets one, if the user has a
 * C compiler (kernels/engine/cc.h).  Until it is there, and wherever it cannot
 * be made, the evaluator's own loops run, which give the same bits. */
#ifndef DFGNN_KERNELS_PROGRAM_CPU_BODIES_H
#define DFGNN_KERNELS_PROGRAM_CPU_BODIES_H

#include "kernels/program/cpu/generate.h"

struct dfgnn_body_code;

/* Gives a job the body for its tensors' types and an instruction set, if there
 * is one. */
void dfgnn__body_find(dfgnn_program_job *job, int simd, int is_double);
/* Begins to make it; 1 once it is there, or is known not to come. */
int dfgnn__body_settled(const dfgnn_program_job *job, int simd, int is_double);
void dfgnn__bodies_free(struct dfgnn_body_code *bodies);

/* From now on (1), until as many calls with -1: a job waits for its body, as
 * the tuner's do, so that it is what is measured. */
void dfgnn__bodies_hurry(int by);
/* Bodies that this process has loaded. */
int dfgnn__bodies_count(void);

#endif
