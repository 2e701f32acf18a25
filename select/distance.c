/* distance.c - the distance of two problems on graphs, to predict regret
 *
 * Each feature is a logarithm or a share, scaled so that a difference of one is
 * about what makes another variant win.  The weights were fitted by leave-one-
 * graph-out regret over real graphs (dfgnn-bench --regret). */
#include <math.h>

#include "lib/key.h"
#include "select/select.h"

enum {
  DESTINATIONS,     /* log2 */
  EDGES,            /* log2 */
  MEAN_DEGREE,      /* log2 */
  MAX_DEGREE,       /* log2 */
  HEAVIEST_ROW,     /* log2 of its share of a unit's work */
  DEGREE_VARIATION, /* log2(1 + cv) */
  ISOLATED,         /* share of the rows */
  P99_OVER_MEAN,    /* log2 */
  REUSE,
  LOCALITY,
  GRAPHS,           /* log2 */
  DENSITY,          /* log2 */
  TABLE_OVER_CACHE, /* log2 of the gathered table's bytes over the cache's */
  DIM,              /* log2 */
  HEADS,            /* log2 */
  SOURCES_A_DESTINATION, /* log2 */
  COUNT
};
_Static_assert(COUNT == DFGNN_FEATURES, "a feature is missing");

static const double weights[DFGNN_FEATURES] = {
    [DESTINATIONS] = 0.15,
    [EDGES] = 0.25,
    [MEAN_DEGREE] = 0.60,
    [MAX_DEGREE] = 0.20,
    [HEAVIEST_ROW] = 0.40,
    [DEGREE_VARIATION] = 0.50,
    [ISOLATED] = 1.00,
    [P99_OVER_MEAN] = 0.20,
    [REUSE] = 0.80,
    [LOCALITY] = 0.40,
    [GRAPHS] = 0.05,
    [DENSITY] = 0.30,
    [TABLE_OVER_CACHE] = 0.35,
    [DIM] = 0.90,
    [HEADS] = 0.50,
    [SOURCES_A_DESTINATION] = 0.10,
};

static double log2_at_least(double x, double least) {
  return log2(x > least ? x : least);
}

void dfgnn__features(double f[DFGNN_FEATURES], const dfgnn_signature *s,
                     int64_t heads, int64_t dim, size_t element_size,
                     const dfgnn_device_info *device) {
  double edges = (double)s->edges,
         units = device->units > 0 ? device->units : 1;
  double mean = s->mean_degree, cache = (double)device->cache_bytes;
  double table =
      (double)s->sources * (double)heads * (double)dim * (double)element_size;
  f[DESTINATIONS] = log2_at_least((double)s->destinations, 1);
  f[EDGES] = log2_at_least(edges, 1);
  f[MEAN_DEGREE] = log2_at_least(mean, 0.25);
  f[MAX_DEGREE] = log2_at_least((double)s->max_degree, 1);
  f[HEAVIEST_ROW] =
      edges > 0 ? log2_at_least((double)s->max_degree * units / edges, 1.0 / 16)
                : -4;
  f[DEGREE_VARIATION] = log2(1 + s->degree_cv);
  f[ISOLATED] = s->isolated;
  f[P99_OVER_MEAN] =
      log2_at_least((double)s->p99_degree / (mean > 0 ? mean : 1), 1);
  f[REUSE] = s->reuse;
  f[LOCALITY] = s->locality;
  f[GRAPHS] = log2_at_least((double)s->graphs, 1);
  f[DENSITY] = log2_at_least(s->density, 1e-3);
  f[TABLE_OVER_CACHE] =
      log2_at_least(table / (cache > 0 ? cache : 1), 1.0 / 64);
  f[DIM] = log2((double)dim);
  f[HEADS] = log2((double)heads);
  f[SOURCES_A_DESTINATION] =
      s->destinations > 0
          ? log2_at_least((double)s->sources / (double)s->destinations,
                          1.0 / 64)
          : 0;
}

/* An octave is as far as the user's own graphs answer: one thread says little
 * of two. */
#define UNITS_WEIGHT 0.5

double dfgnn__units_distance(int units, int other) {
  return UNITS_WEIGHT *
         fabs(log2((double)(units > 0 ? units : 1) / (other > 0 ? other : 1)));
}

double dfgnn__distance(const double a[DFGNN_FEATURES],
                       const double b[DFGNN_FEATURES]) {
  double sum = 0;
  for (int k = 0; k < DFGNN_FEATURES; k++) {
    double d = weights[k] * (a[k] - b[k]);
    sum += d * d;
  }
  return sqrt(sum);
}

uint64_t dfgnn__quantised(uint64_t h, const double f[DFGNN_FEATURES]) {
  for (int k = 0; k < DFGNN_FEATURES; k++)
    h = dfgnn__fold(h, (uint64_t)(int64_t)floor(f[k] * 4 + 0.5));
  return h;
}
