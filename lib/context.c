#include "lib/context.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/descriptor.h"
#include "lib/base/error.h"
#include "lib/base/fork.h"
#include "lib/decided.h"
#include "lib/handle.h"
#include "select/portfolio.h"

static dfgnn_status read_number(int64_t *value, const char *name,
                                int64_t lowest) {
  const char *text = getenv(name);
  char *end;
  if (!text)
    return DFGNN_OK;
  long long number = strtoll(text, &end, 10);
  if (end == text || *end || number < lowest)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "%s is '%s', expected a whole number >= %lld", name,
                       text, (long long)lowest);
  *value = number;
  return DFGNN_OK;
}

static dfgnn_status read_environment(dfgnn_context *ctx,
                                     const dfgnn_options *options) {
  const char *effort = getenv("DFGNN_EFFORT");
  const char *forced = getenv("DFGNN_FORCE_VARIANT");
  int64_t deterministic = -1;
  dfgnn_status status = DFGNN_OK;
  ctx->effort = options->effort;
  if (ctx->effort == DFGNN_EFFORT_DEFAULT) {
    ctx->effort = DFGNN_EFFORT_ESTIMATE;
    if (effort &&
        (status = dfgnn_parse((int *)&ctx->effort, DFGNN_NAMES_EFFORT, effort)))
      return dfgnn__fail_prefix(status, "DFGNN_EFFORT: ");
  }
  ctx->paper_capacity = options->paper_capacity;
  if (!ctx->paper_capacity) {
    ctx->paper_capacity = DFGNN_PAPER_CAPACITY;
    status = read_number(&ctx->paper_capacity, "DFGNN_PAPER_CAPACITY", 1);
  }
  if (!status)
    status = read_number(&deterministic, "DFGNN_DETERMINISTIC", 0);
  ctx->force_deterministic = (int)deterministic;
  if (!status)
    status = dfgnn__portfolios_open();
  if (!status && forced && *forced) {
    ctx->forced_variant = dfgnn__variant_find(forced);
    if (!ctx->forced_variant)
      status = dfgnn__fail(DFGNN_ERROR_INVALID,
                           "DFGNN_FORCE_VARIANT names '%s', which this library "
                           "does not have; `dfgnn-tune variants` lists them",
                           forced);
  }
  return status;
}

static const dfgnn_backend *const backends[] = {&dfgnn__backend_cuda,
                                                &dfgnn__backend_cpu};

/* Does the backend have a device, and a way to get its kernels?  A device
 * without kernels is passed over with a warning. */
static int serves(const dfgnn_context *ctx, const dfgnn_backend *backend) {
  char why[512];
  if (backend->device_count() == 0)
    return 0;
  if (!backend->engine || dfgnn__engine_usable(why, sizeof why))
    return 1;
  dfgnn__log(ctx, DFGNN_LOG_WARN, "the GPU is not used: %s", why);
  return 0;
}

/* name is "auto", "cpu", "cuda", "cuda:1", ...; NULL: "auto" */
static dfgnn_status choose_device(dfgnn_context *ctx, int *ordinal,
                                  const char *name) {
  size_t count = sizeof backends / sizeof *backends;
  *ordinal = 0;
  if (!name || !strcmp(name, "auto")) {
    for (size_t i = 0; i < count; i++)
      if (serves(ctx, backends[i])) {
        ctx->backend = backends[i];
        return DFGNN_OK;
      }
  }
  size_t length = name ? strcspn(name, ":") : 0;
  for (size_t i = 0; i < count; i++)
    if (strlen(backends[i]->name) == length &&
        !strncmp(backends[i]->name, name, length)) {
      char *end = NULL;
      long number = name[length] ? strtol(name + length + 1, &end, 10) : 0;
      if (name[length] && (end == name + length + 1 || *end || number < 0))
        break;
      int devices = backends[i]->device_count();
      if (number >= devices)
        return dfgnn__fail(DFGNN_ERROR_DEVICE,
                           "device '%s' is not there: %d %s device%s found",
                           name, devices, backends[i]->name,
                           devices == 1 ? "" : "s");
      ctx->backend = backends[i];
      *ordinal = (int)number;
      return DFGNN_OK;
    }
  return dfgnn__fail(DFGNN_ERROR_INVALID,
                     "unknown device '%s', expected auto, cpu, cuda or cuda:N",
                     name ? name : "auto");
}

dfgnn_status dfgnn__context_open(dfgnn_context **made,
                                 const dfgnn_options *options) {
  static const dfgnn_descriptor_kind kind =
      DFGNN_DESCRIPTOR("options", dfgnn_options, "DFGNN_OPTIONS_INIT");
  dfgnn_options whole = DFGNN_OPTIONS_INIT;
  dfgnn_status status = DFGNN_OK;
  int ordinal = 0;
  if (!made)
    return dfgnn__fail(DFGNN_ERROR_INVALID, "ctx is NULL");
  if (options)
    DFGNN_TRY(dfgnn__take(&whole, options, &kind));
  options = &whole;
  DFGNN_TRY(dfgnn__check_range("options.effort", options->effort, 0,
                               DFGNN_EFFORT_RACE));
  DFGNN_TRY(dfgnn__check_range("options.log_level", options->log_level, 0,
                               DFGNN_LOG_DEBUG));
  DFGNN_TRY(dfgnn__check_range("options.paper_capacity",
                               options->paper_capacity, 0, INT64_MAX));
  dfgnn_context *ctx = calloc(1, sizeof *ctx);
  if (!ctx)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  dfgnn__fork_prepare();
  ctx->kind = DFGNN_HANDLE_CONTEXT;
  ctx->forks = dfgnn__fork_depth();
  atomic_init(&ctx->references, 1);
  pthread_mutex_init(&ctx->lock, NULL);
  pthread_mutex_init(&ctx->memory_lock, NULL);
  ctx->log = options->log;
  ctx->log_data = options->log_data;
  ctx->log_level = options->log_level == DFGNN_LOG_DEFAULT
                       ? dfgnn__environment_log_level()
                       : options->log_level;
  dfgnn__environment_warn(ctx);
  dfgnn__pack_trust_keys();

  DFGNN_GO(dfgnn__registry_open());
  DFGNN_GO(read_environment(ctx, options));
  DFGNN_GO(choose_device(ctx, &ordinal, options->device));
  DFGNN_GO(ctx->backend->open(&ctx->device, ordinal, options->threads));
  ctx->backend->identify(ctx->device, &ctx->info);
  ctx->broken = calloc(dfgnn__variant_count() + 1, 1);
  if (!ctx->broken)
    DFGNN_GO(dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory"));
  DFGNN_GO(dfgnn__portfolios_open());
  DFGNN_GO(dfgnn__layers_find(ctx, options->store));
  DFGNN_GO(dfgnn__layers_load(&ctx->table, ctx));
  dfgnn__log(ctx, DFGNN_LOG_INFO, "device %s, %s, %s", ctx->info.backend,
             ctx->info.arch, ctx->info.model);
  *made = ctx;
out:
  if (status)
    dfgnn_context_destroy(ctx);
  return status;
}

static void release(dfgnn_context *ctx) {
  dfgnn__table_destroy(ctx->table);
  dfgnn__layers_free(ctx);
  if (ctx->workspace)
    ctx->backend->release(ctx->device, ctx->workspace);
  if (ctx->device)
    ctx->backend->close(ctx->device);
  dfgnn__decided_forget(ctx);
  free(ctx->broken);
  dfgnn__store_close(ctx->memory);
  dfgnn__rows_free(ctx->measured);
  pthread_mutex_destroy(&ctx->memory_lock);
  pthread_mutex_destroy(&ctx->lock);
  free(ctx);
}

void dfgnn__context_hold(dfgnn_context *ctx) {
  atomic_fetch_add(&ctx->references, 1);
}

void dfgnn__context_drop(dfgnn_context *ctx) {
  if (atomic_fetch_sub(&ctx->references, 1) == 1)
    release(ctx);
}

void dfgnn_context_destroy(dfgnn_context *ctx) {
  if (!dfgnn__is_context(ctx))
    return;
  int graphs = atomic_load(&ctx->references) - 1;
  if (graphs)
    dfgnn__log(ctx, DFGNN_LOG_ERROR,
               "context destroyed before %d of its graphs", graphs);
  ctx->kind = DFGNN_HANDLE_NONE;
  ctx->log_level = DFGNN_LOG_NONE; /* the log function may be gone by now */
  dfgnn__context_drop(ctx);
}

dfgnn_status dfgnn_context_reload(dfgnn_context *ctx) {
  dfgnn_table *fresh, *old;
  DFGNN_TRY(dfgnn__check_context(ctx));
  DFGNN_TRY(dfgnn__layers_load(&fresh, ctx));
  dfgnn__context_forget_measured(ctx);
  pthread_mutex_lock(&ctx->lock);
  old = ctx->table;
  ctx->table = fresh;
  dfgnn__decided_forget(ctx);
  pthread_mutex_unlock(&ctx->lock);
  dfgnn__table_destroy(old);
  return DFGNN_OK;
}

dfgnn_status dfgnn_context_device(dfgnn_device_info *info,
                                  const dfgnn_context *ctx) {
  DFGNN_TRY(dfgnn__check_context(ctx));
  static const dfgnn_descriptor_kind kind =
      DFGNN_DESCRIPTOR("info", dfgnn_device_info, "DFGNN_DEVICE_INFO_INIT");
  dfgnn_status status = dfgnn__can_give(info, &kind);
  if (!status)
    dfgnn__give(info, &ctx->info, &kind);
  return status;
}

dfgnn_status dfgnn_context_digest(char digest[DFGNN_DIGEST_SIZE],
                                  const dfgnn_context *ctx) {
  dfgnn_context *c = (dfgnn_context *)ctx;
  DFGNN_TRY(dfgnn__check_context(ctx));
  if (!digest)
    return dfgnn__fail(DFGNN_ERROR_INVALID, "digest is NULL");
  pthread_mutex_lock(&c->lock);
  dfgnn__table_digest(digest, ctx->table);
  pthread_mutex_unlock(&c->lock);
  return DFGNN_OK;
}

dfgnn_status dfgnn_context_counters(dfgnn_counters *counters,
                                    const dfgnn_context *ctx) {
  DFGNN_TRY(dfgnn__check_context(ctx));
  static const dfgnn_descriptor_kind kind =
      DFGNN_DESCRIPTOR("counters", dfgnn_counters, "DFGNN_COUNTERS_INIT");
  DFGNN_TRY(dfgnn__can_give(counters, &kind));
  dfgnn_context *c = (dfgnn_context *)ctx; /* atomic_load takes no const */
  dfgnn_counters whole = {.exact = atomic_load(&c->exact),
                          .near = atomic_load(&c->near),
                          .model = atomic_load(&c->model),
                          .rule = atomic_load(&c->rule),
                          .cached = atomic_load(&c->cached)};
  pthread_mutex_lock(&c->lock);
  for (size_t i = 0; i < ctx->layer_count; i++) {
    whole.invalid_rows += ctx->layers[i].invalid;
    whole.loaded_rows += ctx->layers[i].rows;
  }
  pthread_mutex_unlock(&c->lock);
  dfgnn__give(counters, &whole, &kind);
  return DFGNN_OK;
}

void dfgnn__context_set_on_miss(dfgnn_context *ctx, dfgnn_miss_hook hook,
                                void *data) {
  ctx->on_miss = hook;
  ctx->on_miss_data = data;
}

const char *dfgnn__context_store(const dfgnn_context *ctx) {
  for (size_t i = 0; i < ctx->layer_count; i++)
    if (ctx->layers[i].writable)
      return ctx->layers[i].path;
  return NULL;
}

dfgnn_status dfgnn__context_reserve(void **workspace, dfgnn_context *ctx,
                                    size_t bytes, void *stream) {
  dfgnn_status status = DFGNN_OK;
  if (bytes > ctx->workspace_bytes) {
    void *grown = NULL;
    status = ctx->backend->allocate(ctx->device, &grown, bytes);
    if (!status && ctx->workspace) { /* work may still use the old one */
      status = ctx->backend->synchronize(ctx->device, stream);
      ctx->backend->release(ctx->device, ctx->workspace);
    }
    if (!status) {
      ctx->workspace = grown;
      ctx->workspace_bytes = bytes;
    }
  }
  *workspace = ctx->workspace;
  return status;
}
