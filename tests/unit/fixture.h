/* fixture.h - contexts, graphs and fake kernels for the tests of lib */
#ifndef DFGNN_TESTS_FIXTURE_H
#define DFGNN_TESTS_FIXTURE_H

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "dfgnn.h"
#include "kernels/common/variant.h"

#define ck_ok(expression)                                                      \
  do {                                                                         \
    dfgnn_status ck_status = (expression);                                     \
    ck_assert_msg(ck_status == DFGNN_OK, #expression ": %s",                   \
                  dfgnn_last_error());                                         \
  } while (0)

/* The call fails with this status and a message that holds the text. */
#define ck_fails(expression, status, text)                                     \
  do {                                                                         \
    ck_assert_int_eq(expression, status);                                      \
    ck_assert_msg(strstr(dfgnn_last_error(), text) != NULL,                    \
                  "'%s' does not hold '%s'", dfgnn_last_error(), text);        \
  } while (0)

static inline dfgnn_context *cpu_context(const char *store) {
  dfgnn_options options = DFGNN_OPTIONS_INIT;
  dfgnn_context *ctx = NULL;
  options.device = "cpu";
  options.store = store;
  options.threads = 2;
  ck_ok(dfgnn_context_create(&ctx, &options));
  return ctx;
}

static inline dfgnn_csr csr32(int64_t n, int64_t m, const int32_t *offsets,
                              const int32_t *indices) {
  dfgnn_csr csr = DFGNN_CSR_INIT;
  csr.destinations = n;
  csr.sources = m;
  csr.edges = offsets[n];
  csr.offsets = offsets;
  csr.indices = indices;
  return csr;
}

/* A square graph whose row i has degree(i) edges to i + 1, i + 2, ... */
static inline dfgnn_csr ring(int64_t n, int (*degree)(int64_t i)) {
  int32_t *offsets = malloc(((size_t)n + 1) * sizeof *offsets);
  offsets[0] = 0;
  for (int64_t i = 0; i < n; i++)
    offsets[i + 1] = offsets[i] + degree(i);
  int32_t *indices = malloc(((size_t)offsets[n] + 1) * sizeof *indices);
  for (int64_t i = 0; i < n; i++)
    for (int32_t e = offsets[i]; e < offsets[i + 1]; e++)
      indices[e] = (int32_t)((i + 1 + e - offsets[i]) % n);
  return csr32(n, n, offsets, indices);
}

static inline void ring_free(dfgnn_csr *csr) {
  free((void *)csr->offsets);
  free((void *)csr->indices);
}

#endif
