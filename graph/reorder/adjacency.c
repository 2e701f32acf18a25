/* adjacency.c - the undirected graph that the methods order */
#include "graph/io/build.h"
#include "graph/io/io.h"
#include "graph/reorder/reorder.h"
#include "lib/base/error.h"

#include <stdlib.h>

void dfgnn__adjacency_free(dfgnn__adjacency *graph) {
  free(graph->offsets);
  free(graph->neighbors);
  free(graph->weights);
  *graph = (dfgnn__adjacency){0};
}

/* Writes both directions of every edge; neighbours are unsorted and repeated.
 */
static void scatter(const dfgnn__adjacency *graph, int64_t *next,
                    const dfgnn_csr *csr, int64_t shift) {
  for (int64_t i = 0; i < csr->destinations; i++)
    for (int64_t e = dfgnn__csr_offset(csr, i);
         e < dfgnn__csr_offset(csr, i + 1); e++) {
      int64_t j = dfgnn__csr_index(csr, e) + shift;
      if (i != j) {
        graph->neighbors[next[i]++] = (int32_t)j;
        graph->neighbors[next[j]++] = (int32_t)i;
      }
    }
}

/* Sorts the neighbours of each node and unites equal ones by their weight, in
 * place: entries are written towards the front, where they were read before. */
static dfgnn_status unite(dfgnn__adjacency *graph) {
  int64_t longest = 0, used = 0, begin = 0;
  for (int64_t i = 0; i < graph->nodes; i++)
    if (graph->offsets[i + 1] - graph->offsets[i] > longest)
      longest = graph->offsets[i + 1] - graph->offsets[i];
  int32_t *scratch = malloc((size_t)(longest + 1) * sizeof *scratch);
  if (!scratch)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "cannot sort %lld neighbours",
                       (long long)longest);
  for (int64_t i = 0; i < graph->nodes; i++) {
    int64_t end = graph->offsets[i + 1], first = used;
    dfgnn__sort(graph->neighbors + begin, scratch, end - begin);
    for (int64_t k = begin; k < end; k++)
      if (used > first && graph->neighbors[used - 1] == graph->neighbors[k]) {
        graph->weights[used - 1]++;
      } else {
        graph->neighbors[used] = graph->neighbors[k];
        graph->weights[used++] = 1;
      }
    graph->offsets[i] = first;
    begin = end;
  }
  graph->offsets[graph->nodes] = used;
  free(scratch);
  return DFGNN_OK;
}

dfgnn_status dfgnn__adjacency_build(dfgnn__adjacency *graph,
                                    const dfgnn_csr *csr) {
  int square = csr->destinations == csr->sources;
  int64_t shift = square ? 0 : csr->destinations;
  int64_t nodes = csr->destinations + (square ? 0 : csr->sources);
  dfgnn_status status = DFGNN_OK;
  *graph = (dfgnn__adjacency){.nodes = nodes};
  if (nodes > INT32_MAX)
    return dfgnn__fail(DFGNN_ERROR_UNSUPPORTED,
                       "found %lld rows and columns, expected at most "
                       "2147483647; degree orders more",
                       (long long)nodes);
  int64_t *next = malloc(((size_t)nodes + 1) * sizeof *next);
  graph->offsets = calloc((size_t)nodes + 1, sizeof *graph->offsets);
  size_t ends = 2 * (size_t)csr->edges + 1;
  graph->neighbors = malloc(ends * sizeof *graph->neighbors);
  graph->weights = malloc(ends * sizeof *graph->weights);
  if (!next || !graph->offsets || !graph->neighbors || !graph->weights)
    DFGNN_GO(dfgnn__fail(DFGNN_ERROR_MEMORY,
                         "cannot hold both directions of %lld edges",
                         (long long)csr->edges));
  int64_t *count = graph->offsets + 1;
  for (int64_t i = 0; i < csr->destinations; i++)
    for (int64_t e = dfgnn__csr_offset(csr, i);
         e < dfgnn__csr_offset(csr, i + 1); e++) {
      int64_t j = dfgnn__csr_index(csr, e) + shift;
      count[i] += i != j;
      count[j] += i != j;
    }
  for (int64_t i = 0; i < nodes; i++) {
    next[i] = graph->offsets[i];
    graph->offsets[i + 1] += graph->offsets[i];
  }
  scatter(graph, next, csr, shift);
  status = unite(graph);
out:
  free(next);
  if (status)
    dfgnn__adjacency_free(graph);
  return status;
}
