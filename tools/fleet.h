/* fleet.h - one process a device, one table of what they did */
#ifndef DFGNN_TOOLS_FLEET_H
#define DFGNN_TOOLS_FLEET_H

#include "tools/report.h"

#define TOOL_FLEET_MAX 16

/* A device as dfgnn_options names it.  Devices of one model share the problems:
 * this one takes every parts-th. */
typedef struct tool_member {
  char device[32], model[128];
  int part, parts;
} tool_member;

/* The devices that a run on `device` is split over; "all" means all GPUs, or
 * the CPU if there is none.  A process of its own looks at them: one that has
 * used CUDA must not fork.  Returns an exit status. */
int tool_fleet_find(tool_member member[TOOL_FLEET_MAX], int *count,
                    const char *device);

/* Calls body in a process a device, with the device and its part set in
 * settings, and adds the rows of all to `rows`.  Lines on their standard error
 * come out with the device before them.  Returns the gravest exit status. */
int tool_fleet_run(json_t *rows, tool_settings *settings,
                   const tool_member *member, int count,
                   int (*body)(void *data, json_t *rows), void *data);

/* Returns the one of two exit statuses that the other must not hide. */
int tool_graver(int a, int b);

#endif
