/* tune_info.c - dfgnn-tune info: this machine, the stores, the environment */
#include "tools/kernels.h"
#include "tools/layers.h"
#include "tools/report.h"
#include "tools/tune.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static json_t *fact(json_t *rows, const char *kind, const char *name,
                    const char *value) {
  json_t *row = json_object();
  tool_put(row, "kind", kind);
  tool_put(row, "name", name);
  tool_put(row, "value", value);
  json_array_append_new(rows, row);
  return row;
}

static void number(json_t *rows, const char *kind, const char *name, double x,
                   const char *unit) {
  char text[64];
  if (!strcmp(unit, "B"))
    snprintf(text, sizeof text, "%.4g %s", x / (x < 1e9 ? 1048576 : 1073741824),
             x < 1e9 ? "MiB" : "GiB");
  else
    snprintf(text, sizeof text, "%.6g%s%s", x, *unit ? " " : "", unit);
  json_t *row = fact(rows, kind, name, text);
  tool_put_number(row, "number", x);
}

static void put_device(json_t *rows, const tool_contexts *c, int i) {
  const dfgnn_device_info *info = &c->info[i];
  char kind[64];
  snprintf(kind, sizeof kind, !strcmp(info->backend, "cpu") ? "%s" : "%s:%d",
           info->backend, info->ordinal);
  fact(rows, kind, "model", info->model);
  fact(rows, kind, "architecture", info->arch);
  number(rows, kind, *info->driver ? "multiprocessors" : "threads", info->units,
         "");
  number(rows, kind, "last-level cache", (double)info->cache_bytes, "B");
  number(rows, kind, "memory", (double)info->memory_bytes, "B");
  if (info->shared_bytes)
    number(rows, kind, "shared memory of a block", (double)info->shared_bytes,
           "B");
  if (*info->driver)
    fact(rows, kind, "driver", info->driver);
  fact(rows, kind, "runtime", info->runtime);
}

static void put_layers(json_t *rows, const dfgnn_context *ctx) {
  int64_t *winners = calloc(ctx->layer_count + 1, sizeof *winners);
  size_t problems = winners ? tool_layers_winners(winners, ctx) : 0;
  for (size_t i = 0; winners && i < ctx->layer_count; i++) {
    const dfgnn_store_layer *layer = &ctx->layers[i];
    char text[256];
    int exists = !access(layer->path, F_OK);
    if (exists)
      snprintf(text, sizeof text,
               "%llu rows for %s, %llu invalid, answers %lld of %zu "
               "problems%s",
               (unsigned long long)layer->rows, ctx->info.arch,
               (unsigned long long)layer->invalid, (long long)winners[i],
               problems, layer->writable ? ", written" : "");
    else
      snprintf(text, sizeof text, "absent%s",
               layer->writable ? ", written" : "");
    json_t *row = fact(rows, "store", layer->path, text);
    tool_put_count(row, "rows", (int64_t)layer->rows);
    tool_put_count(row, "invalid", (int64_t)layer->invalid);
    tool_put_count(row, "answers", winners[i]);
    tool_put_count(row, "problems", (int64_t)problems);
    tool_put_flag(row, "writable", layer->writable);
    tool_put_flag(row, "exists", exists);
    tool_put(row, "arch", ctx->info.arch);
  }
  free(winners);
}

static void put_environment(json_t *rows) {
  const char *meaning;
  for (size_t i = 0;; i++) {
    const char *name = dfgnn__environment_variable(i, &meaning);
    if (!name)
      break;
    const char *value = getenv(name);
    json_t *row = fact(rows, "environment", name, value ? value : "not set");
    tool_put_flag(row, "set", value != NULL);
    tool_put(row, "meaning", meaning);
  }
}

static void put_versions(json_t *rows) {
  fact(rows, "version", "dfgnn", dfgnn_version());
  fact(rows, "version", "jansson", JANSSON_VERSION);
  fact(rows, "version", "backends", "cpu cuda");
  number(rows, "version", "variants", (double)dfgnn_variant_count(), "");
}

static int command(tool_settings *settings, int count, char **operands) {
  static const tool_column columns[] = {{"kind", "OF", TOOL_TEXT},
                                        {"name", "WHAT", TOOL_TEXT},
                                        {"value", "VALUE", TOOL_TEXT},
                                        {NULL, NULL, 0}};
  tool_contexts contexts;
  (void)count;
  (void)operands;
  if (!(settings->given & HAS(DEVICE)))
    settings->device = "all";
  DFGNN_TRY(tool_contexts_open(&contexts, settings));
  json_t *rows = json_array();
  put_versions(rows);
  for (int i = 0; i < contexts.count; i++)
    put_device(rows, &contexts, i);
  for (int i = 0; i < contexts.count; i++)
    put_layers(rows, contexts.ctx[i]);
  tool_kernels_describe(rows);
  put_environment(rows);
  tool_contexts_close(&contexts);
  return tool_report(settings, rows, columns);
}

const tool_command tune_info = {
    .name = "info",
    .operands = "",
    .summary = "Show devices, stores, environment and versions",
    .text =
        "Shows the identity that measurements are stored under, the stores in "
        "the order they are read with their rows for each device and how many "
        "of the measured problems they answer (hold the winner of), and the "
        "environment variables in effect. 'dfgnn-tune explain' names the "
        "store behind one call.",
    .options = HAS(DEVICE) | HAS(THREADS) | HAS(STORE) | HAS_TABLE,
    .selects = 1,
    .main = command};
