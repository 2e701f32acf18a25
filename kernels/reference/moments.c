/* moments.c - float64 extremes and moments of messages by the formulas */
#include <math.h>

#include "kernels/common/accuracy.h"
#include "kernels/reference/sums.h"

/* The least or the largest message of a row. */
typedef struct extreme {
  number best;
  int64_t edge; /* -1: the row has none */
  int unsure;   /* 1: rounding may choose another edge */
} extreme;

/* The statistics of a row in one feature. */
typedef struct statistic {
  extreme low, high;
  double variance; /* of the messages */
  double farthest; /* the largest difference from the mean, squared */
  double drift;    /* the mean difference: 0, or its rounding */
  double error;    /* the largest variance of a message's error */
} statistic;

typedef struct statistics {
  dfgnn_ref_thread thread;
  dfgnn_ref_message m;
  dfgnn_ref_sum sum;
  number *terms;
  statistic *of; /* [width] */
  double repeats;
  int64_t degree;
} statistics;

static void begin(void *thread, dfgnn_ref_memory *memory) {
  const int64_t numbers = sizeof(statistic) / sizeof(double) + 1;
  statistics *s = thread;
  const dfgnn_ref_call *c = s->thread.call;
  s->m = dfgnn__ref_message(c, c->known->parameters, memory);
  s->sum = dfgnn__ref_sum_in(memory, s->m.width, c->expected->bounds);
  s->terms = dfgnn__ref_numbers(memory, s->m.width);
  s->of = (statistic *)dfgnn__ref_take(memory, numbers * s->m.width);
}

/* ---- one row ------------------------------------------------------------- */

/* Is x before the best so far?  A NaN is before all numbers, the first of
 * equals stays. */
static int before(double x, double best, int sign) {
  return isnan(x) ? !isnan(best) : sign * x < sign * best;
}

static void find_extreme(extreme *e, number x, int64_t k, int sign) {
  if (k == 0 || before(x.value, e->best.value, sign)) {
    e->best = x;
    e->edge = k;
  }
}

/* May rounding make another message x the extreme? */
static void doubt(extreme *e, const statistics *s, number x, int64_t k) {
  double reach =
      DFGNN_BOUND * s->m.unit * (sqrt(x.fixed) + sqrt(e->best.fixed));
  if (k != e->edge && reach > 0 && fabs(x.value - e->best.value) <= reach)
    e->unsure = 1;
}

/* The error variance of a term divided by the degree, over its square. */
#define SHARE_VARIANCE 4

static void look(statistics *s, int64_t k, double share, double repeats) {
  for (int64_t i = 0; i < s->m.width; i++) {
    number x = s->m.message[i];
    s->terms[i] =
        num_repeat(num_round(num_scale(x, share), SHARE_VARIANCE), repeats);
    find_extreme(&s->of[i].low, x, k, 1);
    find_extreme(&s->of[i].high, x, k, -1);
    if (x.fixed > s->of[i].error)
      s->of[i].error = x.fixed;
  }
  dfgnn__ref_sum_add_each(&s->sum, k, s->terms);
}

static void look_again(statistics *s, int64_t k, double share) {
  for (int64_t i = 0; i < s->m.width; i++) {
    statistic *of = &s->of[i];
    double difference = s->m.message[i].value - s->sum.value[i];
    of->variance += square(difference) * share;
    of->drift += difference * share;
    if (square(difference) > of->farthest)
      of->farthest = square(difference);
    doubt(&of->low, s, s->m.message[i], k);
    doubt(&of->high, s, s->m.message[i], k);
  }
}

static void find(statistics *s, int64_t row) {
  const dfgnn_ref_call *c = s->thread.call;
  dfgnn_ref_edges e =
      dfgnn__ref_edges(c->matrix, row, s->thread.order, c->expected->bounds);
  double share = e.count ? 1 / (double)e.count : 0;
  s->degree = e.count;
  s->repeats = e.repeats;
  for (int64_t i = 0; i < s->m.width; i++)
    s->of[i] = (statistic){.low.edge = -1, .high.edge = -1};
  dfgnn__ref_sum_begin(&s->sum, e.count);
  dfgnn__ref_message_destination(&s->m, row);
  for (int64_t k = 0; k < e.count; k++) {
    dfgnn__ref_message_edge(&s->m, e.indices[k], e.begin + k);
    look(s, k, share, dfgnn__ref_repeats(&e, k));
  }
  for (int64_t k = 0; k < e.count; k++) {
    dfgnn__ref_message_edge(&s->m, e.indices[k], e.begin + k);
    look_again(s, k, share);
  }
  /* Subtracts what the rounding of the mean added: equal values have no
   * variance. */
  for (int64_t i = 0; i < s->m.width; i++) {
    double variance = s->of[i].variance - square(s->of[i].drift);
    s->of[i].variance = variance < 0 ? 0 : variance; /* a NaN stays */
  }
}

/* ---- results ------------------------------------------------------------- */

static double all_of(const statistics *s, const number *p) {
  return p->fixed + (double)s->degree * p->summed;
}

/* Kernels may take differences from any message of the row and subtract the
 * squares of their means: terms are as large as those of the farthest message.
 * A message's own error counts by twice its difference. */
#define SHIFTED_TERMS 6

static number variance_of(const statistics *s, int64_t i) {
  const statistic *of = &s->of[i];
  double size = of->variance + of->farthest, error = of->error;
  return (number){of->variance,
                  square(SHIFTED_TERMS * size) + 4 * of->farthest * error +
                      square(s->m.unit * error),
                  s->repeats * square(size), 0};
}

/* Kernels that find variances, too, add a shift and the mean of the differences
 * from it, whose sums may be as large as the farthest message makes them. */
static number mean_of(const statistics *s, int64_t i) {
  number mean = dfgnn__ref_sum_number(&s->sum, i, s->repeats);
  mean.fixed += 4 * s->of[i].farthest;
  mean.summed += s->of[i].farthest;
  return mean;
}

static double root(double variance) {
  return variance <= DFGNN_REF_LEAST_VARIANCE ? 0 : sqrt(variance);
}

/* May rounding put a kernel's variance on the other side of the least? */
static int near_least(const statistics *s, const number *v) {
  return fabs(v->value - DFGNN_REF_LEAST_VARIANCE) <=
         DFGNN_BOUND * s->m.unit * sqrt(all_of(s, v));
}

static number deviation_of(const statistics *s, int64_t i) {
  number v = variance_of(s, i);
  double std = root(v.value), slope = 1 / (4 * v.value);
  if (near_least(s, &v)) /* 0 is right, and so is the root of the variance */
    return num(std,
               2 * DFGNN_REF_LEAST_VARIANCE / square(DFGNN_BOUND * s->m.unit) +
                   2 * all_of(s, &v) / DFGNN_REF_LEAST_VARIANCE);
  if (std == 0)
    return num_of(std);
  return (number){std, slope * v.fixed + 4 * v.value, slope * v.summed, 0};
}

static void put_extreme(const dfgnn_ref_result *to, const dfgnn_ref_result *arg,
                        const statistics *s, int64_t i, const extreme *e) {
  double degree = square((double)s->degree); /* any edge may be right */
  dfgnn__ref_put(arg, i, num((double)e->edge, e->unsure * degree));
  dfgnn__ref_put(to, i, num(e->best.value, s->of[i].error));
}

static void put_row(void *thread, int64_t r, int64_t row) {
  statistics *s = thread;
  const dfgnn_expected *to = s->thread.call->expected;
  const dfgnn_op op = s->thread.call->problem->op;
  const int64_t at = r * s->m.width;
  dfgnn_ref_result out = DFGNN_REF_RESULT(to, out, at);
  dfgnn_ref_result std = DFGNN_REF_RESULT(to, out_std, at);
  dfgnn_ref_result least = DFGNN_REF_RESULT(to, out_min, at);
  dfgnn_ref_result most = DFGNN_REF_RESULT(to, out_max, at);
  dfgnn_ref_result arg_min = DFGNN_REF_RESULT(to, arg_min, at);
  dfgnn_ref_result arg_max = DFGNN_REF_RESULT(to, arg_max, at);
  find(s, row);
  for (int64_t i = 0; i < s->m.width; i++) {
    put_extreme(op == DFGNN_OP_REDUCE_MIN ? &out : &least, &arg_min, s, i,
                &s->of[i].low);
    put_extreme(op == DFGNN_OP_REDUCE_MAX ? &out : &most, &arg_max, s, i,
                &s->of[i].high);
    if (op == DFGNN_OP_REDUCE_PNA)
      dfgnn__ref_put(&out, i, mean_of(s, i));
    if (op == DFGNN_OP_REDUCE_VAR)
      dfgnn__ref_put(&out, i, variance_of(s, i));
    if (op == DFGNN_OP_REDUCE_STD || op == DFGNN_OP_REDUCE_PNA)
      dfgnn__ref_put(op == DFGNN_OP_REDUCE_STD ? &out : &std, i,
                     deviation_of(s, i));
  }
}

/* Gradients read these statistics of a row. */
static void know_row(void *thread, int64_t r, int64_t row) {
  statistics *s = thread;
  const dfgnn_ref_call *c = s->thread.call;
  double *to = c->known->moments + DFGNN_REF_KNOWN * row * s->m.width;
  (void)r;
  if (!c->known->wanted[row])
    return;
  find(s, row);
  for (int64_t i = 0; i < s->m.width; i++) {
    number mean = mean_of(s, i), variance = variance_of(s, i);
    double v = variance.value;
    to[i] = mean.value;
    to[s->m.width + i] = c->problem->op == DFGNN_OP_REDUCE_STD ? root(v) : v;
    to[2 * s->m.width + i] = all_of(s, &mean);
    to[3 * s->m.width + i] = near_least(s, &variance) ? INFINITY
                             : v == 0                 ? 0
                                      : all_of(s, &variance) / (4 * square(v));
  }
}

void dfgnn__ref_moments(dfgnn_ref_call *c) {
  const int knows = c->known->wanted != NULL;
  dfgnn__ref_walk(&(dfgnn_ref_walk){.all = knows,
                                    .thread = sizeof(statistics),
                                    .begin = begin,
                                    .visit = knows ? know_row : put_row},
                  c);
}
