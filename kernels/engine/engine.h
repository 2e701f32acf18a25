/* engine.h - device code compiled for the problem
 *
 * A program is one kernel: a template of the sources under kernels/ and the
 * constants it is instantiated with.  The engine of a device compiles programs
 * with NVRTC when they are first asked for, keeps them (process memory, the
 * user's kernels.db, packs) and launches them.  The driver and the compiler
 * are opened at run time, so neither a toolkit nor a GPU is needed to build.
 *
 * A queue is where host code of kernels sends its work.  A queue with a list
 * launches nothing and writes down which programs it was asked for: this is
 * how a plan, the tuner and `dfgnn-tune compile` learn what to compile ahead,
 * from the very code that launches. */
#ifndef DFGNN_ENGINE_ENGINE_H
#define DFGNN_ENGINE_ENGINE_H

#include <stdatomic.h>

#include "dfgnn.h"

#define DFGNN_MAX_CONSTANTS 24

/* source and name are string literals (compared by address).  Constant i is
 * printed as an int, or as a C++ type if it was made by DFGNN_TYPE:
 *     name<3, float, 4, 32>                                                  */
typedef struct dfgnn_program {
  const char *source; /* "kernels/attention/cuda/attend.cuh" */
  const char *name;   /* "dfgnn::attend"; count 0: a plain function */
  int count;
  int constant[DFGNN_MAX_CONSTANTS];
} dfgnn_program;

/* The C++ type of a storage type: float, dfgnn::half_t, dfgnn::bfloat_t or
 * double.  DFGNN_TYPE_I32 and DFGNN_TYPE_I64 are int32_t and int64_t. */
#define DFGNN_TYPE(dtype) (0x40000000 | (int)(dtype))
#define DFGNN_TYPE_I32 0x40000010
#define DFGNN_TYPE_I64 0x40000011

#define DFGNN_PROGRAM(source_, name_, ...)                                     \
  {                                                                            \
    .source = source_, .name = name_,                                          \
    .count = (int)(sizeof((int[]){__VA_ARGS__}) / sizeof(int)), .constant = {  \
      __VA_ARGS__                                                              \
    }                                                                          \
  }

/* How a multiprocessor's memory is divided into cache and shared memory. */
typedef enum dfgnn_carveout {
  DFGNN_CARVEOUT_DEFAULT = 0,
  DFGNN_CARVEOUT_L1,    /* as much cache as there can be */
  DFGNN_CARVEOUT_SHARED /* as much shared memory as there can be */
} dfgnn_carveout;

typedef struct dfgnn_grid {
  unsigned blocks[3]; /* 0 counts as 1 */
  unsigned threads;   /* of a block */
  unsigned shared;    /* bytes of dynamic shared memory, beyond 48 KiB too */
  dfgnn_carveout carveout;
  /* May it be launched before the kernel before it on the stream has ended?
   * Such a kernel calls ptx::wait_for_previous() in all its threads before it
   * reads what another kernel wrote; GPUs before sm_90 launch it as usual. */
  int overlaps;
} dfgnn_grid;

typedef struct dfgnn_engine dfgnn_engine;
typedef struct dfgnn_programs dfgnn_programs;

typedef struct dfgnn_queue {
  dfgnn_engine *engine; /* of a device; NULL where only programs are listed */
  void *stream;         /* CUstream, which is torch's cudaStream_t */
  dfgnn_programs *list; /* if not NULL, programs are listed, not launched */
} dfgnn_queue;

/* Launches a kernel; arguments are pointers to its arguments, as
 * cuLaunchKernel has them.  A program that is not there yet is compiled first,
 * which takes a fraction of a second. */
dfgnn_status dfgnn__launch(const dfgnn_queue *queue,
                           const dfgnn_program *program, dfgnn_grid grid,
                           void **arguments);
/* Launches a kernel that takes one struct by value. */
static inline dfgnn_status dfgnn__launch_struct(const dfgnn_queue *queue,
                                                const dfgnn_program *program,
                                                dfgnn_grid grid,
                                                const void *argument) {
  void *arguments[] = {(void *)argument};
  return dfgnn__launch(queue, program, grid, arguments);
}
/* Sets bytes of device memory. */
dfgnn_status dfgnn__fill(const dfgnn_queue *queue, void *to, unsigned char byte,
                         size_t bytes);
/* Copies between any of host and device memory, in the stream's order. */
dfgnn_status dfgnn__copy(const dfgnn_queue *queue, void *to, const void *from,
                         size_t bytes);

/* Copies device memory to the host and waits for it.  A queue that lists
 * programs gives zeros. */
dfgnn_status dfgnn__read(const dfgnn_queue *queue, void *to, const void *from,
                         size_t bytes);
/* Device memory, 256-byte aligned, for use during a preparation; the call may
 * wait for the device.  give_back takes NULL too. */
dfgnn_status dfgnn__borrow(const dfgnn_queue *queue, void **memory,
                           size_t bytes);
void dfgnn__give_back(const dfgnn_queue *queue, void *memory);

/* ---- the engine of a device --------------------------------------------- */

/* Is there a source of device code, a compiler or a pack?  If not, `why`
 * becomes what to install. */
int dfgnn__engine_usable(char *why, size_t size);
/* Opens the driver and makes the device's primary context, which other
 * libraries of the process share, current while it works. */
dfgnn_status dfgnn__engine_open(dfgnn_engine **engine, int ordinal);
void dfgnn__engine_close(dfgnn_engine *engine);
/* An engine without a device that compiles for an architecture ("sm_90");
 * nothing can be launched on it. */
dfgnn_status dfgnn__engine_offline(dfgnn_engine **engine, const char *arch);

/* Makes the device's context current for the thread; leave takes what enter
 * gave and puts back another context that was current.  A thread that had none
 * keeps the device's, as it does with CUDA's runtime: so its next calls find it
 * there. */
int dfgnn__engine_enter(const dfgnn_engine *engine);
void dfgnn__engine_leave(int entered);

/* The processors that this process may use. */
int dfgnn__engine_processors(void);
/* Has this thread, and what it starts, give way to the steps that run beside
 * it, as far as cores are scarce. */
void dfgnn__engine_give_way(void);
/* Compiles the programs that are missing, on up to `threads` threads (0: as
 * many as there are cores), and loads them if the engine has a device.  The
 * status is that of the first program that failed; all are tried, until *stop
 * is set (NULL: never). */
dfgnn_status dfgnn__engine_prepare(dfgnn_engine *engine,
                                   const dfgnn_programs *programs, int threads,
                                   const atomic_int *stop);

/* An offline engine calls keep with each image that is compiled or found in the
 * cache, one at a time. */
struct dfgnn_keys_of;
struct dfgnn_image;
typedef void dfgnn_keep_image(void *data, const dfgnn_program *program,
                              const struct dfgnn_keys_of *keys,
                              const struct dfgnn_image *image,
                              const char *target);
void dfgnn__engine_keep_images(dfgnn_engine *engine, dfgnn_keep_image *keep,
                               void *data);

/* The driver's figures of a program that is in memory. */
typedef struct dfgnn_kernel_info {
  int registers;      /* of a thread */
  int local_bytes;    /* of a thread: spills and arrays, 0 at best */
  int shared_bytes;   /* static shared memory of a block */
  int64_t code_bytes; /* of the image */
} dfgnn_kernel_info;
/* 0 if the program is not in memory. */
int dfgnn__engine_kernel_info(dfgnn_kernel_info *info, dfgnn_engine *engine,
                              const dfgnn_program *program);

/* ---- lists of programs --------------------------------------------------- */

dfgnn_status dfgnn__programs_create(dfgnn_programs **list);
void dfgnn__programs_destroy(dfgnn_programs *list);
size_t dfgnn__programs_count(const dfgnn_programs *list);
const dfgnn_program *dfgnn__programs_get(const dfgnn_programs *list, size_t i);
/* Adds a program if it is not in the list yet. */
dfgnn_status dfgnn__programs_add(dfgnn_programs *list,
                                 const dfgnn_program *program);
/* "dfgnn::attend<0, float, 4>"; text is as snprintf leaves it. */
void dfgnn__program_text(char *text, size_t size, const dfgnn_program *program);

#endif
