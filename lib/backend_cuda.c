/* backend_cuda.c - NVIDIA GPUs: the driver alone, opened at run time; a machine
 * without it has no device */
#include "lib/backend_cuda.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/common/device_graph.h"
#include "kernels/engine/compiler.h"
#include "lib/base/error.h"
#include "lib/signature.h"

static int device_count(void) {
  const dfgnn_driver *cu = dfgnn__driver();
  int count = 0;
  return cu && !cu->DeviceGetCount(&count) ? count : 0;
}

static dfgnn_engine *cuda_engine(dfgnn_device *device) {
  return device->engine;
}

/* A CU_ attribute of the device; 0 where the driver does not know it. */
static int attribute(const dfgnn_device *device, int which) {
  int value = 0;
  if (dfgnn__driver()->DeviceGetAttribute(&value, which, device->number))
    return 0;
  return value;
}

static void cuda_close(dfgnn_device *device) {
  const dfgnn_driver *cu = dfgnn__driver();
  if (!device)
    return;
  if (device->engine) {
    int entered = dfgnn__cuda_enter(device);
    dfgnn__nvml_close(device->nvml);
    dfgnn__cuda_close_memory(device);
    if (device->flush)
      (void)cu->MemFree(cu_address(device->flush));
    if (device->end)
      (void)cu->EventDestroy(device->end);
    if (device->begin)
      (void)cu->EventDestroy(device->begin);
    if (device->timer)
      (void)cu->StreamDestroy(device->timer);
    if (device->stream)
      (void)cu->StreamDestroy(device->stream);
    dfgnn__cuda_leave(entered);
    dfgnn__engine_close(device->engine);
  }
  pthread_mutex_destroy(&device->answer_lock);
  pthread_mutex_destroy(&device->lock);
  free(device);
}

static dfgnn_status open_inside(dfgnn_device *d) {
  dfgnn_status status = DFGNN_OK;
  char bus[32] = "";
  DFGNN_CU_GO(StreamCreate, &d->stream, CU_STREAM_NON_BLOCKING);
  DFGNN_CU_GO(StreamCreate, &d->timer, CU_STREAM_NON_BLOCKING);
  DFGNN_CU_GO(EventCreate, &d->begin, 0);
  DFGNN_CU_GO(EventCreate, &d->end, 0);
  DFGNN_GO(dfgnn__cuda_open_memory(d));
  d->queue = (dfgnn_queue){.engine = d->engine, .stream = d->stream};
  d->units = attribute(d, CU_UNITS);
  d->cache_bytes = attribute(d, CU_L2_BYTES);
  d->shared_bytes = attribute(d, CU_SHARED_BYTES_OPT_IN);
  DFGNN_CU_GO(DeviceGetPCIBusId, bus, sizeof bus, d->number);
  d->nvml = dfgnn__nvml_open(bus);
out:
  return status;
}

static dfgnn_status cuda_open(dfgnn_device **device, int ordinal, int threads) {
  char why[512];
  (void)threads;
  int count = device_count();
  if (ordinal < 0 || ordinal >= count)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "CUDA device %d does not exist, found %d device%s",
                       ordinal, count, count == 1 ? "" : "s");
  if (!dfgnn__engine_usable(why, sizeof why))
    return dfgnn__fail(DFGNN_ERROR_UNSUPPORTED, "CUDA device %d: %s", ordinal,
                       why);
  dfgnn_device *d = calloc(1, sizeof *d);
  if (!d)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  d->ordinal = ordinal;
  pthread_mutex_init(&d->lock, NULL);
  pthread_mutex_init(&d->answer_lock, NULL);
  dfgnn_status status = DFGNN_OK;
  DFGNN_CU_GO(DeviceGet, &d->number, ordinal);
  DFGNN_GO(dfgnn__engine_open(&d->engine, ordinal));
  int entered = dfgnn__cuda_enter(d);
  status = open_inside(d);
  dfgnn__cuda_leave(entered);
out:
  if (status)
    cuda_close(d);
  else
    *device = d;
  return status;
}

static void identify(const dfgnn_device *device, dfgnn_device_info *info) {
  const dfgnn_driver *cu = dfgnn__driver();
  const dfgnn_compiler_info *compiler = dfgnn__compiler();
  char name[sizeof info->model] = "";
  size_t memory = 0;
  int version = 0;
  memset(info, 0, sizeof *info);
  info->struct_size = sizeof *info;
  snprintf(info->backend, sizeof info->backend, "cuda");
  snprintf(info->arch, sizeof info->arch, "sm_%d%d",
           attribute(device, CU_CAPABILITY_MAJOR),
           attribute(device, CU_CAPABILITY_MINOR));
  info->ordinal = device->ordinal;
  info->units = device->units;
  info->cache_bytes = device->cache_bytes;
  info->shared_bytes = device->shared_bytes;
  if (!cu->DeviceGetName(name, sizeof name, device->number))
    snprintf(info->model, sizeof info->model, "%s", name);
  if (!cu->DeviceTotalMem(&memory, device->number))
    info->memory_bytes = (int64_t)memory;
  if (!cu->DriverGetVersion(&version))
    snprintf(info->driver, sizeof info->driver, "%d.%d", version / 1000,
             version % 1000 / 10);
  if (*compiler->path)
    snprintf(info->runtime, sizeof info->runtime, "%d.%d", compiler->major,
             compiler->minor);
}

static dfgnn_status copy(dfgnn_device *device, void *to, const void *from,
                         size_t bytes) {
  dfgnn_status status = DFGNN_OK;
  if (!bytes)
    return DFGNN_OK;
  int entered = dfgnn__cuda_enter(device);
  DFGNN_GO(dfgnn__cuda_follow(device, NULL));
  DFGNN_GO(dfgnn__read(&device->queue, to, from, bytes));
out:
  dfgnn__cuda_leave(entered);
  return status;
}

static dfgnn_status fill(dfgnn_device *device, void *to, int byte,
                         size_t bytes) {
  dfgnn_status status = DFGNN_OK;
  if (!bytes)
    return DFGNN_OK;
  int entered = dfgnn__cuda_enter(device);
  DFGNN_GO(dfgnn__cuda_follow(device, NULL));
  DFGNN_CU_GO(MemsetD8Async, cu_address(to), (unsigned char)byte, bytes,
              device->stream);
  DFGNN_CU_GO(StreamSynchronize, device->stream);
out:
  dfgnn__cuda_leave(entered);
  return status;
}

static dfgnn_status synchronize(dfgnn_device *device, void *stream) {
  dfgnn_status status = DFGNN_OK;
  int entered = dfgnn__cuda_enter(device);
  DFGNN_CU_GO(StreamSynchronize, stream);
out:
  dfgnn__cuda_leave(entered);
  return status;
}

static int capturing(dfgnn_device *device, void *stream) {
  int capture = 0;
  int entered = dfgnn__cuda_enter(device);
  cu_result error = dfgnn__driver()->StreamIsCapturing(stream, &capture);
  dfgnn__cuda_leave(entered);
  /* The legacy stream cannot be asked while another stream captures. */
  return error == CU_ERROR_CAPTURE_IMPLICIT || (!error && capture);
}

static dfgnn_status follow(dfgnn_device *device, void *stream) {
  int entered = dfgnn__cuda_enter(device);
  dfgnn_status status = dfgnn__cuda_follow(device, stream);
  dfgnn__cuda_leave(entered);
  return status;
}

const dfgnn_backend dfgnn__backend_cuda = {
    .name = "cuda",
    .device_count = device_count,
    .open = cuda_open,
    .close = cuda_close,
    .identify = identify,
    .engine = cuda_engine,
    .allocate = dfgnn__cuda_allocate,
    .release = dfgnn__cuda_release,
    .retire = dfgnn__cuda_retire,
    .settle = dfgnn__cuda_settle,
    .copy = copy,
    .fill = fill,
    .synchronize = synchronize,
    .capturing = capturing,
    .enter = dfgnn__cuda_enter,
    .leave = dfgnn__cuda_leave,
    .analyze = dfgnn__cuda_signature,
    .analyze_begin = dfgnn__cuda_signature_begin,
    .analyze_end = dfgnn__cuda_signature_end,
    .narrow = dfgnn__cuda_narrow_indices,
    .build_view = dfgnn__cuda_build_view,
    .sort_edges = dfgnn__cuda_sort_edge_list,
    .late_fault = dfgnn__cuda_late_fault,
    .follow = follow,
    .mark = dfgnn__cuda_mark,
    .await = dfgnn__cuda_await,
    .await_mark = dfgnn__cuda_await_mark,
    .unmark = dfgnn__cuda_unmark,
    .time = dfgnn__cuda_time,
    .load = dfgnn__cuda_load,
    .watch_create = dfgnn__cuda_watch_create,
    .watch_destroy = dfgnn__cuda_watch_destroy,
    .watch_mark = dfgnn__cuda_watch_mark,
    .watch_read = dfgnn__cuda_watch_read,
    .copy_bandwidth = dfgnn__cuda_copy_bandwidth,
};
