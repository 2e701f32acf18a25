/* graph_write.c - the commands of dfgnn-graph write their graphs, or fail */
#include <string.h>

#include "dfgnn_graph.h"
#include "tools/graph.h"

int graph_fail(dfgnn_status status) {
  return status == DFGNN_ERROR_INVALID ? tool_usage("%s", dfgnn_last_error())
                                       : tool_fail(status);
}

static int has_suffix(const char *path, const char *suffix) {
  size_t n = strlen(path), m = strlen(suffix);
  return n >= m && !strcmp(path + n - m, suffix);
}

int graph_write(const tool_settings *settings, const dfgnn_csr *csr,
                const char *path) {
  dfgnn_status status = dfgnn_csr_write(csr, path);
  if (status)
    return graph_fail(status);
  if (csr->graph_ptr && !has_suffix(path, ".npz"))
    tool_note(settings,
              "note: %s does not say where the %lld graphs of the batch "
              "begin; .npz does",
              path, (long long)csr->graphs);
  return TOOL_DONE;
}
