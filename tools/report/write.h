/* write.h - the data of a page as JSON, which tools/report/page.js draws
 *
 * THE list of its members is at the head of tools/report/page.js. */
#ifndef DFGNN_REPORT_WRITE_H
#define DFGNN_REPORT_WRITE_H

#include "tools/report/data.h"
#include "tools/report/page.h"

/* A page has at most this many bytes, whatever the stores hold. */
enum { REPORT_MOST_BYTES = 8000000 };

/* Texts that are written by their number: names and texts by their first use,
 * graphs and shapes by that of their problems. */
typedef struct report_writer {
  dfgnn_page *page;
  report_data *data;
  const report_summary *summary;
  const char **name; /* [names]: variants, and reasons of refusals */
  size_t *slot, slots;
  size_t names;
  size_t *graph, *shape; /* by number in data: that in the page + 1, or 0 */
  size_t *graphs_used, *shapes_used; /* by number in the page: that in data */
  size_t graphs, shapes;
  size_t *problem; /* by number in data: that in the page + 1, or 0 */
  size_t problems;
  size_t later; /* bytes that names, graphs and shapes will take */
} report_writer;

/* number.c: makes the tables of a writer that has page, data and summary; free
 * takes one that could not be made, too. */
dfgnn_status dfgnn__report_writer_make(report_writer *writer);
void dfgnn__report_writer_free(report_writer *writer);
/* The numbers of a name, a graph and a shape. */
int64_t dfgnn__report_name(report_writer *writer, const char *text);
int64_t dfgnn__report_graph(report_writer *writer, size_t graph);
int64_t dfgnn__report_shape(report_writer *writer, size_t shape);
/* Whether there is room for more rows. */
int dfgnn__report_room(const report_writer *writer);

dfgnn_status dfgnn__report_json(dfgnn_page *page, report_data *data,
                                const report_summary *summary);
/* against.c: the member "against" */
dfgnn_status dfgnn__report_against(report_writer *writer);

#endif
