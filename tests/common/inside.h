/* inside.h - what an inside graph computes, against the graph as it is */
#ifndef DFGNN_TESTS_INSIDE_H
#define DFGNN_TESTS_INSIDE_H

#include "dfgnn.h"

/* Operators and passes. */
#define INSIDE_CASES (DFGNN_OP_COUNT * DFGNN_PASS_COUNT)

/* Asserts that case i gives the same on a graph reordered inside and on csr.
 * Returns 0 if the library or the device has no such case. */
int inside_matches(dfgnn_context *ctx, const dfgnn_csr *csr, dfgnn_order order,
                   int keep_columns, int i, dfgnn_dtype dtype);

#endif
