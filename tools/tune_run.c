/* tune_run.c - dfgnn-tune run: measures variants and stores the measurements */
#include "tools/fleet.h"
#include "tools/job.h"
#include "tools/lookup.h"
#include "tools/recorded.h"
#include "tools/report.h"
#include "tools/tune.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct run {
  const tool_settings *settings;
  const char *job_hash;
  json_t *rows;
  double began, deadline; /* infinity: none */
  double estimate_s;
  const tool_case *current;
  const dfgnn_context *writable; /* the store of this context can be written */
  int wrong, failed;
  int problems, noisy; /* measured, and those that rest on noisy rows */
} run;

/* The stored variants of a problem that are worth measuring again. */
static int count_doubtful(const dfgnn_decision *decision) {
  int count = 0;
  for (size_t i = 0; decision && i < decision->count; i++)
    count += dfgnn__ranked_doubtful(decision, i);
  return count;
}

static int stop(void *data) {
  const run *r = data;
  return tool_interrupted() || tool_now() >= r->deadline;
}

static void progress(void *data, double done, const char *message) {
  const run *r = data;
  const tool_case *c = r->current;
  char text[128];
  double whole = ((double)c->index + done) / (double)c->total;
  double spent = tool_now() - r->began;
  tool_problem_text(text, sizeof text, c->problem);
  tool_progress(
      r->settings, whole,
      whole > 0 ? fmin(spent * (1 - whole) / whole, r->deadline - tool_now())
                : -1,
      "%s, %s: %s", c->label, text, message ? message : "");
}

/* Puts the times over the winner's of the rule's choice, the paper's choice,
 * its two kernels and the unfused variant. */
static void put_comparisons(json_t *row, const tool_case *each) {
  tool_lookup lookup;
  if (tool_lookup_case(&lookup, each))
    return;
  const dfgnn_variant *rule = tool_lookup_rule(&lookup);
  const dfgnn_variant *paper =
      tool_lookup_paper(&lookup, each->ctx->paper_capacity);
  const dfgnn_variant *unfused = tool_lookup_baseline(&lookup);
  tool_put(row, "rule", rule ? rule->name : NULL);
  tool_put_number(row, "speedup_rule", tool_lookup_ratio(&lookup, rule));
  tool_put(row, "paper", paper ? paper->name : NULL);
  tool_put_number(row, "speedup_paper", tool_lookup_ratio(&lookup, paper));
  tool_put_number(row, "speedup_smmf_pmf", tool_lookup_smmf_pmf(&lookup));
  tool_put_number(row, "speedup_unfused", tool_lookup_ratio(&lookup, unfused));
}

/* Puts how far the measurements of the problem can be trusted. */
static void put_noise(run *r, json_t *row, const tool_case *each) {
  tool_lookup lookup;
  if (tool_lookup_case(&lookup, each) || !lookup.decision)
    return;
  const dfgnn_ranked *winner = &lookup.decision->ranked[0];
  const int noisy = count_doubtful(lookup.decision);
  tool_put_count(row, "samples", winner->samples);
  tool_put(row, "noise", dfgnn__noise_name(winner->noise));
  tool_put_count(row, "noisy", noisy);
  r->problems++;
  r->noisy += noisy > 0;
}

/* The source of the choice that a call would get before this run. */
static const char *source_before(const tool_case *each) {
  tool_lookup lookup;
  dfgnn_choice choice = {0};
  if (tool_lookup_case(&lookup, each))
    return NULL;
  dfgnn__select(&choice, lookup.table, &lookup.query);
  return dfgnn_name(DFGNN_NAMES_SOURCE, choice.source);
}

static void put_report(run *r, const tool_case *each, const char *before,
                       const dfgnn_tune_report *report) {
  json_t *row = tool_row(each->label, each->problem, each->info);
  dfgnn_plan *plan;
  tool_put(row, "before", before);
  tool_put(row, "variant", report->variant);
  if (!dfgnn_plan_create(&plan, each->ctx, each->graph, each->problem)) {
    tool_put(row, "source",
             dfgnn_name(DFGNN_NAMES_SOURCE, dfgnn_plan_source(plan)));
    dfgnn_plan_destroy(plan);
  }
  tool_put_number(row, "median_ms", report->median_ms);
  tool_put(row, "anchor", report->anchor);
  tool_put_number(row, "ratio", report->ratio);
  put_comparisons(row, each);
  put_noise(r, row, each);
  tool_put_count(row, "candidates", report->candidates);
  tool_put_count(row, "measured", report->measured);
  tool_put_count(row, "resumed", report->resumed);
  tool_put_count(row, "wrong", report->wrong);
  tool_put_count(row, "failed", report->failed);
  tool_put_flag(row, "separated", report->separated);
  tool_put_flag(row, "kept", report->kept);
  tool_put_number(row, "seconds", report->seconds);
  tool_put_number(row, "payback_calls", report->payback_calls);
  json_array_append_new(r->rows, row);
}

/* Fails before measuring if the store cannot be written. */
static int check_store(run *r, const tool_case *each) {
  const char *path = dfgnn__context_store(each->ctx);
  dfgnn_store *store;
  if (r->writable == each->ctx)
    return TOOL_DONE;
  if (!path)
    return tool_usage("no store to write, expected --store");
  dfgnn_status status = dfgnn__store_open(&store, path, DFGNN_STORE_WRITE);
  if (status)
    return tool_fail(status);
  dfgnn__store_close(store);
  r->writable = each->ctx;
  return TOOL_DONE;
}

/* Neighbouring problems go to different shards, so that each has big and small
 * graphs. */
static int wanted(void *data, size_t index) {
  const tool_settings *s = ((const run *)data)->settings;
  if (s->shards) {
    if (index % (size_t)s->shards != (size_t)s->shard - 1)
      return 0;
    index /= (size_t)s->shards;
  }
  return !s->parts || index % (size_t)s->parts == (size_t)s->part;
}

/* --again noisy leaves problems alone that have no noisy rows. */
static int is_left_alone(const tool_settings *s, const tool_case *each) {
  tool_lookup lookup;
  if (s->remeasure != DFGNN_REMEASURE_NOISY)
    return 0;
  return tool_lookup_case(&lookup, each) || !count_doubtful(lookup.decision);
}

static int tune(void *data, const tool_case *each) {
  run *r = data;
  const tool_settings *s = r->settings;
  dfgnn_tune_options options = DFGNN_TUNE_OPTIONS_INIT;
  dfgnn_tune_report report = DFGNN_TUNE_REPORT_INIT;
  char tool[64];
  if (!wanted(r, each->index))
    return TOOL_DONE;
  if (tool_interrupted())
    return TOOL_INTERRUPTED;
  if (tool_now() >= r->deadline)
    return TOOL_TIME_LIMIT;
  int refused = check_store(r, each);
  if (refused)
    return refused;
  if (is_left_alone(s, each))
    return TOOL_DONE;
  snprintf(tool, sizeof tool, "dfgnn-tune %s", dfgnn_version());
  r->current = each;
  options.budget_s = s->budget_s;
  options.seed = s->seed;
  options.exhaustive = s->exhaustive;
  options.remeasure = s->remeasure;
  options.tool = tool;
  options.job_hash = r->job_hash;
  options.progress = progress;
  options.stop = stop;
  options.data = r;
  progress(r, 0, "preparing");
  const char *before = source_before(each);
  dfgnn_status status =
      dfgnn_tune(&report, each->ctx, each->graph, each->problem, &options);
  tool_progress_end();
  r->wrong += report.wrong;
  if (!status || (status == DFGNN_ERROR_INTERRUPTED && *report.variant))
    put_report(r, each, before, &report);
  if ((!status || *report.variant) && !report.kept) {
    tool_error("%s: the measurements could not be stored", each->label);
    return TOOL_STORE;
  }
  if (status == DFGNN_ERROR_INTERRUPTED)
    return tool_interrupted() ? TOOL_INTERRUPTED : TOOL_TIME_LIMIT;
  if (!status)
    return TOOL_DONE;
  char text[128];
  tool_problem_text(text, sizeof text, each->problem);
  (void)tool_error("%s: %s: %s", each->label, text, dfgnn_last_error());
  r->failed++;
  return status == DFGNN_ERROR_STORE ? TOOL_STORE : TOOL_DONE;
}

static int estimate(void *data, const tool_case *each) {
  run *r = data;
  tool_lookup lookup;
  if (!wanted(r, each->index))
    return TOOL_DONE;
  dfgnn_status status = tool_lookup_case(&lookup, each);
  if (status) {
    r->failed++;
    tool_fail(status);
    return TOOL_DONE;
  }
  size_t measured, candidates = tool_lookup_candidates(&measured, &lookup,
                                                       r->settings->exhaustive);
  const int again = r->settings->remeasure;
  size_t left = again == DFGNN_REMEASURE_ALL ? candidates
                : again == DFGNN_REMEASURE_NOISY
                    ? (size_t)count_doubtful(lookup.decision)
                    : candidates - measured;
  double seconds =
      candidates ? r->settings->budget_s * (double)left / (double)candidates
                 : 0;
  json_t *row = tool_row(each->label, each->problem, each->info);
  tool_put_count(row, "candidates", (int64_t)candidates);
  tool_put_count(row, "measured", (int64_t)measured);
  tool_put_number(row, "estimate_s", seconds);
  json_array_append_new(r->rows, row);
  r->estimate_s += seconds;
  return TOOL_DONE;
}

static const tool_column columns[] = {
    TOOL_PROBLEM_COLUMNS,
    {"before", "BEFORE", TOOL_TEXT},
    {"variant", "VARIANT", TOOL_VARIANT},
    {"median_ms", "TIME", TOOL_MS},
    {"ratio", "/RULE", TOOL_FIGURE},
    {"speedup_paper", "OVER PAPER", TOOL_TIMES | TOOL_WIDE},
    {"speedup_smmf_pmf", "SMMF/PMF", TOOL_TIMES | TOOL_WIDE},
    {"speedup_unfused", "UNFUSED", TOOL_TIMES},
    {"measured", "MEASURED", TOOL_COUNT},
    {"resumed", "STORED", TOOL_COUNT | TOOL_WIDE},
    {"seconds", "TUNING", TOOL_SECONDS},
    {"payback_calls", "PAID BACK AFTER", TOOL_FIGURE | TOOL_WIDE},
    {NULL, NULL, 0}};

static const tool_column dry_columns[] = {
    TOOL_PROBLEM_COLUMNS,
    {"backend", "BACKEND", TOOL_TEXT},
    {"candidates", "CANDIDATES", TOOL_COUNT},
    {"measured", "STORED", TOOL_COUNT},
    {"estimate_s", "AT MOST", TOOL_SECONDS},
    {NULL, NULL, 0}};

typedef struct work {
  tool_settings *settings;
  const tool_graphs *graphs;
  const char *job_hash;
  double began;
} work;

/* Measures on settings->device; its rows are added to `rows`. */
static int measure(void *data, json_t *rows) {
  const work *w = data;
  const tool_settings *s = w->settings;
  run r = {.settings = s,
           .job_hash = w->job_hash,
           .rows = rows,
           .began = w->began,
           .deadline = INFINITY};
  if (s->time_limit_s > 0)
    r.deadline = r.began + s->time_limit_s;
  int status =
      tool_each_wanted(s, w->graphs, wanted, s->dry_run ? estimate : tune, &r);
  if (status == TOOL_USAGE)
    return status;
  if (s->dry_run)
    tool_note(s, "at most %.0f s", fmin(r.estimate_s, r.deadline - r.began));
  if (r.noisy)
    tool_note(s,
              "%d of %d problems rest on noisy measurements; the same "
              "command with --again noisy makes those again",
              r.noisy, r.problems);
  if (status == TOOL_TIME_LIMIT)
    (void)tool_error("time limit reached; the same command resumes");
  if (status)
    return status;
  return r.wrong ? TOOL_WRONG : r.failed ? TOOL_FAILED : TOOL_DONE;
}

/* Several devices have a process each, so that they do not wait for each other.
 */
static int all(tool_settings *settings, const tool_graphs *graphs,
               const char *job_hash) {
  work w = {settings, graphs, job_hash, tool_now()};
  tool_member member[TOOL_FLEET_MAX];
  const tool_column *table = settings->dry_run ? dry_columns : columns;
  int count = 0, status = tool_columns_check(settings, table);
  if (!status &&
      (!strcmp(settings->device, "all") || strchr(settings->device, ',')))
    status = tool_fleet_find(member, &count, settings->device);
  if (status)
    return status;
  json_t *rows = json_array();
  if (count == 1)
    settings->device = member[0].device;
  status = count > 1
               ? tool_fleet_run(rows, settings, member, count, measure, &w)
               : measure(&w, rows);
  if (status == TOOL_USAGE) {
    json_decref(rows);
    return status;
  }
  tool_say_sources(settings, rows, "before", "choices before this run");
  int printed = tool_report(settings, rows, table);
  return status ? status : printed;
}

static int command(tool_settings *settings, int count, char **operands) {
  tool_graphs graphs = {0};
  char job_hash[33] = "";
  dfgnn__makes_stores = 1;
  int status = tool_recorded_check(settings, count);
  if (!status)
    status = tool_graphs_all(&graphs, count, operands);
  if (!status && settings->recorded)
    status = tool_recorded_read(&graphs, settings, settings->recorded);
  if (!status && settings->job)
    status = tool_job_read(settings, &graphs, job_hash, settings->job);
  if (!status && !graphs.count)
    status = tool_usage("no graph, expected GRAPH operands, a job file or "
                        "--recorded");
  tool_catch_interrupts();
  if (settings->anonymous)
    setenv("DFGNN_HOST", "", 1);
  if (!status)
    status = all(settings, &graphs, *job_hash ? job_hash : NULL);
  tool_graphs_free(&graphs);
  return status;
}

const tool_command tune_run = {
    .name = "run",
    .operands = "[GRAPH...]",
    .summary = "Measure variants and store the figures",
    .text =
        "The members of a problem's portfolio, and variants of families that "
        "no portfolio knows, are checked against a float64 reference, then "
        "timed in interleaved rounds beside the choice of the rule, their "
        "anchor; with --exhaustive all variants are. Each finished measurement "
        "is stored at once: measurements "
        "that are stored are not made again, an interrupted run loses "
        "nothing, and the same command resumes. With several devices, or "
        "--device all for all GPUs, each has a process; devices of one model "
        "share the problems; --shard shares them among hosts. --recorded "
        "measures "
        "what programs met that ran with DFGNN_RECORD, or what a step of a "
        "PyTorch model needs.\n"
        "\n"
        "While other work keeps the device from being quiet, samples wait for "
        "up to a fifth of the budget; what is disturbed all the same is marked "
        "and replaces no choice. --again noisy measures that again, later.",
    .options = HAS_PROBLEM | HAS(THREADS) | HAS(STORE) | HAS(BUDGET) |
               HAS(TIME_LIMIT) | HAS(SEED) | HAS(JOB) | HAS(RECORDED) |
               HAS(SHARD) | HAS(DRY_RUN) | HAS(EXHAUSTIVE) | HAS(AGAIN) |
               HAS(ANONYMOUS) | HAS_TABLE,
    .main = command};
