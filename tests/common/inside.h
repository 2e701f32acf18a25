/* inside.h - results of graphs that are reordered inside, against those of the
 * same graphs in the caller's order */
#ifndef DFGNN_TESTS_INSIDE_H
#define DFGNN_TESTS_INSIDE_H

#include "dfgnn.h"
#include "dfgnn_graph.h"

/* A case is an operator and a pass. */
#define INSIDE_CASES (DFGNN_OP_COUNT * DFGNN_PASS_COUNT)

/* Asserts that case i gives the same on a graph reordered inside and on csr.
 * Returns 0 if the library or the device has no such case. */
int inside_matches(dfgnn_context *ctx, const dfgnn_csr *csr, dfgnn_order order,
                   int keep_columns, int i, dfgnn_dtype dtype);

#endif
