/* unseen.c - graphs without measurements: the regret on each graph of the store
 * if its own rows were not there, and how far the model's predictions can be
 * relied upon */
#include <math.h>
#include <stdlib.h>

#include "report/section.h"
#include "report/svg.h"

enum { SHARES = 8, WORST = 10, PER_WAY = 900 };

/* ---- ways to choose ------------------------------------------------------ */

static void put_ways(dfgnn_page *page, const report_data *d) {
  double *regret = malloc((d->problems + 1) * sizeof *regret);
  if (!regret) {
    page->failed = 1;
    return;
  }
  dfgnn__page_raw(page, "<table class=\"rank sort\"><thead><tr><th>chosen by"
                        "<th>judged<th>not measured<th>mean<th>within 5 %"
                        "<th>worst<tbody>\n");
  for (int way = 0; way < REPORT_WAYS; way++) {
    size_t judged = 0, blind = 0, close = 0;
    double worst = NAN;
    for (size_t i = 0; i < d->problems; i++) {
      const report_problem *p = &d->problem[i];
      const double x = p->regret[way];
      blind += p->chosen[way] && !isfinite(x);
      if (!isfinite(x))
        continue;
      regret[judged++] = x;
      close += x <= 1.05;
      worst = fmax(x, isnan(worst) ? x : worst);
    }
    if (!judged && !blind)
      continue;
    dfgnn__page_raw(page, "<tr><td>");
    dfgnn__page_raw(page, dfgnn__report_way_name((report_way)way));
    dfgnn__page_f(page, "<td>%zu<td>%zu<td>", judged, blind);
    const double mean = dfgnn__report_mean(NULL, regret, judged);
    dfgnn__page_figure(page, mean);
    dfgnn__page_raw(page, "<td>");
    dfgnn__page_share(page, judged ? (double)close / (double)judged : NAN);
    dfgnn__page_raw(page, "<td>");
    dfgnn__page_figure(page, worst);
    dfgnn__page_raw(page, "\n");
  }
  dfgnn__page_raw(page, "</table>\n");
  free(regret);
}

/* ---- by distance --------------------------------------------------------- */

typedef struct point {
  double x, y;
  size_t problem;
} point;

static int by_x(const void *a, const void *b) {
  const point *p = a, *q = b;
  const int c = dfgnn__compare_doubles(&p->x, &q->x);
  return c ? c : (p->problem > q->problem) - (p->problem < q->problem);
}

/* Draws points, and a line of the geometric means of equal shares of them by x.
 */
static void put_points(dfgnn_chart *chart, int colour, point *list,
                       size_t count) {
  double x[PER_WAY], y[PER_WAY];
  const size_t step = count / PER_WAY + 1;
  size_t n = 0;
  if (!count)
    return;
  qsort(list, count, sizeof *list, by_x);
  for (size_t i = 0; i < count && n < PER_WAY; i += step, n++) {
    x[n] = list[i].x;
    y[n] = list[i].y;
  }
  dfgnn__page_raw(chart->page, "<g class=\"faint\">");
  dfgnn__chart_dots(chart, colour, 1.7, x, y, n);
  dfgnn__page_raw(chart->page, "</g>");
  size_t means = 0;
  for (size_t k = 0; k < SHARES; k++) {
    const size_t begin = k * count / SHARES, end = (k + 1) * count / SHARES;
    double sum_x = 0, sum_y = 0;
    for (size_t i = begin; i < end; i++) {
      sum_x += list[i].x;
      sum_y += log(list[i].y);
    }
    if (end > begin) {
      x[means] = sum_x / (double)(end - begin);
      y[means++] = exp(sum_y / (double)(end - begin));
    }
  }
  dfgnn__chart_line(chart, colour, x, y, means);
}

static void put_distances(dfgnn_page *page, const report_data *d) {
  static const report_way ways[] = {REPORT_WAY_LEFT_OUT, REPORT_WAY_MODEL,
                                    REPORT_WAY_RULE};
  point *list = malloc((d->problems + 1) * sizeof *list);
  double most = 1.2, far = 0.1;
  if (!list) {
    page->failed = 1;
    return;
  }
  for (size_t i = 0; i < d->problems; i++) {
    far = fmax(far, d->problem[i].distance);
    for (size_t k = 0; k < sizeof ways / sizeof *ways; k++)
      if (isfinite(d->problem[i].regret[ways[k]]))
        most = fmax(most, d->problem[i].regret[ways[k]]);
  }
  dfgnn_chart chart = {
      .page = page,
      .width = 720,
      .height = 320,
      .right = 210,
      .title = "Regret by the distance to the nearest measured graph",
      .x_label = "distance to the nearest other graph",
      .y_label = "time over the best",
      .x = {.low = 0, .high = fmin(far, 4)},
      .y = {.low = 1, .high = fmin(most, 8), .logarithmic = 1}};
  dfgnn__page_raw(page, "<figure>");
  dfgnn__chart_begin(&chart);
  if (dfgnn__trusted_radius < chart.x.high)
    dfgnn__chart_upright(&chart, dfgnn__trusted_radius);
  for (size_t k = 0; k < sizeof ways / sizeof *ways; k++) {
    size_t count = 0;
    for (size_t i = 0; i < d->problems; i++) {
      const report_problem *p = &d->problem[i];
      if (p->distance >= 0 && isfinite(p->regret[ways[k]]))
        list[count++] = (point){p->distance, p->regret[ways[k]], i};
    }
    if (!count)
      continue;
    put_points(&chart, (int)k, list, count);
    dfgnn__chart_legend(&chart, (int)k, (int)k,
                        dfgnn__report_way_name(ways[k]));
  }
  dfgnn__chart_end(&chart);
  dfgnn__page_raw(page, "<figcaption>A dot is a problem; lines are geometric "
                        "means of eighths of the problems, by distance. Near "
                        "graphs answer up to the dashed line.</figcaption>"
                        "</figure>\n");
  free(list);
}

/* ---- calibration --------------------------------------------------------- */

/* Counts the pairs of a problem's variants that differ by more than a tie, and
 * those that the model puts in the measured order. */
static void count_pairs(size_t *pairs, size_t *right, const report_problem *p) {
  for (size_t i = 0; i < p->decision->count; i++)
    for (size_t k = 0; k < i; k++) {
      const double measured =
          p->arm[i].ranked->log_ratio - p->arm[k].ranked->log_ratio;
      const double predicted =
          log(p->arm[i].predicted) - log(p->arm[k].predicted);
      if (fabs(measured) < 2 * DFGNN_REPORT_MARGIN || !isfinite(predicted) ||
          predicted == 0)
        continue;
      ++*pairs;
      *right += (measured > 0) == (predicted > 0);
    }
}

/* Lists the predicted and measured times of every variant over the measured
 * best's. */
static size_t calibration(point *list, const report_data *d) {
  size_t count = 0;
  for (size_t i = 0; i < d->problems; i++) {
    const report_problem *p = &d->problem[i];
    double base = NAN;
    for (size_t k = 0; k < p->decision->count; k++)
      if (p->arm[k].ranked->log_ratio == p->fastest)
        base = p->arm[k].predicted;
    for (size_t k = 0; k < p->decision->count; k++)
      if (isfinite(base) && isfinite(p->arm[k].predicted) &&
          p->arm[k].ranked->log_ratio > p->fastest)
        list[count++] =
            (point){p->arm[k].predicted / base,
                    exp(p->arm[k].ranked->log_ratio - p->fastest), count};
  }
  return count;
}

static void put_calibration(dfgnn_page *page, const report_data *d) {
  size_t arms = 0, pairs = 0, right = 0;
  for (size_t i = 0; i < d->problems; i++) {
    arms += d->problem[i].decision->count;
    count_pairs(&pairs, &right, &d->problem[i]);
  }
  point *list = malloc((arms + 1) * sizeof *list);
  const size_t count = list ? calibration(list, d) : 0;
  page->failed |= !list;
  dfgnn__page_raw(page, "<h3>Predicted and measured times</h3>\n");
  if (!count) {
    dfgnn__page_raw(page, "<p>No model predicts these problems.</p>\n");
    free(list);
    return;
  }
  dfgnn_chart chart = {.page = page,
                       .width = 560,
                       .height = 320,
                       .title = "Measured time by the predicted one",
                       .x_label = "predicted time over that of the best",
                       .y_label = "measured time over the best",
                       .x = {.low = 0.7, .high = 3, .logarithmic = 1},
                       .y = {.low = 0.95, .high = 3, .logarithmic = 1}};
  const double ideal[] = {1, 3};
  dfgnn__page_raw(page, "<figure>");
  dfgnn__chart_begin(&chart);
  dfgnn__chart_line(&chart, 7, ideal, ideal, 2);
  put_points(&chart, 0, list, count);
  dfgnn__chart_end(&chart);
  dfgnn__page_f(page,
                "<figcaption>A dot is a variant of a problem; the line gives "
                "geometric means of eighths, the grey one is a perfect model. "
                "Of %zu pairs that differ by more than %.0f %% the model puts "
                "%.1f %% in the measured order. ",
                pairs, 200 * DFGNN_REPORT_MARGIN,
                pairs ? 100 * (double)right / (double)pairs : 0);
  dfgnn__page_raw(page,
                  "It may have been fitted to these rows; <code>dfgnn-tune "
                  "model train</code> judges it on graphs left out."
                  "</figcaption></figure>\n");
  free(list);
}

/* ---- the worst ----------------------------------------------------------- */

static int by_loss(const void *a, const void *b) {
  const report_problem *p = *(const report_problem *const *)a;
  const report_problem *q = *(const report_problem *const *)b;
  const double x = p->regret[REPORT_WAY_LEFT_OUT];
  const double y = q->regret[REPORT_WAY_LEFT_OUT];
  if (x != y)
    return x > y ? -1 : 1;
  return (p > q) - (p < q);
}

static void put_worst(dfgnn_page *page, const report_data *d) {
  const report_problem **list = malloc((d->problems + 1) * sizeof *list);
  size_t count = 0;
  if (!list) {
    page->failed = 1;
    return;
  }
  for (size_t i = 0; i < d->problems; i++)
    if (isfinite(d->problem[i].regret[REPORT_WAY_LEFT_OUT]))
      list[count++] = &d->problem[i];
  qsort(list, count, sizeof *list, by_loss);
  dfgnn__page_raw(page, "<h3>The worst ten</h3><p>The problems where leaving "
                        "the graph out would have cost most.</p>\n<div "
                        "class=wide><table class=\"rank "
                        "sort\"><thead><tr><th>problem<th>distance<th>answered "
                        "by<th>left out<th>model<th>rule<th>chosen<tbody>\n");
  for (size_t i = 0; i < count && i < WORST; i++) {
    const report_problem *p = list[i];
    dfgnn__page_raw(page, "<tr><td>");
    dfgnn__report_link(page, d, p);
    dfgnn__page_raw(page, "<td>");
    dfgnn__page_figure(page, p->distance < 0 ? NAN : p->distance);
    dfgnn__page_raw(page, "<td>");
    dfgnn__page_text(page, dfgnn_source_name(p->left_out));
    static const report_way ways[] = {REPORT_WAY_LEFT_OUT, REPORT_WAY_MODEL,
                                      REPORT_WAY_RULE};
    for (size_t k = 0; k < sizeof ways / sizeof *ways; k++) {
      dfgnn__page_raw(page, "<td>");
      dfgnn__page_figure(page, p->regret[ways[k]]);
    }
    dfgnn__page_raw(page, "<td class=v>");
    dfgnn__page_text(page, p->chosen[REPORT_WAY_LEFT_OUT]);
    dfgnn__page_raw(page, "\n");
  }
  dfgnn__page_raw(page, "</table></div>\n");
  free(list);
}

void dfgnn__report_unseen(dfgnn_page *page, const report_data *d) {
  dfgnn__page_section(page, "unseen", "Graphs without measurements");
  dfgnn__page_raw(
      page,
      "<p>The time of the choice over that of the best measured variant. "
      "Near graphs and the rule are judged with the graph's own rows hidden; "
      "the model may know the graph. A choice that was not measured on the "
      "graph cannot be judged: in a store that keeps only the best variants, "
      "such choices are the bad ones, and the more there are (<i>not "
      "measured</i>), the more the means flatter.</p>\n");
  put_ways(page, d);
  put_distances(page, d);
  put_calibration(page, d);
  put_worst(page, d);
  dfgnn__page_section_end(page);
}
