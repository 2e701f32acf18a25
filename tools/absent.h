/* absent.h - choices for a GPU that is not here: dfgnn-tune explain --for */
#ifndef DFGNN_TOOLS_ABSENT_H
#define DFGNN_TOOLS_ABSENT_H

#include "tools/report.h"

typedef struct tool_absent tool_absent;

/* Reads the stores and portfolios in use and describes settings->absent.
 * Returns an exit status; *absent is NULL then. */
int tool_absent_create(tool_absent **absent, const tool_settings *settings);
void tool_absent_free(tool_absent *absent);

/* A row as explain prints it, with the variant that a context on that GPU would
 * choose, the source, the reason and the candidates; NULL if no variant of the
 * GPU's backend serves the problem: the thread's message says so. */
struct tool_case;
json_t *tool_absent_row(tool_absent *absent, const struct tool_case *each);

#endif
