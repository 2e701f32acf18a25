#include "tuner/regret.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/error.h"
#include "lib/key.h"
#include "lib/plan.h"
#include "lib/predict.h"
#include "tuner/harness.h"
#include "tuner/search.h"

#define BEST 5 /* how many of the stored best are timed again */
#define ARMS (BEST + DFGNN_REGRET_CHOICES + DFGNN_REGRET_FIRST)

const char *dfgnn__regret_choice_name(dfgnn_regret_choice choice) {
  static const char *const names[] = {"exact", "left-out", "model",
                                      "race",  "rule",     "paper"};
  return choice < DFGNN_REGRET_CHOICES ? names[choice] : NULL;
}

/* model may be NULL.  The race's choice is known once its entrants are timed.
 */
static void choose(dfgnn_regret *r, const dfgnn_table *table,
                   dfgnn_model *model, const dfgnn_query *query,
                   int64_t capacity) {
  dfgnn_choice exact, left_out, rule, paper, predicted = {0};
  dfgnn__table_select(&exact, table, query, 0);
  dfgnn__rule_choice(&rule, query);
  dfgnn__paper_choice(&paper, query, capacity);
  dfgnn__select(&left_out, table, model, query,
                query->setting.signature->fingerprint);
  if (model)
    dfgnn__model_choice(&predicted, model, query);
  r->choice[DFGNN_REGRET_MODEL] = predicted.variant;
  r->choice[DFGNN_REGRET_RACE] = NULL;
  r->left_out_distance = left_out.distance;
  r->left_out_source = left_out.source;
  if (!left_out.variant) {
    left_out.variant = rule.variant;
    r->left_out_source = DFGNN_SOURCE_RULE;
  }
  r->choice[DFGNN_REGRET_EXACT] = exact.variant;
  r->choice[DFGNN_REGRET_LEFT_OUT] = left_out.variant;
  r->choice[DFGNN_REGRET_RULE] = rule.variant;
  r->choice[DFGNN_REGRET_PAPER] = paper.variant;
}

/* The stored variants that run here, best first; at most `most`. */
static size_t ranked_variants(const dfgnn_variant **variant, size_t most,
                              const dfgnn_decision *decision,
                              const dfgnn_query *query) {
  size_t count = 0;
  for (size_t i = 0; i < decision->count && count < most; i++) {
    const dfgnn_variant *v = dfgnn__variant_find(decision->ranked[i].variant);
    if (v && !dfgnn__variant_refusal(v, &query->setting))
      variant[count++] = v;
  }
  return count;
}

static void fill_spread(dfgnn_regret *r, const dfgnn_decision *decision) {
  double least = INFINITY, most = -INFINITY;
  for (size_t i = 0; i < decision->count; i++) {
    least = fmin(least, decision->ranked[i].log_ratio);
    most = fmax(most, decision->ranked[i].log_ratio);
  }
  r->spread = exp(most - least);
  r->candidates = decision->count;
}

/* ---- stored ------------------------------------------------------------- */

static double stored_ratio(const dfgnn_decision *decision,
                           const dfgnn_variant *variant) {
  for (size_t i = 0; variant && i < decision->count; i++)
    if (!strcmp(decision->ranked[i].variant, variant->name))
      return decision->ranked[i].log_ratio;
  return NAN;
}

dfgnn_status dfgnn__regret_stored(dfgnn_regret *regret,
                                  const dfgnn_table *table,
                                  const dfgnn_decision *decision,
                                  const dfgnn_device_info *device,
                                  int64_t paper_capacity) {
  const dfgnn_measurement *m = &decision->problem;
  const dfgnn_signature *g = &m->signature;
  dfgnn_matrix matrix = {.destinations = g->destinations,
                         .sources = g->sources,
                         .edges = g->edges,
                         .max_degree = g->max_degree,
                         .offsets64 = !strcmp(m->index, "i64")};
  dfgnn_problem problem;
  dfgnn_regret r = {.left_out_distance = -1};
  dfgnn_status status = dfgnn__key_problem(&problem, m);
  if (status)
    return status;
  dfgnn_query query = {.setting = {.problem = &problem,
                                   .matrix = &matrix,
                                   .signature = g,
                                   .device = device},
                       .family = m->family ? m->family : ""};
  choose(&r, table, NULL, &query, paper_capacity);
  if (!ranked_variants(&r.best, 1, decision, &query))
    return dfgnn__fail(DFGNN_ERROR_NOT_TUNED,
                       "%s: none of its measured variants runs here",
                       m->graph ? m->graph : "a graph");
  double least = INFINITY;
  for (size_t i = 0; i < decision->count; i++)
    if (decision->ranked[i].log_ratio < least) {
      const dfgnn_variant *v = dfgnn__variant_find(decision->ranked[i].variant);
      if (!v || dfgnn__variant_refusal(v, &query.setting))
        continue;
      least = decision->ranked[i].log_ratio;
      r.best = v;
      r.best_ms = decision->ranked[i].median_ms;
    }
  for (int c = 0; c < DFGNN_REGRET_CHOICES; c++)
    r.regret[c] = exp(stored_ratio(decision, r.choice[c]) - least);
  fill_spread(&r, decision);
  *regret = r;
  return DFGNN_OK;
}

/* ---- live --------------------------------------------------------------- */

typedef struct retime {
  dfgnn_context *ctx;
  dfgnn_harness *harness;
  const dfgnn_variant *variant[ARMS];
  dfgnn_plan *plan[ARMS];
  void *workspace;
  size_t arms, current;
  size_t first[DFGNN_REGRET_FIRST], firsts; /* arms that would race */
  int cold;
  dfgnn_status status;
} retime;

static size_t add_arm(retime *t, const dfgnn_variant *variant) {
  size_t i = 0;
  while (i < t->arms && t->variant[i] != variant)
    i++;
  if (i == t->arms)
    t->variant[t->arms++] = variant;
  return i;
}

/* Adds the variants that first calls would compare. */
static void add_first(retime *t, const dfgnn_query *query) {
  const dfgnn_variant *first[DFGNN_REGRET_FIRST];
  const dfgnn_prediction *p =
      t->ctx->model ? dfgnn__predict_all(t->ctx->model, query) : NULL;
  dfgnn_choice rule;
  dfgnn__rule_choice(&rule, query);
  t->firsts =
      p ? dfgnn__predicted_entrants(first, DFGNN_REGRET_FIRST, p, rule.variant)
        : 0;
  for (size_t k = 0; k < t->firsts; k++)
    t->first[k] = add_arm(t, first[k]);
}

static dfgnn_status execute(void *data, void *stream) {
  const retime *t = data;
  return dfgnn_execute(t->plan[t->current], dfgnn__harness_args(t->harness),
                       t->workspace, stream);
}

static dfgnn_sampled no_check(void *data, size_t i, double *rough_ms) {
  (void)data, (void)i, (void)rough_ms;
  return DFGNN_SAMPLED_OK;
}

static dfgnn_sampled sample(void *data, size_t i, double *ms) {
  retime *t = data;
  dfgnn_sample taken = {0};
  t->current = i;
  t->status = dfgnn__harness_workspace(&t->workspace, t->harness, t->plan[i]);
  if (!t->status)
    t->status =
        t->ctx->backend->time(t->ctx->device, &taken, execute, t, 0, t->cold);
  *ms = taken.ms;
  if (t->status)
    return DFGNN_SAMPLED_LOST;
  return taken.tainted ? DFGNN_SAMPLED_TAINTED : DFGNN_SAMPLED_OK;
}

static double no_clock(void *data) {
  (void)data;
  return 0;
}

static const dfgnn_search_ops ops = {
    .admit = no_check, .sample = sample, .now = no_clock};

static dfgnn_status time_again(retime *t, dfgnn_search *search) {
  double rough;
  size_t arms = t->arms;
  for (size_t i = 0; i < arms; i++) /* warm up */
    if (sample(t, i, &rough) == DFGNN_SAMPLED_LOST)
      return t->status;
  search->ops = &ops;
  search->data = t;
  search->exhaustive = 1;
  search->slow = INFINITY;
  if (!dfgnn__search_run(search))
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  return search->lost ? t->status : DFGNN_OK;
}

/* Chooses a variant and lists those to be timed, under the context's lock: a
 * reload replaces the table. */
static dfgnn_status select_arms(dfgnn_regret *r, retime *t, dfgnn_graph *graph,
                                const dfgnn_problem *problem,
                                const unsigned char *avoided) {
  const dfgnn_variant *best[BEST];
  dfgnn_query query = {.setting = dfgnn__setting(graph, problem),
                       .family = graph->family,
                       .broken = avoided ? avoided : graph->ctx->broken};
  dfgnn_status status = DFGNN_OK;
  t->arms = 0;
  pthread_mutex_lock(&t->ctx->lock);
  const dfgnn_decision *decision = dfgnn__table_exact(t->ctx->table, &query);
  if (decision) {
    choose(r, t->ctx->table, t->ctx->model, &query, t->ctx->paper_capacity);
    add_first(t, &query);
    fill_spread(r, decision);
    size_t count = ranked_variants(best, BEST, decision, &query);
    for (size_t i = 0; i < count; i++)
      add_arm(t, best[i]);
    for (int c = 0; c < DFGNN_REGRET_CHOICES; c++)
      if (r->choice[c])
        add_arm(t, r->choice[c]);
  }
  pthread_mutex_unlock(&t->ctx->lock);
  if (!t->arms)
    status =
        dfgnn__fail(DFGNN_ERROR_NOT_TUNED, "the problem is not measured on %s",
                    *graph->name ? graph->name : "this graph");
  return status;
}

static void drop_plans(retime *t) {
  for (size_t i = 0; i < t->arms; i++) {
    dfgnn_plan_destroy(t->plan[i]);
    t->plan[i] = NULL;
  }
}

/* Lists the variants to be timed, with their plans.  Families that turn out not
 * to support this graph are passed over, as when a program makes plans. */
static dfgnn_status plan_arms(dfgnn_regret *r, retime *t, dfgnn_graph *graph,
                              const dfgnn_problem *problem) {
  unsigned char *avoided = NULL;
  dfgnn_status status;
  for (;;) {
    size_t i = 0;
    status = select_arms(r, t, graph, problem, avoided);
    for (; i < t->arms && !status; i++)
      status = dfgnn_plan_create_forced(&t->plan[i], t->ctx, graph, problem,
                                        t->variant[i]->name);
    if (status != DFGNN_ERROR_UNSUPPORTED || i == 0)
      break;
    drop_plans(t);
    status = dfgnn__avoid_family(&avoided, t->ctx, t->variant[i - 1]->family);
    if (status)
      break;
  }
  free(avoided);
  return status;
}

dfgnn_status dfgnn__regret_live(dfgnn_regret *regret, dfgnn_context *ctx,
                                dfgnn_graph *graph,
                                const dfgnn_problem *problem, size_t samples,
                                uint64_t seed) {
  retime t = {.ctx = ctx};
  dfgnn_regret r = {.left_out_distance = -1};
  dfgnn_search search = {0};
  dfgnn_problem full;
  dfgnn_status status = dfgnn__problem_complete(&full, problem);
  if (status)
    return status;
  if (ctx->force_deterministic >= 0)
    full.deterministic = !!ctx->force_deterministic;
  t.cold = full.cold;
  status = plan_arms(&r, &t, graph, &full);
  if (!status)
    status = dfgnn__harness_create(&t.harness, ctx, graph, &full, seed);
  if (!status && !dfgnn__search_init(&search, t.arms))
    status = dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  search.seed = seed;
  search.max_samples = samples ? samples : 15;
  if (!status)
    status = time_again(&t, &search);
  if (!status) {
    const dfgnn_arm *best = &search.arm[search.best];
    r.best = t.variant[search.best];
    for (size_t k = 0; k < t.firsts; k++) {
      const dfgnn_variant *won = r.choice[DFGNN_REGRET_RACE];
      const double ratio = search.arm[t.first[k]].ratio.center;
      if (!won || ratio < search.arm[add_arm(&t, won)].ratio.center)
        r.choice[DFGNN_REGRET_RACE] = t.variant[t.first[k]];
    }
    double *ms = best->ms;
    r.best_ms = dfgnn__median(ms, best->count);
    for (int c = 0; c < DFGNN_REGRET_CHOICES; c++) {
      r.regret[c] = NAN;
      if (!r.choice[c])
        continue;
      size_t i = add_arm(&t, r.choice[c]);
      r.regret[c] =
          i == search.best
              ? 1
              : exp(dfgnn__search_compare(&search, i, search.best).center);
    }
    *regret = r;
  }
  dfgnn__search_free(&search);
  drop_plans(&t);
  dfgnn__harness_destroy(t.harness);
  return status;
}

/* ---- summary ------------------------------------------------------------ */

void dfgnn__regret_summarize(dfgnn_regret_summary *summary,
                             const dfgnn_regret *regrets, size_t count) {
  dfgnn_regret_summary s = {0};
  double spread = 0;
  for (size_t k = 0; k < count; k++) {
    const dfgnn_regret *r = &regrets[k];
    for (int c = 0; c < DFGNN_REGRET_CHOICES; c++) {
      if (!isfinite(r->regret[c]))
        continue;
      s.count[c]++;
      s.mean[c] += log(r->regret[c]);
      s.worst[c] = fmax(s.worst[c], r->regret[c]);
    }
    spread += log(r->spread);
    if (r->candidates > s.candidates)
      s.candidates = r->candidates;
  }
  for (int c = 0; c < DFGNN_REGRET_CHOICES; c++)
    s.mean[c] = s.count[c] ? exp(s.mean[c] / (double)s.count[c]) : NAN;
  s.spread = count ? exp(spread / (double)count) : NAN;
  *summary = s;
}
