/* backend_cuda_memory.c - device memory in the order of streams
 *
 * Memory comes from a pool of the device's own.  Released memory is kept for
 * the next graph, up to a share of the device's memory: the rest goes back to
 * the driver whenever a stream is waited for, all of it when an allocation
 * fails or the device is closed. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "lib/backend_cuda.h"
#include "lib/base/error.h"

enum { KEPT_SHARE = 32 }; /* 1/32 of the device's memory */

/* Without a pool MemAlloc and MemFree are used, which wait for the device. */
static void make_pool(dfgnn_device *device) {
  const dfgnn_driver *cu = dfgnn__driver();
  cu_pool_properties properties = {.type = CU_PINNED,
                                   .location = {CU_ON_DEVICE, device->ordinal}};
  size_t available = 0, total = 0;
  int supported = 0, no = 0;
  cu_pool pool = NULL;
  if (cu->DeviceGetAttribute(&supported, CU_POOLS_SUPPORTED, device->number) ||
      !supported || cu->MemGetInfo(&available, &total) ||
      cu->MemPoolCreate(&pool, &properties))
    return;
  uint64_t kept = total / KEPT_SHARE;
  cu_result error = cu->MemPoolSetAttribute(pool, CU_POOL_KEEP_BYTES, &kept);
  /* A new graph must not wait for the work of an old one. */
  if (!error)
    error = cu->MemPoolSetAttribute(pool, CU_POOL_REUSE_INTERNAL, &no);
  if (error)
    (void)cu->MemPoolDestroy(pool);
  else
    device->pool = pool;
}

dfgnn_status dfgnn__cuda_open_memory(dfgnn_device *device) {
  dfgnn_status status = DFGNN_OK;
  make_pool(device);
  const char *blocking = getenv("CUDA_LAUNCH_BLOCKING");
  DFGNN_CU_GO(MemAllocHost, &device->answer,
              DFGNN_ANSWER_BYTES + sizeof *device->fault);
  device->fault = (void *)((char *)device->answer + DFGNN_ANSWER_BYTES);
  memset((void *)device->fault, 0, sizeof *device->fault);
  device->waits = blocking && !strcmp(blocking, "1");
  DFGNN_CU_GO(EventCreate, &device->order, CU_EVENT_NO_TIMING);
out:
  return status;
}

void dfgnn__cuda_close_memory(dfgnn_device *device) {
  const dfgnn_driver *cu = dfgnn__driver();
  (void)cu->CtxSynchronize();
  if (device->order)
    (void)cu->EventDestroy(device->order);
  if (device->answer)
    (void)cu->MemFreeHost(device->answer);
  if (device->pool)
    (void)cu->MemPoolDestroy(device->pool);
}

static cu_result take(dfgnn_device *device, cu_pointer *memory, size_t bytes,
                      cu_stream stream) {
  const dfgnn_driver *cu = dfgnn__driver();
  if (!device->pool)
    return cu->MemAlloc(memory, bytes);
  cu_result error =
      cu->MemAllocFromPoolAsync(memory, bytes, device->pool, stream);
  if (error != CU_ERROR_MEMORY)
    return error;
  (void)cu->StreamSynchronize(stream);
  (void)cu->MemPoolTrimTo(device->pool, 0);
  return cu->MemAllocFromPoolAsync(memory, bytes, device->pool, stream);
}

dfgnn_status dfgnn__cuda_take_on(dfgnn_device *device, void **memory,
                                 size_t bytes, void *stream) {
  cu_pointer made = 0;
  const char *text = NULL;
  int entered = dfgnn__cuda_enter(device);
  cu_result error = take(device, &made, bytes ? bytes : 1, stream);
  dfgnn__cuda_leave(entered);
  if (error) {
    (void)dfgnn__driver()->GetErrorString(error, &text);
    return dfgnn__fail(error == CU_ERROR_MEMORY ? DFGNN_ERROR_MEMORY
                                                : DFGNN_ERROR_DEVICE,
                       "cannot allocate %zu bytes on CUDA device %d: %s", bytes,
                       device->ordinal, text ? text : "failed");
  }
  *memory = (void *)(uintptr_t)made;
  return DFGNN_OK;
}

dfgnn_status dfgnn__cuda_take(dfgnn_device *device, void **memory,
                              size_t bytes) {
  return dfgnn__cuda_take_on(device, memory, bytes, device->stream);
}

dfgnn_status dfgnn__cuda_allocate(dfgnn_device *device, void **memory,
                                  size_t bytes) {
  void *made = NULL;
  int entered = dfgnn__cuda_enter(device);
  dfgnn_status status = dfgnn__cuda_take(device, &made, bytes);
  if (!status && device->pool)
    DFGNN_CU_GO(StreamSynchronize, device->stream);
out:
  dfgnn__cuda_leave(entered);
  if (status)
    dfgnn__cuda_drop(device, made);
  else
    *memory = made;
  return status;
}

static void free_on(dfgnn_device *device, void *memory, cu_stream stream) {
  const dfgnn_driver *cu = dfgnn__driver();
  if (!memory)
    return;
  int entered = dfgnn__cuda_enter(device);
  if (!device->pool || cu->MemFreeAsync(cu_address(memory), stream))
    (void)cu->MemFree(cu_address(memory)); /* waits for the device */
  dfgnn__cuda_leave(entered);
}

void dfgnn__cuda_drop(dfgnn_device *device, void *memory) {
  free_on(device, memory, device->stream);
}

void dfgnn__cuda_release(dfgnn_device *device, void *memory) {
  free_on(device, memory, NULL);
}

void dfgnn__cuda_retire(dfgnn_device *device, void *memory, void *stream) {
  free_on(device, memory, stream);
}

void dfgnn__cuda_settle(dfgnn_device *device) {
  int entered = dfgnn__cuda_enter(device);
  (void)dfgnn__driver()->CtxSynchronize();
  dfgnn__cuda_leave(entered);
}

dfgnn_status dfgnn__cuda_follow(dfgnn_device *device, void *stream) {
  dfgnn_status status = DFGNN_OK;
  pthread_mutex_lock(&device->answer_lock);
  DFGNN_CU_GO(EventRecord, device->order, stream);
  DFGNN_CU_GO(StreamWaitEvent, device->stream, device->order, 0);
out:
  pthread_mutex_unlock(&device->answer_lock);
  return status;
}

dfgnn_status dfgnn__cuda_answer(dfgnn_device *device, void *to,
                                const void *from, size_t bytes) {
  return dfgnn__cuda_answer_on(device, &device->queue, to, from, bytes);
}

dfgnn_status dfgnn__cuda_answer_on(dfgnn_device *device,
                                   const dfgnn_queue *queue, void *to,
                                   const void *from, size_t bytes) {
  dfgnn_status status = DFGNN_OK;
  pthread_mutex_lock(&device->answer_lock);
  DFGNN_GO(dfgnn__read(queue, device->answer, from, bytes));
  memcpy(to, device->answer, bytes);
out:
  pthread_mutex_unlock(&device->answer_lock);
  return status;
}

dfgnn_status dfgnn__cuda_add_array(dfgnn_device *device, dfgnn_view *view,
                                   int slot, size_t bytes) {
  void *memory = NULL;
  dfgnn_status status = dfgnn__cuda_take(device, &memory, bytes);
  if (!status) {
    view->array[slot] = memory;
    view->bytes += bytes;
  }
  return status;
}
