/* memory.h - memory of the emulated device */
#ifndef DFGNN_EMULATOR_MEMORY_H
#define DFGNN_EMULATOR_MEMORY_H

#include <stddef.h>
#include <stdint.h>

/* All bytes of the memory are 0xff: NaN, or -1.  NULL if there is no memory. */
void *emulated_allocate(size_t bytes);
/* Returns 0 if memory is no allocation, or if its ends were written beyond. */
int emulated_free(uint64_t memory);
/* Whether bytes that begin in an allocation also end in it.  Addresses out of
 * all allocations are taken for the host's. */
int emulated_inside(uint64_t memory, size_t bytes);
/* Whether bytes lie in an allocation. */
int emulated_owned(uint64_t memory, size_t bytes);
size_t emulated_allocated(void);

#endif
