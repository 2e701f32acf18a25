#include "tools/report/write.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/error.h"
#include "lib/key.h"
#include "lib/registry.h"

enum {
  ARMS = 64,         /* variants of a problem, unless all are wanted */
  REJECTED = 24,     /* rows without a time of a problem, likewise */
  JUDGED = 2000,     /* problems with choices */
  NEAREST = 5,       /* graphs named as near */
  NEAR_GRAPHS = 1000 /* graphs that are compared with each other */
};

/* ---- problems ------------------------------------------------------------ */

/* [name, ms, its half interval over it, log of the time over the fastest's, its
 * standard error, tied, samples, workspace, predicted, seconds since the first
 * row, a dfgnn_noise] */
static void put_arm(report_writer *w, const report_problem *p,
                    const report_arm *arm, int64_t first) {
  const dfgnn_ranked *r = arm->ranked;
  const dfgnn_measurement *row = arm->row;
  const int certain = row && row->median_ms > 0 && row->samples > 1;
  const double figures[] = {
      (double)dfgnn__report_name(w, r->variant),
      r->median_ms,
      certain ? (row->ci_high_ms - row->ci_low_ms) / 2 / row->median_ms : NAN,
      r->log_ratio - p->fastest,
      r->error,
      r->tied,
      r->samples,
      row ? (double)row->workspace_bytes : NAN,
      arm->predicted,
      row && row->time > 0 ? (double)(row->time - first) : -1,
      r->noise,
  };
  dfgnn__json_list(w->page, NULL, figures, sizeof figures / sizeof *figures);
}

/* The rows of variants that were refused, failed or wrong, with reasons. */
static void put_rejected(report_writer *w, const report_problem *p) {
  const size_t most = w->data->input->all ? SIZE_MAX : REJECTED;
  size_t count = 0;
  dfgnn__json_open(w->page, "rejected", '[');
  for (size_t i = 0; i < p->rows; i++) {
    const dfgnn_measurement *row = p->row[i];
    if (!strcmp(row->status, "ok") || count++ >= most || !dfgnn__report_room(w))
      continue;
    const double names[] = {(double)dfgnn__report_name(w, row->status),
                            (double)dfgnn__report_name(w, row->variant),
                            (double)dfgnn__report_name(w, row->reason)};
    dfgnn__json_list(w->page, NULL, names, 3);
  }
  dfgnn__json_close(w->page, ']');
  dfgnn__json_count(w->page, "rejects", (int64_t)count);
}

static void put_choices(report_writer *w, const report_problem *p) {
  double chosen[REPORT_WAYS];
  for (int way = 0; way < REPORT_WAYS; way++)
    chosen[way] = (double)dfgnn__report_name(w, p->chosen[way]);
  dfgnn__json_list(w->page, "chosen", chosen, REPORT_WAYS);
  dfgnn__json_list(w->page, "regret", p->regret, REPORT_WAYS);
  dfgnn__json_number(w->page, "distance", p->distance);
  dfgnn__json_string(w->page, "left_out",
                     dfgnn_name(DFGNN_NAMES_SOURCE, p->left_out));
}

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

static void put_problem(report_writer *w, report_problem *p, int64_t first) {
  const report_data *d = w->data;
  const size_t number = (size_t)(p - d->problem);
  const size_t count = p->decision->count;
  const size_t most = d->input->all ? count : ARMS;
  const int64_t graph = dfgnn__report_graph(w, p->graph);
  const int64_t shape = dfgnn__report_shape(w, p->shape);
  if (w->problems < JUDGED)
    dfgnn__report_judge(d, p);
  w->problem[number] = ++w->problems;
  dfgnn__json_open(w->page, NULL, '{');
  dfgnn__json_count(w->page, "graph", graph);
  dfgnn__json_count(w->page, "shape", shape);
  dfgnn__json_number(w->page, "bytes", p->bytes);
  dfgnn__json_number(w->page, "gather", p->gather_bytes);
  dfgnn__json_number(w->page, "rule", p->over_rule);
  dfgnn__json_number(w->page, "unfused", p->over_unfused);
  dfgnn__json_string(w->page, "source",
                     dfgnn_name(DFGNN_NAMES_SOURCE, DFGNN_SOURCE_EXACT));
  dfgnn__json_number(w->page, "seconds", tuning_seconds(p));
  if (p->judged)
    put_choices(w, p);
  dfgnn__json_count(w->page, "count", (int64_t)count);
  dfgnn__json_open(w->page, "arms", '[');
  for (size_t i = 0; i < count && i < most && (!i || dfgnn__report_room(w));
       i++)
    put_arm(w, p, &p->arm[i], first);
  dfgnn__json_close(w->page, ']');
  put_rejected(w, p);
  dfgnn__json_close(w->page, '}');
}

typedef struct place {
  double key;
  size_t problem;
} place;

static int by_key(const void *a, const void *b) {
  const place *x = a, *y = b;
  if (x->key != y->key)
    return x->key > y->key ? -1 : 1;
  return (x->problem > y->problem) - (x->problem < y->problem);
}

/* By turns the problem that takes longest and the one that is furthest from the
 * bytes it has to move, so that those come first that matter most. */
static place *order_of(const report_data *d) {
  const size_t n = d->problems;
  place *all = calloc(2 * n + 1, sizeof *all);
  for (size_t i = 0; all && i < n; i++) {
    const report_problem *p = &d->problem[i];
    const double pace = p->best_ms / p->bytes;
    all[i] = (place){p->best_ms, i};
    all[n + i] = (place){isfinite(pace) ? pace : 0, i};
  }
  if (all) {
    qsort(all, n, sizeof *all, by_key);
    qsort(all + n, n, sizeof *all, by_key);
  }
  return all;
}

static dfgnn_status put_problems(report_writer *w, int64_t first) {
  report_data *d = w->data;
  place *order = order_of(d);
  if (!order)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory for a report");
  dfgnn__json_open(w->page, "problems", '[');
  for (size_t i = 0; i < 2 * d->problems && dfgnn__report_room(w); i++) {
    const size_t turn = i / 2 + (i % 2 ? d->problems : 0);
    report_problem *p = &d->problem[order[turn].problem];
    if (!w->problem[p - d->problem])
      put_problem(w, p, first);
  }
  dfgnn__json_close(w->page, ']');
  free(order);
  return DFGNN_OK;
}

/* ---- graphs and shapes --------------------------------------------------- */

static void put_histogram(dfgnn_page *page, const char *key,
                          const double share[DFGNN_HISTOGRAM_BINS]) {
  int last = DFGNN_HISTOGRAM_BINS;
  while (last > 1 && share[last - 1] == 0)
    last--;
  dfgnn__json_list(page, key, share, (size_t)last);
}

static void put_signature(dfgnn_page *page, const dfgnn_signature *s) {
  const dfgnn_json_figure figures[] = {
      {"destinations", (double)s->destinations},
      {"sources", (double)s->sources},
      {"edges", (double)s->edges},
      {"p50", (double)s->p50_degree},
      {"p90", (double)s->p90_degree},
      {"p99", (double)s->p99_degree},
      {"max", (double)s->max_degree},
      {"p50_source", (double)s->p50_source_degree},
      {"p99_source", (double)s->p99_source_degree},
      {"max_source", (double)s->max_source_degree},
      {"graphs", (double)s->graphs},
      {"largest", (double)s->largest_graph},
      {"mean", s->mean_degree},
      {"cv", s->degree_cv},
      {"isolated", s->isolated},
      {"reuse", s->reuse},
      {"locality", s->locality},
      {"density", s->density},
  };
  dfgnn__json_figures(page, figures, sizeof figures / sizeof *figures);
  char fingerprint[17];
  snprintf(fingerprint, sizeof fingerprint, "%016llx",
           (unsigned long long)s->fingerprint);
  dfgnn__json_string(page, "fingerprint", fingerprint);
  put_histogram(page, "histogram", s->histogram);
}

typedef struct feature {
  double x[DFGNN_FEATURES];
} feature;

/* A graph is looked up as one head of 64 features in f32, on the first device.
 */
static feature feature_of(const report_data *d, const dfgnn_signature *s) {
  const dfgnn_device_info none = DFGNN_DEVICE_INFO_INIT;
  feature f;
  dfgnn__features(f.x, s, 1, 64, sizeof(float),
                  d->devices ? &d->device[0].info : &none);
  return f;
}

/* The member "near": [number, distance] of the nearest other graphs. */
static void put_near(report_writer *w, const feature *own, size_t self,
                     const feature *all, size_t count) {
  place near[NEAREST];
  size_t found = 0;
  for (size_t i = 0; i < count; i++) {
    const double key = -dfgnn__distance(own->x, all[i].x);
    if (i == self || (found == NEAREST && key <= near[found - 1].key))
      continue;
    size_t k = found < NEAREST ? found++ : found - 1;
    for (; k && near[k - 1].key < key; k--)
      near[k] = near[k - 1];
    near[k] = (place){key, i};
  }
  dfgnn__json_open(w->page, "near", '[');
  for (size_t k = 0; k < found; k++) {
    const double pair[] = {(double)near[k].problem, -near[k].key};
    dfgnn__json_list(w->page, NULL, pair, 2);
  }
  dfgnn__json_close(w->page, ']');
}

static void put_graph(report_writer *w, const char *name,
                      const dfgnn_signature *s, const double *sources) {
  dfgnn__json_open(w->page, NULL, '{');
  dfgnn__json_string(w->page, "name", name);
  put_signature(w->page, s);
  if (sources)
    put_histogram(w->page, "source_histogram", sources);
}

static dfgnn_status put_graphs(report_writer *w) {
  const report_data *d = w->data;
  const dfgnn_report_input *in = d->input;
  const size_t count = w->graphs < NEAR_GRAPHS ? w->graphs : NEAR_GRAPHS;
  feature *all = calloc(count + 1, sizeof *all);
  if (!all)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory for a report");
  for (size_t i = 0; i < count; i++)
    all[i] = feature_of(d, d->graph[w->graphs_used[i]].signature);
  dfgnn__json_open(w->page, "graphs", '[');
  for (size_t i = 0; i < w->graphs; i++) {
    const report_graph *graph = &d->graph[w->graphs_used[i]];
    const feature own = feature_of(d, graph->signature);
    put_graph(w, graph->name, graph->signature,
              graph->given ? graph->given->sources : NULL);
    dfgnn__json_count(w->page, "problems", (int64_t)graph->problems);
    put_near(w, &own, i, all, count);
    dfgnn__json_close(w->page, '}');
  }
  for (size_t g = 0; g < in->graphs; g++) { /* given, and not measured */
    const feature own = feature_of(d, &in->graph[g].signature);
    size_t known = 0;
    while (known < d->graphs && d->graph[known].given != &in->graph[g])
      known++;
    if (known < d->graphs)
      continue;
    put_graph(w, in->graph[g].name, &in->graph[g].signature,
              in->graph[g].sources);
    dfgnn__json_count(w->page, "problems", 0);
    put_near(w, &own, SIZE_MAX, all, count);
    dfgnn__json_close(w->page, '}');
  }
  dfgnn__json_close(w->page, ']');
  free(all);
  return DFGNN_OK;
}

static void put_shapes(report_writer *w) {
  dfgnn__json_open(w->page, "shapes", '[');
  for (size_t i = 0; i < w->shapes; i++) {
    const report_shape *shape = &w->data->shape[w->shapes_used[i]];
    dfgnn__json_open(w->page, NULL, '{');
    dfgnn__json_string(w->page, "text", shape->text);
    if (*shape->row->program)
      dfgnn__json_string(w->page, "program", shape->row->program_text);
    dfgnn__json_count(w->page, "device", (int64_t)shape->device);
    dfgnn__json_close(w->page, '}');
  }
  dfgnn__json_close(w->page, ']');
}

/* The choices where nothing was measured: [graph, shape, source]. */
static void put_cells(report_writer *w) {
  const report_summary *s = w->summary;
  dfgnn__json_open(w->page, "cells", '[');
  for (size_t i = 0; i < s->cells; i++) {
    const report_cell *cell = &s->cell[i];
    if (!w->graph[cell->graph] || !w->shape[cell->shape])
      continue;
    dfgnn__json_open(w->page, NULL, '[');
    dfgnn__json_count(w->page, NULL, (int64_t)w->graph[cell->graph] - 1);
    dfgnn__json_count(w->page, NULL, (int64_t)w->shape[cell->shape] - 1);
    dfgnn__json_string(w->page, NULL,
                       dfgnn_name(DFGNN_NAMES_SOURCE, cell->source));
    dfgnn__json_close(w->page, ']');
  }
  dfgnn__json_close(w->page, ']');
}

/* ---- where the rows are from --------------------------------------------- */

static int64_t put_rows(report_writer *w) {
  static const char *const statuses[] = {"ok", "refused", "failed", "wrong"};
  static const char *const uses[] = {"older", "newer", "unknown", "foreign"};
  const report_data *d = w->data;
  const dfgnn_report_input *in = d->input;
  int64_t count[4] = {0}, first = 0, last = 0;
  for (size_t i = 0; i < in->count; i++) {
    const int64_t time = in->row[i].time;
    for (int k = 0; k < 4; k++)
      count[k] += !strcmp(in->row[i].status, statuses[k]);
    if (time > 0 && (!first || time < first))
      first = time;
    last = time > last ? time : last;
  }
  dfgnn__json_open(w->page, "rows", '{');
  dfgnn__json_count(w->page, "count", (int64_t)in->count);
  for (int k = 0; k < 4; k++)
    dfgnn__json_count(w->page, statuses[k], count[k]);
  for (int k = 0; k < 4; k++)
    dfgnn__json_count(w->page, uses[k], (int64_t)d->stale[k]);
  dfgnn__json_count(w->page, "invalid", (int64_t)in->invalid);
  dfgnn__json_count(w->page, "first", first);
  dfgnn__json_count(w->page, "last", last);
  dfgnn__json_close(w->page, '}');
  return first;
}

static void put_device(report_writer *w, const report_device *v) {
  const dfgnn_measurement *row = v->row;
  char digest[DFGNN_DIGEST_SIZE] = "";
  if (v->table)
    dfgnn__table_digest(digest, v->table);
  dfgnn__json_open(w->page, NULL, '{');
  dfgnn__json_string(w->page, "model", *row->model ? row->model : row->backend);
  dfgnn__json_string(w->page, "backend", row->backend);
  dfgnn__json_string(w->page, "arch", row->arch);
  dfgnn__json_count(w->page, "units", row->units);
  dfgnn__json_count(w->page, "cache", row->cache_bytes);
  dfgnn__json_string(w->page, "driver", row->driver);
  dfgnn__json_string(w->page, "runtime", row->runtime);
  dfgnn__json_string(w->page, "library", row->library);
  dfgnn__json_count(w->page, "problems", (int64_t)v->problems);
  dfgnn__json_number(w->page, "gbps", v->measured ? 1e-9 * v->bandwidth : NAN);
  dfgnn__json_string(w->page, "measured", v->measured);
  dfgnn__json_string(w->page, "digest", digest);
  dfgnn__json_close(w->page, '}');
}

static void put_sources(report_writer *w) {
  const report_data *d = w->data;
  const dfgnn_report_input *in = d->input;
  dfgnn__json_open(w->page, "stores", '[');
  for (size_t i = 0; i < in->stores; i++)
    dfgnn__json_string(w->page, NULL, in->store[i]);
  dfgnn__json_close(w->page, ']');
  if (in->other)
    dfgnn__json_string(w->page, "other", in->other);
  dfgnn__json_string(w->page, "command", in->command);
  dfgnn__json_string(w->page, "commit", in->commit);
  dfgnn__json_string(w->page, "version", dfgnn_version());
  dfgnn__json_count(w->page, "variants", (int64_t)dfgnn__variant_count());
  dfgnn__json_number(w->page, "trusted", dfgnn__near);
  dfgnn__json_number(w->page, "margin", DFGNN_REPORT_MARGIN);
  dfgnn__json_count(w->page, "all", in->all);
  dfgnn__json_string(w->page, "portfolios", dfgnn__portfolio_digest());
  dfgnn__json_open(w->page, "devices", '[');
  for (size_t i = 0; i < d->devices && dfgnn__report_room(w); i++)
    put_device(w, &d->device[i]);
  dfgnn__json_close(w->page, ']');
}

static void put_mean(dfgnn_page *page, const char *key, const report_mean *m) {
  const double mean[] = {m->value, m->error, (double)m->count};
  dfgnn__json_list(page, key, mean, 3);
}

static void put_totals(report_writer *w) {
  const report_data *d = w->data;
  const report_summary *s = w->summary;
  const dfgnn_json_figure totals[] = {
      {"problems", (double)d->problems}, {"graphs", (double)d->graphs},
      {"shapes", (double)d->shapes},     {"tied", (double)s->tied},
      {"noisy", (double)s->noisy},       {"unmeasured", (double)s->unmeasured},
  };
  dfgnn__json_open(w->page, "totals", '{');
  dfgnn__json_figures(w->page, totals, sizeof totals / sizeof *totals);
  put_mean(w->page, "rule", &s->over_rule);
  put_mean(w->page, "unfused", &s->over_unfused);
  dfgnn__json_close(w->page, '}');
}

/* ---- all of it ----------------------------------------------------------- */

static dfgnn_status put_all(report_writer *w) {
  dfgnn__json_open(w->page, NULL, '{');
  put_totals(w);
  const int64_t first = put_rows(w);
  put_sources(w);
  dfgnn_status status = put_problems(w, first);
  if (!status && w->data->input->other)
    status = dfgnn__report_against(w);
  put_cells(w);
  if (!status)
    status = put_graphs(w);
  put_shapes(w);
  dfgnn__json_open(w->page, "names", '[');
  for (size_t i = 0; i < w->names; i++)
    dfgnn__json_string(w->page, NULL, w->name[i]);
  dfgnn__json_close(w->page, ']');
  dfgnn__json_close(w->page, '}');
  return status;
}

dfgnn_status dfgnn__report_json(dfgnn_page *page, report_data *data,
                                const report_summary *summary) {
  report_writer w = {.page = page, .data = data, .summary = summary};
  dfgnn_status status = dfgnn__report_writer_make(&w);
  if (!status)
    status = put_all(&w);
  dfgnn__report_writer_free(&w);
  return status;
}
