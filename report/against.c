/* against.c - compares two stores: what a release, a driver or a machine
 * changed
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "report/section.h"
#include "report/svg.h"

typedef enum verdict { FASTER, SLOWER, SAME, AMBIGUOUS, VERDICTS } verdict;
static const char *const verdict_names[VERDICTS] = {"faster", "slower", "same",
                                                    "ambiguous"};

/* The winner of a problem in both stores. */
typedef struct pair {
  const report_problem *here, *there;
  double ratio, low, high; /* time here over time there */
  double kept; /* the other store's winner: its time here over there */
  verdict verdict;
} pair;

static int by_problem(const void *a, const void *b) {
  const report_problem *p = *(const report_problem *const *)a;
  const report_problem *q = *(const report_problem *const *)b;
  return dfgnn__problem_compare(&p->decision->problem, &q->decision->problem);
}

/* Faster or slower: the interval of the ratio is beyond the margin.  Same: all
 * of it is within the margin.  Else it is ambiguous. */
static verdict judge(double low, double high) {
  if (high < 1)
    return high * (1 + DFGNN_REPORT_MARGIN) < 1 ? FASTER : AMBIGUOUS;
  if (low > 1)
    return low > 1 + DFGNN_REPORT_MARGIN ? SLOWER : AMBIGUOUS;
  return low * (1 + DFGNN_REPORT_MARGIN) >= 1 && high <= 1 + DFGNN_REPORT_MARGIN
             ? SAME
             : AMBIGUOUS;
}

static const dfgnn_measurement *row_of(const report_problem *p,
                                       const char *variant) {
  for (size_t i = 0; i < p->decision->count; i++)
    if (!strcmp(p->arm[i].ranked->variant, variant))
      return p->arm[i].row;
  return NULL;
}

static int compare(pair *out, const report_problem *here,
                   const report_problem *there) {
  const dfgnn_measurement *a = here->arm[0].row, *b = there->arm[0].row;
  *out = (pair){.here = here, .there = there, .kept = NAN};
  if (!a || !b || !(a->median_ms > 0) || !(b->median_ms > 0) ||
      !(b->ci_low_ms > 0))
    return 0;
  out->ratio = a->median_ms / b->median_ms;
  out->low = a->ci_low_ms / b->ci_high_ms;
  out->high = a->ci_high_ms / b->ci_low_ms;
  out->verdict = judge(out->low, out->high);
  const dfgnn_measurement *kept =
      row_of(here, there->decision->ranked[0].variant);
  if (kept && kept->median_ms > 0)
    out->kept = kept->median_ms / b->median_ms;
  return 1;
}

static int by_change(const void *a, const void *b) {
  const pair *x = a, *y = b;
  const double p = fabs(log(x->ratio)), q = fabs(log(y->ratio));
  if (x->verdict != y->verdict)
    return x->verdict < y->verdict ? -1 : 1;
  if (p != q)
    return p > q ? -1 : 1;
  return (x->here > y->here) - (x->here < y->here);
}

static int changed(const pair *x) {
  return strcmp(x->here->decision->ranked[0].variant,
                x->there->decision->ranked[0].variant) != 0;
}

static pair *pairs_of(size_t *count, size_t *shared, const report_data *here,
                      const report_data *there) {
  pair *list = malloc((here->problems + 1) * sizeof *list);
  const report_problem **sorted =
      malloc((there->problems + 1) * sizeof *sorted);
  *count = *shared = 0;
  if (!list || !sorted) {
    free(list);
    free(sorted);
    return NULL;
  }
  for (size_t i = 0; i < there->problems; i++)
    sorted[i] = &there->problem[i];
  qsort(sorted, there->problems, sizeof *sorted, by_problem);
  for (size_t i = 0; i < here->problems; i++) {
    const report_problem *key = &here->problem[i];
    const report_problem **found =
        bsearch(&key, sorted, there->problems, sizeof *sorted, by_problem);
    *shared += found != NULL;
    *count += found && compare(&list[*count], key, *found);
  }
  free(sorted);
  qsort(list, *count, sizeof *list, by_change);
  return list;
}

static void put_times(dfgnn_page *page, const pair *list, size_t count) {
  double *x = malloc((2 * count + 1) * sizeof *x), *y = x + count;
  if (!x) {
    page->failed = 1;
    return;
  }
  dfgnn_chart chart = {.page = page,
                       .width = 560,
                       .height = 320,
                       .right = 130,
                       .title = "Times of the winners in both",
                       .x_label = "ms in the other",
                       .y_label = "time here over there",
                       .x = {.logarithmic = 1},
                       .y = {.logarithmic = 1}};
  for (size_t i = 0; i < count; i++) {
    x[i] = list[i].there->arm[0].row->median_ms;
    y[i] = list[i].ratio;
  }
  dfgnn__axis_fit(&chart.x, x, count);
  dfgnn__axis_fit(&chart.y, y, count);
  chart.y.low = fmin(chart.y.low, 0.9);
  chart.y.high = fmax(chart.y.high, 1.1);
  dfgnn__page_raw(page, "<figure>");
  dfgnn__chart_begin(&chart);
  dfgnn__chart_level(&chart, 1);
  static const int colours[VERDICTS] = {2, 6, 7, 4};
  for (int v = 0; v < VERDICTS; v++) {
    size_t n = 0;
    for (size_t i = 0; i < count; i++)
      if (list[i].verdict == (verdict)v) {
        x[n] = list[i].there->arm[0].row->median_ms;
        y[n++] = list[i].ratio;
      }
    if (n)
      dfgnn__chart_dots(&chart, colours[v], 2.2, x, y, n);
    dfgnn__chart_legend(&chart, v, colours[v], verdict_names[v]);
  }
  dfgnn__chart_end(&chart);
  dfgnn__page_raw(page, "</figure>\n");
  free(x);
}

static void put_pair(dfgnn_page *page, const report_data *d, const pair *x) {
  dfgnn__page_f(page, "<tr class=j%d><td>", (int)x->verdict);
  dfgnn__page_raw(page, verdict_names[x->verdict]);
  dfgnn__page_raw(page, "<td class=k>");
  dfgnn__report_link(page, d, x->here);
  dfgnn__page_raw(page, "<td>");
  dfgnn__page_ms(page, x->here->arm[0].row->median_ms);
  dfgnn__page_raw(page, "<td>");
  dfgnn__page_ms(page, x->there->arm[0].row->median_ms);
  dfgnn__page_f(page, "<td>%.3f<td>%.3f\xe2\x80\x93%.3f<td>", x->ratio, x->low,
                x->high);
  dfgnn__page_figure(page, x->kept);
  dfgnn__page_raw(page, "<td class=v>");
  dfgnn__page_text(page, x->there->decision->ranked[0].variant);
  dfgnn__page_raw(page, "<td class=v>");
  if (changed(x))
    dfgnn__page_text(page, x->here->decision->ranked[0].variant);
  dfgnn__page_raw(page, "\n");
}

static void put_environment(dfgnn_page *page, const char *where,
                            const report_data *d) {
  dfgnn__page_raw(page, "<li>");
  dfgnn__page_raw(page, where);
  for (size_t i = 0; i < d->devices; i++) {
    const dfgnn_measurement *row = d->device[i].row;
    dfgnn__page_raw(page, i ? "; " : ": ");
    dfgnn__page_text(page, *row->model ? row->model : row->arch);
    dfgnn__page_raw(page, ", driver ");
    dfgnn__page_text(page, *row->driver ? row->driver : "none");
    dfgnn__page_raw(page, ", runtime ");
    dfgnn__page_text(page, row->runtime);
    dfgnn__page_raw(page, ", dfgnn ");
    dfgnn__page_text(page, row->library);
  }
  dfgnn__page_f(page, " (%zu problems)</li>", d->problems);
}

static void put_all(dfgnn_page *page, const report_data *d,
                    const report_data *other) {
  size_t count, shared, number[VERDICTS] = {0}, winners = 0;
  pair *list = pairs_of(&count, &shared, d, other);
  if (!list) {
    page->failed = 1;
    return;
  }
  double *ratio = malloc((count + 1) * sizeof *ratio);
  for (size_t i = 0; i < count; i++) {
    number[list[i].verdict]++;
    winners += (size_t)changed(&list[i]);
    if (ratio)
      ratio[i] = list[i].ratio;
  }
  dfgnn__page_raw(page, "<div class=\"tiles\">");
  for (int v = 0; v < VERDICTS; v++) {
    dfgnn__page_f(page, "<div class=\"tile j%d\"><b>%zu</b><span>", v,
                  number[v]);
    dfgnn__page_raw(page, verdict_names[v]);
    dfgnn__page_raw(page, "</span></div>");
  }
  dfgnn__page_f(page,
                "<div class=\"tile\"><b>%zu</b><span>winners changed"
                "</span></div><div class=\"tile\"><b>",
                winners);
  dfgnn__page_figure(page,
                     ratio ? dfgnn__report_mean(NULL, ratio, count) : NAN);
  dfgnn__page_raw(page, "</b><span>time here over there, geometric mean</span>"
                        "</div></div>\n<ul>");
  put_environment(page, "here", d);
  put_environment(page, "the other", other);
  dfgnn__page_f(page,
                "<li>%zu problems are in both; %zu are here alone, %zu "
                "there alone</li></ul>\n",
                shared, d->problems - shared, other->problems - shared);
  if (count) {
    put_times(page, list, count);
    dfgnn__page_raw(page, "<div class=\"wide tall\"><table class=\"rank "
                          "sort\"><thead><tr><th>verdict<th class=k>problem"
                          "<th>here<th>there<th>ratio<th>interval"
                          "<th>the other's winner<th class=k>winner there"
                          "<th class=k>winner here, if it changed"
                          "<tbody>\n");
  }
  size_t listed = 0;
  for (size_t i = 0; i < count; i++)
    if (list[i].verdict != SAME || changed(&list[i])) {
      put_pair(page, d, &list[i]);
      listed++;
    }
  if (count)
    dfgnn__page_f(page,
                  "</table></div>\n<p>Not listed: %zu problems that the same "
                  "variant wins in the same time.</p>\n",
                  count - listed);
  free(ratio);
  free(list);
}

void dfgnn__report_against(dfgnn_page *page, const report_data *d) {
  report_data other;
  const dfgnn_report_input input = {.row = d->input->other_row,
                                    .count = d->input->other_count};
  if (!d->input->other)
    return;
  dfgnn__page_section(page, "against", "Against another store");
  dfgnn__page_raw(
      page,
      "<p>Winners of the problems that both stores have, by their 95 % "
      "intervals: those that became faster or slower are apart by more than "
      "the margin of a tie (1.5 %), the same ones are within it, and of the "
      "ambiguous ones the intervals cannot tell. Ratios are of times here "
      "over there, below 1 is faster; runs of different days differ by their "
      "clocks, too. <i>The other's winner</i> compares the same variant in "
      "both: it tells a kernel that changed from a choice that changed.</p>\n");
  if (dfgnn__report_data_make(&other, &input, 1)) {
    page->failed = 1;
  } else {
    put_all(page, d, &other);
    dfgnn__report_data_free(&other);
  }
  dfgnn__page_section_end(page);
}
