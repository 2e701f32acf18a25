#include "kernels/mlp/cuda/plan.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/common/cuda_host.h"
#include "kernels/mlp/cuda/params.h"
#include "kernels/mlp/cuda/run.h"

enum {
  MOST_WIDTH = 128, /* sums of a tile stay in registers */
  /* Registers of a thread for 12 warps hold a tile of 16-bit types in the
   * forward pass alone; 8 were faster backward on an H200 (1.80 against 1.98 ms
   * of both passes of bench/python_mlp.py's first block). */
  WARPS = 8,
  WARPS_FORWARD = 12,
  LAUNCH_BYTES = 128 << 20
};

/* ---- what is asked for --------------------------------------------------- */

int dfgnn__mlp_wants_weights(const dfgnn_mlp_job *job) {
  int some = 0;
  for (int l = 0; l < job->mlp.layers; l++)
    some |= job->args.grad_weight[l] || job->args.grad_bias[l];
  return some;
}

int dfgnn__mlp_wants_norm(const dfgnn_mlp_job *job) {
  return job->args.grad_norm_weight || job->args.grad_norm_bias;
}

/* Do rows of all widths lie at multiples of 16 bytes? */
static int is_vector(const dfgnn_mlp_job *job) {
  const dfgnn_edge_mlp_args *a = &job->args;
  const void *tensors[] = {a->edge,          a->dst_part,     a->src_part,
                           a->edge_out,      a->out_dst,      a->out_src,
                           a->grad_edge_out, a->grad_out_dst, a->grad_out_src,
                           a->grad_edge,     a->grad_dst_part};
  for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
    if ((uintptr_t)tensors[i] % MLP_CHUNK)
      return 0;
  return 1;
}

int dfgnn__mlp_copies_edges(const dfgnn_mlp_plan *plan) {
  const dfgnn_edge_mlp *mlp = &plan->job->mlp;
  const int chunk = MLP_CHUNK / (int)dfgnn_dtype_size(mlp->dtype);
  return mlp->edge_dim &&
         (!(plan->flags & MLP_VECTOR) || mlp->edge_dim % chunk);
}

/* ---- sizes --------------------------------------------------------------- */

/* widths<> of tile.cuh computes the same. */
static size_t packed_bytes(const dfgnn_edge_mlp *mlp) {
  const size_t size = dfgnn_dtype_size(mlp->dtype);
  size_t bytes = 0;
  for (int l = 0; l < mlp->layers; l++) {
    const size_t in = (size_t)dfgnn__mlp_padded(mlp, l - 1);
    const size_t out = (size_t)dfgnn__mlp_padded(mlp, l);
    bytes += (in ? out * (in * size + MLP_PAD) : 0) + out * sizeof(float);
  }
  return bytes +
         2 * (size_t)dfgnn__mlp_padded(mlp, mlp->layers - 1) * sizeof(float);
}

static size_t shared_bytes(const dfgnn_edge_mlp *mlp, int warps) {
  return packed_bytes(mlp) + (size_t)warps * MLP_TILE * MLP_STAGE_ROW;
}

static int tiles_along(int width) {
  return width > MLP_SIDE ? (width + MLP_SIDE - 1) / MLP_SIDE : 1;
}

/* Numbers that a launch keeps of each edge: z, and for the gradients of weights
 * what layers read and the gradients with respect to z. */
static size_t kept_numbers(const dfgnn_mlp_plan *p) {
  const dfgnn_edge_mlp *mlp = &p->job->mlp;
  size_t numbers =
      dfgnn__mlp_copies_edges(p) ? (size_t)dfgnn__mlp_padded(mlp, -1) : 0;
  for (int l = 1; l < mlp->layers; l++)
    numbers +=
        (size_t)(2 * dfgnn__mlp_padded(mlp, l - 1) + dfgnn__mlp_padded(mlp, l));
  return numbers;
}

static int64_t at_least_one(int64_t x) { return x < 1 ? 1 : x; }
static int64_t ceiling(int64_t a, int64_t b) { return (a + b - 1) / b; }

/* ---- plans --------------------------------------------------------------- */

/* Every warp has one span; in the backward pass one in each launch. */
static void divide(dfgnn_mlp_plan *p, const dfgnn_mlp_tuning *tuning) {
  const int64_t tiles = ceiling(p->job->rows.edges, MLP_TILE);
  const int64_t warps = (int64_t)p->units * p->warps;
  int64_t launches = 1;
  if (p->job->pass == DFGNN_PASS_BACKWARD) {
    const size_t most =
        tuning->launch_bytes ? (size_t)tuning->launch_bytes : LAUNCH_BYTES;
    const size_t round = (size_t)(warps * MLP_TILE) * kept_numbers(p) *
                         dfgnn_dtype_size(p->job->mlp.dtype);
    const int64_t rounds =
        at_least_one(round ? (int64_t)(most / round) : tiles);
    launches = at_least_one(ceiling(tiles, rounds * warps));
  }
  p->span = tuning->span ? tuning->span
                         : at_least_one(ceiling(tiles, launches * warps));
  p->spans = at_least_one(ceiling(tiles, p->span));
  p->spans_of_launch = at_least_one(ceiling(p->spans, launches));
}

static void place(dfgnn_mlp_plan *p) {
  const dfgnn_mlp_job *job = p->job;
  const dfgnn_edge_mlp *mlp = &job->mlp;
  const int backward = job->pass == DFGNN_PASS_BACKWARD;
  const int last = mlp->layers - 1;
  const size_t size = dfgnn_dtype_size(mlp->dtype);
  const int64_t edges = job->rows.edges;
  const int64_t kept = p->spans_of_launch * p->span * MLP_TILE;
  size_t *at = &p->bytes;
  p->packed = dfgnn__place(at, (int64_t)p->packed_bytes, 1);
  p->partial = dfgnn__place(
      at, p->spans * 2 * dfgnn__mlp_padded(mlp, backward ? 0 : last),
      sizeof(float));
  if (!backward) {
    p->partial_arg =
        dfgnn__place(at,
                     dfgnn__mlp_is_extreme(mlp->reduce_dst)
                         ? p->spans * 2 * dfgnn__mlp_padded(mlp, last)
                         : 0,
                     sizeof(int32_t));
    p->edge_rows = dfgnn__place(
        at, job->args.out_src ? edges * dfgnn__mlp_padded(mlp, last) : 0, size);
    return;
  }
  p->grad_first = dfgnn__place(at, edges * dfgnn__mlp_padded(mlp, 0), size);
  p->norm_partial = dfgnn__place(
      at, (int64_t)p->units * p->warps * 2 * dfgnn__mlp_padded(mlp, last),
      sizeof(float));
  p->weight_partial =
      dfgnn__place(at, (int64_t)p->splits * p->weight_tiles * MLP_WEIGHT_TILE,
                   sizeof(float));
  if (dfgnn__mlp_copies_edges(p))
    p->input[0] = dfgnn__place(at, kept * dfgnn__mlp_padded(mlp, -1), size);
  for (int l = 1; l < mlp->layers; l++) {
    p->input[l] = dfgnn__place(at, kept * dfgnn__mlp_padded(mlp, l - 1), size);
    p->grad_z[l] = dfgnn__place(at, kept * dfgnn__mlp_padded(mlp, l), size);
    p->z[l - 1] = dfgnn__place(at, kept * dfgnn__mlp_padded(mlp, l - 1), size);
  }
}

dfgnn_mlp_plan dfgnn__mlp_plan(const dfgnn_mlp_job *job,
                               const dfgnn_device_info *device,
                               const dfgnn_mlp_tuning *tuning) {
  const dfgnn_edge_mlp *mlp = &job->mlp;
  const int backward = job->pass == DFGNN_PASS_BACKWARD;
  dfgnn_mlp_plan p = {.job = job,
                      .units = device->units > 0 ? device->units : 1};
  p.flags =
      (is_vector(job) ? MLP_VECTOR : 0) | (mlp->residual ? MLP_RESIDUAL : 0) |
      (mlp->dtype == DFGNN_F32 && mlp->math != DFGNN_MATH_TF32 ? MLP_EXACT
                                                               : 0) |
      (backward && dfgnn__mlp_wants_weights(job) ? MLP_KEEP : 0) |
      (job->args.grad_edge_out ? MLP_GRAD_EDGES : 0) |
      (job->args.grad_out_dst ? MLP_GRAD_DST : 0) |
      (job->args.grad_out_src ? MLP_GRAD_SRC : 0) |
      (job->args.grad_dst_factor || job->args.grad_src_factor ? MLP_GRAD_FACTORS
                                                              : 0) |
      (mlp->reduce_dst == DFGNN_REDUCE_MAX   ? MLP_MAX
       : mlp->reduce_dst == DFGNN_REDUCE_MIN ? MLP_MIN
                                             : 0);
  p.packed_bytes = packed_bytes(mlp);
  p.warps = tuning->warps                         ? tuning->warps
            : backward || mlp->dtype == DFGNN_F32 ? WARPS
                                                  : WARPS_FORWARD;
  while (p.warps > 1 &&
         shared_bytes(mlp, p.warps) > (size_t)device->shared_bytes)
    p.warps /= 2;
  p.shared_bytes = shared_bytes(mlp, p.warps);
  for (int l = 0; l < mlp->layers; l++)
    p.weight_tiles += tiles_along(dfgnn__mlp_padded(mlp, l)) *
                      tiles_along(dfgnn__mlp_padded(mlp, l - 1));
  p.splits = (int)at_least_one(2 * p.units / p.weight_tiles);
  divide(&p, tuning);
  place(&p);
  return p;
}

/* ---- what is served ------------------------------------------------------ */

static int capability(const dfgnn_device_info *device) {
  return strncmp(device->arch, "sm_", 3) ? 0 : atoi(device->arch + 3);
}

const char *dfgnn__mlp_cuda_missing(const dfgnn_mlp_job *job,
                                    const dfgnn_device_info *device) {
  const dfgnn_edge_mlp *mlp = &job->mlp;
  if (capability(device) < 80)
    return "MLPs on edges need tensor cores of sm_80 or later";
  if (mlp->dtype == DFGNN_F64)
    return "MLPs on edges of type f64 have no CUDA kernels, expected f32, f16 "
           "or bf16";
  if (mlp->gate)
    return "gated MLPs on edges have no CUDA kernels";
  if (dfgnn__mlp_is_extreme(mlp->reduce_src))
    return "the CUDA kernels of MLPs on edges reduce at sources by sum and "
           "mean, not by max and min";
  for (int l = -1; l < mlp->layers; l++)
    if (dfgnn__mlp_padded(mlp, l) > MOST_WIDTH)
      return "the CUDA kernels of MLPs on edges serve widths up to 128";
  if (shared_bytes(mlp, 4) > (size_t)device->shared_bytes)
    return "the weights of the MLP do not fit into a block's shared memory";
  return NULL;
}
