/* bench_regret.c - how much slower choices are than the best of all variants */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dfgnn_tune.h"
#include "lib/collect.h"
#include "lib/plan_race.h"
#include "select/portfolio.h"
#include "tools/bench.h"
#include "tools/cells.h"
#include "tools/fleet.h"
#include "tools/lookup.h"
#include "tools/survey_file.h"

enum {
  BEST = 10,      /* variants of the survey that are timed beside the choices */
  ROUNDS = 9,     /* by default */
  RACE_CALLS = 64 /* after which a race is decided, or never will be */
};

typedef enum way { CHOICE, RULE, TUNED_SHORT, TUNED, RACED, WAYS } way;

static const struct {
  const char *key, *heading;
  double budget_s; /* of its tuning */
} ways[WAYS] = {[CHOICE] = {"choice", "CHOICE", 0},
                [RULE] = {"rule", "RULE", 0},
                [TUNED_SHORT] = {"tuned_50ms", "AFTER 50 MS", 0.05},
                [TUNED] = {"tuned_300ms", "AFTER 300 MS", 0.3},
                [RACED] = {"raced", "RACED", 0}};

typedef struct regrets {
  bench base;
  tool_cells cells;
  tool_graphs *graphs;
  tool_survey_file file;
  dfgnn_context *ctx[WAYS]; /* with a store of its own, empty at first; NULL:
                             * the case's */
  char folder[64], arch[32];
  dfgnn_programs *programs; /* of all that will be timed */
  dfgnn_harness_pool *pool; /* on the device */
  double deadline;          /* infinity: none */
  size_t unsurveyed;
  tool_column columns[4 + WAYS + 1];
} regrets;

/* The cell of a case, and its block of the survey; NULL: there is none, or
 * another process has the graph. */
static const tool_block *block_of(const tool_cell **cell, regrets *r,
                                  const tool_case *each) {
  const tool_settings *s = r->base.settings;
  *cell = &r->cells.cell[each->index % r->cells.count];
  if (s->parts &&
      (int)(each->index / r->cells.count % (size_t)s->parts) != s->part)
    return NULL;
  const tool_block *block =
      tool_survey_find(&r->file, (*cell)->name, each->label);
  r->unsurveyed += !block;
  return block;
}

/* ---- choices ------------------------------------------------------------- */

typedef struct pick {
  const dfgnn_variant *variant; /* NULL: none */
  dfgnn_source source;
} pick;

static dfgnn_status chosen(pick *choice, dfgnn_context *ctx, dfgnn_graph *graph,
                           const dfgnn_problem *problem) {
  dfgnn_plan *plan;
  DFGNN_TRY(dfgnn_plan_create(&plan, ctx, graph, problem));
  choice->variant = dfgnn__race_current(plan)->variant;
  choice->source = dfgnn_plan_source(plan);
  dfgnn_plan_destroy(plan);
  return DFGNN_OK;
}

/* Calls a racing plan until its race is decided. */
static dfgnn_status race(dfgnn_context *ctx, dfgnn_graph *graph,
                         const dfgnn_problem *problem, uint64_t seed,
                         dfgnn_harness_pool *pool) {
  dfgnn_harness *harness = NULL;
  dfgnn_plan *plan = NULL;
  dfgnn_harness_call call;
  dfgnn_status status = dfgnn__harness_create_unchecked(&harness, ctx, graph,
                                                        problem, seed, pool);
  if (!status)
    status = dfgnn_plan_create(&plan, ctx, graph, problem);
  if (!status)
    status = dfgnn__harness_call(&call, harness, plan);
  for (int i = 0; i < RACE_CALLS && !status; i++) {
    status = dfgnn__harness_execute(&call, NULL);
    if (!status)
      status = ctx->backend->synchronize(ctx->device, NULL);
  }
  dfgnn_plan_destroy(plan);
  dfgnn__harness_destroy(harness);
  return status;
}

static dfgnn_status tune(dfgnn_context *ctx, dfgnn_graph *graph,
                         const dfgnn_problem *problem, double budget_s,
                         uint64_t seed) {
  dfgnn_tune_options options = DFGNN_TUNE_OPTIONS_INIT;
  options.budget_s = budget_s;
  options.seed = seed;
  return dfgnn_tune(NULL, ctx, graph, problem, &options);
}

/* Finds what runs after a tuning or a race, in a context that knew nothing of
 * the graph before. */
static dfgnn_status after(pick *choice, const regrets *r, way which,
                          const tool_case *each) {
  const uint64_t seed = r->base.settings->seed;
  dfgnn_context *ctx = r->ctx[which];
  dfgnn_problem problem = *each->problem;
  dfgnn_graph *graph;
  DFGNN_TRY(dfgnn_graph_create_csr(&graph, ctx, each->csr, NULL));
  if (which == RACED)
    problem.effort = DFGNN_EFFORT_RACE;
  dfgnn_status status =
      which == RACED ? race(ctx, graph, &problem, seed, r->pool)
                     : tune(ctx, graph, &problem, ways[which].budget_s, seed);
  if (!status)
    status = chosen(choice, ctx, graph, &problem);
  dfgnn_graph_destroy(graph);
  return status;
}

static dfgnn_status choose(pick *choice, const regrets *r, way which,
                           const tool_case *each) {
  tool_lookup lookup;
  if (r->ctx[which])
    return after(choice, r, which, each);
  if (which == CHOICE)
    return chosen(choice, each->ctx, each->graph, each->problem);
  dfgnn_status status = tool_lookup_case(&lookup, each);
  if (!status)
    *choice = (pick){tool_lookup_rule(&lookup), DFGNN_SOURCE_RULE};
  return status;
}

/* ---- times --------------------------------------------------------------- */

static size_t add(const dfgnn_variant **arm, size_t count,
                  const dfgnn_variant *variant) {
  size_t i = 0;
  while (i < count && arm[i] != variant)
    i++;
  if (i == count && variant)
    arm[count++] = variant;
  return count;
}

static double time_of(const dfgnn_survey *times, const dfgnn_variant *variant) {
  for (size_t i = 0; i < times->count; i++)
    if (times->variant[i] == variant)
      return times->result[i].ms;
  return NAN;
}

static size_t best_of(const dfgnn_survey *times) {
  size_t best = 0;
  for (size_t i = 1; i < times->count; i++)
    if (!(times->result[i].ms >= times->result[best].ms))
      best = i;
  return best;
}

/* The variant of a row of the survey; NULL if it is gone, or is another now. */
static const dfgnn_variant *variant_of(const tool_surveyed *row) {
  const dfgnn_variant *variant = dfgnn__variant_find(row->variant);
  return variant && variant->family->revision == row->revision ? variant : NULL;
}

/* The least time that the survey had of variants that are gone, as it would be
 * today by the fastest that is not; infinity: none of the best is gone. */
static double best_gone(size_t *gone, const dfgnn_survey *times,
                        const tool_block *block) {
  double least = INFINITY, scale = NAN;
  *gone = 0;
  for (size_t k = 0; k < block->count; k++) {
    const tool_surveyed *row = &block->row[k];
    const dfgnn_variant *variant = variant_of(row);
    if (variant && isnan(scale))
      scale = time_of(times, variant) / row->ms; /* NaN: it was not timed */
    if (!variant && k < BEST) {
      least = fmin(least, row->ms);
      ++*gone;
    }
  }
  return isnan(scale) ? INFINITY : least * scale;
}

static dfgnn_status judge(regrets *r, const tool_case *each,
                          const tool_cell *cell, const tool_block *block) {
  const dfgnn_variant *arm[WAYS + BEST];
  const tool_settings *settings = r->base.settings;
  pick choice[WAYS] = {{NULL, DFGNN_SOURCE_RULE}};
  size_t arms = 0, gone;
  dfgnn_survey times;
  for (int w = 0; w < WAYS; w++) {
    DFGNN_TRY(choose(&choice[w], r, (way)w, each));
    arms = add(arm, arms, choice[w].variant);
  }
  for (size_t k = 0; k < block->count && k < BEST; k++)
    arms = add(arm, arms, variant_of(&block->row[k]));
  DFGNN_TRY(dfgnn__survey_compare(
      &times, each->ctx, each->graph, each->problem, arm, arms,
      settings->rounds ? settings->rounds : ROUNDS, r->pool, settings->seed));
  const size_t best = best_of(&times);
  const double best_ms =
      fmin(times.result[best].ms, best_gone(&gone, &times, block));
  json_t *row = tool_row(each->label, each->problem, each->info);
  tool_put(row, "cell", cell->name);
  tool_put(row, "best", times.variant[best]->name);
  tool_put_number(row, "best_ms", best_ms);
  tool_put_count(row, "variants", (int64_t)block->count);
  tool_put_count(row, "gone", (int64_t)gone);
  tool_put(row, "source",
           dfgnn_name(DFGNN_NAMES_SOURCE, choice[CHOICE].source));
  for (int w = 0; w < WAYS; w++) {
    char key[32];
    tool_put(row, ways[w].key,
             choice[w].variant ? choice[w].variant->name : NULL);
    snprintf(key, sizeof key, "%s_regret", ways[w].key);
    tool_put_number(row, key, time_of(&times, choice[w].variant) / best_ms);
  }
  bench_put_environment(row, each);
  json_array_append_new(r->base.rows, row);
  dfgnn__survey_free(&times);
  return DFGNN_OK;
}

static int one(void *data, const tool_case *each) {
  regrets *r = data;
  const tool_cell *cell;
  const tool_block *block = block_of(&cell, r, each);
  if (tool_interrupted())
    return TOOL_INTERRUPTED;
  if (tool_now() >= r->deadline)
    return TOOL_TIME_LIMIT;
  tool_progress(r->base.settings, (double)each->index / (double)each->total, -1,
                "%s, %s", each->label, cell->name);
  dfgnn_status status = block ? judge(r, each, cell, block) : DFGNN_OK;
  if (status)
    bench_fail(&r->base, each, status);
  return TOOL_DONE;
}

/* ---- programs ------------------------------------------------------------ */

/* Lists the programs of what may be chosen and of the survey's best. */
static int list_programs(void *data, const tool_case *each) {
  regrets *r = data;
  const tool_cell *cell;
  const tool_block *block = block_of(&cell, r, each);
  const dfgnn_variant *variant[DFGNN_PORTFOLIO_MOST + BEST];
  dfgnn_problem problem;
  if (!each->ctx->backend->engine)
    return TOOL_DONE;
  snprintf(r->arch, sizeof r->arch, "%s", each->info->arch);
  if (!block || dfgnn__problem_complete(&problem, each->problem))
    return TOOL_DONE;
  const dfgnn_setting setting = dfgnn__setting(each->graph, &problem);
  size_t count =
      (size_t)dfgnn__portfolio(variant, DFGNN_PORTFOLIO_MOST, &setting, NULL);
  for (size_t k = 0; k < block->count && k < BEST; k++)
    count = add(variant, count, variant_of(&block->row[k]));
  for (size_t i = 0; i < count; i++)
    (void)dfgnn__collect_programs(r->programs, variant[i], &setting, NULL, 0);
  return TOOL_DONE;
}

/* Compiles on all cores what would else be compiled while choices are made.
 * Several processes begin at different programs, and find what the others have
 * compiled in the cache. */
static int compile_ahead(regrets *r) {
  const tool_settings *s = r->base.settings;
  dfgnn_engine *engine;
  dfgnn_programs *mine;
  if (dfgnn__programs_create(&r->programs) || dfgnn__programs_create(&mine))
    return tool_error("out of memory");
  int status = tool_each(s, r->graphs, list_programs, r);
  r->unsurveyed = 0;
  const size_t count = dfgnn__programs_count(r->programs);
  const size_t begin =
      s->parts ? count * (size_t)s->part / (size_t)s->parts : 0;
  for (size_t i = 0; i < count; i++)
    (void)dfgnn__programs_add(
        mine, dfgnn__programs_get(r->programs, (begin + i) % count));
  if (!status && count && !dfgnn__engine_offline(&engine, r->arch)) {
    (void)dfgnn__engine_prepare(engine, mine, 0, NULL);
    dfgnn__engine_close(engine);
  }
  dfgnn__programs_destroy(mine);
  dfgnn__programs_destroy(r->programs);
  return status;
}

/* ---- the table ----------------------------------------------------------- */

typedef struct regret_sum {
  double log_sum[WAYS], worst[WAYS];
  size_t count[WAYS], graphs, exact;
  int64_t variants;
} regret_sum;

static void take(regret_sum *sum, const json_t *row) {
  const json_int_t variants =
      json_integer_value(json_object_get(row, "variants"));
  const char *source = json_string_value(json_object_get(row, "source"));
  sum->graphs++;
  sum->exact += source && !strcmp(source, dfgnn_name(DFGNN_NAMES_SOURCE,
                                                     DFGNN_SOURCE_EXACT));
  sum->variants = variants > sum->variants ? variants : sum->variants;
  for (int w = 0; w < WAYS; w++) {
    char key[32];
    snprintf(key, sizeof key, "%s_regret", ways[w].key);
    const double ratio = json_number_value(json_object_get(row, key));
    if (ratio > 0) {
      sum->log_sum[w] += log(ratio);
      sum->worst[w] = fmax(sum->worst[w], ratio);
      sum->count[w]++;
    }
  }
}

/* Sums up the rows of a cell; NULL: those of all. */
static regret_sum sum_up(const json_t *rows, const char *cell) {
  regret_sum sum = {.graphs = 0};
  for (size_t i = 0; i < json_array_size(rows); i++) {
    const json_t *row = json_array_get(rows, i);
    const char *name = json_string_value(json_object_get(row, "cell"));
    if (!cell || (name && !strcmp(name, cell)))
      take(&sum, row);
  }
  return sum;
}

/* The row of a cell, of which a table has the texts and JSON the numbers. */
static void put_cell(json_t *rows, const char *name, const regret_sum *sum,
                     int texts) {
  if (!sum->graphs)
    return;
  json_t *row = json_object();
  tool_put(row, "cell", name);
  tool_put_count(row, "graphs", (int64_t)sum->graphs);
  tool_put_count(row, "variants", sum->variants);
  tool_put_count(row, "exact", (int64_t)sum->exact);
  for (int w = 0; w < WAYS; w++) {
    const double mean =
        sum->count[w] ? exp(sum->log_sum[w] / (double)sum->count[w]) : NAN;
    char text[48];
    snprintf(text, sizeof text, "%.3f (%.2f)", mean, sum->worst[w]);
    if (texts) {
      tool_put(row, ways[w].key, sum->count[w] ? text : NULL);
      continue;
    }
    snprintf(text, sizeof text, "%s_mean", ways[w].key);
    tool_put_number(row, text, mean);
    snprintf(text, sizeof text, "%s_worst", ways[w].key);
    tool_put_number(row, text, sum->worst[w]);
  }
  json_array_append_new(rows, row);
}

static int report(const regrets *r, json_t *judged) {
  const int json = r->base.settings->json;
  json_t *rows = json ? json_copy(judged) : json_array();
  for (size_t c = 0; c <= r->cells.count; c++) {
    const char *name = c < r->cells.count ? r->cells.cell[c].name : NULL;
    const regret_sum sum = sum_up(judged, name);
    put_cell(rows, name ? name : "all", &sum, !json);
  }
  return tool_report(r->base.settings, rows, r->columns);
}

/* ---- the mode ------------------------------------------------------------ */

/* Opens the contexts that tune and race, each with an empty store. */
static int open_contexts(regrets *r) {
  snprintf(r->folder, sizeof r->folder, "/tmp/dfgnn-regret.XXXXXX");
  if (!mkdtemp(r->folder))
    return tool_error("%s: cannot be made", r->folder);
  for (int w = TUNED_SHORT; w < WAYS; w++) {
    dfgnn_options options = DFGNN_OPTIONS_INIT;
    char store[128];
    snprintf(store, sizeof store, "%s/%s.db", r->folder, ways[w].key);
    options.device = r->base.settings->device;
    options.threads = r->base.settings->threads;
    options.store = store;
    dfgnn_status status = dfgnn_context_create(&r->ctx[w], &options);
    if (status)
      return tool_fail(status);
  }
  dfgnn_status status = dfgnn__harness_pool_create(&r->pool, r->ctx[RACED]);
  return status ? tool_fail(status) : TOOL_DONE;
}

static void close_contexts(regrets *r) {
  static const char *const ends[] = {"", "-wal", "-shm"};
  char store[160];
  dfgnn__harness_pool_destroy(r->pool);
  for (int w = TUNED_SHORT; w < WAYS; w++) {
    if (r->ctx[w])
      dfgnn_context_destroy(r->ctx[w]);
    for (size_t k = 0; k < sizeof ends / sizeof *ends; k++) {
      snprintf(store, sizeof store, "%s/%s.db%s", r->folder, ways[w].key,
               ends[k]);
      (void)unlink(store);
    }
  }
  (void)rmdir(r->folder);
}

/* Judges on settings->device; adds a row for each graph and cell. */
static int judge_all(void *data, json_t *rows) {
  regrets *r = data;
  r->base.rows = rows;
  int status = compile_ahead(r);
  if (!status)
    status = open_contexts(r);
  if (!status)
    status = tool_each(r->base.settings, r->graphs, one, r);
  close_contexts(r);
  tool_progress_end();
  if (r->unsurveyed)
    tool_note(r->base.settings,
              "%zu problems are not in %s, and are passed over", r->unsurveyed,
              r->base.settings->survey);
  return status ? status : r->base.failed;
}

/* Several devices share the graphs, with a process each. */
static int on_devices(regrets *r, tool_settings *settings, json_t *rows) {
  tool_member member[TOOL_FLEET_MAX];
  int count = 0;
  if (strcmp(settings->device, "all") && !strchr(settings->device, ','))
    return judge_all(r, rows);
  int status = tool_fleet_find(member, &count, settings->device);
  if (!status && count > 1)
    return tool_fleet_run(rows, settings, member, count, judge_all, r);
  if (!status)
    settings->device = member[0].device;
  return status ? status : judge_all(r, rows);
}

int bench_regret(tool_settings *settings, tool_graphs *graphs) {
  regrets r = {.base = {.settings = settings},
               .graphs = graphs,
               .deadline = INFINITY,
               .columns = {{"cell", "CELL", TOOL_TEXT},
                           {"graphs", "GRAPHS", TOOL_COUNT},
                           {"variants", "VARIANTS", TOOL_COUNT},
                           {"exact", "EXACT", TOOL_COUNT}}};
  for (int w = 0; w < WAYS; w++)
    r.columns[4 + w] = (tool_column){ways[w].key, ways[w].heading, TOOL_TEXT};
  int status = tool_columns_check(settings, r.columns);
  json_t *rows = json_array();
  if (!status && (!settings->cells || !settings->survey))
    status = tool_usage("--regret: found no %s, expected --cells FILE and "
                        "--survey FILE",
                        settings->cells ? "survey" : "table of cells");
  if (!status)
    status =
        tool_cells_read(&r.cells, settings, settings->cells, settings->only);
  if (!status)
    status = tool_survey_read(&r.file, settings->survey);
  if (!status)
    status = tool_cells_ask(graphs, &r.cells);
  if (settings->time_limit_s > 0)
    r.deadline = tool_now() + settings->time_limit_s;
  if (!status)
    status = on_devices(&r, settings, rows);
  if (status == TOOL_TIME_LIMIT)
    (void)tool_error("time limit reached; what was judged follows");
  const size_t judged = json_array_size(rows);
  const int printed = judged ? report(&r, rows) : TOOL_DONE;
  if (!status && !judged)
    status = tool_error("%s has none of the problems, expected what "
                        "'dfgnn-tune survey' writes",
                        settings->survey);
  json_decref(rows);
  tool_survey_free(&r.file);
  tool_cells_free(&r.cells);
  return status ? status : printed;
}
