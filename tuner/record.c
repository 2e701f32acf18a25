/* record.c - writes rows of trials to the store, or keeps them in the context
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/error.h"
#include "lib/describe.h"
#include "tuner/record.h"

/* The machine that measures, or the alias that DFGNN_HOST gives it. */
static const char *host_name(void) {
  static _Thread_local char name[256];
  const char *alias = getenv("DFGNN_HOST");
  if (alias)
    return alias;
  if (gethostname(name, sizeof name))
    return "";
  name[sizeof name - 1] = 0;
  return name;
}

void dfgnn__record_describe(dfgnn_recorder *r, const dfgnn_subject *subject,
                            const dfgnn_tune_options *options) {
  r->ctx = subject->ctx;
  dfgnn__describe(&r->row, r->ctx, subject->graph, &subject->problem);
  dfgnn__name_run(r->run);
  snprintf(r->protocol, sizeof r->protocol, "%s" DFGNN_PARTIAL,
           r->row.protocol);
  r->row.run = r->run;
  r->row.tool = options->tool;
  r->row.host = host_name();
  r->row.job = options->job_hash;
  r->row.seed = options->seed;
  r->budget_s = options->budget_s;
}

/* From now on rows outlive the session, but not the context. */
static void give_up_store(dfgnn_recorder *r, dfgnn_log_level level,
                          const char *why) {
  if (!atomic_exchange(&r->ctx->told, 1))
    dfgnn__log(r->ctx, level,
               "measurements answer until the context ends, and cannot be "
               "kept: %s",
               why);
  (void)dfgnn__record_end(r);
}

/* A shorter budget is left to the variants. */
#define BANDWIDTH_LEAST_S 10

/* The bandwidth of a large copy, measured once in a context; 0 if it is not
 * known.  On a GPU it would take memory that the program may need. */
static double copy_gbps(dfgnn_context *ctx) {
  pthread_mutex_lock(&ctx->lock);
  double rate = ctx->copy_gbps;
  pthread_mutex_unlock(&ctx->lock);
  if (rate || strcmp(ctx->info.backend, "cpu") ||
      ctx->backend->copy_bandwidth(ctx->device, &rate))
    return rate;
  rate *= 1e-9;
  pthread_mutex_lock(&ctx->lock);
  ctx->copy_gbps = rate;
  pthread_mutex_unlock(&ctx->lock);
  return rate;
}

void dfgnn__record_begin(dfgnn_recorder *r) {
  const char *path = dfgnn__context_store(r->ctx);
  if (!path)
    give_up_store(r, DFGNN_LOG_INFO, "the context has no store");
  else if (dfgnn__context_open_store(&r->store, &r->version, r->ctx)) {
    r->store = NULL;
    give_up_store(r, r->unasked ? DFGNN_LOG_INFO : DFGNN_LOG_WARN,
                  dfgnn_last_error());
  } else if (!(r->budget_s > 0 && r->budget_s < BANDWIDTH_LEAST_S)) {
    r->row.copy_gbps = copy_gbps(r->ctx);
  }
}

int dfgnn__record_end(dfgnn_recorder *r) {
  const int known =
      !r->store || dfgnn__context_close_store(r->ctx, r->store, r->version);
  r->store = NULL;
  return known;
}

static dfgnn_status fill_figures(dfgnn_measurement *m, const dfgnn_arm *arm) {
  double *ms = malloc(arm->count * sizeof *ms);
  if (!ms)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory for %zu samples",
                       arm->count);
  memcpy(ms, arm->ms, arm->count * sizeof *ms);
  const dfgnn_interval median = dfgnn__median_interval(ms, arm->count);
  free(ms);
  m->median_ms = median.center;
  m->ci_low_ms = isnan(median.low) ? median.center : median.low;
  m->ci_high_ms = isnan(median.high) ? median.center : median.high;
  m->ratio = exp(arm->ratio.center);
  m->ratio_low = exp(arm->ratio.low);
  m->ratio_high = exp(arm->ratio.high);
  if (arm->count == 1) { /* which says nothing of its own noise */
    m->ratio_low = fmin(m->ratio_low, m->ratio / DFGNN_LOUD_FACTOR);
    m->ratio_high = fmax(m->ratio_high, m->ratio * DFGNN_LOUD_FACTOR);
  }
  m->samples = (int64_t)arm->count;
  return DFGNN_OK;
}

/* Notes in a row how many samples of a trial were disturbed, and by what. */
static void fill_noise(dfgnn_measurement *m, dfgnn_trial *trial,
                       const dfgnn_arm *arm, const dfgnn_gate *gate) {
  m->disturbed = (int64_t)(arm->doubted ? arm->count : arm->disturbed);
  if (arm->doubted)
    snprintf(trial->noise, sizeof trial->noise,
             "%.1f times as fast as the anchor, which nobody expected, and not "
             "measured again",
             exp(-arm->ratio.center));
  else if (m->disturbed)
    snprintf(trial->noise, sizeof trial->noise, "%s",
             gate && *gate->seen ? gate->seen : "not known");
  m->noise = trial->noise;
}

static void lose(dfgnn_recorder *r) {
  r->lost = 1;
  dfgnn__log(r->ctx, DFGNN_LOG_WARN, "a measurement is lost: %s",
             dfgnn_last_error());
}

void dfgnn__record_trial(dfgnn_recorder *r, dfgnn_trial *trial,
                         const dfgnn_arm *arm, const dfgnn_variant *anchor,
                         int partial) {
  dfgnn_measurement m = r->row;
  dfgnn_status status = DFGNN_OK;
  m.variant = trial->variant->name;
  m.revision = trial->variant->family->revision;
  m.time = dfgnn__time_stamp();
  m.anchor = anchor->name;
  m.anchor_revision = anchor->family->revision;
  m.rel_error = trial->rel_error;
  m.workspace_bytes = (int64_t)trial->workspace;
  if (partial)
    m.protocol = r->protocol;
  if (trial->status) {
    m.status = trial->status;
    m.reason = trial->reason;
  } else {
    m.status = "ok";
    status = fill_figures(&m, arm);
    fill_noise(&m, trial, arm, r->gate);
  }
  trial->recorded = 1;
  if (status || dfgnn__history_add(r->history, &m)) {
    lose(r);
    return;
  }
  if (r->store && dfgnn__store_record(r->store, NULL, &m))
    give_up_store(r, DFGNN_LOG_WARN, dfgnn_last_error());
  else if (r->store)
    dfgnn__context_wrote(r->ctx, &m);
  if (!r->store && dfgnn__context_keep(r->ctx, &m))
    lose(r);
}
