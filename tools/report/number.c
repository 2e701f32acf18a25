/* number.c - what a page writes once and then by its number: names, graphs,
 * shapes; and the room that they take */
#include <stdlib.h>
#include <string.h>

#include "lib/base/error.h"
#include "lib/key.h"
#include "tools/report/write.h"

enum {
  GRAPH_BYTES = 1200, /* of a graph without its name */
  SPARE = 900000      /* of REPORT_MOST_BYTES: for all but problems */
};

static size_t text_bytes(const char *text) {
  return 6 * strlen(text) + 8; /* \u003c is the longest escape */
}

int dfgnn__report_room(const report_writer *w) {
  return w->page->size + w->later + SPARE < REPORT_MOST_BYTES;
}

int64_t dfgnn__report_name(report_writer *w, const char *text) {
  if (!text)
    return -1;
  size_t i = dfgnn__fold_text(0, text) & (w->slots - 1);
  while (w->slot[i] && strcmp(w->name[w->slot[i] - 1], text))
    i = (i + 1) & (w->slots - 1);
  if (!w->slot[i]) {
    if (2 * w->names >= w->slots)
      return -1; /* never: there is a slot for each text of the input */
    w->name[w->names] = text;
    w->slot[i] = ++w->names;
    w->later += text_bytes(text);
  }
  return (int64_t)w->slot[i] - 1;
}

int64_t dfgnn__report_graph(report_writer *w, size_t graph) {
  if (!w->graph[graph]) {
    w->graphs_used[w->graphs] = graph;
    w->graph[graph] = ++w->graphs;
    w->later += GRAPH_BYTES + text_bytes(w->data->graph[graph].name);
  }
  return (int64_t)w->graph[graph] - 1;
}

int64_t dfgnn__report_shape(report_writer *w, size_t shape) {
  if (!w->shape[shape]) {
    w->shapes_used[w->shapes] = shape;
    w->shape[shape] = ++w->shapes;
    w->later += 80 + text_bytes(w->data->shape[shape].text) +
                text_bytes(w->data->shape[shape].row->program_text);
  }
  return (int64_t)w->shape[shape] - 1;
}

static int allocate(report_writer *w) {
  const report_data *d = w->data;
  size_t texts = 16 + 2 * d->input->other_count;
  for (size_t i = 0; i < d->problems; i++)
    texts +=
        d->problem[i].decision->count + 2 * d->problem[i].rows + REPORT_WAYS;
  for (w->slots = 64; w->slots < 2 * texts; w->slots *= 2)
    ;
  w->slot = calloc(w->slots, sizeof *w->slot);
  w->name = calloc(w->slots, sizeof *w->name);
  w->graph = calloc(d->graphs + 1, sizeof *w->graph);
  w->graphs_used = calloc(d->graphs + 1, sizeof *w->graphs_used);
  w->shape = calloc(d->shapes + 1, sizeof *w->shape);
  w->shapes_used = calloc(d->shapes + 1, sizeof *w->shapes_used);
  w->problem = calloc(d->problems + 1, sizeof *w->problem);
  return w->slot && w->name && w->graph && w->graphs_used && w->shape &&
         w->shapes_used && w->problem;
}

dfgnn_status dfgnn__report_writer_make(report_writer *w) {
  return allocate(w)
             ? DFGNN_OK
             : dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory for a report");
}

void dfgnn__report_writer_free(report_writer *w) {
  free(w->slot);
  free(w->name);
  free(w->graph);
  free(w->graphs_used);
  free(w->shape);
  free(w->shapes_used);
  free(w->problem);
}
