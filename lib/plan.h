/* plan.h - a chosen variant with its views, state and workspace */
#ifndef DFGNN_LIB_PLAN_H
#define DFGNN_LIB_PLAN_H

#include <stdatomic.h>

#include "lib/graph.h"
#include "lib/operator.h"

enum { DFGNN_WORKSPACE_ALIGNMENT = 256 }; /* bytes */

struct dfgnn_plan {
  uint32_t kind; /* lib/handle.h */
  dfgnn_context *ctx;
  dfgnn_graph *graph;    /* NULL: it was destroyed */
  dfgnn_problem problem; /* complete */
  const dfgnn_operator *op;
  const dfgnn_variant *variant;
  const dfgnn_matrix *matrix; /* as it was known when the plan was made */
  const dfgnn_signature *signature;
  dfgnn_choice choice;
  size_t workspace;
  const dfgnn_view *views[DFGNN_MAX_VIEWS];
  void *state;
  struct dfgnn_plan_race *race; /* lib/plan_race.h; NULL: the plan is no race */
  uint64_t hash;                /* of problem, for the cache */
  int taken;                    /* ctx->taken when it was chosen */
  atomic_int references;
  atomic_int refused;          /* a launch failed: the next plan avoids it */
  dfgnn_plan *next, *previous; /* in the list graph->alive */
};

/* Makes a plan with one reference, in the graph's list, without a variant yet;
 * NULL: no memory. */
dfgnn_plan *dfgnn__plan_make(dfgnn_graph *graph, const dfgnn_problem *problem);

/* Hashes every byte of a complete problem, whose padding is zero. */
uint64_t dfgnn__problem_hash(const dfgnn_problem *problem);

/* ---- plan_cache.c: a graph keeps a plan for each problem ----------------- */

/* The plan that the graph keeps for a complete problem, with one more
 * reference; NULL if there is none. */
dfgnn_plan *dfgnn__plan_kept(dfgnn_graph *graph, const dfgnn_problem *problem);
/* Makes the plan's graph keep it, with a reference of its own.  If another
 * thread was faster, the plan is destroyed and *plan becomes the other's; on
 * failure it is destroyed and *plan becomes NULL. */
dfgnn_status dfgnn__plan_keep(dfgnn_plan **plan);
/* Makes the graph drop the plan, and its reference. */
void dfgnn__plan_give_up(dfgnn_plan *plan);

/* ---- plan_choose.c, plan_create.c, plan_compile.c ------------------------ */

/* Completes a problem for a context; there is an operator for it. */
dfgnn_status dfgnn__problem_in(dfgnn_problem *complete,
                               const dfgnn_context *ctx,
                               const dfgnn_problem *problem);
/* Chooses the variant that a plan gets.  avoided says by variant index which
 * ones are passed over beside those that are broken; NULL: none. */
dfgnn_status dfgnn__choose(dfgnn_choice *choice, dfgnn_graph *graph,
                           const dfgnn_problem *problem,
                           const unsigned char *avoided);
/* Chooses `variant`; DFGNN_ERROR_UNSUPPORTED if it does not apply. */
dfgnn_status dfgnn__choose_forced(dfgnn_choice *choice, dfgnn_graph *graph,
                                  const dfgnn_problem *problem,
                                  const dfgnn_variant *variant);

/* The setting of a problem on a graph, without parameters. */
dfgnn_setting dfgnn__setting(const dfgnn_graph *graph,
                             const dfgnn_problem *problem);

/* Compiles the programs that the plan's launches need, so that no call waits
 * for the compiler.  DFGNN_ERROR_UNSUPPORTED, with the compiler's message, for
 * a kernel that does not compile or that spills too much. */
dfgnn_status dfgnn__plan_compile(const dfgnn_plan *plan,
                                 const dfgnn_setting *setting,
                                 dfgnn_engine *engine);

#endif
