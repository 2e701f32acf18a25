/* delaunay.c - Delaunay triangulation by divide and conquer
 *
 * Guibas & Stolfi 1985, with their quad-edges.  Coordinates are integers below
 * 2^26, so that orientation fits 64 and the circle test 128 bits: no rounding,
 * and the same triangles on every machine. */
#include "graph/io/generators.h"
#include "lib/base/error.h"

#include <stdlib.h>

__extension__ typedef __int128 int128;

typedef int32_t edge; /* 4 k + rotation of quad-edge k */

typedef struct site {
  dfgnn__point at;
  int32_t number;
} site;

typedef struct mesh {
  const site *sites;
  edge *next;      /* [edges]: the next edge around the origin */
  int32_t *origin; /* [edges]; -1 for edges of the dual */
  int32_t quads;
  edge unused; /* a list of deleted quad-edges, through next; -1 ends it */
} mesh;

typedef struct hull {
  edge left, right; /* counter-clockwise from the leftmost, clockwise from the
                     * rightmost site */
} hull;

static edge rot(edge e) { return (e & ~3) | ((e + 1) & 3); }
static edge rot_back(edge e) { return (e & ~3) | ((e + 3) & 3); }
static edge sym(edge e) { return e ^ 2; }
static edge onext(const mesh *m, edge e) { return m->next[e]; }
static edge oprev(const mesh *m, edge e) { return rot(m->next[rot(e)]); }
static edge lnext(const mesh *m, edge e) { return rot(m->next[rot_back(e)]); }
static edge rprev(const mesh *m, edge e) { return m->next[sym(e)]; }
static int32_t org(const mesh *m, edge e) { return m->origin[e]; }
static int32_t dest(const mesh *m, edge e) { return m->origin[sym(e)]; }

static edge make_edge(mesh *m, int32_t from, int32_t to) {
  edge e = m->unused;
  if (e >= 0)
    m->unused = m->next[e];
  else
    e = 4 * m->quads++; /* planar: never more than 3 n at a time */
  m->next[e] = e;
  m->next[e + 1] = e + 3;
  m->next[e + 2] = e + 2;
  m->next[e + 3] = e + 1;
  m->origin[e] = from;
  m->origin[e + 2] = to;
  return e;
}

static void splice(mesh *m, edge a, edge b) {
  edge alpha = rot(m->next[a]), beta = rot(m->next[b]);
  edge swap = m->next[a];
  m->next[a] = m->next[b];
  m->next[b] = swap;
  swap = m->next[alpha];
  m->next[alpha] = m->next[beta];
  m->next[beta] = swap;
}

static edge connect(mesh *m, edge a, edge b) {
  edge e = make_edge(m, dest(m, a), org(m, b));
  splice(m, e, lnext(m, a));
  splice(m, sym(e), b);
  return e;
}

static void delete_edge(mesh *m, edge e) {
  splice(m, e, oprev(m, e));
  splice(m, sym(e), oprev(m, sym(e)));
  e &= ~3;
  m->origin[e] = -1;
  m->next[e] = m->unused;
  m->unused = e;
}

static int ccw(const mesh *m, int32_t a, int32_t b, int32_t c) {
  const dfgnn__point *p = &m->sites[a].at, *q = &m->sites[b].at;
  const dfgnn__point *r = &m->sites[c].at;
  return (q->x - p->x) * (r->y - p->y) - (q->y - p->y) * (r->x - p->x) > 0;
}

/* Is d inside the circle through a, b, c, which turn counter-clockwise? */
static int in_circle(const mesh *m, int32_t a, int32_t b, int32_t c,
                     int32_t d) {
  const dfgnn__point *o = &m->sites[d].at;
  const int32_t corner[3] = {a, b, c};
  int64_t x[3], y[3];
  int128 sum = 0;
  for (int k = 0; k < 3; k++) {
    x[k] = m->sites[corner[k]].at.x - o->x;
    y[k] = m->sites[corner[k]].at.y - o->y;
  }
  for (int k = 0; k < 3; k++) {
    int u = (k + 1) % 3, v = (k + 2) % 3;
    sum += (int128)(x[k] * x[k] + y[k] * y[k]) * (x[u] * y[v] - x[v] * y[u]);
  }
  return sum > 0;
}

static int left_of(const mesh *m, int32_t s, edge e) {
  return ccw(m, s, org(m, e), dest(m, e));
}
static int right_of(const mesh *m, int32_t s, edge e) {
  return ccw(m, s, dest(m, e), org(m, e));
}

static hull small_hull(mesh *m, int32_t first, int32_t count) {
  edge a = make_edge(m, first, first + 1);
  if (count == 2)
    return (hull){a, sym(a)};
  edge b = make_edge(m, first + 1, first + 2);
  splice(m, sym(a), b);
  if (ccw(m, first, first + 1, first + 2)) {
    connect(m, b, a);
    return (hull){a, sym(b)};
  }
  if (ccw(m, first, first + 2, first + 1)) {
    edge c = connect(m, b, a);
    return (hull){sym(c), c};
  }
  return (hull){a, sym(b)};
}

/* The next edge up on the left of the rising bubble; right_candidate finds that
 * on its right. */
static edge left_candidate(mesh *m, edge base) {
  edge e = onext(m, sym(base));
  while (right_of(m, dest(m, e), base) &&
         in_circle(m, dest(m, base), org(m, base), dest(m, e),
                   dest(m, onext(m, e)))) {
    edge next = onext(m, e);
    delete_edge(m, e);
    e = next;
  }
  return e;
}

static edge right_candidate(mesh *m, edge base) {
  edge e = oprev(m, base);
  while (right_of(m, dest(m, e), base) &&
         in_circle(m, dest(m, base), org(m, base), dest(m, e),
                   dest(m, oprev(m, e)))) {
    edge next = oprev(m, e);
    delete_edge(m, e);
    e = next;
  }
  return e;
}

static void merge(mesh *m, edge base) {
  for (;;) {
    edge l = left_candidate(m, base), r = right_candidate(m, base);
    int l_valid = right_of(m, dest(m, l), base);
    int r_valid = right_of(m, dest(m, r), base);
    if (!l_valid && !r_valid)
      return;
    if (!l_valid ||
        (r_valid && in_circle(m, dest(m, l), org(m, l), org(m, r), dest(m, r))))
      base = connect(m, r, sym(base));
    else
      base = connect(m, sym(base), sym(l));
  }
}

static hull triangulate(mesh *m, int32_t first, int32_t count) {
  if (count <= 3)
    return small_hull(m, first, count);
  hull l = triangulate(m, first, count / 2);
  hull r = triangulate(m, first + count / 2, count - count / 2);
  edge left = l.right, right = r.left;
  for (;;) /* the lower common tangent */
    if (left_of(m, org(m, right), left))
      left = lnext(m, left);
    else if (right_of(m, org(m, left), right))
      right = rprev(m, right);
    else
      break;
  edge base = connect(m, sym(right), left);
  if (org(m, left) == org(m, l.left))
    l.left = sym(base);
  if (org(m, right) == org(m, r.right))
    r.right = base;
  merge(m, base);
  return (hull){l.left, r.right};
}

static int by_x(const void *a, const void *b) {
  const site *p = a, *q = b;
  if (p->at.x != q->at.x)
    return p->at.x < q->at.x ? -1 : 1;
  return (p->at.y > q->at.y) - (p->at.y < q->at.y);
}

dfgnn_status dfgnn__delaunay(dfgnn__edges *edges, const dfgnn__point *points,
                             int64_t count) {
  if (count < 2)
    return DFGNN_OK;
  if (count > INT32_MAX / 16)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "found %lld points in a graph, expected at most %d",
                       (long long)count, INT32_MAX / 16);
  dfgnn_status status = DFGNN_OK;
  mesh m = {.unused = -1};
  site *sites = malloc((size_t)count * sizeof *sites);
  m.next = malloc(12 * (size_t)count * sizeof *m.next);
  m.origin = malloc(12 * (size_t)count * sizeof *m.origin);
  if (!sites || !m.next || !m.origin)
    DFGNN_GO(dfgnn__fail(DFGNN_ERROR_MEMORY, "cannot triangulate %lld points",
                         (long long)count));
  for (int64_t i = 0; i < count; i++)
    sites[i] = (site){points[i], (int32_t)i};
  qsort(sites, (size_t)count, sizeof *sites, by_x);
  for (int64_t i = 1; i < count; i++)
    if (!by_x(&sites[i - 1], &sites[i]))
      DFGNN_GO(dfgnn__fail(DFGNN_ERROR_INVALID,
                           "found points %d and %d in one place, expected "
                           "distinct ones",
                           sites[i - 1].number, sites[i].number));
  m.sites = sites;
  triangulate(&m, 0, (int32_t)count);
  for (edge e = 0; e < 4 * m.quads && !status; e += 4)
    if (m.origin[e] >= 0) {
      int32_t a = sites[m.origin[e]].number, b = sites[m.origin[e + 2]].number;
      status = dfgnn__edges_add(edges, a < b ? a : b, a < b ? b : a);
    }
out:
  free(m.origin);
  free(m.next);
  free(sites);
  return status;
}
