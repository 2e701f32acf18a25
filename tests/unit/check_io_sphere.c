/* check_io_sphere.c - grids of the sphere, and nearest neighbours on them */
#include "graph/io/io.h"
#include "graph/io/sphere.h"
#include "tests/unit/files.h"

#include <math.h>

static int64_t apart(dfgnn__place p, dfgnn__place q) {
  int64_t x = (int64_t)p.x - q.x, y = (int64_t)p.y - q.y,
          z = (int64_t)p.z - q.z;
  return x * x + y * y + z * z;
}

TEST(points_are_on_the_sphere) {
  static const struct {
    dfgnn__sphere_grid grid;
    int64_t size, count;
  } rows[] = {{DFGNN__OCTAHEDRAL, 1, 40}, {DFGNN__OCTAHEDRAL, 24, 3168},
              {DFGNN__LATITUDE, 1, 1},    {DFGNN__LATITUDE, 5000, 5000},
              {DFGNN__ICOSPHERE, 0, 12},  {DFGNN__ICOSPHERE, 4, 2562}};
  for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
    dfgnn__places p;
    double sum[3] = {0};
    ck_ok(dfgnn__sphere_places(&p, rows[k].grid, rows[k].size));
    ck_assert_int_eq(p.count, rows[k].count);
    for (int64_t i = 0; i < p.count; i++) {
      double length = sqrt((double)apart(p.place[i], (dfgnn__place){0, 0, 0}));
      ck_assert_double_eq_tol(length, 0x1p30, 4);
      sum[0] += p.place[i].x;
      sum[1] += p.place[i].y;
      sum[2] += p.place[i].z;
    }
    for (int axis = 0; axis < 3 && p.count > 1; axis++)
      ck_assert_double_eq_tol(sum[axis] / (double)p.count / 0x1p30, 0, 1e-3);
    dfgnn__places_free(&p);
  }
}

/* All pairs are compared, where rows search and where sources search. */
TEST(neighbours_on_the_sphere_are_the_nearest) {
  static const char *const search[] = {"rows", "sources"};
  for (int turned = 0; turned < 2; turned++) {
    char spec[128];
    snprintf(spec, sizeof spec,
             "sphere:rows=icosphere,row-size=2,source-size=5,k=4,search=%s",
             search[turned]);
    dfgnn_csr *csr = generated(spec);
    dfgnn__places row, source;
    ck_ok(dfgnn__sphere_places(&row, DFGNN__ICOSPHERE, 2));
    ck_ok(dfgnn__sphere_places(&source, DFGNN__OCTAHEDRAL, 5));
    int64_t many = turned ? source.count : row.count, checked = 0;
    int64_t *furthest = calloc((size_t)many, sizeof *furthest);
    for (int64_t i = 0; i < csr->destinations; i++)
      for (int64_t e = dfgnn__csr_offset(csr, i);
           e < dfgnn__csr_offset(csr, i + 1); e++) {
        int64_t j = dfgnn__csr_index(csr, e), at = turned ? j : i;
        int64_t d = apart(row.place[i], source.place[j]);
        furthest[at] = d > furthest[at] ? d : furthest[at];
      }
    for (int64_t at = 0; at < many; at++, checked++) {
      int64_t nearer = 0, others = turned ? row.count : source.count;
      for (int64_t o = 0; o < others; o++)
        nearer += apart(row.place[turned ? o : at],
                        source.place[turned ? at : o]) < furthest[at];
      ck_assert_int_lt(nearer, 4);
    }
    ck_assert_int_eq(checked, turned ? 280 : 162);
    ck_assert_int_eq(csr->edges, 4 * many);
    free(furthest);
    dfgnn__places_free(&row);
    dfgnn__places_free(&source);
  }
}

TEST(neighbours_within_a_radius_are_all_there) {
  dfgnn_csr *csr = generated(
      "sphere:source-size=700,sources=latitude,row-size=6,k=0,radius=.2");
  dfgnn__places row, source;
  int64_t expected = 0, reach = (int64_t)(.2 * 0x1p30);
  ck_ok(dfgnn__sphere_places(&row, DFGNN__OCTAHEDRAL, 6));
  ck_ok(dfgnn__sphere_places(&source, DFGNN__LATITUDE, 700));
  for (int64_t i = 0; i < row.count; i++)
    for (int64_t j = 0; j < source.count; j++)
      expected += apart(row.place[i], source.place[j]) <= reach * reach;
  ck_assert_int_gt(expected, 1000);
  ck_assert_int_eq(csr->edges, expected);
  dfgnn__places_free(&row);
  dfgnn__places_free(&source);
}

/* A radius that rounds to nothing reaches the same place alone, not any. */
TEST(a_tiny_radius_is_no_missing_one) {
  dfgnn_csr *csr =
      generated("sphere:row-size=6,source-size=6,k=3,radius=1e-12");
  ck_assert_int_gt(csr->edges, 0);
  ck_assert_int_eq(csr->edges, csr->destinations);
}

/* The same attributes are computed in floating point, from the axes of the
 * place itself. */
TEST(edges_of_the_sphere_have_length_and_direction) {
  dfgnn_csr *csr = generated("sphere:row-size=6,source-size=6,k=5");
  dfgnn__places p;
  const float *attribute = dfgnn__csr_edge_attr(csr);
  ck_ok(dfgnn__sphere_places(&p, DFGNN__OCTAHEDRAL, 6));
  int64_t loops = 0;
  for (int64_t i = 0; i < csr->destinations; i++) {
    double x = p.place[i].x / 0x1p30, y = p.place[i].y / 0x1p30,
           z = p.place[i].z / 0x1p30, h = hypot(x, y);
    for (int64_t e = dfgnn__csr_offset(csr, i);
         e < dfgnn__csr_offset(csr, i + 1); e++) {
      dfgnn__place q = p.place[dfgnn__csr_index(csr, e)];
      double dx = q.x / 0x1p30 - x, dy = q.y / 0x1p30 - y,
             dz = q.z / 0x1p30 - z;
      double east = (x * dy - y * dx) / h,
             north = -z * (x * dx + y * dy) / h + h * dz;
      double flat = hypot(east, north);
      ck_assert_double_eq_tol(attribute[3 * e],
                              sqrt(dx * dx + dy * dy + dz * dz), 1e-6);
      ck_assert_double_eq_tol(attribute[3 * e + 1], flat ? east / flat : 0,
                              1e-5);
      ck_assert_double_eq_tol(attribute[3 * e + 2], flat ? north / flat : 0,
                              1e-5);
      loops += dfgnn__csr_index(csr, e) == i;
    }
  }
  ck_assert_int_eq(loops, csr->destinations);
  dfgnn__places_free(&p);
  done(csr);
  csr = generated("grid:rows=2,columns=2");
  ck_assert_ptr_null(dfgnn__csr_edge_attr(csr));
}

TEST_MAIN("io_sphere", FILE_TESTS)
