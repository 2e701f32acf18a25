/* edges_weight.c - the gradients of W, its bias and att: a kernel leaves the
 * sums of each block, and another adds those up */
#include "kernels/attention/cuda/edges_plans.h"

/* ---- products of whole rows: edges_weight.cuh ---------------------------- */

enum {
  WEIGHT_ROWS = 8,
  WEIGHT_BLOCKS = 3,
  TILE_FEATURES = 16,
  STATIC_SHARED = 64 /* bytes, at most, that tell which rows have edges */
};

/* The constants of edge_outer<> (edges_weight.cuh). */
typedef struct weight_shape {
  int head_lanes, states, heads, units, slices, pitch, chunk, blocks, staged;
  size_t shared;
} weight_shape;

static weight_shape weight_layout(const dfgnn_problem *problem, int width) {
  /* Sums that a thread holds in registers. */
  enum { SUMS = 48, SUMS_DOUBLE = 24 };
  const int head_units = (int)dfgnn__ceil_div(problem->dim, TILE_FEATURES);
  const int columns = (int)dfgnn__ceil_div(width, 8);
  const int each = SUMS / (columns * 4) > 0 ? SUMS / (columns * 4) : 1;
  int units = each * WEIGHT_ROWS;
  weight_shape s = {.heads = 1};
  if (problem->dtype == DFGNN_F64) {
    units = SUMS_DOUBLE * WEIGHT_ROWS * 32 / (TILE_FEATURES * width);
    units = units > 0 ? units : 1;
  }
  if (units >= head_units) {
    const int64_t fit = units / head_units;
    s.slices = (int)dfgnn__ceil_div(problem->heads, fit);
    s.heads = (int)dfgnn__ceil_div(problem->heads, s.slices);
    s.units = s.heads * head_units;
  } else {
    s.units = units;
    s.slices = (int)problem->heads * (int)dfgnn__ceil_div(head_units, units);
  }
  const int slots = dfgnn__ceil_power(s.heads);
  s.head_lanes = slots < 32 ? 32 / slots : 1;
  s.states = slots < 32 ? 1 : (int)dfgnn__ceil_div(s.heads, 32);
  const int share = (int)dfgnn__ceil_div(width, s.head_lanes);
  s.pitch = s.head_lanes * (share <= 1 ? 1 : (share + 1) / 2 * 2);
  s.chunk = s.pitch <= 16 ? 32 : s.pitch <= 32 ? 16 : 8;
  return s;
}

static weight_shape weight_shape_of(const dfgnn_setting *setting, int ones) {
  const dfgnn_problem *problem = setting->problem;
  const int width = dfgnn__edges_width(problem, ones);
  weight_shape s = weight_layout(problem, width);
  const int64_t row = dfgnn__ceil_div(s.heads * s.pitch, 32) * 32 + 8;
  const size_t sums = dfgnn__scalar_size(problem->dtype) * WEIGHT_ROWS *
                      (size_t)(2 * row + s.chunk * s.pitch);
  const size_t rows =
      dfgnn_dtype_size(problem->dtype) * 2 * WEIGHT_ROWS *
      (size_t)(s.heads * problem->dim + dfgnn__wide_vector(problem->dtype));
  const size_t all = (size_t)setting->device->shared_bytes - STATIC_SHARED;
  s.staged = sums + rows <= all;
  s.shared = sums + (s.staged ? rows : 0);
  s.blocks = problem->dtype == DFGNN_F64 ? 1 : WEIGHT_BLOCKS;
  while (s.blocks > 1 && (s.shared + 1024) * (size_t)s.blocks > all + 1024)
    s.blocks--;
  return s;
}

/* The number of blocks that share the rows out; each leaves a sum of the size
 * of W, or of a slice of it. */
static int64_t weight_blocks(const dfgnn_setting *s, const weight_shape *w,
                             int item_edges) {
  const int64_t tiles =
      dfgnn__ceil_div(dfgnn__edges_units(s, item_edges), WEIGHT_ROWS);
  const int64_t share =
      dfgnn__ceil_div(w->blocks * s->device->units, w->slices);
  return tiles < share ? (tiles > 0 ? tiles : 1) : share;
}

static dfgnn_status sum_products(const edges_params *p, const edges_plan *sums,
                                 const weight_shape *w, int ones,
                                 int64_t blocks, const dfgnn_launch *launch) {
  const dfgnn_problem *problem = launch->setting.problem;
  const int vector = dfgnn__vector_width(problem);
  const int vectors = dfgnn__edges_vectors(p, problem, vector);
  const edges_shape shape = {.vector = vectors ? vector : 1,
                             .packed = vectors,
                             .head_lanes = w->head_lanes,
                             .states = w->states,
                             .staged = w->staged};
  const edges_plan plan = {.term = EDGES_PRODUCTS,
                           .lanes = 32,
                           .unroll = 1,
                           .warps = WEIGHT_ROWS,
                           .blocks = w->blocks};
  edge_constants k = dfgnn__edges_constants(problem, &plan, &shape, ones,
                                            sums->item_edges ? EDGE_ITEMS : 0);
  k.slice = w->units;
  k.slice_heads = w->heads;
  const dfgnn_program program =
      DFGNN_PROGRAM_OF("kernels/attention/cuda/edges_weight.cuh",
                       "dfgnn::edge_weight_gradient", EDGE_CONSTANTS, &k);
  return dfgnn__launch_struct(
      launch->setting.queue, &program,
      (dfgnn_grid){.blocks = {(unsigned)blocks, (unsigned)w->slices},
                   .threads = WEIGHT_ROWS * 32,
                   .shared = (unsigned)w->shared},
      p);
}

/* ---- W e in the lanes: edges_weight_rows.cuh ----------------------------- */

static dfgnn_status sum_rows(const edges_params *p, const edges_plan *plan,
                             const edges_shape *shape, int ones,
                             unsigned blocks, const dfgnn_launch *launch) {
  const dfgnn_problem *problem = launch->setting.problem;
  const int width = dfgnn__edges_width(problem, ones);
  const int slices = width > 0 ? (int)dfgnn__ceil_div(width, shape->slice) : 1;
  edge_constants k = dfgnn__edges_constants(problem, plan, shape, ones, 0);
  k.slice = shape->slice;
  const dfgnn_program program =
      DFGNN_PROGRAM_OF("kernels/attention/cuda/edges_weight_rows.cuh",
                       "dfgnn::edge_weight_sums", EDGE_CONSTANTS, &k);
  return dfgnn__launch_struct(
      launch->setting.queue, &program,
      (dfgnn_grid){.blocks = {blocks, (unsigned)slices, (unsigned)shape->tiles},
                   .threads = (unsigned)plan->warps * 32,
                   .shared = (unsigned)shape->shared},
      p);
}

/* ---- both ---------------------------------------------------------------- */

const char *dfgnn__edges_weight_refusal(const dfgnn_setting *s) {
  if (dfgnn__edges_term(s->problem) != EDGES_PRODUCTS)
    return NULL;
  const weight_shape w = weight_shape_of(s, 1);
  if (w.slices > DFGNN_GRID_Y_MAX)
    return "a lane would hold more than registers can";
  if (w.shared + STATIC_SHARED > (size_t)s->device->shared_bytes)
    return "a block needs more shared memory than there is";
  return NULL;
}

int64_t dfgnn__edges_weight_totals(const dfgnn_setting *s,
                                   const edges_plan *sums) {
  const dfgnn_problem *problem = s->problem;
  const int64_t rows = problem->heads * problem->dim;
  const int width = dfgnn__edges_width(problem, 1);
  if (dfgnn__edges_term(problem) == EDGES_PRODUCTS) {
    const weight_shape with = weight_shape_of(s, 1), w = weight_shape_of(s, 0);
    const int64_t most = weight_blocks(s, &with, sums->item_edges);
    const int64_t blocks = weight_blocks(s, &w, sums->item_edges);
    return (most > blocks ? most : blocks) * rows * width;
  }
  if (problem->op != DFGNN_OP_GATV2)
    return 0;
  const int64_t blocks =
      dfgnn__edges_blocks(s, sums, dfgnn__edges_units(s, sums->item_edges));
  return (blocks > s->device->units ? blocks : s->device->units) * rows *
         (width + 1);
}

dfgnn_status dfgnn__edges_weight(const edges_params *p, const edges_plan *sums,
                                 const dfgnn_launch *launch) {
  const dfgnn_setting *setting = &launch->setting;
  const dfgnn_problem *problem = setting->problem;
  const dfgnn_args *a = launch->args;
  const int products = dfgnn__edges_term(problem) == EDGES_PRODUCTS;
  const int width = dfgnn__edges_width(problem, 0);
  const int ones = products ? a->grad_edge_bias != NULL
                            : width > 0 && (p->constant || a->grad_edge_bias);
  edges_total_params t = {.totals = p->totals,
                          .weight = a->grad_edge_projection,
                          .constant = a->grad_edge_bias,
                          .att = products ? NULL : a->grad_att,
                          .features = problem->heads * problem->dim,
                          .width = width,
                          .ones = ones,
                          .atts = !products};
  dfgnn_status status = DFGNN_OK;
  if (products) {
    const weight_shape w = weight_shape_of(setting, ones);
    const int64_t blocks = weight_blocks(setting, &w, sums->item_edges);
    t.blocks = p->schedule.units ? (int)blocks : 0;
    if (t.blocks)
      status = sum_products(p, sums, &w, ones, blocks, launch);
  } else {
    edges_plan plan = *sums;
    edges_shape shape;
    if ((status = dfgnn__edges_shape_for(&shape, &plan, p, setting, ones)))
      return status;
    t.blocks = (int)dfgnn__edges_blocks(
        setting, &plan, dfgnn__edges_units(setting, plan.item_edges));
    if (t.blocks)
      status = sum_rows(p, &plan, &shape, ones, (unsigned)t.blocks, launch);
  }
  if (status)
    return status;
  const dfgnn_program total = DFGNN_PROGRAM(
      "kernels/attention/cuda/edges_weight.cuh", "dfgnn::edge_weight_total",
      DFGNN_TYPE(problem->dtype == DFGNN_F64 ? DFGNN_F64 : DFGNN_F32));
  return dfgnn__launch_struct(
      setting->queue, &total,
      (dfgnn_grid){.blocks = {(unsigned)dfgnn__ceil_div(
                       t.features * (t.width + t.ones + t.atts), 256)},
                   .threads = 256},
      &t);
}
