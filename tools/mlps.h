/* mlps.h - the MLPs on edges that --mlp names, as problems */
#ifndef DFGNN_TOOLS_MLPS_H
#define DFGNN_TOOLS_MLPS_H

#include "dfgnn_mlp.h"
#include "tools/common.h"

/* The problems of settings->mlp: for each text, in the option or in a file of
 * such, pass, type and math.  NULL with a message if one is wrong; the caller
 * frees the array. */
dfgnn_problem *tool_mlp_problems(size_t *count, const tool_settings *settings);

/* Names the row of an MLP that has a text but no hash, as recordings have; does
 * nothing to other rows. */
dfgnn_status tool_mlp_name(dfgnn_measurement *row);

/* 1 if the row is of such a problem, or if --mlp is not given. */
int tool_mlp_wanted(const tool_settings *settings,
                    const dfgnn_measurement *row);

#endif
