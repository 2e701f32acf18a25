/* gen_skewed.c - graphs whose work lies on few nodes: R-MAT, bipartite graphs
 * with heavy sources, stars */
#include "graph/io/generators.h"
#include "lib/base/error.h"

/* R-MAT (Chakrabarti et al. 2004) with the shares of Graph 500: the quadrants
 * of the matrix get .57, .19, .19 and .05 of the edges, level after level. */
dfgnn_status dfgnn__generate_rmat(dfgnn__parts *parts, const double *value) {
  enum { SCALE, EDGES, SEED };
  const int scale = (int)value[SCALE];
  const int64_t nodes = (int64_t)1 << scale, count = (int64_t)value[EDGES];
  dfgnn__random random = dfgnn__random_stream((uint64_t)value[SEED], 1);
  dfgnn__edges edges = {0};
  dfgnn_status status = DFGNN_OK;
  for (int64_t e = 0; e < count && !status; e++) {
    int32_t row = 0, column = 0;
    for (int level = 0; level < scale; level++) {
      const double u = dfgnn__random_unit(&random);
      row = 2 * row + (u >= 0.76);
      column = 2 * column + ((u >= 0.57 && u < 0.76) || u >= 0.95);
    }
    status = dfgnn__edges_add(&edges, row, column);
  }
  if (!status)
    status = dfgnn__edges_compress(parts, &edges, nodes, nodes);
  dfgnn__edges_free(&edges);
  return status;
}

/* A share of the edges comes from the first few sources, evenly; the others
 * from any. */
dfgnn_status dfgnn__generate_bipartite(dfgnn__parts *parts,
                                       const double *value) {
  enum { NODES, SOURCES, EDGES, HEAVY, SHARE, SEED };
  const int64_t nodes = (int64_t)value[NODES], count = (int64_t)value[EDGES];
  const int64_t sources = (int64_t)value[SOURCES];
  const int64_t heavy = (int64_t)value[HEAVY];
  dfgnn__random random = dfgnn__random_stream((uint64_t)value[SEED], 1);
  dfgnn__edges edges = {0};
  dfgnn_status status = DFGNN_OK;
  if (heavy > sources)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "found heavy=%lld, expected at most sources=%lld",
                       (long long)heavy, (long long)sources);
  for (int64_t e = 0; e < count && !status; e++) {
    const int from_heavy = dfgnn__random_unit(&random) < value[SHARE];
    const int64_t row = dfgnn__random_below(&random, nodes);
    const int64_t column =
        dfgnn__random_below(&random, from_heavy && heavy ? heavy : sources);
    status = dfgnn__edges_add(&edges, (int32_t)row, (int32_t)column);
  }
  if (!status)
    status = dfgnn__edges_compress(parts, &edges, nodes, sources);
  dfgnn__edges_free(&edges);
  return status;
}

/* Joins node i and centre i modulo centres, in both directions. */
dfgnn_status dfgnn__generate_stars(dfgnn__parts *parts, const double *value) {
  enum { NODES, CENTRES };
  const int64_t nodes = (int64_t)value[NODES];
  const int64_t centres = (int64_t)value[CENTRES];
  dfgnn__edges edges = {0};
  dfgnn_status status = DFGNN_OK;
  for (int64_t i = centres; i < nodes && !status; i++) {
    const int32_t centre = (int32_t)(i % centres);
    status = dfgnn__edges_add(&edges, (int32_t)i, centre);
    if (!status)
      status = dfgnn__edges_add(&edges, centre, (int32_t)i);
  }
  if (!status)
    status = dfgnn__edges_compress(parts, &edges, nodes, nodes);
  dfgnn__edges_free(&edges);
  return status;
}
