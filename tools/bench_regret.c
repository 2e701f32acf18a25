/* bench_regret.c - how much slower choices are than the best of all variants */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dfgnn_tune.h"
#include "lib/plan_race.h"
#include "tools/bench.h"
#include "tools/cells.h"
#include "tools/lookup.h"
#include "tools/survey_file.h"

enum {
  BEST = 10,  /* variants of the survey that are timed beside the choices */
  ROUNDS = 9, /* by default */
  RACE_CALLS = 200 /* after which a race is decided, or never will be */
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

typedef struct regret_sum {
  double log_sum[WAYS], worst[WAYS];
  size_t count[WAYS], graphs, variants, exact;
} regret_sum;

typedef struct regrets {
  bench base;
  tool_cells cells;
  tool_survey_file file;
  regret_sum *sum;           /* [cells + 1]; the last: of all */
  dfgnn_context *ctx[WAYS];  /* with a store of its own, empty at first; NULL:
                              * the case's */
  char folder[64];
  size_t unsurveyed;
} regrets;

/* ---- choices ------------------------------------------------------------- */

typedef struct pick {
  const dfgnn_variant *variant; /* NULL: none */
  dfgnn_source source;
} pick;

static dfgnn_status chosen(pick *choice, dfgnn_context *ctx, dfgnn_graph *graph,
                           const dfgnn_problem *problem) {
  dfgnn_plan *plan;
  dfgnn_status status = dfgnn_plan_create(&plan, ctx, graph, problem);
  if (status)
    return status;
  choice->variant = dfgnn__race_current(plan)->variant;
  choice->source = dfgnn_plan_source(plan);
  dfgnn_plan_destroy(plan);
  return DFGNN_OK;
}

/* Calls a racing plan until its race is decided. */
static dfgnn_status race(dfgnn_context *ctx, dfgnn_graph *graph,
                         const dfgnn_problem *problem, uint64_t seed) {
  dfgnn_harness *harness = NULL;
  dfgnn_plan *plan = NULL;
  dfgnn_harness_call call;
  dfgnn_status status =
      dfgnn__harness_create(&harness, ctx, graph, problem, seed);
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
  dfgnn_status status = dfgnn_graph_create_csr(&graph, ctx, each->csr, NULL);
  if (status)
    return status;
  if (which == RACED)
    problem.effort = DFGNN_EFFORT_RACE;
  status = which == RACED
               ? race(ctx, graph, &problem, seed)
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

static void take(regret_sum *sum, const double ratio[WAYS], size_t variants,
                 int exact) {
  sum->graphs++;
  sum->exact += (size_t)exact;
  sum->variants = variants > sum->variants ? variants : sum->variants;
  for (int w = 0; w < WAYS; w++)
    if (isfinite(ratio[w])) {
      sum->log_sum[w] += log(ratio[w]);
      sum->worst[w] = fmax(sum->worst[w], ratio[w]);
      sum->count[w]++;
    }
}

static dfgnn_status judge(regrets *r, const tool_case *each, size_t cell,
                          const tool_block *block) {
  const dfgnn_variant *arm[WAYS + BEST];
  const tool_settings *settings = r->base.settings;
  pick choice[WAYS] = {{NULL, DFGNN_SOURCE_RULE}};
  double ratio[WAYS];
  size_t arms = 0, gone;
  dfgnn_survey times;
  for (int w = 0; w < WAYS; w++) {
    dfgnn_status status = choose(&choice[w], r, (way)w, each);
    if (status)
      return status;
    arms = add(arm, arms, choice[w].variant);
  }
  for (size_t k = 0; k < block->count && k < BEST; k++)
    arms = add(arm, arms, variant_of(&block->row[k]));
  dfgnn_status status = dfgnn__survey_compare(
      &times, each->ctx, each->graph, each->problem, arm, arms,
      settings->rounds ? settings->rounds : ROUNDS, settings->seed);
  if (status)
    return status;
  const size_t best = best_of(&times);
  const double best_ms =
      fmin(times.result[best].ms, best_gone(&gone, &times, block));
  json_t *row = tool_row(each->label, each->problem, each->info);
  tool_put(row, "cell", r->cells.cell[cell].name);
  tool_put(row, "best", times.variant[best]->name);
  tool_put_number(row, "best_ms", best_ms);
  tool_put_count(row, "variants", (int64_t)block->count);
  tool_put_count(row, "gone", (int64_t)gone);
  tool_put(row, "source",
           dfgnn_name(DFGNN_NAMES_SOURCE, choice[CHOICE].source));
  for (int w = 0; w < WAYS; w++) {
    char key[32];
    ratio[w] = time_of(&times, choice[w].variant) / best_ms;
    tool_put(row, ways[w].key,
             choice[w].variant ? choice[w].variant->name : NULL);
    snprintf(key, sizeof key, "%s_regret", ways[w].key);
    tool_put_number(row, key, ratio[w]);
  }
  bench_put_environment(row, each);
  json_array_append_new(r->base.rows, row);
  const int exact = choice[CHOICE].source == DFGNN_SOURCE_EXACT;
  take(&r->sum[cell], ratio, block->count, exact);
  take(&r->sum[r->cells.count], ratio, block->count, exact);
  dfgnn__survey_free(&times);
  return DFGNN_OK;
}

static int one(void *data, const tool_case *each) {
  regrets *r = data;
  const size_t cell = each->index % r->cells.count;
  const tool_block *block =
      tool_survey_find(&r->file, r->cells.cell[cell].name, each->label);
  if (tool_interrupted())
    return TOOL_INTERRUPTED;
  tool_progress(r->base.settings, (double)each->index / (double)each->total, -1,
                "%s, %s", each->label, r->cells.cell[cell].name);
  if (!block) {
    r->unsurveyed++;
    return TOOL_DONE;
  }
  dfgnn_status status = judge(r, each, cell, block);
  if (status)
    bench_fail(&r->base, each, status);
  return TOOL_DONE;
}

/* ---- the table ----------------------------------------------------------- */

/* The row of a cell, of which a table has the texts and JSON the numbers. */
static void put_cell(json_t *rows, const char *name, const regret_sum *sum,
                     int texts) {
  json_t *row = json_object();
  if (!sum->graphs) {
    json_decref(row);
    return;
  }
  tool_put(row, "cell", name);
  tool_put_count(row, "graphs", (int64_t)sum->graphs);
  tool_put_count(row, "variants", (int64_t)sum->variants);
  tool_put_count(row, "exact", (int64_t)sum->exact);
  for (int w = 0; w < WAYS; w++) {
    const double mean = sum->count[w] ? exp(sum->log_sum[w] /
                                            (double)sum->count[w])
                                      : NAN;
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

static int report(regrets *r) {
  tool_column columns[WAYS + 5] = {{"cell", "CELL", TOOL_TEXT},
                                   {"graphs", "GRAPHS", TOOL_COUNT},
                                   {"variants", "VARIANTS", TOOL_COUNT},
                                   {"exact", "EXACT", TOOL_COUNT}};
  const int json = r->base.settings->json;
  json_t *rows = json ? json_incref(r->base.rows) : json_array();
  for (int w = 0; w < WAYS; w++)
    columns[4 + w] = (tool_column){ways[w].key, ways[w].heading, TOOL_TEXT};
  for (size_t c = 0; c <= r->cells.count; c++)
    put_cell(rows, c < r->cells.count ? r->cells.cell[c].name : "all",
             &r->sum[c], !json);
  return tool_report(r->base.settings, rows, columns);
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
  return TOOL_DONE;
}

static void close_contexts(regrets *r) {
  static const char *const ends[] = {"", "-wal", "-shm"};
  char store[160];
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

/* Gives each graph the problems of the cells. */
static int ask_for_cells(regrets *r, tool_graphs *graphs) {
  for (size_t g = 0; g < graphs->count; g++) {
    tool_recorded *asked = &graphs->recorded[g];
    asked->problem = calloc(r->cells.count, sizeof *asked->problem);
    if (!asked->problem)
      return tool_error("out of memory");
    asked->count = r->cells.count;
    for (size_t c = 0; c < r->cells.count; c++)
      asked->problem[c] = r->cells.cell[c].problem;
  }
  return TOOL_DONE;
}

int bench_regret(tool_settings *settings, tool_graphs *graphs) {
  regrets r = {.base = {.settings = settings, .rows = json_array()}};
  int status = TOOL_DONE;
  if (!settings->cells || !settings->survey)
    status = tool_usage("--regret: found no %s, expected --cells FILE and "
                        "--survey FILE",
                        settings->cells ? "survey" : "table of cells");
  if (!status)
    status =
        tool_cells_read(&r.cells, settings, settings->cells, settings->only);
  if (!status)
    status = tool_survey_read(&r.file, settings->survey);
  if (!status && !(r.sum = calloc(r.cells.count + 1, sizeof *r.sum)))
    status = tool_error("out of memory");
  if (!status)
    status = ask_for_cells(&r, graphs);
  if (!status)
    status = open_contexts(&r);
  if (!status)
    status = tool_each(settings, graphs, one, &r);
  close_contexts(&r);
  tool_progress_end(settings);
  if (r.unsurveyed && !settings->quiet)
    fprintf(stderr, "%s: %zu problems are not in %s, and are passed over\n",
            tool_name, r.unsurveyed, settings->survey);
  const size_t judged = r.sum ? r.sum[r.cells.count].graphs : 0;
  const int printed = judged ? report(&r) : TOOL_FAILED;
  if (!status && !judged && !r.base.failed)
    status = tool_error("%s has none of the problems, expected what "
                        "'dfgnn-tune survey' writes",
                        settings->survey);
  json_decref(r.base.rows);
  tool_survey_free(&r.file);
  tool_cells_free(&r.cells);
  free(r.sum);
  return status ? status : r.base.failed ? r.base.failed : printed;
}
