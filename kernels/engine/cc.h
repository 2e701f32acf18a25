/* cc.h - C that was generated, made functions of by the user's compiler
 *
 * DFGNN_CC names the compiler ("cc"); empty: none.  What it made is kept in the
 * user's cache (cache.h), and loaded from memory, so that no file that others
 * may write, and no folder that may not be executed, is in between.  A process
 * that runs with other rights than its user's (setuid) compiles nothing. */
#ifndef DFGNN_ENGINE_CC_H
#define DFGNN_ENGINE_CC_H

#include <pthread.h>
#include <stdatomic.h>

#include "dfgnn.h"

/* *found becomes the address of `symbol`, for the life of the process.
 * options ends with NULL.  DFGNN_ERROR_UNSUPPORTED: there is no compiler, or it
 * fails, takes longer than a minute, or is ended because *stop is set.
 * `loading` is taken while it is not the compiler that works: while the cache
 * and the loader do. */
dfgnn_status dfgnn__cc_load(void **found, const char *text, const char *symbol,
                            const char *const *options, const atomic_int *stop,
                            pthread_mutex_t *loading);

#endif
