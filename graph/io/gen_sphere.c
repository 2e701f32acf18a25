/* gen_sphere.c - graphs of weather models: multi-meshes of an icosphere, and
 * neighbours between two grids of the sphere */
#include "graph/io/generators.h"
#include "graph/io/near.h"
#include "graph/io/sphere.h"
#include "lib/base/error.h"

#include <stdlib.h>

/* A k-d tree: entry (low + high) / 2 of a range divides it, along the axis of
 * its depth; of points with equal coordinates the lower number comes first. */
typedef struct tree {
  const dfgnn__place *place;
  int32_t *point;
} tree;

static int64_t coordinate(const tree *t, int32_t point, int axis) {
  const dfgnn__place *p = &t->place[point];
  return axis == 0 ? p->x : axis == 1 ? p->y : p->z;
}

static int is_before(const tree *t, int32_t a, int32_t b, int axis) {
  int64_t p = coordinate(t, a, axis), q = coordinate(t, b, axis);
  return p < q || (p == q && a < b);
}

/* Moves the entries of [low, high) that come before entry k before it (Hoare's
 * selection). */
static void part_at(tree *t, int64_t low, int64_t high, int64_t k, int axis) {
  while (high - low > 1) {
    int32_t pivot = t->point[(low + high - 1) / 2];
    int64_t i = low - 1, j = high;
    for (;;) {
      do
        i++;
      while (is_before(t, t->point[i], pivot, axis));
      do
        j--;
      while (is_before(t, pivot, t->point[j], axis));
      if (i >= j)
        break;
      int32_t swap = t->point[i];
      t->point[i] = t->point[j];
      t->point[j] = swap;
    }
    if (k <= j)
      high = j + 1;
    else
      low = j + 1;
  }
}

static void tree_build(tree *t, int64_t low, int64_t high, int axis) {
  for (; high - low > 1; axis = (axis + 1) % 3) {
    int64_t middle = (low + high) / 2;
    part_at(t, low, high, middle, axis);
    tree_build(t, low, middle, (axis + 1) % 3);
    low = middle + 1;
  }
}

/* A search for the nearest points whose squared distance is at most reach. */
typedef struct search {
  const tree *tree;
  dfgnn__near near;
  int64_t at[3], reach;
} search;

static void search_range(search *s, int64_t low, int64_t high, int axis) {
  while (low < high) {
    const dfgnn__near *near = &s->near;
    int64_t middle = (low + high) / 2;
    int32_t point = s->tree->point[middle];
    const dfgnn__place *p = &s->tree->place[point];
    int64_t d[3] = {p->x - s->at[0], p->y - s->at[1], p->z - s->at[2]};
    int64_t distance = d[0] * d[0] + d[1] * d[1] + d[2] * d[2];
    int64_t across = d[axis], next = (axis + 1) % 3;
    if (distance <= s->reach)
      dfgnn__near_add(&s->near, distance, point);
    int64_t far_low = middle + 1, far_high = high;
    if (across >= 0) { /* the point is on the lower side */
      search_range(s, low, middle, (int)next);
    } else {
      search_range(s, middle + 1, high, (int)next);
      far_low = low;
      far_high = middle;
    }
    if (across * across > s->reach ||
        (near->count == near->wanted &&
         across * across > near->distance[near->count - 1]))
      return;
    low = far_low;
    high = far_high;
    axis = (int)next;
  }
}

/* Joins each point of `from` with the near points of `to`; turned: `from` are
 * the sources. */
static dfgnn_status join(dfgnn__edges *edges, const dfgnn__places *from,
                         const dfgnn__places *to, int64_t most, int64_t reach,
                         int turned) {
  dfgnn_status status = DFGNN_OK;
  tree t = {to->place, malloc((size_t)to->count * sizeof *t.point)};
  search s = {.tree = &t,
              .near = {.wanted = most,
                       .distance = malloc((size_t)most * sizeof(int64_t)),
                       .point = malloc((size_t)most * sizeof(int32_t))},
              .reach = reach};
  if (!t.point || !s.near.distance || !s.near.point)
    status = dfgnn__fail(DFGNN_ERROR_MEMORY, "cannot index %lld points",
                         (long long)to->count);
  if (!status) {
    for (int64_t i = 0; i < to->count; i++)
      t.point[i] = (int32_t)i;
    tree_build(&t, 0, to->count, 0);
  }
  for (int64_t i = 0; i < from->count && !status; i++) {
    const dfgnn__place *p = &from->place[i];
    s.near.count = 0;
    s.at[0] = p->x;
    s.at[1] = p->y;
    s.at[2] = p->z;
    search_range(&s, 0, to->count, 0);
    for (int64_t k = 0; k < s.near.count && !status; k++) {
      int32_t other = s.near.point[k];
      status = dfgnn__edges_add(edges, turned ? other : (int32_t)i,
                                turned ? (int32_t)i : other);
    }
  }
  free(s.near.point);
  free(s.near.distance);
  free(t.point);
  return status;
}

static dfgnn_status finish(dfgnn__parts *parts, dfgnn__edges *edges,
                           const dfgnn__places *rows,
                           const dfgnn__places *sources) {
  dfgnn_status status =
      dfgnn__edges_compress(parts, edges, rows->count, sources->count);
  if (!status && (status = dfgnn__sphere_attributes(parts, rows, sources)))
    dfgnn__parts_free(parts);
  return status;
}

dfgnn_status dfgnn__generate_icosphere(dfgnn__parts *parts,
                                       const double *value) {
  enum { LEVEL, COARSEST };
  dfgnn__places places = {0};
  dfgnn__edges edges = {0};
  if (value[COARSEST] > value[LEVEL])
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "found coarsest=%.0f, expected at most level=%.0f",
                       value[COARSEST], value[LEVEL]);
  dfgnn_status status = dfgnn__icosphere(&places, &edges, (int64_t)value[LEVEL],
                                         (int64_t)value[COARSEST]);
  if (!status)
    status = finish(parts, &edges, &places, &places);
  dfgnn__edges_free(&edges);
  dfgnn__places_free(&places);
  return status;
}

dfgnn_status dfgnn__generate_sphere(dfgnn__parts *parts, const double *value) {
  enum { ROWS, ROW_SIZE, SOURCES, SOURCE_SIZE, K, RADIUS, SEARCH };
  dfgnn__places rows = {0}, sources = {0};
  dfgnn__edges edges = {0};
  int turned = value[SEARCH] == 1;
  /* The radius is rounded down to a whole number, so its square is exact. */
  int64_t radius = (int64_t)(value[RADIUS] * (double)DFGNN__SPHERE);
  int64_t reach = value[RADIUS] != 0 ? radius * radius : INT64_MAX;
  if (!value[K] && !value[RADIUS])
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "found k=0 and radius=0, expected one of them");
  dfgnn_status status = dfgnn__sphere_places(
      &rows, (dfgnn__sphere_grid)value[ROWS], (int64_t)value[ROW_SIZE]);
  if (status)
    status = dfgnn__fail_prefix(status, "row-size: ");
  else if ((status = dfgnn__sphere_places(&sources,
                                          (dfgnn__sphere_grid)value[SOURCES],
                                          (int64_t)value[SOURCE_SIZE])))
    status = dfgnn__fail_prefix(status, "source-size: ");
  if (!status) {
    const dfgnn__places *from = turned ? &sources : &rows,
                        *to = turned ? &rows : &sources;
    int64_t k = (int64_t)value[K];
    if (k > to->count)
      status = dfgnn__fail(DFGNN_ERROR_INVALID,
                           "found k=%lld, expected at most %lld, the points "
                           "there are",
                           (long long)k, (long long)to->count);
    else
      status = join(&edges, from, to, k ? k : to->count, reach, turned);
  }
  if (!status)
    status = finish(parts, &edges, &rows, &sources);
  dfgnn__edges_free(&edges);
  dfgnn__places_free(&sources);
  dfgnn__places_free(&rows);
  return status;
}
