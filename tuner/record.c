#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "tuner/session.h"

void dfgnn__record_begin(dfgnn_session *s) {
  const char *path = dfgnn__context_store(s->ctx);
  if (!path) {
    dfgnn__log(s->ctx, DFGNN_LOG_INFO,
               "measurements are not kept: the context has no store");
    return;
  }
  if (dfgnn__store_open(&s->store, path, DFGNN_STORE_WRITE)) {
    dfgnn__log(s->ctx, DFGNN_LOG_WARN, "measurements are not kept: %s",
               dfgnn_last_error());
    s->store = NULL;
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
  m.time = (int64_t)time(NULL);
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
  if (s->store && dfgnn__store_record(s->store, NULL, &m)) {
    dfgnn__log(s->ctx, DFGNN_LOG_WARN, "measurements are not kept: %s",
               dfgnn_last_error());
    dfgnn__record_end(s);
  }
}
