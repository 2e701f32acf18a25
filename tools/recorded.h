/* recorded.h - the problems that a step of a model met, as dfgnn.record() of
 * Python saves them, or that processes with DFGNN_RECORD noted */
#ifndef DFGNN_TOOLS_RECORDED_H
#define DFGNN_TOOLS_RECORDED_H

#include "tools/inputs.h"

/* A recording takes no graphs and options of problems beside it; count: of the
 * operands.  Returns an exit status. */
int tool_recorded_check(const tool_settings *settings, int count);

/* Adds the graphs of a recording, each with its own problems.  path is the
 * folder, or recording.json in it.  Returns an exit status; messages begin with
 * the file's name. */
int tool_recorded_read(tool_graphs *graphs, const tool_settings *settings,
                       const char *path);

#endif
