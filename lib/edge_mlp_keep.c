/* edge_mlp_keep.c - whether inner values of an MLP are worth keeping
 *
 * Keeping is no parameter of a variant, since both passes have to agree on it:
 * a problem has it or not (kept=1), and what was measured of both passes of
 * both problems decides. */
#include <string.h>

#include "kernels/mlp/cuda/plan.h"
#include "lib/base/error.h"
#include "lib/edge_mlp.h"
#include "lib/operator.h"

enum {
  PART_OF_MEMORY = 64 /* the rule lets a call keep one part of a device's memory
                       * in so many: deep models have dozens of calls */
};

/* Aligned as device memory is; nothing reads from this address. */
static char *const nowhere = (char *)0x10000;

/* [kept][pass] */
typedef struct asked {
  dfgnn_mlp_job job[2][DFGNN_PASS_COUNT];
  dfgnn_problem problem[2][DFGNN_PASS_COUNT];
  int64_t bytes; /* of kept rows */
} asked;

static dfgnn_status ask(asked *a, const dfgnn_edge_mlp *mlp, dfgnn_graph *graph,
                        const dfgnn_edge_mlp_args *const args[]) {
  dfgnn_status status = DFGNN_OK;
  for (int pass = 0; !status && pass < DFGNN_PASS_COUNT; pass++) {
    dfgnn_mlp_job *without = &a->job[0][pass], *with = &a->job[1][pass];
    status = dfgnn__edge_mlp_prepare(without, mlp, graph, args[pass],
                                     (dfgnn_pass)pass);
    *with = *without;
    for (int l = 0; !status && l < DFGNN_MLP_LAYERS; l++) {
      const int64_t width = dfgnn__mlp_kept_width(&with->mlp, l);
      without->args.kept[l] = NULL;
      with->args.kept[l] = width ? nowhere : NULL;
      if (!pass)
        a->bytes += width * with->rows.edges *
                    (int64_t)dfgnn_dtype_size(with->mlp.dtype);
    }
    for (int kept = 0; !status && kept < 2; kept++) {
      dfgnn_problem given;
      status = dfgnn__edge_mlp_problem_of(&given, &a->job[kept][pass]);
      if (!status)
        status = dfgnn__problem_complete(&a->problem[kept][pass], &given);
    }
  }
  return status;
}

/* ---- measurements -------------------------------------------------------- */

/* Milliseconds of the fastest way that was measured on the graph of a
 * fingerprint; 0: none was. */
static double measured(const dfgnn_graph *graph, const dfgnn_problem *problem,
                       uint64_t fingerprint) {
  dfgnn_signature signature = graph->signature;
  dfgnn_query query = {.setting = dfgnn__setting(graph, problem),
                       .family = graph->family,
                       .broken = graph->ctx->broken};
  signature.fingerprint = fingerprint;
  query.setting.signature = &signature;
  const dfgnn_decision *d = dfgnn__table_exact(graph->ctx->table, &query);
  return d ? d->ranked[0].median_ms : 0;
}

/* 1: keeping was faster on that graph, -1: it was not, 0: not all of it was
 * measured. */
static int verdict(const dfgnn_graph *graph, const asked *a,
                   uint64_t fingerprint) {
  double ms[2] = {0, 0};
  for (int kept = 0; kept < 2; kept++)
    for (int pass = 0; pass < DFGNN_PASS_COUNT; pass++) {
      const double taken =
          measured(graph, &a->problem[kept][pass], fingerprint);
      if (taken <= 0)
        return 0;
      ms[kept] += taken;
    }
  return ms[1] < ms[0] ? 1 : -1;
}

/* The verdict of this graph, else of the measured one that answers for it. */
static int look_up(const dfgnn_graph *graph, const asked *a) {
  dfgnn_context *ctx = graph->ctx;
  const dfgnn_query query = {.setting =
                                 dfgnn__setting(graph, &a->problem[1][0]),
                             .family = graph->family,
                             .broken = ctx->broken};
  dfgnn_choice near = {.variant = NULL};
  pthread_mutex_lock(&ctx->lock);
  int found = verdict(graph, a, graph->signature.fingerprint);
  if (!found) {
    dfgnn__select_measured(&near, ctx->table, &query, NULL);
    if (near.variant && near.fingerprint)
      found = verdict(graph, a, near.fingerprint);
  }
  pthread_mutex_unlock(&ctx->lock);
  return found;
}

/* ---- the answer ---------------------------------------------------------- */

dfgnn_status dfgnn_edge_mlp_keep(int64_t *bytes, const dfgnn_edge_mlp *mlp,
                                 dfgnn_graph *graph,
                                 const dfgnn_edge_mlp_args *forward,
                                 const dfgnn_edge_mlp_args *backward) {
  const dfgnn_edge_mlp_args *const args[] = {forward, backward};
  asked a = {.bytes = 0};
  if (!bytes)
    return dfgnn__fail(DFGNN_ERROR_INVALID, "bytes is NULL");
  *bytes = 0;
  dfgnn_status status = ask(&a, mlp, graph, args);
  if (status || !a.bytes)
    return status;
  for (int pass = 0; pass < DFGNN_PASS_COUNT; pass++)
    if (dfgnn__edge_mlp_missing(&a.job[1][pass], graph))
      return DFGNN_OK;
  const int found = look_up(graph, &a);
  if (found > 0 ||
      (!found && a.bytes <= graph->ctx->info.memory_bytes / PART_OF_MEMORY))
    *bytes = a.bytes;
  return DFGNN_OK;
}
