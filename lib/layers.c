/* layers.c - where the tuning stores are, and reading them
 *
 * The user's store comes first and is the one written, then the site's, then
 * the package's.  Evidence ranks rows, not layers. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "db/store.h"
#include "lib/base/error.h"
#include "lib/base/filesystem.h"
#include "lib/context.h"

#ifndef DFGNN_SYSCONFDIR
#define DFGNN_SYSCONFDIR "/etc"
#endif

static dfgnn_status add_layer(dfgnn_context *ctx, const char *path,
                              size_t length, int named, int writable) {
  dfgnn_store_layer *grown =
      realloc(ctx->layers, (ctx->layer_count + 1) * sizeof *grown);
  if (!grown)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  ctx->layers = grown;
  dfgnn_store_layer *layer = &grown[ctx->layer_count];
  *layer = (dfgnn_store_layer){
      .path = strndup(path, length), .named = named, .writable = writable};
  if (!layer->path)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  ctx->layer_count++;
  return DFGNN_OK;
}

static dfgnn_status add_named(dfgnn_context *ctx, const char *list) {
  int first = 1;
  for (const char *part = list; *part;) {
    size_t length = strcspn(part, ":");
    /* ":memory:" would be split; nobody can share it, so it is no layer */
    DFGNN_TRY(length ? add_layer(ctx, part, length, 1, first) : DFGNN_OK);
    first = first && !length;
    part += length + (part[length] == ':');
  }
  return DFGNN_OK;
}

static dfgnn_status add_standard(dfgnn_context *ctx) {
  char path[4096] = "";
  const char *data = getenv("XDG_DATA_HOME"), *home = getenv("HOME");
  dfgnn_status status = DFGNN_OK;
  if (data && data[0] == '/')
    snprintf(path, sizeof path, "%s/dfgnn/tuning.db", data);
  else if (home && home[0] == '/')
    snprintf(path, sizeof path, "%s/.local/share/dfgnn/tuning.db", home);
  if (path[0])
    status = add_layer(ctx, path, strlen(path), 0, 1);
  const char *package = getenv("DFGNN_PACKAGE_STORE");
  if (!package || !*package) {
    snprintf(path, sizeof path, "%s/tuning.db", dfgnn__package_folder());
    package = path;
  }
  const char *const shared[] = {DFGNN_SYSCONFDIR "/dfgnn/tuning.db", package};
  for (int i = 0; i < 2 && !status; i++)
    status = add_layer(ctx, shared[i], strlen(shared[i]), 0, 0);
  if (!status)
    ctx->layers[ctx->layer_count - 1].package = 1;
  return status;
}

int dfgnn__makes_stores;

static int absent(const char *path) {
  return access(path, F_OK) && (errno == ENOENT || errno == ENOTDIR);
}

/* Finds another store, by its name, in the folder of a path. */
static int find_other(char *name, size_t size, const char *path) {
  const char *slash = strrchr(path, '/');
  char folder[4096] = ".";
  int found = 0;
  if (slash)
    snprintf(folder, sizeof folder, "%.*s", (int)(slash - path + 1), path);
  DIR *listing = opendir(folder);
  for (const struct dirent *entry;
       listing && !found && (entry = readdir(listing));) {
    const size_t n = strlen(entry->d_name);
    found = n > 3 && !strcmp(entry->d_name + n - 3, ".db");
    snprintf(name, size, "%s", entry->d_name);
  }
  if (listing)
    closedir(listing);
  return found;
}

/* Tuning makes the first store if it is missing, so that a new one is nothing
 * to warn of.  If its name is misspelt, which would silently have a program run
 * by the rule, the store that was meant may lie beside it. */
static void tell_of_missing(const dfgnn_context *ctx) {
  const dfgnn_store_layer *first = ctx->layers;
  char other[256];
  if (!ctx->layer_count || !first->named || !first->writable ||
      !absent(first->path) || dfgnn__makes_stores ||
      ctx->effort == DFGNN_EFFORT_MEASURE)
    return;
  const int beside = find_other(other, sizeof other, first->path);
  dfgnn__log(ctx, beside ? DFGNN_LOG_WARN : DFGNN_LOG_INFO,
             "%s: there is no such store, so it answers nothing until tuning "
             "makes it%s%s",
             first->path, beside ? "; its folder has " : "",
             beside ? other : "");
}

/* Is a store's folder missing, so that nothing can make the store?  That of the
 * user's own store is made with it. */
static int has_no_folder(char *folder, size_t size, const char *path) {
  static const char own[] = "/dfgnn/tuning.db";
  const char *slash = strrchr(path, '/');
  const size_t length = strlen(path);
  if (!slash || slash == path ||
      (length >= sizeof own && !strcmp(path + length - (sizeof own - 1), own)))
    return 0;
  snprintf(folder, size, "%.*s", (int)(slash - path), path);
  return absent(folder);
}

dfgnn_status dfgnn__layers_find(dfgnn_context *ctx, const char *store) {
  const char *list = store ? store : getenv("DFGNN_STORE");
  char folder[4096];
  DFGNN_TRY(list ? add_named(ctx, list) : add_standard(ctx));
  if (store && ctx->layer_count &&
      has_no_folder(folder, sizeof folder, ctx->layers[0].path))
    return dfgnn__fail(DFGNN_ERROR_STORE,
                       "%s: there is no folder %s; make it, or name another "
                       "store",
                       ctx->layers[0].path, folder);
  tell_of_missing(ctx);
  return DFGNN_OK;
}

void dfgnn__layers_free(dfgnn_context *ctx) {
  for (size_t i = 0; i < ctx->layer_count; i++)
    free(ctx->layers[i].path);
  free(ctx->layers);
}

dfgnn_status dfgnn__context_keep(dfgnn_context *ctx,
                                 const dfgnn_measurement *row) {
  dfgnn_status status = DFGNN_OK;
  pthread_mutex_lock(&ctx->memory_lock);
  if (!ctx->memory)
    status = dfgnn__store_open(&ctx->memory, ":memory:", DFGNN_STORE_WRITE);
  if (!status)
    status = dfgnn__store_record(ctx->memory, NULL, row);
  pthread_mutex_unlock(&ctx->memory_lock);
  return status;
}

dfgnn_status dfgnn__context_kept(dfgnn_rows *rows, dfgnn_context *ctx,
                                 const dfgnn_store_filter *filter) {
  dfgnn_status status = DFGNN_OK;
  pthread_mutex_lock(&ctx->memory_lock);
  if (ctx->memory)
    status = dfgnn__rows_load(rows, NULL, ctx->memory, filter);
  pthread_mutex_unlock(&ctx->memory_lock);
  return status;
}

typedef struct pin_target {
  dfgnn_table *table;
  dfgnn_context *ctx;
  int ignored;
} pin_target;

#define TOLD 8 /* a store of strangers may have any number */

static void ignore(pin_target *target, const char *mark) {
  if (target->ignored++ < TOLD)
    dfgnn__log(target->ctx, DFGNN_LOG_WARN, "%s ignored: %s", mark,
               dfgnn_last_error());
}

static int add_pin(void *data, const dfgnn_pin *pin) {
  pin_target *target = data;
  if (dfgnn__table_pin(target->table, pin))
    ignore(target, "pin");
  return 0;
}

static int add_ban(void *data, const char *name) {
  pin_target *target = data;
  if (dfgnn__table_ban(target->table, name))
    ignore(target, "ban");
  return 0;
}

/* Adds the pins and bans of a layer, which the package's has not. */
static dfgnn_status add_marks(dfgnn_store *store, dfgnn_table *table,
                              dfgnn_context *ctx) {
  pin_target target = {table, ctx, 0};
  dfgnn_status status = dfgnn__store_each_pin(store, add_pin, &target);
  if (!status)
    status = dfgnn__store_each_ban(store, add_ban, &target);
  if (target.ignored > TOLD)
    dfgnn__log(ctx, DFGNN_LOG_WARN, "%s: %d more pins or bans ignored",
               dfgnn__store_path(store), target.ignored - TOLD);
  return status;
}

typedef struct layer_counts {
  uint64_t rows, invalid;
} layer_counts;

/* Adds the rows of one layer.  A store of the standard places that is absent or
 * broken must not stop a program; a store that somebody named is an error then.
 */
static dfgnn_status load_layer(dfgnn_store **store, dfgnn_rows *rows,
                               dfgnn_context *ctx,
                               const dfgnn_store_layer *layer,
                               layer_counts *counts) {
  dfgnn_store_filter filter = DFGNN_STORE_FILTER_INIT;
  size_t before, after;
  filter.backend = ctx->info.backend;
  filter.arch = ctx->info.arch;
  if (absent(layer->path) && (!layer->named || layer->writable))
    return DFGNN_OK;
  dfgnn__rows_get(rows, &before);
  dfgnn_status status = dfgnn__store_open(store, layer->path, DFGNN_STORE_READ);
  if (!status)
    status = dfgnn__rows_load(rows, &counts->invalid, *store, &filter);
  if (status && !layer->named) {
    dfgnn__log(ctx, DFGNN_LOG_WARN, "store skipped: %s", dfgnn_last_error());
    dfgnn__store_close(*store);
    *store = NULL;
    status = DFGNN_OK;
  }
  dfgnn__rows_get(rows, &after);
  counts->rows = after - before;
  return status;
}

dfgnn_status dfgnn__layers_load(dfgnn_table **table, dfgnn_context *ctx) {
  dfgnn_store **stores = calloc(ctx->layer_count + 1, sizeof *stores);
  dfgnn_rows *rows = NULL;
  dfgnn_table *loaded = NULL;
  dfgnn_keys *keys = NULL;
  layer_counts *counts = calloc(ctx->layer_count + 1, sizeof *counts);
  uint64_t unusable = 0;
  size_t count = 0, own = 0;
  dfgnn_status status = stores && counts
                            ? dfgnn__rows_create(&rows)
                            : dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  if (!status) /* wrong keys are an error even if no store is named */
    status = dfgnn__trusted_keys(&keys);
  /* The package's rows come last. */
  for (int package = 0; package < 2; package++) {
    for (size_t i = 0; i < ctx->layer_count && !status; i++)
      if (ctx->layers[i].package == package)
        status = load_layer(&stores[i], rows, ctx, &ctx->layers[i], &counts[i]);
    if (!status && !package) {
      status = dfgnn__context_kept(rows, ctx, NULL);
      dfgnn__rows_get(rows, &own);
    }
  }
  const dfgnn_measurement *all = NULL;
  if (!status) {
    all = dfgnn__rows_get(rows, &count);
    status =
        dfgnn__table_create(&loaded, &unusable, &ctx->info, all, own, count);
  }
  for (size_t i = 0; i < ctx->layer_count && !status; i++)
    if (stores[i] && !ctx->layers[i].package)
      status = add_marks(stores[i], loaded, ctx);
  if (!status) {
    if (unusable)
      dfgnn__log(ctx, DFGNN_LOG_INFO,
                 "%llu of %zu measurements name variants or revisions that "
                 "this library does not have",
                 (unsigned long long)unusable, count);
    pthread_mutex_lock(&ctx->lock);
    for (size_t i = 0; i < ctx->layer_count; i++) {
      ctx->layers[i].rows = counts[i].rows;
      ctx->layers[i].invalid = counts[i].invalid;
    }
    pthread_mutex_unlock(&ctx->lock);
    *table = loaded;
    loaded = NULL;
  }
  if (loaded)
    dfgnn__table_destroy(loaded);
  for (size_t i = 0; stores && i < ctx->layer_count; i++)
    if (stores[i])
      dfgnn__store_close(stores[i]);
  dfgnn__rows_free(rows);
  dfgnn__keys_free(keys);
  free(counts);
  free(stores);
  return status;
}
