/* jsonl.h - a measurement as a JSON object and back */
#ifndef DFGNN_TOOLS_JSONL_H
#define DFGNN_TOOLS_JSONL_H

#include "db/store.h"
#include <jansson.h>

json_t *tool_measurement_json(const dfgnn_measurement *row);

/* Strings of row belong to object.  Unknown keys, missing ones and wrong types
 * are errors that name the key. */
dfgnn_status tool_measurement_parse(dfgnn_measurement *row,
                                    const json_t *object);

/* The same of an object that has the fields of a problem alone. */
dfgnn_status tool_problem_parse(dfgnn_measurement *row, const json_t *object);

#endif
