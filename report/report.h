/* report.h - a page about measurements, as HTML that stands alone
 *
 * The same input gives the same bytes, with the same library and models. */
#ifndef DFGNN_REPORT_REPORT_H
#define DFGNN_REPORT_REPORT_H

#include "db/store.h"
#include "report/page.h"

/* A benchmark knows this of a row beside what stores keep. */
typedef struct dfgnn_report_note {
  double prepare_ms; /* of the plan and its views; NaN: not known */
  int tuned;         /* 1: what a context chose, by `source` */
  dfgnn_source source;
  int registers, local_bytes; /* of the kernel that takes most; -1: not known */
} dfgnn_report_note;

/* A graph at hand. */
typedef struct dfgnn_report_graph {
  char name[256];
  dfgnn_signature signature;
  double sources[DFGNN_HISTOGRAM_BINS]; /* as signature.histogram, of sources */
} dfgnn_report_graph;

typedef struct dfgnn_report_input {
  const char *title;
  const char *command;      /* how the page was made; NULL: not told */
  const char *commit;       /* of the library's source; NULL or "": not known */
  const char *const *store; /* names of what the rows are from */
  size_t stores;
  const dfgnn_measurement *row;
  size_t count;
  uint64_t invalid;
  const dfgnn_report_note *note; /* [count]; NULL: nothing is known */
  const dfgnn_report_graph *graph;
  size_t graphs;
  const char *other; /* what other_row is from; NULL: nothing to compare with */
  const dfgnn_measurement *other_row;
  size_t other_count;
  double
      copy_gbps; /* copy bandwidth of the devices; 0: what is known of them */
  int all;       /* 1: every variant, not the best alone */
} dfgnn_report_input;

dfgnn_status dfgnn__report_page(dfgnn_page *page,
                                const dfgnn_report_input *input);
/* Writes the page to a file, which takes its name whole. */
dfgnn_status dfgnn__report_write(const char *path, const dfgnn_page *page);

/* What dfgnn_report takes from files: opens the stores and the graphs that the
 * options name and makes the page of them. */
dfgnn_status dfgnn__report_files(dfgnn_page *page,
                                 const dfgnn_report_options *options);

/* Fills a graph's name, signature and histogram of sources. */
dfgnn_status dfgnn__report_graph_read(dfgnn_report_graph *graph,
                                      const char *file_or_spec);

#endif
