/* backend_cuda_memory.c - device memory in the order of streams
 *
 * Memory comes from a pool of the device's own.  What is released is kept for
 * the next graph, up to a share of the device's memory: the rest goes back to
 * the driver whenever a stream is waited for, all of it when an allocation
 * fails or the device is closed. */
#include <stdint.h>
#include <string.h>

#include "base/error.h"
#include "lib/backend_cuda.h"

enum { KEPT_SHARE = 32 };

static void forget_error(cudaError_t error) {
  if (error != cudaSuccess)
    (void)cudaGetLastError();
}

/* Without a pool cudaMalloc and cudaFree do, which wait for the device. */
static void make_pool(dfgnn_device *device) {
  struct cudaMemPoolProps properties;
  size_t available = 0, total = 0;
  int supported = 0, no = 0;
  cudaMemPool_t pool = NULL;
  cudaError_t error = cudaDeviceGetAttribute(
      &supported, cudaDevAttrMemoryPoolsSupported, device->ordinal);
  if (error == cudaSuccess && !supported)
    return;
  memset(&properties, 0, sizeof properties);
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location.type = cudaMemLocationTypeDevice;
  properties.location.id = device->ordinal;
  if (error == cudaSuccess)
    error = cudaMemGetInfo(&available, &total);
  if (error == cudaSuccess)
    error = cudaMemPoolCreate(&pool, &properties);
  uint64_t kept = total / KEPT_SHARE;
  if (error == cudaSuccess)
    error =
        cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &kept);
  /* A new graph must not wait for the work of an old one. */
  if (error == cudaSuccess)
    error = cudaMemPoolSetAttribute(
        pool, cudaMemPoolReuseAllowInternalDependencies, &no);
  if (error == cudaSuccess)
    device->pool = pool;
  else if (pool)
    (void)cudaMemPoolDestroy(pool);
  forget_error(error);
}

dfgnn_status dfgnn__cuda_open_memory(dfgnn_device *device) {
  dfgnn_status status = DFGNN_OK;
  make_pool(device);
  DFGNN_CUDA_GO(cudaMallocHost(&device->answer, DFGNN_ANSWER_BYTES));
  DFGNN_CUDA_GO(
      cudaEventCreateWithFlags(&device->order, cudaEventDisableTiming));
out:
  return status;
}

void dfgnn__cuda_close_memory(dfgnn_device *device) {
  (void)cudaDeviceSynchronize();
  if (device->order)
    (void)cudaEventDestroy(device->order);
  if (device->answer)
    (void)cudaFreeHost(device->answer);
  if (device->pool)
    (void)cudaMemPoolDestroy(device->pool);
}

static cudaError_t take(dfgnn_device *device, void **memory, size_t bytes) {
  if (!device->pool)
    return cudaMalloc(memory, bytes);
  cudaError_t error =
      cudaMallocFromPoolAsync(memory, bytes, device->pool, device->stream);
  if (error != cudaErrorMemoryAllocation)
    return error;
  (void)cudaGetLastError();
  (void)cudaStreamSynchronize(device->stream);
  (void)cudaMemPoolTrimTo(device->pool, 0);
  return cudaMallocFromPoolAsync(memory, bytes, device->pool, device->stream);
}

dfgnn_status dfgnn__cuda_take(dfgnn_device *device, void **memory,
                              size_t bytes) {
  void *made = NULL;
  int previous = dfgnn__cuda_enter(device);
  cudaError_t error = take(device, &made, bytes ? bytes : 1);
  dfgnn__cuda_leave(previous);
  if (error != cudaSuccess) {
    (void)cudaGetLastError();
    return dfgnn__fail(error == cudaErrorMemoryAllocation ? DFGNN_ERROR_MEMORY
                                                          : DFGNN_ERROR_DEVICE,
                       "cudaMalloc: cannot allocate %zu bytes on CUDA device "
                       "%d: %s",
                       bytes, device->ordinal, cudaGetErrorString(error));
  }
  *memory = made;
  return DFGNN_OK;
}

dfgnn_status dfgnn__cuda_allocate(dfgnn_device *device, void **memory,
                                  size_t bytes) {
  void *made = NULL;
  int previous = dfgnn__cuda_enter(device);
  dfgnn_status status = dfgnn__cuda_take(device, &made, bytes);
  if (!status && device->pool)
    DFGNN_CUDA_GO(cudaStreamSynchronize(device->stream));
out:
  dfgnn__cuda_leave(previous);
  if (status)
    dfgnn__cuda_drop(device, made);
  else
    *memory = made;
  return status;
}

static void free_on(dfgnn_device *device, void *memory, cudaStream_t stream) {
  cudaError_t error = cudaErrorNotSupported;
  if (!memory)
    return;
  int previous = dfgnn__cuda_enter(device);
  if (device->pool) {
    error = cudaFreeAsync(memory, stream);
    forget_error(error);
  }
  if (error != cudaSuccess)
    forget_error(cudaFree(memory)); /* waits for the device */
  dfgnn__cuda_leave(previous);
}

void dfgnn__cuda_drop(dfgnn_device *device, void *memory) {
  free_on(device, memory, device->stream);
}

void dfgnn__cuda_release(dfgnn_device *device, void *memory) {
  free_on(device, memory, NULL);
}

void dfgnn__cuda_retire(dfgnn_device *device, void *memory, void *stream) {
  free_on(device, memory, (cudaStream_t)stream);
}

void dfgnn__cuda_settle(dfgnn_device *device) {
  int previous = dfgnn__cuda_enter(device);
  forget_error(cudaDeviceSynchronize());
  dfgnn__cuda_leave(previous);
}

dfgnn_status dfgnn__cuda_follow(dfgnn_device *device, void *stream) {
  dfgnn_status status = DFGNN_OK;
  pthread_mutex_lock(&device->answer_lock);
  DFGNN_CUDA_GO(cudaEventRecord(device->order, (cudaStream_t)stream));
  DFGNN_CUDA_GO(cudaStreamWaitEvent(device->stream, device->order, 0));
out:
  pthread_mutex_unlock(&device->answer_lock);
  return status;
}

dfgnn_status dfgnn__cuda_answer(dfgnn_device *device, void *to,
                                const void *from, size_t bytes) {
  dfgnn_status status = DFGNN_OK;
  pthread_mutex_lock(&device->answer_lock);
  DFGNN_CUDA_GO(cudaMemcpyAsync(device->answer, from, bytes,
                                cudaMemcpyDeviceToHost, device->stream));
  DFGNN_CUDA_GO(cudaStreamSynchronize(device->stream));
  memcpy(to, device->answer, bytes);
out:
  pthread_mutex_unlock(&device->answer_lock);
  return status;
}
