#include "lib/base/fork.h"

#include <omp.h>
#include <pthread.h>

/* Weak, since the OpenMP runtimes that torch brought up to 2.4 lack it. */
#pragma weak omp_pause_resource_all

static int depth;

/* Inside a parallel region it does nothing; the regions of a child that begins
 * there have one thread, so they need no pool. */
static void give_up_pool(void) {
  if (omp_pause_resource_all)
    omp_pause_resource_all(omp_pause_soft);
}

/* A child that inherits the pool, but none of its threads, would wait for them
 * for ever: with no active level its regions have one thread. */
static void begin_child(void) {
  depth++;
  if (!omp_pause_resource_all)
    omp_set_max_active_levels(0);
}

static void install(void) { pthread_atfork(give_up_pool, NULL, begin_child); }

void dfgnn__fork_prepare(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, install);
}

int dfgnn__fork_depth(void) { return depth; }
