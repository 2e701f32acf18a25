/* cpu_team.h - tasks shared out to threads, or not
 *
 * A team waits for its slowest thread.  On a host whose cores others use, that
 * thread may not run for milliseconds: then the caller works alone for a while
 * (cpu_team.c). */
#ifndef DFGNN_KERNELS_CPU_TEAM_H
#define DFGNN_KERNELS_CPU_TEAM_H

#include <stdint.h>

typedef void (*dfgnn_cpu_body_of)(void *data, int64_t begin, int64_t end);

/* Calls body on ranges of `step` that cover 0 .. count - 1 once.  They are the
 * same if the caller works alone: a sum that a range cuts keeps its bits. */
void dfgnn__cpu_for(int threads, int64_t count, int64_t step,
                    dfgnn_cpu_body_of body, void *data);

/* The number of the thread that runs a body, below `threads`; else 0. */
int dfgnn__cpu_thread(void);

#endif
