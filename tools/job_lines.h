/* job_lines.h - the line of each value of a job file
 *
 * libcyaml does not tell the lines of values that it accepted, ignores a second
 * document, and ends texts at a NUL. */
#ifndef DFGNN_TOOLS_JOB_LINES_H
#define DFGNN_TOOLS_JOB_LINES_H

#include <stddef.h>

typedef struct tool_job_line {
  char key[24]; /* of the mapping, cut if it is longer */
  int entry;    /* index in a list; 0 for a value that is no list */
  int line;     /* from 1 */
} tool_job_line;

typedef struct tool_job_lines {
  size_t count;
  tool_job_line *line;
} tool_job_lines;

/* Returns an exit status, with a message that begins with file:line if there is
 * a second document or a NUL in a text.  libcyaml reports what is no YAML. */
int tool_job_lines_find(tool_job_lines *lines, const char *path,
                        const char *text, size_t size);
void tool_job_lines_free(tool_job_lines *lines);

/* The line of an entry of a key, else of the key's first entry, else 1. */
int tool_job_line_of(const tool_job_lines *lines, const char *key, int entry);

#endif
