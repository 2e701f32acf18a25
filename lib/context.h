/* context.h - a device, its decisions, its log */
#ifndef DFGNN_LIB_CONTEXT_H
#define DFGNN_LIB_CONTEXT_H

#include <pthread.h>
#include <stdatomic.h>

#include "lib/backend.h"
#include "lib/base/load.h"
#include "lib/registry.h"
#include "select/select.h"

/* Tunes a problem that effort MEASURE did not find; installed by tuner/. */
typedef dfgnn_status (*dfgnn_miss_hook)(void *data, dfgnn_context *ctx,
                                        dfgnn_graph *graph,
                                        const dfgnn_problem *problem);

typedef struct dfgnn_store_layer {
  char *path;
  int named;    /* by options or DFGNN_STORE: failing to open it is an error */
  int writable; /* tuning writes to this one */
  int package;  /* its rows are the package's, not of this site */
  uint64_t rows, invalid; /* loaded for this device; skipped */
  uint64_t stamp;         /* of the file when `measured` got its rows */
} dfgnn_store_layer;

struct dfgnn_context {
  uint32_t kind;         /* lib/handle.h */
  int forks;             /* dfgnn__fork_depth() where it was made */
  atomic_int references; /* one for the handle, one for each graph */
  const dfgnn_backend *backend;
  dfgnn_device *device;
  dfgnn_device_info info;
  dfgnn_effort effort;
  int64_t paper_capacity;
  int force_deterministic;             /* DFGNN_DETERMINISTIC: -1 not set */
  const dfgnn_variant *forced_variant; /* DFGNN_FORCE_VARIANT */

  dfgnn_log_level log_level;
  dfgnn_log_function log;
  void *log_data;

  dfgnn_store_layer *layers;
  size_t layer_count;
  pthread_mutex_t memory_lock; /* guards memory, measured and stamps */
  dfgnn_store *memory;    /* rows that no layer took, while the context lives */
  dfgnn_rows *measured;   /* the layers' rows, for tuning; NULL: not read yet */
  atomic_int told;        /* the log was told that they are kept no longer */
  atomic_int told_load;   /* the log was told that the device is not quiet */
  atomic_int told_device; /* and that nobody measured such a one */
  atomic_int taken;       /* how often dfgnn_context_take_choices was called */

  pthread_mutex_t lock; /* guards table, workspace, decided and the circuit
                         * breaker */
  dfgnn_table *table;   /* never NULL, replaced whole by reload; tuning puts a
                         * problem's decision into it */
  void *workspace;      /* for dfgnn_call */
  size_t workspace_bytes;
  unsigned char *broken;         /* by variant index: a launch was refused */
  struct dfgnn_decided *decided; /* lib/decided.h; NULL: nothing yet */
  double copy_gbps;              /* as tuner/record.c measured it; 0: not yet */
  dfgnn_load load;               /* as the last gate read it; at 0: none did */

  dfgnn_miss_hook on_miss;
  void *on_miss_data;

  atomic_uint_fast64_t exact, near, model, rule, cached;
};

/* dfgnn_context_create without the on-miss hook. */
dfgnn_status dfgnn__context_open(dfgnn_context **ctx,
                                 const dfgnn_options *options);
/* A graph holds its context's memory until it is destroyed. */
void dfgnn__context_hold(dfgnn_context *ctx);
void dfgnn__context_drop(dfgnn_context *ctx);
void dfgnn__context_set_on_miss(dfgnn_context *ctx, dfgnn_miss_hook hook,
                                void *data);

/* The context's workspace, of `bytes` bytes at least.  The caller holds its
 * lock until the work is on the stream. */
dfgnn_status dfgnn__context_reserve(void **workspace, dfgnn_context *ctx,
                                    size_t bytes, void *stream);

/* The engine of the context's device; NULL on a CPU. */
static inline dfgnn_engine *dfgnn__context_engine(const dfgnn_context *ctx) {
  return ctx->backend->engine ? ctx->backend->engine(ctx->device) : NULL;
}
/* Makes the context's device the thread's current one; leaving takes what this
 * returned and restores the one before. */
static inline int dfgnn__context_enter(const dfgnn_context *ctx) {
  return ctx->backend->enter ? ctx->backend->enter(ctx->device) : -1;
}
static inline void dfgnn__context_leave(const dfgnn_context *ctx,
                                        int previous) {
  if (ctx->backend->leave)
    ctx->backend->leave(previous);
}

/* The store that tuning writes: its path, or NULL if there is none. */
const char *dfgnn__context_store(const dfgnn_context *ctx);

void dfgnn__log(const dfgnn_context *ctx, dfgnn_log_level level,
                const char *format, ...) __attribute__((format(printf, 3, 4)));

/* lib/environment.c: parses DFGNN_LOG, warns of unknown DFGNN_* once. */
dfgnn_log_level dfgnn__environment_log_level(void);
void dfgnn__environment_warn(const dfgnn_context *ctx);
/* Name and one-line meaning of the i-th variable; NULL at the end. */
const char *dfgnn__environment_variable(size_t i, const char **meaning);

/* True if the program makes stores that are missing, as dfgnn-tune run does, so
 * that a missing one is nothing to warn of. */
extern int dfgnn__makes_stores;

/* lib/layers.c: fills ctx->layers by options->store, DFGNN_STORE or the XDG
 * places. */
dfgnn_status dfgnn__layers_find(dfgnn_context *ctx, const char *store);
void dfgnn__layers_free(dfgnn_context *ctx);
/* Keeps a row that no layer takes for the life of the context. */
dfgnn_status dfgnn__context_keep(dfgnn_context *ctx,
                                 const dfgnn_measurement *row);
/* Adds the rows that dfgnn__context_keep kept. */
dfgnn_status dfgnn__context_kept(dfgnn_rows *rows, dfgnn_context *ctx,
                                 const dfgnn_store_filter *filter);
/* lib/measured.c: what tuning knows of the layers' rows, which it reads once.
 *
 * Adds the rows of the layers, as they are now, and the kept ones. */
dfgnn_status dfgnn__context_measured(dfgnn_rows *rows, dfgnn_context *ctx,
                                     const dfgnn_store_filter *filter);
/* Opens the store that tuning writes; *version: which version of it has the
 * rows that were read, -1: none. */
dfgnn_status dfgnn__context_open_store(dfgnn_store **store, int64_t *version,
                                       dfgnn_context *ctx);
/* Adds a row that was written to it. */
void dfgnn__context_wrote(dfgnn_context *ctx, const dfgnn_measurement *row);
/* Closes it.  0: others have written to it since that version, or before; their
 * rows are read when they are next asked for. */
int dfgnn__context_close_store(dfgnn_context *ctx, dfgnn_store *store,
                               int64_t version);
/* Forgets the layers' rows. */
void dfgnn__context_forget_measured(dfgnn_context *ctx);
/* Makes the table decide a problem by these rows, which are all that there are
 * of it. */
dfgnn_status dfgnn__context_learn(dfgnn_context *ctx,
                                  const dfgnn_measurement *rows, size_t count);
/* Reads the layers, and the kept rows, into a table for ctx->info. */
dfgnn_status dfgnn__layers_load(dfgnn_table **table, dfgnn_context *ctx);

/* lib/pack_trust.c: packs of kernels have to be signed where keys are set. */
void dfgnn__pack_trust_keys(void);

#endif
