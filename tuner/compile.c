/* compile.c - compiles candidates on all cores while others are timed */
#include "tuner/compile.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/program/job.h"
#include "lib/base/error.h"
#include "lib/collect.h"
#include "lib/handle.h"

/* The anchor and what would be chosen are measured whatever they cost. */
#define OWED 3
/* A program takes the compiler half a second to two. */
#define PROGRAM_S 1.0
/* The part of the processors that compiles beside steps: a core whose other
 * half compiles is slower. */
#define SHARE 4

struct dfgnn_compile_ahead {
  dfgnn_engine *engine;
  dfgnn_programs *programs;
  pthread_t thread;
  int threads; /* 0: all processors */
  atomic_int stop, done;
};

static void *compile_all(void *data) {
  dfgnn_compile_ahead *c = data;
  dfgnn__engine_give_way();
  /* A program that does not compile fails again, and is recorded, when its
   * candidate is looked at. */
  (void)dfgnn__engine_prepare(c->engine, c->programs, c->threads, &c->stop);
  atomic_store(&c->done, 1);
  return NULL;
}

size_t dfgnn__compile_ahead_most(double budget_s, int processors) {
  const double waves = floor(budget_s / PROGRAM_S);
  return waves < 1e6 ? OWED + (size_t)waves * (size_t)processors : SIZE_MAX;
}

/* Adds the programs of a candidate, unless its time is stored; one whose
 * programs cannot be listed is left to its own plan. */
static size_t list_programs(dfgnn_programs *programs, const dfgnn_trial *trial,
                            const dfgnn_setting *setting) {
  if (!trial->stored)
    (void)dfgnn__collect_programs(programs, trial->variant, setting, NULL, 0);
  return !trial->stored;
}

/* Lists the programs of the anchor, and of others in the order in which they
 * are looked at, until they are of `most` candidates. */
static void list_first(dfgnn_programs *programs, const dfgnn_trials *trials,
                       const dfgnn_setting *setting, size_t most) {
  size_t listed =
      list_programs(programs, &trials->trial[trials->anchor], setting);
  for (size_t k = 0; k < trials->count && listed < most; k++)
    if (trials->order[k] != trials->anchor)
      listed +=
          list_programs(programs, &trials->trial[trials->order[k]], setting);
}

void dfgnn__compile_ahead_start(dfgnn_compile_ahead **ahead,
                                const dfgnn_trials *trials,
                                const dfgnn_graph *graph,
                                const dfgnn_problem *problem, double budget_s,
                                int beside) {
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
  const int processors = dfgnn__engine_processors();
  c->threads = beside ? (processors + SHARE - 1) / SHARE : 0;
  list_first(c->programs, trials, &setting,
             dfgnn__compile_ahead_most(budget_s, processors));
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

/* The program that a CPU runs; NULL: none. */
static const dfgnn_program_job *program_of(const dfgnn_graph *graph,
                                           const dfgnn_problem *problem) {
  return strcmp(graph->ctx->backend->name, "cpu")
             ? NULL
             : dfgnn__setting(graph, problem).program;
}

void dfgnn__compile_body(const dfgnn_graph *graph,
                         const dfgnn_problem *problem) {
  const dfgnn_program_job *program = program_of(graph, problem);
  while (program && !dfgnn__program_cpu_prepared(program))
    usleep(1000);
}

/* ---- for callers --------------------------------------------------------- */

struct dfgnn_tune_kernels {
  dfgnn_problem problem;
  dfgnn_trials trials;
  dfgnn_compile_ahead *ahead;       /* NULL: there is nothing to compile */
  const dfgnn_program_job *program; /* that a CPU runs; NULL: none */
};

dfgnn_status dfgnn__tuned_problem(dfgnn_problem *complete,
                                  const dfgnn_graph *graph,
                                  const dfgnn_problem *problem) {
  if (graph->matrix.refilled)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "a refilled graph has no edges of its own to measure: "
                       "tune a graph of the same size");
  return dfgnn__problem_in(complete, graph->ctx, problem);
}

dfgnn_status dfgnn_tune_prepare(dfgnn_tune_kernels **kernels,
                                dfgnn_context *ctx, dfgnn_graph *graph,
                                const dfgnn_problem *problem) {
  if (!kernels)
    return dfgnn__fail(DFGNN_ERROR_INVALID, "kernels is NULL");
  DFGNN_TRY(dfgnn__check_graph_of(graph, ctx));
  dfgnn_tune_kernels *k = calloc(1, sizeof *k);
  if (!k)
    return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory");
  dfgnn_status status = dfgnn__tuned_problem(&k->problem, graph, problem);
  if (!status)
    status = dfgnn__graph_know(graph);
  if (!status)
    status = dfgnn__trials_create(&k->trials, graph, &k->problem, NULL, 0);
  if (status) {
    free(k);
    return status;
  }
  dfgnn__compile_ahead_start(&k->ahead, &k->trials, graph, &k->problem,
                             INFINITY, 1);
  k->program = program_of(graph, &k->problem);
  (void)dfgnn_tune_prepared(k); /* which begins */
  *kernels = k;
  return DFGNN_OK;
}

int dfgnn_tune_prepared(const dfgnn_tune_kernels *kernels) {
  if (kernels && kernels->program)
    return dfgnn__program_cpu_prepared(kernels->program);
  return !kernels || !kernels->ahead || atomic_load(&kernels->ahead->done);
}

void dfgnn_tune_release(dfgnn_tune_kernels *kernels) {
  if (!kernels)
    return;
  dfgnn__compile_ahead_stop(kernels->ahead);
  dfgnn__trials_free(&kernels->trials);
  free(kernels);
}
