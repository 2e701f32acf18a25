/* ranks.h - the processes that mpirun started, as one run: each takes the next
 * problem that nobody has, and rank 0 prints what all of them did */
#ifndef DFGNN_TOOLS_RANKS_H
#define DFGNN_TOOLS_RANKS_H

#include "tools/fleet.h"

/* Whether mpirun started this process and the library has MPI; says so if only
 * the latter is missing. */
int tool_ranks_launched(void);

/* The MPI library and its version, "none" without. */
const char *tool_ranks_library(void);

/* Calls body with a device of this host, the local rank's of `member`, in
 * settings.  Ranks whose devices are of one model share the problems; stores of
 * several files are merged into each other before and after, unless it is a dry
 * run.  Rank 0 gets the rows of all and the gravest exit status, the others
 * TOOL_DONE. */
int tool_ranks_run(json_t *rows, tool_settings *settings,
                   const tool_member *member, int count,
                   int (*body)(void *data, json_t *rows), void *data);
int tool_ranks_speak(void); /* this is rank 0, or there are no ranks */

/* Whether a problem is this rank's, which takes the next one that nobody has
 * if it has done its last; ask in order.  1 without ranks. */
int tool_ranks_take(size_t index);
/* Called now and then, so that the others need not wait for this one. */
void tool_ranks_attend(void);

#endif
