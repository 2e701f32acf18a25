/* cpu_team.c - tasks shared out to the threads of OpenMP
 *
 * Threads take one task after the other.  A call is lost if it takes longer
 * than all of its threads have run together, since one thread alone would have
 * been faster: some thread was ready but did not run.  Callers then work alone
 * for ALONE times as long as was lost, so that a busy host costs a share of 1 /
 * ALONE at most. */
#include "kernels/common/cpu_team.h"

#include <sched.h>
#include <stdatomic.h>
#include <time.h>
#ifdef _OPENMP
#include <omp.h>
#endif

enum { ALONE = 8 };
enum { SPINS = 2000 }; /* before a wait gives way to other threads */

static _Atomic int64_t alone_until; /* of CLOCK_MONOTONIC */
static _Thread_local int number;    /* of this thread in its team */

int dfgnn__cpu_thread(void) { return number; }

#ifdef _OPENMP

static int64_t clock_at(clockid_t clock) {
  struct timespec t = {0};
  clock_gettime(clock, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

typedef struct team {
  dfgnn_cpu_body_of body;
  void *data;
  int64_t count, step;
  _Atomic int64_t next; /* the first number that no task has */
  _Atomic int64_t ran;  /* nanoseconds, of all threads */
  _Atomic int finished; /* threads */
} team;

static void take_tasks(team *t) {
  const int64_t began = clock_at(CLOCK_THREAD_CPUTIME_ID);
  for (;;) {
    const int64_t begin = atomic_fetch_add(&t->next, t->step);
    if (begin >= t->count)
      break;
    t->body(t->data, begin,
            t->count - begin < t->step ? t->count : begin + t->step);
  }
  atomic_fetch_add(&t->ran, clock_at(CLOCK_THREAD_CPUTIME_ID) - began);
}

/* Waits for the others; OpenMP's barrier would keep a core that they may need.
 */
static void wait_for(team *t, int threads) {
  for (int spins = 0; atomic_load(&t->finished) < threads; spins++)
    if (spins >= SPINS)
      sched_yield();
}

static void run_team(team *t, int threads) {
  const int64_t began = clock_at(CLOCK_MONOTONIC);
#pragma omp parallel num_threads(threads)
  {
    number = omp_get_thread_num();
    take_tasks(t);
    atomic_fetch_add(&t->finished, 1);
    if (number == 0)
      wait_for(t, omp_get_num_threads());
    number = 0;
  }
  const int64_t ended = clock_at(CLOCK_MONOTONIC);
  const int64_t lost = ended - began - atomic_load(&t->ran);
  if (lost > 0)
    atomic_store_explicit(&alone_until, ended + ALONE * lost,
                          memory_order_relaxed);
}

static int is_alone(void) {
  const int64_t until =
      atomic_load_explicit(&alone_until, memory_order_relaxed);
  return until && clock_at(CLOCK_MONOTONIC) < until;
}
#endif

void dfgnn__cpu_for(int threads, int64_t count, int64_t step,
                    dfgnn_cpu_body_of body, void *data) {
#ifdef _OPENMP
  if (threads > 1 && count > step && !is_alone()) {
    team t = {.body = body, .data = data, .count = count, .step = step};
    run_team(&t, threads);
    return;
  }
#else
  (void)threads;
#endif
  for (int64_t begin = 0; begin < count; begin += step)
    body(data, begin, count - begin < step ? count : begin + step);
}
