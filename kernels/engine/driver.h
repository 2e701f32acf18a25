/* driver.h - the CUDA driver (libcuda.so.1), opened at run time
 *
 * Our own small declarations of what the driver's manual says, so that building
 * needs no CUDA header.  A function is called without its "cu" prefix:
 * dfgnn__driver()->StreamSynchronize(stream).  Streams are those of the runtime
 * and of torch: the same handles. */
#ifndef DFGNN_ENGINE_DRIVER_H
#define DFGNN_ENGINE_DRIVER_H

#include <stddef.h>
#include <stdint.h>

#include "dfgnn.h"

typedef int cu_result; /* 0: success */
typedef struct cu_context_st *cu_context;
typedef struct cu_stream_st *cu_stream;
typedef struct cu_event_st *cu_event;
typedef struct cu_module_st *cu_module;
typedef struct cu_function_st *cu_function;
typedef struct cu_graph_st *cu_graph;
typedef struct cu_graph_exec_st *cu_graph_exec;
typedef struct cu_pool_st *cu_pool;
typedef uint64_t cu_pointer; /* device memory, or unified host memory */

static inline cu_pointer cu_address(const void *p) {
  return (cu_pointer)(uintptr_t)p;
}

typedef struct cu_pool_properties {
  int type;         /* CU_PINNED */
  int handle_types; /* 0 */
  struct {
    int type; /* CU_ON_DEVICE */
    int id;
  } location;
  void *security;
  size_t max_bytes;
  unsigned short usage;
  unsigned char reserved[54];
} cu_pool_properties;

/* Values of the driver's enumerations. */
enum {
  CU_ERROR_MEMORY = 2,
  CU_ERROR_NO_DEVICE = 100,
  CU_ERROR_NO_BINARY = 209,
  CU_ERROR_NOT_SUPPORTED = 801,
  CU_ERROR_CAPTURE_IMPLICIT = 906,

  CU_UNITS = 16,
  CU_L2_BYTES = 38,
  CU_CAPABILITY_MAJOR = 75,
  CU_CAPABILITY_MINOR = 76,
  CU_SHARED_BYTES_OPT_IN = 97,
  CU_POOLS_SUPPORTED = 115,

  CU_FUNCTION_SHARED_BYTES = 1,
  CU_FUNCTION_LOCAL_BYTES = 3,
  CU_FUNCTION_REGISTERS = 4,
  CU_FUNCTION_MAX_SHARED = 8, /* dynamic */
  CU_FUNCTION_CARVEOUT = 9,   /* percent of shared memory */

  CU_LAUNCH_OVERLAPPED = 6,   /* programmatic stream serialization */
  CU_OVERLAP_VERSION = 12030, /* the first whose graphs capture that */

  CU_STREAM_NON_BLOCKING = 1,
  CU_EVENT_NO_TIMING = 2,
  CU_CAPTURE_GLOBAL = 0,
  CU_CAPTURE_THREAD_LOCAL = 1,
  CU_CAPTURE_RELAXED = 2,

  CU_PINNED = 1,
  CU_ON_DEVICE = 1,
  CU_POOL_REUSE_INTERNAL = 3, /* int */
  CU_POOL_KEEP_BYTES = 4      /* uint64_t */
};

/* CUlaunchAttribute and CUlaunchConfig */
typedef struct cu_launch_attribute {
  int id;
  int padding;
  union {
    char bytes[64];
    int value;
  };
} cu_launch_attribute;
typedef struct cu_launch_config {
  unsigned grid[3], block[3], shared;
  cu_stream stream;
  cu_launch_attribute *attributes;
  unsigned count;
} cu_launch_config;

/* F(name, symbol of the library, parameters) */
/* clang-format off */
#define DFGNN_DRIVER_FUNCTIONS(F) \
  F(Init, cuInit, (unsigned flags)) \
  F(DriverGetVersion, cuDriverGetVersion, (int *version)) \
  F(GetErrorName, cuGetErrorName, (cu_result error, const char **text)) \
  F(GetErrorString, cuGetErrorString, (cu_result error, const char **text)) \
  F(DeviceGetCount, cuDeviceGetCount, (int *count)) \
  F(DeviceGet, cuDeviceGet, (int *device, int ordinal)) \
  F(DeviceGetName, cuDeviceGetName, (char *name, int size, int device)) \
  F(DeviceGetAttribute, cuDeviceGetAttribute, (int *value, int what, int device)) \
  F(DeviceTotalMem, cuDeviceTotalMem_v2, (size_t *bytes, int device)) \
  F(DeviceGetPCIBusId, cuDeviceGetPCIBusId, (char *id, int size, int device)) \
  F(DevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, (cu_context *context, int device)) \
  F(DevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, (int device)) \
  F(CtxGetCurrent, cuCtxGetCurrent, (cu_context *context)) \
  F(CtxSetCurrent, cuCtxSetCurrent, (cu_context context)) \
  F(CtxPushCurrent, cuCtxPushCurrent_v2, (cu_context context)) \
  F(CtxPopCurrent, cuCtxPopCurrent_v2, (cu_context *context)) \
  F(CtxSynchronize, cuCtxSynchronize, (void)) \
  F(MemAlloc, cuMemAlloc_v2, (cu_pointer *memory, size_t bytes)) \
  F(MemFree, cuMemFree_v2, (cu_pointer memory)) \
  F(MemGetInfo, cuMemGetInfo_v2, (size_t *available, size_t *total)) \
  F(MemAllocHost, cuMemAllocHost_v2, (void **memory, size_t bytes)) \
  F(MemFreeHost, cuMemFreeHost, (void *memory)) \
  F(MemAllocFromPoolAsync, cuMemAllocFromPoolAsync, (cu_pointer *memory, size_t bytes, cu_pool pool, cu_stream stream)) \
  F(MemFreeAsync, cuMemFreeAsync, (cu_pointer memory, cu_stream stream)) \
  F(MemPoolCreate, cuMemPoolCreate, (cu_pool *pool, const cu_pool_properties *properties)) \
  F(MemPoolDestroy, cuMemPoolDestroy, (cu_pool pool)) \
  F(MemPoolSetAttribute, cuMemPoolSetAttribute, (cu_pool pool, int what, void *value)) \
  F(MemPoolTrimTo, cuMemPoolTrimTo, (cu_pool pool, size_t bytes)) \
  F(Memcpy, cuMemcpy, (cu_pointer to, cu_pointer from, size_t bytes)) \
  F(MemcpyAsync, cuMemcpyAsync, (cu_pointer to, cu_pointer from, size_t bytes, cu_stream stream)) \
  F(MemsetD8Async, cuMemsetD8Async, (cu_pointer to, unsigned char byte, size_t bytes, cu_stream stream)) \
  F(StreamCreate, cuStreamCreate, (cu_stream *stream, unsigned flags)) \
  F(StreamDestroy, cuStreamDestroy_v2, (cu_stream stream)) \
  F(StreamSynchronize, cuStreamSynchronize, (cu_stream stream)) \
  F(StreamIsCapturing, cuStreamIsCapturing, (cu_stream stream, int *capturing)) \
  F(StreamBeginCapture, cuStreamBeginCapture_v2, (cu_stream stream, int mode)) \
  F(StreamEndCapture, cuStreamEndCapture, (cu_stream stream, cu_graph *graph)) \
  F(StreamWaitEvent, cuStreamWaitEvent, (cu_stream stream, cu_event event, unsigned flags)) \
  F(ThreadExchangeStreamCaptureMode, cuThreadExchangeStreamCaptureMode, (int *mode)) \
  F(EventCreate, cuEventCreate, (cu_event *event, unsigned flags)) \
  F(EventDestroy, cuEventDestroy_v2, (cu_event event)) \
  F(EventRecord, cuEventRecord, (cu_event event, cu_stream stream)) \
  F(EventSynchronize, cuEventSynchronize, (cu_event event)) \
  F(EventElapsedTime, cuEventElapsedTime, (float *ms, cu_event begin, cu_event end)) \
  F(GraphInstantiate, cuGraphInstantiateWithFlags, (cu_graph_exec *exec, cu_graph graph, unsigned long long flags)) \
  F(GraphLaunch, cuGraphLaunch, (cu_graph_exec exec, cu_stream stream)) \
  F(GraphDestroy, cuGraphDestroy, (cu_graph graph)) \
  F(GraphExecDestroy, cuGraphExecDestroy, (cu_graph_exec exec)) \
  F(ModuleLoadDataEx, cuModuleLoadDataEx, (cu_module *module, const void *image, unsigned options, int *option, void **value)) \
  F(ModuleUnload, cuModuleUnload, (cu_module module)) \
  F(ModuleGetFunction, cuModuleGetFunction, (cu_function *function, cu_module module, const char *name)) \
  F(FuncGetAttribute, cuFuncGetAttribute, (int *value, int what, cu_function function)) \
  F(FuncSetAttribute, cuFuncSetAttribute, (cu_function function, int what, int value)) \
  F(LaunchKernel, cuLaunchKernel, (cu_function function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared, cu_stream stream, void **arguments, void **extra))
/* Functions that older drivers lack; NULL there. */
#define DFGNN_DRIVER_OPTIONAL(F) \
  F(LaunchKernelEx, cuLaunchKernelEx, (const cu_launch_config *config, cu_function function, void **arguments, void **extra))
/* clang-format on */

typedef struct dfgnn_driver {
#define F(name, symbol, parameters) cu_result(*name) parameters;
  DFGNN_DRIVER_FUNCTIONS(F)
  DFGNN_DRIVER_OPTIONAL(F)
#undef F
} dfgnn_driver;

/* The driver, opened and initialised once a process; NULL where there is none
 * or it is too old: dfgnn__driver_problem() says why. */
const dfgnn_driver *dfgnn__driver(void);
/* "libcuda.so.1: cannot open shared object file"; "" if there is a driver. */
const char *dfgnn__driver_problem(void);
/* For tests: a scripted driver in place of the machine's.  NULL: none. */
void dfgnn__driver_replace(const dfgnn_driver *driver);

/* Makes an error of the driver ours: "cuMemAlloc: out of memory". */
dfgnn_status dfgnn__driver_fail(cu_result error, const char *call);

/* status = DFGNN_OK or goto out, for functions of the driver:
 * DFGNN_CU_GO(StreamSynchronize, stream) */
#define DFGNN_CU_GO(function, ...)                                             \
  do {                                                                         \
    cu_result error_ = dfgnn__driver()->function(__VA_ARGS__);                 \
    if (error_) {                                                              \
      status = dfgnn__driver_fail(error_, "cu" #function);                     \
      goto out;                                                                \
    }                                                                          \
  } while (0)

#endif
