/* partition.c - dfgnn_csr_partition: finds the part that owns each node */
#include "graph/partition/partition.h"
#include "lib/base/error.h"

#include <stdlib.h>

/* Gives each part consecutive rows with its share of the work. */
static void by_range(int32_t *owner, const dfgnn_csr *csr, int parts) {
  int64_t n = csr->destinations, done = 0;
  int64_t total = csr->edges + n * DFGNN_PARTITION_NODE;
  for (int64_t i = 0; i < n; i++) {
    int64_t work = dfgnn__row_work(csr, i);
    /* A row belongs to the part in whose share its middle lies. */
    double share = ((double)done + 0.5 * (double)work) / (double)total;
    int part = (int)(share * parts);
    owner[i] = part < parts ? part : parts - 1;
    done += work;
  }
}

/* METIS keeps both directions of every edge, several times the memory of the
 * graph.  Graphs of more than FEW edges are grouped first, so that partitioning
 * takes at most 2.5 times the graph's memory (tests/cli/graph.sh checks it). */
enum { FEW = 1 << 20 };

static dfgnn_status by_metis(int32_t *owner, const dfgnn_csr *csr, int parts) {
  int64_t n = csr->destinations;
  if (csr->edges > FEW) {
    dfgnn__groups groups;
    int64_t bytes = csr->edges; /* a quarter of the matrix */
    dfgnn_status status = dfgnn__groups_build(&groups, csr, parts, bytes);
    if (status)
      return status;
    int32_t *part = malloc(((size_t)groups.count + 1) * sizeof *part);
    status = part ? dfgnn__metis_parts(part, &groups.graph, groups.work, parts)
                  : dfgnn__fail(DFGNN_ERROR_MEMORY, "cannot partition");
    for (int64_t i = 0; i < n && !status; i++)
      owner[i] = part[groups.group[i]];
    free(part);
    dfgnn__groups_free(&groups);
    return status ? status : dfgnn__refine(owner, csr, parts);
  }
  dfgnn__adjacency graph;
  DFGNN_TRY(dfgnn__adjacency_build(&graph, csr));
  int64_t *work = malloc(((size_t)n + 1) * sizeof *work);
  for (int64_t i = 0; i < n && work; i++)
    work[i] = dfgnn__row_work(csr, i);
  dfgnn_status status =
      work ? dfgnn__metis_parts(owner, &graph, work, parts)
           : dfgnn__fail(DFGNN_ERROR_MEMORY, "cannot partition");
  free(work);
  dfgnn__adjacency_free(&graph);
  return status;
}

dfgnn_status dfgnn_csr_partition(int32_t *owner, const dfgnn_csr *csr,
                                 int parts, dfgnn_partitioning how) {
  if (!dfgnn_name(DFGNN_NAMES_PARTITIONING, how))
    return dfgnn__fail(DFGNN_ERROR_INVALID, "how is %d, expected 0..%d",
                       (int)how, DFGNN_PARTITION_COUNT - 1);
  dfgnn_csr whole;
  DFGNN_TRY(dfgnn__csr_take(&whole, csr));
  csr = &whole;
  if (!owner)
    return dfgnn__fail(DFGNN_ERROR_INVALID, "owner is NULL");
  if (parts < 1 || parts > DFGNN_PARTS_MAX)
    return dfgnn__fail(DFGNN_ERROR_INVALID, "parts is %d, expected 1..%d",
                       parts, DFGNN_PARTS_MAX);
  if (csr->destinations != csr->sources || csr->destinations >= INT32_MAX)
    return dfgnn__fail(DFGNN_ERROR_UNSUPPORTED,
                       "found a matrix of %lld x %lld, expected a square one "
                       "of less than 2147483647 rows",
                       (long long)csr->destinations, (long long)csr->sources);
  if (parts == 1 || csr->destinations <= parts ||
      how == DFGNN_PARTITION_RANGE) {
    by_range(owner, csr, parts);
    return DFGNN_OK;
  }
  return by_metis(owner, csr, parts);
}
