#include "graph/io/sphere.h"
#include "lib/base/error.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

__extension__ typedef __int128 wide;

#define MAX_LEVEL 10
#define MAX_RINGS 10000
#define MAX_POINTS 100000000

void dfgnn__places_free(dfgnn__places *places) {
  free(places->place);
  *places = (dfgnn__places){0};
}

static dfgnn_status allocate(dfgnn__places *places, int64_t count) {
  *places = (dfgnn__places){
      .place = malloc((size_t)count * sizeof *places->place), .count = count};
  if (!places->place)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "cannot hold %lld points",
                       (long long)count);
  return DFGNN_OK;
}

/* The largest whole number whose square is at most n. */
static int64_t square_root(int64_t n) {
  int64_t root = (int64_t)sqrt((double)n);
  while (root * root > n)
    root--;
  while ((root + 1) * (root + 1) <= n)
    root++;
  return root;
}

/* Cosine and sine of p / q turns, 0 <= p < q, in units of 2^-60: the Taylor
 * series within half a right angle, in whole numbers. */
static void turn(int64_t p, int64_t q, int64_t *cosine, int64_t *sine) {
  const int64_t one = (int64_t)1 << 60, eighth = 905502432259640355;
  int64_t octant = 8 * p / q, rest = 8 * p % q;
  if (octant & 1)
    rest = q - rest;
  int64_t x = (int64_t)((wide)eighth * rest / q), sum[2] = {one, x};
  for (int64_t n = 2, term = x; term; n++) {
    term = (int64_t)(((wide)term * x) >> 60) / n;
    sum[n & 1] += n & 2 ? -term : term;
  }
  int swap = ((octant + 1) & 2) != 0; /* nearer to the axis of the sine */
  int64_t c = sum[swap], s = sum[!swap];
  *cosine = octant >= 2 && octant < 6 ? -c : c;
  *sine = octant >= 4 ? -s : s;
}

/* The product of two numbers in units of 2^-60, in units of 2^-30. */
static int32_t product(int64_t a, int64_t b) {
  return (int32_t)(((wide)a * b + ((wide)1 << 89)) >> 90);
}

/* Puts count points on ring number `ring` of `rings`, counted from north to
 * south. */
static void fill_ring(dfgnn__place *place, int64_t count, int64_t ring,
                      int64_t rings) {
  int64_t height, radius;
  turn(2 * ring + 1, 4 * rings, &height, &radius);
  for (int64_t j = 0; j < count; j++) {
    int64_t c, s;
    turn(j, count, &c, &s);
    place[j] = (dfgnn__place){product(radius, c), product(radius, s),
                              product(height, (int64_t)1 << 60)};
  }
}

static dfgnn_status octahedral(dfgnn__places *places, int64_t size) {
  int64_t used = 0;
  dfgnn_status status = allocate(places, 4 * size * (size + 9));
  for (int64_t i = 0; i < 2 * size && !status; i++) {
    int64_t count = 4 * (i < size ? i + 1 : 2 * size - i) + 16;
    fill_ring(places->place + used, count, i, 2 * size);
    used += count;
  }
  return status;
}

/* About sqrt(3/4 size) rings lie as far from each other as their points do. */
static dfgnn_status latitude(dfgnn__places *places, int64_t size) {
  int64_t rings = square_root(3 * size / 4) / 2 * 2, used = 0;
  rings = rings ? rings : 1;
  wide around = 0, so_far = 0;
  dfgnn_status status = allocate(places, size);
  for (int64_t i = 0, c, s; i < rings; i++) {
    turn(2 * i + 1, 4 * rings, &c, &s);
    around += s;
  }
  for (int64_t i = 0, c, s; i < rings && !status; i++) {
    turn(2 * i + 1, 4 * rings, &c, &s);
    so_far += s;
    int64_t end = (int64_t)((so_far * size + around / 2) / around);
    fill_ring(places->place + used, end - used, i, rings);
    used = end;
  }
  return status;
}

typedef struct face {
  int32_t corner[3];
} face;

typedef struct mesh {
  dfgnn__places places; /* room for all levels */
  face *face, *finer;
  int64_t faces, lines, points;
  int64_t *line; /* lower corner << 32 | higher corner, ascending */
} mesh;

static int by_number(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

/* A line is an edge of two faces that run along it in opposite directions, so
 * that one of them meets the lower corner first. */
static void find_lines(mesh *m) {
  m->lines = 0;
  for (int64_t f = 0; f < m->faces; f++)
    for (int k = 0; k < 3; k++) {
      int64_t a = m->face[f].corner[k], b = m->face[f].corner[(k + 1) % 3];
      if (a < b)
        m->line[m->lines++] = a << 32 | b;
    }
  qsort(m->line, (size_t)m->lines, sizeof *m->line, by_number);
}

static int32_t middle_of(const mesh *m, int64_t a, int64_t b) {
  int64_t key = a < b ? a << 32 | b : b << 32 | a;
  const int64_t *line =
      bsearch(&key, m->line, (size_t)m->lines, sizeof *m->line, by_number);
  return (int32_t)(m->points + (line - m->line));
}

static dfgnn__place middle(dfgnn__place a, dfgnn__place b) {
  int64_t x = (int64_t)a.x + b.x, y = (int64_t)a.y + b.y,
          z = (int64_t)a.z + b.z;
  int64_t length = square_root(x * x + y * y + z * z);
  return (dfgnn__place){(int32_t)(x * DFGNN__SPHERE / length),
                        (int32_t)(y * DFGNN__SPHERE / length),
                        (int32_t)(z * DFGNN__SPHERE / length)};
}

/* Each face becomes four. */
static void refine(mesh *m) {
  dfgnn__place *place = m->places.place;
  for (int64_t f = 0; f < m->faces; f++) {
    int32_t a = m->face[f].corner[0], b = m->face[f].corner[1],
            c = m->face[f].corner[2];
    int32_t ab = middle_of(m, a, b), bc = middle_of(m, b, c),
            ca = middle_of(m, c, a);
    m->finer[4 * f + 0] = (face){{a, ab, ca}};
    m->finer[4 * f + 1] = (face){{b, bc, ab}};
    m->finer[4 * f + 2] = (face){{c, ca, bc}};
    m->finer[4 * f + 3] = (face){{ab, bc, ca}};
  }
  for (int64_t k = 0; k < m->lines; k++)
    place[m->points + k] =
        middle(place[m->line[k] >> 32], place[m->line[k] & INT32_MAX]);
  m->points += m->lines;
  m->faces *= 4;
  face *swap = m->face;
  m->face = m->finer;
  m->finer = swap;
}

static dfgnn_status add_lines(dfgnn__edges *edges, const mesh *m) {
  dfgnn_status status = DFGNN_OK;
  for (int64_t k = 0; k < m->lines && !status; k++) {
    int32_t a = (int32_t)(m->line[k] >> 32),
            b = (int32_t)(m->line[k] & INT32_MAX);
    if (!(status = dfgnn__edges_add(edges, a, b)))
      status = dfgnn__edges_add(edges, b, a);
  }
  return status;
}

/* The corners are (0, +-S, +-L) and their cyclic turns; S and L are half the
 * sides of a golden rectangle. */
static void icosahedron(mesh *m) {
  enum { S = 564499483, L = 913379351 };
  static const dfgnn__place corners[12] = {
      {-S, L, 0}, {S, L, 0}, {-S, -L, 0}, {S, -L, 0},
      {0, -S, L}, {0, S, L}, {0, -S, -L}, {0, S, -L},
      {L, 0, -S}, {L, 0, S}, {-L, 0, -S}, {-L, 0, S}};
  static const face faces[20] = {
      {{0, 11, 5}}, {{0, 5, 1}},  {{0, 1, 7}},   {{0, 7, 10}}, {{0, 10, 11}},
      {{1, 5, 9}},  {{5, 11, 4}}, {{11, 10, 2}}, {{10, 7, 6}}, {{7, 1, 8}},
      {{3, 9, 4}},  {{3, 4, 2}},  {{3, 2, 6}},   {{3, 6, 8}},  {{3, 8, 9}},
      {{4, 9, 5}},  {{2, 4, 11}}, {{6, 2, 10}},  {{8, 6, 7}},  {{9, 8, 1}}};
  memcpy(m->places.place, corners, sizeof corners);
  memcpy(m->face, faces, sizeof faces);
  m->points = 12;
  m->faces = 20;
}

dfgnn_status dfgnn__icosphere(dfgnn__places *places, dfgnn__edges *edges,
                              int64_t level, int64_t coarsest) {
  size_t faces = (size_t)20 << 2 * level;
  mesh m = {.face = malloc(faces * sizeof *m.face),
            .finer = malloc(faces * sizeof *m.finer),
            .line = malloc(faces * 3 / 2 * sizeof *m.line)};
  dfgnn_status status = allocate(&m.places, (int64_t)faces / 2 + 2);
  if (!status && (!m.face || !m.finer || !m.line))
    status = dfgnn__fail(DFGNN_ERROR_MEMORY, "cannot hold %lld triangles",
                         (long long)faces);
  if (!status)
    icosahedron(&m);
  for (int64_t l = 0; l <= level && !status; l++) {
    find_lines(&m);
    if (edges && l >= coarsest)
      status = add_lines(edges, &m);
    if (l < level)
      refine(&m);
  }
  free(m.line);
  free(m.finer);
  free(m.face);
  if (status)
    dfgnn__places_free(&m.places);
  *places = m.places;
  return status;
}

dfgnn_status dfgnn__sphere_places(dfgnn__places *places,
                                  dfgnn__sphere_grid grid, int64_t size) {
  static const struct {
    const char *name;
    int64_t least, most;
  } range[] = {
      [DFGNN__OCTAHEDRAL] = {"rings an octahedral hemisphere has", 1,
                             MAX_RINGS},
      [DFGNN__LATITUDE] = {"points on latitudes", 1, MAX_POINTS},
      [DFGNN__ICOSPHERE] = {"the level of an icosphere", 0, MAX_LEVEL}};
  if (size < range[grid].least || size > range[grid].most)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "found the size %lld, expected %lld to %lld, %s",
                       (long long)size, (long long)range[grid].least,
                       (long long)range[grid].most, range[grid].name);
  return grid == DFGNN__OCTAHEDRAL ? octahedral(places, size)
         : grid == DFGNN__LATITUDE ? latitude(places, size)
                                   : dfgnn__icosphere(places, NULL, size, size);
}

/* d is the vector from p to q; east and north lie in the plane that touches the
 * sphere at p, and at a pole the meridian of 0 degrees points east. */
static void attributes_of(float attribute[3], dfgnn__place p, dfgnn__place q) {
  int64_t d[3] = {(int64_t)q.x - p.x, (int64_t)q.y - p.y, (int64_t)q.z - p.z};
  int64_t length = d[0] * d[0] + d[1] * d[1] + d[2] * d[2];
  int64_t x = p.x, y = p.y;
  if (!x && !y)
    x = 0, y = -1;
  int64_t squared = x * x + y * y, ring = square_root(squared);
  wide along = (wide)x * d[0] + (wide)y * d[1];
  int64_t east = (int64_t)(((wide)x * d[1] - (wide)y * d[0]) / ring);
  int64_t north = (int64_t)(((wide)squared * d[2] - (wide)p.z * along) /
                            ((wide)ring * DFGNN__SPHERE));
  int64_t flat = square_root(east * east + north * north);
  attribute[0] = (float)(sqrt((double)length) / (double)DFGNN__SPHERE);
  attribute[1] = flat ? (float)((double)east / (double)flat) : 0;
  attribute[2] = flat ? (float)((double)north / (double)flat) : 0;
}

dfgnn_status dfgnn__sphere_attributes(dfgnn__parts *parts,
                                      const dfgnn__places *rows,
                                      const dfgnn__places *sources) {
  size_t edges = (size_t)parts->edges;
  parts->edge_attr = malloc((edges ? edges : 1) * 3 * sizeof(float));
  if (!parts->edge_attr)
    return dfgnn__fail(DFGNN_ERROR_MEMORY,
                       "cannot hold attributes of %lld edges",
                       (long long)parts->edges);
  for (int64_t i = 0; i < parts->destinations; i++)
    for (int64_t e = parts->offsets[i]; e < parts->offsets[i + 1]; e++)
      attributes_of(parts->edge_attr + 3 * e, rows->place[i],
                    sources->place[parts->indices[e]]);
  return DFGNN_OK;
}
