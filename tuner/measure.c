/* measure.c - checks a trial on the device, then samples it */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tuner/measure.h"

static const char *status_name(dfgnn_status status) {
  if (status == DFGNN_ERROR_WRONG)
    return "wrong";
  return status == DFGNN_ERROR_UNSUPPORTED ? "refused" : "failed";
}

/* A trial that fails leaves the race; it may have taken the device with it. */
static dfgnn_sampled reject(const dfgnn_subject *s, dfgnn_trial *trial,
                            dfgnn_status status) {
  trial->status = status_name(status);
  trial->no_memory = status == DFGNN_ERROR_MEMORY;
  snprintf(trial->reason, sizeof trial->reason, "%s", dfgnn_last_error());
  dfgnn__log(
      s->ctx,
      status == DFGNN_ERROR_UNSUPPORTED ? DFGNN_LOG_INFO : DFGNN_LOG_WARN,
      "%s is %s: %s", trial->variant->name, trial->status, trial->reason);
  dfgnn_plan_destroy(trial->plan);
  trial->plan = NULL;
  if (status == DFGNN_ERROR_DEVICE &&
      s->ctx->backend->synchronize(s->ctx->device, NULL))
    return DFGNN_SAMPLED_LOST;
  return DFGNN_SAMPLED_FAILED;
}

static dfgnn_status time_roughly(const dfgnn_subject *s,
                                 const dfgnn_trial *trial, double *ms) {
  dfgnn_harness_call c;
  dfgnn_status status = dfgnn__harness_call(&c, s->harness, trial->plan);
  double begin = dfgnn__seconds();
  if (!status)
    status = dfgnn__harness_execute(&c, NULL);
  if (!status)
    status = s->ctx->backend->synchronize(s->ctx->device, NULL);
  *ms = 1e3 * (dfgnn__seconds() - begin);
  return status;
}

dfgnn_sampled dfgnn__trial_admit(const dfgnn_subject *s, dfgnn_trial *trial,
                                 double *rough_ms) {
  double begin = 0;
  dfgnn_status status = dfgnn_plan_create_forced(
      &trial->plan, s->ctx, s->graph, &s->problem, trial->variant->name);
  if (!status) {
    trial->workspace = dfgnn_plan_workspace(trial->plan);
    begin = dfgnn__seconds();
    trial->rel_error = INFINITY; /* nobody compared the results */
    if (!s->unchecked)
      status = dfgnn__harness_check(&trial->rel_error, s->harness, trial->plan);
  }
  /* The check ran the plan once: only if that took long, the watchdog needs a
   * time. */
  *rough_ms = 0;
  if (!status && dfgnn__seconds() - begin > 0.1)
    status = time_roughly(s, trial, rough_ms);
  return status ? reject(s, trial, status) : DFGNN_SAMPLED_OK;
}

dfgnn_sampled dfgnn__trial_sample(const dfgnn_subject *s, dfgnn_trial *trial,
                                  double *ms) {
  dfgnn_harness_call c;
  dfgnn_sample sample = {.waited = DFGNN_UNKNOWN};
  dfgnn_status status = dfgnn__harness_call(&c, s->harness, trial->plan);
  if (!status)
    status =
        s->ctx->backend->time(s->ctx->device, &sample, dfgnn__harness_execute,
                              &c, s->repeats, s->problem.cold);
  if (status)
    return reject(s, trial, status);
  *ms = sample.ms > 1e-6 ? sample.ms : 1e-6; /* the clock's own step */
  const int tainted =
      s->gate ? dfgnn__gate_disturbed(s->gate, &sample) : sample.tainted;
  return tainted ? DFGNN_SAMPLED_TAINTED : DFGNN_SAMPLED_OK;
}
