/* report.c - the page: a sentence that any browser shows, the data, and the
 * script that draws it */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "tools/report/report.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/error.h"
#include "lib/base/locale.h"
#include "lib/base/output.h"
#include "tools/report/write.h"

/* tools/report/page.css and the scripts, as packaging/build/text.sh writes
 * them. */
/* How every page begins: a file that begins so may be replaced by one. */
#define PAGE_BEGIN                                                             \
  "<!DOCTYPE html>\n<html lang=\"en\"><head>"                                  \
  "<meta name=\"generator\" content=\"dfgnn\">"

static const char style[] =
#include "tools/report/page.css.inc"
    ;
static const char script[] =
#include "tools/report/chart.js.inc"
#include "tools/report/facts.js.inc"
#include "tools/report/page.js.inc"
#include "tools/report/sections.js.inc"
#include "tools/report/start.js.inc"
    ;

/* ---- the sentence -------------------------------------------------------- */

static void put_interval(dfgnn_page *page, const report_mean *m) {
  dfgnn__page_f(page, " (geometric mean of %zu problems", m->count);
  if (isfinite(m->error))
    dfgnn__page_f(page, ", 95 %% interval %.2f to %.2f",
                  m->value * exp(-1.96 * m->error),
                  m->value * exp(1.96 * m->error));
  dfgnn__page_raw(page, ")");
}

static void put_gain(dfgnn_page *page, const report_data *d,
                     const report_summary *s) {
  const report_mean *rule = &s->over_rule, *unfused = &s->over_unfused;
  if (rule->count) {
    dfgnn__page_f(page,
                  "Tuned choices are <b>%.2f times</b> as fast as the rule "
                  "that serves graphs nobody measured",
                  rule->value);
    put_interval(page, rule);
  } else if (unfused->count) {
    dfgnn__page_f(page,
                  "Tuned choices are <b>%.2f times</b> as fast as unfused "
                  "passes",
                  unfused->value);
    put_interval(page, unfused);
  } else {
    dfgnn__page_f(page, "<b>%zu problems</b> are measured", d->problems);
  }
  dfgnn__page_raw(page, ". ");
  if (s->noisy)
    dfgnn__page_f(page,
                  "%zu of %zu problems rest on noisy rows and are not counted "
                  "in it: <code>dfgnn-tune run --again noisy</code> measures "
                  "those again. ",
                  s->noisy, d->problems);
}

static int is_harmless(const char *text) {
  static const char harmless[] = "abcdefghijklmnopqrstuvwxyz0123456789"
                                 "ABCDEFGHIJKLMNOPQRSTUVWXYZ_.:=,/+-";
  return !text[strspn(text, harmless)];
}

/* Puts a text that a shell does not act on, else `noun`. */
static void put_word(dfgnn_page *page, const char *text, const char *noun) {
  dfgnn__page_text(page, is_harmless(text) ? text : noun);
}

static void put_flags(dfgnn_page *page, const dfgnn_measurement *row) {
  const struct {
    const char *name;
    int64_t on;
  } flags[] = {{" --weights", row->weights},
               {" --bias", row->bias},
               {" --dropout", row->dropout}};
  for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
    if (flags[i].on)
      dfgnn__page_raw(page, flags[i].name);
  if (row->edge_dim == DFGNN_EDGE_PROJECTED)
    dfgnn__page_raw(page, " --edge-dim projected");
  else if (row->edge_dim)
    dfgnn__page_f(page, " --edge-dim %lld", (long long)row->edge_dim);
  if (row->message && !*row->program)
    dfgnn__page_f(page, " --message %s",
                  dfgnn_name(DFGNN_NAMES_MESSAGE, (dfgnn_message)row->message));
}

/* The command that measures a cell.  Of a graph that is known by its label
 * alone the file is left to the reader. */
static void put_command(dfgnn_page *page, const report_data *d,
                        const report_graph *graph,
                        const dfgnn_measurement *row) {
  dfgnn__page_raw(page, "<code>dfgnn-tune run ");
  put_word(page,
           graph->given               ? graph->given->operand
           : strchr(graph->name, ':') ? graph->name
                                      : "GRAPH.npz",
           "GRAPH.npz");
  if (d->input->named && *d->input->named) {
    dfgnn__page_raw(page, " --store ");
    put_word(page, d->input->named, "STORE");
  }
  if (!strcmp(row->backend, "cpu"))
    dfgnn__page_raw(page, " --device cpu");
  dfgnn__page_raw(page, *row->program ? " --program " : " --op ");
  dfgnn__page_text(page, *row->program ? "FILE" : row->op);
  if (strcmp(row->pass, "forward")) {
    dfgnn__page_raw(page, " --pass ");
    dfgnn__page_text(page, row->pass);
  }
  dfgnn__page_f(page, " --heads %lld --dim %lld", (long long)row->heads,
                (long long)row->dim);
  dfgnn__page_raw(page, " --dtype ");
  dfgnn__page_text(page, row->dtype);
  put_flags(page, row);
  dfgnn__page_raw(page, "</code>");
}

static const char *answering(dfgnn_source source) {
  switch (source) {
  case DFGNN_SOURCE_NEAR:
    return "near graphs answer";
  case DFGNN_SOURCE_MODEL:
    return "the model answers";
  default:
    return "the rule answers";
  }
}

static void put_next(dfgnn_page *page, const report_data *d,
                     const report_summary *s) {
  const uint64_t stale = d->stale[DFGNN_USE_OLDER - 1];
  if (s->next) {
    const report_graph *graph = &d->graph[s->next->graph];
    const report_shape *shape = &d->shape[s->next->shape];
    dfgnn__page_raw(page, "Next, <b>");
    dfgnn__page_text(page, shape->text);
    dfgnn__page_raw(page, "</b> on <b>");
    dfgnn__page_text(page, graph->name);
    dfgnn__page_raw(page, "</b> is worth most, which ");
    dfgnn__page_raw(page, answering(s->next->source));
    dfgnn__page_raw(page, " so far: ");
    put_command(page, d, graph, shape->row);
    dfgnn__page_raw(page, ".");
  } else if (stale) {
    dfgnn__page_f(page,
                  "Next, %llu rows are of older revisions of their variants "
                  "and count no more: the same <code>dfgnn-tune run</code> "
                  "measures those anew.",
                  (unsigned long long)stale);
  } else if (s->unmeasured) {
    dfgnn__page_f(page, "%zu pairs of a graph and a problem are not measured.",
                  s->unmeasured);
  } else {
    dfgnn__page_raw(page, "No graph here lacks one of the problems: next, "
                          "<code>dfgnn-tune run</code> another graph.");
  }
}

static void put_sentence(dfgnn_page *page, const report_data *d,
                         const report_summary *s) {
  dfgnn__page_raw(page, "<p id=\"lead\">");
  if (d->problems) {
    put_gain(page, d, s);
    put_next(page, d, s);
  } else {
    dfgnn__page_raw(page, "Nothing is measured here. <code>dfgnn-tune run "
                          "GRAPH</code> measures.");
  }
  dfgnn__page_raw(page, "</p>\n");
}

/* Says what a browser without scripts misses, and the main facts. */
static void put_noscript(dfgnn_page *page, const report_data *d,
                         const report_summary *s) {
  dfgnn__page_f(
      page,
      "<noscript><p>This browser runs no JavaScript, which draws the rest of "
      "this page from the data in it: the map of graphs and problems, the "
      "variants of each problem with their intervals, the effect of each "
      "parameter, the graphs and those near them, the time of tuning, and "
      "what choices without measurements cost. <code>dfgnn-tune show</code> "
      "prints the rows.</p><p>%zu problem%s measured on %zu graph%s; %zu "
      "winners cannot be told from another variant.</p><ul>",
      d->problems, d->problems == 1 ? " is" : "s are", d->graphs,
      d->graphs == 1 ? "" : "s", s->tied);
  for (size_t i = 0; i < d->devices && i < 8; i++) {
    const dfgnn_measurement *row = d->device[i].row;
    dfgnn__page_raw(page, "<li>");
    dfgnn__page_text(page, *row->model ? row->model : row->backend);
    dfgnn__page_f(page, ": %zu problems</li>", d->device[i].problems);
  }
  dfgnn__page_raw(page, "</ul></noscript>\n");
}

static dfgnn_status put_page(dfgnn_page *page, report_data *d,
                             const report_summary *summary) {
  dfgnn__page_raw(
      page, PAGE_BEGIN
      "<meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width="
      "device-width,initial-scale=1\"><meta name=\"color-scheme\" "
      "content=\"light dark\"><meta http-equiv=\"Content-Security-"
      "Policy\" content=\"default-src 'none';style-src "
      "'unsafe-inline';script-src 'unsafe-inline'\"><title>");
  dfgnn__page_text(page, d->input->title);
  dfgnn__page_raw(page, "</title>\n<style>");
  dfgnn__page_raw(page, style);
  dfgnn__page_raw(page, "</style></head><body>\n<nav id=\"nav\"></nav>\n<main>"
                        "\n<header id=\"head\"><h1>");
  dfgnn__page_text(page, d->input->title);
  dfgnn__page_raw(page, "</h1>\n");
  put_sentence(page, d, summary);
  put_noscript(page, d, summary);
  dfgnn__page_raw(page, "</header><div id=\"page\"></div></main>\n<script "
                        "type=\"application/json\" id=\"data\">");
  dfgnn_status status = dfgnn__report_json(page, d, summary);
  dfgnn__page_raw(page, "</script>\n<script>");
  dfgnn__page_raw(page, script);
  dfgnn__page_raw(page, "</script></body></html>\n");
  if (!status && page->failed)
    status = dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory for a report");
  return status;
}

dfgnn_status dfgnn__report_page(dfgnn_page *page,
                                const dfgnn_report_input *input) {
  report_data data;
  report_summary summary;
  /* Decimal points, not commas, whatever the program's locale. */
  const locale_t before = dfgnn__locale_begin();
  dfgnn_status status = dfgnn__report_data_make(&data, input, 0);
  if (!status) {
    status = dfgnn__report_summary_make(&summary, &data);
    if (!status) {
      status = put_page(page, &data, &summary);
      dfgnn__report_summary_free(&summary);
    }
    dfgnn__report_data_free(&data);
  }
  dfgnn__locale_end(before);
  return status;
}

dfgnn_status dfgnn__report_write(const char *path, const dfgnn_page *page) {
  static const dfgnn_output_kind kind = {.name = "a report of dfgnn",
                                         .mark = {{0, PAGE_BEGIN}}};
  return dfgnn__write_bytes(path, &kind, page->text, page->size);
}
