/* bench_regret.c - the regret of stored decisions, by graph and in all */
#include "tools/bench.h"
#include "tuner/regret.h"
#include <math.h>
#include <stdlib.h>

typedef struct regrets {
  bench base;
  dfgnn_regret *all;
  size_t count, unmeasured;
} regrets;

static void put_choice(json_t *row, dfgnn_regret_choice choice, double regret) {
  static const char *const keys[DFGNN_REGRET_CHOICES] = {
      "exact_regret", "left_out_regret", "model_regret",
      "race_regret",  "rule_regret",     "paper_regret"};
  tool_put_number(row, keys[choice], regret);
}

static int one(void *data, const tool_case *each) {
  regrets *r = data;
  const tool_settings *s = r->base.settings;
  dfgnn_regret x;
  if (tool_interrupted())
    return TOOL_INTERRUPTED;
  tool_progress(s, (double)each->index / (double)each->total, -1, "%s",
                each->label);
  dfgnn_status status = dfgnn__regret_live(
      &x, each->ctx, each->graph, each->problem, (size_t)s->rounds, s->seed);
  if (status) {
    r->unmeasured += status == DFGNN_ERROR_NOT_TUNED;
    bench_fail(&r->base, each, status);
    return TOOL_DONE;
  }
  dfgnn_regret *grown = realloc(r->all, (r->count + 1) * sizeof *grown);
  if (!grown)
    return tool_error("out of memory");
  r->all = grown;
  grown[r->count++] = x;
  json_t *row = tool_row(each->label, each->problem, each->info);
  for (int c = 0; c < DFGNN_REGRET_CHOICES; c++)
    put_choice(row, (dfgnn_regret_choice)c, x.regret[c]);
  tool_put(row, "best", x.best ? x.best->name : NULL);
  tool_put_number(row, "best_ms", x.best_ms);
  for (int c = 0; c < DFGNN_REGRET_CHOICES; c++) {
    static const char *const keys[DFGNN_REGRET_CHOICES] = {
        "exact", "left_out", "model", "race", "rule", "paper"};
    tool_put(row, keys[c], x.choice[c] ? x.choice[c]->name : NULL);
  }
  tool_put(row, "left_out_source",
           dfgnn_name(DFGNN_NAMES_SOURCE, x.left_out_source));
  tool_put_number(row, "left_out_distance", x.left_out_distance);
  tool_put_number(row, "spread", x.spread);
  tool_put_count(row, "candidates", (int64_t)x.candidates);
  bench_put_environment(row, each);
  json_array_append_new(r->base.rows, row);
  return TOOL_DONE;
}

/* Adds two rows that have "geometric mean" and "worst" as their graph. */
static void put_summary(regrets *r) {
  dfgnn_regret_summary sum;
  dfgnn__regret_summarize(&sum, r->all, r->count);
  json_t *mean = json_object(), *worst = json_object();
  tool_put(mean, "graph", "geometric mean");
  tool_put(worst, "graph", "worst");
  for (int c = 0; c < DFGNN_REGRET_CHOICES; c++) {
    put_choice(mean, (dfgnn_regret_choice)c, sum.mean[c]);
    put_choice(worst, (dfgnn_regret_choice)c, sum.worst[c]);
  }
  tool_put_number(mean, "spread", sum.spread);
  tool_put_count(mean, "candidates", (int64_t)sum.candidates);
  tool_put_count(mean, "problems", (int64_t)r->count);
  json_array_append_new(r->base.rows, mean);
  json_array_append_new(r->base.rows, worst);
}

int bench_regret(tool_settings *settings, const tool_graphs *graphs) {
  static const tool_column columns[] = {
      {"graph", "GRAPH", TOOL_TEXT},
      {"op", "OP", TOOL_TEXT},
      {"dtype", "DTYPE", TOOL_TEXT},
      {"heads", "HEADS", TOOL_COUNT},
      {"dim", "DIM", TOOL_COUNT},
      TOOL_FLAG_COLUMNS,
      {"exact_regret", "EXACT", TOOL_FIGURE},
      {"left_out_regret", "LEFT OUT", TOOL_FIGURE},
      {"left_out_source", "BY", TOOL_TEXT},
      {"model_regret", "MODEL", TOOL_FIGURE},
      {"race_regret", "RACE", TOOL_FIGURE},
      {"rule_regret", "RULE", TOOL_FIGURE},
      {"paper_regret", "PAPER", TOOL_FIGURE},
      {"best_ms", "BEST", TOOL_MS},
      {"spread", "SPREAD", TOOL_TIMES},
      {"candidates", "CANDIDATES", TOOL_COUNT},
      {NULL, NULL, 0}};
  regrets r = {.base = {.settings = settings, .rows = json_array()}};
  int status = tool_each(settings, graphs, one, &r);
  tool_progress_end(settings);
  if (status == TOOL_USAGE || !r.count) {
    if (!status && r.unmeasured)
      tool_error("nothing is measured; 'dfgnn-tune run GRAPH' measures");
    json_decref(r.base.rows);
    free(r.all);
    return status ? status : TOOL_FAILED;
  }
  put_summary(&r);
  int printed = tool_report(settings, r.base.rows, columns);
  free(r.all);
  return status ? status : r.base.failed ? r.base.failed : printed;
}
