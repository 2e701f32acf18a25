/* edge_mlp_check.c - checks what callers say of MLPs on edges */
#include "lib/edge_mlp.h"

#include <math.h>
#include <string.h>

#include "lib/base/descriptor.h"
#include "lib/base/error.h"
#include "lib/handle.h"

/* ---- checking ------------------------------------------------------------ */

static dfgnn_status check_range(const char *name, int64_t value, int64_t least,
                                int64_t most) {
  if (value >= least && value <= most)
    return DFGNN_OK;
  return dfgnn__fail(DFGNN_ERROR_INVALID,
                     "mlp.%s is %lld, expected %lld to %lld", name,
                     (long long)value, (long long)least, (long long)most);
}

static dfgnn_status check_number(const char *name, double value) {
  if (isfinite(value))
    return DFGNN_OK;
  return dfgnn__fail(DFGNN_ERROR_INVALID,
                     "mlp.%s is %g, expected a finite number", name, value);
}

static dfgnn_status check_widths(const dfgnn_edge_mlp *mlp) {
  dfgnn_status status =
      check_range("edge_dim", mlp->edge_dim, 0, DFGNN_MLP_WIDTH);
  for (int l = 0; !status && l < mlp->layers; l++) {
    static const char *const names[] = {"width[0]", "width[1]", "width[2]",
                                        "width[3]"};
    status = check_range(names[l], mlp->width[l], 1, DFGNN_MLP_WIDTH);
  }
  if (status)
    return status;
  const int64_t last = mlp->width[mlp->layers - 1];
  if (mlp->gate && last % 2)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "mlp.width[%d] is %lld, expected an even number, of "
                       "which the gate takes half",
                       mlp->layers - 1, (long long)last);
  if (mlp->residual && mlp->edge_dim != dfgnn__mlp_out_width(mlp))
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "mlp.edge_dim is %lld, expected %lld, the width of e', "
                       "to which mlp.residual adds e",
                       (long long)mlp->edge_dim,
                       (long long)dfgnn__mlp_out_width(mlp));
  return DFGNN_OK;
}

dfgnn_status dfgnn__edge_mlp_check(const dfgnn_edge_mlp *mlp) {
  const struct {
    const char *name;
    int64_t value, least, most;
  } ranges[] = {
      {"dtype", mlp->dtype, 0, DFGNN_DTYPE_COUNT - 1},
      {"math", mlp->math, 0, DFGNN_MATH_COUNT - 1},
      {"layers", mlp->layers, 1, DFGNN_MLP_LAYERS},
      {"activation", mlp->activation, 0, DFGNN_ACTIVATION_COUNT - 1},
      {"last", mlp->last, 0, DFGNN_ACTIVATION_COUNT - 1},
      {"gate", mlp->gate, 0, 1},
      {"norm", mlp->norm, 0, DFGNN_NORM_COUNT - 1},
      {"residual", mlp->residual, 0, 1},
      {"reduce_dst", mlp->reduce_dst, 0, DFGNN_REDUCE_COUNT - 1},
      {"reduce_src", mlp->reduce_src, 0, DFGNN_REDUCE_COUNT - 1},
      {"edge_list", mlp->edge_list, 0, 1},
  };
  dfgnn_status status = DFGNN_OK;
  for (size_t i = 0; !status && i < sizeof ranges / sizeof *ranges; i++)
    status = check_range(ranges[i].name, ranges[i].value, ranges[i].least,
                         ranges[i].most);
  if (!status)
    status = check_widths(mlp);
  if (!status)
    status = check_number("slope", mlp->slope);
  if (!status)
    status = check_number("epsilon", mlp->epsilon);
  if (!status && mlp->epsilon < 0)
    status =
        dfgnn__fail(DFGNN_ERROR_INVALID,
                    "mlp.epsilon is %g, expected at least 0", mlp->epsilon);
  return status;
}

static dfgnn_status needs(const char *tensor, const char *why) {
  return dfgnn__fail(DFGNN_ERROR_INVALID, "args.%s is NULL, but %s", tensor,
                     why);
}
static dfgnn_status refuses(const char *tensor, const char *why) {
  return dfgnn__fail(DFGNN_ERROR_INVALID, "args.%s is given, but %s", tensor,
                     why);
}

static dfgnn_status check_weights(const dfgnn_mlp_job *job) {
  static const char *const names[] = {"weight[0]", "weight[1]", "weight[2]",
                                      "weight[3]"};
  for (int l = 0; l < DFGNN_MLP_LAYERS; l++) {
    const int has = l < job->mlp.layers && dfgnn__mlp_has_weight(&job->mlp, l);
    if (has && !job->args.weight[l])
      return needs(names[l],
                   l ? "mlp.layers has this layer" : "mlp.edge_dim is not 0");
    if (!has && job->args.weight[l])
      return refuses(names[l],
                     l ? "mlp.layers ends before it" : "mlp.edge_dim is 0");
    if (!has && job->args.grad_weight[l])
      return refuses("grad_weight", "its weight is NULL");
    if (l >= job->mlp.layers && (job->args.bias[l] || job->args.grad_bias[l]))
      return refuses("bias", "mlp.layers ends before it");
  }
  return DFGNN_OK;
}

static dfgnn_status check_norm(const dfgnn_mlp_job *job) {
  const dfgnn_edge_mlp_args *a = &job->args;
  if (job->mlp.norm == DFGNN_NORM_NONE &&
      (a->norm_weight || a->grad_norm_weight))
    return refuses("norm_weight", "mlp.norm is DFGNN_NORM_NONE");
  if (job->mlp.norm != DFGNN_NORM_LAYER && (a->norm_bias || a->grad_norm_bias))
    return refuses("norm_bias", "mlp.norm is not DFGNN_NORM_LAYER");
  return DFGNN_OK;
}

static dfgnn_status check_kept(const dfgnn_mlp_job *job) {
  static const char *const names[] = {"kept[0]", "kept[1]", "kept[2]",
                                      "kept[3]"};
  const int some = job->args.kept[0] != NULL;
  for (int l = 0; l < DFGNN_MLP_LAYERS; l++) {
    const void *kept = job->args.kept[l];
    const int wide = dfgnn__mlp_kept_width(&job->mlp, l) > 0;
    if (kept && !wide)
      return refuses(names[l], "dfgnn_edge_mlp_kept_width says 0 of it");
    if (some != (kept != NULL) && wide)
      return needs(some ? names[l] : names[0], "another layer's is given");
  }
  return DFGNN_OK;
}

/* One side's reduction: at the destination, or at the source. */
typedef struct side {
  const char *name, *out, *arg, *factor, *grad;
  dfgnn_reduce reduce;
  const void *to, *picked, *weights, *gradient, *weights_gradient;
} side;

static dfgnn_status check_side(const dfgnn_mlp_job *job, const side *s) {
  const int backward = job->pass == DFGNN_PASS_BACKWARD;
  if (s->reduce == DFGNN_REDUCE_NONE) {
    if (s->to || s->gradient || s->picked || s->weights || s->weights_gradient)
      return dfgnn__fail(DFGNN_ERROR_INVALID,
                         "args.%s, %s, %s or %s is given, but mlp.%s is "
                         "DFGNN_REDUCE_NONE",
                         s->out, s->arg, s->factor, s->grad, s->name);
    return DFGNN_OK;
  }
  if (!backward && !s->to)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "args.%s is NULL, but mlp.%s is not "
                       "DFGNN_REDUCE_NONE",
                       s->out, s->name);
  if (dfgnn__mlp_is_extreme(s->reduce)) {
    if (s->weights || s->weights_gradient)
      return refuses(s->factor, "a maximum or minimum has no factors");
    if (backward && s->gradient && !s->picked)
      return needs(s->arg, "the gradient of a maximum or minimum reads it");
  } else if (s->picked) {
    return refuses(s->arg, "the reduction is no maximum or minimum");
  }
  if (s->weights_gradient && !s->weights)
    return needs(s->factor, "its gradient is asked for");
  return DFGNN_OK;
}

static dfgnn_status check_args(const dfgnn_mlp_job *job) {
  const dfgnn_edge_mlp_args *a = &job->args;
  const int backward = job->pass == DFGNN_PASS_BACKWARD;
  const side sides[] = {
      {"reduce_dst", "out_dst", "arg_dst", "dst_factor", "grad_out_dst",
       job->mlp.reduce_dst, a->out_dst, a->arg_dst, a->dst_factor,
       a->grad_out_dst, a->grad_dst_factor},
      {"reduce_src", "out_src", "arg_src", "src_factor", "grad_out_src",
       job->mlp.reduce_src, a->out_src, a->arg_src, a->src_factor,
       a->grad_out_src, a->grad_src_factor}};
  const int given = job->mlp.edge_dim > 0;
  if (given && !a->edge && job->rows.edges)
    return needs("edge", "mlp.edge_dim is not 0");
  if (!given && (a->edge || a->grad_edge))
    return refuses(a->edge ? "edge" : "grad_edge", "mlp.edge_dim is 0");
  if (a->grad_dst_part && !a->dst_part)
    return needs("dst_part", "its gradient is asked for");
  if (a->grad_src_part && !a->src_part)
    return needs("src_part", "its gradient is asked for");
  dfgnn_status status = check_weights(job);
  if (!status)
    status = check_norm(job);
  if (!status)
    status = check_kept(job);
  for (int i = 0; !status && i < 2; i++)
    status = check_side(job, &sides[i]);
  if (!status && !backward && !a->edge_out && !a->out_dst && !a->out_src)
    status = dfgnn__fail(DFGNN_ERROR_INVALID,
                         "args has no output: edge_out, out_dst and out_src "
                         "are NULL");
  return status;
}

static dfgnn_status check_pass(dfgnn_pass pass) {
  if (pass == DFGNN_PASS_FORWARD || pass == DFGNN_PASS_BACKWARD)
    return DFGNN_OK;
  return dfgnn__fail(DFGNN_ERROR_INVALID,
                     "pass is %d, expected DFGNN_PASS_FORWARD or "
                     "DFGNN_PASS_BACKWARD",
                     (int)pass);
}

static dfgnn_status take(dfgnn_mlp_job *job, const dfgnn_edge_mlp *mlp,
                         const dfgnn_edge_mlp_args *args) {
  static const dfgnn_descriptor_kind mlp_kind =
      DFGNN_DESCRIPTOR("mlp", dfgnn_edge_mlp, "DFGNN_EDGE_MLP_INIT");
  static const dfgnn_descriptor_kind args_kind =
      DFGNN_DESCRIPTOR("args", dfgnn_edge_mlp_args, "DFGNN_EDGE_MLP_ARGS_INIT");
  memset(job, 0, sizeof *job);
  dfgnn_status status = dfgnn__take(&job->mlp, mlp, &mlp_kind);
  return status ? status : dfgnn__take(&job->args, args, &args_kind);
}

dfgnn_status dfgnn__edge_mlp_prepare(dfgnn_mlp_job *job,
                                     const dfgnn_edge_mlp *mlp,
                                     dfgnn_graph *graph,
                                     const dfgnn_edge_mlp_args *args,
                                     dfgnn_pass pass) {
  dfgnn_status status = take(job, mlp, args);
  if (!status)
    status = dfgnn__check_graph(graph);
  if (!status)
    status = check_pass(pass);
  if (!status)
    status = dfgnn__edge_mlp_check(&job->mlp);
  if (!status)
    status = dfgnn__graph_know(graph);
  if (status)
    return status;
  job->pass = pass;
  job->rows = graph->exact;
  if (!job->mlp.edge_list)
    job->rows.edge_order = NULL;
  job->threads = graph->ctx->info.units;
  return check_args(job);
}

dfgnn_status dfgnn__edge_mlp_take(dfgnn_mlp_job *job, const dfgnn_edge_mlp *mlp,
                                  const dfgnn_edge_mlp_args *args,
                                  dfgnn_pass pass) {
  dfgnn_status status = take(job, mlp, args);
  if (!status)
    status = check_pass(pass);
  if (!status)
    status = dfgnn__edge_mlp_check(&job->mlp);
  if (status)
    return status;
  job->pass = pass;
  job->rows.edges = 1;
  return check_args(job);
}
