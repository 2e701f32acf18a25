/* gen_sbm.c - batches of stochastic block models
 *
 * sbm-pattern and sbm-cluster are PATTERN and CLUSTER of Benchmarking-GNNs
 * (Dwivedi et al. 2020); sbm is the same kind with stated size and edges. */
#include "graph/io/generators.h"
#include "lib/base/error.h"

#include <stdlib.h>

enum { LARGEST = 35 * 8 };

/* Draws each pair once and adds both directions. */
static dfgnn_status draw_pairs(dfgnn__edges *edges, const uint8_t *community,
                               int64_t first, int64_t nodes,
                               const double *probability, int communities,
                               dfgnn__random *random) {
  for (int64_t i = 0; i < nodes; i++) {
    const double *row = probability + community[i] * communities;
    for (int64_t j = i + 1; j < nodes; j++)
      if (dfgnn__random_unit(random) < row[community[j]]) {
        int32_t a = (int32_t)(first + i), b = (int32_t)(first + j);
        DFGNN_TRY(dfgnn__edges_add(edges, a, b));
        DFGNN_TRY(dfgnn__edges_add(edges, b, a));
      }
  }
  return DFGNN_OK;
}

/* Makes a batch of graphs with communities of 5 to 34 nodes, drawn uniformly,
 * in random order; probability is [communities][communities]. */
static dfgnn_status benchmark(dfgnn__parts *parts, double batch, double seed,
                              const double *probability, int communities) {
  DFGNN_TRY(dfgnn__check_batch(batch, 34.0 * communities));
  dfgnn_status status = DFGNN_OK;
  int64_t graphs = (int64_t)batch;
  dfgnn__edges edges = {0};
  int64_t *graph_ptr = calloc((size_t)graphs + 1, sizeof *graph_ptr);
  if (!graph_ptr)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "cannot hold %lld graphs",
                       (long long)graphs);
  for (int64_t g = 0; g < graphs && !status; g++) {
    uint8_t community[LARGEST];
    int64_t nodes = 0;
    dfgnn__random random = dfgnn__random_stream((uint64_t)seed, (uint64_t)g);
    for (int c = 0; c < communities; c++)
      for (int64_t k = 5 + dfgnn__random_below(&random, 30); k > 0; k--)
        community[nodes++] = (uint8_t)c;
    for (int64_t i = nodes - 1; i > 0; i--) {
      int64_t j = dfgnn__random_below(&random, i + 1);
      uint8_t swap = community[i];
      community[i] = community[j];
      community[j] = swap;
    }
    status = draw_pairs(&edges, community, graph_ptr[g], nodes, probability,
                        communities, &random);
    graph_ptr[g + 1] = graph_ptr[g] + nodes;
  }
  if (status) {
    dfgnn__edges_free(&edges);
    free(graph_ptr);
    return status;
  }
  return dfgnn__batch_finish(parts, &edges, graph_ptr, graphs);
}

dfgnn_status dfgnn__generate_sbm_pattern(dfgnn__parts *parts,
                                         const double *value) {
  double probability[6 * 6];
  for (int a = 0; a < 6; a++)
    for (int b = 0; b < 6; b++) /* block 5 is the pattern */
      probability[6 * a + b] = a == b || a == 5 || b == 5 ? 0.5 : 0.35;
  return benchmark(parts, value[0], value[1], probability, 6);
}

dfgnn_status dfgnn__generate_sbm_cluster(dfgnn__parts *parts,
                                         const double *value) {
  double probability[6 * 6];
  for (int a = 0; a < 6; a++)
    for (int b = 0; b < 6; b++)
      probability[6 * a + b] = a == b ? 0.55 : 0.25;
  return benchmark(parts, value[0], value[1], probability, 6);
}

enum {
  NODES,
  DEVIATION,
  MIN_NODES,
  MAX_NODES,
  COMMUNITIES,
  INSIDE,
  EDGES,
  BATCH,
  SEED
};

/* Adds the numbers of pairs within and between communities. */
static void count_pairs(const uint8_t *community, int64_t nodes,
                        int communities, double *within, double *between) {
  int64_t size[256] = {0};
  double same = 0;
  for (int64_t i = 0; i < nodes; i++)
    size[community[i]]++;
  for (int c = 0; c < communities; c++)
    same += (double)size[c] * (double)(size[c] - 1) / 2;
  *within += same;
  *between += (double)nodes * (double)(nodes - 1) / 2 - same;
}

dfgnn_status dfgnn__generate_sbm(dfgnn__parts *parts, const double *value) {
  int64_t graphs = (int64_t)value[BATCH], nodes = 0;
  int communities = (int)value[COMMUNITIES];
  double within = 0, between = 0;
  dfgnn__edges edges = {0};
  int64_t *graph_ptr = NULL;
  if (value[MIN_NODES] > value[MAX_NODES])
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "found min-nodes=%.0f, expected at most max-nodes=%.0f",
                       value[MIN_NODES], value[MAX_NODES]);
  DFGNN_TRY(dfgnn__check_batch(value[BATCH], value[MAX_NODES]));
  dfgnn_status status = DFGNN_OK;
  graph_ptr = calloc((size_t)graphs + 1, sizeof *graph_ptr);
  uint8_t *community = malloc((size_t)(value[BATCH] * value[MAX_NODES]) + 1);
  double *probability =
      malloc((size_t)(communities * communities) * sizeof(double));
  if (!graph_ptr || !community || !probability)
    DFGNN_GO(dfgnn__fail(DFGNN_ERROR_MEMORY, "cannot hold %lld graphs",
                         (long long)graphs));
  dfgnn__random random = dfgnn__random_stream((uint64_t)value[SEED], 0);
  for (int64_t g = 0; g < graphs; g++) {
    double drawn =
        value[NODES] + value[DEVIATION] * dfgnn__random_normal(&random) + 0.5;
    drawn = drawn < value[MIN_NODES] ? value[MIN_NODES] : drawn;
    drawn = drawn > value[MAX_NODES] ? value[MAX_NODES] : drawn;
    for (int64_t i = 0; i < (int64_t)drawn; i++)
      community[nodes + i] = (uint8_t)dfgnn__random_below(&random, communities);
    count_pairs(community + nodes, (int64_t)drawn, communities, &within,
                &between);
    nodes += (int64_t)drawn;
    graph_ptr[g + 1] = nodes;
  }
  double wanted = value[EDGES] * value[BATCH] / 2;
  double outside =
      between > 0 ? (wanted - value[INSIDE] * within) / between : 0;
  if (outside < 0 || outside > 1)
    DFGNN_GO(
        dfgnn__fail(DFGNN_ERROR_INVALID,
                    "found edges=%.0f, expected %.0f to %.0f for its nodes "
                    "and communities",
                    value[EDGES], 2 * value[INSIDE] * within / value[BATCH],
                    2 * (value[INSIDE] * within + between) / value[BATCH]));
  for (int k = 0; k < communities * communities; k++)
    probability[k] =
        k / communities == k % communities ? value[INSIDE] : outside;
  for (int64_t g = 0; g < graphs && !status; g++) {
    random = dfgnn__random_stream((uint64_t)value[SEED], 1 + (uint64_t)g);
    status = draw_pairs(&edges, community + graph_ptr[g], graph_ptr[g],
                        graph_ptr[g + 1] - graph_ptr[g], probability,
                        communities, &random);
  }
  if (!status) {
    status = dfgnn__batch_finish(parts, &edges, graph_ptr, graphs);
    graph_ptr = NULL;
  }
out:
  dfgnn__edges_free(&edges);
  free(probability);
  free(community);
  free(graph_ptr);
  return status;
}
