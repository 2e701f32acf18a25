/* gpu.h - memory, streams, contexts and the runner of the tests on a GPU, which
 * are skipped where there is none */
#ifndef DFGNN_TESTS_GPU_H
#define DFGNN_TESTS_GPU_H

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

static inline void give_back(void *memory) {
  ck_cu(MemFree, cu_address(memory));
}

/* Memory of the device, which the test owns. */
static inline void *device_memory(size_t bytes) {
  cu_pointer memory = 0;
  ck_cu(MemAlloc, &memory, bytes ? bytes : 1);
  return test_own((void *)(uintptr_t)memory, give_back);
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

/* Leaves a test out of a quick run: compute-sanitizer slows what is timed, and
 * reports calls that are refused. */
#define NOT_QUICK                                                              \
  if (quick())                                                                 \
  return

/* N of DFGNN_TEST_FEW=N, else 1: tests take one variant of N, and small graphs
 * if N is above 1, for the emulator. */
static inline int few(void) {
  const char *value = getenv("DFGNN_TEST_FEW");
  int n = value ? atoi(value) : 1;
  return n > 1 ? n : 1;
}

/* DFGNN_TEST_PART=i/n takes every n-th test from the i-th, for several
 * processes side by side. */
static int parts_taken;
static inline int in_part(int number) {
  const char *value = getenv("DFGNN_TEST_PART");
  int part = 0, parts = 1;
  if (value && (sscanf(value, "%d/%d", &part, &parts) != 2 || parts < 1)) {
    fprintf(stderr, "DFGNN_TEST_PART is %s, expected i/n\n", value);
    exit(EXIT_FAILURE);
  }
  const int taken = number % parts == part % parts;
  parts_taken += taken;
  return taken;
}

static inline dfgnn_context *gpu_context(void) {
  return context_on("cuda", "", 0);
}

static inline dfgnn_graph *graph_of(dfgnn_context *ctx, const char *spec) {
  return graph_on(ctx, generated(spec));
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
static inline int run_on_gpu(const char *name) {
  char why[512];
  if (dfgnn__backend_cuda.device_count() == 0) {
    fprintf(stderr, "skipped: no CUDA device\n");
    return SKIPPED;
  }
  if (!dfgnn__engine_usable(why, sizeof why)) {
    fprintf(stderr, "skipped: %s\n", why);
    return SKIPPED;
  }
  if (!use_first_device()) {
    fprintf(stderr, "the first device gives no context\n");
    return EXIT_FAILURE;
  }
  SRunner *runner = srunner_create(suite_of(&(test_case){.name = name}));
  srunner_set_fork_status(runner, CK_NOFORK);
  int result = run_all(runner);
  if (getenv("DFGNN_TEST_PART") && !parts_taken) {
    fprintf(stderr, "DFGNN_TEST_PART=%s has no test\n",
            getenv("DFGNN_TEST_PART"));
    return EXIT_FAILURE;
  }
  return result;
}

#define GPU_MAIN(name)                                                         \
  int main(void) { return run_on_gpu(name); }

#endif
