/* edge_values.h - promises of attention with edge features beyond those of
 * tests/common/variants.h: NaN, infinities and masks, and rows and columns of
 * very many edges */
#ifndef DFGNN_TESTS_EDGE_VALUES_H
#define DFGNN_TESTS_EDGE_VALUES_H

#include "dfgnn.h"

typedef struct edge_case {
  const char *name;
  dfgnn_op op;
  int64_t edge_dim;
  dfgnn_edge_use use;
  dfgnn_qk_norm norm;
} edge_case;

enum { EDGE_CASES = 9 };
extern const edge_case edge_cases[EDGE_CASES];

/* Variants agree with the reference where features of one edge, W, or nodes
 * without edges are NaN or infinite, and where edges are masked.  Returns how
 * many checks were made. */
int check_edge_values(const char *device, const edge_case *c, dfgnn_pass pass,
                      dfgnn_dtype dtype);

/* Variants agree with the reference on a row, and on a column, of so many
 * edges.  Returns how many checks were made. */
int check_edge_hubs(const char *device, const edge_case *c, dfgnn_pass pass,
                    dfgnn_dtype dtype, int64_t degree);

#endif
