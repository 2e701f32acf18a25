/* problem.c - the details of each problem */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report/section.h"
#include "report/svg.h"

/* Unless all variants are wanted, this many are shown: of all problems
 * together, and of each problem at least and at most. */
enum { SHOWN_IN_ALL = 4500, SHOWN_LEAST = 3, SHOWN = 8 };

/* ---- the picture --------------------------------------------------------- */

enum { STRIP_WIDTH = 520, STRIP_ROW = 11, STRIP_TOP = 6, STRIP_BOTTOM = 18 };

static double interval_end(const dfgnn_ranked *r, int sign) {
  return r->log_ratio + sign * 1.96 * r->error;
}

static void strip_line(dfgnn_page *page, const char *name, double x,
                       int height) {
  dfgnn__page_raw(page, "<path class=");
  dfgnn__page_raw(page, name);
  dfgnn__page_f(page, " d=\"M%.0f 0V%d\"/>", x, height - STRIP_BOTTOM + 2);
}

static void strip_label(dfgnn_page *page, double x, int height,
                        const char *text) {
  dfgnn__page_f(page, "<text x=%.0f y=%d>", fmin(fmax(x, 18), STRIP_WIDTH - 18),
                height - 5);
  dfgnn__page_raw(page, text);
  dfgnn__page_raw(page, "</text>");
}

/* Draws times over the fastest's with their intervals, and both floors. */
static void put_strip(dfgnn_page *page, const report_problem *p, size_t shown) {
  const dfgnn_ranked *r = p->decision->ranked;
  const int height = STRIP_TOP + STRIP_ROW * (int)shown + STRIP_BOTTOM;
  const double unit = p->best_ms * exp(-(r[0].log_ratio - p->fastest));
  const double floors[] = {log(p->floor_ms / unit), log(p->gather_ms / unit)};
  double low = -0.02, high = 0.05;
  for (size_t i = 0; i < shown; i++) {
    low = fmin(low, interval_end(&r[i], -1) - p->fastest);
    high = fmax(high, interval_end(&r[i], 1) - p->fastest);
  }
  high = fmin(high, log(8));
  for (int k = 0; k < 2; k++)
    if (isfinite(floors[k]) && floors[k] > log(0.1) && floors[k] < log(8)) {
      low = fmin(low, floors[k] - 0.02);
      high = fmax(high, floors[k] + 0.02);
    }
  const dfgnn_axis axis = {low, high, 8, STRIP_WIDTH - 8, 0};
  dfgnn__page_f(page,
                "<svg class=strip viewBox=\"0 0 %d %d\" width=%d "
                "aria-hidden=true>",
                STRIP_WIDTH, height, STRIP_WIDTH);
  strip_line(page, "a", dfgnn__axis_at(&axis, 0), height);
  strip_label(page, dfgnn__axis_at(&axis, 0), height, "1");
  static const char *const names[] = {"fl", "ga"};
  static const char *const labels[] = {"floor", "gather"};
  for (int k = 0; k < 2; k++)
    if (floors[k] >= low && floors[k] <= high) {
      const double x = dfgnn__axis_at(&axis, floors[k]);
      strip_line(page, names[k], x, height);
      if (fabs(x - dfgnn__axis_at(&axis, 0)) > 30 &&
          (k == 0 || fabs(floors[1] - floors[0]) > 0.1 * (high - low)))
        strip_label(page, x, height, labels[k]);
    }
  dfgnn__page_raw(page, "<path class=i d=\"");
  for (size_t i = 0; i < shown; i++)
    dfgnn__page_f(page, "M%.0f %dH%.0f",
                  dfgnn__axis_at(&axis, interval_end(&r[i], -1) - p->fastest),
                  STRIP_TOP + STRIP_ROW / 2 + STRIP_ROW * (int)i,
                  dfgnn__axis_at(&axis, interval_end(&r[i], 1) - p->fastest));
  dfgnn__page_raw(page, "\"/><path class=d d=\"");
  for (size_t i = 0; i < shown; i++)
    dfgnn__page_f(page, "M%.0f %dh0",
                  dfgnn__axis_at(&axis, r[i].log_ratio - p->fastest),
                  STRIP_TOP + STRIP_ROW / 2 + STRIP_ROW * (int)i);
  dfgnn__page_raw(page, "\"/></svg>\n");
}

/* ---- the table ----------------------------------------------------------- */

/* A column is shown only if a row of the problem's table fills it. */
typedef struct columns {
  size_t prefix; /* length of the prefix that all names share */
  int predicted, prepare, registers;
} columns;

/* The length of the prefix that all names share, such as "cuda.attention.fwd.":
 * up to the last common dot before the parameters. */
static size_t prefix_of(const report_problem *p, size_t shown) {
  const char *first = p->decision->ranked[0].variant;
  size_t length = strcspn(first, "/");
  for (size_t i = 1; i < shown; i++) {
    const char *name = p->decision->ranked[i].variant;
    size_t same = 0;
    while (same < length && name[same] == first[same])
      same++;
    length = same;
  }
  while (length && first[length - 1] != '.')
    length--;
  return length;
}

static void cell_ratio(dfgnn_page *page, double x) {
  if (isfinite(x))
    dfgnn__page_f(page, x < 9.995 ? "%.3f" : "%.1f", x);
  else
    dfgnn__page_raw(page, "\xe2\x80\x93");
}

static void put_arm(dfgnn_page *page, const report_data *d,
                    const report_problem *p, size_t i, const columns *c) {
  const report_arm *arm = &p->arm[i];
  const dfgnn_ranked *r = arm->ranked;
  const dfgnn_measurement *row = arm->row;
  const dfgnn_report_note *note = dfgnn__report_note_of(d, row);
  dfgnn__page_raw(page, r->tied ? "<tr class=t><td>" : "<tr><td>");
  dfgnn__page_f(page, r->tied && i ? "=" : "%zu", i + 1);
  dfgnn__page_raw(page, "<td>");
  dfgnn__page_text(page, r->variant + c->prefix);
  dfgnn__page_raw(page, "<td>");
  dfgnn__page_ms(page, r->median_ms);
  dfgnn__page_raw(page, "<td>");
  if (row && row->median_ms > 0)
    dfgnn__page_f(page, "%.1f",
                  50 * (row->ci_high_ms - row->ci_low_ms) / row->median_ms);
  dfgnn__page_raw(page, "<td>");
  cell_ratio(page, exp(r->log_ratio - p->fastest));
  dfgnn__page_f(page, "<td>%.1f", 100 * expm1(1.96 * r->error));
  if (c->predicted) {
    dfgnn__page_raw(page, "<td>");
    cell_ratio(page, arm->predicted);
  }
  dfgnn__page_f(page, "<td>%lld<td>", (long long)r->samples);
  dfgnn__page_bytes(page, row ? (double)row->workspace_bytes : NAN);
  if (c->prepare) {
    dfgnn__page_raw(page, "<td>");
    dfgnn__page_ms(page, note ? note->prepare_ms : NAN);
  }
  if (c->registers) {
    dfgnn__page_raw(page, "<td>");
    if (note && note->registers >= 0)
      dfgnn__page_f(page, "%d, %d B", note->registers, note->local_bytes);
  }
  dfgnn__page_raw(page, "\n");
}

static void put_table(dfgnn_page *page, const report_data *d,
                      const report_problem *p, size_t shown) {
  columns c = {.prefix = prefix_of(p, shown)};
  for (size_t i = 0; i < shown; i++) {
    const dfgnn_report_note *note = dfgnn__report_note_of(d, p->arm[i].row);
    c.predicted |= isfinite(p->arm[i].predicted) != 0;
    c.prepare |= note && isfinite(note->prepare_ms);
    c.registers |= note && note->registers >= 0;
  }
  dfgnn__page_raw(
      page, "<div class=wide><table class=\"rank n\"><thead><tr><th><th>");
  char prefix[160];
  snprintf(prefix, sizeof prefix, "%.*s", (int)c.prefix,
           p->decision->ranked[0].variant);
  dfgnn__page_text(page, prefix);
  dfgnn__page_raw(page, "<th>time<th>\xc2\xb1 %<th>over best<th>\xc2\xb1 %");
  if (c.predicted)
    dfgnn__page_raw(page, "<th>predicted");
  dfgnn__page_raw(page, "<th>samples<th>workspace");
  if (c.prepare)
    dfgnn__page_raw(page, "<th>preparing");
  if (c.registers)
    dfgnn__page_raw(page, "<th>registers, spills");
  dfgnn__page_raw(page, "<tbody>");
  for (size_t i = 0; i < shown; i++)
    put_arm(page, d, p, i, &c);
  dfgnn__page_raw(page, "</table></div>");
}

/* ---- the text ------------------------------------------------------------ */

/* Seconds between the first and the last row of the problem's newest run. */
static double tuning_seconds(const report_problem *p) {
  const dfgnn_measurement *newest = NULL;
  int64_t first = INT64_MAX, last = 0;
  for (size_t i = 0; i < p->rows; i++)
    if (!newest || p->row[i]->time > newest->time)
      newest = p->row[i];
  for (size_t i = 0; newest && i < p->rows; i++)
    if (!strcmp(p->row[i]->run, newest->run)) {
      first = p->row[i]->time < first ? p->row[i]->time : first;
      last = p->row[i]->time > last ? p->row[i]->time : last;
    }
  return last > first ? (double)(last - first) : NAN;
}

static double payback(double cost_ms, const report_problem *p) {
  const double gain_ms = p->best_ms * (p->over_rule - 1);
  return gain_ms > 0 ? ceil(cost_ms / gain_ms) : INFINITY;
}

static void put_payback(dfgnn_page *page, const report_data *d,
                        const report_problem *p) {
  const double seconds = tuning_seconds(p);
  const dfgnn_report_note *note = dfgnn__report_note_of(d, p->arm[0].row);
  if (isfinite(seconds) && p->over_rule > 1) {
    dfgnn__page_f(page,
                  " Tuning took about %.0f s by its time stamps and is "
                  "earned back after %.3g calls.",
                  seconds, payback(1e3 * seconds, p));
  }
  if (note && isfinite(note->prepare_ms)) {
    dfgnn__page_raw(page, " Preparing the winner takes ");
    dfgnn__page_ms(page, note->prepare_ms);
    if (p->over_rule > 1)
      dfgnn__page_f(page, ", earned back after %.3g calls",
                    payback(note->prepare_ms, p));
    dfgnn__page_raw(page, ".");
  }
}

static void put_words(dfgnn_page *page, const report_data *d,
                      const report_problem *p, size_t shown) {
  dfgnn__page_raw(page, "<p>");
  if (isfinite(p->floor_ms)) {
    dfgnn__page_raw(page, "Floor ");
    dfgnn__page_ms(page, p->floor_ms);
    dfgnn__page_raw(page, " (");
    dfgnn__page_bytes(page, p->bytes);
    dfgnn__page_raw(page, "); gather ");
    dfgnn__page_ms(page, p->gather_ms);
    dfgnn__page_raw(page, ", ");
    dfgnn__page_share(page, p->gather_ms / p->best_ms);
    dfgnn__page_raw(page, ".");
  } else if (isfinite(p->bytes)) {
    dfgnn__page_bytes(page, p->bytes);
    dfgnn__page_raw(page, " have to be moved.");
  }
  if (p->chosen[REPORT_WAY_RULE] && !isfinite(p->over_rule))
    dfgnn__page_raw(page, " The rule's choice was not measured.");
  if (p->chosen[REPORT_WAY_MODEL] && !isfinite(p->regret[REPORT_WAY_MODEL]))
    dfgnn__page_raw(page, " The model's choice was not measured.");
  put_payback(page, d, p);
  if (shown < p->decision->count)
    dfgnn__page_f(page, " Slower variants left out: %zu.",
                  p->decision->count - shown);
  dfgnn__page_raw(page, "\n");
}

/* Lists the rows of variants that were refused, failed or wrong, with reasons.
 */
static void put_rejected(dfgnn_page *page, const report_data *d,
                         const report_problem *p) {
  size_t count = 0, most = d->input->all ? SIZE_MAX : 3 * SHOWN, shown = 0;
  for (size_t i = 0; i < p->rows; i++)
    count += strcmp(p->row[i]->status, "ok") != 0;
  if (!count)
    return;
  dfgnn__page_raw(page, "<ul class=no>");
  for (size_t i = 0; i < p->rows && shown < most; i++) {
    const dfgnn_measurement *row = p->row[i];
    if (!strcmp(row->status, "ok"))
      continue;
    dfgnn__page_raw(page, "<li><b>");
    dfgnn__page_text(page, row->status);
    dfgnn__page_raw(page, "</b> <span class=v>");
    dfgnn__page_text(page, row->variant);
    dfgnn__page_raw(page, "</span>: ");
    dfgnn__page_text(page, *row->reason ? row->reason : "no reason is stored");
    dfgnn__page_raw(page, "\n");
    shown++;
  }
  if (shown < count)
    dfgnn__page_f(page, "<li>and %zu more", count - shown);
  dfgnn__page_raw(page, "</ul>\n");
}

/* How many variants are shown: the whole tie set, as far as there is room. */
static size_t shown_of(const report_data *d, const report_problem *p) {
  const size_t count = p->decision->count;
  size_t most = SHOWN_IN_ALL / d->problems, tied = 0;
  while (tied < count && p->decision->ranked[tied].tied)
    tied++;
  most = most < SHOWN_LEAST ? SHOWN_LEAST : most > SHOWN ? SHOWN : most;
  most = tied > most ? tied : most;
  most = most > SHOWN ? SHOWN : most;
  return d->input->all || count < most ? count : most;
}

static void put_problem(dfgnn_page *page, const report_data *d,
                        const report_problem *p) {
  const size_t shown = shown_of(d, p);
  dfgnn__page_raw(page, "<details>");
  dfgnn__page_raw(page, "<summary><b>");
  dfgnn__page_text(page, d->graph[p->graph].name);
  dfgnn__page_raw(page, "</b> <span>");
  dfgnn__page_text(page, d->shape[p->shape].text);
  dfgnn__page_raw(page, "</span> <em>");
  dfgnn__page_ms(page, p->best_ms);
  dfgnn__page_raw(page, "</em>");
  if (isfinite(p->over_rule))
    dfgnn__page_f(page, " <em>%.2f\xc3\x97 rule</em>", p->over_rule);
  if (isfinite(p->floor_ms))
    dfgnn__page_f(page, " <em>%.*f %% floor</em>",
                  p->floor_ms < 0.0995 * p->best_ms,
                  100 * p->floor_ms / p->best_ms);
  dfgnn__page_f(page, "</summary><div id=p%zu>\n", (size_t)(p - d->problem));
  put_words(page, d, p, shown);
  put_table(page, d, p, shown);
  put_strip(page, p, shown);
  put_rejected(page, d, p);
  dfgnn__page_raw(page, "</div></details>\n");
}

void dfgnn__report_problems(dfgnn_page *page, const report_data *d) {
  dfgnn__page_section(page, "problems", "Problems");
  dfgnn__page_raw(
      page,
      "<p>Each problem opens to its variants, the winner first; of variants "
      "that cannot be told apart (=, the tie set) it is the one that takes "
      "least workspace. The first interval is that of the median, 95 %; "
      "<i>over best</i> is the time over the fastest's, by ratios within "
      "runs, with its own interval, and is drawn in the picture; "
      "<i>predicted</i> is the time that the model expects over that of its "
      "own first choice.");
  if (!d->input->note)
    dfgnn__page_raw(page, " Stores keep no registers and spills; "
                          "<code>dfgnn-tune explain</code> compiles and prints "
                          "them, and a kernel refused for its spills says so.");
  dfgnn__page_raw(page, "</p>\n<div id=\"tools\"></div><div id=\"list\">\n");
  for (size_t i = 0; i < d->problems; i++)
    put_problem(page, d, &d->problem[i]);
  dfgnn__page_raw(page, "</div>\n");
  dfgnn__page_section_end(page);
}
