/* variants.h - promises that every variant of the registry has to keep
 *
 * A test is an operator, a pass and a storage type, and may have a message of
 * edges.  The checks loop over the registry, so all its variants are tested. */
#ifndef DFGNN_TESTS_VARIANTS_H
#define DFGNN_TESTS_VARIANTS_H

#include "dfgnn.h"

typedef struct variant_test {
  dfgnn_op op;
  dfgnn_pass pass;
  dfgnn_dtype dtype;
  dfgnn_message message; /* for SpMM and reductions */
  int64_t edge_dim;
  dfgnn_edge_use edge_use;
  int share,
      shares; /* the problems of `shares` tests are shared out; 0: of one */
} variant_test;

#define VARIANT_TESTS                                                          \
  ((int)DFGNN_OP_COUNT * (int)DFGNN_PASS_COUNT * (int)DFGNN_DTYPE_COUNT)

/* The i-th test, operators varying slowest. */
variant_test variant_test_make(int i);
/* The i-th test of attention with edge features, storage types varying
 * fastest. */
enum {
  EDGE_KINDS = 7,
  EDGE_TESTS = EDGE_KINDS * (int)DFGNN_PASS_COUNT * (int)DFGNN_DTYPE_COUNT
};
variant_test edge_test_make(int i);
/* The number of variants of a backend that the test checks. */
int variant_test_count(const char *backend, const variant_test *test);

/* Asserts that a backend has variants of every operator and pass: a loop over
 * tests of which none has a variant would pass. */
void check_backend_has_variants(const char *backend);

/* Every variant that applies gives the reference's results on every shape;
 * widths, heads, layouts, index widths, weights, bias and dropout take turns so
 * that each variant meets each of them.  A family of many variants shares out
 * the problems among them, as tests with shares do, unless DFGNN_TEST_FULL is
 * set; DFGNN_TEST_FEW=N takes but one variant of each family in one problem of
 * N.  Returns the number of checks; fails if a variant of the device met no
 * problem. */
int check_every_variant(const char *device, const variant_test *test);

/* The same with edge features and normalised queries and keys; returns 0 for
 * operators that have neither. */
int check_edge_features(const char *device, const variant_test *test);

/* Checks variants that take rows by slices of what a cache holds, with a cache
 * so small that there are slices. */
void check_slices(const char *device, const variant_test *test);

/* Checks NaN, infinities, zero norms and scores far below zero; in tests with
 * edge features NaN and infinities of these. */
void check_special_values(const char *device, const variant_test *test);

/* Checks that attention to equal values gives that value, as close as sums in
 * f32 do: 16-bit outputs in every bit. */
void check_equal_values(const char *device, const variant_test *test);

/* Checks rows of 2048 features in 1, 2 and 64 heads. */
void check_wide_rows(const char *device, const variant_test *test);

/* Checks rows, of sums, that are multiples of vectors of 1, 2, 4 and 8 numbers,
 * with heads that are not; some rows are cut. */
void check_vectors(const char *device, const variant_test *test);

/* Checks strides that are dense in neither layout. */
void check_strides(const char *device, const variant_test *test);

/* Two calls of a deterministic variant agree in every bit. */
void check_repeats(const char *device, const variant_test *test);

#endif
