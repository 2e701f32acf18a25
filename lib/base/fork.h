/* fork.h - OpenMP in a child of fork()
 *
 * GCC's OpenMP keeps a pool of threads for each thread that ran in parallel.  A
 * child of fork() has the pool's memory but not its threads, and its first
 * parallel region waits for them for ever.  So the pool is given up before each
 * fork(), and parent and child make new ones when they need them: a fork() then
 * costs the start of some threads. */
#ifndef DFGNN_BASE_FORK_H
#define DFGNN_BASE_FORK_H

/* Installs the handlers of pthread_atfork(3) at the first call.  Whatever may
 * run in parallel calls it first. */
void dfgnn__fork_prepare(void);

/* The number of forks between the process that called dfgnn__fork_prepare first
 * and this one. */
int dfgnn__fork_depth(void);

#endif
