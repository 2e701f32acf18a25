/* metis.c - divides a graph into parts of equal work with few edges between
 * them, by METIS (Karypis & Kumar 1998) */
#include "graph/partition/partition.h"
#include "lib/base/error.h"

#ifdef HAVE_METIS
#include <stdlib.h>

/* The largest total of weights, which METIS adds up in 32 bits. */
#define TOTAL_MOST (INT32_MAX / 4)

static int32_t *scaled(const int64_t *work, int64_t count) {
  int32_t *weight = malloc(((size_t)count + 1) * sizeof *weight);
  int64_t total = 0, unit;
  for (int64_t i = 0; i < count; i++)
    total += work[i];
  unit = total / TOTAL_MOST + 1;
  for (int64_t i = 0; i < count && weight; i++)
    weight[i] = (int32_t)(work[i] / unit + 1);
  return weight;
}

dfgnn_status dfgnn__metis_parts(int32_t *part, const dfgnn__adjacency *graph,
                                const int64_t *work, int parts) {
  int32_t *weight = scaled(work, graph->nodes);
  if (!weight)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "cannot partition %lld nodes",
                       (long long)graph->nodes);
  dfgnn_status status = dfgnn__metis_partition(part, graph, weight, parts);
  free(weight);
  return status;
}

#else

dfgnn_status dfgnn__metis_parts(int32_t *part, const dfgnn__adjacency *graph,
                                const int64_t *work, int parts) {
  (void)part, (void)graph, (void)work, (void)parts;
  return dfgnn__fail(DFGNN_ERROR_UNSUPPORTED,
                     "this library was built without METIS (configure "
                     "--with-metis); the method range needs none");
}

#endif
