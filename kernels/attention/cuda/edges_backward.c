/* edges_backward.c - gradients of GT with edge features: by rows, by columns,
 * and of W */
#include "base/error.h"
#include "kernels/attention/cuda/edges_plans.h"
#include "kernels/attention/cuda/qk_norm_launch.h"

enum { LANES, UNROLL, COLUMNS, ROWS, BLOCKS, EDGES };

static edges_plan rows_plan(const int *x) {
  return (edges_plan){.lanes = x[LANES],
                      .unroll = x[UNROLL],
                      .rows = x[ROWS],
                      .blocks = x[BLOCKS],
                      .backward = 1,
                      .item_edges = x[EDGES]};
}

/* Walks over columns are blocks of 4 warps. */
static edges_plan columns_plan(const int *x) {
  return (edges_plan){.lanes = x[LANES],
                      .unroll = x[COLUMNS],
                      .rows = 4,
                      .blocks = 2,
                      .columns = 1,
                      .item_edges = x[EDGES]};
}

static int legal(const int *x) { return x[ROWS] * x[BLOCKS] <= 24; }

/* ---- the gradient of W --------------------------------------------------- */

enum {
  WEIGHT_ROWS = 8,
  WEIGHT_BLOCKS = 3,
  TILE_FEATURES = 16,
  STATIC_SHARED = 64 /* at most so many bytes tell which rows have edges */
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
static int64_t weight_blocks(const dfgnn_setting *s, const weight_shape *w) {
  const int64_t tiles =
      dfgnn__ceil_div(dfgnn__edges_units(s, s->parameter[EDGES]), WEIGHT_ROWS);
  const int64_t share =
      dfgnn__ceil_div(w->blocks * s->device->units, w->slices);
  return tiles < share ? (tiles > 0 ? tiles : 1) : share;
}

/* ---- memory -------------------------------------------------------------- */

typedef struct edges_memory {
  char *pairs, *carry, *totals, *partial;
  size_t bytes;
} edges_memory;

static char *take(edges_memory *m, char *base, int64_t count, size_t size) {
  char *at = base ? base + m->bytes : NULL;
  m->bytes += dfgnn__align256((size_t)count * size);
  return at;
}

static edges_memory memory_of(const dfgnn_setting *s, char *base) {
  const dfgnn_problem *problem = s->problem;
  const size_t size = dfgnn__scalar_size(problem->dtype);
  const edges_plan plan = rows_plan(s->parameter);
  const weight_shape with = weight_shape_of(s, 1), w = weight_shape_of(s, 0);
  const int64_t most = weight_blocks(s, &with), blocks = weight_blocks(s, &w);
  const int64_t matrix_size =
      problem->heads * problem->dim * dfgnn__edges_width(problem, 1);
  int tiles = 1;
  edges_memory m = {0};
  for (int narrow = 0; narrow < 2; narrow++)
    for (int plain = 0; plain < 2; plain++)
      for (int ones = 0; ones < 2; ones++) {
        const edges_plan usual = dfgnn__edges_plain(&plan);
        edges_shape shape;
        if (dfgnn__edges_shape(&shape, s, plain ? &usual : &plan, ones,
                               narrow ? 1 : dfgnn__vector_width(problem),
                               !narrow) &&
            shape.tiles > tiles)
          tiles = shape.tiles;
      }
  m.pairs = take(&m, base, s->matrix->edges * problem->heads * 2, size);
  if (tiles > 1)
    m.carry = take(&m, base, s->matrix->edges * problem->edge_dim, size);
  m.totals =
      take(&m, base, (most > blocks ? most : blocks) * matrix_size, size);
  m.partial =
      take(&m, base, dfgnn__edges_partial(s, s->parameter[EDGES], 2), size);
  return m;
}

static size_t workspace(const dfgnn_setting *s) {
  return dfgnn__qk_norm_workspace(s) + memory_of(s, NULL).bytes;
}

static int views(const dfgnn_setting *s, dfgnn_view_request *requests) {
  const int items = s->parameter[EDGES];
  int count = 0;
  requests[count++] = (dfgnn_view_request){.kind = DFGNN_VIEW_TRANSPOSE};
  for (int columns = 0; columns < 2; columns++)
    count += dfgnn__edges_item_views(requests + count, items, columns);
  return count;
}

static const char *applicable(const dfgnn_setting *s) {
  const edges_plan rows = rows_plan(s->parameter),
                   columns = columns_plan(s->parameter);
  const char *reason = dfgnn__edges_refusal(s, &rows);
  edges_shape shape;
  if (reason)
    return reason;
  const weight_shape w = weight_shape_of(s, 1);
  if (!dfgnn__edges_shape(&shape, s, &columns, 0,
                          dfgnn__vector_width(s->problem), 1) ||
      w.slices > DFGNN_GRID_Y_MAX || shape.tiles > DFGNN_GRID_Y_MAX)
    return "a lane would hold more than registers can";
  if (w.shared + STATIC_SHARED > (size_t)s->device->shared_bytes)
    return "a block needs more shared memory than there is";
  return NULL;
}

/* ---- launches ------------------------------------------------------------ */

static dfgnn_status walk_rows(edges_params *p, const dfgnn_launch *launch) {
  const dfgnn_problem *problem = launch->setting.problem;
  const int ones = p->constant != NULL;
  const int edge = (problem->bias ? EDGE_BIAS : 0) |
                   (launch->args->dropout > 0 ? EDGE_DROPOUT : 0) |
                   (p->grad_attr ? EDGE_WRITE : 0) |
                   (problem->accumulate ? EDGE_ADDS : 0) |
                   (p->schedule.item_row ? EDGE_ITEMS : 0);
  edges_plan plan = rows_plan(launch->setting.parameter);
  edges_shape shape;
  const dfgnn_status status =
      dfgnn__edges_shape_for(&shape, &plan, p, &launch->setting, ones);
  if (status || p->schedule.units == 0)
    return status;
  const dfgnn_program program = DFGNN_PROGRAM(
      "kernels/attention/cuda/edges_backward.cuh", "dfgnn::edge_gradient",
      DFGNN_TYPE(problem->dtype), shape.vector, plan.lanes, shape.head_lanes,
      shape.states, plan.unroll, (int)problem->heads, (int)problem->dim,
      shape.packed, (int)problem->edge_dim, ones, dfgnn__edges_use(problem),
      edge, plan.rows, plan.blocks, shape.staged);
  const dfgnn_status walked = dfgnn__launch_struct(
      launch->setting.queue, &program,
      (dfgnn_grid){.blocks = {dfgnn__edges_blocks(&launch->setting, &plan,
                                                  p->schedule.units)},
                   .threads = (unsigned)plan.rows * 32,
                   .shared = (unsigned)shape.shared},
      p);
  return walked || !plan.item_edges || !p->grad_query.data
             ? walked
             : dfgnn__edges_merge_gradients(p, 0, &p->grad_query, 1, NULL,
                                            launch->views[1], launch);
}

static dfgnn_status walk_columns(const edges_params *rows,
                                 const dfgnn_launch *launch) {
  const dfgnn_problem *problem = launch->setting.problem;
  const dfgnn_matrix matrix =
      dfgnn__transposed(launch->setting.matrix, launch->views[0]);
  edges_plan plan = columns_plan(launch->setting.parameter);
  edges_shape shape;
  edges_params p = *rows;
  dfgnn_status status;
  if (matrix.max_degree > INT32_MAX)
    return dfgnn__fail(DFGNN_ERROR_UNSUPPORTED,
                       "a column has %lld edges, expected below 2^31",
                       (long long)matrix.max_degree);
  p.schedule = dfgnn__schedule_rows(&matrix);
  if (plan.item_edges)
    dfgnn__schedule_items(&p.schedule, launch->views[2], &matrix);
  p.edge_of = launch->views[0]->array[2];
  if ((status =
           dfgnn__edges_shape_for(&shape, &plan, &p, &launch->setting, 0)) ||
      p.schedule.units == 0)
    return status;
  const int warps = 4;
  const dfgnn_program program = DFGNN_PROGRAM(
      "kernels/attention/cuda/edges_columns.cuh", "dfgnn::edge_columns",
      DFGNN_TYPE(problem->dtype), shape.vector, plan.lanes, shape.head_lanes,
      shape.states, plan.unroll, (int)problem->heads, (int)problem->dim,
      shape.packed, plan.item_edges != 0, warps);
  status = dfgnn__launch_struct(
      launch->setting.queue, &program,
      (dfgnn_grid){
          .blocks = {(unsigned)dfgnn__ceil_div(p.schedule.units, warps),
                     (unsigned)shape.tiles},
          .threads = (unsigned)warps * 32,
          .carveout = DFGNN_CARVEOUT_L1},
      &p);
  const tensor_view to[2] = {p.grad_key, p.grad_value};
  return status || !plan.item_edges
             ? status
             : dfgnn__edges_merge_gradients(&p, 1, to, 2, NULL,
                                            launch->views[2], launch);
}

static dfgnn_status weight_gradient(const edges_params *p,
                                    const dfgnn_launch *launch) {
  const dfgnn_problem *problem = launch->setting.problem;
  const dfgnn_args *a = launch->args;
  const int ones = a->grad_edge_bias != NULL;
  const weight_shape w = weight_shape_of(&launch->setting, ones);
  const int vector = dfgnn__vector_width(problem);
  const int vectors = dfgnn__edges_vectors(p, problem, vector);
  const int64_t blocks = weight_blocks(&launch->setting, &w);
  const dfgnn_program outer = DFGNN_PROGRAM(
      "kernels/attention/cuda/edges_weight.cuh", "dfgnn::edge_weight_gradient",
      DFGNN_TYPE(problem->dtype), vectors ? vector : 1, 32, w.head_lanes,
      w.states, w.heads, w.units, (int)problem->heads, (int)problem->dim,
      vectors, (int)problem->edge_dim, ones, dfgnn__edges_use(problem),
      WEIGHT_ROWS, w.blocks, w.staged, p->schedule.item_row != NULL);
  const dfgnn_program total = DFGNN_PROGRAM(
      "kernels/attention/cuda/edges_weight.cuh", "dfgnn::edge_weight_total",
      DFGNN_TYPE(problem->dtype == DFGNN_F64 ? DFGNN_F64 : DFGNN_F32));
  const edges_total_params t = {.totals = p->totals,
                                .weight = a->grad_edge_weight,
                                .constant = a->grad_edge_bias,
                                .features = problem->heads * problem->dim,
                                .blocks = p->schedule.units ? (int)blocks : 0,
                                .width = (int)problem->edge_dim,
                                .ones = ones};
  dfgnn_status status = DFGNN_OK;
  if (p->schedule.units)
    status = dfgnn__launch_struct(
        launch->setting.queue, &outer,
        (dfgnn_grid){.blocks = {(unsigned)blocks, (unsigned)w.slices},
                     .threads = WEIGHT_ROWS * 32,
                     .shared = (unsigned)w.shared},
        p);
  if (status)
    return status;
  return dfgnn__launch_struct(
      launch->setting.queue, &total,
      (dfgnn_grid){.blocks = {(unsigned)dfgnn__ceil_div(
                       t.features * (t.width + ones), 256)},
                   .threads = 256},
      &t);
}

static dfgnn_status gradients(const dfgnn_launch *launch) {
  const dfgnn_args *a = launch->args;
  const edges_memory m = memory_of(&launch->setting, launch->workspace);
  edges_params p;
  dfgnn_status status = dfgnn__edges_fill(&p, launch);
  if (status)
    return status;
  p.pairs = m.pairs;
  p.carry = m.carry;
  p.totals = m.totals;
  p.partial = m.partial;
  if (launch->setting.parameter[EDGES])
    dfgnn__schedule_items(&p.schedule, launch->views[1],
                          launch->setting.matrix);
  p.grad_attr = a->grad_edge_attr;
  p.grad_bias = a->grad_bias;
  if ((status = walk_rows(&p, launch)))
    return status;
  if ((a->grad_key || a->grad_value) && (status = walk_columns(&p, launch)))
    return status;
  return a->grad_edge_weight || a->grad_edge_bias ? weight_gradient(&p, launch)
                                                  : DFGNN_OK;
}

static dfgnn_status launch(const dfgnn_launch *launch) {
  return dfgnn__qk_norm_launch(launch, gradients);
}

DFGNN_FAMILIES(attention_cuda_edges_backward) = {
    {.name = "cuda.attention.bwd.edges",
     .algorithm = "edges",
     .backend = "cuda",
     .ops = DFGNN_BIT(DFGNN_OP_GT),
     .passes = DFGNN_BIT(DFGNN_PASS_BACKWARD),
     .dtypes = DFGNN_DTYPES_ALL,
     .edge_ops = DFGNN_BIT(DFGNN_OP_GT),
     .edges_only = 1,
     .revision = 1,
     .deterministic = 1,
     .bias = 1,
     .dropout = 1,
     .accumulate = 1,
     .qk_norm = 1,
     .parameters = {{.name = "lanes", .count = 3, .values = {8, 16, 32}},
                    {.name = "unroll", .count = 2, .values = {1, 2}},
                    {.name = "columns", .count = 3, .values = {1, 2, 4}},
                    {.name = "rows", .count = 2, .values = {8, 16}},
                    {.name = "blocks", .count = 3, .values = {1, 2, 3}},
                    DFGNN_EDGES_ITEMS},
     .legal = legal,
     .applicable = applicable,
     .workspace = workspace,
     .views = views,
     .launch = launch},
    DFGNN_FAMILIES_END};
