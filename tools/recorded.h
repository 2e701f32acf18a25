/* recorded.h - the problems that a step of a model met, as dfgnn.record() of
 * Python saves them */
#ifndef DFGNN_TOOLS_RECORDED_H
#define DFGNN_TOOLS_RECORDED_H

#include "tools/inputs.h"

/* Adds the graphs of a recording, each with its own problems.  path is the
 * folder, or recording.json in it.  Returns an exit status; messages begin with
 * the file's name. */
int tool_recorded_read(tool_graphs *graphs, const tool_settings *settings,
                       const char *path);

#endif
