/* edge_mlp.c - checks and runs MLPs on edges */
#include <math.h>
#include <string.h>

#include "kernels/mlp/cuda/plan.h"
#include "lib/base/descriptor.h"
#include "lib/base/error.h"
#include "lib/graph.h"
#include "lib/handle.h"

/* ---- checking ------------------------------------------------------------ */

static dfgnn_status check_mlp(const dfgnn_edge_mlp *mlp) {
  const struct {
    const char *name;
    int64_t value, least, most;
  } ranges[] = {
      {"mlp.dtype", mlp->dtype, 0, DFGNN_DTYPE_COUNT - 1},
      {"mlp.layers", mlp->layers, 2, DFGNN_MLP_LAYERS},
      {"mlp.activation", mlp->activation, 0, DFGNN_ACTIVATION_COUNT - 1},
      {"mlp.norm", mlp->norm, 0, DFGNN_NORM_COUNT - 1},
      {"mlp.residual", mlp->residual, 0, 1},
      {"mlp.reduce_dst", mlp->reduce_dst, 0, DFGNN_REDUCE_COUNT - 1},
      {"mlp.edge_list", mlp->edge_list, 0, 1},
      {"mlp.edge_dim", mlp->edge_dim, 1, DFGNN_MLP_WIDTH},
      {"mlp.width[0]", mlp->width[0], 1, DFGNN_MLP_WIDTH},
      {"mlp.width[1]", mlp->width[1], 1, DFGNN_MLP_WIDTH},
      {"mlp.width[2]", mlp->width[2], mlp->layers > 2, DFGNN_MLP_WIDTH},
      {"mlp.width[3]", mlp->width[3], mlp->layers > 3, DFGNN_MLP_WIDTH},
  };
  for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
    DFGNN_TRY(dfgnn__check_range(ranges[i].name, ranges[i].value,
                                 ranges[i].least, ranges[i].most));
  if (mlp->residual && mlp->edge_dim != dfgnn__mlp_out_width(mlp))
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "mlp.edge_dim is %lld, expected %d, the width of e', "
                       "to which mlp.residual adds e",
                       (long long)mlp->edge_dim, dfgnn__mlp_out_width(mlp));
  if (!(isfinite(mlp->epsilon) && mlp->epsilon >= 0))
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "mlp.epsilon is %g, expected a finite number of at "
                       "least 0",
                       mlp->epsilon);
  return DFGNN_OK;
}

static dfgnn_status needs(const char *tensor, const char *why) {
  return dfgnn__fail(DFGNN_ERROR_INVALID, "args.%s is NULL, but %s", tensor,
                     why);
}
static dfgnn_status refuses(const char *tensor, const char *why) {
  return dfgnn__fail(DFGNN_ERROR_INVALID, "args.%s is given, but %s", tensor,
                     why);
}

static dfgnn_status check_layers(const dfgnn_mlp_job *job) {
  static const char *const weights[] = {"weight[0]", "weight[1]", "weight[2]",
                                        "weight[3]"};
  static const char *const kept[] = {"kept[0]", "kept[1]", "kept[2]",
                                     "kept[3]"};
  const dfgnn_edge_mlp_args *a = &job->args;
  const int keeps = a->kept[0] || job->pass == DFGNN_PASS_BACKWARD;
  for (int l = 0; l < DFGNN_MLP_LAYERS; l++) {
    const int is_layer = l < job->mlp.layers;
    const int wide = dfgnn__mlp_kept_width(&job->mlp, l) > 0;
    if (is_layer && !a->weight[l])
      return needs(weights[l], "mlp.layers has this layer");
    if (!is_layer &&
        (a->weight[l] || a->bias[l] || a->grad_weight[l] || a->grad_bias[l]))
      return refuses(weights[l], "mlp.layers ends before it");
    if (a->kept[l] && !wide)
      return refuses(kept[l], "dfgnn_edge_mlp_kept_width says 0 of it");
    if (!a->kept[l] && wide && keeps)
      return needs(kept[l], "kept[0] is given, or the pass is backward");
  }
  return DFGNN_OK;
}

static dfgnn_status check_args(const dfgnn_mlp_job *job) {
  const dfgnn_edge_mlp_args *a = &job->args;
  const int backward = job->pass == DFGNN_PASS_BACKWARD;
  const dfgnn_norm norm = job->mlp.norm;
  if (!a->edge)
    return needs("edge", "mlp.edge_dim is its width");
  if (a->grad_dst_part && !a->dst_part)
    return needs("dst_part", "its gradient is asked for");
  if (a->grad_src_part && !a->src_part)
    return needs("src_part", "its gradient is asked for");
  if (norm == DFGNN_NORM_NONE && (a->norm_weight || a->grad_norm_weight))
    return refuses("norm_weight", "mlp.norm is DFGNN_NORM_NONE");
  if (norm != DFGNN_NORM_LAYER && (a->norm_bias || a->grad_norm_bias))
    return refuses("norm_bias", "mlp.norm is not DFGNN_NORM_LAYER");
  if (!job->mlp.reduce_dst != !(a->out_dst || a->grad_out_dst) && !backward)
    return job->mlp.reduce_dst
               ? needs("out_dst", "mlp.reduce_dst is not DFGNN_REDUCE_NONE")
               : refuses("out_dst", "mlp.reduce_dst is DFGNN_REDUCE_NONE");
  if (backward && a->grad_out_dst && !job->mlp.reduce_dst)
    return refuses("grad_out_dst", "mlp.reduce_dst is DFGNN_REDUCE_NONE");
  if (!backward && !a->edge_out && !a->out_dst)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "args has no output: edge_out and out_dst are NULL");
  return check_layers(job);
}

/* Every pointer behind struct_size is of a tensor. */
static dfgnn_status check_alignment(const dfgnn_edge_mlp_args *args) {
  uintptr_t tensor[sizeof *args / sizeof(uintptr_t)];
  memcpy(tensor, args, sizeof *args);
  for (size_t i = 1; i < sizeof tensor / sizeof *tensor; i++)
    if (tensor[i] % MLP_CHUNK)
      return dfgnn__fail(DFGNN_ERROR_INVALID,
                         "args has a tensor at %p, expected multiples of %d "
                         "bytes",
                         (void *)tensor[i], MLP_CHUNK);
  return DFGNN_OK;
}
_Static_assert(sizeof(dfgnn_edge_mlp_args) % sizeof(uintptr_t) == 0 &&
                   sizeof(size_t) == sizeof(uintptr_t),
               "arguments are pointers behind their size");

static dfgnn_status take_mlp(dfgnn_mlp_job *job, const dfgnn_edge_mlp *mlp,
                             dfgnn_graph *graph) {
  static const dfgnn_descriptor_kind kind =
      DFGNN_DESCRIPTOR("mlp", dfgnn_edge_mlp, "DFGNN_EDGE_MLP_INIT");
  memset(job, 0, sizeof *job);
  DFGNN_TRY(dfgnn__take(&job->mlp, mlp, &kind));
  DFGNN_TRY(check_mlp(&job->mlp));
  DFGNN_TRY(dfgnn__check_graph(graph));
  DFGNN_TRY(dfgnn__graph_know(graph));
  job->rows = graph->exact;
  if (!job->mlp.edge_list)
    job->rows.edge_order = NULL;
  const char *missing = dfgnn__mlp_missing(job, &graph->ctx->info);
  return missing ? dfgnn__fail(DFGNN_ERROR_UNSUPPORTED, "%s", missing)
                 : DFGNN_OK;
}

static dfgnn_status prepare(dfgnn_mlp_job *job, const dfgnn_edge_mlp *mlp,
                            dfgnn_graph *graph, const dfgnn_edge_mlp_args *args,
                            dfgnn_pass pass) {
  static const dfgnn_descriptor_kind kind =
      DFGNN_DESCRIPTOR("args", dfgnn_edge_mlp_args, "DFGNN_EDGE_MLP_ARGS_INIT");
  DFGNN_TRY(take_mlp(job, mlp, graph));
  DFGNN_TRY(dfgnn__take(&job->args, args, &kind));
  if (pass != DFGNN_PASS_FORWARD && pass != DFGNN_PASS_BACKWARD)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "pass is %d, expected DFGNN_PASS_FORWARD or "
                       "DFGNN_PASS_BACKWARD",
                       (int)pass);
  job->pass = pass;
  DFGNN_TRY(check_args(job));
  return check_alignment(&job->args);
}

/* ---- running ------------------------------------------------------------- */

int64_t dfgnn_edge_mlp_kept_width(const dfgnn_edge_mlp *mlp, int layer) {
  return mlp && layer >= 0 && layer < DFGNN_MLP_LAYERS
             ? dfgnn__mlp_kept_width(mlp, layer)
             : 0;
}

dfgnn_status dfgnn_edge_mlp_serves(const dfgnn_edge_mlp *mlp,
                                   dfgnn_graph *graph) {
  dfgnn_mlp_job job;
  return take_mlp(&job, mlp, graph);
}

dfgnn_status dfgnn_edge_mlp_workspace(size_t *bytes, const dfgnn_edge_mlp *mlp,
                                      dfgnn_graph *graph,
                                      const dfgnn_edge_mlp_args *args,
                                      dfgnn_pass pass) {
  dfgnn_mlp_job job;
  if (!bytes)
    return dfgnn__fail(DFGNN_ERROR_INVALID, "bytes is NULL");
  dfgnn_status status = prepare(&job, mlp, graph, args, pass);
  if (!status)
    *bytes = dfgnn__mlp_plan(&job, &graph->ctx->info).bytes;
  return status;
}

static dfgnn_status run(const dfgnn_mlp_job *job, const dfgnn_mlp_plan *plan,
                        dfgnn_graph *graph, void *workspace, void *stream) {
  dfgnn_view_request requests[DFGNN_MAX_VIEWS] = {{0}};
  const dfgnn_view *views[DFGNN_MAX_VIEWS] = {NULL};
  const dfgnn_queue queue = {.engine = dfgnn__context_engine(graph->ctx),
                             .stream = stream};
  const int count = dfgnn__mlp_views(job, requests);
  for (int i = 0; i < count; i++)
    DFGNN_TRY(dfgnn__graph_view(&views[i], graph, &requests[i]));
  dfgnn__graph_used(graph, stream);
  int previous = dfgnn__context_enter(graph->ctx);
  dfgnn_status status = dfgnn__graph_follow(graph, stream);
  if (!status)
    status = dfgnn__mlp_run(job, plan, views, &queue, workspace);
  dfgnn__context_leave(graph->ctx, previous);
  return status;
}

dfgnn_status dfgnn_edge_mlp_execute(const dfgnn_edge_mlp *mlp,
                                    dfgnn_graph *graph,
                                    const dfgnn_edge_mlp_args *args,
                                    dfgnn_pass pass, void *workspace,
                                    void *stream) {
  dfgnn_mlp_job job;
  DFGNN_TRY(prepare(&job, mlp, graph, args, pass));
  const dfgnn_mlp_plan plan = dfgnn__mlp_plan(&job, &graph->ctx->info);
  if ((uintptr_t)workspace % 256)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "workspace is %p, expected an address aligned to 256",
                       workspace);
  if (workspace)
    return run(&job, &plan, graph, workspace, stream);
  pthread_mutex_lock(&graph->ctx->lock);
  dfgnn_status status =
      dfgnn__context_reserve(&workspace, graph->ctx, plan.bytes, stream);
  if (!status)
    status = run(&job, &plan, graph, workspace, stream);
  pthread_mutex_unlock(&graph->ctx->lock);
  return status;
}
