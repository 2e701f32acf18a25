/* graph_info.c - dfgnn-graph info: statistics and signature of graphs */
#include "dfgnn_graph.h"
#include "graph/io/build.h"
#include "graph/io/io.h"
#include "lib/base/error.h"
#include "tools/graph.h"
#include "tools/inputs.h"
#include "tools/report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BAR 40

typedef struct facts {
  int64_t self_loops, duplicates;
  int sorted, symmetric;
} facts;

/* Finds figures that are not in the signature, as selection does not use them.
 */
static dfgnn_status find_facts(facts *f, const dfgnn_csr *csr) {
  dfgnn_status status = DFGNN_OK;
  int64_t longest = 0;
  *f = (facts){.sorted = 1};
  for (int64_t i = 0; i < csr->destinations; i++) {
    int64_t degree = dfgnn__csr_offset(csr, i + 1) - dfgnn__csr_offset(csr, i);
    longest = degree > longest ? degree : longest;
  }
  int32_t *row = malloc((size_t)(2 * longest + 1) * sizeof *row);
  if (!row)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "cannot hold a row of %lld edges",
                       (long long)longest);
  for (int64_t i = 0; i < csr->destinations; i++) {
    int64_t begin = dfgnn__csr_offset(csr, i);
    int64_t degree = dfgnn__csr_offset(csr, i + 1) - begin;
    for (int64_t k = 0; k < degree; k++) {
      row[k] = (int32_t)dfgnn__csr_index(csr, begin + k);
      f->sorted &= k == 0 || row[k - 1] <= row[k];
      f->self_loops += row[k] == i;
    }
    dfgnn__sort(row, row + degree, degree);
    for (int64_t k = 1; k < degree; k++)
      f->duplicates += row[k] == row[k - 1];
  }
  if (csr->destinations != csr->sources)
    f->self_loops = 0;
  f->symmetric = dfgnn__csr_symmetric(csr);
  if (f->symmetric < 0)
    status = (dfgnn_status)f->symmetric;
  free(row);
  return status;
}

static json_t *info_row(const char *label, const dfgnn_signature *s,
                        const facts *f) {
  char fingerprint[24];
  json_t *row = json_object(), *histogram = json_array();
  int bins = DFGNN_HISTOGRAM_BINS;
  snprintf(fingerprint, sizeof fingerprint, "%016llx",
           (unsigned long long)s->fingerprint);
  while (bins > 1 && s->histogram[bins - 1] == 0)
    bins--;
  for (int b = 0; b < bins; b++)
    json_array_append_new(histogram, tool_number(s->histogram[b]));
  tool_put(row, "graph", label);
  tool_put_count(row, "destinations", s->destinations);
  tool_put_count(row, "sources", s->sources);
  tool_put_count(row, "edges", s->edges);
  tool_put_number(row, "mean_degree", s->mean_degree);
  tool_put_count(row, "p50_degree", s->p50_degree);
  tool_put_count(row, "p90_degree", s->p90_degree);
  tool_put_count(row, "p99_degree", s->p99_degree);
  tool_put_count(row, "max_degree", s->max_degree);
  tool_put_number(row, "degree_cv", s->degree_cv);
  tool_put_number(row, "isolated", s->isolated);
  tool_put_count(row, "p50_source_degree", s->p50_source_degree);
  tool_put_count(row, "p99_source_degree", s->p99_source_degree);
  tool_put_count(row, "max_source_degree", s->max_source_degree);
  tool_put_number(row, "source_cv", s->source_cv);
  tool_put_number(row, "isolated_sources", s->isolated_sources);
  tool_put_count(row, "self_loops", f->self_loops);
  tool_put_count(row, "duplicates", f->duplicates);
  tool_put_flag(row, "symmetric", f->symmetric);
  tool_put_flag(row, "sorted", f->sorted);
  tool_put_number(row, "reuse", s->reuse);
  tool_put_number(row, "locality", s->locality);
  tool_put_count(row, "graphs", s->graphs);
  tool_put_count(row, "largest_graph", s->largest_graph);
  tool_put_number(row, "density", s->density);
  tool_put(row, "fingerprint", fingerprint);
  json_object_set_new(row, "histogram", histogram);
  return row;
}

static int64_t count_of(json_t *row, const char *key) {
  return json_integer_value(json_object_get(row, key));
}

static double number_of(json_t *row, const char *key) {
  return json_number_value(json_object_get(row, key));
}

/* Prints bars for the classes of degree 0, 1, 2..3, 4..7, ... */
static void print_histogram(json_t *row) {
  json_t *histogram = json_object_get(row, "histogram"), *share;
  int64_t rows = count_of(row, "destinations");
  size_t b;
  double most = 0;
  json_array_foreach(histogram, b, share) most =
      fmax(most, json_number_value(share));
  printf("\n%15s %12s %8s\n", "degree", "rows", "share");
  json_array_foreach(histogram, b, share) {
    double x = json_number_value(share);
    char label[32];
    int64_t low = b ? (int64_t)1 << (b - 1) : 0, high = 2 * low - 1;
    if (b == DFGNN_HISTOGRAM_BINS - 1)
      snprintf(label, sizeof label, ">= %lld", (long long)low);
    else if (b < 2)
      snprintf(label, sizeof label, "%lld", (long long)low);
    else
      snprintf(label, sizeof label, "%lld..%lld", (long long)low,
               (long long)high);
    int bar = most > 0 ? (int)ceil(x / most * BAR) : 0;
    printf("%15s %12.0f %6.2f %%%s%.*s\n", label, x * (double)rows, 100 * x,
           bar ? " " : "", bar, "########################################");
  }
}

static void print_one(json_t *row) {
  static const struct {
    const char *key, *what;
  } counts[] = {{"p50_degree", "median"},
                {"p90_degree", "p90"},
                {"p99_degree", "p99"},
                {"max_degree", "max"}};
  printf("%-14s %s\n", "graph",
         json_string_value(json_object_get(row, "graph")));
  printf("%-14s %lld x %lld, %lld edges\n", "size",
         (long long)count_of(row, "destinations"),
         (long long)count_of(row, "sources"),
         (long long)count_of(row, "edges"));
  printf("%-14s mean %.4g", "degree", number_of(row, "mean_degree"));
  for (size_t k = 0; k < sizeof counts / sizeof *counts; k++)
    printf(", %s %lld", counts[k].what,
           (long long)count_of(row, counts[k].key));
  printf(", variation %.3g\n", number_of(row, "degree_cv"));
  printf("%-14s max %lld\n", "source degree",
         (long long)count_of(row, "max_source_degree"));
  printf("%-14s %.3g %% of the rows\n", "isolated",
         100 * number_of(row, "isolated"));
  printf("%-14s %s, %s, %lld self loops, %lld duplicates\n", "edges",
         json_is_true(json_object_get(row, "symmetric")) ? "symmetric"
                                                         : "not symmetric",
         json_is_true(json_object_get(row, "sorted")) ? "sorted" : "unsorted",
         (long long)count_of(row, "self_loops"),
         (long long)count_of(row, "duplicates"));
  printf("%-14s %lld, largest %lld nodes, density %.3g\n", "blocks",
         (long long)count_of(row, "graphs"),
         (long long)count_of(row, "largest_graph"), number_of(row, "density"));
  printf("%-14s reuse %.3g, locality %.3g\n", "columns",
         number_of(row, "reuse"), number_of(row, "locality"));
  printf("%-14s %s\n", "fingerprint",
         json_string_value(json_object_get(row, "fingerprint")));
  print_histogram(row);
}

static const tool_column columns[] = {
    {"graph", "GRAPH", TOOL_TEXT},
    {"destinations", "DESTINATIONS", TOOL_COUNT},
    {"sources", "SOURCES", TOOL_COUNT},
    {"edges", "EDGES", TOOL_COUNT},
    {"mean_degree", "MEAN", TOOL_FIGURE},
    {"p99_degree", "P99", TOOL_COUNT},
    {"max_degree", "MAX", TOOL_COUNT},
    {"degree_cv", "CV", TOOL_FIGURE},
    {"isolated", "ISOLATED", TOOL_SHARE},
    {"reuse", "REUSE", TOOL_FIGURE},
    {"locality", "LOCALITY", TOOL_FIGURE},
    {"graphs", "BLOCKS", TOOL_COUNT},
    {"density", "DENSITY", TOOL_FIGURE},
    {NULL, NULL, TOOL_TEXT}};

static dfgnn_status add_graph(json_t *rows, dfgnn_context *ctx,
                              const char *name) {
  dfgnn_csr *csr = NULL;
  dfgnn_graph *graph = NULL;
  dfgnn_signature signature = DFGNN_SIGNATURE_INIT;
  facts f;
  char label[256];
  DFGNN_TRY(dfgnn__csr_open(&csr, name));
  dfgnn_status status = DFGNN_OK;
  tool_graph_label(label, sizeof label, name);
  if ((status = dfgnn_graph_create_csr(&graph, ctx, csr, NULL)) ||
      (status = dfgnn_graph_signature(&signature, graph)) ||
      (status = find_facts(&f, csr)))
    dfgnn__fail_prefix(status, "%s: ", name);
  else
    json_array_append_new(rows, info_row(label, &signature, &f));
  dfgnn_graph_destroy(graph);
  dfgnn_csr_free(csr);
  return status;
}

int graph_info(tool_settings *settings, int count, char **operands) {
  tool_graphs graphs = {0};
  dfgnn_context *ctx = NULL;
  dfgnn_options options = {
      .struct_size = sizeof options, .device = "cpu", .store = ""};
  json_t *rows = json_array();
  int failed = TOOL_DONE;
  int status = TOOL_DONE;
  DFGNN_GO(tool_graphs_all(&graphs, count, operands));
  if (dfgnn_context_create(&ctx, &options))
    DFGNN_GO(tool_fail(DFGNN_ERROR_DEVICE));
  for (size_t i = 0; i < graphs.count; i++) {
    dfgnn_status bad = add_graph(rows, ctx, graphs.graph[i].name);
    if (bad)
      failed = tool_fail(bad);
  }
  if (!settings->json && graphs.count == 1) {
    if (!failed)
      print_one(json_array_get(rows, 0));
  } else if (settings->json || json_array_size(rows))
    status = tool_report(settings, json_incref(rows), columns);
out:
  json_decref(rows);
  tool_graphs_free(&graphs);
  dfgnn_context_destroy(ctx);
  return failed ? failed : status;
}
