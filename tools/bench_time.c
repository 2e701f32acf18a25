/* bench_time.c - interleaved timing of variants */
#include "lib/plan_race.h"
#include "tools/bench.h"
#include "tools/lookup.h"
#include "tuner/harness.h"
#include "tuner/statistics.h"
#include <fnmatch.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_ROUNDS 15
#define LEAST_ROUNDS 5
#define MAX_ROUNDS 1000

enum {
  ROLE_TUNED = 1,
  ROLE_RULE = 2,
  ROLE_PAPER = 4,
  ROLE_UNFUSED = 8,
  ROLE_SMMF_PMF = 16,
  ROLE_NAMED = 32
};

static const struct {
  int role;
  const char *name;
} roles[] = {{ROLE_TUNED, "tuned"},
             {ROLE_RULE, "rule"},
             {ROLE_PAPER, "paper"},
             {ROLE_UNFUSED, "unfused"},
             {ROLE_SMMF_PMF, "smmf-pmf"}};

typedef struct entry {
  const dfgnn_variant *variant;
  int role;  /* every role that the variant has */
  int shown; /* the roles that --variants asks for */
  dfgnn_plan *plan;
  dfgnn_source source;
  double distance;
  const char *status;
  char reason[256];
  double rel_error, prepare_ms;
  double *log_ms;  /* one per round; NaN: the sample was dropped */
  double *tainted; /* with disturbed samples; used if no other is left */
  int clean;       /* samples that were not disturbed */
  dfgnn_interval ms;
  double ratio, speedup_unfused;
  double payback_calls; /* calls that earn prepare_ms back */
} entry;

typedef struct session {
  bench *bench;
  const tool_case *each;
  tool_lookup lookup;
  dfgnn_harness *harness;
  entry *entries;
  size_t count;
  int rounds;
} session;

/* ---- variants ----------------------------------------------------------- */

static entry *add(session *s, const dfgnn_variant *variant, int role,
                  int shown) {
  if (!variant)
    return NULL;
  for (size_t i = 0; i < s->count; i++)
    if (s->entries[i].variant == variant) {
      s->entries[i].role |= role;
      s->entries[i].shown |= shown;
      return &s->entries[i];
    }
  entry *grown = realloc(s->entries, (s->count + 1) * sizeof *grown);
  if (!grown)
    return NULL;
  s->entries = grown;
  entry *e = &s->entries[s->count++];
  *e = (entry){.variant = variant,
               .role = role,
               .shown = shown,
               .source = DFGNN_SOURCE_FORCED,
               .distance = -1,
               .status = "ok",
               .rel_error = NAN,
               .prepare_ms = NAN};
  return e;
}

/* Makes the calls of a plan that races, until its winner is known. */
static dfgnn_status finish_race(session *s, const dfgnn_plan *plan) {
  const dfgnn_context *ctx = s->each->ctx;
  dfgnn_harness_call c;
  dfgnn_status status = DFGNN_OK;
  if (plan->race)
    status = dfgnn__harness_call(&c, s->harness, plan);
  for (int k = 0; plan->race && !status && k <= DFGNN_RACE_CALLS; k++) {
    status = dfgnn__harness_execute(&c, NULL);
    if (!status)
      status = ctx->backend->synchronize(ctx->device, NULL);
  }
  return status;
}

static dfgnn_status add_tuned(session *s, int shown) {
  dfgnn_plan *plan;
  DFGNN_TRY(
      dfgnn_plan_create(&plan, s->each->ctx, s->each->graph, s->each->problem));
  dfgnn_status status = finish_race(s, plan);
  if (status) {
    dfgnn_plan_destroy(plan);
    return status;
  }
  entry *e = add(s, dfgnn__race_current(plan)->variant, ROLE_TUNED, shown);
  if (e) {
    e->source = dfgnn_plan_source(plan);
    e->distance = plan->choice.distance;
  }
  dfgnn_plan_destroy(plan);
  return e ? DFGNN_OK : DFGNN_ERROR_MEMORY;
}

/* Adds the variants of a name or pattern; "all" means every variant that
 * applies. */
static int add_named(session *s, const char *pattern) {
  int found = 0, all = !strcmp(pattern, "all");
  for (size_t i = 0; i < dfgnn__variant_count(); i++) {
    const dfgnn_variant *v = dfgnn__variant(i);
    if (all ? dfgnn__variant_refusal(v, &s->lookup.query.setting) != NULL
            : fnmatch(pattern, v->name, 0) != 0)
      continue;
    if (!all && strpbrk(pattern, "*?[") &&
        strcmp(v->family->backend, s->each->info->backend))
      continue;
    add(s, v, ROLE_NAMED, ROLE_NAMED);
    found = 1;
  }
  return found;
}

/* Cuts the next name off a list of --variants.  Names are separated by commas,
 * as their parameters are: an item without '=', or with a '/', begins a name.
 */
static char *next_variant(char **rest) {
  char *item = *rest;
  if (!item || !*item)
    return NULL;
  char *end = item + strcspn(item, ",");
  while (*end && strchr(item, '/')) {
    size_t next = strcspn(end + 1, ",");
    if (!memchr(end + 1, '=', next) || memchr(end + 1, '/', next))
      break;
    end += 1 + next;
  }
  *rest = *end ? end + 1 : end;
  *end = 0;
  return item;
}

static dfgnn_status choose(session *s, int *usage) {
  const char *wanted = s->bench->settings->variants;
  char *copy = strdup(wanted ? wanted : "tuned,rule,paper,unfused,smmf-pmf");
  char *rest = copy, *item;
  int shown = 0;
  dfgnn_status status = copy ? DFGNN_OK : DFGNN_ERROR_MEMORY;
  while (!status && (item = next_variant(&rest))) {
    int role = 0;
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
      if (!strcmp(item, roles[i].name))
        role = roles[i].role;
    shown |= role;
    if (!role && !add_named(s, item)) {
      tool_usage("--variants: '%s' is no variant, expected all, tuned, rule, "
                 "paper, unfused, smmf-pmf or names of 'dfgnn-tune variants'",
                 item);
      *usage = 1;
      break;
    }
  }
  free(copy);
  const tool_lookup *l = &s->lookup;
  /* the rule's choice, to which ratios refer, and the baseline of speed-ups are
   * always timed */
  add(s, tool_lookup_rule(l), ROLE_RULE, shown & ROLE_RULE);
  add(s, tool_lookup_baseline(l), ROLE_UNFUSED, shown & ROLE_UNFUSED);
  if (shown & ROLE_PAPER)
    add(s, tool_lookup_paper(l, s->each->ctx->paper_capacity), ROLE_PAPER,
        ROLE_PAPER);
  if (shown & ROLE_SMMF_PMF) {
    add(s, tool_lookup_algorithm(l, "smmf"), ROLE_SMMF_PMF, ROLE_SMMF_PMF);
    add(s, tool_lookup_algorithm(l, "pmf"), ROLE_SMMF_PMF, ROLE_SMMF_PMF);
  }
  return status || *usage || !(shown & ROLE_TUNED) ? status
                                                   : add_tuned(s, ROLE_TUNED);
}

/* ---- running ------------------------------------------------------------ */

static void reject(entry *e, const char *status) {
  e->status = status;
  snprintf(e->reason, sizeof e->reason, "%s", dfgnn_last_error());
}

static void prepare(session *s, entry *e) {
  double began = tool_now();
  if (e->plan || strcmp(e->status, "ok"))
    return;
  dfgnn_status status =
      dfgnn_plan_create_forced(&e->plan, s->each->ctx, s->each->graph,
                               s->each->problem, e->variant->name);
  if (status) {
    e->plan = NULL;
    reject(e, status == DFGNN_ERROR_UNSUPPORTED ? "refused" : "failed");
    return;
  }
  e->prepare_ms = 1e3 * (tool_now() - began);
  if (s->bench->settings->no_check)
    return;
  status = dfgnn__harness_check(&e->rel_error, s->harness, e->plan);
  if (status)
    reject(e, status == DFGNN_ERROR_WRONG ? "wrong" : "failed");
}

static void sample(session *s, entry *e, int round) {
  const tool_settings *settings = s->bench->settings;
  dfgnn_context *ctx = s->each->ctx;
  dfgnn_sample result = {0};
  dfgnn_harness_call c;
  dfgnn_status status = dfgnn__harness_call(&c, s->harness, e->plan);
  for (int attempt = 0; attempt < 3 && !status; attempt++) {
    status = ctx->backend->time(ctx->device, &result, dfgnn__harness_execute,
                                &c, 0, settings->cold);
    if (!result.tainted)
      break;
  }
  if (status)
    reject(e, "failed");
  e->log_ms[round] = status || result.tainted ? NAN : log(result.ms);
  e->tainted[round] = status ? NAN : log(result.ms);
}

static uint64_t next_random(uint64_t *state) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return *state >> 33;
}

static void run_rounds(session *s) {
  const tool_settings *settings = s->bench->settings;
  double budget = settings->budget_s;
  double began = tool_now();
  int most = settings->rounds ? settings->rounds : DEFAULT_ROUNDS;
  most = most < MAX_ROUNDS ? most : MAX_ROUNDS;
  uint64_t state = settings->seed;
  size_t *order = malloc(s->count * sizeof *order);
  for (size_t i = 0; order && i < s->count; i++)
    order[i] = i;
  for (s->rounds = 0; order && s->rounds < most; s->rounds++) {
    if (tool_interrupted() || (!settings->rounds && s->rounds >= LEAST_ROUNDS &&
                               tool_now() - began > budget))
      break;
    for (size_t i = s->count; i > 1; i--) {
      size_t j = next_random(&state) % i, swap = order[i - 1];
      order[i - 1] = order[j];
      order[j] = swap;
    }
    for (size_t i = 0; i < s->count; i++) {
      entry *e = &s->entries[order[i]];
      if (!strcmp(e->status, "ok"))
        sample(s, e, s->rounds);
    }
    tool_progress(settings,
                  ((double)s->each->index + (double)s->rounds / most) /
                      (double)s->each->total,
                  -1, "%s", s->each->label);
  }
  free(order);
}

/* ---- figures ------------------------------------------------------------ */

/* Uses the disturbed samples if there are no others, as on machines that are
 * never quiet; returns the number of undisturbed ones. */
static int settle(const session *s, entry *e) {
  int clean = 0;
  for (int r = 0; r < s->rounds; r++)
    clean += isfinite(e->log_ms[r]) != 0;
  for (int r = 0; r < s->rounds && !clean; r++)
    e->log_ms[r] = e->tainted[r];
  return clean;
}

static double paired_ratio(const session *s, const entry *e,
                           const entry *base) {
  double ratio[MAX_ROUNDS];
  size_t n = 0;
  for (int r = 0; base && r < s->rounds; r++) {
    double x = e->log_ms[r] - base->log_ms[r];
    if (isfinite(x))
      ratio[n++] = x;
  }
  return n ? exp(dfgnn__median(ratio, n)) : NAN;
}

static const entry *of_role(const session *s, int role) {
  for (size_t i = 0; i < s->count; i++)
    if (s->entries[i].role & role && !strcmp(s->entries[i].status, "ok"))
      return &s->entries[i];
  return NULL;
}

static void evaluate(session *s) {
  const entry *rule = of_role(s, ROLE_RULE);
  const entry *unfused = of_role(s, ROLE_UNFUSED);
  entry *better = NULL;
  for (size_t i = 0; i < s->count; i++)
    s->entries[i].clean = settle(s, &s->entries[i]);
  for (size_t i = 0; i < s->count; i++) {
    entry *e = &s->entries[i];
    double ms[MAX_ROUNDS];
    size_t n = 0;
    for (int r = 0; r < s->rounds; r++)
      if (isfinite(e->log_ms[r]))
        ms[n++] = e->log_ms[r];
    dfgnn_interval x = {NAN, NAN, NAN};
    if (n)
      x = dfgnn__median_interval(ms, n);
    e->ms = (dfgnn_interval){exp(x.center), exp(x.low), exp(x.high)};
    e->ratio = paired_ratio(s, e, rule);
    e->speedup_unfused = 1 / paired_ratio(s, e, unfused);
    e->payback_calls = e->ratio < 1
                           ? e->prepare_ms / e->ms.center / (1 / e->ratio - 1)
                           : INFINITY;
    if (e->role & ROLE_SMMF_PMF &&
        (!better ||
         (isfinite(e->ms.center) && !(e->ms.center >= better->ms.center))))
      better = e;
  }
  /* only the better one of the paper's two kernels keeps the role */
  for (size_t i = 0; i < s->count; i++)
    if (&s->entries[i] != better) {
      s->entries[i].role &= ~ROLE_SMMF_PMF;
      s->entries[i].shown &= ~ROLE_SMMF_PMF;
    }
}

/* The bytes that forward keeps for backward and would not write otherwise. */
static int64_t saved_bytes(const session *s) {
  const dfgnn_problem *p = &s->lookup.problem;
  const dfgnn_matrix *m = &s->each->graph->matrix;
  const dfgnn_operator *forward = dfgnn__operator(p->op, DFGNN_PASS_FORWARD);
  const dfgnn_operator *backward = dfgnn__operator(p->op, DFGNN_PASS_BACKWARD);
  int64_t bytes = 0;
  for (const dfgnn_tensor *t = backward ? backward->tensors : NULL;
       t && t->name; t++) {
    int written = dfgnn__tensor_find(forward, t->name);
    if (t->role == DFGNN_ROLE_SAVED && written >= 0 &&
        forward->tensors[written].role == DFGNN_ROLE_OPTIONAL)
      bytes +=
          dfgnn__tensor_elements(t, p, m->destinations, m->sources, m->edges) *
          (int64_t)dfgnn__tensor_element_size(t, p);
  }
  return bytes;
}

static int64_t graph_bytes(const session *s, const entry *e) {
  size_t bytes = s->each->graph->owned_bytes;
  for (int i = 0; e->plan && i < DFGNN_MAX_VIEWS; i++)
    if (e->plan->views[i])
      bytes += e->plan->views[i]->bytes;
  return (int64_t)bytes;
}

static void put_floors(json_t *row, const session *s, const entry *e) {
  const dfgnn_problem *p = &s->lookup.problem;
  const dfgnn_matrix *m = &s->each->graph->matrix;
  double bandwidth = bench_bandwidth(s->each);
  double bytes =
      dfgnn__compulsory_bytes(p, m->destinations, m->sources, m->edges);
  double gather = dfgnn__gather_bytes(p, m->edges);
  double floor_ms = 1e3 * bytes / bandwidth;
  double gather_ms = 1e3 * gather / bandwidth;
  tool_put_count(row, "bytes", (int64_t)bytes);
  tool_put_number(row, "floor_ms", floor_ms);
  tool_put_number(row, "floor_share", floor_ms / e->ms.center);
  tool_put_count(row, "gather_bytes", (int64_t)gather);
  tool_put_number(row, "gather_floor_ms", gather_ms);
  tool_put_number(row, "gather_share", gather_ms / e->ms.center);
  tool_put(row, "binds", gather_ms > floor_ms ? "gather" : "compulsory");
}

static void put_entry(session *s, const entry *e) {
  char names[64] = "";
  json_t *row = tool_row(s->each->label, s->each->problem, s->each->info);
  const dfgnn_matrix *m = &s->each->graph->matrix;
  for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
    if (e->role & roles[i].role)
      snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s",
               *names ? "," : "", roles[i].name);
  tool_put(row, "role", names);
  bench_put_variant(row, e->variant, e->plan);
  tool_put(row, "source", dfgnn_name(DFGNN_NAMES_SOURCE, e->source));
  tool_put_number(row, "distance", e->distance);
  tool_put_number(row, "median_ms", e->ms.center);
  tool_put_number(row, "ci_low_ms", e->ms.low);
  tool_put_number(row, "ci_high_ms", e->ms.high);
  tool_put_count(row, "samples", s->rounds);
  tool_put_count(row, "clean_samples", e->clean);
  tool_put_number(row, "ratio", e->ratio);
  tool_put_number(row, "prepare_ms", e->prepare_ms);
  tool_put_number(row, "payback_calls", e->payback_calls);
  if (e->shown & ROLE_TUNED)
    tool_put(row, "answer", dfgnn_name(DFGNN_NAMES_SOURCE, e->source));
  tool_put_number(row, "rel_error", e->rel_error);
  tool_put(row, "status", e->status);
  tool_put(row, "reason", e->reason);
  tool_put_number(row, "speedup_unfused", e->speedup_unfused);
  put_floors(row, s, e);
  tool_put_count(row, "workspace_bytes",
                 e->plan ? (int64_t)dfgnn_plan_workspace(e->plan) : 0);
  tool_put_count(row, "saved_bytes", saved_bytes(s));
  tool_put_count(row, "graph_bytes", graph_bytes(s, e));
  tool_put_count(row, "destinations", m->destinations);
  tool_put_count(row, "sources", m->sources);
  tool_put_count(row, "edges", m->edges);
  tool_put_flag(row, "cold", s->bench->settings->cold);
  bench_put_environment(row, s->each);
  tool_put_number(row, "copy_gbps", bench_bandwidth(s->each) / 1e9);
  json_array_append_new(s->bench->rows, row);
  s->bench->wrong |= !strcmp(e->status, "wrong");
}

static int by_time(const void *a, const void *b) {
  const entry *x = a, *y = b;
  double s = isfinite(x->ms.center) ? x->ms.center : INFINITY;
  double t = isfinite(y->ms.center) ? y->ms.center : INFINITY;
  return s != t ? (s > t) - (s < t)
                : strcmp(x->variant->name, y->variant->name);
}

int bench_time(void *data, const tool_case *each) {
  bench *b = data;
  session s = {.bench = b, .each = each};
  int usage = 0;
  if (tool_interrupted())
    return TOOL_INTERRUPTED;
  dfgnn_status status = tool_lookup_case(&s.lookup, each);
  if (!status)
    status = dfgnn__harness_create(&s.harness, each->ctx, each->graph,
                                   each->problem, b->settings->seed);
  if (!status)
    status = choose(&s, &usage);
  if (status || usage)
    goto out;
  for (size_t i = 0; i < s.count; i++) {
    s.entries[i].log_ms = calloc(MAX_ROUNDS, sizeof(double));
    s.entries[i].tainted = calloc(MAX_ROUNDS, sizeof(double));
    if (!s.entries[i].log_ms || !s.entries[i].tainted)
      DFGNN_GO(DFGNN_ERROR_MEMORY);
    for (int r = 0; r < MAX_ROUNDS; r++)
      s.entries[i].log_ms[r] = s.entries[i].tainted[r] = NAN;
  }
  /* the rule's choice goes first: prepare_ms of the others counts only views
   * that it does not need */
  for (size_t i = 0; i < s.count; i++)
    if (s.entries[i].role & ROLE_RULE)
      prepare(&s, &s.entries[i]);
  for (size_t i = 0; i < s.count; i++)
    prepare(&s, &s.entries[i]);
  run_rounds(&s);
  tool_progress_end();
  evaluate(&s);
  qsort(s.entries, s.count, sizeof *s.entries, by_time);
  for (size_t i = 0; i < s.count; i++)
    if (s.entries[i].shown)
      put_entry(&s, &s.entries[i]);
out:
  if (status)
    bench_fail(b, each, status);
  for (size_t i = 0; i < s.count; i++) {
    dfgnn_plan_destroy(s.entries[i].plan);
    free(s.entries[i].log_ms);
    free(s.entries[i].tainted);
  }
  free(s.entries);
  if (s.harness)
    dfgnn__harness_destroy(s.harness);
  return usage ? TOOL_USAGE : tool_interrupted() ? TOOL_INTERRUPTED : TOOL_DONE;
}

const tool_column bench_time_columns[] = {
    {"graph", "GRAPH", TOOL_TEXT},
    {"op", "OP", TOOL_TEXT},
    {"program_name", "PROGRAM", TOOL_TEXT},
    {"dtype", "DTYPE", TOOL_TEXT},
    {"heads", "HEADS", TOOL_COUNT},
    {"dim", "DIM", TOOL_COUNT},
    TOOL_FLAG_COLUMNS,
    {"role", "ROLE", TOOL_TEXT},
    {"variant", "VARIANT", TOOL_VARIANT},
    {"source", "SOURCE", TOOL_TEXT},
    {"median_ms", "TIME", TOOL_MS},
    {"ratio", "/RULE", TOOL_FIGURE},
    {"speedup_unfused", "UNFUSED", TOOL_TIMES},
    {"bytes", "BYTES", TOOL_BYTES | TOOL_WIDE},
    {"floor_ms", "FLOOR", TOOL_MS},
    {"floor_share", "SHARE", TOOL_SHARE},
    {"gather_share", "GATHER", TOOL_SHARE | TOOL_WIDE},
    {"workspace_bytes", "WORKSPACE", TOOL_BYTES | TOOL_WIDE},
    {"rel_error", "ERROR", TOOL_FIGURE | TOOL_WIDE},
    {"status", "STATUS", TOOL_TEXT},
    {"reason", "REASON", TOOL_TEXT},
    {NULL, NULL, 0}};
