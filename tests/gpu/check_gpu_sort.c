/* check_gpu_sort.c - sorts and scans of device memory against the host's, for
 * sizes on both sides of what a block takes */
#include "tests/gpu/gpu.h"

#include "kernels/common/device_graph.h"
#include "kernels/common/sort_params.h"

static uint32_t *keys_of(int64_t count, uint32_t below) {
  uint32_t *key = malloc((size_t)count * sizeof *key);
  uint64_t x = 88172645463325252u;
  for (int64_t i = 0; i < count; i++) {
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    key[i] = (uint32_t)(x >> 20) % below;
  }
  return key;
}

/* The positions of the keys in sorted order, from a stable counting sort on the
 * host. */
static int64_t *order_of(const uint32_t *key, int64_t count, uint32_t below) {
  int64_t *begin = calloc((size_t)below + 1, sizeof *begin);
  int64_t *order = malloc((size_t)count * sizeof *order);
  for (int64_t i = 0; i < count; i++)
    begin[key[i] + 1]++;
  for (uint32_t k = 0; k < below; k++)
    begin[k + 1] += begin[k];
  for (int64_t i = 0; i < count; i++)
    order[begin[key[i]]++] = i;
  free(begin);
  return order;
}

static void check_sort(const dfgnn_queue *queue, int64_t count, int bits,
                       int wide) {
  const uint32_t below = 1u << bits;
  const size_t bytes = (size_t)count * 4, width = wide ? 8 : 4;
  uint32_t *key = keys_of(count, below), *sorted = malloc(bytes);
  int64_t *expected = order_of(key, count, below);
  char *order = malloc((size_t)count * width);
  void *from = device_memory(bytes), *to = device_memory(bytes);
  void *number = device_memory((size_t)count * width);
  void *workspace = device_memory(dfgnn__cuda_sort_bytes(count, bits, wide));
  copy_memory(from, key, bytes);
  for (int round = 0; round < 3; round++) {
    ck_ok(dfgnn__cuda_sort(queue, from, to, number, count, bits, wide,
                           workspace));
    ck_cu(CtxSynchronize);
    copy_memory(sorted, to, bytes);
    copy_memory(order, number, (size_t)count * width);
    for (int64_t i = 0; i < count; i++) {
      const int64_t found =
          wide ? ((int64_t *)order)[i] : ((int32_t *)order)[i];
      ck_assert_msg(found == expected[i] && sorted[i] == key[expected[i]],
                    "%lld keys of %d bits, numbers of %zu bytes: place %lld "
                    "has %lld, expected %lld",
                    (long long)count, bits, width, (long long)i,
                    (long long)found, (long long)expected[i]);
    }
  }
  done(workspace);
  done(number);
  done(to);
  done(from);
  free(order);
  free(expected);
  free(sorted);
  free(key);
}

static void check_scan(const dfgnn_queue *queue, int64_t count, int max) {
  const size_t bytes = (size_t)count * 4;
  int32_t *x = malloc(bytes), *found = malloc(bytes), sum = INT32_MIN;
  void *array = device_memory(bytes);
  void *workspace = device_memory(dfgnn__cuda_scan_bytes(count));
  for (int64_t i = 0; i < count; i++)
    x[i] = max ? (int32_t)(i * 7919 % 100003 - 50000) : (int32_t)(i % 5);
  copy_memory(array, x, bytes);
  ck_ok((max ? dfgnn__cuda_scan_max : dfgnn__cuda_scan_sum)(queue, array, array,
                                                            count, workspace));
  ck_cu(CtxSynchronize);
  copy_memory(found, array, bytes);
  for (int64_t i = 0; i < count; i++) {
    sum = i == 0 ? x[0] : max ? (x[i] > sum ? x[i] : sum) : sum + x[i];
    ck_assert_msg(found[i] == sum,
                  "scan of %lld: place %lld has %d, expected %d",
                  (long long)count, (long long)i, found[i], sum);
  }
  done(workspace);
  done(array);
  free(found);
  free(x);
}

static const int64_t sizes[] = {
    1, 31, DFGNN_SORT_SMALL, DFGNN_SORT_SMALL + 1, 50000, 1600000};

IN_CASE("sort")

TEST(keys_are_sorted_stably) {
  static const int bits[] = {1, 7, 8, 9, 16, 17, 20, 25};
  dfgnn_context *gpu = gpu_context();
  const dfgnn_queue queue = {.engine = gpu->backend->engine(gpu->device)};
  for (size_t s = 0; s < sizeof sizes / sizeof *sizes - (quick() != 0); s++)
    for (size_t b = 0; b < sizeof bits / sizeof *bits; b++)
      for (int wide = 0; wide < 2; wide++)
        check_sort(&queue, sizes[s], bits[b], wide);
}

IN_CASE("scan")

TEST(arrays_are_scanned) {
  dfgnn_context *gpu = gpu_context();
  const dfgnn_queue queue = {.engine = gpu->backend->engine(gpu->device)};
  for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
    for (int max = 0; max < 2; max++) {
      check_scan(&queue, sizes[s], max);
      check_scan(&queue, DFGNN_SCAN_TILE + (int64_t)s, max);
    }
}

GPU_MAIN("gpu_sort")
