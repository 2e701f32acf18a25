/* backward.cu - the host's side of backward: which walks a call needs,
 * their arguments, memory and launches */
#include "kernels/attention/cuda/backward.h"
#include "kernels/attention/cuda/launch.cuh"

namespace dfgnn {

/* ---- shapes -------------------------------------------------------------- */

const void *grad_kernel(int op, dfgnn_dtype dtype, int columns, int mode,
                        int lanes, int vectors, int unroll, int several) {
  static grad_finder *const find[][4] = {
      {grad_gt_f32, grad_agnn_f32, grad_gat_f32, grad_gatv2_f32},
      {grad_gt_f16, grad_agnn_f16, grad_gat_f16, grad_gatv2_f16},
      {grad_gt_bf16, grad_agnn_bf16, grad_gat_bf16, grad_gatv2_bf16}};
  if (dtype > DFGNN_BF16 || op > DFGNN_OP_GATV2)
    return nullptr;
  return find[dtype][op](columns, mode, lanes, vectors, unroll, several);
}

static int ceil_power(int64_t x) {
  int p = 1;
  while (p < x)
    p *= 2;
  return p;
}

static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

/* A warp with several heads spans this many vectors of an edge's row. */
constexpr int kSlots = 32;

int grad_shape(attend_shape *shape, const dfgnn_setting *setting,
               const grad_plan *plan) {
  const dfgnn_problem *problem = setting->problem;
  const int vector = static_cast<int>(16 / dfgnn_dtype_size(problem->dtype));
  const int heads = static_cast<int>(problem->heads);
  const int needed = ceil_power(ceil_div(problem->dim, vector));
  attend_shape s = {vector,        plan->lanes, 1,           plan->unroll,
                    plan->several, 1,           plan->lanes, heads};
  if (plan->several) {
    if (needed > s.lanes)
      return 0;
    int slots = ceil_power(int64_t(heads) * needed);
    if (slots > kSlots)
      slots = kSlots;
    s.head_lanes = needed;
    s.vectors = slots > s.lanes ? slots / s.lanes : 1;
    s.tile_heads = s.vectors * s.lanes / needed;
    s.tiles = static_cast<int>(ceil_div(heads, s.tile_heads));
  } else {
    s.vectors = needed > s.lanes ? needed / s.lanes : 1;
  }
  *shape = s;
  return 1;
}

/* 0 if there is no instance. */
static int shape_find(attend_shape *shape, const dfgnn_setting *setting,
                      const grad_plan *plan, int columns, int mode) {
  const dfgnn_problem *problem = setting->problem;
  return grad_shape(shape, setting, plan) &&
         grad_kernel(problem->op, problem->dtype, columns, mode, shape->lanes,
                     shape->vectors, shape->unroll, shape->several);
}

static int has_edges(const dfgnn_problem *problem) {
  return problem->bias || problem->dropout;
}

static int rows_mode(const dfgnn_problem *problem, const grad_plan *plan) {
  return plan->spill          ? GRAD_GIVEN
         : has_edges(problem) ? GRAD_EDGES
                              : GRAD_PLAIN;
}

static int columns_mode(const dfgnn_problem *problem, const grad_plan *plan) {
  return plan->spill || has_edges(problem) ? GRAD_EDGES : GRAD_PLAIN;
}

/* Only gradient_plain() takes these. */
int grad_odd(const dfgnn_problem *problem) {
  return problem->dtype == DFGNN_F64 ||
         problem->dim %
                 static_cast<int64_t>(16 / dfgnn_dtype_size(problem->dtype)) !=
             0;
}

int grad_legal(int lanes, int unroll, int several) {
  if (several)
    return lanes == 32 ? unroll == 2 : lanes >= 8 && unroll <= lanes / 8;
  return unroll <= (lanes >= 16 ? 4 : 2);
}

const char *grad_limits(const dfgnn_setting *setting, const grad_plan *plan) {
  const dfgnn_problem *problem = setting->problem;
  const dfgnn_matrix *matrix = setting->matrix;
  const int64_t more = plan->item_edges ? matrix->edges / plan->item_edges : 0;
  if (matrix->max_degree > INT32_MAX ||
      matrix->destinations + more > INT32_MAX - 65536 ||
      matrix->sources + more > INT32_MAX - 65536)
    return "a row or the number of rows exceeds 2^31";
  if (plan->item_edges && matrix->edges <= plan->item_edges)
    return "no row is longer than an item";
  if (problem->dim > 1024)
    return "more than 1024 features";
  if (plan->several && problem->heads == 1)
    return "one head";
  return nullptr;
}

const char *grad_refusal(const dfgnn_setting *setting, const grad_plan *plan) {
  const dfgnn_problem *problem = setting->problem;
  const char *reason = grad_limits(setting, plan);
  attend_shape shape;
  if (reason)
    return reason;
  if (grad_odd(problem))
    return plan->lanes == 32 && plan->unroll == 1 && !plan->several &&
                   plan->rows == 1 && plan->span == ATTEND_ONCE
               ? nullptr
               : "this width has one setting";
  const int rows = rows_mode(problem, plan);
  if ((!(rows == GRAD_GIVEN && problem->op == DFGNN_OP_GAT) &&
       !shape_find(&shape, setting, plan, 0, rows)) ||
      !shape_find(&shape, setting, plan, 1, columns_mode(problem, plan)))
    return "no instance of this width";
  return nullptr;
}

/* ---- memory ---------------------------------------------------------------
 */

char *grad_part(grad_memory *memory, char *base, int64_t count, size_t size) {
  char *at = base + memory->bytes;
  memory->bytes += (static_cast<size_t>(count) * size + 255) / 256 * 256;
  return at;
}

static int to_tensors(dfgnn_op op, int columns) {
  return columns ? (op == DFGNN_OP_GT ? 2 : 1) : op == DFGNN_OP_GAT ? 0 : 1;
}

/* Blocks of a walk whose blocks leave totals, or take rows by turns. */
static int64_t resident_blocks(const dfgnn_setting *setting, int warps) {
  return int64_t(setting->device->units) * (32 / warps);
}

static int has_totals(dfgnn_op op) {
  return op == DFGNN_OP_AGNN || op == DFGNN_OP_GATV2;
}

grad_memory grad_memory_of(const dfgnn_setting *setting, const grad_plan *plan,
                           void *workspace) {
  const dfgnn_problem *problem = setting->problem;
  const dfgnn_matrix *matrix = setting->matrix;
  const dfgnn_op op = problem->op;
  const size_t size = problem->dtype == DFGNN_F64 ? 8 : 4;
  const int64_t heads = problem->heads;
  char *base = static_cast<char *>(workspace);
  grad_memory m = {};
  m.stats =
      grad_part(&m, base, matrix->destinations * heads * stats_count(op), size);
  if (op == DFGNN_OP_AGNN)
    m.norms = grad_part(&m, base, matrix->sources * heads, size);
  if (plan->spill)
    m.spill = grad_part(&m, base, matrix->edges * heads, size);
  if (has_totals(op)) {
    int64_t units = matrix->destinations;
    if (plan->item_edges)
      units += matrix->edges / plan->item_edges;
    int64_t blocks = resident_blocks(setting, plan->warps);
    if (blocks > units)
      blocks = units > 0 ? units : 1;
    m.totals = grad_part(
        &m, base, blocks * heads * (op == DFGNN_OP_AGNN ? 1 : problem->dim),
        size);
  }
  if (plan->item_edges) { /* two results a cut: see row_of_unit() */
    const int64_t slots = matrix->edges / plan->item_edges * 2 * heads;
    m.partial =
        grad_part(&m, base, slots * problem->dim * to_tensors(op, 1), size);
    if (op == DFGNN_OP_GAT)
      m.partial_scalar = grad_part(&m, base, slots, size);
  }
  return m;
}

size_t grad_workspace(const dfgnn_setting *setting, const grad_plan *plan) {
  return grad_memory_of(setting, plan, nullptr).bytes;
}

int grad_views(const grad_plan *plan, dfgnn_view_request *requests) {
  int count = 0;
  requests[count++] = {DFGNN_VIEW_TRANSPOSE, 0, 0};
  for (int columns = 0; columns < 2; columns++)
    if (plan->item_edges)
      requests[count++] = {DFGNN_VIEW_WORK_ITEMS, plan->item_edges, columns};
    else if (plan->by_degree)
      requests[count++] = {DFGNN_VIEW_DEGREE_ORDER, 0, columns};
  return count;
}

/* ---- arguments of a walk --------------------------------------------------
 */

dfgnn_status grad_tensors(grad_params *p, const dfgnn_launch *launch,
                          int columns) {
  const dfgnn_problem *problem = launch->setting.problem;
  const dfgnn_args *a = launch->args;
  const size_t size = dfgnn_dtype_size(problem->dtype);
  const bool gt = problem->op == DFGNN_OP_GT, gat = problem->op == DFGNN_OP_GAT;
  tensor_view query, key, value, grad_out, grad_query, grad_key, grad_value;
  dfgnn_status status;
  if ((status = view_tensor(&query, "query", gat ? nullptr : a->query,
                            &a->query_strides, size)) ||
      (status = view_tensor(&key, "key", gt ? a->key : nullptr, &a->key_strides,
                            size)) ||
      (status =
           view_tensor(&value, "value", a->value, &a->value_strides, size)) ||
      (status = view_tensor(&p->out, "out", a->out, &a->out_strides, size)) ||
      (status = view_tensor(&grad_out, "grad_out", a->grad_out,
                            &a->grad_out_strides, size)) ||
      (status =
           view_tensor(&grad_query, "grad_query", gat ? nullptr : a->grad_query,
                       &a->grad_query_strides, size)) ||
      (status = view_tensor(&grad_key, "grad_key", gt ? a->grad_key : nullptr,
                            &a->grad_key_strides, size)) ||
      (status = view_tensor(&grad_value, "grad_value", a->grad_value,
                            &a->grad_value_strides, size)))
    return status;
  tensor_view destination[2] = {gat ? grad_out : query,
                                gat ? tensor_view{} : grad_out};
  tensor_view source[2] = {gt ? key : value, gt ? value : tensor_view{}};
  for (int t = 0; t < 2; t++) {
    p->own[t] = columns ? source[t] : destination[t];
    p->far[t] = columns ? destination[t] : source[t];
  }
  if (columns)
    p->out = tensor_view{};
  p->to[0] = !columns ? grad_query : gt ? grad_key : grad_value;
  p->to[1] = columns && gt ? grad_value : tensor_view{};
  return DFGNN_OK;
}

dfgnn_status grad_fill(grad_params *p, const dfgnn_launch *launch,
                       const grad_memory *memory, int columns) {
  const dfgnn_problem *problem = launch->setting.problem;
  const dfgnn_args *a = launch->args;
  const bool gat = problem->op == DFGNN_OP_GAT;
  dfgnn_matrix matrix = *launch->setting.matrix;
  *p = grad_params{};
  if (columns)
    matrix = dfgnn__transposed(&matrix, launch->views[0]);
  if (matrix.max_degree > INT32_MAX)
    return dfgnn__fail(DFGNN_ERROR_UNSUPPORTED,
                       "a column has %lld edges, expected below 2^31",
                       static_cast<long long>(matrix.max_degree));
  p->schedule.units = static_cast<int>(matrix.destinations);
  p->schedule.offsets64 = matrix.offsets64;
  p->schedule.offsets = matrix.offsets;
  p->schedule.indices = matrix.indices;
  p->layout.heads = static_cast<int>(problem->heads);
  p->layout.dim = static_cast<int>(problem->dim);
  p->lse = a->lse;
  p->stats = memory->stats;
  if (gat) {
    p->own_scalar = columns ? a->score_src : a->score_dst;
    p->far_scalar = columns ? nullptr : a->score_src;
    p->to_scalar = columns ? a->grad_score_src : a->grad_score_dst;
  } else if (!columns) {
    p->far_scalar = memory->norms;
    p->totals = problem->op == DFGNN_OP_AGNN ? a->grad_beta : a->grad_att;
    if (p->totals)
      p->totals = memory->totals;
  }
  p->att = a->att;
  p->beta = a->beta;
  if (columns)
    p->edge_of = launch->views[0]->array[2];
  p->bias = a->bias;
  p->grad_bias = columns ? nullptr : a->grad_bias;
  p->dropout = dropout_of(problem, a);
  p->partial = memory->partial;
  p->partial_scalar = memory->partial_scalar;
  p->scale = a->scale;
  p->slope = a->slope;
  return grad_tensors(p, launch, columns);
}

/* ---- launch ----------------------------------------------------------------
 */

int grad_aligned(const grad_params *p, unsigned size) {
  const tensor_view *views[] = {&p->own[0], &p->own[1], &p->far[0], &p->far[1],
                                &p->to[0],  &p->to[1],  &p->out};
  for (const tensor_view *v : views)
    if (v->data && (reinterpret_cast<uintptr_t>(v->data) % 16 ||
                    v->node_bytes % 16 || v->feature_bytes != size ||
                    (p->layout.heads > 1 && v->head_bytes % 16)))
      return 0;
  return 1;
}

/* Do the lanes of every tile have features, in one piece? */
static int exact(const grad_params *p, const attend_shape *shape,
                 unsigned size) {
  const unsigned dim = static_cast<unsigned>(p->layout.dim);
  const int width =
      (shape->several ? shape->head_lanes : shape->lanes * shape->vectors) *
      shape->vector;
  for (const tensor_view &v : p->far)
    if (v.data && shape->several && v.head_bytes != dim * size)
      return 0;
  return p->layout.heads % shape->tile_heads == 0 && width == p->layout.dim;
}

int grad_usual_slope(const grad_params *p, const dfgnn_problem *problem) {
  return problem->op != DFGNN_OP_GATV2 || (p->slope >= 0 && p->slope <= 1);
}

/* Rows of totals are as many as blocks. */
static dfgnn_status walk_plain(grad_params *p, const dfgnn_launch *launch,
                               const grad_plan *plan, int columns,
                               int64_t *blocks) {
  const dfgnn_problem *problem = launch->setting.problem;
  const size_t size = problem->dtype == DFGNN_F64 ? 8 : 4;
  const size_t warp_bytes = 3 * size * static_cast<size_t>(problem->dim);
  int warps = 4;
  while (warps > 1 && warp_bytes * static_cast<size_t>(warps) > 48 * 1024)
    warps /= 2;
  *blocks = ceil_div(p->schedule.units, warps);
  const int64_t resident = resident_blocks(&launch->setting, plan->warps);
  if (p->totals && *blocks > resident)
    *blocks = resident;
  return launch_kernel(
      "gradient_plain", grad_plain_kernel(problem->op, problem->dtype, columns),
      dim3(static_cast<unsigned>(*blocks),
           static_cast<unsigned>(p->layout.heads)),
      dim3(static_cast<unsigned>(warps * 32)),
      warp_bytes * static_cast<size_t>(warps), launch->stream, *p);
}

int64_t grad_lay_out(grad_params *p, const dfgnn_setting *setting,
                     const grad_plan *plan, const attend_shape *shape) {
  const unsigned size =
      static_cast<unsigned>(dfgnn_dtype_size(setting->problem->dtype));
  int rows = plan->rows;
  if (rows * shape->lanes > 32)
    rows = 32 / shape->lanes;
  p->layout.group = 32 / rows;
  p->layout.tile_heads = shape->tile_heads;
  for (p->layout.head_shift = 0; 1 << p->layout.head_shift < shape->head_lanes;)
    ++p->layout.head_shift;
  p->layout.exact = exact(p, shape, size);
  const int block_rows = plan->warps * rows, units = p->schedule.units;
  const int64_t resident = resident_blocks(setting, plan->warps);
  attend_span span = plan->span;
  int64_t blocks = ceil_div(units, block_rows);
  if (p->totals && span == ATTEND_ONCE && blocks > resident)
    span = ATTEND_DEALT;
  if (span != ATTEND_ONCE && blocks > resident)
    blocks = resident;
  if (span == ATTEND_DEALT) {
    p->first_step = block_rows;
    p->round_step = static_cast<int>(blocks) * block_rows;
    p->span = p->round_step < units ? units : block_rows;
  } else {
    p->round_step = block_rows;
    p->span = p->first_step =
        static_cast<int>(ceil_div(ceil_div(units, blocks), rows)) * rows;
    blocks = ceil_div(units, p->span);
  }
  return blocks;
}

static dfgnn_status walk_wide(grad_params *p, const dfgnn_launch *launch,
                              const grad_plan *plan, const attend_shape *shape,
                              int columns, int64_t *blocks) {
  const dfgnn_problem *problem = launch->setting.problem;
  *blocks = grad_lay_out(p, &launch->setting, plan, shape);
  return launch_kernel(
      "gradient",
      grad_kernel(problem->op, problem->dtype, columns, p->mode, shape->lanes,
                  shape->vectors, shape->unroll, shape->several),
      dim3(static_cast<unsigned>(*blocks), static_cast<unsigned>(shape->tiles)),
      dim3(static_cast<unsigned>(plan->warps * 32)), 0, launch->stream, *p);
}

/* One walk, merged; *totals becomes the number of rows of its totals. */
static dfgnn_status walk(grad_params *p, const dfgnn_launch *launch,
                         const grad_plan *plan, int columns, int mode,
                         int64_t *totals) {
  const dfgnn_problem *problem = launch->setting.problem;
  const unsigned size = static_cast<unsigned>(dfgnn_dtype_size(problem->dtype));
  const dfgnn_view *view = nullptr;
  int64_t blocks = 0;
  attend_shape shape = {};
  p->mode = mode;
  if (plan->item_edges || plan->by_degree)
    view = launch->views[1 + columns];
  if (plan->item_edges) {
    dfgnn_matrix matrix = {};
    matrix.destinations = p->schedule.units;
    attend_items(&p->schedule, view, &matrix);
  } else if (view) {
    p->schedule.order = static_cast<const int *>(view->array[0]);
  }
  *totals = 0;
  if (p->schedule.units == 0)
    return DFGNN_OK;
  const int wide = !grad_odd(problem) && grad_aligned(p, size) &&
                   grad_usual_slope(p, problem) &&
                   shape_find(&shape, &launch->setting, plan, columns, mode);
  const int64_t tiles = wide ? shape.tiles : problem->heads;
  dfgnn_status status =
      wide ? walk_wide(p, launch, plan, &shape, columns, &blocks)
           : walk_plain(p, launch, plan, columns, &blocks);
  *totals = problem->op == DFGNN_OP_AGNN ? blocks * tiles : blocks;
  if (!status && plan->item_edges)
    status = grad_merge(p, to_tensors(problem->op, columns), view, launch);
  return status;
}

static dfgnn_status walk_rows(const dfgnn_launch *launch, const grad_plan *plan,
                              const grad_memory *memory, grad_params *p,
                              int mode) {
  const dfgnn_problem *problem = launch->setting.problem;
  const dfgnn_args *a = launch->args;
  dfgnn_status status;
  int64_t totals;
  if (problem->op == DFGNN_OP_AGNN &&
      (status = attend_inverse_norms(memory->norms, &p->far[0],
                                     launch->setting.matrix->sources, launch)))
    return status;
  if ((status = walk(p, launch, plan, 0, mode, &totals)) || !p->totals)
    return status;
  return problem->op == DFGNN_OP_AGNN
             ? grad_totals(a->grad_beta, memory->totals, totals, 1, launch)
             : grad_totals(a->grad_att, memory->totals, totals,
                           problem->heads * problem->dim, launch);
}

dfgnn_status grad_launch(const dfgnn_launch *launch, const grad_plan *plan) {
  const dfgnn_problem *problem = launch->setting.problem;
  const dfgnn_args *a = launch->args;
  const bool gat = problem->op == DFGNN_OP_GAT;
  const grad_memory memory =
      grad_memory_of(&launch->setting, plan, launch->workspace);
  const int mode = columns_mode(problem, plan);
  grad_params rows, columns;
  dfgnn_status status;
  int64_t totals;
  if ((status = grad_fill(&rows, launch, &memory, 0)) ||
      (status = grad_fill(&columns, launch, &memory, 1)))
    return status;
  const bool by_rows = rows.to[0].data || rows.to_scalar || rows.totals;
  const bool by_columns =
      columns.to[0].data || columns.to[1].data || columns.to_scalar;
  if (!plan->spill) {
    status = by_rows || a->grad_bias ? walk_rows(launch, plan, &memory, &rows,
                                                 rows_mode(problem, plan))
                                     : grad_stats(&rows, plan->lanes, launch);
    if (!status && by_columns)
      status = walk(&columns, launch, plan, 1, mode, &totals);
    return status;
  }
  if ((status = grad_stats(&rows, plan->lanes, launch)))
    return status;
  columns.grad_bias = a->grad_bias;
  if (by_rows && a->grad_bias && !gat) /* dS itself is wanted: it is kept */
    rows.spill = a->grad_bias;
  else if (by_rows)
    rows.spill = columns.spill = memory.spill;
  if ((status = walk(&columns, launch, plan, 1, mode, &totals)) || !by_rows)
    return status;
  return gat ? grad_row_sums(a->grad_score_dst, memory.spill, launch)
             : walk_rows(launch, plan, &memory, &rows, GRAD_GIVEN);
}

dfgnn_status grad_prepare(const dfgnn_setting *setting, const grad_plan *plan) {
  const dfgnn_problem *problem = setting->problem;
  for (int columns = 0; columns < 2 && !grad_odd(problem); columns++) {
    attend_shape s;
    const int mode =
        columns ? columns_mode(problem, plan) : rows_mode(problem, plan);
    if (!shape_find(&s, setting, plan, columns, mode))
      continue;
    const void *kernel = grad_kernel(problem->op, problem->dtype, columns, mode,
                                     s.lanes, s.vectors, s.unroll, s.several);
    /* A hint: if it is refused, the kernel still runs. */
    if (cudaFuncSetAttribute(kernel,
                             cudaFuncAttributePreferredSharedMemoryCarveout,
                             0) != cudaSuccess)
      (void)cudaGetLastError();
  }
  return DFGNN_OK;
}

} // namespace dfgnn
