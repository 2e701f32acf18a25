#include "tuner/statistics.h"

#include <math.h>
#include <stdlib.h>

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

void dfgnn__sort_doubles(double *x, size_t count) {
  qsort(x, count, sizeof *x, ascending);
}

static double sorted_median(const double *x, size_t count) {
  if (count == 0)
    return NAN;
  return 0.5 * (x[(count - 1) / 2] + x[count / 2]);
}

double dfgnn__median(double *x, size_t count) {
  dfgnn__sort_doubles(x, count);
  return sorted_median(x, count);
}

dfgnn_interval dfgnn__median_interval(double *x, size_t count) {
  dfgnn_interval interval = {NAN, NAN, NAN};
  if (count == 0)
    return interval;
  dfgnn__sort_doubles(x, count);
  double n = (double)count;
  double rank = floor(0.5 * n - 0.98 * sqrt(n) - 0.35);
  size_t cut = count < 6 || rank < 0 ? 0 : (size_t)rank;
  interval.center = sorted_median(x, count);
  if (count == 1)
    return interval;
  interval.low = x[cut];
  interval.high = x[count - 1 - cut];
  return interval;
}

dfgnn_interval dfgnn__location(const double *x, size_t count, double noise,
                               double *scratch) {
  dfgnn_interval interval = {NAN, NAN, NAN};
  if (count == 0)
    return interval;
  size_t pairs = 0;
  for (size_t i = 0; i < count; i++)
    for (size_t j = i; j < count; j++)
      scratch[pairs++] = 0.5 * (x[i] + x[j]);
  interval.center = dfgnn__median(scratch, pairs);
  double n = (double)count;
  if (count < 6) {
    double half = 2.5 * noise / sqrt(n);
    interval.low = interval.center - half;
    interval.high = interval.center + half;
    return interval;
  }
  double spread = sqrt(n * (n + 1) * (2 * n + 1) / 24);
  double rank = floor(n * (n + 1) / 4 - 1.96 * spread - 0.5);
  size_t cut = rank < 0 ? 0 : (size_t)rank;
  interval.low = scratch[cut];
  interval.high = scratch[pairs - 1 - cut];
  return interval;
}

double dfgnn__pooled_noise(double *residual, size_t count, double prior,
                           double weight) {
  double variance = 0;
  if (count > 0) {
    for (size_t i = 0; i < count; i++)
      residual[i] = fabs(residual[i]);
    /* 1.4826 makes the deviation that of a normal distribution. */
    double deviation = 1.4826 * dfgnn__median(residual, count);
    variance = deviation * deviation;
  }
  double n = (double)count;
  return sqrt((weight * prior * prior + n * variance) / (weight + n));
}
