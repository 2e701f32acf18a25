/* cuda_gather.c - shapes, arguments and launches of kernels that gather rows */
#include <string.h>

#include "kernels/common/cuda_gather_host.h"
#include "lib/base/error.h"

/* ---- shapes -------------------------------------------------------------- */

const gather_choice dfgnn__gather_narrow_shapes[] = {
    {.lanes = 4, .vectors = 1, .unroll = 4},
    {.lanes = 32, .vectors = 1, .unroll = 4},
    {.lanes = 32, .vectors = 4, .unroll = 2},
    {0}};

int dfgnn__gather_listed(const gather_choice *list, int lanes, int vectors,
                         int unroll) {
  for (; list->lanes; list++)
    if (list->lanes == lanes && list->vectors == vectors &&
        list->unroll == unroll)
      return 1;
  return 0;
}

/* The features of a row, all heads; 0 if an int does not hold them, as of 65535
 * heads of 65536 features. */
int dfgnn__gather_width(const dfgnn_problem *problem) {
  const int64_t width = problem->heads * problem->dim;
  return width > INT32_MAX - 4096 ? 0 : (int)width;
}

void dfgnn__gather_narrow(gather_shape *shape, int64_t width) {
  const gather_choice *list = dfgnn__gather_narrow_shapes;
  const gather_choice c = list[width <= 4 ? 0 : width <= 32 ? 1 : 2];
  *shape = (gather_shape){1, c.lanes, c.vectors, c.unroll};
}

const char *dfgnn__gather_refusal(gather_shape *shape,
                                  const dfgnn_setting *setting,
                                  gather_finder *find, const void *kernel,
                                  int64_t together, int lanes, int vectors,
                                  int unroll) {
  const dfgnn_problem *problem = setting->problem;
  const int vector = problem->dtype == DFGNN_F64
                         ? 1
                         : dfgnn__gather_fit(dfgnn__wide_vector(problem->dtype),
                                             (uint64_t)together, 1);
  const int width = dfgnn__gather_width(problem);
  dfgnn_program program;
  if (width == 0)
    return "a row has more than 2^31 features";
  dfgnn__gather_narrow(shape, width);
  if (vector == 1) {
    if (lanes != shape->lanes || vectors != shape->vectors ||
        unroll != shape->unroll)
      return "rows of this width are read one element at a time, which another "
             "shape does";
  } else {
    const int needed = width / vector, tile = lanes * vectors;
    *shape = (gather_shape){vector, lanes, vectors, unroll};
    if (tile > dfgnn__ceil_power(needed) && (vectors > 1 || lanes > 4))
      return "more lanes than features";
    if (tile < 32 && needed > 8 * tile)
      return "more than 8 panels of features";
  }
  if (dfgnn__ceil_div(width, shape->vector * shape->lanes * shape->vectors) >
      DFGNN_GRID_Y_MAX)
    return "more tiles of features than a launch has";
  if (!find(&program, problem->dtype, kernel, shape, width))
    return "this shape takes too many registers";
  return NULL;
}

/* ---- arguments ----------------------------------------------------------- */

dfgnn_status dfgnn__gather_tensor(feature_tensor *tensor, const char *name,
                                  const void *data,
                                  const dfgnn_strides *strides,
                                  dfgnn_dtype dtype) {
  const int64_t size = (int64_t)dfgnn_dtype_size(dtype);
  memset(tensor, 0, sizeof *tensor);
  if (!data)
    return DFGNN_OK;
  if (strides->node < 0 || strides->head < 0 || strides->feature < 0 ||
      strides->node > (int64_t)UINT32_MAX / size)
    return dfgnn__fail(DFGNN_ERROR_UNSUPPORTED,
                       "%s: a stride is negative or rows are 4 GiB apart: "
                       "%lld, %lld and %lld elements",
                       name, (long long)strides->node, (long long)strides->head,
                       (long long)strides->feature);
  tensor->data = data;
  tensor->node_bytes = (unsigned)(strides->node * size);
  tensor->head = strides->head;
  tensor->feature = strides->feature;
  return DFGNN_OK;
}

int dfgnn__gather_vector(const gather_params *p, const feature_tensor *t,
                         dfgnn_dtype dtype, int vector) {
  if (!t->data)
    return vector;
  const int64_t head = p->heads_inner ? 1 : p->dim;
  const int64_t feature = p->heads_inner ? p->heads : 1;
  if ((p->heads > 1 && t->head != head) ||
      (p->dim > 1 && t->feature != feature))
    return 1;
  return dfgnn__gather_fit(vector, (uintptr_t)t->data | t->node_bytes,
                           dfgnn_dtype_size(dtype));
}

csr_offsets dfgnn__gather_offsets(const dfgnn_matrix *matrix) {
  return (csr_offsets){matrix->offsets, matrix->offsets64};
}

void dfgnn__gather_fill(gather_params *p, const dfgnn_problem *problem,
                        const dfgnn_matrix *matrix) {
  memset(p, 0, sizeof *p);
  p->width = dfgnn__gather_width(problem);
  p->heads = (int)problem->heads;
  p->dim = (int)problem->dim;
  p->heads_inner = problem->layout == DFGNN_LAYOUT_NDH;
  p->schedule.units = (int)matrix->destinations;
  p->schedule.rows = (int)matrix->destinations;
  p->schedule.edges = matrix->edges;
  p->schedule.offsets = dfgnn__gather_offsets(matrix);
  p->schedule.indices = matrix->indices;
}

void dfgnn__gather_items(gather_params *p, const dfgnn_view *items,
                         const dfgnn_matrix *matrix) {
  gather_schedule *s = &p->schedule;
  s->units = (int)items->count;
  s->item_row = items->array[0];
  s->item_first = items->array[1];
  s->row_item = items->array[2];
  s->item_edges = (int)items->request.parameter;
  s->extra_items = (int)(items->count - matrix->destinations);
}

int64_t dfgnn__gather_item_slots(const dfgnn_matrix *matrix,
                                 int64_t item_edges) {
  return matrix->edges / item_edges * 2;
}

/* ---- launch -------------------------------------------------------------- */

static unsigned tiles(const gather_params *p, const gather_shape *shape) {
  return (unsigned)dfgnn__ceil_div(p->width, shape->vector * shape->lanes *
                                                 shape->vectors);
}

static void set_exact(gather_params *p, const gather_shape *shape) {
  p->exact = shape->vectors == 1 || shape->vector == 1 ||
             p->width % (shape->vector * shape->lanes * shape->vectors) == 0;
}

dfgnn_status dfgnn__gather_run(gather_params *p, const dfgnn_program *program,
                               const gather_shape *shape,
                               const dfgnn_launch *launch, int warps, int rows,
                               gather_span span) {
  gather_schedule *s = &p->schedule;
  if (s->units == 0)
    return DFGNN_OK;
  if (rows * shape->lanes > 32)
    rows = 32 / shape->lanes;
  const int block_rows = warps * rows;
  const int resident = launch->setting.device->units * (64 / warps);
  int64_t blocks = dfgnn__ceil_div(s->units, block_rows) + s->heavy_rows +
                   (int64_t)s->hub_rows * s->hub_blocks;
  s->group = 32 / rows;
  s->group_bits = dfgnn__log2(s->group);
  s->span = block_rows;
  if (span == GATHER_PIECE && blocks > resident) { /* without heavy rows */
    s->span = (int)(dfgnn__ceil_div(dfgnn__ceil_div(s->units, resident), rows) *
                    rows);
    blocks = dfgnn__ceil_div(s->units, s->span);
  }
  set_exact(p, shape);
  const dfgnn_grid grid = {.blocks = {(unsigned)blocks, tiles(p, shape)},
                           .threads = (unsigned)warps * 32,
                           .carveout = s->heavy ? DFGNN_CARVEOUT_DEFAULT
                                                : DFGNN_CARVEOUT_L1,
                           .overlaps = 1};
  return dfgnn__launch_struct(launch->setting.queue, program, grid, p);
}
