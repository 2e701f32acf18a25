/* internal.h - the engine's inside, for its files */
#ifndef DFGNN_ENGINE_INTERNAL_H
#define DFGNN_ENGINE_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "kernels/engine/driver.h"
#include "kernels/engine/engine.h"

uint64_t dfgnn__program_hash(const dfgnn_program *program);
int dfgnn__program_equal(const dfgnn_program *a, const dfgnn_program *b);

/* A program that is compiled, and loaded if the engine has a device. */
typedef struct dfgnn_kernel {
  dfgnn_program program;
  uint64_t hash;
  cu_module module;
  cu_function function;
  dfgnn_kernel_info info;
  atomic_uint shared;  /* dynamic shared memory that the driver allows */
  atomic_int carveout; /* the last that was asked for */
} dfgnn_kernel;

/* Open addressing; a reader takes no lock.  A table that has grown too small
 * stays until the engine is closed, since a reader may still look at it. */
typedef struct dfgnn_kernel_table {
  struct dfgnn_kernel_table *older;
  size_t capacity, count;
  _Atomic(dfgnn_kernel *) slot[];
} dfgnn_kernel_table;

/* A program that some thread is compiling. */
typedef struct dfgnn_pending {
  struct dfgnn_pending *next;
  const dfgnn_program *program;
} dfgnn_pending;

struct dfgnn_engine {
  int ordinal; /* -1: no device */
  int device;
  cu_context context;
  char architecture[16]; /* "sm_90" */
  int overlaps;          /* can launches overlap? (dfgnn_grid) */
  char target[24];       /* of the compiler; "" until first needed */
  pthread_mutex_t lock;  /* guards target, pending, additions to the table */
  pthread_cond_t made;   /* a program is no longer pending */
  dfgnn_pending *pending;
  _Atomic(dfgnn_kernel_table *) table;
  dfgnn_keep_image *keep;
  void *keep_data;
};

#endif
