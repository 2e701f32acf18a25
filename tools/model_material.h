/* model_material.h - what models are fitted to, and how widely it covers */
#ifndef DFGNN_TOOLS_MODEL_MATERIAL_H
#define DFGNN_TOOLS_MODEL_MATERIAL_H

#include "tools/records.h"
#include "tools/report.h"

/* Measurements, and the signatures of graphs at hand, which complete rows that
 * were stored before signatures looked at sources. */
typedef struct tool_material {
  tool_records records;
  dfgnn_signature *graph;
  size_t graphs;
} tool_material;

/* Does the name end in ".db"? */
int tool_is_store(const char *name);

/* Fills a material that is all 0.  Operands are stores and graphs; without a
 * store, the stores in use are read.  Returns an exit status; the caller frees
 * the material in any case. */
int tool_material_gather(tool_material *m, const tool_settings *settings,
                         int count, char **operands);
void tool_material_free(tool_material *m);

/* dfgnn-tune model coverage: returns an exit status. */
int tool_model_coverage(const tool_settings *settings, int count,
                        char **operands);

#endif
