/* bench_reorder.c - the gain of an order of the nodes, and when it pays back
 *
 * Each variant is timed on the graph as it is and reordered, in turns, so that
 * drift hits both alike. */
#include "dfgnn_graph.h"
#include "lib/base/error.h"
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
#define WARP 32

enum { BEFORE, AFTER, SIDES };

typedef struct side {
  dfgnn_graph *graph;
  dfgnn_harness *harness;
  dfgnn_signature signature;
} side;

typedef struct entry {
  const dfgnn_variant *variant; /* NULL: the choice for each side */
  dfgnn_plan *plan[SIDES];
  const char *status;
  char reason[256];
  double rel_error;
  double log_ms[SIDES][MAX_ROUNDS];
} entry;

typedef struct session {
  bench *bench;
  const tool_case *each;
  dfgnn_order order;
  double reorder_ms;
  dfgnn_csr *csr; /* reordered */
  side side[SIDES];
  entry *entries;
  size_t count;
  int rounds;
} session;

/* ---- variants ----------------------------------------------------------- */

/* Does the variant gather several edges side by side?  Else a whole warp, or
 * the vectors of a core, lie along the features of one edge. */
static int gathers_per_edge(const dfgnn_variant *v) {
  const dfgnn_family *f = v->family;
  int edges = !strcmp(f->algorithm, "pmf") || !strcmp(f->algorithm, "unfused");
  for (int k = 0; k < DFGNN_MAX_PARAMETERS && f->parameters[k].name; k++)
    if (!strcmp(f->parameters[k].name, "lanes"))
      edges = v->parameter[k] < WARP;
  return edges;
}

static dfgnn_status add(session *s, const dfgnn_variant *variant) {
  for (size_t i = 0; i < s->count; i++)
    if (s->entries[i].variant == variant)
      return DFGNN_OK;
  entry *grown = realloc(s->entries, (s->count + 1) * sizeof *grown);
  if (!grown)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  s->entries = grown;
  entry *e = &s->entries[s->count++];
  *e = (entry){.variant = variant, .status = "ok", .rel_error = NAN};
  for (int r = 0; r < MAX_ROUNDS; r++)
    e->log_ms[BEFORE][r] = e->log_ms[AFTER][r] = NAN;
  return DFGNN_OK;
}

static int applies(const session *s, const tool_lookup *lookup,
                   const dfgnn_variant *v) {
  return !strcmp(v->family->backend, s->each->info->backend) &&
         dfgnn__variant_offered(v) &&
         !dfgnn__variant_refusal(v, &lookup->query.setting);
}

/* Adds one variant of each algorithm and mapping: the fastest that is measured,
 * else the rule's, else the first. */
static dfgnn_status add_algorithms(session *s, const tool_lookup *lookup) {
  dfgnn_status status = DFGNN_OK;
  for (size_t i = 0; i < dfgnn__variant_count() && !status; i++) {
    const dfgnn_variant *best = dfgnn__variant(i);
    double least = tool_lookup_ratio(lookup, best);
    int first = applies(s, lookup, best);
    for (size_t k = 0; k < dfgnn__variant_count() && first; k++) {
      const dfgnn_variant *v = dfgnn__variant(k);
      if (!applies(s, lookup, v) ||
          gathers_per_edge(v) != gathers_per_edge(best) ||
          strcmp(v->family->algorithm, best->family->algorithm))
        continue;
      first = k >= i;
      double ratio = tool_lookup_ratio(lookup, v);
      if (ratio < least || (isnan(least) && isfinite(ratio))) {
        least = ratio;
        best = v;
      }
    }
    if (!first)
      continue;
    const dfgnn_variant *rule =
        tool_lookup_algorithm(lookup, best->family->algorithm);
    if (isnan(least) && rule &&
        gathers_per_edge(rule) == gathers_per_edge(best))
      best = rule;
    status = add(s, best);
  }
  return status;
}

static dfgnn_status add_pattern(session *s, const tool_lookup *lookup,
                                const char *pattern, int *usage) {
  dfgnn_status status = DFGNN_OK;
  size_t before = s->count;
  if (!strcmp(pattern, "tuned"))
    return add(s, NULL);
  for (size_t i = 0; i < dfgnn__variant_count() && !status; i++) {
    const dfgnn_variant *v = dfgnn__variant(i);
    if (applies(s, lookup, v) &&
        (!strcmp(pattern, "all") || !fnmatch(pattern, v->name, 0)))
      status = add(s, v);
  }
  if (!status && s->count == before) {
    tool_usage("--variants: '%s' is no variant that applies, expected all, "
               "tuned or names of 'dfgnn-tune variants'",
               pattern);
    *usage = 1;
  }
  return status;
}

static dfgnn_status choose(session *s, int *usage) {
  tool_lookup lookup;
  const char *wanted = s->bench->settings->variants;
  dfgnn_status status = tool_lookup_case(&lookup, s->each);
  if (status)
    return status;
  if (!wanted) {
    status = add(s, NULL);
    return status ? status : add_algorithms(s, &lookup);
  }
  char *copy = strdup(wanted), *rest = copy, *item;
  if (!copy)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  while (!status && !*usage && (item = bench_next_variant(&rest)))
    status = add_pattern(s, &lookup, item, usage);
  free(copy);
  return status;
}

/* ---- running ------------------------------------------------------------ */

static dfgnn_status open_side(session *s, side *side) {
  side->signature = (dfgnn_signature)DFGNN_SIGNATURE_INIT;
  dfgnn_status status = dfgnn_graph_signature(&side->signature, side->graph);
  if (!status)
    status = dfgnn__harness_create(&side->harness, s->each->ctx, side->graph,
                                   s->each->problem, s->bench->settings->seed);
  return status;
}

static dfgnn_status reorder(session *s) {
  const dfgnn_csr *csr = s->each->csr;
  size_t numbers = (size_t)csr->destinations + (size_t)csr->sources + 1;
  int64_t *rows = malloc(numbers * sizeof *rows);
  int64_t *columns = rows ? rows + csr->destinations : NULL;
  if (!rows)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  double began = tool_now();
  dfgnn_status status = dfgnn_csr_order(rows, columns, csr, s->order);
  if (!status)
    status = dfgnn_csr_permute(&s->csr, NULL, csr, rows, columns);
  s->reorder_ms = 1e3 * (tool_now() - began);
  if (!status)
    status = dfgnn_graph_create_csr(&s->side[AFTER].graph, s->each->ctx, s->csr,
                                    NULL);
  free(rows);
  s->side[BEFORE].graph = s->each->graph;
  if (!status)
    status = open_side(s, &s->side[BEFORE]);
  if (!status)
    status = open_side(s, &s->side[AFTER]);
  return status;
}

static void reject(entry *e, const char *status) {
  e->status = status;
  snprintf(e->reason, sizeof e->reason, "%s", dfgnn_last_error());
}

static void prepare(session *s, entry *e) {
  const tool_case *each = s->each;
  for (int k = 0; k < SIDES && !strcmp(e->status, "ok"); k++) {
    dfgnn_graph *graph = s->side[k].graph;
    dfgnn_status status =
        e->variant
            ? dfgnn_plan_create_forced(&e->plan[k], each->ctx, graph,
                                       each->problem, e->variant->name)
            : dfgnn_plan_create(&e->plan[k], each->ctx, graph, each->problem);
    if (status) {
      reject(e, status == DFGNN_ERROR_UNSUPPORTED ? "refused" : "failed");
    } else if (k == AFTER && !s->bench->settings->no_check) {
      status =
          dfgnn__harness_check(&e->rel_error, s->side[k].harness, e->plan[k]);
      if (status)
        reject(e, status == DFGNN_ERROR_WRONG ? "wrong" : "failed");
    }
  }
}

static void sample(session *s, entry *e, int k) {
  const tool_settings *settings = s->bench->settings;
  dfgnn_context *ctx = s->each->ctx;
  dfgnn_sample result = {0};
  dfgnn_harness_call c;
  dfgnn_status status = dfgnn__harness_call(&c, s->side[k].harness, e->plan[k]);
  for (int attempt = 0; attempt < 3 && !status; attempt++) {
    status = ctx->backend->time(ctx->device, &result, dfgnn__harness_execute,
                                &c, settings->repeats, settings->cold);
    if (!result.tainted)
      break;
  }
  if (status)
    reject(e, "failed");
  else
    e->log_ms[k][s->rounds] = log(result.ms);
}

static void run_rounds(session *s) {
  const tool_settings *settings = s->bench->settings;
  double budget = settings->budget_s > 0 ? settings->budget_s : 10;
  double began = tool_now();
  int most = settings->rounds ? settings->rounds : DEFAULT_ROUNDS;
  most = most < MAX_ROUNDS ? most : MAX_ROUNDS;
  for (s->rounds = 0; s->rounds < most && !tool_interrupted(); s->rounds++) {
    if (!settings->rounds && s->rounds >= LEAST_ROUNDS &&
        tool_now() - began > budget)
      break;
    for (size_t i = 0; i < s->count; i++)
      for (int turn = 0; turn < SIDES; turn++)
        if (!strcmp(s->entries[i].status, "ok"))
          sample(s, &s->entries[i], (turn + s->rounds) % SIDES);
    tool_progress(settings, (double)s->each->index / (double)s->each->total, -1,
                  "%s, %s", s->each->label,
                  dfgnn_name(DFGNN_NAMES_ORDER, s->order));
  }
}

/* ---- figures ------------------------------------------------------------ */

static dfgnn_interval middle(const double *log_ms, int rounds) {
  double ms[MAX_ROUNDS];
  size_t n = 0;
  for (int r = 0; r < rounds; r++)
    if (isfinite(log_ms[r]))
      ms[n++] = log_ms[r];
  dfgnn_interval x = {NAN, NAN, NAN};
  if (n)
    x = dfgnn__median_interval(ms, n);
  return (dfgnn_interval){exp(x.center), exp(x.low), exp(x.high)};
}

/* The ratio of the time after to the time before. */
static dfgnn_interval ratio_of(const session *s, const entry *e) {
  double log_ratio[MAX_ROUNDS];
  for (int r = 0; r < s->rounds; r++)
    log_ratio[r] = e->log_ms[AFTER][r] - e->log_ms[BEFORE][r];
  return middle(log_ratio, s->rounds);
}

/* Puts the number of calls that earn the reordering back, null if its gain is
 * not told apart from none. */
static void put_payback(json_t *row, const session *s, double base_ms,
                        dfgnn_interval ratio) {
  double saved = base_ms * (1 - ratio.center);
  if (ratio.high < 1)
    tool_put_count(row, "payback_calls", (int64_t)ceil(s->reorder_ms / saved));
  else
    tool_put_number(row, "payback_calls", NAN);
}

static void put_variants(json_t *row, const entry *e) {
  const dfgnn_variant *after = e->variant, *before = e->variant;
  if (e->plan[BEFORE])
    before = e->plan[BEFORE]->variant;
  if (e->plan[AFTER])
    after = e->plan[AFTER]->variant;
  tool_put(row, "variant", after ? after->name : "");
  tool_put(row, "base_variant", before ? before->name : "");
  tool_put(row, "mapping",
           !after                    ? ""
           : gathers_per_edge(after) ? "gather-per-edge"
                                     : "feature-parallel");
}

static void put_entry(session *s, const entry *e) {
  const tool_case *each = s->each;
  const dfgnn_signature *before = &s->side[BEFORE].signature;
  const dfgnn_signature *after = &s->side[AFTER].signature;
  json_t *row = tool_row(each->label, each->problem, each->info);
  dfgnn_interval base = middle(e->log_ms[BEFORE], s->rounds);
  dfgnn_interval ms = middle(e->log_ms[AFTER], s->rounds);
  dfgnn_interval ratio = ratio_of(s, e);
  tool_put(row, "reorder", dfgnn_name(DFGNN_NAMES_ORDER, s->order));
  tool_put_number(row, "reorder_ms", s->reorder_ms);
  tool_put(row, "role", e->variant ? "" : "tuned");
  put_variants(row, e);
  tool_put_number(row, "base_ms", base.center);
  tool_put_number(row, "median_ms", ms.center);
  tool_put_number(row, "ci_low_ms", ms.low);
  tool_put_number(row, "ci_high_ms", ms.high);
  tool_put_count(row, "samples", s->rounds);
  tool_put_number(row, "ratio", ratio.center);
  tool_put_number(row, "ratio_low", ratio.low);
  tool_put_number(row, "ratio_high", ratio.high);
  put_payback(row, s, base.center, ratio);
  tool_put_number(row, "rel_error", e->rel_error);
  tool_put(row, "status", e->status);
  tool_put(row, "reason", e->reason);
  tool_put_number(row, "reuse_before", before->reuse);
  tool_put_number(row, "reuse", after->reuse);
  tool_put_number(row, "locality_before", before->locality);
  tool_put_number(row, "locality", after->locality);
  tool_put_count(row, "destinations", after->destinations);
  tool_put_count(row, "sources", after->sources);
  tool_put_count(row, "edges", after->edges);
  tool_put_flag(row, "cold", s->bench->settings->cold);
  bench_put_environment(row, each);
  json_array_append_new(s->bench->rows, row);
  s->bench->wrong |= !strcmp(e->status, "wrong");
}

static void close_session(session *s) {
  for (size_t i = 0; i < s->count; i++)
    for (int k = 0; k < SIDES; k++)
      dfgnn_plan_destroy(s->entries[i].plan[k]);
  free(s->entries);
  for (int k = BEFORE; k <= AFTER; k++)
    if (s->side[k].harness)
      dfgnn__harness_destroy(s->side[k].harness);
  dfgnn_graph_destroy(s->side[AFTER].graph);
  dfgnn_csr_free(s->csr);
}

static int one_order(bench *b, const tool_case *each, dfgnn_order order) {
  session s = {.bench = b, .each = each, .order = order};
  int usage = 0;
  dfgnn_status status = choose(&s, &usage);
  if (!status && !usage)
    status = reorder(&s);
  if (status || usage)
    goto out;
  for (size_t i = 0; i < s.count; i++)
    prepare(&s, &s.entries[i]);
  run_rounds(&s);
  tool_progress_end(b->settings);
  for (size_t i = 0; i < s.count; i++)
    put_entry(&s, &s.entries[i]);
out:
  if (status)
    bench_fail(b, each, status);
  close_session(&s);
  return usage ? TOOL_USAGE : tool_interrupted() ? TOOL_INTERRUPTED : TOOL_DONE;
}

int bench_reorder(void *data, const tool_case *each) {
  bench *b = data;
  int status = TOOL_DONE;
  for (int o = 0; o < DFGNN_ORDER_COUNT && !status; o++)
    if (b->settings->orders >> o & 1)
      status = one_order(b, each, (dfgnn_order)o);
  return status;
}

const tool_column bench_reorder_columns[] = {
    {"graph", "GRAPH", TOOL_TEXT},
    {"op", "OP", TOOL_TEXT},
    {"dtype", "DTYPE", TOOL_TEXT},
    {"heads", "HEADS", TOOL_COUNT},
    {"dim", "DIM", TOOL_COUNT},
    TOOL_FLAG_COLUMNS,
    {"reorder", "ORDER", TOOL_TEXT},
    {"reorder_ms", "ORDERING", TOOL_MS},
    {"role", "ROLE", TOOL_TEXT},
    {"variant", "VARIANT", TOOL_TEXT},
    {"mapping", "MAPPING", TOOL_TEXT},
    {"base_ms", "BEFORE", TOOL_MS},
    {"median_ms", "AFTER", TOOL_MS},
    {"ratio", "RATIO", TOOL_FIGURE},
    {"payback_calls", "PAYBACK", TOOL_COUNT},
    {"rel_error", "ERROR", TOOL_FIGURE},
    {"status", "STATUS", TOOL_TEXT},
    {"reason", "REASON", TOOL_TEXT},
    {NULL, NULL, 0}};
