/* plans.c - see plans.h */
#include "kernels/attention/cuda/plans.h"

#include <stdlib.h>

#include "kernels/attention/operators.h"

/* ---- lanes --------------------------------------------------------------- */

int dfgnn__vector_width(const dfgnn_problem *problem) {
  int vector = dfgnn__wide_vector(problem->dtype);
  while (problem->dim % vector)
    vector /= 2;
  return vector;
}

/* A warp with several heads spans this many vectors of an edge's row. */
enum { WARP_VECTORS = 32 };

int dfgnn__lane_shape(lane_shape *shape, const dfgnn_problem *problem,
                      int vector, int lanes, int heads, int most) {
  const int64_t needed = dfgnn__ceil_div(problem->dim, vector);
  const int rounded = dfgnn__ceil_power(needed);
  const int head_lanes = heads && rounded < lanes ? rounded : lanes;
  const int beside = lanes / head_lanes; /* heads side by side */
  const int64_t each = dfgnn__ceil_div(needed, head_lanes); /* vectors */
  int64_t states = 1; /* heads of which a lane holds vectors */
  if (each > most)
    return 0;
  if (heads == HEADS_WARP || heads == HEADS_LANES) {
    const int limit = heads == HEADS_WARP ? WARP_VECTORS : lanes;
    int slots = dfgnn__ceil_power(problem->heads * rounded);
    if (rounded > lanes)
      return 0;
    if (slots > limit)
      slots = limit;
    states = slots > lanes ? slots / lanes : 1;
    if (states > most)
      return 0;
  } else if (heads == HEADS_ROW) {
    const int64_t all = dfgnn__ceil_div(problem->heads, beside);
    const int64_t tiles = dfgnn__ceil_div(all, most / each);
    states = dfgnn__ceil_div(all, tiles);
  }
  *shape = (lane_shape){.vector = vector,
                        .lanes = lanes,
                        .vectors = (int)(states * each),
                        .tile_heads = (int)(states * beside)};
  shape->tiles = (int)dfgnn__ceil_div(problem->heads, shape->tile_heads);
  return 1;
}

/* ---- shapes -------------------------------------------------------------- */

static int is_backward(const dfgnn_problem *problem) {
  return problem->pass == DFGNN_PASS_BACKWARD;
}

/* The vectors that a lane of a forward walk may hold: the key and value rows of
 * the edges in flight, a query and sums have to fit its registers. */
static int most_forward(const row_plan *plan, int vector, int unroll) {
  const int features = plan->heads == HEADS_ROW ? 16 : 32;
  const int most = features / (vector * unroll);
  return plan->lanes < 32 && most > 4 ? 4 : most;
}

/* A walk of gradients holds four rows of a lane's features and two rows of each
 * edge in flight; 16-bit types take half the registers. */
static int most_backward(const row_plan *plan, int vector, int unroll,
                         size_t size) {
  const int many = plan->lanes == 32 && plan->heads != HEADS_ROW;
  const int alone = (many ? 32 : 16) / (size == 8 ? 2 : 1);
  const int together = size == 8 ? 8 : size == 4 ? 16 : 32;
  return (unroll == 1 ? alone : together / unroll) / vector;
}

int dfgnn__row_shape(lane_shape *shape, const dfgnn_problem *problem,
                     const row_plan *plan, int unroll) {
  const int vector = dfgnn__vector_width(problem);
  const int most = is_backward(problem)
                       ? most_backward(plan, vector, unroll,
                                       dfgnn_dtype_size(problem->dtype))
                       : most_forward(plan, vector, unroll);
  return most > 0 && dfgnn__lane_shape(shape, problem, vector, plan->lanes,
                                       plan->heads, most);
}

int dfgnn__row_as_planned(const row_plan *plan, const dfgnn_problem *problem,
                          int vector) {
  lane_shape shape;
  return vector == dfgnn__vector_width(problem) &&
         dfgnn__row_shape(&shape, problem, plan, plan->unroll);
}

void dfgnn__row_lanes(lane_shape *shape, row_plan *plan,
                      const dfgnn_problem *problem, int vector) {
  if (vector == dfgnn__vector_width(problem) &&
      dfgnn__row_shape(shape, problem, plan, plan->unroll))
    return;
  plan->lanes = 32;
  plan->rows = 1;
  plan->heads = HEADS_GRID;
  (void)dfgnn__lane_shape(shape, problem, vector, plan->lanes, plan->heads,
                          DFGNN_ROW_FEATURES / 32);
  plan->unroll = is_backward(problem) || shape->vectors > 1 ? 1 : 2;
}

/* ---- applicability ------------------------------------------------------- */

row_plan dfgnn__plain_plan(void) {
  return (row_plan){
      .lanes = 32, .unroll = 1, .rows = 1, .warps = 4, .span = SPAN_ONCE};
}

static int is_plain(const row_plan *plan) {
  return plan->lanes == 32 && plan->unroll == 1 && !plan->heads &&
         plan->rows == 1 && plan->span == SPAN_ONCE;
}

const char *dfgnn__units_refusal(const dfgnn_setting *s, int item_edges) {
  const dfgnn_matrix *matrix = s->matrix;
  const int64_t more = item_edges ? matrix->edges / item_edges : 0;
  return matrix->max_degree > INT32_MAX ||
                 matrix->destinations + more > INT32_MAX - 65536 ||
                 (is_backward(s->problem) &&
                  matrix->sources + more > INT32_MAX - 65536)
             ? "a row or the number of rows exceeds 2^31"
             : NULL;
}

/* A longer row would keep its block busy while the others are done; a
 * multiprocessor needs room for several blocks. */
enum { BLOCK_MOST_EDGES = 4096, BLOCK_MOST_BYTES = 32 * 1024 };

int64_t dfgnn__row_parts_bytes(const dfgnn_problem *problem,
                               const row_plan *plan) {
  return plan->warps * plan->rows * problem->heads * (problem->dim + 2) *
         (int64_t)dfgnn__scalar_size(problem->dtype);
}

/* The number of slices of the sources: a cache keeps most of the rows that the
 * edges of a slice gather; 1: it keeps them all, or rows lie in no slices.  It
 * holds so many of the rows of slices of 1.5 times its size that what it lacks
 * comes from memory in less time than it takes to give all of them. */
static int64_t row_slices(const dfgnn_setting *s, const row_plan *plan) {
  const dfgnn_problem *problem = s->problem;
  lane_shape shape = {.tiles = 1};
  if (plan->order != ORDER_SLICES)
    return 1;
  (void)dfgnn__row_shape(&shape, problem, plan, plan->unroll);
  const int64_t bytes = s->matrix->sources * (1 + DFGNN_HAS_KEY(problem->op)) *
                        problem->heads * problem->dim *
                        (int64_t)dfgnn_dtype_size(problem->dtype) / shape.tiles;
  const int64_t slices =
      dfgnn__ceil_div(2 * bytes, 3 * s->device->cache_bytes + 1);
  return slices < 1 ? 1 : slices < INT16_MAX ? slices : INT16_MAX;
}

/* NULL if each row has several edges in a slice. */
static const char *slices_refusal(const dfgnn_setting *s,
                                  const row_plan *plan) {
  enum { FEWEST = 4 };
  const dfgnn_matrix *m = s->matrix;
  const int64_t slices = row_slices(s, plan);
  if (slices == 1)
    return "the cache holds what edges gather";
  if (m->edges < FEWEST * slices * m->destinations)
    return "rows have too few edges for slices";
  return slices * m->destinations > INT32_MAX - 65536
             ? "more than 2^31 rows in slices"
             : NULL;
}

const char *dfgnn__row_limits(const dfgnn_setting *s, const row_plan *plan) {
  const dfgnn_problem *problem = s->problem;
  const int backward = is_backward(problem);
  /* The longest column may be unknown. */
  const int64_t longest = backward ? s->matrix->edges : s->matrix->max_degree;
  const char *reason = dfgnn__units_refusal(s, plan->item_edges);
  if (!reason && plan->order == ORDER_SLICES)
    reason = slices_refusal(s, plan);
  if (reason)
    return reason;
  if (plan->item_edges && longest <= plan->item_edges)
    return "no row is longer than an item";
  if (plan->by_blocks && longest > BLOCK_MOST_EDGES)
    return "a row is too long for a block";
  if (plan->by_blocks &&
      dfgnn__row_parts_bytes(problem, plan) > BLOCK_MOST_BYTES)
    return "a block's shared memory has no room for the parts of a row";
  if (plan->heads && problem->heads == 1)
    return "the problem has one head";
  if (!backward && problem->dim > DFGNN_ROW_FEATURES / 2)
    return "more than 1024 features";
  if (problem->dim > DFGNN_ROW_FEATURES)
    return "more than 2048 features";
  return backward && problem->heads > DFGNN_GRID_Y_MAX ? "more than 65535 heads"
                                                       : NULL;
}

/* The heads that 32 vectors of a warp take; 0 if it cannot hold them. */
static int heads_of_warp(const dfgnn_problem *problem, const row_plan *plan) {
  row_plan warp = *plan;
  lane_shape shape;
  warp.heads = HEADS_WARP;
  return dfgnn__row_shape(&shape, problem, &warp, warp.unroll)
             ? shape.tile_heads
             : 0;
}

const char *dfgnn__row_refusal(const dfgnn_setting *s, const row_plan *plan) {
  const char *reason = dfgnn__row_limits(s, plan);
  lane_shape shape;
  if (reason || (is_backward(s->problem) && is_plain(plan)))
    return reason;
  if (!dfgnn__row_shape(&shape, s->problem, plan, plan->unroll))
    return "a lane would hold more features than registers can";
  const int usual = heads_of_warp(s->problem, plan);
  if (plan->heads == HEADS_ROW && usual >= shape.tile_heads)
    return "32 vectors span the row";
  if (plan->heads == HEADS_LANES && usual == shape.tile_heads)
    return "the lanes span as many heads as 32 vectors";
  return shape.tiles > DFGNN_GRID_Y_MAX ? "more than 65535 tiles of heads"
                                        : NULL;
}

/* Do the rows that a forward walk gathers lie all over tables that are larger
 * than the cache, and than what it reads and writes in order?  Then it takes
 * rows that have a source in common one after the other, whose gathered rows
 * the cache still has: .85 of the time on era_to_h, at 16 x 32 in f16.
 * Backward, where as much is read in order, 16 x 32 with edge features
 * took 1.05. */
static int by_place(const dfgnn_setting *s, const row_plan *plan) {
  const dfgnn_problem *problem = s->problem;
  const int64_t sources = s->matrix->sources;
  const int64_t bytes = 2 * sources * problem->heads * problem->dim *
                        (int64_t)dfgnn_dtype_size(problem->dtype);
  if (is_backward(problem) || sources < 2 * s->matrix->destinations)
    return 0;
  return plan->span != SPAN_PIECE && !s->matrix->refilled &&
         s->signature->locality < 0.5 && bytes > s->device->cache_bytes;
}

int dfgnn__row_views(const dfgnn_setting *s, const row_plan *plan,
                     dfgnn_view_request *requests) {
  const int backward = is_backward(s->problem);
  const int64_t slices = row_slices(s, plan);
  int count = 0;
  if (backward)
    requests[count++] = (dfgnn_view_request){.kind = DFGNN_VIEW_TRANSPOSE};
  for (int columns = 0; columns <= backward; columns++) {
    if (slices > 1)
      requests[count++] =
          (dfgnn_view_request){.kind = DFGNN_VIEW_SLICES, .parameter = slices};
    if (plan->item_edges)
      requests[count++] = (dfgnn_view_request){
          .kind = DFGNN_VIEW_WORK_ITEMS,
          .parameter = plan->padded ? -plan->item_edges : plan->item_edges,
          .transposed = columns};
    if (plan->item_edges && plan->span == SPAN_SORTED)
      requests[count++] = (dfgnn_view_request){.kind = DFGNN_VIEW_DEGREE_ORDER,
                                               .parameter = plan->item_edges,
                                               .transposed = columns};
    if (plan->item_edges)
      continue;
    if (plan->order != ORDER_NATURAL)
      requests[count++] = (dfgnn_view_request){.kind = DFGNN_VIEW_DEGREE_ORDER,
                                               .transposed = columns};
    else if (by_place(s, plan))
      requests[count++] = (dfgnn_view_request){.kind = DFGNN_VIEW_PLACE_ORDER,
                                               .transposed = columns};
  }
  return count;
}

/* ---- rows ---------------------------------------------------------------- */

row_schedule dfgnn__schedule_rows(const dfgnn_matrix *matrix) {
  return (row_schedule){.units = (int)matrix->destinations,
                        .rows = (int)matrix->destinations,
                        .offsets64 = matrix->offsets64,
                        .offsets = matrix->offsets,
                        .indices = matrix->indices};
}

/* Makes parts of rows the units: items of them, or rows in slices. */
static void schedule_parts(row_schedule *schedule, const dfgnn_view *parts) {
  schedule->extra_items = (int)(parts->count - schedule->rows);
  schedule->units = (int)parts->count;
}

static void schedule_items(row_schedule *schedule, const dfgnn_view *items) {
  schedule_parts(schedule, items);
  schedule->item_row = items->array[0];
  schedule->item_first = items->array[1];
  schedule->row_item = items->array[2];
  schedule->item_edges = abs((int)items->request.parameter);
}

static void schedule_slices(row_schedule *schedule, const dfgnn_view *slices) {
  schedule_parts(schedule, slices);
  schedule->slices = (int)slices->request.parameter;
  schedule->slice_first = slices->array[0];
}

static void schedule_heavy(row_schedule *schedule, const dfgnn_view *items) {
  schedule->heavy = items->array[3];
  schedule->heavy_rows = (int)items->extra;
  schedule->item_edges = abs((int)items->request.parameter);
}

void dfgnn__schedule_as(row_schedule *schedule, const row_plan *plan,
                        const dfgnn_launch *launch, int columns) {
  for (int k = 0; k < DFGNN_MAX_VIEWS && launch->views[k]; k++) {
    const dfgnn_view *view = launch->views[k];
    if (view->request.transposed != columns)
      continue;
    switch (view->request.kind) {
    case DFGNN_VIEW_WORK_ITEMS:
      (plan->by_blocks ? schedule_heavy : schedule_items)(schedule, view);
      break;
    case DFGNN_VIEW_SLICES:
      schedule_slices(schedule, view);
      break;
    case DFGNN_VIEW_DEGREE_ORDER:
    case DFGNN_VIEW_PLACE_ORDER:
      schedule->order = view->array[0];
      break;
    default:
      break;
    }
  }
}

int64_t dfgnn__slots(const dfgnn_matrix *matrix, int item_edges) {
  return item_edges ? matrix->edges / item_edges * 2 : 0;
}

int64_t dfgnn__row_slots(const dfgnn_setting *s, const row_plan *plan) {
  const int64_t slices = row_slices(s, plan);
  return slices > 1 ? slices * s->matrix->destinations
                    : dfgnn__slots(s->matrix, plan->item_edges);
}

int64_t dfgnn__resident(const dfgnn_setting *setting, int warps) {
  return (int64_t)setting->device->units * (32 / warps);
}

/* ---- launch -------------------------------------------------------------- */

row_constants dfgnn__row_constants(const dfgnn_problem *problem,
                                   const lane_shape *shape, int unroll,
                                   int packed) {
  return (row_constants){.op = (int)problem->op,
                         .type = DFGNN_TYPE(problem->dtype),
                         .vector = shape->vector,
                         .lanes = shape->lanes,
                         .heads = (int)problem->heads,
                         .dim = (int)problem->dim,
                         .tile = shape->tile_heads,
                         .packed = packed,
                         .unroll = unroll};
}

dfgnn_grid dfgnn__row_grid(block_share *share, const dfgnn_setting *setting,
                           const row_plan *plan, const lane_shape *shape,
                           int64_t units) {
  const int most = 32 / shape->lanes;
  const int rows = plan->rows < most ? plan->rows : most;
  const int block_rows = plan->warps * rows;
  const int64_t resident = dfgnn__resident(setting, plan->warps);
  int64_t blocks = dfgnn__ceil_div(units, block_rows);
  if (plan->span != SPAN_ONCE && blocks > resident)
    blocks = resident;
  share->group = 32 / rows;
  if (plan->span == SPAN_DEALT || plan->span == SPAN_SORTED) {
    share->first_step = block_rows;
    share->round_step = (int)(blocks * block_rows);
    share->span = share->round_step < units ? (int)units : block_rows;
  } else {
    share->round_step = block_rows;
    share->span = share->first_step =
        (int)(dfgnn__ceil_div(dfgnn__ceil_div(units, blocks), rows) * rows);
    blocks = dfgnn__ceil_div(units, share->span);
  }
  return (dfgnn_grid){.blocks = {(unsigned)blocks, (unsigned)shape->tiles},
                      .threads = (unsigned)plan->warps * 32,
                      .carveout = DFGNN_CARVEOUT_L1};
}
