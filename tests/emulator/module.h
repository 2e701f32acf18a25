/* module.h - the interface of a compiled program and the emulated driver
 *
 * A program is a shared object with one symbol, dfgnn_emulated_module.  The
 * driver loads it, points `runtime` to its own functions, and calls a kernel
 * once for every thread of a grid.  Threads of a block are fibers of one thread
 * of the system, so `current` says which of them runs. */
#ifndef DFGNN_EMULATOR_MODULE_H
#define DFGNN_EMULATOR_MODULE_H

#include <stddef.h>

enum { EMULATED_VERSION = 1, EMULATED_WARP = 32 };

typedef struct emulated_index {
  unsigned x, y, z;
} emulated_index;

typedef struct emulated_thread {
  emulated_index index;
  int lane;
} emulated_thread;

typedef struct emulated_block {
  emulated_index index, threads, blocks;
  void *shared; /* dynamic shared memory */
} emulated_block;

/* The place that a function of CUDA was called from, for messages. */
typedef struct emulated_place {
  const char *file, *call;
  int line;
} emulated_place;

/* A function that all lanes of a warp do together: it reads the operands of all
 * lanes and writes results into them.  A lane out of the mask, or one that has
 * ended, has NULL for an operand. */
typedef void emulated_together(void *operands[EMULATED_WARP]);

typedef struct emulated_runtime {
  /* Returns after all lanes of the mask have come and one has called
   * `together`. */
  void (*meet)(unsigned mask, void *operand, emulated_together *together,
               emulated_place place);
  /* Waits for all threads of the block; returns how many predicates hold. */
  int (*barrier)(int predicate, emulated_place place);
  /* Lets other threads of the block run, for loops that wait for them. */
  void (*yield)(void);
  /* Asynchronous copies: they are made as late as a kernel may expect them. */
  void (*copy)(void *to, const void *from, int size, int bytes);
  void (*commit)(void);
  void (*wait)(int pending);
  int (*is_shared)(const void *p);
  /* Reports an error of the kernel and ends the launch. */
  void (*fail)(emulated_place place, const char *format, ...);
} emulated_runtime;

typedef struct emulated_kernel {
  const char *symbol, *name;
  void (*call)(void **arguments);
  int count; /* the number of parameters, at most 16 */
  size_t bytes[16];
} emulated_kernel;

typedef struct emulated_module {
  int version;
  emulated_thread **current;
  emulated_block *block;
  const emulated_runtime **runtime;
  void *(*shared)(void); /* an address in static shared memory */
  const emulated_kernel *kernels;
  int count;
} emulated_module;

#define EMULATED_MODULE "dfgnn_emulated_module"

#endif
