/* report.h - a page about measurements, as HTML that stands alone
 *
 * The same input gives the same bytes, with the same library and models. */
#ifndef DFGNN_REPORT_REPORT_H
#define DFGNN_REPORT_REPORT_H

#include "db/store.h"
#include "dfgnn_tune.h"
#include "tools/report/page.h"

/* A graph at hand. */
typedef struct dfgnn_report_graph {
  char name[256];
  const char *operand; /* the file or specification */
  dfgnn_signature signature;
  double sources[DFGNN_HISTOGRAM_BINS]; /* the histogram of the sources */
} dfgnn_report_graph;

typedef struct dfgnn_report_input {
  const char *title;
  const char *command;      /* the command line that made the page, or NULL */
  const char *commit;       /* of the library's source; NULL or "": not known */
  const char *named;        /* the stores that were asked for; NULL: layers */
  const char *const *store; /* names of the stores that rows are from */
  size_t stores;
  const dfgnn_measurement *row;
  size_t count;
  uint64_t invalid;
  const dfgnn_report_graph *graph;
  size_t graphs;
  const char *other; /* the other store's name; NULL: nothing to compare */
  const dfgnn_measurement *other_row;
  size_t other_count;
  double copy_gbps; /* bandwidth of the devices; 0: that known of the model */
  int all;          /* 1: every variant, not the best alone */
} dfgnn_report_input;

dfgnn_status dfgnn__report_page(dfgnn_page *page,
                                const dfgnn_report_input *input);
/* Writes the page to a file, whole or not at all. */
dfgnn_status dfgnn__report_write(const char *path, const dfgnn_page *page);

/* Opens the stores and the graphs that the options name, and makes the page of
 * them. */
dfgnn_status dfgnn__report_files(dfgnn_page *page,
                                 const dfgnn_report_options *options);

/* Fills a graph's name, signature and histogram of sources. */
dfgnn_status dfgnn__report_graph_read(dfgnn_report_graph *graph,
                                      const char *file_or_spec);

#endif
