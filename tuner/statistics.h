/* statistics.h - medians and intervals that bear outliers
 *
 * Samples are natural logarithms of time ratios, so that noise is symmetric and
 * a factor is a difference. */
#ifndef DFGNN_TUNER_STATISTICS_H
#define DFGNN_TUNER_STATISTICS_H

#include <stddef.h>

typedef struct dfgnn_interval {
  double center, low, high; /* 95 % */
} dfgnn_interval;

/* Sorts x in place. */
void dfgnn__sort_doubles(double *x, size_t count);

/* The median; reorders x.  NaN if count is 0. */
double dfgnn__median(double *x, size_t count);

/* The distribution-free interval of the median by order statistics (the sign
 * test's inverse); the whole range if count is below 6; none, so NaN, if it is
 * 1.  Reorders x. */
dfgnn_interval dfgnn__median_interval(double *x, size_t count);

/* The Hodges-Lehmann estimate, the median of all pairwise means, with the
 * interval that inverts Wilcoxon's signed-rank test (Hollander & Wolfe,
 * Nonparametric Statistical Methods, 3.2).  Below 6 samples, where that test
 * cannot reach 95 %, the interval is +- 2.5 noise / sqrt(count).  scratch holds
 * count * (count + 1) / 2. */
dfgnn_interval dfgnn__location(const double *x, size_t count, double noise,
                               double *scratch);

/* Standard deviation of one sample, by the median absolute deviation of
 * residuals pooled from all candidates, blended with a prior that counts as
 * `weight` residuals.  Reorders residual. */
double dfgnn__pooled_noise(double *residual, size_t count, double prior,
                           double weight);

#endif
