/* distance.c - how far two problems are apart, to predict regret
 *
 * Each feature is a logarithm or a share, scaled so that a difference of one is
 * about what makes another variant win.  The weights were fitted by leave-one-
 * graph-out regret over real graphs (bench/regret.sh prints it). */
#include <math.h>

#include "lib/select.h"

/* Farther away near graphs are no better than the rule: both 1.23 times the
 * best, over 27 problems of bench/results/h200/model_judge_*.json. */
const double dfgnn__trusted_radius = 2.0;

/* Up to here near graphs cost 1.001 times the best and the model 1.03 (14
 * problems of the same files); from here to 1, 1.07 and 1.05 (382 problems). */
const double dfgnn__near_distance = 0.3;

static const double weights[DFGNN_FEATURES] = {
    0.15, /* log2 destinations */
    0.25, /* log2 edges */
    0.60, /* log2 mean degree */
    0.20, /* log2 max degree */
    0.40, /* log2 of the heaviest row's share of a unit's work */
    0.50, /* degree coefficient of variation, log2(1 + cv) */
    1.00, /* share of isolated rows */
    0.20, /* log2 p99 over mean */
    0.80, /* reuse */
    0.40, /* locality */
    0.05, /* log2 graphs */
    0.30, /* density, log2 */
    0.35, /* log2 gathered table over cache */
    0.90, /* log2 dim */
    0.50, /* log2 heads */
    0.10, /* log2 sources over destinations */
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
  f[0] = log2_at_least((double)s->destinations, 1);
  f[1] = log2_at_least(edges, 1);
  f[2] = log2_at_least(mean, 0.25);
  f[3] = log2_at_least((double)s->max_degree, 1);
  f[4] = edges > 0
             ? log2_at_least((double)s->max_degree * units / edges, 1.0 / 16)
             : -4;
  f[5] = log2(1 + s->degree_cv);
  f[6] = s->isolated;
  f[7] = log2_at_least((double)s->p99_degree / (mean > 0 ? mean : 1), 1);
  f[8] = s->reuse;
  f[9] = s->locality;
  f[10] = log2_at_least((double)s->graphs, 1);
  f[11] = log2_at_least(s->density, 1e-3);
  f[12] = log2_at_least(table / (cache > 0 ? cache : 1), 1.0 / 64);
  f[13] = log2((double)dim);
  f[14] = log2((double)heads);
  f[15] = s->destinations > 0
              ? log2_at_least((double)s->sources / (double)s->destinations,
                              1.0 / 64)
              : 0;
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
