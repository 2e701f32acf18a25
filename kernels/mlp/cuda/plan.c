#include "kernels/mlp/cuda/plan.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/common/cublaslt.h"
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
   * tools/bench/python_mlp.py's first block). */
  WARPS = 8,
  WARPS_FORWARD = 12,
  WIDE = 256, /* a layer that a library multiplies well */
  /* What the kernels of a launch leave for each other.  Backward .93 of the
   * time of 128 MiB (resident), and .87 of that of 192 (library), of 328 k
   * edges on an H100. */
  LAUNCH_BYTES = 512 << 20
};

static int64_t at_least_one(int64_t x) { return x < 1 ? 1 : x; }
static int64_t round_up(int64_t x, int64_t to) {
  return dfgnn__ceil_div(x, to) * to;
}
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

static int flags_of(const dfgnn_mlp_plan *p, const dfgnn_mlp_job *job) {
  const dfgnn_edge_mlp_args *a = &job->args;
  return (job->mlp.residual ? MLP_RESIDUAL : 0) | (a->kept[0] ? MLP_KEPT : 0) |
         (is_backward(job) && wants_weights(job) ? MLP_WEIGHTS : 0) |
         (a->grad_edge_out ? MLP_GRAD_EDGES : 0) |
         (a->grad_out_dst ? MLP_GRAD_DST : 0) |
         (!p->resident && a->grad_bias[job->mlp.layers - 1] ? MLP_LAST_BIAS
                                                            : 0);
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

static int is_wide(const dfgnn_edge_mlp *mlp) {
  for (int l = 0; l < mlp->layers; l++)
    if (mlp->width[l] >= WIDE && dfgnn__mlp_width(mlp, l - 1) >= WIDE)
      return 1;
  return 0;
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
  if (is_resident(mlp, device))
    return NULL;
  if (!is_wide(mlp))
    return "MLPs on edges have kernels for widths up to 128, or for layers "
           "from 256 numbers to 256 and more";
  return dfgnn__has_cublaslt()
             ? NULL
             : "libcublasLt was not found (DFGNN_CUBLASLT names it)";
}

/* ---- sizes --------------------------------------------------------------- */

int dfgnn__mlp_tiles_along(int width) {
  return (width + MLP_SIDE - 1) / MLP_SIDE;
}

int dfgnn__mlp_copies_edges(const dfgnn_mlp_plan *plan,
                            const dfgnn_mlp_job *job) {
  return !plan->resident && job->rows.edge_order;
}

static int widest(const dfgnn_edge_mlp *mlp) {
  int most = dfgnn__mlp_width(mlp, -1);
  for (int l = 0; l < mlp->layers; l++)
    if (dfgnn__mlp_width(mlp, l) > most)
      most = dfgnn__mlp_width(mlp, l);
  return most;
}

/* Bytes that a launch leaves of each edge: rows of e, what layers read, sums
 * and gradients with respect to z. */
static int64_t bytes_of_edge(const dfgnn_mlp_plan *p,
                             const dfgnn_mlp_job *job) {
  const dfgnn_edge_mlp *mlp = &job->mlp;
  int64_t numbers =
      dfgnn__mlp_copies_edges(p, job) ? dfgnn__mlp_width(mlp, -1) : 0;
  for (int l = 1; l < mlp->layers; l++)
    numbers += dfgnn__mlp_width(mlp, l - 1) +
               (is_backward(job) ? dfgnn__mlp_width(mlp, l) : 0);
  return SIZE * (numbers + (p->resident ? 0 : widest(mlp)));
}

/* Every warp has one span; in the backward pass one in each launch. */
static void divide_resident(dfgnn_mlp_plan *p, const dfgnn_mlp_job *job,
                            int64_t launch_bytes) {
  const int64_t tiles = dfgnn__ceil_div(job->rows.edges, MLP_TILE);
  const int64_t warps = (int64_t)p->units * p->warps;
  int64_t launches = 1;
  if (is_backward(job)) {
    const int64_t rounds =
        at_least_one(launch_bytes / (warps * MLP_TILE * bytes_of_edge(p, job)));
    launches = at_least_one(dfgnn__ceil_div(tiles, rounds * warps));
  }
  p->span = at_least_one(dfgnn__ceil_div(tiles, launches * warps));
  p->edges_of_span = p->span * MLP_TILE;
  p->spans = at_least_one(dfgnn__ceil_div(tiles, p->span));
  p->edges_of_launch =
      at_least_one(dfgnn__ceil_div(p->spans, launches)) * p->edges_of_span;
}

/* A launch has a block of edges for each multiprocessor, or a multiple of it;
 * fewer if not even that fits into launch_bytes. */
static void divide_library(dfgnn_mlp_plan *p, const dfgnn_mlp_job *job,
                           int64_t launch_bytes) {
  const int64_t edges = job->rows.edges, round = p->units * MLP_ROWS;
  const int64_t most = launch_bytes / bytes_of_edge(p, job);
  p->edges_of_span = MLP_ROW_SPAN;
  p->spans = at_least_one(dfgnn__ceil_div(edges, p->edges_of_span));
  if (most < round) {
    p->edges_of_launch = at_least_one(most / MLP_ROWS) * MLP_ROWS;
    return;
  }
  const int64_t launches =
      at_least_one(dfgnn__ceil_div(edges, most / round * round));
  p->edges_of_launch =
      round_up(at_least_one(dfgnn__ceil_div(edges, launches)), round);
}

/* ---- places -------------------------------------------------------------- */

/* Rows of a launch's edges. */
static void place_launch(dfgnn_mlp_plan *p, const dfgnn_mlp_job *job) {
  const dfgnn_edge_mlp *mlp = &job->mlp;
  const int64_t edges = p->edges_of_launch < job->rows.edges
                            ? p->edges_of_launch
                            : job->rows.edges;
  size_t *at = &p->bytes;
  if (!p->resident)
    p->last = p->sums = dfgnn__place(at, edges * widest(mlp), SIZE);
  if (p->resident && !is_backward(job))
    return;
  if (dfgnn__mlp_copies_edges(p, job))
    p->input[0] = dfgnn__place(at, edges * dfgnn__mlp_width(mlp, -1), SIZE);
  for (int l = 1; l < mlp->layers; l++) {
    p->input[l] = dfgnn__place(at, edges * dfgnn__mlp_width(mlp, l - 1), SIZE);
    if (is_backward(job))
      p->grad_z[l] = dfgnn__place(at, edges * dfgnn__mlp_width(mlp, l), SIZE);
  }
}

int dfgnn__mlp_bias_parts(const dfgnn_mlp_plan *p, const dfgnn_mlp_job *job,
                          int l) {
  const int64_t edges = p->edges_of_launch < job->rows.edges
                            ? p->edges_of_launch
                            : job->rows.edges;
  const int64_t blocks = dfgnn__ceil_div(edges, MLP_ROWS);
  const int64_t walkers = MLP_ROW_BLOCKS * (int64_t)p->units;
  return (int)(l == job->mlp.layers - 1 && walkers < blocks ? walkers : blocks);
}

static void place_backward(dfgnn_mlp_plan *p, const dfgnn_mlp_job *job) {
  const dfgnn_edge_mlp *mlp = &job->mlp;
  size_t *at = &p->bytes;
  p->grad_first = dfgnn__place(at, job->rows.edges * mlp->width[0], SIZE);
  p->norm_partial = dfgnn__place(
      at, (int64_t)p->units * MLP_ROW_BLOCKS * 2 * dfgnn__mlp_out_width(mlp),
      sizeof(float));
  if (p->resident) {
    p->partial = dfgnn__place(at, p->spans * 2 * mlp->width[0], sizeof(float));
    p->weight_partial =
        dfgnn__place(at, (int64_t)p->splits * p->weight_tiles * MLP_WEIGHT_TILE,
                     sizeof(float));
  }
  for (int l = 0; !p->resident && l < mlp->layers; l++)
    p->bias_partial[l] = dfgnn__place(
        at, dfgnn__mlp_bias_parts(p, job, l) * mlp->width[l], sizeof(float));
}

dfgnn_mlp_plan dfgnn__mlp_plan_within(const dfgnn_mlp_job *job,
                                      const dfgnn_device_info *device,
                                      int64_t launch_bytes) {
  const dfgnn_edge_mlp *mlp = &job->mlp;
  dfgnn_mlp_plan p = {.resident = is_resident(mlp, device),
                      .units = device->units > 0 ? device->units : 1,
                      .warps = is_backward(job) ? WARPS : WARPS_FORWARD};
  while (p.warps > 1 &&
         resident_bytes(mlp, p.warps) > (size_t)device->shared_bytes)
    p.warps /= 2;
  p.flags = flags_of(&p, job);
  p.shared_bytes = resident_bytes(mlp, p.warps);
  for (int l = 0; l < mlp->layers; l++)
    p.weight_tiles += dfgnn__mlp_tiles_along(dfgnn__mlp_width(mlp, l)) *
                      dfgnn__mlp_tiles_along(dfgnn__mlp_width(mlp, l - 1));
  p.splits = (int)at_least_one(2 * p.units / p.weight_tiles);
  if (p.resident) {
    divide_resident(&p, job, launch_bytes);
    p.packed = dfgnn__place(&p.bytes, (int64_t)packed_bytes(mlp), 1);
  } else {
    divide_library(&p, job, launch_bytes);
    p.gemm = dfgnn__place(&p.bytes, DFGNN_GEMM_WORKSPACE, 1);
  }
  if (is_backward(job))
    place_backward(&p, job);
  else
    p.partial = dfgnn__place(&p.bytes, p.spans * 2 * dfgnn__mlp_out_width(mlp),
                             sizeof(float));
  place_launch(&p, job);
  return p;
}

dfgnn_mlp_plan dfgnn__mlp_plan(const dfgnn_mlp_job *job,
                               const dfgnn_device_info *device) {
  return dfgnn__mlp_plan_within(job, device, LAUNCH_BYTES);
}
