/* cells.h - a table of problems: a name and the options of each on a line */
#ifndef DFGNN_TOOLS_CELLS_H
#define DFGNN_TOOLS_CELLS_H

#include "tools/inputs.h"

typedef struct tool_cell {
  char name[64];
  dfgnn_problem problem;
} tool_cell;

typedef struct tool_cells {
  tool_cell *cell;
  size_t count;
} tool_cells;

/* Reads a file of lines such as "gat8x8 --op gat --heads 8 --dim 8"; what
 * follows a '#' is a comment.  only: names with commas between them, in place
 * of all; NULL: all.  What an option leaves open comes from settings. */
int tool_cells_read(tool_cells *cells, const tool_settings *settings,
                    const char *path, const char *only);
/* Gives each graph the problems of the cells in place of the options'. */
int tool_cells_ask(tool_graphs *graphs, const tool_cells *cells);
void tool_cells_free(tool_cells *cells);

#endif
