/* facts.c - the derived figures of a problem: its arms, floors, predictions,
 * and the choices without its measurements */
#include <math.h>
#include <string.h>

#include "lib/key.h"
#include "lib/operator.h"
#include "tools/report/data.h"

/* The copy_gbps of `dfgnn-bench --json` on a device; the file beside a number
 * has it. */
static const struct {
  const char *model, *file;
  double gbps;
} bandwidths[] = {
    {.model = "NVIDIA H200",
     .file = "data/results/h200.jsonl.xz",
     .gbps = 4236},
};

double dfgnn__report_bandwidth(const char **measured, const char *model) {
  for (size_t i = 0; i < sizeof bandwidths / sizeof *bandwidths; i++)
    if (!strcmp(bandwidths[i].model, model)) {
      *measured = bandwidths[i].file;
      return 1e9 * bandwidths[i].gbps;
    }
  *measured = NULL;
  return NAN;
}

static double loss_of(const report_problem *p, const char *variant) {
  for (size_t i = 0; variant && i < p->decision->count; i++)
    if (!strcmp(p->decision->ranked[i].variant, variant))
      return exp(p->decision->ranked[i].log_ratio - p->fastest);
  return NAN;
}

/* ---- measured ------------------------------------------------------------ */

/* The row of most samples that counts for the variant; the rows of a problem
 * are sorted by variant. */
static const dfgnn_measurement *evidence(const report_problem *p,
                                         const dfgnn_ranked *r) {
  const dfgnn_measurement *best = NULL;
  size_t low = 0, high = p->rows;
  while (low < high) {
    const size_t middle = (low + high) / 2;
    if (strcmp(p->row[middle]->variant, r->variant) < 0)
      low = middle + 1;
    else
      high = middle;
  }
  for (; low < p->rows && !strcmp(p->row[low]->variant, r->variant); low++) {
    const dfgnn_measurement *row = p->row[low];
    if (row->revision == r->revision && !strcmp(row->status, "ok") &&
        (!best || row->samples > best->samples))
      best = row;
  }
  return best;
}

static double over_algorithm(const report_problem *p, const char *algorithm) {
  double least = INFINITY;
  for (size_t i = 0; i < p->decision->count; i++) {
    const dfgnn_ranked *r = &p->decision->ranked[i];
    const dfgnn_variant *v = dfgnn__variant_find(r->variant);
    if (v && !strcmp(v->family->algorithm, algorithm))
      least = fmin(least, r->log_ratio);
  }
  return isfinite(least) ? exp(least - p->decision->ranked[0].log_ratio) : NAN;
}

static void fill_arms(report_problem *p) {
  p->fastest = INFINITY;
  for (size_t i = 0; i < p->decision->count; i++) {
    const dfgnn_ranked *r = &p->decision->ranked[i];
    p->arm[i] =
        (report_arm){.ranked = r, .row = evidence(p, r), .predicted = NAN};
    p->fastest = fmin(p->fastest, r->log_ratio);
  }
  p->best_ms = p->decision->ranked[0].median_ms;
  p->noisy = dfgnn__ranked_doubtful(p->decision, 0);
}

/* ---- choices without the problem's rows ---------------------------------- */

static dfgnn_query query_of(const report_data *d, const report_problem *p) {
  return (dfgnn_query){.setting = {.problem = &p->problem,
                                   .matrix = &p->matrix,
                                   .signature = d->graph[p->graph].signature,
                                   .device = &d->device[p->device].info},
                       .family = p->decision->problem.family};
}

static int complete(dfgnn_problem *problem, dfgnn_matrix *matrix,
                    const dfgnn_measurement *row,
                    const dfgnn_signature *graph) {
  dfgnn_problem named;
  if (dfgnn__key_problem(&named, row) ||
      dfgnn__problem_complete(problem, &named) ||
      !dfgnn__operator(problem->op, problem->pass))
    return 0;
  *matrix = (dfgnn_matrix){.destinations = graph->destinations,
                           .sources = graph->sources,
                           .edges = graph->edges,
                           .max_degree = graph->max_degree,
                           .offsets64 = !strcmp(row->index, "i64")};
  return 1;
}

static double predicted_of(const dfgnn_variant *const *member,
                           const double *ratio, size_t count,
                           const char *variant) {
  for (size_t i = 0; i < count; i++)
    if (ratio[i] > 0 && !strcmp(member[i]->name, variant))
      return ratio[i];
  return NAN;
}

static void fill_predictions(const report_data *d, report_problem *p,
                             const dfgnn_query *query) {
  const dfgnn_variant *member[DFGNN_PORTFOLIO_MOST];
  double ratio[DFGNN_PORTFOLIO_MOST], least = INFINITY;
  const size_t count =
      dfgnn__members(member, ratio, d->device[p->device].table, query);
  for (size_t i = 0; i < p->decision->count; i++)
    p->arm[i].predicted =
        predicted_of(member, ratio, count, p->arm[i].ranked->variant);
  if (count && ratio[0] > 0)
    p->chosen[REPORT_WAY_MODEL] = member[0]->name;
  for (size_t i = 0; i < count; i++) {
    const double loss = loss_of(p, member[i]->name);
    if (loss < least) {
      least = loss;
      p->chosen[REPORT_WAY_PORTFOLIO] = member[i]->name;
    }
  }
}

static void fill_left_out(const report_data *d, report_problem *p,
                          const dfgnn_query *query) {
  const report_device *v = &d->device[p->device];
  dfgnn_query hidden = *query;
  dfgnn_choice left_out, rule, paper;
  if (!v->table)
    return;
  hidden.exclude = query->setting.signature->fingerprint;
  dfgnn__rule_choice(&rule, v->table, query);
  dfgnn__paper_choice(&paper, NULL, query, DFGNN_PAPER_CAPACITY);
  dfgnn__select(&left_out, v->table, &hidden);
  p->distance = left_out.distance;
  p->left_out = left_out.source;
  const struct {
    report_way way;
    const dfgnn_variant *variant;
  } choices[] = {{REPORT_WAY_LEFT_OUT, left_out.variant},
                 {REPORT_WAY_RULE, rule.variant},
                 {REPORT_WAY_PAPER, paper.variant}};
  for (size_t i = 0; i < sizeof choices / sizeof *choices; i++)
    if (choices[i].variant)
      p->chosen[choices[i].way] = choices[i].variant->name;
}

/* The rule is asked about so many problems of a large store, evenly spread, and
 * about those that the page shows. */
enum { MOST_GAINS = 5000 };

/* The time of the rule's choice over the winner's. */
static void fill_gains(const report_data *d, report_problem *p,
                       const dfgnn_query *query) {
  dfgnn_choice rule = {.source = DFGNN_SOURCE_RULE};
  dfgnn__rule_choice(&rule, d->device[p->device].table, query);
  const double winner = exp(p->decision->ranked[0].log_ratio - p->fastest);
  if (rule.variant)
    p->over_rule = loss_of(p, rule.variant->name) / winner;
}

void dfgnn__report_facts(report_data *d, report_problem *p, int brief) {
  const dfgnn_measurement *row = &p->decision->problem;
  const dfgnn_signature *graph = d->graph[p->graph].signature;
  p->bytes = p->gather_bytes = NAN;
  p->over_rule = p->over_unfused = NAN;
  fill_arms(p);
  if (brief)
    return;
  p->over_unfused = over_algorithm(p, "unfused");
  if (isnan(p->over_unfused)) /* nothing to fuse: the plain row loop */
    p->over_unfused = over_algorithm(p, "row");
  p->known = complete(&p->problem, &p->matrix, row, graph);
  if (!p->known)
    return;
  p->bytes = dfgnn__compulsory_bytes(&p->problem, graph->destinations,
                                     graph->sources, graph->edges);
  p->gather_bytes = dfgnn__gather_bytes(&p->problem, graph->edges);
  if ((size_t)(p - d->problem) % (d->problems / MOST_GAINS + 1) == 0) {
    const dfgnn_query query = query_of(d, p);
    fill_gains(d, p, &query);
  }
}

void dfgnn__report_judge(const report_data *d, report_problem *p) {
  p->judged = 1;
  p->distance = -1;
  p->left_out = DFGNN_SOURCE_RULE;
  if (p->known) {
    const dfgnn_query query = query_of(d, p);
    fill_gains(d, p, &query);
    fill_predictions(d, p, &query);
    fill_left_out(d, p, &query);
  }
  for (int way = 0; way < REPORT_WAYS; way++)
    p->regret[way] = loss_of(p, p->chosen[way]);
}

double dfgnn__report_mean(size_t *count, double *error, const double *value,
                          size_t values) {
  double sum = 0, squares = 0;
  size_t n = 0;
  for (size_t i = 0; i < values; i++)
    if (isfinite(value[i]) && value[i] > 0) {
      sum += log(value[i]);
      squares += log(value[i]) * log(value[i]);
      n++;
    }
  const double mean = n ? sum / (double)n : NAN;
  *count = n;
  *error =
      n > 1 ? sqrt(fmax(squares / (double)n - mean * mean, 0) / (double)(n - 1))
            : NAN;
  return exp(mean);
}

void dfgnn__report_foretell(dfgnn_choice *choice, const report_data *d,
                            const report_graph *graph,
                            const report_shape *shape) {
  const report_device *v = &d->device[shape->device];
  dfgnn_problem problem;
  dfgnn_matrix matrix;
  *choice = (dfgnn_choice){.source = DFGNN_SOURCE_RULE, .distance = -1};
  if (!v->table || !complete(&problem, &matrix, shape->row, graph->signature))
    return;
  const dfgnn_query query = {.setting = {.problem = &problem,
                                         .matrix = &matrix,
                                         .signature = graph->signature,
                                         .device = &v->info},
                             .family = graph->row->family};
  dfgnn__select(choice, v->table, &query);
}
