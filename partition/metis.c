/* metis.c - parts of equal work with few edges between them, by METIS
 * (Karypis & Kumar 1998) */
#include "base/error.h"
#include "partition/partition.h"

#ifdef HAVE_METIS
#include <metis.h>
#include <pthread.h>
#include <stdlib.h>

/* METIS draws from the random numbers of the C library. */
static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;

/* Totals that METIS adds up in 32 bits. */
#define TOTAL_MOST (INT32_MAX / 4)

static idx_t *scaled(const int64_t *work, int64_t count) {
  idx_t *weight = malloc(((size_t)count + 1) * sizeof *weight);
  int64_t total = 0, unit;
  for (int64_t i = 0; i < count; i++)
    total += work[i];
  unit = total / TOTAL_MOST + 1;
  for (int64_t i = 0; i < count && weight; i++)
    weight[i] = (idx_t)(work[i] / unit + 1);
  return weight;
}

dfgnn_status dfgnn__metis_parts(int32_t *part, const dfgnn__adjacency *graph,
                                const int64_t *work, int parts) {
  _Static_assert(sizeof(idx_t) == sizeof(int32_t), "a METIS of 32-bit indices");
  idx_t n = (idx_t)graph->nodes, constraints = 1, cut, count = parts;
  idx_t options[METIS_NOPTIONS];
  idx_t *offsets = malloc(((size_t)n + 1) * sizeof *offsets);
  idx_t *weight = scaled(work, graph->nodes);
  dfgnn_status status = DFGNN_OK;
  if (!offsets || !weight) {
    status = dfgnn__fail(DFGNN_ERROR_MEMORY, "cannot partition %lld nodes",
                         (long long)n);
    goto out;
  }
  for (idx_t i = 0; i <= n; i++)
    offsets[i] = (idx_t)graph->offsets[i];
  METIS_SetDefaultOptions(options);
  options[METIS_OPTION_SEED] = 1;
  pthread_mutex_lock(&one_at_a_time);
  int result = METIS_PartGraphKway(&n, &constraints, offsets, graph->neighbors,
                                   weight, NULL, graph->weights, &count, NULL,
                                   NULL, options, &cut, part);
  pthread_mutex_unlock(&one_at_a_time);
  if (result == METIS_ERROR_MEMORY)
    status = dfgnn__fail(DFGNN_ERROR_MEMORY,
                         "METIS is out of memory for %lld nodes", (long long)n);
  else if (result != METIS_OK)
    status = dfgnn__fail(DFGNN_ERROR_UNSUPPORTED,
                         "METIS cannot partition %lld nodes: status %d",
                         (long long)n, result);
out:
  free(weight);
  free(offsets);
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
