/* ranks.h - the processes that mpirun started, as one run: each takes the next
 * problem that nobody has, and rank 0 prints the rows of all */
#ifndef DFGNN_TOOLS_RANKS_H
#define DFGNN_TOOLS_RANKS_H

#include "tools/fleet.h"

/* Did mpirun start this process, and has the library MPI?  Prints a message if
 * only the latter is missing. */
int tool_ranks_launched(void);

/* The name and version of the MPI library, "none" without MPI. */
const char *tool_ranks_library(void);

/* Calls body with settings->device set to that of `member` which the local rank
 * takes.  Ranks whose devices are of one model share the problems; different
 * store files are merged into each other before and after, unless it is a dry
 * run.  Rank 0 gets the rows of all and the gravest exit status, the others
 * TOOL_DONE. */
int tool_ranks_run(json_t *rows, tool_settings *settings,
                   const tool_member *member, int count,
                   int (*body)(void *data, json_t *rows), void *data);
int tool_ranks_speak(void); /* this is rank 0, or there are no ranks */

/* Is a problem this rank's?  A rank that has done its last one takes the next
 * that nobody has; ask about problems in their order.  1 without ranks. */
int tool_ranks_take(size_t index);
/* Call it now and then, so that other ranks need not wait for this one. */
void tool_ranks_attend(void);

#endif
