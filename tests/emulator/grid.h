/* grid.h - runs the threads of a grid */
#ifndef DFGNN_EMULATOR_GRID_H
#define DFGNN_EMULATOR_GRID_H

#include "module.h"

typedef struct emulated_launch {
  const emulated_module *module;
  const emulated_kernel *kernel;
  emulated_index blocks, threads;
  ptrdiff_t fixed_at; /* static shared memory, from module->shared() on */
  size_t fixed_bytes, dynamic_bytes;
  void **arguments;
} emulated_launch;

enum { EMULATED_MOST_THREADS = 1024, EMULATED_MOST_SHARED = 227 << 10 };

/* Returns 0 or an error of the driver; the kernel's error is told on stderr. */
int emulated_run_grid(const emulated_launch *launch);

/* Tells where an address lies, for reports; the text is static. */
const char *emulated_describe_address(const void *p);

#endif
