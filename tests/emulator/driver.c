/* driver.c - devices, contexts, memory and modules of the emulated driver */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "memory.h"
#include "stream.h"

enum { MOST_DEVICES = 8, CONTEXT_DEPTH = 16, FREE_SHARED = 48 << 10 };

/* ---- errors -------------------------------------------------------------- */

static const struct {
  int error;
  const char *name, *text;
} errors[] = {
    {0, "CUDA_SUCCESS", "no error"},
    {ERROR_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {ERROR_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {101, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {ERROR_BAD_IMAGE, "CUDA_ERROR_INVALID_IMAGE",
     "device kernel image is invalid"},
    {ERROR_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {ERROR_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {700, "CUDA_ERROR_ILLEGAL_ADDRESS",
     "an illegal memory access was encountered"},
    {719, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {801, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {ERROR_UNSUPPORTED_IN_CAPTURE, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
     "operation not permitted when stream is capturing"},
    {ERROR_CAPTURE_INVALIDATED, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
     "operation failed due to a previous error during capture"},
    {ERROR_CAPTURE_UNMATCHED, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED",
     "unmatched capture"},
    {ERROR_CAPTURE_IMPLICIT, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT",
     "operation would make the legacy stream depend on a capturing blocking "
     "stream"},
    {ERROR_WRONG_THREAD, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD",
     "capture ended by another thread than began it"},
};
enum { ERRORS = sizeof errors / sizeof *errors };

cu_result cuGetErrorString(cu_result error, const char **text) {
  for (int i = 0; i < ERRORS; i++)
    if (errors[i].error == error) {
      *text = errors[i].text;
      return 0;
    }
  *text = NULL;
  return ERROR_VALUE;
}

cu_result cuGetErrorName(cu_result error, const char **text) {
  for (int i = 0; i < ERRORS; i++)
    if (errors[i].error == error) {
      *text = errors[i].name;
      return 0;
    }
  *text = NULL;
  return ERROR_VALUE;
}

/* ---- devices ------------------------------------------------------------- */

static int device_count(void) {
  const char *text = getenv("DFGNN_EMULATOR_DEVICES");
  int count = text ? atoi(text) : 1;
  return count < 0 || count > MOST_DEVICES ? 1 : count;
}

cu_result cuInit(unsigned flags) {
  (void)flags;
  return device_count() ? 0 : CU_ERROR_NO_DEVICE;
}

cu_result cuDriverGetVersion(int *version) {
  *version = 13000;
  return 0;
}

cu_result cuDeviceGetCount(int *count) {
  *count = device_count();
  return 0;
}

cu_result cuDeviceGet(int *device, int ordinal) {
  if (ordinal < 0 || ordinal >= device_count())
    return 101;
  *device = ordinal;
  return 0;
}

cu_result cuDeviceGetName(char *name, int size, int device) {
  (void)device;
  snprintf(name, (size_t)size, "Emulated H200");
  return 0;
}

cu_result cuDeviceGetPCIBusId(char *id, int size, int device) {
  snprintf(id, (size_t)size, "0000:%02x:00.0", device + 1);
  return 0;
}

cu_result cuDeviceTotalMem_v2(size_t *bytes, int device) {
  (void)device;
  *bytes = (size_t)8 << 30;
  return 0;
}

static int number_of(const char *variable, int otherwise) {
  const char *text = getenv(variable);
  return text && atoi(text) > 0 ? atoi(text) : otherwise;
}

/* The attributes are an H200's, except for fewer units, as 132 would only make
 * larger grids, and a smaller L2 cache. */
cu_result cuDeviceGetAttribute(int *value, int attribute, int device) {
  (void)device;
  switch (attribute) {
  case CU_UNITS:
    *value = number_of("DFGNN_EMULATOR_UNITS", 8);
    return 0;
  case CU_L2_BYTES:
    *value = 4 << 20;
    return 0;
  case CU_CAPABILITY_MAJOR:
    *value = number_of("DFGNN_EMULATOR_ARCH", 90) / 10;
    return 0;
  case CU_CAPABILITY_MINOR:
    *value = number_of("DFGNN_EMULATOR_ARCH", 90) % 10;
    return 0;
  case CU_SHARED_BYTES_OPT_IN:
    *value = EMULATED_MOST_SHARED;
    return 0;
  case CU_POOLS_SUPPORTED:
    *value = 1;
    return 0;
  default:
    return ERROR_VALUE;
  }
}

/* ---- contexts ------------------------------------------------------------ */

static struct cu_context_st { int device; } contexts[MOST_DEVICES];
static __thread cu_context stack[CONTEXT_DEPTH];
static __thread int depth;

static cu_context current(void) { return depth ? stack[depth - 1] : NULL; }

cu_result emulated_needs_context(void) { return current() ? 0 : ERROR_CONTEXT; }

cu_result cuDevicePrimaryCtxRetain(cu_context *context, int device) {
  *context = &contexts[device];
  return 0;
}

cu_result cuDevicePrimaryCtxRelease_v2(int device) {
  (void)device;
  return 0;
}

cu_result cuCtxGetCurrent(cu_context *context) {
  *context = current();
  return 0;
}

cu_result cuCtxPushCurrent_v2(cu_context context) {
  if (depth == CONTEXT_DEPTH)
    return ERROR_VALUE;
  stack[depth++] = context;
  return 0;
}

cu_result cuCtxPopCurrent_v2(cu_context *context) {
  if (!depth)
    return ERROR_CONTEXT;
  *context = stack[--depth];
  return 0;
}

cu_result cuCtxSetCurrent(cu_context context) {
  if (depth)
    depth--;
  return context ? cuCtxPushCurrent_v2(context) : 0;
}

/* ---- memory -------------------------------------------------------------- */

struct cu_pool_st {
  int device;
};

static cu_result allocate(cu_pointer *memory, size_t bytes) {
  void *made = bytes ? emulated_allocate(bytes) : NULL;
  if (!made)
    return bytes ? ERROR_MEMORY : ERROR_VALUE;
  *memory = (cu_pointer)(uintptr_t)made;
  return 0;
}

cu_result cuMemAlloc_v2(cu_pointer *memory, size_t bytes) {
  cu_result error = emulated_forbidden();
  if (!error && bytes > (size_t)8 << 30)
    error = ERROR_MEMORY;
  return error ? error : allocate(memory, bytes);
}

cu_result cuMemFree_v2(cu_pointer memory) {
  cu_result error = emulated_forbidden();
  if (error || !memory)
    return error;
  return emulated_free(memory) ? 0 : ERROR_VALUE;
}

cu_result cuMemGetInfo_v2(size_t *available, size_t *total) {
  *total = (size_t)8 << 30;
  *available = *total - emulated_allocated();
  return emulated_needs_context();
}

cu_result cuMemAllocHost_v2(void **memory, size_t bytes) {
  cu_result error = emulated_forbidden();
  *memory = error ? NULL : malloc(bytes ? bytes : 1);
  return error ? error : *memory ? 0 : ERROR_MEMORY;
}

cu_result cuMemFreeHost(void *memory) {
  free(memory);
  return 0;
}

cu_result cuMemPoolCreate(cu_pool *pool, const cu_pool_properties *properties) {
  *pool = calloc(1, sizeof **pool);
  if (!*pool)
    return ERROR_MEMORY;
  (*pool)->device = properties->location.id;
  return 0;
}

cu_result cuMemPoolDestroy(cu_pool pool) {
  free(pool);
  return 0;
}

cu_result cuMemPoolSetAttribute(cu_pool pool, int attribute, void *value) {
  (void)pool, (void)attribute, (void)value;
  return 0;
}

cu_result cuMemPoolTrimTo(cu_pool pool, size_t bytes) {
  (void)pool, (void)bytes;
  return 0;
}

cu_result cuMemAllocFromPoolAsync(cu_pointer *memory, size_t bytes,
                                  cu_pool pool, cu_stream stream) {
  int capturing = 0;
  cu_result error = cuStreamIsCapturing(stream, &capturing);
  if (error || capturing)
    return error ? error : ERROR_UNSUPPORTED_IN_CAPTURE;
  return pool && bytes <= (size_t)8 << 30 ? allocate(memory, bytes)
                                          : ERROR_MEMORY;
}

cu_result cuMemFreeAsync(cu_pointer memory, cu_stream stream) {
  int capturing = 0;
  cu_result error = cuStreamIsCapturing(stream, &capturing);
  if (error || capturing)
    return error ? error : ERROR_UNSUPPORTED_IN_CAPTURE;
  return emulated_free(memory) ? 0 : ERROR_VALUE;
}

static cu_result do_copy(cu_pointer to, cu_pointer from, size_t bytes,
                         cu_stream stream) {
  static __thread graph_step step;
  step =
      (graph_step){.kind = STEP_COPY, .to = to, .from = from, .bytes = bytes};
  return emulated_do(stream, &step);
}

cu_result cuMemcpy(cu_pointer to, cu_pointer from, size_t bytes) {
  return do_copy(to, from, bytes, NULL);
}

cu_result cuMemcpyAsync(cu_pointer to, cu_pointer from, size_t bytes,
                        cu_stream stream) {
  return do_copy(to, from, bytes, stream);
}

cu_result cuMemsetD8Async(cu_pointer to, unsigned char byte, size_t bytes,
                          cu_stream stream) {
  static __thread graph_step step;
  step =
      (graph_step){.kind = STEP_FILL, .to = to, .byte = byte, .bytes = bytes};
  return emulated_do(stream, &step);
}

/* ---- modules ------------------------------------------------------------- */

struct cu_function_st {
  const emulated_kernel *kernel;
  struct cu_module_st *module;
  int most_shared;
};
struct cu_module_st {
  void *library;
  const emulated_module *program;
  ptrdiff_t shared_at; /* from shared() to where static shared memory begins */
  size_t shared_bytes;
  struct cu_function_st functions[8];
};

/* Finds the static shared memory of a module: its thread-local variables. */
static int find_shared(struct dl_phdr_info *info, size_t size, void *data) {
  struct cu_module_st *m = data;
  const char *inside = (const char *)m->program;
  int here = 0;
  (void)size;
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const ElfW(Phdr) *p = &info->dlpi_phdr[i];
    const char *begin = (const char *)info->dlpi_addr + p->p_vaddr;
    here |=
        p->p_type == PT_LOAD && inside >= begin && inside < begin + p->p_memsz;
  }
  for (int i = 0; here && i < info->dlpi_phnum; i++)
    if (info->dlpi_phdr[i].p_type == PT_TLS) {
      m->shared_bytes = info->dlpi_phdr[i].p_memsz;
      m->shared_at = (char *)info->dlpi_tls_data - (char *)m->program->shared();
    }
  return here;
}

static size_t image_bytes(const char *image) {
  size_t bytes = 0;
  return !memcmp(image, "DFGNNEMU", 8)
             ? (memcpy(&bytes, image + 8, sizeof bytes), bytes)
             : 0;
}

/* The loader wants a file with a name that no other module has had. */
static void *open_image(const char *image, size_t bytes) {
  const char *parent = getenv("TMPDIR");
  char path[512];
  void *library = NULL;
  snprintf(path, sizeof path, "%s/dfgnn-emulator-XXXXXX",
           parent && *parent ? parent : "/tmp");
  int file = mkstemp(path);
  if (file < 0)
    return NULL;
  if (write(file, image, bytes) == (ssize_t)bytes)
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library)
    fprintf(stderr, "emulator: %s\n", dlerror());
  (void)unlink(path);
  close(file);
  return library;
}

cu_result cuModuleLoadDataEx(cu_module *module, const void *image,
                             unsigned options, int *option, void **value) {
  (void)options, (void)option, (void)value;
  cu_result error = emulated_forbidden();
  size_t bytes = image_bytes(image);
  cu_module made = error || !bytes ? NULL : calloc(1, sizeof *made);
  if (!made)
    return error ? error : ERROR_BAD_IMAGE;
  made->library = open_image((const char *)image + 16, bytes);
  if (made->library)
    made->program = dlsym(made->library, EMULATED_MODULE);
  if (!made->program || made->program->version != EMULATED_VERSION ||
      made->program->count > 8) {
    if (made->library)
      dlclose(made->library);
    free(made);
    return ERROR_BAD_IMAGE;
  }
  (void)made->program->shared(); /* makes this thread's variables */
  (void)dl_iterate_phdr(find_shared, made);
  for (int i = 0; i < made->program->count; i++)
    made->functions[i] = (struct cu_function_st){
        .kernel = &made->program->kernels[i],
        .module = made,
        .most_shared = FREE_SHARED - (int)made->shared_bytes};
  *module = made;
  return 0;
}

cu_result cuModuleUnload(cu_module module) {
  cu_result error = emulated_forbidden();
  if (error)
    return error;
  dlclose(module->library);
  free(module);
  return 0;
}

cu_result cuModuleGetFunction(cu_function *function, cu_module module,
                              const char *name) {
  for (int i = 0; i < module->program->count; i++)
    if (!strcmp(module->program->kernels[i].symbol, name)) {
      *function = &module->functions[i];
      return 0;
    }
  return ERROR_NOT_FOUND;
}

cu_result cuFuncGetAttribute(int *value, int attribute, cu_function function) {
  switch (attribute) {
  case CU_FUNCTION_SHARED_BYTES:
    *value = (int)function->module->shared_bytes;
    return 0;
  case CU_FUNCTION_LOCAL_BYTES:
    *value = 0;
    return 0;
  case CU_FUNCTION_REGISTERS:
    *value = 64;
    return 0;
  case CU_FUNCTION_MAX_SHARED:
    *value = function->most_shared;
    return 0;
  default:
    return ERROR_VALUE;
  }
}

cu_result cuFuncSetAttribute(cu_function function, int attribute, int value) {
  int most = EMULATED_MOST_SHARED - (int)function->module->shared_bytes;
  if (attribute == CU_FUNCTION_CARVEOUT)
    return value >= -1 && value <= 100 ? 0 : ERROR_VALUE;
  if (attribute != CU_FUNCTION_MAX_SHARED || value < 0 || value > most)
    return ERROR_VALUE;
  function->most_shared = value;
  return 0;
}

static int grid_is_possible(const emulated_launch *l, int most_shared) {
  const emulated_index *b = &l->blocks, *t = &l->threads;
  unsigned long threads = (unsigned long)t->x * t->y * t->z;
  return threads >= 1 && threads <= EMULATED_MOST_THREADS && t->z <= 64 &&
         b->x >= 1 && b->x <= 0x7fffffff && b->y >= 1 && b->y <= 65535 &&
         b->z >= 1 && b->z <= 65535 &&
         l->dynamic_bytes <= (size_t)(most_shared > 0 ? most_shared : 0);
}

cu_result cuLaunchKernel(cu_function f, unsigned grid_x, unsigned grid_y,
                         unsigned grid_z, unsigned block_x, unsigned block_y,
                         unsigned block_z, unsigned shared, cu_stream stream,
                         void **arguments, void **extra) {
  static __thread graph_step step;
  const emulated_kernel *k = f->kernel;
  size_t at = 0;
  step.kind = STEP_LAUNCH;
  step.launch = (emulated_launch){.module = f->module->program,
                                  .kernel = k,
                                  .blocks = {grid_x, grid_y, grid_z},
                                  .threads = {block_x, block_y, block_z},
                                  .fixed_at = f->module->shared_at,
                                  .fixed_bytes = f->module->shared_bytes,
                                  .dynamic_bytes = shared};
  if (extra || !grid_is_possible(&step.launch, f->most_shared))
    return ERROR_VALUE;
  for (int i = 0; i < k->count; i++) {
    at = (at + 15) & ~(size_t)15;
    if (at + k->bytes[i] > sizeof step.values)
      return ERROR_VALUE;
    memcpy(step.values + at, arguments[i], k->bytes[i]);
    step.offsets[i] = at;
    at += k->bytes[i];
  }
  return emulated_do(stream, &step);
}
