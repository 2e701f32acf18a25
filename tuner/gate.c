#include "tuner/gate.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define LEAST_LOOK_S 0.06 /* shorter looks count too few ticks of a clock */
#define MOST_LOOK_S 10.0  /* longer ones say little of now */
#define PAUSE_S 0.1       /* between looks while waiting */
#define WAIT_SHARE 0.2    /* of the budget */
#define MOST_WAIT_S 10.0  /* without a budget */
#define MOST_ONCE_S 0.5   /* of one wait, which nothing interrupts */
#define MOST_WAITED 0.1   /* of their time, by threads of a calm sample */
#define LEAST_CLOCK 0.93  /* of the fastest, of a calm sample */
#define CLOCK_MEMORY 0.02 /* a sample's share in what counts as fastest */

static void pause_now(void *data, double seconds) {
  const struct timespec t = {(time_t)seconds,
                             (long)(1e9 * (seconds - floor(seconds)))};
  (void)data;
  nanosleep(&t, NULL);
}

static dfgnn_load read_load(const dfgnn_gate *g) {
  dfgnn_load load = dfgnn__load_unknown();
  if (g->backend->load)
    g->backend->load(g->device, &load);
  return load;
}

void dfgnn__gate_open(dfgnn_gate *g, dfgnn_context *ctx, double budget_s) {
  const int host = !strcmp(ctx->info.backend, "cpu");
  *g = (dfgnn_gate){.backend = ctx->backend,
                    .device = ctx->device,
                    .threads = host ? ctx->info.units : 0,
                    .most_s = fmin(WAIT_SHARE * budget_s, MOST_WAIT_S),
                    .pause = pause_now};
  g->last = read_load(g);
  pthread_mutex_lock(&ctx->lock);
  const double since = g->last.at - ctx->load.at;
  g->again = ctx->load.at > 0 && since > 0 && since < MOST_LOOK_S;
  if (g->again)
    g->last = ctx->load;
  pthread_mutex_unlock(&ctx->lock);
}

void dfgnn__gate_close(const dfgnn_gate *g, dfgnn_context *ctx) {
  pthread_mutex_lock(&ctx->lock);
  ctx->load = g->last;
  pthread_mutex_unlock(&ctx->lock);
}

/* Returns the load since the last reading, and makes this one the last; what a
 * look lacks of its least time is waited for as long as the budget allows. */
static dfgnn_crowd look(dfgnn_gate *g) {
  dfgnn_load load = read_load(g);
  const double missing =
      fmin(LEAST_LOOK_S - (load.at - g->last.at), g->most_s - g->waited_s);
  if (missing > 0) {
    g->pause(g->data, missing);
    g->waited_s += missing;
    load = read_load(g);
  }
  const dfgnn_crowd crowd = dfgnn__load_between(&g->last, &load);
  g->last = load;
  return crowd;
}

static int judge(dfgnn_gate *g, const dfgnn_crowd *crowd) {
  g->quiet = dfgnn__crowd_is_quiet(crowd, g->threads);
  if (!g->quiet)
    dfgnn__crowd_text(g->seen, sizeof g->seen, crowd, g->threads);
  return g->quiet;
}

int dfgnn__gate_look(dfgnn_gate *g) {
  const dfgnn_crowd crowd = look(g);
  return judge(g, &crowd);
}

int dfgnn__gate_wait(dfgnn_gate *g) {
  /* A short disturbance is over when it is noticed. */
  if (g->quiet && read_load(g).at - g->last.at < LEAST_LOOK_S)
    return 1;
  const double end = g->waited_s + MOST_ONCE_S;
  while (g->waited_s < g->most_s && g->waited_s < end) {
    const dfgnn_crowd crowd = look(g);
    const int hopeless =
        crowd.cores > 0 && g->threads > crowd.cores + DFGNN_QUIET_CORES;
    if (judge(g, &crowd) || hopeless)
      break;
    const double seconds = fmin(PAUSE_S, g->most_s - g->waited_s);
    if (seconds > 0)
      g->pause(g->data, seconds);
    g->waited_s += seconds > 0 ? seconds : 0;
  }
  return g->quiet;
}

int dfgnn__gate_disturbed(dfgnn_gate *g, const dfgnn_sample *sample) {
  /* A clock that stays low is this device's normal state after a while. */
  g->top_mhz += CLOCK_MEMORY * (sample->clock_mhz - g->top_mhz);
  g->top_mhz = fmax(g->top_mhz, sample->clock_mhz);
  if (sample->waited > MOST_WAITED) {
    snprintf(g->seen, sizeof g->seen,
             "threads waited for a processor %.0f %% of the time",
             100 * fmin(sample->waited, 1));
    return 1;
  }
  if (sample->clock_mhz > 0 && sample->clock_mhz < LEAST_CLOCK * g->top_mhz) {
    snprintf(g->seen, sizeof g->seen, "the clock fell from %.0f to %.0f MHz",
             g->top_mhz, sample->clock_mhz);
    return 1;
  }
  if (sample->tainted && !*g->seen)
    snprintf(g->seen, sizeof g->seen, "%s",
             g->threads ? "the scheduler took processors away"
                        : "heat or power slowed the GPU");
  return sample->tainted;
}

void dfgnn__gate_warn(dfgnn_gate *g, dfgnn_context *ctx) {
  if (g->again && read_load(g).at - g->last.at < LEAST_LOOK_S)
    return; /* the gate before looked just now */
  if (dfgnn__gate_look(g) || atomic_exchange(&ctx->told_load, 1))
    return;
  char load[64] = "";
  if (g->last.average >= 0)
    snprintf(load, sizeof load, "%.3g cores, load %.1f: ", g->last.cores,
             g->last.average);
  dfgnn__log(ctx, DFGNN_LOG_WARN,
             "%s%s: times will be noisy; what is measured so is marked, and "
             "'dfgnn-tune run --again noisy' measures it again",
             load, g->seen);
}
