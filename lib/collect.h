/* collect.h - the programs that a variant needs for a problem: its prepare and
 * launch run on a queue that only lists them */
#ifndef DFGNN_LIB_COLLECT_H
#define DFGNN_LIB_COLLECT_H

#include "lib/registry.h"

/* views: those of a graph, or NULL for stand-ins that ask for every program
 * that some graph with the setting's matrix may need.  The setting's queue is
 * ignored.  all 0: for a call as it is timed, without the inputs and outputs
 * that a caller may leave out; 1: for a call with them too.  Other backends'
 * variants need no programs. */
dfgnn_status dfgnn__collect_programs(dfgnn_programs *list,
                                     const dfgnn_variant *variant,
                                     const dfgnn_setting *setting,
                                     const dfgnn_view *const *views, int all);

/* The programs of all work on graphs themselves (analysis, edge lists, views,
 * moves of rows), whatever their widths and sizes. */
dfgnn_status dfgnn__collect_graph_programs(dfgnn_programs *list);

#endif
