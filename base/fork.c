#include "base/fork.h"

#include <omp.h>
#include <pthread.h>

static int depth;

/* Inside a parallel region it does nothing; the regions of a child that begins
 * there have one thread, so they need no pool. */
static void give_up_pool(void) { omp_pause_resource_all(omp_pause_soft); }

static void count(void) { depth++; }

static void install(void) { pthread_atfork(give_up_pool, NULL, count); }

void dfgnn__fork_prepare(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, install);
}

int dfgnn__fork_depth(void) { return depth; }
