/* graph_reorder.c - dfgnn-graph reorder: numbers nodes anew */
#include "dfgnn_graph.h"
#include "graph/io/io.h"
#include "lib/base/error.h"
#include "tools/graph.h"
#include "tools/inputs.h"
#include "tools/report.h"

#include <stdlib.h>

typedef struct session {
  const tool_settings *settings;
  const char *label;
  dfgnn_context *ctx; /* in which signatures are computed */
  dfgnn_csr *csr;
  json_t *before, *rows;
  int64_t *order; /* rows, then columns, then edges */
} session;

static int64_t bandwidth(const dfgnn_csr *csr) {
  int64_t most = 0;
  for (int64_t i = 0; i < csr->destinations; i++)
    for (int64_t e = dfgnn__csr_offset(csr, i);
         e < dfgnn__csr_offset(csr, i + 1); e++) {
      int64_t span = llabs(i - dfgnn__csr_index(csr, e));
      most = span > most ? span : most;
    }
  return most;
}

/* Puts the figures that an order changes into a row. */
static dfgnn_status put_figures(json_t *row, const session *s,
                                const dfgnn_csr *csr) {
  dfgnn_graph *graph = NULL;
  dfgnn_signature signature = DFGNN_SIGNATURE_INIT;
  dfgnn_status status = dfgnn_graph_create_csr(&graph, s->ctx, csr, NULL);
  if (!status)
    status = dfgnn_graph_signature(&signature, graph);
  dfgnn_graph_destroy(graph);
  tool_put_number(row, "reuse", signature.reuse);
  tool_put_number(row, "locality", signature.locality);
  tool_put_count(row, "bandwidth", bandwidth(csr));
  return status;
}

static dfgnn_status write_map(const session *s) {
  const dfgnn_csr *csr = s->csr;
  const dfgnn__array arrays[] = {
      {.name = "rows", .data = s->order, .count = csr->destinations},
      {.name = "columns",
       .data = s->order + csr->destinations,
       .count = csr->sources},
      {.name = "edges",
       .data = s->order + csr->destinations + csr->sources,
       .count = csr->edges},
      {.name = NULL}};
  return dfgnn__arrays_write(s->settings->map, "a map of nodes", arrays);
}

/* Applies one method; writes the reordered graph to path unless it is NULL. */
static int apply(session *s, dfgnn_order order, const char *path) {
  const dfgnn_csr *csr = s->csr;
  int64_t *rows = s->order, *columns = rows + csr->destinations;
  dfgnn_csr *permuted = NULL;
  json_t *row = json_object(), *was;
  const char *key;
  int code = TOOL_DONE;
  double began = tool_now();
  dfgnn_status status = dfgnn_csr_order(rows, columns, csr, order);
  double ms = 1e3 * (tool_now() - began);
  if (!status)
    status = dfgnn_csr_permute(&permuted, columns + csr->sources, csr, rows,
                               columns);
  if (status)
    goto out;
  tool_put(row, "graph", s->label);
  tool_put(row, "method", dfgnn_name(DFGNN_NAMES_ORDER, order));
  tool_put_count(row, "destinations", csr->destinations);
  tool_put_count(row, "sources", csr->sources);
  tool_put_count(row, "edges", csr->edges);
  tool_put_number(row, "reorder_ms", ms);
  json_object_foreach(s->before, key, was) {
    char name[32];
    snprintf(name, sizeof name, "%s_before", key);
    json_object_set(row, name, was);
  }
  DFGNN_GO(put_figures(row, s, permuted));
  /* The map comes first: a graph without one cannot be used. */
  if (s->settings->map && (status = write_map(s)))
    goto out;
  if (path)
    code = graph_write(s->settings, permuted, path);
  if (!code)
    json_array_append(s->rows, row);
out:
  json_decref(row);
  dfgnn_csr_free(permuted);
  if (status)
    dfgnn__fail_prefix(status, "%s: %s: ", s->label,
                       dfgnn_name(DFGNN_NAMES_ORDER, order));
  return status ? tool_fail(status) : code;
}

static const tool_column columns[] = {
    {"graph", "GRAPH", TOOL_TEXT},
    {"method", "METHOD", TOOL_TEXT},
    {"reorder_ms", "TIME", TOOL_MS},
    {"reuse_before", "REUSE", TOOL_FIGURE},
    {"reuse", "AFTER", TOOL_FIGURE},
    {"locality_before", "LOCALITY", TOOL_FIGURE},
    {"locality", "AFTER", TOOL_FIGURE},
    {"bandwidth_before", "BANDWIDTH", TOOL_COUNT},
    {"bandwidth", "AFTER", TOOL_COUNT},
    {NULL, NULL, TOOL_TEXT}};

int graph_reorder(tool_settings *settings, int count, char **operands) {
  char label[256];
  session s = {.settings = settings,
               .label = label,
               .before = json_object(),
               .rows = json_array()};
  dfgnn_options options = {
      .struct_size = sizeof options, .device = "cpu", .store = ""};
  unsigned orders =
      settings->orders ? settings->orders : 1u << DFGNN_ORDER_COMMUNITY;
  int code = TOOL_DONE, several = orders & (orders - 1);
  if (several && (count > 1 || settings->map)) {
    code = tool_usage("found several methods, expected one with OUT or --map");
    goto out;
  }
  dfgnn_status status = dfgnn__csr_open(&s.csr, operands[0]);
  if (status) {
    code = graph_fail(status);
    goto out;
  }
  tool_graph_label(label, sizeof label, operands[0]);
  size_t numbers = (size_t)s.csr->destinations + (size_t)s.csr->sources +
                   (size_t)s.csr->edges + 1;
  s.order = malloc(numbers * sizeof *s.order);
  if (!s.order)
    status =
        dfgnn__fail(DFGNN_ERROR_MEMORY, "%s: cannot hold its order", label);
  if (status || (status = dfgnn_context_create(&s.ctx, &options)) ||
      (status = put_figures(s.before, &s, s.csr))) {
    code = tool_fail(status);
    goto out;
  }
  for (int o = 0; o < DFGNN_ORDER_COUNT; o++)
    if (orders >> o & 1) {
      int failed = apply(&s, (dfgnn_order)o, count > 1 ? operands[1] : NULL);
      code = code ? code : failed;
    }
  if (json_array_size(s.rows)) {
    int printed = tool_report(settings, json_incref(s.rows), columns);
    code = code ? code : printed;
  }
out:
  json_decref(s.rows);
  json_decref(s.before);
  free(s.order);
  dfgnn_csr_free(s.csr);
  dfgnn_context_destroy(s.ctx);
  return code;
}
