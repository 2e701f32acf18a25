/* record.c - writes rows of trials to the store, or keeps them in the context
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "lib/describe.h"
#include "tuner/session.h"

/* From now on rows outlive the session, but not the context. */
static void give_up_store(dfgnn_session *s, dfgnn_log_level level,
                          const char *why) {
  if (!atomic_exchange(&s->ctx->told, 1))
    dfgnn__log(s->ctx, level,
               "measurements answer until the context ends, and cannot be "
               "kept: %s",
               why);
  dfgnn__record_end(s);
}

void dfgnn__record_begin(dfgnn_session *s) {
  const char *path = dfgnn__context_store(s->ctx);
  if (!path)
    give_up_store(s, DFGNN_LOG_INFO, "the context has no store");
  else if (dfgnn__store_open(&s->store, path, DFGNN_STORE_WRITE)) {
    s->store = NULL;
    give_up_store(s, DFGNN_LOG_WARN, dfgnn_last_error());
  }
}

void dfgnn__record_end(dfgnn_session *s) {
  if (s->store)
    dfgnn__store_close(s->store);
  s->store = NULL;
}

static void fill_figures(dfgnn_measurement *m, const dfgnn_session *s,
                         size_t i) {
  const dfgnn_arm *arm = &s->search.arm[i];
  double *ms = malloc(arm->count * sizeof *ms);
  dfgnn_interval median = {0, 0, 0};
  if (ms) {
    memcpy(ms, arm->ms, arm->count * sizeof *ms);
    median = dfgnn__median_interval(ms, arm->count);
  }
  free(ms);
  m->median_ms = median.center;
  m->ci_low_ms = median.low;
  m->ci_high_ms = median.high;
  m->ratio = exp(arm->ratio.center);
  m->ratio_low = exp(arm->ratio.low);
  m->ratio_high = exp(arm->ratio.high);
  m->samples = (int64_t)arm->count;
}

void dfgnn__record_trial(dfgnn_session *s, size_t i, int partial) {
  dfgnn_trial *trial = &s->trials.trial[i];
  dfgnn_measurement m = s->row;
  m.variant = trial->variant->name;
  m.revision = trial->variant->family->revision;
  m.time = dfgnn__time_stamp();
  const dfgnn_variant *anchor = s->trials.trial[s->trials.anchor].variant;
  m.anchor = anchor->name;
  m.anchor_revision = anchor->family->revision;
  m.rel_error = trial->rel_error;
  m.workspace_bytes = (int64_t)trial->workspace;
  if (partial)
    m.protocol = s->protocol;
  if (trial->status) {
    m.status = trial->status;
    m.reason = trial->reason;
  } else {
    m.status = "ok";
    fill_figures(&m, s, i);
  }
  trial->recorded = 1;
  if (dfgnn__history_add(s->history, &m))
    return;
  if (s->store && dfgnn__store_record(s->store, NULL, &m))
    give_up_store(s, DFGNN_LOG_WARN, dfgnn_last_error());
  if (!s->store && dfgnn__context_keep(s->ctx, &m))
    dfgnn__log(s->ctx, DFGNN_LOG_WARN, "a measurement is lost: %s",
               dfgnn_last_error());
}
