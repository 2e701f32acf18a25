/* gen_plane.c - graphs of points in the plane: nearest neighbours, regions */
#include "graph/io/generators.h"
#include "graph/io/near.h"
#include "lib/base/error.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int64_t bands(int64_t count) {
  int64_t b = (int64_t)sqrt((double)count);
  return b < 1 ? 1 : b;
}

static _Thread_local int64_t band_count; /* of the points being compared */

static int by_raster(const void *a, const void *b) {
  const dfgnn__point *p = a, *q = b;
  int64_t p_band = p->y * band_count / DFGNN__PLANE;
  int64_t q_band = q->y * band_count / DFGNN__PLANE;
  if (p_band != q_band)
    return p_band < q_band ? -1 : 1;
  if (p->x != q->x)
    return p->x < q->x ? -1 : 1;
  return (p->y > q->y) - (p->y < q->y);
}

void dfgnn__random_points(dfgnn__point *points, int64_t count,
                          dfgnn__random *random) {
  int twins;
  band_count = bands(count);
  for (int64_t i = 0; i < count; i++)
    points[i] = (dfgnn__point){dfgnn__random_below(random, DFGNN__PLANE),
                               dfgnn__random_below(random, DFGNN__PLANE)};
  do {
    twins = 0;
    qsort(points, (size_t)count, sizeof *points, by_raster);
    for (int64_t i = 1; i < count; i++)
      if (points[i].x == points[i - 1].x && points[i].y == points[i - 1].y) {
        points[i - 1].x = dfgnn__random_below(random, DFGNN__PLANE);
        twins = 1;
      }
  } while (twins);
}

/* The plane in square cells of about two points each. */
typedef struct cells {
  int64_t side;
  int64_t *start; /* [side * side + 1] */
  int32_t *point; /* points, cell after cell */
} cells;

static int64_t cell_of(const cells *c, int64_t v) {
  return v * c->side / DFGNN__PLANE;
}

static int cells_build(cells *c, const dfgnn__point *points, int64_t count) {
  c->side = (int64_t)sqrt((double)count / 2) + 1;
  c->start = calloc((size_t)(c->side * c->side) + 2, sizeof *c->start);
  c->point = malloc((size_t)(count + 1) * sizeof *c->point);
  if (!c->start || !c->point)
    return 0;
  for (int64_t i = 0; i < count; i++)
    c->start[cell_of(c, points[i].y) * c->side + cell_of(c, points[i].x) + 2]++;
  for (int64_t k = 0; k < c->side * c->side; k++)
    c->start[k + 2] += c->start[k + 1];
  for (int64_t i = 0; i < count; i++)
    c->point[c->start[cell_of(c, points[i].y) * c->side +
                      cell_of(c, points[i].x) + 1]++] = (int32_t)i;
  return 1;
}

static void cells_free(cells *c) {
  free(c->start);
  free(c->point);
}

static void near_add_cell(dfgnn__near *near, const cells *c,
                          const dfgnn__point *points, int64_t i, int64_t x,
                          int64_t y) {
  if (x < 0 || y < 0 || x >= c->side || y >= c->side)
    return;
  int64_t cell = y * c->side + x;
  for (int64_t k = c->start[cell]; k < c->start[cell + 1]; k++) {
    int32_t j = c->point[k];
    int64_t dx = points[j].x - points[i].x, dy = points[j].y - points[i].y;
    if (j != i)
      dfgnn__near_add(near, dx * dx + dy * dy, j);
  }
}

/* Searches rings of cells around the point, until no ring farther out can hold
 * a nearer point. */
static void near_find(dfgnn__near *near, const cells *c,
                      const dfgnn__point *points, int64_t i) {
  int64_t x = cell_of(c, points[i].x), y = cell_of(c, points[i].y);
  near->count = 0;
  for (int64_t r = 0; r <= c->side; r++) {
    int64_t reach = (r - 1) * DFGNN__PLANE / c->side;
    if (r > 1 && near->count == near->wanted &&
        near->distance[near->count - 1] <= reach * reach)
      break;
    for (int64_t k = -r; k <= r; k++) {
      near_add_cell(near, c, points, i, x + k, y - r);
      if (r > 0)
        near_add_cell(near, c, points, i, x + k, y + r);
    }
    for (int64_t k = 1 - r; k < r; k++) {
      near_add_cell(near, c, points, i, x - r, y + k);
      near_add_cell(near, c, points, i, x + r, y + k);
    }
  }
}

static dfgnn_status add_nearest(dfgnn__edges *edges, const dfgnn__point *points,
                                int64_t count, int64_t first,
                                dfgnn__random *random, void *data) {
  dfgnn__near *near = data;
  cells c;
  (void)random;
  dfgnn_status status = DFGNN_OK;
  if (!cells_build(&c, points, count))
    status = dfgnn__fail(DFGNN_ERROR_MEMORY, "cannot index %lld points",
                         (long long)count);
  for (int64_t i = 0; i < count && !status; i++) {
    near_find(near, &c, points, i);
    for (int64_t k = 0; k < near->count && !status; k++)
      status = dfgnn__edges_add(edges, (int32_t)(first + i),
                                (int32_t)(first + near->point[k]));
  }
  cells_free(&c);
  return status;
}

/* ---- batches of graphs of random points ---------------------------------- */

enum { NODES, SETTING, BATCH, SEED }; /* the setting: k, or drop */

/* Adds the edges of a graph whose points are numbered from `first` on. */
typedef dfgnn_status add_graph(dfgnn__edges *edges, const dfgnn__point *points,
                               int64_t nodes, int64_t first,
                               dfgnn__random *random, void *data);

static dfgnn_status each_graph(dfgnn__parts *parts, const double *value,
                               add_graph *add, void *data) {
  int64_t nodes = (int64_t)value[NODES], graphs = (int64_t)value[BATCH];
  dfgnn__edges edges = {0};
  DFGNN_TRY(dfgnn__check_batch(value[BATCH], value[NODES]));
  dfgnn_status status = DFGNN_OK;
  int64_t *graph_ptr = calloc((size_t)graphs + 1, sizeof *graph_ptr);
  dfgnn__point *points = malloc((size_t)nodes * sizeof *points);
  if (!graph_ptr || !points)
    status = dfgnn__fail(DFGNN_ERROR_MEMORY, "cannot hold %lld points",
                         (long long)nodes);
  for (int64_t g = 0; g < graphs && !status; g++) {
    dfgnn__random random =
        dfgnn__random_stream((uint64_t)value[SEED], (uint64_t)g);
    dfgnn__random_points(points, nodes, &random);
    status = add(&edges, points, nodes, g * nodes, &random, data);
    graph_ptr[g + 1] = (g + 1) * nodes;
  }
  if (!status) {
    status = dfgnn__batch_finish(parts, &edges, graph_ptr, graphs);
    graph_ptr = NULL;
  }
  dfgnn__edges_free(&edges);
  free(points);
  free(graph_ptr);
  return status;
}

dfgnn_status dfgnn__generate_knn(dfgnn__parts *parts, const double *value) {
  dfgnn__near near = {.wanted = (int64_t)value[SETTING]};
  if (near.wanted >= (int64_t)value[NODES])
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "found k=%lld, expected fewer than nodes=%lld",
                       (long long)near.wanted, (long long)value[NODES]);
  near.distance = malloc((size_t)near.wanted * sizeof *near.distance);
  near.point = malloc((size_t)near.wanted * sizeof *near.point);
  dfgnn_status status =
      near.distance && near.point
          ? each_graph(parts, value, add_nearest, &near)
          : dfgnn__fail(DFGNN_ERROR_MEMORY, "cannot hold %lld neighbours",
                        (long long)near.wanted);
  free(near.point);
  free(near.distance);
  return status;
}

/* Drops a share of the triangulation's edges, which begin at `begin`, and adds
 * the other direction of those it keeps. */
static dfgnn_status finish_regions(dfgnn__edges *edges, int64_t begin,
                                   int64_t first, double drop,
                                   dfgnn__random *random) {
  int64_t kept = begin, end = edges->count;
  for (int64_t e = begin; e < end; e++)
    if (dfgnn__random_unit(random) >= drop)
      edges->edge[kept++] =
          (dfgnn__edge){(int32_t)(edges->edge[e].row + first),
                        (int32_t)(edges->edge[e].column + first)};
  edges->count = kept;
  for (int64_t e = begin; e < kept; e++)
    DFGNN_TRY(
        dfgnn__edges_add(edges, edges->edge[e].column, edges->edge[e].row));
  return DFGNN_OK;
}

static dfgnn_status add_regions(dfgnn__edges *edges, const dfgnn__point *points,
                                int64_t nodes, int64_t first,
                                dfgnn__random *random, void *drop) {
  int64_t begin = edges->count;
  DFGNN_TRY(dfgnn__delaunay(edges, points, nodes));
  return finish_regions(edges, begin, first, *(double *)drop, random);
}

dfgnn_status dfgnn__generate_region(dfgnn__parts *parts, const double *value) {
  double drop = value[SETTING];
  return each_graph(parts, value, add_regions, &drop);
}
