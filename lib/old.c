/* old.c - the functions of dfgnn_old.h, for one release */
#undef DFGNN_NO_OLD_NAMES
#include "dfgnn_old.h"

#define NAMED(kind, KIND)                                                      \
  const char *dfgnn_##kind##_name(dfgnn_##kind value) {                        \
    return dfgnn_name(DFGNN_NAMES_##KIND, (int)value);                         \
  }
#define PARSED(kind, KIND)                                                     \
  NAMED(kind, KIND)                                                            \
  dfgnn_status dfgnn_##kind##_parse(dfgnn_##kind *out, const char *name) {     \
    return dfgnn_parse((int *)out, DFGNN_NAMES_##KIND, name);                  \
  }

PARSED(op, OP)
PARSED(pass, PASS)
PARSED(dtype, DTYPE)
PARSED(math, MATH)
PARSED(layout, LAYOUT)
PARSED(effort, EFFORT)
PARSED(edge_use, EDGE_USE)
PARSED(message, MESSAGE)
PARSED(order, ORDER)
PARSED(partitioning, PARTITIONING)
NAMED(source, SOURCE)

/* Every header has csr.stream at its place in the first. */
dfgnn_status dfgnn_graph_create(dfgnn_graph **graph, dfgnn_context *ctx,
                                const dfgnn_csr *csr) {
  return dfgnn_graph_create_csr(graph, ctx, csr, csr ? csr->stream : NULL);
}

dfgnn_status dfgnn_graph_reorder(dfgnn_graph **graph, dfgnn_context *ctx,
                                 const dfgnn_csr *csr,
                                 const dfgnn_reordering *how) {
  return dfgnn_graph_create_reordered(graph, ctx, csr, how,
                                      csr ? csr->stream : NULL);
}
