/* cost.c - the cost of tuning: the best so far over time, and the regret that a
 * budget leaves */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "report/section.h"
#include "report/svg.h"
#include "tuner/replay.h"

/* If no row was written for this many seconds, tuning paused. */
#define PAUSE_S 60

/* ---- best so far --------------------------------------------------------- */

typedef struct event {
  int64_t time;
  size_t problem;
  double log_ratio; /* of the variant that was measured then */
} event;

static int by_time(const void *a, const void *b) {
  const event *x = a, *y = b;
  if (x->time != y->time)
    return x->time < y->time ? -1 : 1;
  if (x->problem != y->problem)
    return x->problem < y->problem ? -1 : 1;
  return dfgnn__compare_doubles(&x->log_ratio, &y->log_ratio);
}

static double log_ratio_of(const report_problem *p, const char *variant) {
  for (size_t i = 0; variant && i < p->decision->count; i++)
    if (!strcmp(p->decision->ranked[i].variant, variant))
      return p->decision->ranked[i].log_ratio - p->fastest;
  return NAN;
}

static event *events_of(size_t *count, const report_data *d) {
  event *list = malloc((d->input->count + 1) * sizeof *list);
  *count = 0;
  for (size_t i = 0; list && i < d->problems; i++) {
    const report_problem *p = &d->problem[i];
    for (size_t k = 0; k < p->rows; k++) {
      const double ratio = log_ratio_of(p, p->row[k]->variant);
      if (p->row[k]->time > 0 && !strcmp(p->row[k]->status, "ok") &&
          isfinite(ratio))
        list[(*count)++] = (event){p->row[k]->time, i, ratio};
    }
  }
  if (list)
    qsort(list, *count, sizeof *list, by_time);
  return list;
}

/* Before anything is measured a problem runs by the rule, or by the slowest
 * variant that was measured if the rule's was not. */
static double before(const report_problem *p) {
  const double rule = log_ratio_of(p, p->chosen[REPORT_WAY_RULE]);
  double most = 0;
  for (size_t i = 0; i < p->decision->count; i++)
    most = fmax(most, p->decision->ranked[i].log_ratio - p->fastest);
  return isfinite(rule) ? rule : most;
}

typedef struct course {
  double *seconds, *regret; /* geometric mean over the problems */
  size_t count;
  double active, idle;
} course;

static int follow(course *c, const report_data *d, const event *list,
                  size_t count) {
  double *now = malloc((d->problems + 1) * sizeof *now), sum = 0;
  c->seconds = malloc((count + 1) * sizeof *c->seconds);
  c->regret = malloc((count + 1) * sizeof *c->regret);
  if (!now || !c->seconds || !c->regret) {
    free(now);
    return 0;
  }
  for (size_t i = 0; i < d->problems; i++)
    sum += now[i] = before(&d->problem[i]);
  for (size_t i = 0; i < count; i++) {
    const double gap = i ? (double)(list[i].time - list[i - 1].time) : 0;
    if (gap <= PAUSE_S)
      c->active += gap;
    else
      c->idle += gap;
    double *mine = &now[list[i].problem];
    if (list[i].log_ratio < *mine) {
      sum += list[i].log_ratio - *mine;
      *mine = list[i].log_ratio;
    }
    if (i + 1 < count && list[i + 1].time == list[i].time)
      continue;
    c->seconds[c->count] = c->active;
    c->regret[c->count++] = exp(sum / (double)d->problems);
  }
  free(now);
  return 1;
}

/* Keeps at most POINTS points of a long course. */
static void thin(course *c) {
  enum { POINTS = 300 };
  size_t kept = 0;
  for (size_t k = 0; c->count > POINTS && k < POINTS; k++) {
    const size_t i = k * (c->count - 1) / (POINTS - 1);
    c->seconds[kept] = c->seconds[i];
    c->regret[kept++] = c->regret[i];
  }
  if (kept)
    c->count = kept;
}

static void put_course(dfgnn_page *page, const report_data *d) {
  size_t count;
  course c = {0};
  event *list = events_of(&count, d);
  if (!list || !follow(&c, d, list, count)) {
    page->failed = 1;
  } else if (!count || c.active <= 0) {
    dfgnn__page_raw(page, "<p>The time stamps of the rows do not differ, so "
                          "the time of tuning is not known.</p>\n");
  } else {
    thin(&c);
    dfgnn_chart chart = {.page = page,
                         .width = 640,
                         .height = 260,
                         .title = "Best so far over the time of tuning",
                         .x_label = "seconds of tuning",
                         .y_label = "time over the best"};
    dfgnn__axis_fit(&chart.x, c.seconds, c.count);
    chart.x.low = 0;
    dfgnn__axis_fit(&chart.y, c.regret, c.count);
    dfgnn__page_raw(page, "<figure>");
    dfgnn__chart_begin(&chart);
    dfgnn__chart_line(&chart, 0, c.seconds, c.regret, c.count);
    dfgnn__chart_end(&chart);
    dfgnn__page_raw(page, "<figcaption>The best measured so far over the best "
                          "of all, geometric mean over the problems, which run "
                          "by the rule before: ");
    dfgnn__page_seconds(page, c.active);
    dfgnn__page_f(page,
                  " of tuning for %zu problems, by time stamps of whole "
                  "seconds; ",
                  d->problems);
    dfgnn__page_seconds(page, c.idle);
    dfgnn__page_f(page, " in pauses of more than %d s are left out.", PAUSE_S);
    dfgnn__page_raw(page, "</figcaption></figure>\n");
  }
  free(list);
  free(c.seconds);
  free(c.regret);
}

/* ---- regret at budget ---------------------------------------------------- */

enum { REPLAYED = 64, BUDGETS = 6 };

/* The replay assumes samples of a few milliseconds with a per cent of noise,
 * and a check against the reference. */
static const dfgnn_replay_options replay = {
    .noise = 0.01, .sample_ms = 5, .check_ms = 50, .seed = 1};
static const double budgets[BUDGETS] = {0.2, 0.5, 1, 2, 5, 10};

static void put_budgets(dfgnn_page *page, const report_data *d) {
  double regret[BUDGETS][REPLAYED], mean[BUDGETS], worst[BUDGETS];
  size_t used = 0, variants = 0, candidates = 0;
  for (size_t i = 0; i < d->problems; i++)
    candidates += d->problem[i].decision->count > 1;
  const size_t step = candidates / REPLAYED + 1;
  for (size_t i = 0, k = 0; i < d->problems && used < REPLAYED; i++) {
    const dfgnn_decision *decision = d->problem[i].decision;
    if (decision->count < 2 || k++ % step)
      continue;
    int good = 1;
    for (int b = 0; b < BUDGETS && good; b++) {
      dfgnn_replay_options options = replay;
      dfgnn_replayed replayed;
      options.budget_s = budgets[b];
      good = !dfgnn__replay(&replayed, decision, &options);
      regret[b][used] = good ? replayed.regret : NAN;
    }
    variants += good ? decision->count : 0;
    used += (size_t)good;
  }
  if (!used)
    return;
  for (int b = 0; b < BUDGETS; b++) {
    mean[b] = dfgnn__report_mean(NULL, regret[b], used);
    worst[b] = 1;
    for (size_t i = 0; i < used; i++)
      worst[b] = fmax(worst[b], regret[b][i]);
  }
  dfgnn_chart chart = {.page = page,
                       .width = 640,
                       .height = 240,
                       .right = 150,
                       .title = "Regret by the budget of a problem",
                       .x_label = "seconds of tuning a problem",
                       .y_label = "time over the best",
                       .x = {.logarithmic = 1}};
  dfgnn__axis_fit(&chart.x, budgets, BUDGETS);
  dfgnn__axis_fit(&chart.y, worst, BUDGETS);
  chart.y.low = 1;
  dfgnn__page_raw(page, "<figure>");
  dfgnn__chart_begin(&chart);
  dfgnn__chart_line(&chart, 1, budgets, worst, BUDGETS);
  dfgnn__chart_line(&chart, 0, budgets, mean, BUDGETS);
  dfgnn__chart_legend(&chart, 0, 0, "geometric mean");
  dfgnn__chart_legend(&chart, 1, 1, "worst");
  dfgnn__chart_end(&chart);
  dfgnn__page_f(
      page,
      "<figcaption>The search run over the stored times of %zu "
      "problems (%.1f variants each) in virtual time, with %.0f ms a "
      "sample, %.0f ms a check and noise of %.0f %%: the choice after "
      "so many seconds over the best stored. ",
      used, (double)variants / (double)used, replay.sample_ms, replay.check_ms,
      100 * replay.noise);
  dfgnn__page_raw(page, "A store that keeps only the best variants makes the "
                        "search's task easier than it "
                        "was.</figcaption></figure>\n");
}

void dfgnn__report_cost(dfgnn_page *page, const report_data *d) {
  dfgnn__page_section(page, "cost", "The cost of tuning");
  put_course(page, d);
  put_budgets(page, d);
  dfgnn__page_section_end(page);
}
