/* choices.c - what a context chooses by, carried to another one */
#include <stdlib.h>
#include <string.h>

#include "db/store.h"
#include "lib/base/error.h"
#include "lib/context.h"
#include "lib/handle.h"

typedef struct marks {
  dfgnn_store *to;
  dfgnn_status status;
} marks;

static int add_pin(void *data, const dfgnn_pin *pin) {
  marks *m = data;
  m->status = dfgnn__store_pin(m->to, pin);
  return m->status != DFGNN_OK;
}

static int add_ban(void *data, const char *name) {
  marks *m = data;
  m->status = dfgnn__store_ban(m->to, name, 1);
  return m->status != DFGNN_OK;
}

/* The first layer that pins a problem wins: marks are added from the last on.
 */
static dfgnn_status copy_layer(dfgnn_store *to, const dfgnn_store_layer *layer,
                               const dfgnn_store_filter *filter) {
  dfgnn_store *from = NULL;
  marks m = {.to = to};
  if (layer->package || !dfgnn__store_stamp(layer->path))
    return DFGNN_OK;
  dfgnn_status status = dfgnn__store_open(&from, layer->path, DFGNN_STORE_READ);
  if (status) /* as when the context loaded it */
    return layer->named ? status : DFGNN_OK;
  status = dfgnn__store_merge(to, NULL, from, filter);
  if (!status)
    status = dfgnn__store_each_pin(from, add_pin, &m);
  if (!status && !m.status)
    status = dfgnn__store_each_ban(from, add_ban, &m);
  dfgnn__store_close(from);
  return status ? status : m.status;
}

static dfgnn_status copy_kept(dfgnn_store *to, dfgnn_context *ctx,
                              const dfgnn_store_filter *filter) {
  pthread_mutex_lock(&ctx->memory_lock);
  dfgnn_status status = ctx->memory
                            ? dfgnn__store_merge(to, NULL, ctx->memory, filter)
                            : DFGNN_OK;
  pthread_mutex_unlock(&ctx->memory_lock);
  return status;
}

dfgnn_status dfgnn_context_save_choices(dfgnn_context *ctx, const char *path) {
  dfgnn_store_filter filter = DFGNN_STORE_FILTER_INIT;
  dfgnn_store *to;
  DFGNN_TRY(dfgnn__check_context(ctx));
  if (!path)
    return dfgnn__fail(DFGNN_ERROR_INVALID, "path is NULL");
  filter.backend = ctx->info.backend;
  filter.arch = ctx->info.arch;
  DFGNN_TRY(dfgnn__store_open(&to, path, DFGNN_STORE_WRITE));
  dfgnn_status status = DFGNN_OK;
  for (size_t i = ctx->layer_count; i-- > 0 && !status;)
    status = copy_layer(to, &ctx->layers[i], &filter);
  if (!status)
    status = copy_kept(to, ctx, &filter);
  dfgnn__store_close(to);
  return status;
}

/* Makes the file and the package's store the context's layers. */
static dfgnn_status replace_layers(dfgnn_context *ctx, const char *path) {
  size_t count = 1;
  dfgnn_store_layer *layers = calloc(ctx->layer_count + 1, sizeof *layers);
  char *copy = strdup(path);
  if (!layers || !copy) {
    free(layers);
    free(copy);
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  }
  layers[0] = (dfgnn_store_layer){.path = copy, .named = 1};
  for (size_t i = 0; i < ctx->layer_count; i++)
    if (ctx->layers[i].package)
      layers[count++] = ctx->layers[i];
    else
      free(ctx->layers[i].path);
  free(ctx->layers);
  ctx->layers = layers;
  ctx->layer_count = count;
  dfgnn__store_close(ctx->memory);
  ctx->memory = NULL;
  return DFGNN_OK;
}

dfgnn_status dfgnn_context_take_choices(dfgnn_context *ctx, const char *path) {
  dfgnn_store *store;
  DFGNN_TRY(dfgnn__check_context(ctx));
  if (!path)
    return dfgnn__fail(DFGNN_ERROR_INVALID, "path is NULL");
  dfgnn_status status = dfgnn__store_open(&store, path, DFGNN_STORE_READ);
  if (status) /* the context is as it was */
    return status;
  dfgnn__store_close(store);
  pthread_mutex_lock(&ctx->memory_lock);
  status = replace_layers(ctx, path);
  pthread_mutex_unlock(&ctx->memory_lock);
  if (!status)
    status = dfgnn_context_reload(ctx);
  atomic_fetch_add(&ctx->taken, 1);
  return status;
}
