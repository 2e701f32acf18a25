#include "tools/model_material.h"

#include <stdlib.h>
#include <string.h>

#include "dfgnn_graph.h"
#include "graph/io/io.h"

int tool_is_store(const char *name) {
  const size_t length = strlen(name);
  return length > 3 && !strcmp(name + length - 3, ".db");
}

static int add_graph(tool_material *m, dfgnn_context *ctx, const char *name) {
  dfgnn_csr *csr = NULL;
  dfgnn_graph *graph = NULL;
  dfgnn_signature *grown =
      realloc(m->graph, (m->graphs + 1) * sizeof *m->graph);
  if (!grown)
    return tool_error("out of memory");
  m->graph = grown;
  grown[m->graphs] = (dfgnn_signature)DFGNN_SIGNATURE_INIT;
  dfgnn_status status = dfgnn__csr_open(&csr, name);
  if (!status)
    status = dfgnn_graph_create_csr(&graph, ctx, csr, NULL);
  if (!status)
    status = dfgnn_graph_signature(&grown[m->graphs], graph);
  dfgnn_graph_destroy(graph);
  dfgnn_csr_free(csr);
  if (status)
    return tool_fail(status);
  m->graphs++;
  return TOOL_DONE;
}

static int add_graphs(tool_material *m, const tool_graphs *graphs) {
  dfgnn_options options = DFGNN_OPTIONS_INIT;
  dfgnn_context *ctx;
  int status = TOOL_DONE;
  options.device = "cpu";
  options.store = "";
  dfgnn_status opened = dfgnn_context_create(&ctx, &options);
  if (opened)
    return tool_fail(opened);
  for (size_t i = 0; i < graphs->count; i++) {
    const int added = add_graph(m, ctx, graphs->name[i]);
    if (added && !graphs->listed[i])
      status = added;
  }
  dfgnn_context_destroy(ctx);
  return status;
}

int tool_material_gather(tool_material *m, const tool_settings *settings,
                         int count, char **operands) {
  tool_graphs graphs = {0};
  int stores = 0, status = TOOL_DONE;
  for (int i = 0; i < count && !status; i++) {
    if (!tool_is_store(operands[i])) {
      status = tool_graphs_add(&graphs, operands[i]);
      continue;
    }
    stores++;
    status = tool_records_add(&m->records, operands[i]);
  }
  if (!status && !stores)
    status = tool_records_load(&m->records, settings);
  if (!status && graphs.count)
    status = add_graphs(m, &graphs);
  tool_graphs_free(&graphs);
  return status;
}

void tool_material_free(tool_material *m) {
  tool_records_free(&m->records);
  free(m->graph);
}
