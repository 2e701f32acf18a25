/* layout.c - see layout.h */
#include "kernels/attention/cuda/layout.h"

#include "base/error.h"
#include "kernels/attention/cuda/norms.h"
#include "kernels/common/dropout.h"

/* ---- tensors ------------------------------------------------------------- */

dfgnn_status dfgnn__view_tensor(tensor_view *view, const char *name,
                                const void *data, const dfgnn_strides *strides,
                                size_t size) {
  const int64_t stride[] = {strides->node, strides->head, strides->feature};
  const int64_t most = (int64_t)UINT32_MAX / (int64_t)size;
  *view = (tensor_view){0};
  if (!data)
    return DFGNN_OK;
  for (int i = 0; i < 3; i++)
    if (stride[i] < 0 || stride[i] > most)
      return dfgnn__fail(DFGNN_ERROR_UNSUPPORTED,
                         "%s: a stride is %lld elements, expected 0 .. %lld",
                         name, (long long)stride[i], (long long)most);
  *view = (tensor_view){.data = data,
                        .node_bytes = (unsigned)(stride[0] * (int64_t)size),
                        .head_bytes = (unsigned)(stride[1] * (int64_t)size),
                        .feature_bytes = (unsigned)(stride[2] * (int64_t)size)};
  return DFGNN_OK;
}

int dfgnn__view_aligned(const tensor_view *view, int64_t heads, int vector,
                        size_t size) {
  const unsigned bytes = (unsigned)size * (unsigned)vector;
  return !view->data ||
         ((uintptr_t)view->data % bytes == 0 && view->node_bytes % bytes == 0 &&
          view->feature_bytes == size &&
          (heads == 1 || view->head_bytes % bytes == 0));
}

int dfgnn__view_packed(const tensor_view *view, int64_t heads, int64_t dim,
                       size_t size) {
  return !view->data ||
         (view->feature_bytes == size &&
          (heads == 1 || view->head_bytes == (uint64_t)dim * size));
}

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

/* ---- rows ---------------------------------------------------------------- */

row_schedule dfgnn__schedule_rows(const dfgnn_matrix *matrix) {
  return (row_schedule){.units = (int)matrix->destinations,
                        .offsets64 = matrix->offsets64,
                        .offsets = matrix->offsets,
                        .indices = matrix->indices};
}

void dfgnn__schedule_items(row_schedule *schedule, const dfgnn_view *items,
                           const dfgnn_matrix *matrix) {
  schedule->units = (int)items->count;
  schedule->item_row = items->array[0];
  schedule->item_first = items->array[1];
  schedule->row_item = items->array[2];
  schedule->item_edges = (int)items->request.parameter;
  schedule->extra_items = (int)(items->count - matrix->destinations);
}

int64_t dfgnn__resident(const dfgnn_setting *setting, int warps) {
  return (int64_t)setting->device->units * (32 / warps);
}

int64_t dfgnn__share_out(block_share *share, const dfgnn_setting *setting,
                         int64_t units, int warps, int rows, row_span span) {
  const int block_rows = warps * rows;
  const int64_t resident = dfgnn__resident(setting, warps);
  int64_t blocks = dfgnn__ceil_div(units, block_rows);
  if (span != SPAN_ONCE && blocks > resident)
    blocks = resident;
  share->group = 32 / rows;
  if (span == SPAN_DEALT) {
    share->first_step = block_rows;
    share->round_step = (int)(blocks * block_rows);
    share->span = share->round_step < units ? (int)units : block_rows;
    return blocks;
  }
  share->round_step = block_rows;
  share->span = share->first_step =
      (int)(dfgnn__ceil_div(dfgnn__ceil_div(units, blocks), rows) * rows);
  return dfgnn__ceil_div(units, share->span);
}

/* ---- dropout and norms --------------------------------------------------- */

dropout_params dfgnn__dropout_params(const dfgnn_problem *problem,
                                     const dfgnn_args *args) {
  return (dropout_params){.on = problem->dropout && args->dropout > 0,
                          .threshold = dfgnn__dropout_threshold(args->dropout),
                          .keep = 1 / (1 - args->dropout),
                          .seed = args->seed,
                          .seed_value = args->seed_value,
                          .number = args->edge_number};
}

dfgnn_status dfgnn__inverse_norms(void *inverse, const tensor_view *tensor,
                                  int64_t nodes, const dfgnn_launch *launch) {
  const dfgnn_problem *problem = launch->setting.problem;
  const int lanes = dfgnn__ceil_power(dfgnn__ceil_div(problem->dim, 4));
  const norms_params p = {.inverse = inverse,
                          .tensor = *tensor,
                          .pairs = nodes * problem->heads,
                          .heads = (int)problem->heads,
                          .dim = (int)problem->dim,
                          .lanes = lanes < 32 ? lanes : 32};
  const dfgnn_program program =
      DFGNN_PROGRAM("kernels/attention/cuda/norms.cuh", "dfgnn::inverse_norms",
                    DFGNN_TYPE(problem->dtype));
  const int64_t blocks = dfgnn__ceil_div(p.pairs * p.lanes, 256);
  if (blocks == 0)
    return DFGNN_OK;
  if (blocks > INT32_MAX)
    return dfgnn__fail(DFGNN_ERROR_UNSUPPORTED,
                       "%lld norms need more than 2^31 - 1 blocks",
                       (long long)p.pairs);
  return dfgnn__launch_struct(
      launch->setting.queue, &program,
      (dfgnn_grid){.blocks = {(unsigned)blocks}, .threads = 256}, &p);
}
