/* compile.c - compiles candidates on all cores while others are timed */
#include "tuner/compile.h"

#include <pthread.h>
#include <stdlib.h>

#include "lib/collect.h"

struct dfgnn_compile_ahead {
  dfgnn_engine *engine;
  dfgnn_programs *programs;
  pthread_t thread;
  atomic_int stop;
};

static void *compile_all(void *data) {
  dfgnn_compile_ahead *c = data;
  /* A program that does not compile fails again, and is recorded, when its
   * candidate is looked at. */
  (void)dfgnn__engine_prepare(c->engine, c->programs, 0, &c->stop);
  return NULL;
}

/* Lists programs in the order in which their candidates are looked at; a
 * candidate whose programs cannot be listed is left to its own plan. */
static void list_programs(dfgnn_programs *programs, const dfgnn_trials *trials,
                          const dfgnn_setting *setting) {
  for (size_t k = 0; k < trials->count; k++) {
    const dfgnn_trial *trial = &trials->trial[trials->order[k]];
    if (!trial->stored)
      (void)dfgnn__collect_programs(programs, trial->variant, setting, NULL, 0);
  }
}

void dfgnn__compile_ahead_start(dfgnn_compile_ahead **ahead,
                                const dfgnn_trials *trials,
                                const dfgnn_graph *graph,
                                const dfgnn_problem *problem) {
  const dfgnn_context *ctx = graph->ctx;
  const dfgnn_setting setting = dfgnn__setting(graph, problem);
  *ahead = NULL;
  if (!ctx->backend->engine)
    return;
  dfgnn_compile_ahead *c = calloc(1, sizeof *c);
  if (!c)
    return;
  c->engine = ctx->backend->engine(ctx->device);
  if (!c->engine || dfgnn__programs_create(&c->programs)) {
    free(c);
    return;
  }
  list_programs(c->programs, trials, &setting);
  if (pthread_create(&c->thread, NULL, compile_all, c)) {
    dfgnn__programs_destroy(c->programs);
    free(c);
    return;
  }
  *ahead = c;
}

void dfgnn__compile_ahead_stop(dfgnn_compile_ahead *ahead) {
  if (!ahead)
    return;
  atomic_store(&ahead->stop, 1);
  pthread_join(ahead->thread, NULL);
  dfgnn__programs_destroy(ahead->programs);
  free(ahead);
}
