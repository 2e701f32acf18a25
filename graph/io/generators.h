/* generators.h - the kinds of graphs that dfgnn_csr_generate makes */
#ifndef DFGNN_IO_GENERATORS_H
#define DFGNN_IO_GENERATORS_H

#include "graph/io/build.h"
#include "graph/io/random.h"

/* Values of a kind's settings in the order of its table, a choice as its
 * position; see generate.c. */
typedef dfgnn_status dfgnn__generate(dfgnn__parts *parts, const double *value);

dfgnn__generate dfgnn__generate_sbm_pattern; /* batch seed */
dfgnn__generate dfgnn__generate_sbm_cluster; /* batch seed */
dfgnn__generate dfgnn__generate_sbm;      /* nodes deviation min-nodes max-nodes
                                           * communities inside edges batch
                                           * seed */
dfgnn__generate dfgnn__generate_knn;      /* nodes k batch seed */
dfgnn__generate dfgnn__generate_region;   /* nodes drop batch seed */
dfgnn__generate dfgnn__generate_powerlaw; /* nodes edges max-degree columns
                                           * duplicates seed */
dfgnn__generate dfgnn__generate_uniform;  /* nodes sources edges seed */
dfgnn__generate dfgnn__generate_grid;     /* rows columns neighbours */

dfgnn__generate dfgnn__generate_rmat;      /* scale edges seed */
dfgnn__generate dfgnn__generate_bipartite; /* nodes sources edges heavy share
                                            * seed */
dfgnn__generate dfgnn__generate_stars;     /* nodes centres */

dfgnn__generate dfgnn__generate_icosphere; /* level coarsest */
dfgnn__generate dfgnn__generate_sphere;    /* rows row-size sources source-size
                                            * k radius search */

/* Fails unless graphs of up to `nodes` nodes each have fewer than 2^31 in all.
 */
dfgnn_status dfgnn__check_batch(double graphs, double nodes);

/* Makes the parts of a square batch; takes edges and graph_ptr over. */
dfgnn_status dfgnn__batch_finish(dfgnn__parts *parts, dfgnn__edges *edges,
                                 int64_t *graph_ptr, int64_t graphs);

/* Points of the plane in integer coordinates, where all tests are exact. */
typedef struct dfgnn__point {
  int64_t x, y; /* 0 .. DFGNN__PLANE - 1 */
} dfgnn__point;
#define DFGNN__PLANE ((int64_t)1 << 26)

/* Draws count distinct random points, numbered in raster order: by bands from
 * bottom to top, within a band from left to right. */
void dfgnn__random_points(dfgnn__point *points, int64_t count,
                          dfgnn__random *random);

/* Adds the edges (i, j), i < j, of the Delaunay triangulation of points. */
dfgnn_status dfgnn__delaunay(dfgnn__edges *edges, const dfgnn__point *points,
                             int64_t count);

#endif
