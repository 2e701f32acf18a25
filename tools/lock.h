/* lock.h - a file of choices, to see later whether they are still the same */
#ifndef DFGNN_TOOLS_LOCK_H
#define DFGNN_TOOLS_LOCK_H

#include "tools/report.h"

/* Writes the choices of rows of `dfgnn-tune explain` to a file, with their
 * digest, and prints the digest.  Returns an exit status. */
int tool_lock_write(const char *path, const json_t *rows);

/* Compares the choices of rows with those of a file, and says on stderr which
 * of them differ, or are missing in one of both.  TOOL_FAILED if any does. */
int tool_lock_check(const char *path, const json_t *rows);

#endif
