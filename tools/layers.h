/* layers.h - which store file an answer comes from */
#ifndef DFGNN_TOOLS_LAYERS_H
#define DFGNN_TOOLS_LAYERS_H

#include "lib/context.h"
#include "tools/inputs.h"

/* Calls found(data, path) for every layer of the case's context that holds the
 * pin, or a measurement of the chosen variant among those behind the choice;
 * for none if neither pins nor measurements chose. */
void tool_layers_of(const tool_case *each, const dfgnn_choice *choice,
                    void (*found)(void *data, const char *path), void *data);

/* Counts for each layer the decisions of the context whose winner it holds;
 * returns the number of all decisions. */
size_t tool_layers_winners(int64_t *winners, const dfgnn_context *ctx);

#endif
