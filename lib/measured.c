/* measured.c - the rows of a context's stores, as tuning reads them
 *
 * Tuning a problem needs its rows of all stores, and afterwards a table that
 * knows the new ones.  A store has thousands of rows of other problems, so they
 * are read once, and again only when another process has written. */
#include "db/store.h"
#include "lib/context.h"
#include "lib/decided.h"

static dfgnn_store_layer *written_layer(dfgnn_context *ctx) {
  for (size_t i = 0; i < ctx->layer_count; i++)
    if (ctx->layers[i].writable)
      return &ctx->layers[i];
  return NULL;
}

static int is_current(const dfgnn_context *ctx) {
  if (!ctx->measured)
    return 0;
  for (size_t i = 0; i < ctx->layer_count; i++)
    if (ctx->layers[i].stamp != dfgnn__store_stamp(ctx->layers[i].path))
      return 0;
  return 1;
}

/* A store that cannot be read was reported when the context loaded it. */
static dfgnn_status load_layer(dfgnn_rows *rows, dfgnn_store_layer *layer,
                               const dfgnn_store_filter *filter) {
  dfgnn_store *store = NULL;
  layer->stamp = dfgnn__store_stamp(layer->path);
  if (!layer->stamp || dfgnn__store_open(&store, layer->path, DFGNN_STORE_READ))
    return DFGNN_OK;
  dfgnn_status status = dfgnn__rows_load(rows, NULL, store, filter);
  dfgnn__store_close(store);
  return status;
}

static dfgnn_status load_layers(dfgnn_context *ctx) {
  dfgnn_store_filter filter = DFGNN_STORE_FILTER_INIT;
  filter.backend = ctx->info.backend;
  filter.arch = ctx->info.arch;
  dfgnn__rows_free(ctx->measured);
  ctx->measured = NULL;
  dfgnn_status status = dfgnn__rows_create(&ctx->measured);
  for (size_t i = 0; i < ctx->layer_count && !status; i++)
    status = load_layer(ctx->measured, &ctx->layers[i], &filter);
  if (status) {
    dfgnn__rows_free(ctx->measured);
    ctx->measured = NULL;
  }
  return status;
}

dfgnn_status dfgnn__context_measured(dfgnn_rows *rows, dfgnn_context *ctx,
                                     const dfgnn_store_filter *filter) {
  pthread_mutex_lock(&ctx->memory_lock);
  dfgnn_status status = is_current(ctx) ? DFGNN_OK : load_layers(ctx);
  if (!status)
    status = dfgnn__rows_copy(rows, ctx->measured, filter);
  pthread_mutex_unlock(&ctx->memory_lock);
  return status ? status : dfgnn__context_kept(rows, ctx, filter);
}

dfgnn_status dfgnn__context_open_store(dfgnn_store **store, int64_t *version,
                                       dfgnn_context *ctx) {
  pthread_mutex_lock(&ctx->memory_lock);
  const dfgnn_store_layer *layer = written_layer(ctx);
  const uint64_t known = ctx->measured ? layer->stamp : 0;
  dfgnn_status status = dfgnn__store_open_known(store, layer->path, known);
  *version = status ? -1 : dfgnn__store_version(*store);
  if (!known || known != dfgnn__store_stamp(layer->path))
    *version = -1;
  pthread_mutex_unlock(&ctx->memory_lock);
  return status;
}

void dfgnn__context_wrote(dfgnn_context *ctx, const dfgnn_measurement *row) {
  pthread_mutex_lock(&ctx->memory_lock);
  if (ctx->measured && dfgnn__rows_add(ctx->measured, row)) {
    dfgnn__rows_free(ctx->measured); /* without memory: read it again */
    ctx->measured = NULL;
  }
  pthread_mutex_unlock(&ctx->memory_lock);
}

int dfgnn__context_close_store(dfgnn_context *ctx, dfgnn_store *store,
                               int64_t version) {
  pthread_mutex_lock(&ctx->memory_lock);
  dfgnn_store_layer *layer = written_layer(ctx);
  const int alone = version >= 0 && dfgnn__store_version(store) == version;
  dfgnn__store_close(store);
  layer->stamp = alone ? dfgnn__store_stamp(layer->path) : 0;
  pthread_mutex_unlock(&ctx->memory_lock);
  return alone;
}

void dfgnn__context_forget_measured(dfgnn_context *ctx) {
  pthread_mutex_lock(&ctx->memory_lock);
  dfgnn__rows_free(ctx->measured);
  ctx->measured = NULL;
  pthread_mutex_unlock(&ctx->memory_lock);
}

dfgnn_status dfgnn__context_learn(dfgnn_context *ctx,
                                  const dfgnn_measurement *rows, size_t count) {
  pthread_mutex_lock(&ctx->lock);
  dfgnn_status status = dfgnn__table_put(ctx->table, rows, count);
  dfgnn__decided_forget(ctx);
  pthread_mutex_unlock(&ctx->lock);
  return status;
}
