/* job.h - job files, dfgnn-job(5) */
#ifndef DFGNN_TOOLS_JOB_H
#define DFGNN_TOOLS_JOB_H

#include "tools/inputs.h"

/* Reads a job file into settings, except options that the command line gave,
 * and adds its graphs unless graphs has some already.  Paths are relative to
 * the file.  hash gets 32 hex digits of the content's hash.  Returns an exit
 * status; messages begin with file:line. */
int tool_job_read(tool_settings *settings, tool_graphs *graphs, char hash[33],
                  const char *path);

#endif
