/* moments.c - float64 extremes and moments of messages by the formulas */
#include <math.h>

#include "kernels/common/accuracy.h"
#include "kernels/reference/sums.h"

/* The statistics of a row, [width] each. */
typedef struct statistics {
  dfgnn_ref_message m;
  dfgnn_ref_sum mean;
  double *minimum, *maximum, *arg_min, *arg_max;
  double *min_variance, *max_variance; /* of the extremes' own errors */
  double *min_unsure, *max_unsure;     /* 1: rounding may choose another edge */
  double *variance;                    /* of the messages */
  double *farthest; /* the largest difference from the mean, squared */
  double *drift;    /* the mean difference: 0, or its rounding */
  double *error;    /* the largest variance of a message's error */
  double *terms, *variances;
  double repeats;
  int64_t degree;
} statistics;

enum { ARRAYS = 14 };

static size_t numbers_of(const dfgnn_ref_call *c) {
  return dfgnn__ref_message_numbers(c->problem) +
         dfgnn__ref_sum_numbers(c->width) + (size_t)(ARRAYS * c->width);
}

static statistics statistics_in(const dfgnn_ref_call *c, double *memory) {
  statistics s = {
      .m = dfgnn__ref_message(c->problem, c->args, c->parameters, &memory)};
  s.mean = dfgnn__ref_sum_in(&memory, c->width, c->expected->bounds);
  double **arrays[ARRAYS] = {&s.minimum,    &s.maximum,      &s.arg_min,
                             &s.arg_max,    &s.min_variance, &s.max_variance,
                             &s.min_unsure, &s.max_unsure,   &s.variance,
                             &s.farthest,   &s.drift,        &s.error,
                             &s.terms,      &s.variances};
  for (int i = 0; i < ARRAYS; i++)
    *arrays[i] = dfgnn__ref_take(&memory, c->width);
  return s;
}

/* ---- one row ------------------------------------------------------------- */

/* Is x before the best so far?  A NaN is before all numbers, the first of
 * equals stays. */
static int before(double x, double best, int sign) {
  return isnan(x) ? !isnan(best) : sign * x < sign * best;
}

static void find_extremes(const statistics *s, int64_t k) {
  const dfgnn_ref_numbers *m = &s->m.message;
  for (int64_t i = 0; i < s->m.width; i++) {
    if (k == 0 || before(m->value[i], s->minimum[i], 1)) {
      s->minimum[i] = m->value[i];
      s->min_variance[i] = m->variance[i];
      s->arg_min[i] = (double)k;
    }
    if (k == 0 || before(m->value[i], s->maximum[i], -1)) {
      s->maximum[i] = m->value[i];
      s->max_variance[i] = m->variance[i];
      s->arg_max[i] = (double)k;
    }
    if (m->variance[i] > s->error[i])
      s->error[i] = m->variance[i];
  }
}

/* May rounding make a message the extreme? */
static int near(const statistics *s, int64_t i, double extreme,
                double variance) {
  double reach = DFGNN_BOUND * s->m.unit *
                 (sqrt(s->m.message.variance[i]) + sqrt(variance));
  return reach > 0 && fabs(s->m.message.value[i] - extreme) <= reach;
}

static void look_again(const statistics *s, int64_t k, double share) {
  for (int64_t i = 0; i < s->m.width; i++) {
    double difference = s->m.message.value[i] - s->mean.value[i];
    s->variance[i] += square(difference) * share;
    s->drift[i] += difference * share;
    if (square(difference) > s->farthest[i])
      s->farthest[i] = square(difference);
    if ((double)k != s->arg_min[i] &&
        near(s, i, s->minimum[i], s->min_variance[i]))
      s->min_unsure[i] = 1;
    if ((double)k != s->arg_max[i] &&
        near(s, i, s->maximum[i], s->max_variance[i]))
      s->max_unsure[i] = 1;
  }
}

/* The error variance of a term divided by the degree, over its square. */
#define SHARE_VARIANCE 4

static void add_share(statistics *s, int64_t k, double share, double repeats) {
  const dfgnn_ref_numbers *m = &s->m.message;
  for (int64_t i = 0; i < s->m.width; i++) {
    s->terms[i] = share * m->value[i];
    s->variances[i] = repeats * (square(share) * m->variance[i] +
                                 SHARE_VARIANCE * square(s->terms[i]));
  }
  dfgnn__ref_sum_add_each(&s->mean, k, s->terms, s->variances);
}

static void begin_row(statistics *s, int64_t degree, double repeats) {
  s->degree = degree;
  s->repeats = repeats;
  for (int64_t i = 0; i < s->m.width; i++) {
    s->minimum[i] = s->maximum[i] = s->variance[i] = 0;
    s->min_variance[i] = s->max_variance[i] = s->error[i] = 0;
    s->min_unsure[i] = s->max_unsure[i] = 0;
    s->farthest[i] = s->drift[i] = 0;
    s->arg_min[i] = s->arg_max[i] = -1;
  }
  dfgnn__ref_sum_begin(&s->mean, degree);
}

static statistics find(const dfgnn_ref_call *c, double *memory, int32_t *order,
                       int64_t row) {
  dfgnn_ref_edges e =
      dfgnn__ref_edges(c->matrix, row, order, c->expected->bounds);
  double share = e.count ? 1 / (double)e.count : 0;
  statistics s = statistics_in(c, memory);
  begin_row(&s, e.count, e.repeated.repeats);
  dfgnn__ref_message_destination(&s.m, row);
  for (int64_t k = 0; k < e.count; k++) {
    dfgnn__ref_message_source(&s.m, e.indices[k]);
    dfgnn__ref_message_edge(&s.m, e.begin + k);
    add_share(&s, k, share, dfgnn__ref_repeats(&e.repeated, e.indices[k]));
    find_extremes(&s, k);
  }
  for (int64_t k = 0; k < e.count; k++) {
    dfgnn__ref_message_source(&s.m, e.indices[k]);
    dfgnn__ref_message_edge(&s.m, e.begin + k);
    look_again(&s, k, share);
  }
  /* Subtracts what the rounding of the mean added: equal values have no
   * variance. */
  for (int64_t i = 0; i < c->width; i++) {
    double variance = s.variance[i] - square(s.drift[i]);
    s.variance[i] = variance < 0 ? 0 : variance; /* a NaN stays */
  }
  return s;
}

/* ---- results ------------------------------------------------------------- */

typedef dfgnn_ref_part part;

static double all_of(const statistics *s, const part *p) {
  return p->fixed + (double)s->degree * p->summed;
}

/* Kernels may take differences from any message of the row and subtract the
 * squares of their means: terms are as large as those of the farthest message.
 * A message's own error counts by twice its difference. */
#define SHIFTED_TERMS 6

static part variance_of(const statistics *s, int64_t i) {
  double size = s->variance[i] + s->farthest[i], error = s->error[i];
  return (part){s->variance[i],
                square(SHIFTED_TERMS * size) + 4 * s->farthest[i] * error +
                    square(s->m.unit * error),
                s->repeats * square(size)};
}

/* Kernels that find variances, too, add a shift and the mean of the differences
 * from it, whose sums may be as large as the farthest message makes them. */
static part mean_of(const statistics *s, int64_t i) {
  return (part){
      s->mean.value[i], dfgnn__ref_sum_fixed(&s->mean, i) + 4 * s->farthest[i],
      dfgnn__ref_sum_summed(&s->mean, i, s->repeats) + s->farthest[i]};
}

static double root(double variance) {
  return variance <= DFGNN_REF_LEAST_VARIANCE ? 0 : sqrt(variance);
}

/* May rounding put a kernel's variance on the other side of the least? */
static int near_least(const statistics *s, const part *v) {
  return fabs(v->value - DFGNN_REF_LEAST_VARIANCE) <=
         DFGNN_BOUND * s->m.unit * sqrt(all_of(s, v));
}

static part deviation_of(const statistics *s, int64_t i) {
  part v = variance_of(s, i);
  double std = root(v.value), slope = 1 / (4 * v.value);
  if (near_least(s, &v)) /* 0 is right, and so is the root of the variance */
    return (part){std,
                  2 * DFGNN_REF_LEAST_VARIANCE /
                          square(DFGNN_BOUND * s->m.unit) +
                      2 * all_of(s, &v) / DFGNN_REF_LEAST_VARIANCE,
                  0};
  if (std == 0)
    return (part){std, 0, 0};
  return (part){std, slope * v.fixed + 4 * v.value, slope * v.summed};
}

static void put_row(const void *job, double *memory, int32_t *order,
                    int64_t r) {
  const dfgnn_ref_call *c = job;
  const dfgnn_expected *expected = c->expected;
  dfgnn_op op = c->problem->op;
  statistics s = find(c, memory, order, expected->rows ? expected->rows[r] : r);
#define RESULT(name, field)                                                    \
  dfgnn_ref_result name##_all = DFGNN_REF_RESULT(expected, field),             \
                   name = dfgnn__ref_result_at(&name##_all, r * c->width)
  RESULT(out, out);
  RESULT(std, out_std);
  RESULT(least, out_min);
  RESULT(most, out_max);
  RESULT(arg_min, arg_min);
  RESULT(arg_max, arg_max);
#undef RESULT
  for (int64_t i = 0; i < c->width; i++) {
    double degree = square((double)s.degree); /* any edge may be right */
    part_put(&arg_min, i, (part){s.arg_min[i], s.min_unsure[i] * degree, 0});
    part_put(&arg_max, i, (part){s.arg_max[i], s.max_unsure[i] * degree, 0});
    part_put(op == DFGNN_OP_REDUCE_MIN ? &out : &least, i,
             (part){s.minimum[i], s.error[i], 0});
    part_put(op == DFGNN_OP_REDUCE_MAX ? &out : &most, i,
             (part){s.maximum[i], s.error[i], 0});
    if (op == DFGNN_OP_REDUCE_PNA)
      part_put(&out, i, mean_of(&s, i));
    if (op == DFGNN_OP_REDUCE_VAR)
      part_put(&out, i, variance_of(&s, i));
    if (op == DFGNN_OP_REDUCE_STD || op == DFGNN_OP_REDUCE_PNA)
      part_put(op == DFGNN_OP_REDUCE_STD ? &out : &std, i, deviation_of(&s, i));
  }
}

static dfgnn_status walk(dfgnn_ref_call *call, int64_t count,
                         void (*visit)(const void *, double *, int32_t *,
                                       int64_t)) {
  const dfgnn_ref_walk walk = {.count = count,
                               .work = 2 * call->matrix->edges * call->width,
                               .numbers = numbers_of(call),
                               .degree = call->matrix->max_degree,
                               .visit = visit};
  return dfgnn__ref_walk(&walk, call);
}

dfgnn_status dfgnn__ref_moments(dfgnn_ref_call *call) {
  return walk(call, call->expected->row_count, put_row);
}

/* ---- what gradients read ------------------------------------------------- */

static void know_row(const void *job, double *memory, int32_t *order,
                     int64_t row) {
  const dfgnn_ref_call *c = job;
  double *to = c->known + DFGNN_REF_KNOWN * row * c->width;
  if (!c->wanted[row])
    return;
  statistics s = find(c, memory, order, row);
  for (int64_t i = 0; i < c->width; i++) {
    part mean = mean_of(&s, i), variance = variance_of(&s, i);
    double v = variance.value;
    to[i] = mean.value;
    to[c->width + i] = c->problem->op == DFGNN_OP_REDUCE_STD ? root(v) : v;
    to[2 * c->width + i] = all_of(&s, &mean);
    to[3 * c->width + i] = near_least(&s, &variance) ? INFINITY
                           : v == 0                  ? 0
                                    : all_of(&s, &variance) / (4 * square(v));
  }
}

dfgnn_status dfgnn__ref_know_moments(dfgnn_ref_call *call) {
  return walk(call, call->matrix->destinations, know_row);
}
