/* kernels.c - describes the compiler and the compiled kernels */
#include "tools/kernels.h"

#include <stdio.h>
#include <string.h>

#include "kernels/engine/cache.h"
#include "kernels/engine/driver.h"
#include "lib/context.h"

static json_t *fact(json_t *rows, const char *name, const char *value) {
  json_t *row = json_object();
  tool_put(row, "kind", "kernels");
  tool_put(row, "name", name);
  tool_put(row, "value", value);
  json_array_append_new(rows, row);
  return row;
}

static void put_compiler(json_t *rows) {
  const dfgnn_compiler_info *c = dfgnn__compiler();
  char text[600];
  if (!*c->path) {
    json_t *row = fact(rows, "compiler", c->problem);
    tool_put_flag(row, "exists", 0);
    return;
  }
  snprintf(text, sizeof text, "NVRTC %d.%d, %s", c->major, c->minor, c->path);
  json_t *row = fact(rows, "compiler", text);
  tool_put_flag(row, "exists", 1);
  *text = 0;
  for (int i = 0; i < c->architecture_count; i++)
    snprintf(text + strlen(text), sizeof text - strlen(text), "%ssm_%d",
             i ? " " : "", c->architectures[i]);
  (void)fact(rows, "compiles for", text);
}

/* Writes a text such as "123 kernels, 4.1 of 256 MiB, used 456 times". */
static void cache_text(char *text, size_t size, const dfgnn_cache_info *c) {
  if (*c->problem)
    snprintf(text, size, "not used: %s", c->problem);
  else
    snprintf(text, size, "%lld kernels, %.3g of %lld MiB, used %lld times",
             (long long)c->entries, (double)c->bytes / (1 << 20),
             (long long)(c->limit_bytes >> 20), (long long)c->uses);
}

static json_t *put_cache(json_t *rows) {
  dfgnn_cache_info c;
  char text[600];
  dfgnn__cache_describe(&c);
  cache_text(text, sizeof text, &c);
  json_t *row = fact(rows, *c.path ? c.path : "no cache", text);
  tool_put_count(row, "entries", c.entries);
  tool_put_count(row, "bytes", c.bytes);
  tool_put_count(row, "limit_bytes", c.limit_bytes);
  tool_put_count(row, "hits", c.uses);
  return row;
}

static void put_packs(json_t *rows) {
  dfgnn_pack_info p;
  char text[600];
  dfgnn__pack_trust_keys();
  for (int i = 0; dfgnn__pack_describe(&p, i); i++) {
    if (*p.problem)
      snprintf(text, sizeof text, "refused: %.500s", p.problem);
    else
      snprintf(text, sizeof text, "pack of %lld kernels, %.3g MiB",
               (long long)p.entries, (double)p.bytes / (1 << 20));
    json_t *row = fact(rows, p.path, text);
    tool_put_count(row, "entries", p.entries);
    tool_put_count(row, "bytes", p.bytes);
    tool_put_flag(row, "usable", !*p.problem);
  }
}

void tool_kernels_describe(json_t *rows) {
  put_compiler(rows);
  (void)put_cache(rows);
  put_packs(rows);
}

void tool_kernels_stat(const tool_settings *settings) {
  dfgnn_cache_info c;
  char text[600];
  dfgnn__cache_describe(&c);
  cache_text(text, sizeof text, &c);
  tool_note(settings, "compiled kernels: %s (%s)", text,
            *c.path ? c.path : "no cache");
}

int tool_kernels_report(const tool_settings *settings) {
  static const tool_column columns[] = {{"name", "FILE", TOOL_TEXT},
                                        {"entries", "KERNELS", TOOL_COUNT},
                                        {"bytes", "SIZE", TOOL_BYTES},
                                        {"limit_bytes", "LIMIT", TOOL_BYTES},
                                        {"hits", "HITS", TOOL_COUNT},
                                        {"value", "STATE", TOOL_TEXT},
                                        {NULL, NULL, 0}};
  json_t *rows = json_array();
  (void)put_cache(rows);
  return tool_report(settings, rows, columns);
}

int tool_kernels_prune(const tool_settings *settings) {
  static const tool_column columns[] = {{"file", "FILE", TOOL_TEXT},
                                        {"removed", "REMOVED", TOOL_COUNT},
                                        {NULL, NULL, 0}};
  dfgnn_cache_info c;
  int64_t removed = 0;
  dfgnn__cache_describe(&c);
  if (*c.problem)
    return tool_error("%s: %s", *c.path ? c.path : "no cache of kernels",
                      c.problem);
  if (settings->dry_run)
    removed = c.entries;
  else if (dfgnn__cache_clear(&removed))
    return tool_fail(DFGNN_ERROR_IO);
  json_t *rows = json_array(), *row = json_object();
  tool_put(row, "file", c.path);
  tool_put_count(row, "removed", removed);
  json_array_append_new(rows, row);
  return tool_report(settings, rows, columns);
}

/* Says in one line whether this machine can run CUDA kernels, or what is
 * missing for that. */
int tool_kernels_diagnose(char *text, size_t size) {
  char problem[512];
  dfgnn__pack_trust_keys();
  if (!dfgnn__driver()) {
    snprintf(text, size, "there is no GPU driver (%s): the CPU is used",
             dfgnn__driver_problem());
    return 0;
  }
  if (*dfgnn__compiler()->path) {
    snprintf(text, size, "NVRTC %d.%d compiles what is not in the cache",
             dfgnn__compiler()->major, dfgnn__compiler()->minor);
    return 1;
  }
  snprintf(problem, sizeof problem, "%s", dfgnn__compiler()->problem);
  if (dfgnn__pack_count() > 0) {
    snprintf(text, size,
             "there is no compiler (%.300s); what the packs lack "
             "cannot run",
             problem);
    return 1;
  }
  snprintf(text, size,
           "there is neither a compiler (%.200s) nor a pack: install one with "
           "`pip install nvidia-cuda-nvrtc` or a CUDA toolkit, or name a pack "
           "in DFGNN_KERNEL_PACK",
           problem);
  return 0;
}
