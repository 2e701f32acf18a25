/* fleet.h - runs one process per device and gathers their rows in one table */
#ifndef DFGNN_TOOLS_FLEET_H
#define DFGNN_TOOLS_FLEET_H

#include "tools/report.h"

#define TOOL_FLEET_MAX 16

/* A device as dfgnn_options names it.  Devices of one model share the problems:
 * this one takes every parts-th problem, from number `part` on. */
typedef struct tool_member {
  char device[32], model[128];
  int part, parts;
} tool_member;

/* Finds the devices that a run on `device` is split over; "all" means all GPUs,
 * or the CPU if there is none.  A child process looks at them: a process that
 * has used CUDA must not fork.  Returns an exit status. */
int tool_fleet_find(tool_member member[TOOL_FLEET_MAX], int *count,
                    const char *device);

/* Calls body in one process per device, with the device and its part set in
 * settings, and adds all their rows to `rows`.  Lines on their standard error
 * are printed with the device before them.  Returns the gravest exit status. */
int tool_fleet_run(json_t *rows, tool_settings *settings,
                   const tool_member *member, int count,
                   int (*body)(void *data, json_t *rows), void *data);

#endif
