/* engine.c - the kernels of a device: found in memory, in the cache, or
 * compiled
 */
#define _GNU_SOURCE /* sched_getaffinity */
#include "kernels/engine/engine.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "kernels/engine/cache.h"
#include "kernels/engine/internal.h"
#include "lib/base/error.h"

enum {
  FIRST_CAPACITY = 256,
  MOST_THREADS = 64,
  FREE_SHARED = 48 << 10 /* shared bytes that a block has without asking */
};

/* ---- kernels in memory ----------------------------------------------------
 */

static dfgnn_kernel *find(const dfgnn_engine *engine,
                          const dfgnn_program *program, uint64_t hash) {
  dfgnn_kernel_table *table =
      atomic_load_explicit(&engine->table, memory_order_acquire);
  if (!table)
    return NULL;
  for (size_t s = hash & (table->capacity - 1);;
       s = (s + 1) & (table->capacity - 1)) {
    dfgnn_kernel *kernel =
        atomic_load_explicit(&table->slot[s], memory_order_acquire);
    if (!kernel || (kernel->hash == hash &&
                    dfgnn__program_equal(&kernel->program, program)))
      return kernel;
  }
}

static void place(dfgnn_kernel_table *table, dfgnn_kernel *kernel) {
  size_t s = kernel->hash & (table->capacity - 1);
  while (atomic_load_explicit(&table->slot[s], memory_order_relaxed))
    s = (s + 1) & (table->capacity - 1);
  atomic_store_explicit(&table->slot[s], kernel, memory_order_release);
  table->count++;
}

static int grow(dfgnn_engine *engine) {
  dfgnn_kernel_table *old = atomic_load(&engine->table);
  size_t capacity = old ? 2 * old->capacity : FIRST_CAPACITY;
  dfgnn_kernel_table *table =
      calloc(1, sizeof *table + capacity * sizeof *table->slot);
  if (!table)
    return 0;
  table->capacity = capacity;
  table->older = old;
  for (size_t s = 0; old && s < old->capacity; s++)
    if (atomic_load(&old->slot[s]))
      place(table, atomic_load(&old->slot[s]));
  atomic_store_explicit(&engine->table, table, memory_order_release);
  return 1;
}

static void unload(const dfgnn_engine *engine, dfgnn_kernel *kernel) {
  if (kernel->module && engine->ordinal >= 0)
    (void)dfgnn__driver()->ModuleUnload(kernel->module);
  free(kernel);
}

/* Adds a kernel, which the engine then owns.  Returns it, or the one that
 * another thread has added meanwhile. */
static dfgnn_kernel *add(dfgnn_engine *engine, dfgnn_kernel *kernel) {
  pthread_mutex_lock(&engine->lock);
  dfgnn_kernel *other = find(engine, &kernel->program, kernel->hash);
  dfgnn_kernel_table *table = atomic_load(&engine->table);
  int room = table && 2 * (table->count + 1) <= table->capacity;
  if (!other && (room || grow(engine)))
    place(atomic_load(&engine->table), kernel);
  else if (!other)
    other = kernel; /* no memory: used once, then forgotten */
  pthread_mutex_unlock(&engine->lock);
  if (other && other != kernel)
    unload(engine, kernel);
  return other ? other : kernel;
}

/* ---- compiling and loading ------------------------------------------------
 */

static dfgnn_status find_target(dfgnn_engine *engine) {
  dfgnn_status status = DFGNN_OK;
  pthread_mutex_lock(&engine->lock);
  if (!*engine->target)
    status = dfgnn__compiler_target(engine->target, sizeof engine->target,
                                    engine->architecture);
  pthread_mutex_unlock(&engine->lock);
  return status;
}

static int attribute(cu_function function, int which) {
  int value = 0;
  if (dfgnn__driver()->FuncGetAttribute(&value, which, function))
    return 0;
  return value;
}

/* Loads an image, so that a capture on this thread does not see it. */
static dfgnn_status load(dfgnn_kernel *kernel, const dfgnn_image *image) {
  const dfgnn_driver *cu = dfgnn__driver();
  dfgnn_status status = DFGNN_OK;
  int mode = CU_CAPTURE_RELAXED;
  (void)cu->ThreadExchangeStreamCaptureMode(&mode);
  DFGNN_CU_GO(ModuleLoadDataEx, &kernel->module, image->code, 0, NULL, NULL);
  DFGNN_CU_GO(ModuleGetFunction, &kernel->function, kernel->module,
              image->symbol);
  kernel->info.registers = attribute(kernel->function, CU_FUNCTION_REGISTERS);
  kernel->info.local_bytes =
      attribute(kernel->function, CU_FUNCTION_LOCAL_BYTES);
  kernel->info.shared_bytes =
      attribute(kernel->function, CU_FUNCTION_SHARED_BYTES);
out:
  if (status && kernel->module) {
    (void)cu->ModuleUnload(kernel->module);
    kernel->module = NULL;
  }
  (void)cu->ThreadExchangeStreamCaptureMode(&mode);
  return status;
}

static dfgnn_status compile_and_keep(dfgnn_image *image,
                                     const dfgnn_engine *engine,
                                     const dfgnn_program *program,
                                     const dfgnn_keys_of *keys) {
  char text[512];
  DFGNN_TRY(dfgnn__compile(image, program, engine->target));
  dfgnn__program_text(text, sizeof text, program);
  dfgnn__cache_store(keys, image, engine->target, text);
  return DFGNN_OK;
}

/* A pack needs no compiler, so it is asked with the architecture's own name. */
static int find_in_packs(dfgnn_image *image, const dfgnn_engine *engine,
                         const dfgnn_program *program) {
  dfgnn_keys_of keys;
  return engine->ordinal >= 0 && dfgnn__pack_count() > 0 &&
         !dfgnn__compiler_keys(&keys, program, engine->architecture) &&
         dfgnn__pack_find(image, &keys);
}

static dfgnn_status load_on(const dfgnn_engine *engine, dfgnn_kernel *kernel,
                            const dfgnn_image *image) {
  if (engine->ordinal < 0)
    return DFGNN_OK;
  int entered = dfgnn__engine_enter(engine);
  dfgnn_status status = load(kernel, image);
  dfgnn__engine_leave(entered);
  return status;
}

static void show_image(dfgnn_engine *engine, const dfgnn_program *program,
                       const dfgnn_keys_of *keys, const dfgnn_image *image) {
  if (!engine->keep)
    return;
  pthread_mutex_lock(&engine->lock);
  engine->keep(engine->keep_data, program, keys, image, engine->target);
  pthread_mutex_unlock(&engine->lock);
}

void dfgnn__engine_keep_images(dfgnn_engine *engine, dfgnn_keep_image *keep,
                               void *data) {
  engine->keep = keep;
  engine->keep_data = data;
}

/* Gets the kernel's code from a pack, from the cache or from the compiler, in
 * this order, until the driver accepts it. */
static dfgnn_status obtain(dfgnn_engine *engine, dfgnn_kernel *kernel,
                           dfgnn_image *image) {
  const dfgnn_program *program = &kernel->program;
  dfgnn_keys_of keys;
  if (find_in_packs(image, engine, program)) {
    if (!load_on(engine, kernel, image))
      return DFGNN_OK;
    dfgnn__image_free(image);
  }
  DFGNN_TRY(find_target(engine));
  DFGNN_TRY(dfgnn__compiler_keys(&keys, program, engine->target));
  if (dfgnn__cache_find(image, &keys)) {
    if (!load_on(engine, kernel, image)) {
      show_image(engine, program, &keys, image);
      return DFGNN_OK;
    }
    dfgnn__image_free(image);
    dfgnn__cache_forget(&keys);
  }
  dfgnn_status status = compile_and_keep(image, engine, program, &keys);
  if (!status)
    show_image(engine, program, &keys, image);
  return status ? status : load_on(engine, kernel, image);
}

static dfgnn_status make(dfgnn_kernel **out, dfgnn_engine *engine,
                         const dfgnn_program *program, uint64_t hash) {
  dfgnn_image image = {0};
  dfgnn_kernel *kernel = calloc(1, sizeof *kernel);
  if (!kernel)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory for a kernel");
  kernel->program = *program;
  kernel->hash = hash;
  dfgnn_status status = obtain(engine, kernel, &image);
  kernel->info.code_bytes = (int64_t)image.bytes;
  dfgnn__image_free(&image);
  if (status) {
    unload(engine, kernel);
    return status;
  }
  *out = add(engine, kernel);
  return DFGNN_OK;
}

static int is_pending(const dfgnn_engine *engine,
                      const dfgnn_program *program) {
  for (const dfgnn_pending *p = engine->pending; p; p = p->next)
    if (dfgnn__program_equal(p->program, program))
      return 1;
  return 0;
}

static void forget_pending(dfgnn_engine *engine, const dfgnn_pending *mine) {
  dfgnn_pending **at = &engine->pending;
  while (*at != mine)
    at = &(*at)->next;
  *at = mine->next;
}

/* One thread makes a program while others that want it wait. */
static dfgnn_status make_once(dfgnn_kernel **kernel, dfgnn_engine *engine,
                              const dfgnn_program *program, uint64_t hash) {
  dfgnn_pending mine = {.program = program};
  dfgnn_status status = DFGNN_OK;
  pthread_mutex_lock(&engine->lock);
  while (is_pending(engine, program))
    pthread_cond_wait(&engine->made, &engine->lock);
  *kernel = find(engine, program, hash);
  if (!*kernel) {
    mine.next = engine->pending;
    engine->pending = &mine;
    pthread_mutex_unlock(&engine->lock);
    status = make(kernel, engine, program, hash);
    pthread_mutex_lock(&engine->lock);
    forget_pending(engine, &mine);
    pthread_cond_broadcast(&engine->made);
  }
  pthread_mutex_unlock(&engine->lock);
  return status;
}

static dfgnn_status kernel_of(dfgnn_kernel **kernel, dfgnn_engine *engine,
                              const dfgnn_program *program) {
  uint64_t hash = dfgnn__program_hash(program);
  *kernel = find(engine, program, hash);
  return *kernel ? DFGNN_OK : make_once(kernel, engine, program, hash);
}

typedef struct work {
  dfgnn_engine *engine;
  const dfgnn_programs *programs;
  const atomic_int *stop;
  atomic_size_t next;
  dfgnn_status status;
  char message[512];
  pthread_mutex_t lock;
  size_t first; /* number of the first program that failed */
} work;

static void *compile_some(void *data) {
  work *w = data;
  size_t count = dfgnn__programs_count(w->programs), i;
  dfgnn_kernel *kernel;
  while ((!w->stop || !atomic_load(w->stop)) &&
         (i = atomic_fetch_add(&w->next, 1)) < count) {
    dfgnn_status status =
        kernel_of(&kernel, w->engine, dfgnn__programs_get(w->programs, i));
    if (!status)
      continue;
    pthread_mutex_lock(&w->lock);
    if (!w->status || i < w->first) {
      w->status = status;
      w->first = i;
      snprintf(w->message, sizeof w->message, "%s", dfgnn_last_error());
    }
    pthread_mutex_unlock(&w->lock);
  }
  return NULL;
}

/* They may be fewer than there are: more threads than those would only hold up
 * the one that is waited for. */
int dfgnn__engine_processors(void) {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set)
             ? (int)sysconf(_SC_NPROCESSORS_ONLN)
             : CPU_COUNT(&set);
}

void dfgnn__engine_give_way(void) {
  /* Linux has a value for each thread, which its children inherit. */
  (void)setpriority(PRIO_PROCESS, 0, 10);
}

dfgnn_status dfgnn__engine_prepare(dfgnn_engine *engine,
                                   const dfgnn_programs *programs, int threads,
                                   const atomic_int *stop) {
  work w = {.engine = engine, .programs = programs, .stop = stop};
  pthread_t thread[MOST_THREADS];
  size_t count = dfgnn__programs_count(programs), missing = 0;
  int started = 0;
  for (size_t i = 0; i < count; i++) {
    const dfgnn_program *program = dfgnn__programs_get(programs, i);
    missing += !find(engine, program, dfgnn__program_hash(program));
  }
  if (missing == 0)
    return DFGNN_OK;
  if (threads <= 0)
    threads = dfgnn__engine_processors();
  if (threads > MOST_THREADS)
    threads = MOST_THREADS;
  if ((size_t)threads > missing)
    threads = (int)missing;
  pthread_mutex_init(&w.lock, NULL);
  while (started < threads - 1 &&
         !pthread_create(&thread[started], NULL, compile_some, &w))
    started++;
  (void)compile_some(&w);
  for (int i = 0; i < started; i++)
    pthread_join(thread[i], NULL);
  pthread_mutex_destroy(&w.lock);
  return w.status ? dfgnn__fail(w.status, "%s", w.message) : DFGNN_OK;
}

int dfgnn__engine_kernel_info(dfgnn_kernel_info *info, dfgnn_engine *engine,
                              const dfgnn_program *program) {
  dfgnn_kernel *kernel = find(engine, program, dfgnn__program_hash(program));
  if (kernel)
    *info = kernel->info;
  return kernel != NULL;
}

/* ---- launching ------------------------------------------------------------
 */

static void allow_shared(dfgnn_kernel *kernel, unsigned bytes) {
  if (bytes <= atomic_load_explicit(&kernel->shared, memory_order_relaxed))
    return;
  if (!dfgnn__driver()->FuncSetAttribute(kernel->function,
                                         CU_FUNCTION_MAX_SHARED, (int)bytes))
    atomic_store(&kernel->shared, bytes);
}

static void set_carveout(dfgnn_kernel *kernel, dfgnn_carveout carveout) {
  static const int percent[] = {
      [DFGNN_CARVEOUT_L1] = 0, [DFGNN_CARVEOUT_SHARED] = 100};
  if (atomic_load_explicit(&kernel->carveout, memory_order_relaxed) ==
      (int)carveout)
    return;
  (void)dfgnn__driver()->FuncSetAttribute(
      kernel->function, CU_FUNCTION_CARVEOUT, percent[carveout]);
  atomic_store(&kernel->carveout, (int)carveout);
}

static unsigned at_least_1(unsigned x) { return x ? x : 1; }

/* Can launches overlap on the device, in CUDA graphs too? */
static int can_overlap(int major) {
  int version = 0;
  return major >= 9 && dfgnn__driver()->LaunchKernelEx &&
         !dfgnn__driver()->DriverGetVersion(&version) &&
         version >= CU_OVERLAP_VERSION;
}

static cu_result launch_overlapped(const dfgnn_queue *queue,
                                   cu_function function, const dfgnn_grid *grid,
                                   void **arguments) {
  cu_launch_attribute overlapped = {.id = CU_LAUNCH_OVERLAPPED, .value = 1};
  const cu_launch_config config = {.grid = {at_least_1(grid->blocks[0]),
                                            at_least_1(grid->blocks[1]),
                                            at_least_1(grid->blocks[2])},
                                   .block = {grid->threads, 1, 1},
                                   .shared = grid->shared,
                                   .stream = queue->stream,
                                   .attributes = &overlapped,
                                   .count = 1};
  return dfgnn__driver()->LaunchKernelEx(&config, function, arguments, NULL);
}

dfgnn_status dfgnn__launch(const dfgnn_queue *queue,
                           const dfgnn_program *program, dfgnn_grid grid,
                           void **arguments) {
  dfgnn_kernel *kernel;
  if (queue->list)
    return dfgnn__programs_add(queue->list, program);
  DFGNN_TRY(kernel_of(&kernel, queue->engine, program));
  if (!kernel->function)
    return dfgnn__fail(DFGNN_ERROR_DEVICE,
                       "%s: the engine has no device to launch it on",
                       program->name);
  if (grid.shared + (unsigned)kernel->info.shared_bytes > FREE_SHARED)
    allow_shared(kernel, grid.shared);
  if (grid.carveout)
    set_carveout(kernel, grid.carveout);
  cu_result error =
      grid.overlaps && queue->engine->overlaps
          ? launch_overlapped(queue, kernel->function, &grid, arguments)
          : dfgnn__driver()->LaunchKernel(
                kernel->function, at_least_1(grid.blocks[0]),
                at_least_1(grid.blocks[1]), at_least_1(grid.blocks[2]),
                grid.threads, 1, 1, grid.shared, queue->stream, arguments,
                NULL);
  return error ? dfgnn__driver_fail(error, program->name) : DFGNN_OK;
}

dfgnn_status dfgnn__fill(const dfgnn_queue *queue, void *to, unsigned char byte,
                         size_t bytes) {
  dfgnn_status status = DFGNN_OK;
  if (queue->list || !bytes)
    return DFGNN_OK;
  DFGNN_CU_GO(MemsetD8Async, cu_address(to), byte, bytes, queue->stream);
out:
  return status;
}

dfgnn_status dfgnn__copy(const dfgnn_queue *queue, void *to, const void *from,
                         size_t bytes) {
  dfgnn_status status = DFGNN_OK;
  if (queue->list || !bytes)
    return DFGNN_OK;
  DFGNN_CU_GO(MemcpyAsync, cu_address(to), cu_address(from), bytes,
              queue->stream);
out:
  return status;
}

dfgnn_status dfgnn__read(const dfgnn_queue *queue, void *to, const void *from,
                         size_t bytes) {
  dfgnn_status status = DFGNN_OK;
  if (queue->list) {
    memset(to, 0, bytes);
    return DFGNN_OK;
  }
  DFGNN_CU_GO(MemcpyAsync, cu_address(to), cu_address(from), bytes,
              queue->stream);
  DFGNN_CU_GO(StreamSynchronize, queue->stream);
out:
  return status;
}

dfgnn_status dfgnn__borrow(const dfgnn_queue *queue, void **memory,
                           size_t bytes) {
  cu_pointer made = 256; /* points nowhere, aligned */
  dfgnn_status status = DFGNN_OK;
  if (!queue->list)
    DFGNN_CU_GO(MemAlloc, &made, bytes ? bytes : 1);
  *memory = (void *)(uintptr_t)made;
out:
  return status;
}

void dfgnn__give_back(const dfgnn_queue *queue, void *memory) {
  if (memory && !queue->list)
    (void)dfgnn__driver()->MemFree(cu_address(memory));
}

/* ---- opening and closing --------------------------------------------------
 */

int dfgnn__engine_enter(const dfgnn_engine *engine) {
  cu_context context = NULL;
  const dfgnn_driver *cu = dfgnn__driver();
  if (cu->CtxGetCurrent(&context))
    context = NULL;
  if (context == engine->context)
    return 0;
  if (context)
    return !cu->CtxPushCurrent(engine->context);
  (void)cu->CtxSetCurrent(engine->context);
  return 0;
}

void dfgnn__engine_leave(int entered) {
  cu_context context;
  if (entered)
    (void)dfgnn__driver()->CtxPopCurrent(&context);
}

int dfgnn__engine_usable(char *why, size_t size) {
  dfgnn_pack_info pack;
  char target[24];
  if (*dfgnn__compiler()->path || dfgnn__pack_count() > 0)
    return 1;
  (void)dfgnn__compiler_target(target, sizeof target, "sm_90");
  if (dfgnn__pack_describe(&pack, 0)) /* it was refused */
    snprintf(why, size, "%s (%s)", dfgnn_last_error(), pack.problem);
  else
    snprintf(why, size, "%s", dfgnn_last_error());
  return 0;
}

static dfgnn_engine *create(void) {
  dfgnn_engine *engine = calloc(1, sizeof *engine);
  if (engine) {
    pthread_mutex_init(&engine->lock, NULL);
    pthread_cond_init(&engine->made, NULL);
    engine->ordinal = -1;
  }
  return engine;
}

dfgnn_status dfgnn__engine_offline(dfgnn_engine **engine, const char *arch) {
  dfgnn_engine *e = create();
  if (!e)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory for an engine");
  snprintf(e->architecture, sizeof e->architecture, "%s", arch);
  dfgnn_status status = find_target(e);
  if (status)
    dfgnn__engine_close(e);
  else
    *engine = e;
  return status;
}

dfgnn_status dfgnn__engine_open(dfgnn_engine **engine, int ordinal) {
  const dfgnn_driver *cu = dfgnn__driver();
  int major = 0, minor = 0;
  dfgnn_status status = DFGNN_OK;
  if (!cu)
    return dfgnn__fail(DFGNN_ERROR_DEVICE, "there is no CUDA driver: %s",
                       dfgnn__driver_problem());
  dfgnn_engine *e = create();
  if (!e)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory for an engine");
  DFGNN_CU_GO(DeviceGet, &e->device, ordinal);
  DFGNN_CU_GO(DeviceGetAttribute, &major, CU_CAPABILITY_MAJOR, e->device);
  DFGNN_CU_GO(DeviceGetAttribute, &minor, CU_CAPABILITY_MINOR, e->device);
  snprintf(e->architecture, sizeof e->architecture, "sm_%d%d", major, minor);
  e->overlaps = can_overlap(major);
  DFGNN_CU_GO(DevicePrimaryCtxRetain, &e->context, e->device);
  e->ordinal = ordinal;
out:
  if (status)
    dfgnn__engine_close(e);
  else
    *engine = e;
  return status;
}

void dfgnn__engine_close(dfgnn_engine *engine) {
  if (!engine)
    return;
  dfgnn_kernel_table *table = atomic_load(&engine->table);
  int entered = engine->ordinal >= 0 ? dfgnn__engine_enter(engine) : 0;
  for (size_t s = 0; table && s < table->capacity; s++)
    if (atomic_load(&table->slot[s]))
      unload(engine, atomic_load(&table->slot[s]));
  while (table) {
    dfgnn_kernel_table *older = table->older;
    free(table);
    table = older;
  }
  if (engine->ordinal >= 0) {
    dfgnn__engine_leave(entered);
    (void)dfgnn__driver()->DevicePrimaryCtxRelease(engine->device);
  }
  pthread_cond_destroy(&engine->made);
  pthread_mutex_destroy(&engine->lock);
  free(engine);
}
