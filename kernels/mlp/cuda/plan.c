#include "kernels/mlp/cuda/plan.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/common/cublaslt.h"
#include "kernels/common/cuda_host.h"
#include "kernels/mlp/cuda/params.h"

enum {
  MOST_RESIDENT = 128, /* sums of a tile stay in registers */
  /* Registers of a thread for 12 warps hold a tile of 16-bit types in the
   * forward pass alone; 8 were faster backward on an H200 (1.80 against 1.98 ms
   * of both passes of tools/bench/python_mlp.py's first block). */
  WARPS = 8,
  WARPS_FORWARD = 12,
  WIDE = 256, /* a layer that a library multiplies faster than our kernels */
  /* Backward .93 of the time of 128 MiB, and .90 of it with inner values that
   * are kept, of 328 k edges of 128 in bf16 on an H100 (dfgnn-bench --mlp). */
  RESIDENT_LAUNCH = 512 << 20,
  STREAMED_LAUNCH = 192 << 20,
  /* Backward .87 of the time of 192 MiB, and .91 of that of 256, of 328 k edges
   * of 512 in bf16 on an H100 (dfgnn-bench --mlp). */
  LIBRARY_LAUNCH = 512 << 20
};

#define KNOB(member, ways_, ...)                                               \
  {                                                                            \
    .name = #member, .offset = offsetof(dfgnn_mlp_tuning, member),             \
    .ways = ways_, .count = (int)(sizeof((int[]){__VA_ARGS__}) / sizeof(int)), \
    .value = {                                                                 \
      __VA_ARGS__                                                              \
    }                                                                          \
  }
enum { RESIDENT = 1 << DFGNN_MLP_RESIDENT, STREAMED = 1 << DFGNN_MLP_STREAMED };
const dfgnn_mlp_knob dfgnn__mlp_knobs[DFGNN_MLP_KNOBS] = {
    KNOB(way, RESIDENT | STREAMED, DFGNN_MLP_RESIDENT, DFGNN_MLP_STREAMED),
    KNOB(warps, RESIDENT, 4, 8, 12, 16),
    KNOB(span, RESIDENT, 4, 16, 64),
    KNOB(lockstep, RESIDENT, DFGNN_MLP_FREE, DFGNN_MLP_LOCKSTEP),
    KNOB(product, STREAMED, DFGNN_MLP_OWN, DFGNN_MLP_LIBRARY),
    KNOB(columns, STREAMED, 128, 256),
    KNOB(stages, STREAMED, 2, 3, 4),
    KNOB(wgmma, RESIDENT | STREAMED, DFGNN_MLP_MMA, DFGNN_MLP_WGMMA),
    KNOB(launch_bytes, RESIDENT | STREAMED, 32 << 20, 64 << 20, 128 << 20,
         256 << 20, 512 << 20),
};

static int64_t at_least_one(int64_t x) { return x < 1 ? 1 : x; }
static int64_t round_up(int64_t x, int64_t to) {
  return dfgnn__ceil_div(x, to) * to;
}
static int is_backward(const dfgnn_mlp_job *job) {
  return job->pass == DFGNN_PASS_BACKWARD;
}

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

/* Do all tensors of rows begin at multiples of 16 bytes? */
static int is_aligned(const dfgnn_mlp_job *job) {
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

int dfgnn__mlp_has_vector_rows(const dfgnn_mlp_job *job) {
  const dfgnn_edge_mlp *mlp = &job->mlp;
  const int chunk = MLP_CHUNK / (int)dfgnn_dtype_size(mlp->dtype);
  return is_aligned(job) && mlp->edge_dim % chunk == 0 &&
         mlp->width[0] % chunk == 0 && dfgnn__mlp_out_width(mlp) % chunk == 0;
}

int dfgnn__mlp_copies_edges(const dfgnn_mlp_plan *plan) {
  const dfgnn_edge_mlp *mlp = &plan->job->mlp;
  const int chunk = MLP_CHUNK / (int)dfgnn_dtype_size(mlp->dtype);
  return mlp->edge_dim &&
         (!(plan->flags & MLP_VECTOR) || mlp->edge_dim % chunk ||
          (dfgnn__mlp_by_library(plan) && plan->job->rows.edge_order));
}

static int flags_of(const dfgnn_mlp_plan *p) {
  const dfgnn_edge_mlp *mlp = &p->job->mlp;
  const dfgnn_edge_mlp_args *a = &p->job->args;
  /* Resident kernels know widths when they are compiled; streamed ones are told
   * by the flag. */
  const int vector = p->by.way == DFGNN_MLP_RESIDENT
                         ? is_aligned(p->job)
                         : dfgnn__mlp_has_vector_rows(p->job);
  return (vector ? MLP_VECTOR : 0) | (mlp->residual ? MLP_RESIDUAL : 0) |
         (mlp->dtype == DFGNN_F32 && mlp->math != DFGNN_MATH_TF32 ? MLP_EXACT
                                                                  : 0) |
         (is_backward(p->job) && dfgnn__mlp_wants_weights(p->job) ? MLP_WEIGHTS
                                                                  : 0) |
         (a->grad_edge_out ? MLP_GRAD_EDGES : 0) |
         (a->grad_out_dst ? MLP_GRAD_DST : 0) |
         (a->grad_out_src ? MLP_GRAD_SRC : 0) |
         (a->grad_dst_factor || a->grad_src_factor ? MLP_GRAD_FACTORS : 0) |
         (mlp->reduce_dst == DFGNN_REDUCE_MAX   ? MLP_MAX
          : mlp->reduce_dst == DFGNN_REDUCE_MIN ? MLP_MIN
                                                : 0) |
         (mlp->gate ? MLP_GATE : 0) |
         (p->by.lockstep == DFGNN_MLP_LOCKSTEP ? MLP_LOCKSTEP : 0) |
         (dfgnn__mlp_is_kept(p->job) ? MLP_KEPT : 0) |
         (dfgnn__mlp_by_library(p) || dfgnn__mlp_is_kept(p->job)
              ? MLP_STORED_LAST
              : 0) |
         (dfgnn__mlp_by_library(p) && mlp->dtype == DFGNN_F32 ? MLP_ROUND : 0) |
         (dfgnn__mlp_by_library(p) && a->grad_bias[mlp->layers - 1]
              ? MLP_LAST_BIAS
              : 0);
}

/* ---- shared memory ------------------------------------------------------- */

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

static size_t resident_bytes(const dfgnn_edge_mlp *mlp, int64_t warps) {
  return packed_bytes(mlp) + (size_t)warps * MLP_TILE * MLP_STAGE_ROW;
}

/* product_bytes and layer_numbers of layers.cuh are the same. */
static size_t streamed_bytes(const dfgnn_mlp_tuning *t) {
  const int64_t stages = t->stages * (MLP_ROWS + t->columns) * MLP_STEP;
  const int64_t sums = MLP_ROWS * (t->columns + 8) * (int64_t)sizeof(float);
  const int64_t align = t->wgmma == DFGNN_MLP_WGMMA ? 1024 : 0;
  return (size_t)((stages > sums ? stages : sums) + MLP_ROWS * 16 +
                  t->columns * (int64_t)sizeof(float) + align);
}

/* ---- what is served ------------------------------------------------------ */

static int capability(const dfgnn_device_info *device) {
  return strncmp(device->arch, "sm_", 3) ? 0 : atoi(device->arch + 3);
}

/* NULL if the weights may be resident. */
static const char *not_resident(const dfgnn_mlp_job *job,
                                const dfgnn_device_info *device) {
  const dfgnn_edge_mlp *mlp = &job->mlp;
  if (mlp->gate)
    return "a gated MLP is not resident";
  if (dfgnn__mlp_is_extreme(mlp->reduce_src))
    return "an MLP with max or min at sources is not resident";
  if (mlp->layers == 1 && dfgnn__mlp_is_kept(job))
    return "an MLP of one layer that keeps inner values is not resident";
  for (int l = -1; l < mlp->layers; l++)
    if (dfgnn__mlp_padded(mlp, l) > MOST_RESIDENT)
      return "an MLP wider than 128 is not resident";
  if (resident_bytes(mlp, 4) > (size_t)device->shared_bytes)
    return "the weights of the MLP do not fit into a block's shared memory";
  return NULL;
}

/* Does a tuning say how our own products are divided? */
static int asks_for_own(const dfgnn_mlp_tuning *t) {
  return t->columns || t->stages || t->wgmma;
}

/* NULL if a library may multiply for streamed launches. */
static const char *not_by_library(const dfgnn_mlp_job *job) {
  const dfgnn_edge_mlp *mlp = &job->mlp;
  if (mlp->dtype == DFGNN_F32 && mlp->math != DFGNN_MATH_TF32)
    return "cuBLASLt multiplies for an MLP of f32 where TF32 is allowed";
  for (int l = -1; l < mlp->layers; l++)
    if (dfgnn__mlp_padded(mlp, l) != (l < 0 ? mlp->edge_dim : mlp->width[l]) ||
        dfgnn__mlp_out_width(mlp) % dfgnn__mlp_group(mlp->dtype))
      return "cuBLASLt multiplies for an MLP whose rows are whole multiples of "
             "64 bytes";
  if (!dfgnn__has_cublaslt())
    return "libcublasLt was not found (DFGNN_CUBLASLT names it)";
  return NULL;
}

/* Do all operands of a library's products begin at multiples of 16 bytes? */
static int has_aligned_operands(const dfgnn_mlp_job *job) {
  for (int l = 0; l < job->mlp.layers; l++)
    if ((uintptr_t)job->args.weight[l] % MLP_CHUNK ||
        (uintptr_t)job->args.grad_weight[l] % MLP_CHUNK)
      return 0;
  return is_aligned(job);
}

const char *dfgnn__mlp_cuda_missing(const dfgnn_mlp_job *job,
                                    const dfgnn_device_info *device) {
  const dfgnn_mlp_tuning least = {.columns = 128, .stages = 2};
  if (capability(device) < 80)
    return "MLPs on edges need tensor cores of sm_80 or later";
  if (job->mlp.dtype == DFGNN_F64)
    return "MLPs on edges of type f64 have no CUDA kernels, expected f32, f16 "
           "or bf16";
  for (int l = 0; l < DFGNN_MLP_LAYERS; l++)
    if ((uintptr_t)job->args.kept[l] % 64)
      return "args.kept begins at no multiple of 64 bytes";
  if ((job->args.grad_dst_factor || job->args.grad_src_factor) &&
      dfgnn__mlp_is_kept(job) && !job->args.kept[job->mlp.layers - 1])
    return "the gradients of factors of edges read the last layer's z, which "
           "is "
           "not kept";
  if (not_resident(job, device) &&
      streamed_bytes(&least) > (size_t)device->shared_bytes)
    return "a block of the device has too little shared memory for MLPs on "
           "edges";
  return NULL;
}

/* Is a value 0, or one from least to most? */
static int is_in(int64_t value, int64_t least, int64_t most) {
  return !value || (value >= least && value <= most);
}

const char *dfgnn__mlp_cuda_refuses(const dfgnn_mlp_job *job,
                                    const dfgnn_device_info *device,
                                    const dfgnn_mlp_tuning *tuning) {
  const char *missing = dfgnn__mlp_cuda_missing(job, device);
  if (missing)
    return missing;
  if (!is_in(tuning->way, DFGNN_MLP_RESIDENT, DFGNN_MLP_STREAMED))
    return "way is neither 1 (resident) nor 2 (streamed)";
  if (!is_in(tuning->warps, 1, 32))
    return "warps is not 1 to 32";
  if (!is_in(tuning->span, 1, INT32_MAX))
    return "span is not 1 to 2^31 - 1";
  if (!is_in(tuning->lockstep, DFGNN_MLP_FREE, DFGNN_MLP_LOCKSTEP))
    return "lockstep is neither 1 (free) nor 2 (lockstep)";
  if (!is_in(tuning->product, DFGNN_MLP_OWN, DFGNN_MLP_LIBRARY))
    return "product is neither 1 (own) nor 2 (library)";
  if (tuning->product == DFGNN_MLP_LIBRARY && asks_for_own(tuning))
    return "columns, stages and wgmma are for own products";
  if (tuning->columns && tuning->columns != 128 && tuning->columns != 256)
    return "columns is neither 128 nor 256";
  if (!is_in(tuning->stages, 2, 4))
    return "stages is not 2 to 4";
  if (!is_in(tuning->wgmma, DFGNN_MLP_MMA, DFGNN_MLP_WGMMA))
    return "wgmma is neither 1 (mma) nor 2 (wgmma)";
  if (tuning->wgmma == DFGNN_MLP_WGMMA &&
      (capability(device) != 90 || job->mlp.dtype == DFGNN_F32))
    return "wgmma is for 16-bit types on sm_90";
  if (!is_in(tuning->launch_bytes, 1, INT64_MAX))
    return "launch_bytes is negative";
  const dfgnn_mlp_tuning t = dfgnn__mlp_rule(job, device, tuning);
  if (t.way == DFGNN_MLP_RESIDENT)
    return not_resident(job, device);
  if (t.product == DFGNN_MLP_LIBRARY)
    return not_by_library(job);
  return streamed_bytes(&t) > (size_t)device->shared_bytes
             ? "columns and stages take more shared memory than a block has"
             : NULL;
}

/* ---- the rule ------------------------------------------------------------ */

static void choose(int64_t *member, int64_t value) {
  if (!*member)
    *member = value;
}

int dfgnn__mlp_is_wide(const dfgnn_edge_mlp *mlp) {
  for (int l = 0; l < mlp->layers; l++)
    if (mlp->width[l] >= WIDE && dfgnn__mlp_in_width(mlp, l) >= WIDE)
      return 1;
  return 0;
}

dfgnn_mlp_tuning dfgnn__mlp_rule(const dfgnn_mlp_job *job,
                                 const dfgnn_device_info *device,
                                 const dfgnn_mlp_tuning *tuning) {
  const dfgnn_edge_mlp *mlp = &job->mlp;
  const int backward = is_backward(job);
  dfgnn_mlp_tuning t = tuning ? *tuning : (dfgnn_mlp_tuning){0};
  choose(&t.way,
         not_resident(job, device) ? DFGNN_MLP_STREAMED : DFGNN_MLP_RESIDENT);
  choose(&t.warps, backward || mlp->dtype == DFGNN_F32 ? WARPS : WARPS_FORWARD);
  while (t.warps > 1 &&
         resident_bytes(mlp, t.warps) > (size_t)device->shared_bytes)
    t.warps /= 2;
  choose(&t.lockstep, DFGNN_MLP_FREE);
  choose(&t.product, t.way == DFGNN_MLP_STREAMED && !asks_for_own(&t) &&
                             dfgnn__mlp_is_wide(mlp) && !not_by_library(job)
                         ? DFGNN_MLP_LIBRARY
                         : DFGNN_MLP_OWN);
  if (!has_aligned_operands(job))
    t.product = DFGNN_MLP_OWN;
  choose(&t.launch_bytes, t.way == DFGNN_MLP_RESIDENT      ? RESIDENT_LAUNCH
                          : t.product == DFGNN_MLP_LIBRARY ? LIBRARY_LAUNCH
                                                           : STREAMED_LAUNCH);
  choose(&t.columns, 128);
  if (!t.stages) {
    t.stages = 3;
    if (streamed_bytes(&t) > (size_t)device->shared_bytes)
      t.stages = 2;
  }
  choose(&t.wgmma, DFGNN_MLP_MMA);
  return t;
}

/* ---- sizes --------------------------------------------------------------- */

static int tiles_along(int width) {
  return width > MLP_SIDE ? (width + MLP_SIDE - 1) / MLP_SIDE : 1;
}

/* Bytes of a number of the last layer's z. */
static size_t last_size(const dfgnn_mlp_plan *p) {
  return p->flags & MLP_STORED_LAST ? dfgnn_dtype_size(p->job->mlp.dtype)
                                    : sizeof(float);
}

static int widest(const dfgnn_edge_mlp *mlp) {
  int most = dfgnn__mlp_padded(mlp, -1);
  for (int l = 0; l < mlp->layers; l++)
    if (dfgnn__mlp_padded(mlp, l) > most)
      most = dfgnn__mlp_padded(mlp, l);
  return most;
}

/* Bytes that a launch leaves of each edge: rows of e, z, what layers read, and
 * gradients with respect to z. */
static size_t bytes_of_edge(const dfgnn_mlp_plan *p) {
  const dfgnn_edge_mlp *mlp = &p->job->mlp;
  const int last = mlp->layers - 1, backward = is_backward(p->job);
  const int computes_z = backward && !dfgnn__mlp_is_kept(p->job);
  size_t numbers =
      dfgnn__mlp_copies_edges(p) ? (size_t)dfgnn__mlp_padded(mlp, -1) : 0;
  for (int l = 1; l <= last; l++) {
    const size_t before = (size_t)dfgnn__mlp_padded(mlp, l - 1);
    numbers += before + (computes_z ? before : 0) +
               (backward ? (size_t)dfgnn__mlp_padded(mlp, l) : 0);
  }
  if (dfgnn__mlp_by_library(p))
    return (numbers + (size_t)widest(mlp)) * dfgnn_dtype_size(mlp->dtype);
  return numbers * dfgnn_dtype_size(mlp->dtype) +
         (p->by.way == DFGNN_MLP_STREAMED
              ? (size_t)dfgnn__mlp_padded(mlp, last) * last_size(p)
              : 0);
}

/* Every warp has one span; in the backward pass one in each launch. */
static void divide_resident(dfgnn_mlp_plan *p) {
  const int64_t tiles = dfgnn__ceil_div(p->job->rows.edges, MLP_TILE);
  const int64_t warps = p->units * p->by.warps;
  int64_t launches = 1;
  if (is_backward(p->job)) {
    const int64_t round = warps * MLP_TILE * (int64_t)bytes_of_edge(p);
    const int64_t rounds =
        at_least_one(round ? p->by.launch_bytes / round : tiles);
    launches = at_least_one(dfgnn__ceil_div(tiles, rounds * warps));
  }
  choose(&p->by.span, at_least_one(dfgnn__ceil_div(tiles, launches * warps)));
  p->edges_of_span = p->by.span * MLP_TILE;
  p->spans = at_least_one(dfgnn__ceil_div(tiles, p->by.span));
  p->edges_of_launch =
      at_least_one(dfgnn__ceil_div(p->spans, launches)) * p->edges_of_span;
}

/* A launch has a block of edges for each multiprocessor, or a multiple of it;
 * fewer if not even that fits into launch_bytes. */
static void divide_streamed(dfgnn_mlp_plan *p) {
  const int64_t edges = p->job->rows.edges, round = p->units * MLP_ROWS;
  const int64_t most = p->by.launch_bytes / (int64_t)bytes_of_edge(p);
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

int64_t dfgnn__mlp_table_rows(const dfgnn_mlp_plan *plan, int l,
                              int transposed) {
  const dfgnn_edge_mlp *mlp = &plan->job->mlp;
  return round_up(transposed ? dfgnn__mlp_in_width(mlp, l) : mlp->width[l],
                  plan->by.columns);
}

int64_t dfgnn__mlp_table_stride(const dfgnn_mlp_plan *plan, int l,
                                int transposed) {
  const dfgnn_edge_mlp *mlp = &plan->job->mlp;
  return round_up(transposed ? mlp->width[l] : dfgnn__mlp_in_width(mlp, l),
                  MLP_STEP / (int)dfgnn_dtype_size(mlp->dtype));
}

int dfgnn__mlp_table_kinds(const dfgnn_mlp_plan *plan) {
  return dfgnn__mlp_by_library(plan) ? (plan->flags & MLP_ROUND) != 0
                                     : 1 + is_backward(plan->job);
}

static void place_weights(dfgnn_mlp_plan *p) {
  const dfgnn_edge_mlp *mlp = &p->job->mlp;
  if (p->by.way == DFGNN_MLP_RESIDENT) {
    p->packed = dfgnn__place(&p->bytes, (int64_t)p->packed_bytes, 1);
    return;
  }
  if (dfgnn__mlp_by_library(p))
    p->gemm = dfgnn__place(&p->bytes, DFGNN_GEMM_WORKSPACE, 1);
  for (int back = 0; back < dfgnn__mlp_table_kinds(p); back++)
    for (int l = 0; l < mlp->layers; l++)
      p->table[back * DFGNN_MLP_LAYERS + l] =
          dfgnn__place(&p->bytes,
                       dfgnn__mlp_table_rows(p, l, back) *
                           dfgnn__mlp_table_stride(p, l, back),
                       dfgnn_dtype_size(mlp->dtype));
}

/* Places the values that kernels of a launch leave for each other.  The z of
 * the layers is not among them where inner values are kept. */
static void place_launch(dfgnn_mlp_plan *p) {
  const dfgnn_edge_mlp *mlp = &p->job->mlp;
  const int streamed = p->by.way == DFGNN_MLP_STREAMED;
  const int last = mlp->layers - 1, backward = is_backward(p->job);
  const size_t size = dfgnn_dtype_size(mlp->dtype);
  const int64_t edges = round_up(p->job->rows.edges, MLP_ROWS);
  const int64_t kept = p->edges_of_launch < edges ? p->edges_of_launch : edges;
  size_t *at = &p->bytes;
  if (dfgnn__mlp_by_library(p))
    p->last = p->sums = dfgnn__place(at, kept * widest(mlp), size);
  else if (streamed)
    p->last =
        dfgnn__place(at, kept * dfgnn__mlp_padded(mlp, last), last_size(p));
  if (!streamed && !backward)
    return;
  if (dfgnn__mlp_copies_edges(p))
    p->input[0] = dfgnn__place(at, kept * dfgnn__mlp_padded(mlp, -1), size);
  for (int l = 1; l <= last; l++) {
    p->input[l] = dfgnn__place(at, kept * dfgnn__mlp_padded(mlp, l - 1), size);
    if (!backward)
      continue;
    p->grad_z[l] = dfgnn__place(at, kept * dfgnn__mlp_padded(mlp, l), size);
    if (!dfgnn__mlp_is_kept(p->job))
      p->z[l - 1] =
          dfgnn__place(at, kept * dfgnn__mlp_padded(mlp, l - 1), size);
  }
}

static void place_forward(dfgnn_mlp_plan *p) {
  const dfgnn_mlp_job *job = p->job;
  const int padded = dfgnn__mlp_padded(&job->mlp, job->mlp.layers - 1);
  const int extreme = dfgnn__mlp_is_extreme(job->mlp.reduce_dst);
  p->partial = dfgnn__place(&p->bytes, p->spans * 2 * padded, sizeof(float));
  p->partial_arg = dfgnn__place(&p->bytes, extreme ? p->spans * 2 * padded : 0,
                                sizeof(int32_t));
  p->edge_rows =
      dfgnn__place(&p->bytes, job->args.out_src ? job->rows.edges * padded : 0,
                   dfgnn_dtype_size(job->mlp.dtype));
}

int dfgnn__mlp_bias_parts(const dfgnn_mlp_plan *p, int l) {
  const int64_t blocks = dfgnn__ceil_div(p->edges_of_launch < p->job->rows.edges
                                             ? p->edges_of_launch
                                             : p->job->rows.edges,
                                         MLP_ROWS);
  const int64_t walkers = MLP_ROW_BLOCKS * (int64_t)p->units;
  return (int)(l == p->job->mlp.layers - 1 && walkers < blocks ? walkers
                                                               : blocks);
}

static void place_backward(dfgnn_mlp_plan *p) {
  const dfgnn_mlp_job *job = p->job;
  const dfgnn_edge_mlp *mlp = &job->mlp;
  const int streamed = p->by.way == DFGNN_MLP_STREAMED;
  const int first = dfgnn__mlp_padded(mlp, 0);
  const int padded = dfgnn__mlp_padded(mlp, mlp->layers - 1);
  /* Sums of destinations that spans cut, and of the norm's gradients. */
  const int64_t spans = streamed ? 0 : p->spans;
  const int64_t walkers =
      p->units *
      (streamed || dfgnn__mlp_is_kept(job) ? MLP_ROW_BLOCKS : p->by.warps);
  p->partial = dfgnn__place(&p->bytes, spans * 2 * first, sizeof(float));
  p->grad_first = dfgnn__place(&p->bytes, job->rows.edges * first,
                               dfgnn_dtype_size(mlp->dtype));
  p->norm_partial =
      dfgnn__place(&p->bytes, walkers * 2 * padded, sizeof(float));
  p->weight_partial =
      dfgnn__place(&p->bytes,
                   dfgnn__mlp_by_library(p)
                       ? 0
                       : (int64_t)p->splits * p->weight_tiles * MLP_WEIGHT_TILE,
                   sizeof(float));
  for (int l = 0; dfgnn__mlp_by_library(p) && l < mlp->layers; l++)
    p->bias_partial[l] = dfgnn__place(
        &p->bytes, dfgnn__mlp_bias_parts(p, l) * mlp->width[l], sizeof(float));
  p->position = dfgnn__place(&p->bytes,
                             job->args.grad_out_src &&
                                     dfgnn__mlp_is_extreme(mlp->reduce_src)
                                 ? job->rows.edges
                                 : 0,
                             sizeof(int32_t));
}

/* ---- plans --------------------------------------------------------------- */

dfgnn_mlp_plan dfgnn__mlp_plan(const dfgnn_mlp_job *job,
                               const dfgnn_device_info *device,
                               const dfgnn_mlp_tuning *tuning) {
  const dfgnn_edge_mlp *mlp = &job->mlp;
  dfgnn_mlp_plan p = {.job = job,
                      .by = dfgnn__mlp_rule(job, device, tuning),
                      .units = device->units > 0 ? device->units : 1};
  const int streamed = p.by.way == DFGNN_MLP_STREAMED;
  p.flags = flags_of(&p);
  p.packed_bytes = packed_bytes(mlp);
  p.shared_bytes =
      streamed ? streamed_bytes(&p.by) : resident_bytes(mlp, p.by.warps);
  for (int l = 0; l < mlp->layers; l++)
    p.weight_tiles += tiles_along(dfgnn__mlp_padded(mlp, l)) *
                      tiles_along(dfgnn__mlp_padded(mlp, l - 1));
  p.splits = (int)at_least_one(2 * p.units / p.weight_tiles);
  if (streamed)
    divide_streamed(&p);
  else
    divide_resident(&p);
  place_weights(&p);
  if (is_backward(job))
    place_backward(&p);
  else
    place_forward(&p);
  place_launch(&p);
  return p;
}
