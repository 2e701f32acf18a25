#include "kernels/common/cuda_gather.h"

namespace dfgnn {

static int ceil_div(int64_t a, int64_t b) {
  return static_cast<int>((a + b - 1) / b);
}

static int ceil_power(int64_t x) {
  int p = 1;
  while (p < x)
    p *= 2;
  return p;
}

/* ---- shapes -------------------------------------------------------------- */

/* Widths are below 2^31: 65535 heads of 65536 features are not. */
int gather_width(const dfgnn_problem *problem) {
  const int64_t width = problem->heads * problem->dim;
  return width > INT32_MAX - 4096 ? 0 : static_cast<int>(width);
}

void gather_narrow(gather_shape *shape, int64_t width) {
  if (width <= 4)
    *shape = {1, 4, 1, 4};
  else if (width <= 32)
    *shape = {1, 32, 1, 4};
  else
    *shape = {1, 32, 4, 2};
}

/* What cannot be laid out in whole vectors, or has too many tiles. */
const char *gather_refusal(gather_shape *shape, const dfgnn_setting *setting,
                           gather_finder *find, int what, int single, int lanes,
                           int vectors, int unroll) {
  const dfgnn_problem *problem = setting->problem;
  const int vector = static_cast<int>(16 / dfgnn_dtype_size(problem->dtype));
  const int width = gather_width(problem);
  if (width == 0)
    return "a row of more than 2^31 features";
  gather_narrow(shape, width);
  if (single || problem->dtype == DFGNN_F64 || width % vector != 0) {
    if (lanes != shape->lanes || vectors != shape->vectors ||
        unroll != shape->unroll)
      return "no instance of this width";
  } else {
    const int needed = width / vector, tile = lanes * vectors;
    *shape = {vector, lanes, vectors, unroll};
    if (tile > ceil_power(needed) && (vectors > 1 || lanes > 4))
      return "more lanes than features";
    if (tile < 32 && needed > 8 * tile)
      return "more than 8 panels of features";
  }
  if (ceil_div(width, shape->vector * shape->lanes * shape->vectors) > 65535)
    return "more tiles of features than a launch has";
  if (!find(problem->dtype, what, shape))
    return "no instance of this shape";
  return NULL;
}

/* ---- arguments ----------------------------------------------------------- */

dfgnn_status gather_tensor(feature_tensor *tensor, const char *name,
                           const void *data, const dfgnn_strides *strides,
                           dfgnn_dtype dtype) {
  const int64_t size = static_cast<int64_t>(dfgnn_dtype_size(dtype));
  *tensor = feature_tensor{};
  if (!data)
    return DFGNN_OK;
  if (strides->node < 0 || strides->head < 0 || strides->feature < 0 ||
      strides->node > int64_t(UINT32_MAX) / size)
    return dfgnn__fail(DFGNN_ERROR_UNSUPPORTED,
                       "%s: a stride is negative or rows are 4 GiB apart: "
                       "%lld, %lld and %lld elements",
                       name, static_cast<long long>(strides->node),
                       static_cast<long long>(strides->head),
                       static_cast<long long>(strides->feature));
  tensor->data = data;
  tensor->node_bytes = static_cast<unsigned>(strides->node * size);
  tensor->head = strides->head;
  tensor->feature = strides->feature;
  return DFGNN_OK;
}

int gather_aligned(const gather_params *p, const feature_tensor *t,
                   dfgnn_dtype dtype) {
  if (!t->data)
    return 1;
  const int64_t head = p->heads_inner ? 1 : p->dim;
  const int64_t feature = p->heads_inner ? p->heads : 1;
  return reinterpret_cast<uintptr_t>(t->data) % 16 == 0 &&
         t->node_bytes % 16 == 0 && (p->heads == 1 || t->head == head) &&
         (p->dim == 1 || t->feature == feature) && dtype != DFGNN_F64;
}

void gather_fill(gather_params *p, const dfgnn_problem *problem,
                 const dfgnn_matrix *matrix) {
  *p = gather_params{};
  p->width = gather_width(problem);
  p->heads = static_cast<int>(problem->heads);
  p->dim = static_cast<int>(problem->dim);
  p->heads_inner = problem->layout == DFGNN_LAYOUT_NDH;
  p->schedule.units = static_cast<int>(matrix->destinations);
  p->schedule.rows = static_cast<int>(matrix->destinations);
  p->schedule.edges = matrix->edges;
  p->schedule.offsets = offsets_of(matrix);
  p->schedule.indices = matrix->indices;
}

void gather_items(gather_params *p, const dfgnn_view *items,
                  const dfgnn_matrix *matrix) {
  gather_schedule *s = &p->schedule;
  s->units = static_cast<int>(items->count);
  s->item_row = static_cast<const int *>(items->array[0]);
  s->item_first = static_cast<const int64_t *>(items->array[1]);
  s->row_item = static_cast<const int *>(items->array[2]);
  s->item_edges = static_cast<int>(items->request.parameter);
  s->extra_items = static_cast<int>(items->count - matrix->destinations);
}

int64_t gather_item_slots(const dfgnn_matrix *matrix, int64_t item_edges) {
  return matrix->edges / item_edges * 2;
}

int64_t gather_shares(const dfgnn_matrix *matrix, int64_t share) {
  return (matrix->edges + matrix->destinations + share - 1) / share;
}

/* ---- launch -------------------------------------------------------------- */

static int tiles(const gather_params *p, const gather_shape *shape) {
  return ceil_div(p->width, shape->vector * shape->lanes * shape->vectors);
}

static void set_exact(gather_params *p, const gather_shape *shape) {
  p->exact = shape->vectors == 1 || shape->vector == 1 ||
             p->width % (shape->vector * shape->lanes * shape->vectors) == 0;
}

dfgnn_status gather_run(gather_params *p, gather_kernel kernel,
                        const gather_shape *shape, const dfgnn_launch *launch,
                        int warps, int rows, gather_span span) {
  gather_schedule *s = &p->schedule;
  if (s->units == 0)
    return DFGNN_OK;
  if (rows * shape->lanes > 32)
    rows = 32 / shape->lanes;
  const int block_rows = warps * rows;
  const int resident = launch->setting.device->units * (64 / warps);
  int blocks = ceil_div(s->units, block_rows);
  s->group = 32 / rows;
  for (s->group_bits = 0; 1 << s->group_bits < s->group;)
    s->group_bits++;
  s->span = block_rows;
  if (span == GATHER_PIECE && blocks > resident) {
    s->span = ceil_div(ceil_div(s->units, resident), rows) * rows;
    blocks = ceil_div(s->units, s->span);
  }
  set_exact(p, shape);
  return gather_launch("gather_rows", kernel,
                       dim3(static_cast<unsigned>(blocks),
                            static_cast<unsigned>(tiles(p, shape))),
                       warps * 32, launch->stream, *p);
}

dfgnn_status gather_run_shares(gather_params *p, gather_kernel kernel,
                               const gather_shape *shape,
                               const dfgnn_launch *launch, int warps) {
  if (p->schedule.units == 0)
    return DFGNN_OK;
  set_exact(p, shape);
  return gather_launch("gather_shares", kernel,
                       dim3(static_cast<unsigned>(ceil_div(
                                p->schedule.units, warps * 32 / shape->lanes)),
                            static_cast<unsigned>(tiles(p, shape))),
                       warps * 32, launch->stream, *p);
}

void gather_prefer_cache(gather_kernel kernel) {
  /* A hint: if it is refused, the kernel still runs. */
  if (kernel &&
      cudaFuncSetAttribute(reinterpret_cast<const void *>(kernel),
                           cudaFuncAttributePreferredSharedMemoryCarveout,
                           0) != cudaSuccess)
    (void)cudaGetLastError();
}

} // namespace dfgnn
