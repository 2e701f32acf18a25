/* gpu.h - what the tests on a GPU share; without one they are skipped */
#ifndef DFGNN_TESTS_GPU_H
#define DFGNN_TESTS_GPU_H

#include <check.h>
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dfgnn.h"
#include "lib/graph.h"
#include "lib/plan.h"
#include "lib/registry.h"
#include "tests/unit/fixture.h"
#include "tuner/harness.h"

enum { SKIPPED = 77 };

#define ck_cuda(call)                                                          \
  do {                                                                         \
    cudaError_t ck_error = (call);                                             \
    ck_assert_msg(ck_error == cudaSuccess, #call ": %s",                       \
                  cudaGetErrorString(ck_error));                               \
  } while (0)

/* DFGNN_TEST_QUICK: little enough to run under compute-sanitizer. */
static inline int quick(void) {
  const char *value = getenv("DFGNN_TEST_QUICK");
  return value && *value && strcmp(value, "0");
}

static inline dfgnn_context *gpu_context(void) {
  dfgnn_options options = DFGNN_OPTIONS_INIT;
  dfgnn_context *ctx = NULL;
  options.device = "cuda";
  options.store = "";
  ck_ok(dfgnn_context_create(&ctx, &options));
  return ctx;
}

static inline dfgnn_graph *graph_of(dfgnn_context *ctx, const char *spec) {
  dfgnn_csr *csr = NULL;
  dfgnn_graph *graph = NULL;
  ck_ok(dfgnn_csr_generate(&csr, spec));
  ck_ok(dfgnn_graph_create(&graph, ctx, csr));
  dfgnn_csr_free(csr);
  return graph;
}

/* CUDA does not survive a fork, so all tests run in this process. */
static inline int run_on_gpu(Suite *suite) {
  SRunner *runner = srunner_create(suite);
  int result = SKIPPED;
  if (dfgnn__backend_cuda.device_count() == 0) {
    fprintf(stderr, "skipped: no CUDA device\n");
  } else {
    srunner_set_fork_status(runner, CK_NOFORK);
    srunner_run_all(runner, CK_NORMAL);
    result = srunner_ntests_failed(runner) ? EXIT_FAILURE : EXIT_SUCCESS;
  }
  srunner_free(runner);
  return result;
}

#endif
