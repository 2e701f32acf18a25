/* cover.h - which problems of a run are measured for the sake of coverage
 *
 * dfgnn-tune run --plan cover:N measures a problem only while some family that
 * is legal in its cell was measured on fewer than N graphs, first where fewest
 * were (tuner/coverage.h). */
#ifndef DFGNN_TOOLS_COVER_H
#define DFGNN_TOOLS_COVER_H

#include "tools/inputs.h"

typedef struct tool_cover tool_cover;

/* Starts from the rows that the settings' stores have.  Returns an exit
 * status; *cover is NULL then. */
int tool_cover_create(tool_cover **cover, const tool_settings *settings);
void tool_cover_free(tool_cover *cover);

/* The numbers of graphs to which one pass over the problems after the other
 * raises the coverage: 1, 2, 4, ... up to the plan's; 0: the pass was the
 * last. */
int tool_cover_pass(tool_cover *cover);

/* The graphs of a pass in an order of its own; owned by the cover. */
const tool_graphs *tool_cover_graphs(tool_cover *cover,
                                     const tool_graphs *graphs);

/* Lists the names of the variants to measure, and NULL at the end; NULL if the
 * problem is covered well enough for this pass.  Owned by the cover until the
 * next call. */
const char *const *tool_cover_variants(tool_cover *cover,
                                       const tool_case *each);
/* The problem was measured. */
void tool_cover_measured(tool_cover *cover, const tool_case *each);

/* Says on stderr how wide the coverage of the problems is that were looked at.
 */
void tool_cover_say(const tool_cover *cover, const char *when);

#endif
