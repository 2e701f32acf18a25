#include "tuner/replay.h"

#include <math.h>

#include "lib/base/error.h"
#include "lib/signature.h"
#include "tuner/search.h"

typedef struct script {
  const dfgnn_decision *decision;
  const dfgnn_replay_options *options;
  double best_ms; /* the time at log_ratio 0 */
  double clock;
  uint64_t random;
  size_t samples;
} script;

static double uniform(script *s) {
  return ((double)(dfgnn__mix(s->random++) >> 11) + 0.5) / 9007199254740992.0;
}

static double normal(script *s) {
  double radius = sqrt(-2 * log(uniform(s)));
  return radius * cos(6.283185307179586 * uniform(s));
}

static double time_of(script *s, size_t i) {
  return s->best_ms *
         exp(s->decision->ranked[i].log_ratio + s->options->noise * normal(s));
}

static dfgnn_sampled admit(void *data, size_t i, double *rough_ms) {
  script *s = data;
  *rough_ms = time_of(s, i);
  s->clock += 1e-3 * (2 * *rough_ms + s->options->check_ms);
  return DFGNN_SAMPLED_OK;
}

static dfgnn_sampled sample(void *data, size_t i, double *ms) {
  script *s = data;
  *ms = time_of(s, i);
  s->clock += 1e-3 * fmax(*ms, s->options->sample_ms);
  s->samples++;
  return DFGNN_SAMPLED_OK;
}

static double now(void *data) { return ((script *)data)->clock; }

static const dfgnn_search_ops ops = {
    .admit = admit, .sample = sample, .now = now};

dfgnn_status dfgnn__replay(dfgnn_replayed *replayed,
                           const dfgnn_decision *decision,
                           const dfgnn_replay_options *options) {
  script s = {.decision = decision,
              .options = options,
              .random = dfgnn__mix(options->seed) | 1};
  dfgnn_search search;
  if (!decision->count)
    return dfgnn__fail(DFGNN_ERROR_NOT_TUNED, "the decision has no variants");
  double least = INFINITY;
  for (size_t i = 0; i < decision->count; i++)
    if (decision->ranked[i].log_ratio < least) {
      least = decision->ranked[i].log_ratio;
      s.best_ms = decision->ranked[i].median_ms * exp(-least);
    }
  if (!(s.best_ms > 0) || !dfgnn__search_init(&search, decision->count))
    return dfgnn__fail(s.best_ms > 0 ? DFGNN_ERROR_MEMORY : DFGNN_ERROR_INVALID,
                       "the best variant's median is %g ms, expected > 0",
                       s.best_ms);
  search.ops = &ops;
  search.data = &s;
  search.anchor = decision->count / 2;
  search.seed = options->seed;
  search.exhaustive = options->exhaustive;
  if (options->margin > 0)
    search.margin = options->margin;
  if (options->budget_s > 0)
    search.deadline = options->budget_s;
  dfgnn_status status = DFGNN_OK;
  if (dfgnn__search_run(&search)) {
    const dfgnn_ranked *choice = &decision->ranked[search.best];
    replayed->variant = choice->variant;
    replayed->regret = exp(choice->log_ratio - least);
    replayed->seconds = s.clock;
    replayed->samples = s.samples;
  } else {
    status = dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  }
  dfgnn__search_free(&search);
  return status;
}
