/* edges.c - attention with edge features, forward and backward
 *
 * Two families a pass differ in what they know of W e (edges.h): `edges` makes
 * products of whole rows with W, `lift` has W e in the lanes.  No problem is
 * served by both. */
#include "kernels/attention/cuda/edges_plans.h"
#include "lib/base/error.h"

/* ---- parameters ---------------------------------------------------------- */

enum { LANES, UNROLL, WARPS, BLOCKS, EDGES };
/* The parameters of the gradients of `edges`. */
enum {
  GRAD_LANES,
  GRAD_UNROLL,
  GRAD_COLUMNS,
  GRAD_ROWS,
  GRAD_BLOCKS,
  GRAD_EDGES
};

static edges_plan plan_of(const int *x, int term, edges_walk walk) {
  return (edges_plan){.term = term,
                      .lanes = x[LANES],
                      .unroll = x[UNROLL],
                      .warps = x[WARPS],
                      .blocks = x[BLOCKS],
                      .item_edges = x[EDGES],
                      .walk = walk};
}

/* The gradients of `edges` walk over columns in blocks of 4 warps. */
static edges_plan products_plan_of(const int *x, edges_walk walk) {
  const int columns = walk == EDGES_BY_COLUMNS;
  return (edges_plan){.term = EDGES_PRODUCTS,
                      .lanes = x[GRAD_LANES],
                      .unroll = columns ? x[GRAD_COLUMNS] : x[GRAD_UNROLL],
                      .warps = columns ? 4 : x[GRAD_ROWS],
                      .blocks = columns ? 2 : x[GRAD_BLOCKS],
                      .item_edges = x[GRAD_EDGES],
                      .walk = walk};
}

static edges_plan plan_for(const dfgnn_setting *s, edges_walk walk) {
  const int term = dfgnn__edges_term(s->problem);
  return term == EDGES_PRODUCTS && walk != EDGES_FORWARD
             ? products_plan_of(s->parameter, walk)
             : plan_of(s->parameter, term, walk);
}

static edges_walk walk_of(const dfgnn_setting *s) {
  return s->problem->pass == DFGNN_PASS_FORWARD ? EDGES_FORWARD : EDGES_BY_ROWS;
}

static int products_legal(const int *x) { return x[WARPS] * x[BLOCKS] <= 32; }

static int rows_legal(const int *x) {
  return x[WARPS] * x[BLOCKS] <= 32 && x[WARPS] * x[BLOCKS] >= 8;
}

static int products_grad_legal(const int *x) {
  return x[GRAD_ROWS] * x[GRAD_BLOCKS] <= 24;
}

/* ---- a walk over rows ---------------------------------------------------- */

static dfgnn_status walk_rows(const edges_params *p, const dfgnn_launch *launch,
                              edges_walk walk, int mode) {
  const dfgnn_setting *setting = &launch->setting;
  const int ones = p->constant != NULL, forward = walk == EDGES_FORWARD;
  edges_plan plan = plan_for(setting, walk);
  edges_shape shape;
  const dfgnn_status status =
      dfgnn__edges_shape_for(&shape, &plan, p, setting, ones);
  if (status || p->schedule.units == 0)
    return status;
  const edge_constants k =
      dfgnn__edges_constants(setting->problem, &plan, &shape, ones, mode);
  const dfgnn_program program =
      forward ? DFGNN_PROGRAM_OF("kernels/attention/cuda/edges_forward.cuh",
                                 "dfgnn::edge_attend", EDGE_CONSTANTS, &k)
              : DFGNN_PROGRAM_OF("kernels/attention/cuda/edges_backward.cuh",
                                 "dfgnn::edge_gradient", EDGE_CONSTANTS, &k);
  return dfgnn__launch_struct(
      setting->queue, &program,
      (dfgnn_grid){
          .blocks = {dfgnn__edges_blocks(setting, &plan, p->schedule.units)},
          .threads = (unsigned)plan.warps * 32,
          .shared = (unsigned)shape.shared},
      p);
}

/* ---- forward ------------------------------------------------------------- */

static const char *products_applicable(const dfgnn_setting *s) {
  const edges_plan plan = plan_of(s->parameter, EDGES_PRODUCTS, EDGES_FORWARD);
  return dfgnn__edges_refusal(s, &plan);
}

static const char *rows_applicable(const dfgnn_setting *s) {
  const edges_plan plan = plan_of(s->parameter, EDGES_ROWS, EDGES_FORWARD);
  return dfgnn__edges_refusal(s, &plan);
}

static size_t forward_workspace(const dfgnn_setting *s) {
  return dfgnn__edges_forward_memory(NULL, s, s->parameter[EDGES], NULL);
}

static dfgnn_status attend(const dfgnn_launch *launch) {
  const int items = launch->setting.parameter[EDGES];
  edges_params p;
  dfgnn_status status = dfgnn__edges_fill(&p, launch);
  if (status)
    return status;
  dfgnn__edges_forward_memory(&p, &launch->setting, items, launch->workspace);
  dfgnn__schedule_as(&p.schedule, &(row_plan){.item_edges = items}, launch, 0);
  if ((status = walk_rows(&p, launch, EDGES_FORWARD,
                          dfgnn__edges_forward_mode(launch, items))))
    return status;
  return dfgnn__edges_forward_finish(&p, items ? launch->views[0] : NULL,
                                     launch);
}

/* ---- backward: memory and views ------------------------------------------ */

/* The most tiles of heads that a walk over rows may take, whatever the
 * arguments are. */
static int most_tiles(const dfgnn_setting *s, const edges_plan *plan) {
  const edges_plan plain = dfgnn__edges_plain(plan);
  int tiles = 1;
  for (int narrow = 0; narrow < 2; narrow++)
    for (int i = 0; i < 2; i++)
      for (int ones = 0; ones < 2; ones++) {
        edges_shape shape;
        if (dfgnn__edges_shape(&shape, s, i ? &plain : plan, ones,
                               narrow ? 1 : dfgnn__vector_width(s->problem),
                               !narrow) &&
            shape.tiles > tiles)
          tiles = shape.tiles;
      }
  return tiles;
}

/* Places the arrays of a backward pass in a workspace; returns its bytes.  p
 * may be NULL. */
static size_t backward_memory(edges_params *p, const dfgnn_setting *s,
                              void *workspace) {
  const dfgnn_problem *problem = s->problem;
  const size_t size = dfgnn__scalar_size(problem->dtype);
  const int products = dfgnn__edges_term(problem) == EDGES_PRODUCTS;
  const edges_plan rows = plan_for(s, EDGES_BY_ROWS);
  const edges_plan sums = plan_for(s, EDGES_SUMS);
  const int carries =
      products ? most_tiles(s, &rows) > 1 : problem->edge_dim > 0;
  const int items = rows.item_edges;
  edges_params none;
  size_t bytes = 0;
  p = p ? p : &none;
  p->pairs = dfgnn__part(&bytes, workspace,
                         s->matrix->edges * problem->heads * 2, size);
  p->carry =
      dfgnn__part(&bytes, workspace,
                  carries ? s->matrix->edges * problem->edge_dim : 0, size);
  p->totals = dfgnn__part(&bytes, workspace,
                          dfgnn__edges_weight_totals(s, &sums), size);
  p->partial_state =
      dfgnn__part(&bytes, workspace,
                  products ? 0 : dfgnn__edges_partial_state(s, items), size);
  p->partial =
      dfgnn__part(&bytes, workspace, dfgnn__edges_partial(s, items, 2), size);
  return bytes;
}

static size_t backward_workspace(const dfgnn_setting *s) {
  return backward_memory(NULL, s, NULL);
}

static int views(const dfgnn_setting *s, dfgnn_view_request *requests) {
  const row_plan plan = {.item_edges = plan_for(s, walk_of(s)).item_edges};
  return dfgnn__row_views(s, &plan, requests);
}

static const char *products_grad_applicable(const dfgnn_setting *s) {
  const edges_plan rows = products_plan_of(s->parameter, EDGES_BY_ROWS);
  const edges_plan columns = products_plan_of(s->parameter, EDGES_BY_COLUMNS);
  const char *reason = dfgnn__edges_refusal(s, &rows);
  edges_shape shape;
  if (reason)
    return reason;
  if (!dfgnn__edges_shape(&shape, s, &columns, 0,
                          dfgnn__vector_width(s->problem), 1) ||
      shape.tiles > DFGNN_GRID_Y_MAX)
    return "a lane would hold more than registers can";
  return dfgnn__edges_weight_refusal(s);
}

static const char *rows_grad_applicable(const dfgnn_setting *s) {
  static const edges_walk walks[] = {EDGES_BY_ROWS, EDGES_BY_COLUMNS,
                                     EDGES_SUMS};
  for (int i = 0; i < 3; i++) {
    const edges_plan plan = plan_of(s->parameter, EDGES_ROWS, walks[i]);
    const char *reason = dfgnn__edges_refusal(s, &plan);
    if (reason)
      return reason;
  }
  return NULL;
}

/* ---- backward: launches -------------------------------------------------- */

static dfgnn_status launch_columns(const edges_params *p, edges_plan *plan,
                                   const edges_shape *shape, int ones,
                                   const dfgnn_launch *launch) {
  const dfgnn_setting *setting = &launch->setting;
  const int gt = setting->problem->op == DFGNN_OP_GT;
  const int mode = plan->item_edges ? EDGE_ITEMS : 0;
  const int products = plan->term == EDGES_PRODUCTS;
  edge_constants k =
      dfgnn__edges_constants(setting->problem, plan, shape, ones, mode);
  dfgnn_grid grid = {
      .blocks = {dfgnn__edges_blocks(setting, plan, p->schedule.units)},
      .threads = (unsigned)plan->warps * 32,
      .shared = (unsigned)shape->shared};
  k.use = 0;
  if (gt) { /* reads no features of edges here */
    k.edge_dim = k.ones = 0;
    k.term = EDGES_ROWS;
    k.blocks = 2;
    k.staged = 1;
    grid.blocks[0] = (unsigned)dfgnn__ceil_div(p->schedule.units, plan->warps);
    grid.blocks[1] = (unsigned)shape->tiles;
    grid.shared = 0;
    grid.carveout = products ? DFGNN_CARVEOUT_L1 : DFGNN_CARVEOUT_DEFAULT;
  }
  const dfgnn_program program =
      DFGNN_PROGRAM_OF("kernels/attention/cuda/edges_columns.cuh",
                       "dfgnn::edge_columns", EDGE_CONSTANTS, &k);
  return dfgnn__launch_struct(setting->queue, &program, grid, p);
}

static dfgnn_status walk_columns(const edges_params *rows,
                                 const dfgnn_launch *launch) {
  const dfgnn_setting *setting = &launch->setting;
  const int gt = setting->problem->op == DFGNN_OP_GT;
  const dfgnn_matrix matrix =
      dfgnn__transposed(setting->matrix, launch->views[0]);
  edges_plan plan = plan_for(setting, EDGES_BY_COLUMNS);
  const int ones = plan.term == EDGES_PRODUCTS ? 0 : rows->constant != NULL;
  edges_shape shape;
  edges_params p = *rows;
  dfgnn_status status;
  if (matrix.max_degree > INT32_MAX)
    return dfgnn__fail(DFGNN_ERROR_UNSUPPORTED,
                       "a column has %lld edges, expected below 2^31",
                       (long long)matrix.max_degree);
  p.schedule = dfgnn__schedule_rows(&matrix);
  dfgnn__schedule_as(&p.schedule, &(row_plan){.item_edges = plan.item_edges},
                     launch, 1);
  p.edge_of = launch->views[0]->array[2];
  if ((status = dfgnn__edges_shape_for(&shape, &plan, &p, setting, ones)) ||
      p.schedule.units == 0)
    return status;
  const tensor_view to[2] = {gt ? p.grad_key : p.grad_value, p.grad_value};
  status = launch_columns(&p, &plan, &shape, ones, launch);
  return status || !plan.item_edges
             ? status
             : dfgnn__edges_merge_gradients(&p, 1, to, gt ? 2 : 1,
                                            p.grad_score_src, launch->views[2],
                                            launch);
}

static int backward_mode(const edges_params *p, const dfgnn_launch *launch) {
  const dfgnn_problem *problem = launch->setting.problem;
  return (problem->bias ? EDGE_BIAS : 0) |
         (launch->args->dropout > 0 ? EDGE_DROPOUT : 0) |
         (p->grad_attr ? EDGE_WRITE : 0) |
         (problem->accumulate ? EDGE_ADDS : 0) |
         (p->schedule.item_row ? EDGE_ITEMS : 0);
}

static dfgnn_status gradients(const dfgnn_launch *launch) {
  const dfgnn_setting *setting = &launch->setting;
  const dfgnn_problem *problem = setting->problem;
  const dfgnn_args *a = launch->args;
  const edges_plan sums = plan_for(setting, EDGES_SUMS);
  const int queries = problem->op != DFGNN_OP_GAT;
  edges_params p;
  dfgnn_status status = dfgnn__edges_fill(&p, launch);
  if (status)
    return status;
  (void)backward_memory(&p, setting, launch->workspace);
  p.grad_attr = a->grad_edge_attr;
  p.grad_bias = a->grad_bias;
  dfgnn__schedule_as(&p.schedule, &(row_plan){.item_edges = sums.item_edges},
                     launch, 0);
  if ((status =
           walk_rows(&p, launch, EDGES_BY_ROWS, backward_mode(&p, launch))))
    return status;
  if (sums.item_edges && p.schedule.units &&
      ((queries && p.grad_query.data) || p.grad_score_dst) &&
      (status = dfgnn__edges_merge_gradients(&p, 0, &p.grad_query, queries,
                                             p.grad_score_dst, launch->views[1],
                                             launch)))
    return status;
  if ((p.grad_key.data || p.grad_value.data || p.grad_score_src) &&
      (status = walk_columns(&p, launch)))
    return status;
  return a->grad_att || a->grad_edge_projection || a->grad_edge_bias
             ? dfgnn__edges_weight(&p, &sums, launch)
             : DFGNN_OK;
}

/* ---- families ------------------------------------------------------------ */

#define PRODUCTS_OPS DFGNN_BIT(DFGNN_OP_GT)
#define ROWS_OPS                                                               \
  (DFGNN_BIT(DFGNN_OP_GT) | DFGNN_BIT(DFGNN_OP_GAT) | DFGNN_BIT(DFGNN_OP_GATV2))
#define LANES_PARAMETER                                                        \
  {                                                                            \
    .name = "lanes", .count = 3, .values = { 8, 16, 32 }                       \
  }
#define BLOCKS_PARAMETER(most)                                                 \
  {                                                                            \
    .name = "blocks", .count = most, .values = { 1, 2, 3, 4 }                  \
  }
/* The members that all four families share. */
#define EDGES_FAMILY                                                           \
  .backend = "cuda", .dtypes = DFGNN_DTYPES_ALL, .edges_only = 1,              \
  .deterministic = 1, .bias = 1, .dropout = 1
#define EDGES_FORWARD_FAMILY                                                   \
  EDGES_FAMILY, .passes = DFGNN_BIT(DFGNN_PASS_FORWARD), .weights = 1,         \
                .workspace = forward_workspace, .views = views,                \
                .launch = attend
#define EDGES_BACKWARD_FAMILY                                                  \
  EDGES_FAMILY, .passes = DFGNN_BIT(DFGNN_PASS_BACKWARD), .accumulate = 1,     \
                .workspace = backward_workspace, .views = views,               \
                .launch = gradients
#define LIFT                                                                   \
  .algorithm = "lift", .revision = 3, .ops = ROWS_OPS, .edge_ops = ROWS_OPS,   \
  .parameters = {LANES_PARAMETER,                                              \
                 {.name = "unroll", .count = 3, .values = {1, 2, 4}},          \
                 {.name = "warps", .count = 2, .values = {4, 8}},              \
                 BLOCKS_PARAMETER(4),                                          \
                 DFGNN_EDGES_ITEMS},                                           \
  .legal = rows_legal

DFGNN_FAMILIES(attention_cuda_edges) = {
    {.name = "cuda.attention.fwd.edges",
     .algorithm = "edges",
     .revision = 1,
     .ops = PRODUCTS_OPS,
     .edge_ops = PRODUCTS_OPS,
     .parameters = {LANES_PARAMETER,
                    {.name = "unroll", .count = 3, .values = {1, 2, 4}},
                    {.name = "rows", .count = 2, .values = {8, 16}},
                    BLOCKS_PARAMETER(4),
                    DFGNN_EDGES_ITEMS},
     .legal = products_legal,
     .applicable = products_applicable,
     EDGES_FORWARD_FAMILY},
    {.name = "cuda.attention.bwd.edges",
     .algorithm = "edges",
     .revision = 1,
     .ops = PRODUCTS_OPS,
     .edge_ops = PRODUCTS_OPS,
     .parameters = {LANES_PARAMETER,
                    {.name = "unroll", .count = 2, .values = {1, 2}},
                    {.name = "columns", .count = 2, .values = {1, 4}},
                    {.name = "rows", .count = 2, .values = {8, 16}},
                    BLOCKS_PARAMETER(3),
                    DFGNN_EDGES_ITEMS},
     .legal = products_grad_legal,
     .applicable = products_grad_applicable,
     EDGES_BACKWARD_FAMILY},
    {.name = "cuda.attention.fwd.lift",
     LIFT,
     .applicable = rows_applicable,
     EDGES_FORWARD_FAMILY},
    {.name = "cuda.attention.bwd.lift",
     LIFT,
     .applicable = rows_grad_applicable,
     EDGES_BACKWARD_FAMILY},
    DFGNN_FAMILIES_END};
