/* dfgnn_old.h - names of 0.1 before its release, which go with the next one
 *
 * dfgnn.h includes this file unless DFGNN_NO_OLD_NAMES is defined. */
#ifndef DFGNN_OLD_H
#define DFGNN_OLD_H

#include "dfgnn_graph.h"
#include "dfgnn_tune.h"

#ifdef __cplusplus
extern "C" {
#endif

/* dfgnn_name() and dfgnn_parse() take their place. */
DFGNN_API const char *dfgnn_op_name(dfgnn_op value);
DFGNN_API const char *dfgnn_pass_name(dfgnn_pass value);
DFGNN_API const char *dfgnn_dtype_name(dfgnn_dtype value);
DFGNN_API const char *dfgnn_math_name(dfgnn_math value);
DFGNN_API const char *dfgnn_layout_name(dfgnn_layout value);
DFGNN_API const char *dfgnn_effort_name(dfgnn_effort value);
DFGNN_API const char *dfgnn_edge_use_name(dfgnn_edge_use value);
DFGNN_API const char *dfgnn_message_name(dfgnn_message value);
DFGNN_API const char *dfgnn_order_name(dfgnn_order value);
DFGNN_API const char *dfgnn_partitioning_name(dfgnn_partitioning value);
DFGNN_API const char *dfgnn_source_name(dfgnn_source value);
DFGNN_API dfgnn_status dfgnn_op_parse(dfgnn_op *out, const char *name);
DFGNN_API dfgnn_status dfgnn_pass_parse(dfgnn_pass *out, const char *name);
DFGNN_API dfgnn_status dfgnn_dtype_parse(dfgnn_dtype *out, const char *name);
DFGNN_API dfgnn_status dfgnn_math_parse(dfgnn_math *out, const char *name);
DFGNN_API dfgnn_status dfgnn_layout_parse(dfgnn_layout *out, const char *name);
DFGNN_API dfgnn_status dfgnn_effort_parse(dfgnn_effort *out, const char *name);
DFGNN_API dfgnn_status dfgnn_edge_use_parse(dfgnn_edge_use *out,
                                            const char *name);
DFGNN_API dfgnn_status dfgnn_message_parse(dfgnn_message *out,
                                           const char *name);
DFGNN_API dfgnn_status dfgnn_order_parse(dfgnn_order *out, const char *name);
DFGNN_API dfgnn_status dfgnn_partitioning_parse(dfgnn_partitioning *out,
                                                const char *name);

/* dfgnn_graph_create_csr() and dfgnn_graph_create_reordered() on csr.stream */
DFGNN_API dfgnn_status dfgnn_graph_create(dfgnn_graph **graph,
                                          dfgnn_context *ctx,
                                          const dfgnn_csr *csr);
DFGNN_API dfgnn_status dfgnn_graph_reorder(dfgnn_graph **graph,
                                           dfgnn_context *ctx,
                                           const dfgnn_csr *csr,
                                           const dfgnn_reordering *how);

#ifdef __cplusplus
}
#endif
#endif
