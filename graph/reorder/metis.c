/* metis.c - divides a graph into parts with few edges between them, by METIS
 *
 * METIS numbers its parts by recursive bisection, so that near parts have near
 * numbers; within a part nodes stay in their old order. */
#include "graph/reorder/reorder.h"
#include "lib/base/error.h"

#ifdef HAVE_METIS
#include <metis.h>
#include <pthread.h>
#include <stdlib.h>

/* The nodes of a part.  The features of so few fit the cache of a
 * multiprocessor or core several times over; with fewer, METIS has to make so
 * many parts that it is slow. */
#define PART 256

/* METIS draws from the random numbers of the C library. */
static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;

dfgnn_status dfgnn__metis_partition(int32_t *part,
                                    const dfgnn__adjacency *graph,
                                    int32_t *weight, int32_t parts) {
  _Static_assert(sizeof(idx_t) == sizeof(int32_t), "a METIS of 32-bit indices");
  if (graph->offsets[graph->nodes] > INT32_MAX)
    return dfgnn__fail(DFGNN_ERROR_UNSUPPORTED,
                       "found %lld neighbours, expected at most 2147483647, "
                       "which is what METIS can index",
                       (long long)graph->offsets[graph->nodes]);
  idx_t n = (idx_t)graph->nodes, constraints = 1, count = parts, cut;
  idx_t options[METIS_NOPTIONS];
  idx_t *offsets = malloc(((size_t)n + 1) * sizeof *offsets);
  if (!offsets)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "cannot partition %lld nodes",
                       (long long)n);
  for (idx_t i = 0; i <= n; i++)
    offsets[i] = (idx_t)graph->offsets[i];
  METIS_SetDefaultOptions(options);
  options[METIS_OPTION_SEED] = 1;
  pthread_mutex_lock(&one_at_a_time);
  int result = METIS_PartGraphKway(&n, &constraints, offsets, graph->neighbors,
                                   weight, NULL, graph->weights, &count, NULL,
                                   NULL, options, &cut, part);
  pthread_mutex_unlock(&one_at_a_time);
  free(offsets);
  if (result == METIS_ERROR_MEMORY)
    return dfgnn__fail(DFGNN_ERROR_MEMORY,
                       "METIS is out of memory for %lld nodes", (long long)n);
  if (result != METIS_OK)
    return dfgnn__fail(DFGNN_ERROR_UNSUPPORTED,
                       "METIS cannot partition %lld nodes: status %d",
                       (long long)n, result);
  return DFGNN_OK;
}

dfgnn_status dfgnn__order_metis(int32_t *order, const dfgnn__adjacency *graph) {
  int64_t n = graph->nodes;
  dfgnn_status status = DFGNN_OK;
  int32_t *part = calloc((size_t)n + 1, sizeof *part);
  int64_t *key = malloc(((size_t)n + 1) * sizeof *key);
  if (!part || !key)
    DFGNN_GO(dfgnn__fail(DFGNN_ERROR_MEMORY, "cannot order %lld nodes",
                         (long long)n));
  if (n > PART && (status = dfgnn__metis_partition(
                       part, graph, NULL, (int32_t)((n + PART - 1) / PART))))
    goto out;
  for (int64_t i = 0; i < n; i++)
    key[i] = part[i];
  status = dfgnn__order_by_key(order, key, n);
out:
  free(key);
  free(part);
  return status;
}

#else

dfgnn_status dfgnn__order_metis(int32_t *order, const dfgnn__adjacency *graph) {
  (void)order, (void)graph;
  return dfgnn__fail(DFGNN_ERROR_UNSUPPORTED,
                     "this library was built without METIS (configure "
                     "--with-metis); community orders as well");
}

#endif
