/* graph.h - the commands of dfgnn-graph */
#ifndef DFGNN_TOOLS_GRAPH_H
#define DFGNN_TOOLS_GRAPH_H

#include "tools/common.h"

int graph_info(tool_settings *settings, int count, char **operands);

#endif
