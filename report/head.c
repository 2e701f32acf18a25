/* head.c - the head of the page: where its rows are from, and the main figures
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/registry.h"
#include "report/section.h"

double dfgnn__report_mean(size_t *count, const double *value, size_t values) {
  double sum = 0;
  size_t n = 0;
  for (size_t i = 0; i < values; i++)
    if (isfinite(value[i]) && value[i] > 0) {
      sum += log(value[i]);
      n++;
    }
  if (count)
    *count = n;
  return n ? exp(sum / (double)n) : NAN;
}

void dfgnn__report_link(dfgnn_page *page, const report_data *d,
                        const report_problem *p) {
  dfgnn__page_f(page, "<a href=\"#p%zu\">", (size_t)(p - d->problem));
  dfgnn__page_text(page, d->graph[p->graph].name);
  dfgnn__page_raw(page, ", ");
  dfgnn__page_text(page, d->shape[p->shape].text);
  dfgnn__page_raw(page, "</a>");
}

static void tile(dfgnn_page *page, const char *figure, double value,
                 const char *unit, const char *what, size_t count) {
  dfgnn__page_raw(page, "<div class=\"tile\"><b>");
  if (!strcmp(figure, "share"))
    dfgnn__page_share(page, value);
  else
    dfgnn__page_figure(page, value);
  dfgnn__page_raw(page, unit);
  dfgnn__page_raw(page, "</b><span>");
  dfgnn__page_raw(page, what);
  if (count)
    dfgnn__page_f(page, " (%zu problems)", count);
  dfgnn__page_raw(page, "</span></div>");
}

typedef double (*figure_of)(const report_problem *p);
static double over_rule(const report_problem *p) { return p->over_rule; }
static double over_unfused(const report_problem *p) { return p->over_unfused; }
static double floor_share(const report_problem *p) {
  return p->best_ms > 0 ? p->floor_ms / p->best_ms : NAN;
}

static double mean_of(size_t *count, const report_data *d, figure_of figure) {
  double *value = malloc((d->problems + 1) * sizeof *value);
  *count = 0;
  if (!value)
    return NAN;
  for (size_t i = 0; i < d->problems; i++)
    value[i] = figure(&d->problem[i]);
  const double mean = dfgnn__report_mean(count, value, d->problems);
  free(value);
  return mean;
}

static void tiles(dfgnn_page *page, const report_data *d) {
  size_t count, tied = 0;
  dfgnn__page_raw(page, "<div class=\"tiles\">");
  tile(page, "", (double)d->problems, "", "measured problems", 0);
  tile(page, "", (double)d->graphs, "", "graphs", 0);
  const double rule = mean_of(&count, d, over_rule);
  tile(page, "", rule, "\xc3\x97",
       "as fast as the rule's choice, geometric mean", count);
  const double unfused = mean_of(&count, d, over_unfused);
  /* A store that keeps the best variants has unfused ones only where these are
   * among the best. */
  if (2 * count > d->problems)
    tile(page, "", unfused, "\xc3\x97",
         "as fast as unfused passes (the plain loop where nothing is fused)",
         count);
  const double share = mean_of(&count, d, floor_share);
  tile(page, "share", share, "", "of the compulsory floor, geometric mean",
       count);
  for (size_t i = 0; i < d->problems; i++)
    tied += d->problem[i].decision->count > 1 &&
            (d->problem[i].decision->ranked[1].tied ||
             d->problem[i].decision->ranked[0].log_ratio > 0);
  tile(page, "share", (double)tied / fmax((double)d->problems, 1), "",
       "of the winners cannot be told apart from another variant", 0);
  dfgnn__page_raw(page, "</div>\n");
}

static void fact(dfgnn_page *page, const char *name) {
  dfgnn__page_raw(page, "<tr><th scope=\"row\">");
  dfgnn__page_raw(page, name);
  dfgnn__page_raw(page, "</th><td>");
}

static void put_device(dfgnn_page *page, const report_device *v) {
  fact(page, "Device");
  dfgnn__page_text(page, *v->row->model ? v->row->model : v->row->backend);
  dfgnn__page_raw(page, ", ");
  dfgnn__page_text(page, v->row->backend);
  dfgnn__page_raw(page, " ");
  dfgnn__page_text(page, v->row->arch);
  dfgnn__page_f(page, ", %d units, last-level cache ", v->row->units);
  dfgnn__page_bytes(page, (double)v->row->cache_bytes);
  dfgnn__page_raw(page, "; driver ");
  dfgnn__page_text(page, *v->row->driver ? v->row->driver : "none");
  dfgnn__page_raw(page, ", runtime ");
  dfgnn__page_text(page, v->row->runtime);
  dfgnn__page_raw(page, ", measured with dfgnn ");
  dfgnn__page_text(page, v->row->library);
  dfgnn__page_f(page, "; %zu problems", v->problems);
  if (v->measured) {
    dfgnn__page_f(page, "; copies at %.0f GB/s (", 1e-9 * v->bandwidth);
    dfgnn__page_text(page, v->measured);
    dfgnn__page_raw(page, ")");
  } else {
    dfgnn__page_raw(page, "; its copy bandwidth is not known, so there are no "
                          "floors: <code>--copy-gbps</code> gives it");
  }
  dfgnn__page_raw(page, "</td></tr>\n");
}

static void put_sources(dfgnn_page *page, const report_data *d) {
  const dfgnn_report_input *in = d->input;
  fact(page, "From");
  for (size_t i = 0; i < in->stores; i++) {
    dfgnn__page_raw(page, i ? ", <code>" : "<code>");
    dfgnn__page_text(page, in->store[i]);
    dfgnn__page_raw(page, "</code>");
  }
  if (!in->stores)
    dfgnn__page_raw(page, "no store");
  dfgnn__page_raw(page, "</td></tr>\n");
  if (in->other) {
    fact(page, "Compared with");
    dfgnn__page_raw(page, "<code>");
    dfgnn__page_text(page, in->other);
    dfgnn__page_f(page, "</code>, %zu rows</td></tr>\n", in->other_count);
  }
}

static void put_rows(dfgnn_page *page, const report_data *d) {
  static const char *const statuses[] = {"ok", "refused", "failed", "wrong"};
  static const char *const uses[] = {"of older revisions of their variants",
                                     "of newer revisions",
                                     "of variants this library does not have",
                                     "of backends this library does not have"};
  const dfgnn_report_input *in = d->input;
  uint64_t count[4] = {0}, stale = d->stale[0] + d->stale[1] + d->stale[2];
  int64_t first = 0, last = 0;
  for (size_t i = 0; i < in->count; i++) {
    for (int k = 0; k < 4; k++)
      count[k] += !strcmp(in->row[i].status, statuses[k]);
    const int64_t time = in->row[i].time;
    if (time > 0 && (!first || time < first))
      first = time;
    if (time > last)
      last = time;
  }
  fact(page, "Rows");
  dfgnn__page_f(page, "%zu: %llu ok, %llu refused, %llu failed, %llu wrong",
                in->count, (unsigned long long)count[0],
                (unsigned long long)count[1], (unsigned long long)count[2],
                (unsigned long long)count[3]);
  if (in->invalid)
    dfgnn__page_f(page, "; %llu more are invalid and were passed over",
                  (unsigned long long)in->invalid);
  if (last) {
    dfgnn__page_raw(page, "; measured from ");
    dfgnn__page_day(page, first);
    dfgnn__page_raw(page, " to ");
    dfgnn__page_day(page, last);
  }
  dfgnn__page_raw(page, "</td></tr>\n");
  fact(page, "Stale rows");
  dfgnn__page_f(page, "%llu", (unsigned long long)stale);
  for (int k = 0; k < 4; k++)
    if (d->stale[k]) {
      dfgnn__page_f(page, "; %llu ", (unsigned long long)d->stale[k]);
      dfgnn__page_raw(page, uses[k]);
    }
  dfgnn__page_raw(page, "</td></tr>\n");
}

static void put_digests(dfgnn_page *page, const report_data *d) {
  char digest[DFGNN_DIGEST_SIZE] = "";
  for (size_t i = 0; i < d->devices; i++) {
    if (!d->device[i].table)
      continue;
    dfgnn__table_digest(digest, d->device[i].table, d->model);
    fact(page, "Digest");
    dfgnn__page_raw(page, "<code>");
    dfgnn__page_text(page, digest);
    dfgnn__page_raw(page, "</code> of the data that choices depend on, for ");
    dfgnn__page_text(page, d->device[i].row->arch);
    dfgnn__page_raw(page, "</td></tr>\n");
  }
  if (!d->model)
    return;
  dfgnn__model_digest(digest, sizeof digest, d->model);
  fact(page, "Model");
  dfgnn__page_raw(page, *digest ? "<code>" : "none<code>");
  dfgnn__page_text(page, digest);
  dfgnn__page_raw(page, "</code></td></tr>\n");
}

void dfgnn__report_head(dfgnn_page *page, const report_data *d) {
  const dfgnn_report_input *in = d->input;
  dfgnn__page_raw(page, "<header id=\"head\"><h1>");
  dfgnn__page_text(page, in->title);
  dfgnn__page_raw(page, "</h1>\n");
  if (d->problems)
    tiles(page, d);
  else
    dfgnn__page_raw(page, "<p class=\"empty\">Nothing is measured here. "
                          "<code>dfgnn-tune run GRAPH</code> measures.</p>\n");
  dfgnn__page_raw(page, "<table class=\"facts\">\n");
  put_sources(page, d);
  put_rows(page, d);
  for (size_t i = 0; i < d->devices; i++)
    put_device(page, &d->device[i]);
  fact(page, "Library");
  dfgnn__page_raw(page, "dfgnn ");
  dfgnn__page_text(page, dfgnn_version());
  if (in->commit && *in->commit) {
    dfgnn__page_raw(page, ", commit <code>");
    dfgnn__page_text(page, in->commit);
    dfgnn__page_raw(page, "</code>");
  }
  dfgnn__page_f(page, ", %zu variants</td></tr>\n", dfgnn__variant_count());
  put_digests(page, d);
  if (in->command) {
    fact(page, "Made by");
    dfgnn__page_raw(page, "<code>");
    dfgnn__page_text(page, in->command);
    dfgnn__page_raw(page, "</code></td></tr>\n");
  }
  dfgnn__page_raw(page, "</table></header>\n");
}
