/* tune.c - dfgnn_tune: measures a problem, and keeps the measurements */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/descriptor.h"
#include "lib/base/error.h"
#include "lib/handle.h"
#include "tuner/compile.h"
#include "tuner/record.h"

/* A call that is measured with its own tensors. */
#define CALL_TIMES 40  /* kernel times, about, that a portfolio takes */
#define CALL_SAMPLES 6 /* of a member, at most */
#define SHORT_MS 0.05  /* samples of shorter calls are cheap */
#define SHORT_SAMPLES 12

typedef struct session {
  dfgnn_subject subject;
  const dfgnn_args *args;     /* of a call that is measured; NULL: own inputs */
  double most_s;              /* that measuring such a call may take */
  dfgnn_tune_options options; /* defaults filled in */
  double start;               /* by dfgnn__seconds() */
  double began;               /* the same, once the store is open */
  dfgnn_recorder recorder;
  dfgnn_trials trials;
  dfgnn_search search;
  dfgnn_gate gate;
  int kept, resumed;
  char message[512];                 /* of the progress */
  double input_s, check_s, sample_s; /* what the time went to */
} session;

static void record(session *s, size_t i, int partial) {
  dfgnn__record_trial(&s->recorder, &s->trials.trial[i], &s->search.arm[i],
                      s->trials.trial[s->trials.anchor].variant, partial);
}

/* ---- the search's view of the device ------------------------------------ */

/* A want of memory says nothing of the variant, which is measured next time. */
static dfgnn_sampled record_failure(session *s, size_t i,
                                    dfgnn_sampled sampled) {
  if (sampled == DFGNN_SAMPLED_LOST ||
      (sampled == DFGNN_SAMPLED_FAILED && !s->trials.trial[i].no_memory))
    record(s, i, 0);
  return sampled;
}

static dfgnn_sampled admit(void *data, size_t i, double *rough_ms) {
  session *s = data;
  const double begin = dfgnn__seconds();
  const dfgnn_sampled sampled =
      dfgnn__trial_admit(&s->subject, &s->trials.trial[i], rough_ms);
  s->check_s += dfgnn__seconds() - begin;
  return record_failure(s, i, sampled);
}

static dfgnn_sampled sample(void *data, size_t i, double *ms) {
  session *s = data;
  const double begin = dfgnn__seconds();
  const dfgnn_sampled sampled =
      dfgnn__trial_sample(&s->subject, &s->trials.trial[i], ms);
  s->sample_s += dfgnn__seconds() - begin;
  return record_failure(s, i, sampled);
}

static void finished(void *data, size_t i) {
  session *s = data;
  if (i == s->trials.anchor)
    return; /* recorded at the end, with all its samples */
  record(s, i, 0);
  dfgnn_plan_destroy(s->trials.trial[i].plan);
  s->trials.trial[i].plan = NULL;
}

static double now(void *data) {
  (void)data;
  return dfgnn__seconds();
}

static int stop(void *data) {
  const session *s = data;
  return s->options.stop && s->options.stop(s->options.data);
}

static void progress(void *data, double done, double eta) {
  session *s = data;
  if (!s->options.progress)
    return;
  size_t seen = 0, racing = 0;
  const dfgnn_arm *best = &s->search.arm[s->trials.anchor];
  const char *name = s->trials.trial[s->trials.anchor].variant->name;
  for (size_t i = 0; i < s->search.arms; i++) {
    const dfgnn_arm *arm = &s->search.arm[i];
    seen += arm->state != DFGNN_ARM_UNSEEN;
    racing += arm->state == DFGNN_ARM_ACTIVE;
    if (arm->count > 0 && arm->ratio.center < best->ratio.center) {
      best = arm;
      name = s->trials.trial[i].variant->name;
    }
  }
  snprintf(s->message, sizeof s->message,
           "%zu of %zu candidates seen, %zu racing, best %s at %.2f of the "
           "rule's choice, %.0f s left",
           seen, s->search.arms, racing, name, exp(best->ratio.center),
           ceil(eta));
  s->options.progress(s->options.data, done, s->message);
}

static void settle(void *data) {
  session *s = data;
  if (s->subject.gate && !stop(s))
    dfgnn__gate_wait(&s->gate);
}

static const dfgnn_search_ops device_ops = {admit, sample,   finished, now,
                                            stop,  progress, settle};

/* ---- preparation -------------------------------------------------------- */

static dfgnn_status complete_options(dfgnn_tune_options *full,
                                     const dfgnn_tune_options *given) {
  static const dfgnn_descriptor_kind kind = DFGNN_DESCRIPTOR(
      "options", dfgnn_tune_options, "DFGNN_TUNE_OPTIONS_INIT");
  *full = (dfgnn_tune_options)DFGNN_TUNE_OPTIONS_INIT;
  DFGNN_TRY(given ? dfgnn__take(full, given, &kind) : DFGNN_OK);
  if (!(full->budget_s >= 0))
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "options.budget_s is %g, expected >= 0", full->budget_s);
  if (!(full->margin >= 0 && full->margin < 1))
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "options.margin is %g, expected 0..1", full->margin);
  if (full->remeasure < 0 || full->remeasure > DFGNN_REMEASURE_NOISY)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "options.remeasure is %d, expected 0..%d",
                       full->remeasure, DFGNN_REMEASURE_NOISY);
  if (full->exhaustive < 0)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "options.exhaustive is %d, expected >= 0",
                       full->exhaustive);
  if (full->budget_s == 0)
    full->budget_s = full->exhaustive ? INFINITY : 10;
  if (full->margin == 0)
    full->margin = 0.015;
  if (!full->tool)
    full->tool = "libdfgnn";
  if (!full->job_hash)
    full->job_hash = "";
  return DFGNN_OK;
}

static double rank_of(const dfgnn_decision *decision, const char *variant) {
  for (size_t i = 0; decision && i < decision->count; i++)
    if (!strcmp(decision->ranked[i].variant, variant))
      return decision->ranked[i].log_ratio;
  return NAN;
}

/* A row that an interrupted run left is no reason to skip its variant, unless
 * the variant is far behind; the fewer its samples, the farther it must be. */
static int is_settled(const dfgnn_measurement *row, double rank) {
  if (!dfgnn__row_is_partial(row))
    return 1;
  double behind = row->samples < 2 ? 1 : row->samples < 4 ? 0.25 : 0.1;
  return rank - log(row->ratio / row->ratio_low) > behind;
}

/* Puts a trial before all others. */
static void prefer(dfgnn_trials *t, size_t trial) {
  size_t k = 0;
  while (t->order[k] != trial)
    k++;
  memmove(t->order + 1, t->order, k * sizeof *t->order);
  t->order[0] = trial;
}

/* Ratios are comparable only through a common anchor, so an anchor of the
 * stored rows goes on being the anchor, and the rule's choice is compared with
 * it however short the budget is: the rows may be older than the portfolio. */
static void keep_anchor(session *s, const dfgnn_decision *decision) {
  dfgnn_trials *t = &s->trials;
  if (!decision || !isnan(rank_of(decision, t->trial[t->anchor].variant->name)))
    return;
  for (size_t k = 0; k < decision->count; k++) {
    size_t i = dfgnn__trials_find(t, decision->ranked[k].variant);
    if (i < t->count) {
      prefer(t, t->anchor);
      t->anchor = i;
      s->search.owed++;
      return;
    }
  }
}

/* The variant that a context would choose without this run goes first, then the
 * one that it would choose without any measurement; both are measured beside
 * the anchor however short the budget is, so that no choice becomes worse. */
static void prefer_choices(session *s) {
  dfgnn_trials *t = &s->trials;
  const size_t predicted = t->order[0];
  const size_t first[] = {predicted, t->chosen};
  for (size_t k = 0; k < 2; k++)
    if (first[k] != t->anchor && t->order[0] != first[k])
      prefer(t, first[k]);
  s->search.owed = 0;
  while (s->search.owed < t->count && s->search.owed < 2 &&
         (t->order[s->search.owed] == predicted ||
          t->order[s->search.owed] == t->chosen))
    s->search.owed++;
}

/* 1 if the row is to be measured again, as the options ask. */
static int is_due(const session *s, const dfgnn_decision *decision,
                  const char *variant) {
  for (size_t i = 0; decision && i < decision->count; i++)
    if (!strcmp(decision->ranked[i].variant, variant))
      return s->options.remeasure == DFGNN_REMEASURE_NOISY &&
             dfgnn__ranked_doubtful(decision, i);
  return 0;
}

/* Takes over stored rows; returns the number of trials that need no sample. */
static int resume(session *s, const dfgnn_decision *decision) {
  dfgnn_trials *t = &s->trials;
  int resumed = 0;
  double anchor = rank_of(decision, t->trial[t->anchor].variant->name);
  for (size_t i = 0; i < t->count; i++) {
    dfgnn_trial *trial = &t->trial[i];
    const dfgnn_measurement *row =
        dfgnn__history_row(s->recorder.history, trial->variant);
    if (s->search.arm[i].state == DFGNN_ARM_STORED)
      s->search.arm[i].state = DFGNN_ARM_UNSEEN;
    if (!row || trial->recorded)
      continue;
    if (strcmp(row->status, "ok")) {
      trial->status = !strcmp(row->status, "wrong")     ? "wrong"
                      : !strcmp(row->status, "refused") ? "refused"
                                                        : "failed";
      s->search.arm[i].state = DFGNN_ARM_REJECTED;
    } else {
      double rank = rank_of(decision, trial->variant->name);
      if (isnan(rank) || isnan(anchor) || !is_settled(row, rank) ||
          is_due(s, decision, trial->variant->name))
        continue;
      dfgnn_interval *ratio = &s->search.arm[i].ratio;
      ratio->center = rank - anchor;
      ratio->low = ratio->center + log(row->ratio_low / row->ratio);
      ratio->high = ratio->center + log(row->ratio_high / row->ratio);
      s->search.arm[i].state = DFGNN_ARM_STORED;
    }
    trial->stored = 1;
    resumed++;
  }
  return resumed;
}

/* The rule's choice may be wrong or fail; then the next one that works is the
 * anchor. */
static dfgnn_status admit_anchor(session *s) {
  dfgnn_trials *t = &s->trials;
  for (size_t k = 0; k <= t->count; k++) {
    size_t i = k == 0 ? t->anchor : t->order[k - 1];
    double rough_ms;
    if (s->search.arm[i].state == DFGNN_ARM_REJECTED)
      continue;
    if (stop(s)) {
      s->search.interrupted = 1;
      return DFGNN_OK;
    }
    t->anchor = i;
    dfgnn_sampled status = admit(s, i, &rough_ms);
    if (status == DFGNN_SAMPLED_OK)
      return DFGNN_OK;
    s->search.arm[i].state = DFGNN_ARM_REJECTED;
    if (status == DFGNN_SAMPLED_LOST) {
      s->search.lost = 1;
      return DFGNN_OK;
    }
  }
  return dfgnn__fail(DFGNN_ERROR_UNSUPPORTED,
                     "none of %zu candidates is right and runs; the last: %s",
                     t->count, t->trial[t->anchor].reason);
}

/* ---- the run ------------------------------------------------------------ */

/* 1 if the anchor was measured, and a variant that would be chosen without it
 * was not. */
static int is_alone(const session *s) {
  for (size_t k = 0; k < s->search.owed; k++)
    if (s->search.arm[s->trials.order[k]].state == DFGNN_ARM_UNSEEN)
      return 1;
  return 0;
}

static dfgnn_status make_inputs(session *s) {
  dfgnn_subject *subject = &s->subject;
  const double begin = dfgnn__seconds();
  dfgnn_status status =
      s->args ? dfgnn__harness_lend(&subject->harness, subject->ctx,
                                    subject->graph, &subject->problem, s->args)
              : dfgnn__harness_create(&subject->harness, subject->ctx,
                                      subject->graph, &subject->problem,
                                      s->options.seed);
  s->input_s = dfgnn__seconds() - begin;
  if (!status && !s->args)
    dfgnn__harness_spare(subject->harness, s->options.budget_s);
  return status;
}

/* Limits what measuring a call takes, by one time of its anchor: by samples,
 * since on a busy machine wall time would leave members unseen. */
static dfgnn_status budget_call(session *s) {
  dfgnn_trial *anchor = &s->trials.trial[s->trials.anchor];
  double ms;
  if (dfgnn__trial_sample(&s->subject, anchor, &ms) == DFGNN_SAMPLED_FAILED)
    return dfgnn__fail(DFGNN_ERROR_NOT_TUNED, "%s: %s", anchor->variant->name,
                       anchor->reason);
  const double wanted_s = 1e-3 * CALL_TIMES * ms;
  if (wanted_s > s->most_s)
    return dfgnn__fail(DFGNN_ERROR_NOT_TUNED,
                       "%s takes %.3g ms: to measure its portfolio would take "
                       "about %.2g s, at most %.2g are allowed",
                       anchor->variant->name, ms, wanted_s, s->most_s);
  s->options.budget_s = s->most_s;
  s->search.max_samples = s->search.final_samples =
      ms < SHORT_MS ? SHORT_SAMPLES : CALL_SAMPLES;
  s->search.attempts = 1;
  if (ms > SHORT_MS) /* a longer call needs no other to warm up */
    s->subject.repeats = 1;
  s->began = dfgnn__seconds();
  return DFGNN_OK;
}

static dfgnn_status run_search(session *s, const dfgnn_decision *decision) {
  dfgnn_search *search = &s->search;
  DFGNN_TRY(make_inputs(s));
  size_t anchor = s->trials.anchor;
  dfgnn_status status = admit_anchor(s);
  if (!status && s->args && !search->interrupted && !search->lost)
    status = budget_call(s);
  if (status || search->interrupted || search->lost)
    return status;
  if (s->subject.gate)
    dfgnn__gate_warn(&s->gate, s->subject.ctx);
  if (anchor != s->trials.anchor && s->options.remeasure != DFGNN_REMEASURE_ALL)
    s->resumed = resume(s, decision);
  search->ops = &device_ops;
  search->data = s;
  search->anchor = s->trials.anchor;
  search->order = s->trials.order;
  search->predicted = s->trials.predicted;
  search->deadline = s->began + s->options.budget_s;
  search->margin = s->options.margin;
  search->exhaustive = s->options.exhaustive;
  search->seed = s->options.seed;
  if (s->options.exhaustive > 1)
    search->max_samples = search->final_samples = (size_t)s->options.exhaustive;
  if (!dfgnn__search_run(search))
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  int partial = search->interrupted || search->lost;
  if (partial && is_alone(s))
    return DFGNN_OK;
  for (size_t i = 0; i < search->arms; i++)
    if (search->arm[i].count > 0 && !s->trials.trial[i].recorded &&
        search->arm[i].state != DFGNN_ARM_REJECTED)
      record(s, i, partial && i != s->trials.anchor);
  return DFGNN_OK;
}

static int unmeasured(const session *s) {
  for (size_t i = 0; i < s->search.arms; i++)
    if (s->search.arm[i].state == DFGNN_ARM_UNSEEN)
      return 1;
  return 0;
}

static void count_trials(dfgnn_tune_report *r, const session *s) {
  r->candidates = (int)s->trials.count;
  for (size_t i = 0; i < s->trials.count; i++) {
    const dfgnn_trial *trial = &s->trials.trial[i];
    r->measured += s->search.arm[i].count > 0 && !trial->status;
    if (trial->status) {
      r->wrong += !strcmp(trial->status, "wrong");
      r->failed += strcmp(trial->status, "wrong") != 0;
    }
  }
}

/* Fills the report by the stores, so that it agrees with later plans. */
static dfgnn_status conclude(dfgnn_tune_report *r, session *s) {
  const dfgnn_decision *d;
  DFGNN_TRY(dfgnn__history_decide(&d, s->recorder.history, s->options.margin));
  count_trials(r, s);
  r->kept = s->kept;
  r->resumed = s->resumed;
  const char *anchor = s->trials.trial[s->trials.anchor].variant->name;
  snprintf(r->anchor, sizeof r->anchor, "%s", anchor);
  r->payback_calls = INFINITY;
  if (d) {
    const dfgnn_ranked *winner = &d->ranked[0];
    double rank = rank_of(d, anchor);
    snprintf(r->variant, sizeof r->variant, "%s", winner->variant);
    r->median_ms = winner->median_ms;
    r->ratio = isnan(rank) ? 1 : exp(winner->log_ratio - rank);
    r->separated = winner->sure && (d->count < 2 || !d->ranked[1].tied);
    if (r->ratio < 1)
      r->payback_calls = 1e3 * (dfgnn__seconds() - s->start) /
                         (winner->median_ms * (1 / r->ratio - 1));
  }
  r->seconds = dfgnn__seconds() - s->start;
  dfgnn__log(s->subject.ctx, DFGNN_LOG_DEBUG,
             "tuned in %.1f ms: inputs %.1f, plans and checks %.1f, samples "
             "%.1f, waits for quiet %.1f",
             1e3 * r->seconds, 1e3 * s->input_s, 1e3 * s->check_s,
             1e3 * s->sample_s, 1e3 * s->gate.waited_s);
  return DFGNN_OK;
}

/* Lets the context choose by the rows that there are now of the problem. */
static dfgnn_status learn(const session *s) {
  size_t count;
  const dfgnn_measurement *rows =
      dfgnn__history_rows(s->recorder.history, &count);
  return dfgnn__context_learn(s->subject.ctx, rows, count);
}

static dfgnn_status run_session(dfgnn_tune_report *r, session *s) {
  const dfgnn_decision *decision;
  dfgnn__record_describe(&s->recorder, &s->subject, &s->options);
  DFGNN_TRY(dfgnn__history_load(&s->recorder.history, s->subject.ctx,
                                &s->recorder.row));
  DFGNN_TRY(dfgnn__trials_create(&s->trials, s->subject.graph,
                                 &s->subject.problem, s->options.variants,
                                 s->options.exhaustive));
  if (!dfgnn__search_init(&s->search, s->trials.count))
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  DFGNN_TRY(
      dfgnn__history_decide(&decision, s->recorder.history, s->options.margin));
  dfgnn_status status = DFGNN_OK;
  prefer_choices(s);
  if (s->options.remeasure != DFGNN_REMEASURE_ALL) {
    keep_anchor(s, decision);
    s->resumed = resume(s, decision);
  }
  s->kept = 1;
  if (unmeasured(s)) {
    dfgnn_compile_ahead *ahead;
    if (!s->args) {
      dfgnn__gate_open(&s->gate, s->subject.ctx, s->options.budget_s);
      s->subject.gate = &s->gate;
      s->recorder.gate = &s->gate;
    }
    dfgnn__record_begin(&s->recorder);
    dfgnn__compile_body(s->subject.graph, &s->subject.problem);
    s->began = dfgnn__seconds();
    dfgnn__compile_ahead_start(&ahead, &s->trials, s->subject.graph,
                               &s->subject.problem, s->options.budget_s, 0);
    status = run_search(s, decision);
    if (s->subject.gate)
      dfgnn__gate_close(&s->gate, s->subject.ctx);
    dfgnn__compile_ahead_stop(ahead);
    s->kept = s->recorder.store != NULL && !s->recorder.lost;
    const int known = dfgnn__record_end(&s->recorder);
    /* Rejections found before a failure count as well. */
    dfgnn_status learnt =
        known ? learn(s) : dfgnn_context_reload(s->subject.ctx);
    status = status ? status : learnt;
    dfgnn__graph_forget_plans(s->subject.graph);
  }
  if (!status)
    status = conclude(r, s);
  const char *where = s->kept ? "kept" : "not stored";
  if (!status && s->search.lost)
    status = dfgnn__fail(DFGNN_ERROR_DEVICE,
                         "the device stopped working during a candidate's "
                         "run; the measurements are %s, run again to go on",
                         where);
  if (!status && s->search.interrupted)
    status = dfgnn__fail(DFGNN_ERROR_INTERRUPTED,
                         "tuning was stopped; the measurements are %s", where);
  return status;
}

/* args: NULL, or a call's, which may be measured for most_s. */
static dfgnn_status tune(dfgnn_tune_report *report, dfgnn_context *ctx,
                         dfgnn_graph *graph, const dfgnn_problem *problem,
                         const dfgnn_tune_options *options,
                         const dfgnn_args *args, double most_s) {
  session s = {.subject = {.ctx = ctx,
                           .graph = graph,
                           .unchecked = args != NULL,
                           .repeats = args ? DFGNN_BRIEFLY : 0},
               .recorder = {.unasked = args != NULL},
               .args = args,
               .most_s = most_s,
               .start = dfgnn__seconds()};
  dfgnn_tune_report r = DFGNN_TUNE_REPORT_INIT;
  DFGNN_TRY(dfgnn__check_graph_of(graph, ctx));
  static const dfgnn_descriptor_kind kind =
      DFGNN_DESCRIPTOR("report", dfgnn_tune_report, "DFGNN_TUNE_REPORT_INIT");
  if (report)
    DFGNN_TRY(dfgnn__can_give(report, &kind));
  DFGNN_TRY(complete_options(&s.options, options));
  DFGNN_TRY(dfgnn__tuned_problem(&s.subject.problem, graph, problem));
  if (ctx->backend->capturing(ctx->device, NULL))
    return dfgnn__fail(DFGNN_ERROR_CAPTURING,
                       "tuning is not allowed while a stream is capturing");
  const dfgnn_status status = run_session(&r, &s);
  /* An interrupted run has a report as well. */
  if (report && (!status || status == DFGNN_ERROR_INTERRUPTED))
    dfgnn__give(report, &r, &kind);
  dfgnn__search_free(&s.search);
  dfgnn__trials_free(&s.trials);
  dfgnn__harness_destroy(s.subject.harness);
  dfgnn__history_free(s.recorder.history);
  return status;
}

dfgnn_status dfgnn_tune(dfgnn_tune_report *report, dfgnn_context *ctx,
                        dfgnn_graph *graph, const dfgnn_problem *problem,
                        const dfgnn_tune_options *options) {
  return tune(report, ctx, graph, problem, options, NULL, INFINITY);
}

dfgnn_status dfgnn_tune_call(dfgnn_tune_report *report, dfgnn_context *ctx,
                             dfgnn_graph *graph, const dfgnn_problem *problem,
                             const dfgnn_args *args, double most_s) {
  dfgnn_tune_options options = DFGNN_TUNE_OPTIONS_INIT;
  options.budget_s = most_s;
  options.tool = "libdfgnn call";
  if (!args)
    return dfgnn__fail(DFGNN_ERROR_INVALID, "args is NULL");
  if (!(most_s > 0))
    return dfgnn__fail(DFGNN_ERROR_INVALID, "most_s is %g, expected > 0",
                       most_s);
  if (problem && problem->accumulate)
    return dfgnn__fail(DFGNN_ERROR_UNSUPPORTED,
                       "problem.accumulate is set: each run would add to the "
                       "call's outputs");
  return tune(report, ctx, graph, problem, &options, args, most_s);
}
