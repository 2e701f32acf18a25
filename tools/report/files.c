/* files.c - dfgnn_report: makes a report from store files and graph files */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dfgnn_graph.h"
#include "graph/io/io.h"
#include "lib/base/descriptor.h"
#include "lib/base/error.h"
#include "lib/context.h"
#include "tools/report/report.h"

/* ---- stores -------------------------------------------------------------- */

typedef struct stores {
  dfgnn_context places; /* only its layers are used */
  const char **name;
  size_t count;
  dfgnn_rows *rows;
  uint64_t invalid;
} stores;

static dfgnn_status load(dfgnn_rows *rows, uint64_t *invalid,
                         const char *path) {
  dfgnn_store_filter filter = DFGNN_STORE_FILTER_INIT;
  dfgnn_store *store = NULL;
  dfgnn_status status = dfgnn__store_open(&store, path, DFGNN_STORE_READ);
  if (!status)
    status = dfgnn__rows_load(rows, invalid, store, &filter);
  if (store)
    dfgnn__store_close(store);
  return status;
}

/* Stores that were named must exist; stores of the standard places may be
 * missing. */
static dfgnn_status open_stores(stores *s, const char *list) {
  dfgnn_status status = dfgnn__rows_create(&s->rows);
  if (!status)
    status = dfgnn__layers_find(&s->places, list);
  if (!status &&
      !(s->name = calloc(s->places.layer_count + 1, sizeof *s->name)))
    status = dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  for (size_t i = 0; i < s->places.layer_count && !status; i++) {
    const dfgnn_store_layer *layer = &s->places.layers[i];
    if (!layer->named && access(layer->path, F_OK))
      continue;
    status = load(s->rows, &s->invalid, layer->path);
    if (status && !layer->named && getenv("DFGNN_TRUSTED_KEYS"))
      status = DFGNN_OK; /* not signed: passed over, as contexts do */
    else
      s->name[s->count++] = layer->path;
  }
  return status;
}

static void close_stores(stores *s) {
  dfgnn__rows_free(s->rows);
  dfgnn__layers_free(&s->places);
  free(s->name);
}

/* ---- graphs -------------------------------------------------------------- */

static dfgnn_status count_sources(double share[DFGNN_HISTOGRAM_BINS],
                                  const dfgnn_csr *csr) {
  uint32_t *degree = calloc((size_t)csr->sources + 1, sizeof *degree);
  if (!degree)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  for (int64_t e = 0; e < csr->edges; e++)
    degree[dfgnn__csr_index(csr, e)]++;
  for (int64_t j = 0; j < csr->sources; j++) {
    int bin = 0;
    for (uint32_t x = degree[j]; x; x >>= 1)
      bin++;
    share[bin < DFGNN_HISTOGRAM_BINS ? bin : DFGNN_HISTOGRAM_BINS - 1] +=
        1 / (double)csr->sources;
  }
  free(degree);
  return DFGNN_OK;
}

dfgnn_status dfgnn__report_graph_read(dfgnn_report_graph *graph,
                                      const char *name) {
  dfgnn_options options = DFGNN_OPTIONS_INIT;
  dfgnn_context *ctx = NULL;
  dfgnn_graph *made = NULL;
  dfgnn_csr *csr = NULL;
  options.device = "cpu";
  options.store = "";
  *graph =
      (dfgnn_report_graph){.operand = name, .signature = DFGNN_SIGNATURE_INIT};
  dfgnn_status status = dfgnn__csr_open(&csr, name);
  if (status)
    return status;
  /* a generator's specification is its own label, as dfgnn-tune has it */
  snprintf(graph->name, sizeof graph->name, "%s",
           access(name, F_OK) ? name : csr->name);
  status = dfgnn__csr_check(csr);
  if (!status)
    status = dfgnn__context_open(&ctx, &options);
  if (!status)
    status = dfgnn_graph_create_csr(&made, ctx, csr, NULL);
  if (!status)
    status = dfgnn_graph_signature(&graph->signature, made);
  if (!status)
    status = count_sources(graph->sources, csr);
  dfgnn_graph_destroy(made);
  if (ctx)
    dfgnn_context_destroy(ctx);
  dfgnn_csr_free(csr);
  return status;
}

static dfgnn_status read_graphs(dfgnn_report_graph **list, size_t *count,
                                const char *const *names) {
  size_t n = 0;
  while (names && names[n])
    n++;
  *list = calloc(n + 1, sizeof **list);
  if (!*list)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  dfgnn_status status = DFGNN_OK;
  for (*count = 0; *count < n && !status; ++*count)
    status = dfgnn__report_graph_read(&(*list)[*count], names[*count]);
  return status;
}

/* ---- reports ------------------------------------------------------------- */

static dfgnn_status take(dfgnn_report_options *options,
                         const dfgnn_report_options *given) {
  static const dfgnn_descriptor_kind kind = DFGNN_DESCRIPTOR(
      "options", dfgnn_report_options, "DFGNN_REPORT_OPTIONS_INIT");
  dfgnn_status status = given ? dfgnn__take(options, given, &kind) : DFGNN_OK;
  if (status)
    return status;
  if (!(options->copy_gbps >= 0) || !isfinite(options->copy_gbps))
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "options.copy_gbps is %g, expected GB/s, or 0",
                       options->copy_gbps);
  return DFGNN_OK;
}

dfgnn_status dfgnn__report_files(dfgnn_page *page,
                                 const dfgnn_report_options *options) {
  dfgnn_report_options whole = DFGNN_REPORT_OPTIONS_INIT;
  stores here = {0};
  dfgnn_rows *other = NULL;
  dfgnn_report_graph *graphs = NULL;
  size_t graph_count = 0;
  const dfgnn_report_options *o = &whole;
  dfgnn_status status = take(&whole, options);
  if (status)
    return status;
  status = open_stores(&here, o->store);
  if (!status && o->against) {
    status = dfgnn__rows_create(&other);
    if (!status)
      status = load(other, NULL, o->against);
  }
  if (!status)
    status = read_graphs(&graphs, &graph_count, o->graphs);
  if (!status) {
    dfgnn_report_input input = {.title =
                                    o->title ? o->title : "dfgnn: measurements",
                                .command = o->command,
                                .commit = o->commit,
                                .named = o->store,
                                .store = here.name,
                                .stores = here.count,
                                .invalid = here.invalid,
                                .graph = graphs,
                                .graphs = graph_count,
                                .other = o->against,
                                .copy_gbps = o->copy_gbps,
                                .all = o->all};
    input.row = dfgnn__rows_get(here.rows, &input.count);
    if (other)
      input.other_row = dfgnn__rows_get(other, &input.other_count);
    status = dfgnn__report_page(page, &input);
  }
  free(graphs);
  if (other)
    dfgnn__rows_free(other);
  close_stores(&here);
  return status;
}

dfgnn_status dfgnn_report(const char *path,
                          const dfgnn_report_options *options) {
  dfgnn_page page = {0};
  if (!path || !*path)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "path is %s, expected the file to write",
                       path ? "empty" : "NULL");
  dfgnn_status status = dfgnn__report_files(&page, options);
  if (!status)
    status = dfgnn__report_write(path, &page);
  dfgnn__page_free(&page);
  return status;
}
