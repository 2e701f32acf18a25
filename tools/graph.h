/* graph.h - the commands of dfgnn-graph */
#ifndef DFGNN_TOOLS_GRAPH_H
#define DFGNN_TOOLS_GRAPH_H

#include "tools/common.h"

int graph_info(tool_settings *settings, int count, char **operands);
int graph_reorder(tool_settings *settings, int count, char **operands);
int graph_partition(tool_settings *settings, int count, char **operands);

/* Writes csr to path, noting what the format cannot keep. */
int graph_write(const tool_settings *settings, const dfgnn_csr *csr,
                const char *path);
/* Prints the thread's message and returns an exit status: that of wrong usage
 * for a wrong specification. */
int graph_fail(dfgnn_status status);

#endif
