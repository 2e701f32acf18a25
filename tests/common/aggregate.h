/* aggregate.h - running SpMM and reductions on small graphs, for their tests */
#ifndef DFGNN_TESTS_AGGREGATE_H
#define DFGNN_TESTS_AGGREGATE_H

#include "lib/graph.h"
#include "lib/plan.h"
#include "lib/registry.h"
#include "tests/unit/fixture.h"

/* Calls check(data, variant) after each variant that applies ran. */
static inline void
each_variant(dfgnn_context *ctx, dfgnn_graph *graph,
             const dfgnn_problem *problem, const dfgnn_args *args,
             void (*check)(const void *data, const char *variant),
             const void *data) {
  dfgnn_problem complete;
  int count = 0;
  ck_ok(dfgnn__problem_complete(&complete, problem));
  for (size_t i = 0; i < dfgnn__variant_count(); i++) {
    const dfgnn_variant *v = dfgnn__variant(i);
    const dfgnn_setting setting = dfgnn__setting(graph, &complete);
    if (dfgnn__variant_refusal(v, &setting))
      continue;
    execute_plan(forced_on(ctx, graph, problem, v->name), args);
    check(data, v->name);
    count++;
  }
  ck_assert_int_gt(count, 1);
}

/* A number in -1 .. 1, the same for a seed. */
static inline double uniform(uint64_t *state) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return (double)(*state >> 11) / (double)(1ull << 52) - 1;
}

#endif
