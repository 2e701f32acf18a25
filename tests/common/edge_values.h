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
} edge_case;

typedef struct edge_test {
  const edge_case *c;
  dfgnn_pass pass;
  dfgnn_dtype dtype;
} edge_test;

enum {
  EDGE_CASES = 7,
  EDGE_TESTS = EDGE_CASES * (int)DFGNN_PASS_COUNT * (int)DFGNN_DTYPE_COUNT
};

/* The i-th test, storage types varying fastest. */
edge_test edge_test_make(int i);

/* Asserts that variants agree with the reference where features of one edge, W,
 * or nodes without edges are NaN or infinite, and where edges are masked.
 * Returns the number of checks. */
int check_edge_values(const char *device, const edge_test *test);

/* Asserts that variants agree with the reference on a row, and on a column, of
 * `degree` edges.  Returns the number of checks. */
int check_edge_hubs(const char *device, const edge_test *test, int64_t degree);

#endif
