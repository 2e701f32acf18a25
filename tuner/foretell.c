/* foretell.c - may a candidate that was not looked at still win?
 *
 * A model ranks candidates before any is compiled.  The sampled ones say how
 * far its predictions are off on this graph; a candidate that could win only by
 * being off by more than twice that spread is not looked at. */
#include "tuner/search.h"

#include <math.h>

#define LEAST_KNOWN 12 /* fewest known arms by which predictions are judged */
#define LEAST_SPREAD 0.03
#define SPREADS 2.0
#define JUDGED 0.7 /* predicted losses up to a factor of two are judged */

/* The logarithm of an arm's time over the anchor's; infinity: unknown. */
static double known_ratio(const dfgnn_search *s, size_t i) {
  const dfgnn_arm *arm = &s->arm[i];
  if (i == s->anchor)
    return 0;
  if (arm->state == DFGNN_ARM_STORED)
    return arm->ratio.center;
  if (arm->state == DFGNN_ARM_REJECTED || arm->count == 0)
    return INFINITY;
  double least = arm->log_ratio[0];
  for (size_t k = 1; k < arm->count; k++)
    least = fmin(least, arm->log_ratio[k]);
  return least;
}

int dfgnn__search_may_win(const dfgnn_search *s, size_t arm) {
  double best = INFINITY, first = INFINITY, sum = 0, squares = 0;
  size_t known = 0;
  if (!s->predicted || s->exhaustive || !isfinite(s->predicted[arm]))
    return 1;
  for (size_t i = 0; i < s->arms; i++)
    first = fmin(first, s->predicted[i]);
  for (size_t i = 0; i < s->arms; i++) {
    const double ratio = known_ratio(s, i);
    best = fmin(best, ratio);
    if (!isfinite(ratio) || !(s->predicted[i] - first < JUDGED))
      continue;
    const double off = ratio - s->predicted[i];
    sum += off;
    squares += off * off;
    known++;
  }
  if (known < LEAST_KNOWN)
    return 1;
  const double mean = sum / (double)known;
  const double variance = squares / (double)known - mean * mean;
  const double spread = fmax(sqrt(fmax(variance, 0)), LEAST_SPREAD);
  return s->predicted[arm] + mean - SPREADS * spread <= best;
}
