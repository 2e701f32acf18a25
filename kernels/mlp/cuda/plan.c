#include "kernels/mlp/cuda/plan.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/common/cuda_host.h"

_Static_assert((int)MLP_GELU_TANH == DFGNN_ACTIVATION_GELU_TANH &&
                   (int)MLP_NORM_RMS == DFGNN_NORM_RMS &&
                   (int)MLP_LAYERS == DFGNN_MLP_LAYERS,
               "params.h has the numbers of dfgnn_mlp.h");

enum {
  SIZE = 2,            /* bytes of a number */
  MOST_RESIDENT = 128, /* sums of a tile stay in registers */
  /* Registers of a thread for 12 warps hold a tile in the forward pass alone; 8
   * were faster backward on an H200 (1.80 against 1.98 ms of both passes of
   * block_128 of tools/bench/cases/edge_mlps.py). */
  WARPS = 8,
  WARPS_FORWARD = 12,
  /* What the kernels of a launch leave for each other.  Backward .93 of the
   * time of 128 MiB, of 328 k edges on an H100. */
  LAUNCH_BYTES = 512 << 20
};

static int64_t at_least_one(int64_t x) { return x < 1 ? 1 : x; }
static int is_backward(const dfgnn_mlp_job *job) {
  return job->pass == DFGNN_PASS_BACKWARD;
}

/* ---- what is asked for --------------------------------------------------- */

static int wants_weights(const dfgnn_mlp_job *job) {
  int some = 0;
  for (int l = 0; l < job->mlp.layers; l++)
    some |= job->args.grad_weight[l] || job->args.grad_bias[l];
  return some;
}

static int flags_of(const dfgnn_mlp_job *job) {
  const dfgnn_edge_mlp_args *a = &job->args;
  return (job->mlp.residual ? MLP_RESIDUAL : 0) | (a->kept[0] ? MLP_KEPT : 0) |
         (is_backward(job) && wants_weights(job) ? MLP_WEIGHTS : 0) |
         (a->grad_edge_out ? MLP_GRAD_EDGES : 0) |
         (a->grad_out_dst ? MLP_GRAD_DST : 0);
}

int dfgnn__mlp_views(const dfgnn_mlp_job *job, dfgnn_view_request *requests) {
  int count = 0;
  requests[count++].kind = DFGNN_VIEW_ROW_OF_EDGE;
  if (job->args.grad_src_part)
    requests[count++].kind = DFGNN_VIEW_TRANSPOSE;
  return count;
}

/* ---- what is served ------------------------------------------------------ */

/* widths<> of tile.cuh computes the same. */
static size_t packed_bytes(const dfgnn_edge_mlp *mlp) {
  size_t bytes = 2 * (size_t)dfgnn__mlp_out_width(mlp) * sizeof(float);
  for (int l = 0; l < mlp->layers; l++)
    bytes +=
        (size_t)mlp->width[l] *
        ((size_t)dfgnn__mlp_width(mlp, l - 1) * SIZE + MLP_PAD + sizeof(float));
  return bytes;
}

static size_t resident_bytes(const dfgnn_edge_mlp *mlp, int warps) {
  return packed_bytes(mlp) + (size_t)(warps * MLP_TILE * MLP_STAGE_ROW);
}

static int is_resident(const dfgnn_edge_mlp *mlp,
                       const dfgnn_device_info *device) {
  int most = 0;
  for (int l = -1; l < mlp->layers; l++)
    if (dfgnn__mlp_width(mlp, l) > most)
      most = dfgnn__mlp_width(mlp, l);
  return most <= MOST_RESIDENT &&
         resident_bytes(mlp, 4) <= (size_t)device->shared_bytes;
}

const char *dfgnn__mlp_missing(const dfgnn_mlp_job *job,
                               const dfgnn_device_info *device) {
  const dfgnn_edge_mlp *mlp = &job->mlp;
  if (strncmp(device->arch, "sm_", 3) || atoi(device->arch + 3) < 80)
    return "MLPs on edges have kernels for GPUs of sm_80 and later alone";
  if (mlp->dtype != DFGNN_F16 && mlp->dtype != DFGNN_BF16)
    return "MLPs on edges have kernels of types f16 and bf16 alone";
  if (!job->rows.edges)
    return "MLPs on edges have kernels for graphs with edges alone";
  for (int l = -1; l < mlp->layers; l++)
    if (dfgnn__mlp_width(mlp, l) % MLP_GROUP)
      return "MLPs on edges have kernels for widths that are multiples of 32";
  return is_resident(mlp, device)
             ? NULL
             : "MLPs on edges have kernels for widths up to 128, whose weights "
               "fit shared memory";
}

/* ---- sizes --------------------------------------------------------------- */

int dfgnn__mlp_tiles_along(int width) {
  return (width + MLP_SIDE - 1) / MLP_SIDE;
}

/* Bytes that a launch of the backward pass leaves of each edge: what layers
 * read, and gradients with respect to z. */
static int64_t bytes_of_edge(const dfgnn_mlp_job *job) {
  int64_t numbers = 0;
  for (int l = 1; l < job->mlp.layers; l++)
    numbers +=
        dfgnn__mlp_width(&job->mlp, l - 1) + dfgnn__mlp_width(&job->mlp, l);
  return SIZE * numbers;
}

/* Every warp has one span; in the backward pass one in each launch. */
static void divide(dfgnn_mlp_plan *p, const dfgnn_mlp_job *job,
                   int64_t launch_bytes) {
  const int64_t tiles = dfgnn__ceil_div(job->rows.edges, MLP_TILE);
  const int64_t warps = (int64_t)p->units * p->warps;
  int64_t launches = 1;
  if (is_backward(job)) {
    const int64_t rounds =
        at_least_one(launch_bytes / (warps * MLP_TILE * bytes_of_edge(job)));
    launches = at_least_one(dfgnn__ceil_div(tiles, rounds * warps));
  }
  p->span = at_least_one(dfgnn__ceil_div(tiles, launches * warps));
  p->edges_of_span = p->span * MLP_TILE;
  p->spans = at_least_one(dfgnn__ceil_div(tiles, p->span));
  p->edges_of_launch =
      at_least_one(dfgnn__ceil_div(p->spans, launches)) * p->edges_of_span;
}

/* ---- places -------------------------------------------------------------- */

static void place_backward(dfgnn_mlp_plan *p, const dfgnn_mlp_job *job) {
  const dfgnn_edge_mlp *mlp = &job->mlp;
  const int64_t edges = p->edges_of_launch < job->rows.edges
                            ? p->edges_of_launch
                            : job->rows.edges;
  size_t *at = &p->bytes;
  p->grad_first = dfgnn__place(at, job->rows.edges * mlp->width[0], SIZE);
  p->norm_partial = dfgnn__place(
      at, (int64_t)p->units * MLP_ROW_BLOCKS * 2 * dfgnn__mlp_out_width(mlp),
      sizeof(float));
  p->partial = dfgnn__place(at, p->spans * 2 * mlp->width[0], sizeof(float));
  p->weight_partial =
      dfgnn__place(at, (int64_t)p->splits * p->weight_tiles * MLP_WEIGHT_TILE,
                   sizeof(float));
  for (int l = 1; l < mlp->layers; l++) {
    p->input[l] = dfgnn__place(at, edges * dfgnn__mlp_width(mlp, l - 1), SIZE);
    p->grad_z[l] = dfgnn__place(at, edges * dfgnn__mlp_width(mlp, l), SIZE);
  }
}

dfgnn_mlp_plan dfgnn__mlp_plan_within(const dfgnn_mlp_job *job,
                                      const dfgnn_device_info *device,
                                      int64_t launch_bytes) {
  const dfgnn_edge_mlp *mlp = &job->mlp;
  dfgnn_mlp_plan p = {.units = device->units > 0 ? device->units : 1,
                      .warps = is_backward(job) ? WARPS : WARPS_FORWARD};
  while (p.warps > 1 &&
         resident_bytes(mlp, p.warps) > (size_t)device->shared_bytes)
    p.warps /= 2;
  p.flags = flags_of(job);
  p.shared_bytes = resident_bytes(mlp, p.warps);
  for (int l = 0; l < mlp->layers; l++)
    p.weight_tiles += dfgnn__mlp_tiles_along(dfgnn__mlp_width(mlp, l)) *
                      dfgnn__mlp_tiles_along(dfgnn__mlp_width(mlp, l - 1));
  p.splits = (int)at_least_one(2 * p.units / p.weight_tiles);
  divide(&p, job, launch_bytes);
  p.packed = dfgnn__place(&p.bytes, (int64_t)packed_bytes(mlp), 1);
  if (is_backward(job))
    place_backward(&p, job);
  else
    p.partial = dfgnn__place(&p.bytes, p.spans * 2 * dfgnn__mlp_out_width(mlp),
                             sizeof(float));
  return p;
}

dfgnn_mlp_plan dfgnn__mlp_plan(const dfgnn_mlp_job *job,
                               const dfgnn_device_info *device) {
  return dfgnn__mlp_plan_within(job, device, LAUNCH_BYTES);
}
