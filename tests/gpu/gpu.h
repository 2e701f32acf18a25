/* gpu.h - memory, streams, contexts and the runner of the tests on a GPU, which
 * are skipped where there is none */
#ifndef DFGNN_TESTS_GPU_H
#define DFGNN_TESTS_GPU_H

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dfgnn.h"
#include "dfgnn_graph.h"
#include "kernels/engine/driver.h"
#include "lib/graph.h"
#include "lib/plan.h"
#include "lib/registry.h"
#include "tests/unit/fixture.h"
#include "tuner/harness.h"

enum { SKIPPED = 77 };

/* Calls a function of the CUDA driver and fails the test if the call fails:
 * ck_cu(StreamSynchronize, stream). */
#define ck_cu(function, ...)                                                   \
  do {                                                                         \
    cu_result ck_error = dfgnn__driver()->function(__VA_ARGS__);               \
    const char *ck_text = NULL;                                                \
    if (ck_error)                                                              \
      (void)dfgnn__driver()->GetErrorString(ck_error, &ck_text);               \
    ck_assert_msg(!ck_error, "cu" #function ": %s (error %d)",                 \
                  ck_text ? ck_text : "failed", ck_error);                     \
  } while (0)

static inline void *device_memory(size_t bytes) {
  cu_pointer memory = 0;
  ck_cu(MemAlloc, &memory, bytes ? bytes : 1);
  return (void *)(uintptr_t)memory;
}

static inline void free_device(const void *memory) {
  if (memory)
    ck_cu(MemFree, cu_address(memory));
}

/* Copies from and to host or device memory, and waits for the copy. */
static inline void copy_memory(void *to, const void *from, size_t bytes) {
  if (bytes)
    ck_cu(Memcpy, cu_address(to), cu_address(from), bytes);
}

static inline void *to_device(const void *host, size_t bytes) {
  void *device = device_memory(bytes);
  copy_memory(device, host, bytes);
  return device;
}

/* Fills device memory with a byte, and waits for that. */
static inline void fill_device(void *to, unsigned char byte, size_t bytes) {
  if (bytes)
    ck_cu(MemsetD8Async, cu_address(to), byte, bytes, NULL);
  ck_cu(CtxSynchronize);
}

static inline cu_stream make_stream(void) {
  cu_stream stream = NULL;
  ck_cu(StreamCreate, &stream, CU_STREAM_NON_BLOCKING);
  return stream;
}

/* Whether DFGNN_TEST_QUICK is set: the tests then do little enough to run under
 * compute-sanitizer. */
static inline int quick(void) {
  const char *value = getenv("DFGNN_TEST_QUICK");
  return value && *value && strcmp(value, "0");
}

/* N of DFGNN_TEST_FEW=N, else 1: tests take one variant of N, and small graphs
 * if N is above 1, for the emulator. */
static inline int few(void) {
  const char *value = getenv("DFGNN_TEST_FEW");
  int n = value ? atoi(value) : 1;
  return n > 1 ? n : 1;
}

/* DFGNN_TEST_PART=i/n takes every n-th test from the i-th, for several
 * processes side by side. */
static inline int in_part(int number) {
  const char *value = getenv("DFGNN_TEST_PART");
  int part = 0, parts = 1;
  if (value && (sscanf(value, "%d/%d", &part, &parts) != 2 || parts < 1)) {
    fprintf(stderr, "DFGNN_TEST_PART is %s, expected i/n\n", value);
    exit(EXIT_FAILURE);
  }
  return number % parts == part % parts;
}

static inline dfgnn_context *gpu_context(void) {
  return context_on("cuda", "", 0);
}

static inline dfgnn_graph *graph_of(dfgnn_context *ctx, const char *spec) {
  dfgnn_csr *csr = NULL;
  dfgnn_graph *graph = NULL;
  ck_ok(dfgnn_csr_generate(&csr, spec));
  ck_ok(dfgnn_graph_create_csr(&graph, ctx, csr, NULL));
  dfgnn_csr_free(csr);
  return graph;
}

static inline void same_array(dfgnn_context *gpu, const void *found,
                              const void *expected, size_t bytes,
                              const char *label, int slot) {
  char *host = malloc(bytes + 1);
  ck_ok(gpu->backend->copy(gpu->device, host, found, bytes));
  ck_assert_msg(!memcmp(host, expected, bytes), "%s: array %d differs", label,
                slot);
  free(host);
}

/* Makes the primary context of the first device current for the calls of the
 * tests.  Returns 0 if a call fails, which Check cannot report: no test runs
 * yet. */
static inline int use_first_device(void) {
  const dfgnn_driver *cu = dfgnn__driver();
  cu_context context = NULL;
  int device = 0;
  return !cu->DeviceGet(&device, 0) &&
         !cu->DevicePrimaryCtxRetain(&context, device) &&
         !cu->CtxPushCurrent(context);
}

/* CUDA does not survive a fork, so all tests run in this process. */
static inline int run_on_gpu(Suite *suite) {
  SRunner *runner = srunner_create(suite);
  int result = SKIPPED;
  char why[512];
  if (dfgnn__backend_cuda.device_count() == 0) {
    fprintf(stderr, "skipped: no CUDA device\n");
  } else if (!dfgnn__engine_usable(why, sizeof why)) {
    fprintf(stderr, "skipped: %s\n", why);
  } else if (!use_first_device()) {
    fprintf(stderr, "the first device gives no context\n");
    result = EXIT_FAILURE;
  } else {
    srunner_set_fork_status(runner, CK_NOFORK);
    return run_all(runner);
  }
  srunner_free(runner);
  return result;
}

#endif
