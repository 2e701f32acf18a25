/* load.h - what else a device does while its kernels are timed
 *
 * A time says something about a kernel only if its threads had their processors
 * to themselves.  Two readings of what the system counts say who else ran in
 * between; each figure may be missing, where the system does not tell it. */
#ifndef DFGNN_BASE_LOAD_H
#define DFGNN_BASE_LOAD_H

#include <stddef.h>

#define DFGNN_UNKNOWN (-1.0) /* of a figure that the system does not tell */

/* One reading.  Seconds are sums over the processors that this process may use,
 * counted from some moment. */
typedef struct dfgnn_load {
  double at;        /* dfgnn__seconds() */
  double cores;     /* processors that this process may use; a GPU: 1 */
  double limit;     /* of them, by the control group; infinity: all */
  double average;   /* threads that ran or waited, mean of the last minute */
  double running;   /* threads that run or wait now, of the whole system */
  double busy;      /* seconds that the processors worked, for anybody */
  double own;       /* seconds of them that this process had */
  double stolen;    /* seconds that a hypervisor gave to other machines */
  double throttled; /* seconds that the limit stopped this control group */
  double stalled;   /* seconds in which some thread waited for a processor */
  double hot;       /* times that a processor was slowed because it was hot */
  /* of a GPU */
  double use;          /* share of the last moment in which others used it */
  double mhz, top_mhz; /* its clock now, and the fastest it may have */
  double slowed;       /* 1: heat or a power brake holds the clock down */
} dfgnn_load;

/* Seconds of a clock that never goes back. */
double dfgnn__seconds(void);
/* A reading in which nothing is known but the time. */
dfgnn_load dfgnn__load_unknown(void);

/* Reads proc, sys/fs/cgroup and sys/devices below a folder: "" for this
 * machine's own, another one for tests. */
dfgnn_load dfgnn__load_read(const char *root);

/* The seconds for which threads of this process waited for a processor since
 * they began, summed over threads; DFGNN_UNKNOWN without /proc/.../schedstat.
 */
double dfgnn__load_waited(void);

/* A crowd describes the load of the machine between two readings. */
typedef struct dfgnn_crowd {
  double seconds;   /* between them */
  double cores;     /* that this process may use, after the limit */
  double others;    /* processors that others kept busy */
  double average;   /* as in dfgnn_load, of the later reading */
  double stolen;    /* share of the processors' time */
  double throttled; /* share of the time */
  double stalled;   /* share of the time */
  double hot;       /* times */
  double use, mhz, top_mhz, slowed; /* of the later reading */
} dfgnn_crowd;

dfgnn_crowd dfgnn__load_between(const dfgnn_load *before,
                                const dfgnn_load *after);

/* Others may take so much of a processor, or of the time, unnoticed. */
#define DFGNN_QUIET_CORES 0.3
#define DFGNN_QUIET_SHARE 0.05

/* Is there a processor for each of the threads, all of the time? */
int dfgnn__crowd_is_quiet(const dfgnn_crowd *crowd, int threads);

/* Says in words what is not quiet, "others keep 1.9 of 2 cores busy, 7 % of the
 * time is stolen"; "" if all is. */
void dfgnn__crowd_text(char *text, size_t size, const dfgnn_crowd *crowd,
                       int threads);

#endif
