/* edges_plans.c - see edges_plans.h */
#include "kernels/attention/cuda/edges_plans.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/error.h"

int dfgnn__edges_term(const dfgnn_problem *problem) {
  return problem->op == DFGNN_OP_GT && problem->edge_dim > 0 ? EDGES_PRODUCTS
                                                             : EDGES_ROWS;
}

edges_plan dfgnn__edges_plain(const edges_plan *plan) {
  edges_plan plain = *plan;
  plain.lanes = 32;
  plain.unroll = 1;
  plain.warps = plan->term == EDGES_PRODUCTS ? 8 : 4;
  plain.blocks = 1;
  return plain;
}

static int is_plain(const edges_plan *plan) {
  return plan->lanes == 32 && plan->unroll == 1 && plan->blocks == 1 &&
         (plan->term != EDGES_PRODUCTS || plan->warps == 8);
}

int dfgnn__edges_width(const dfgnn_problem *problem, int ones) {
  return problem->edge_dim > 0 && problem->op != DFGNN_OP_GAT
             ? (int)problem->edge_dim + ones
             : 0;
}

static int edges_use(const dfgnn_problem *problem) {
  return problem->edge_use == DFGNN_EDGE_KEYS     ? EDGES_KEYS
         : problem->edge_use == DFGNN_EDGE_VALUES ? EDGES_VALUES
                                                  : EDGES_KEYS | EDGES_VALUES;
}

/* ---- registers ----------------------------------------------------------- */

/* The words that a lane holds of a row, besides scalars. */
typedef struct row_words {
  int gathered;    /* vectors that each edge in flight gathers, as stored */
  int own, made;   /* vectors of the row; of each edge in flight: W e */
  int row_states;  /* numbers of each head, of the row */
  int edge_states; /* and of each edge in flight */
  int row_shares;  /* the head's share of edge features, of the row and head */
  int edge_shares; /* and of each edge in flight */
} row_words;

static row_words words_of(const dfgnn_problem *problem,
                          const edges_plan *plan) {
  static const row_words products[EDGES_WALKS] = {
      [EDGES_FORWARD] = {.gathered = 2,
                         .own = 2,
                         .edge_states = 2,
                         .row_shares = 2,
                         .edge_shares = 1},
      [EDGES_BY_ROWS] = {.gathered = 2,
                         .own = 3,
                         .edge_states = 2,
                         .row_shares = 3,
                         .edge_shares = 2},
      [EDGES_BY_COLUMNS] = {.gathered = 2, .own = 2, .edge_states = 2}};
  static const struct {
    int gathered[EDGES_WALKS], own[EDGES_WALKS], made;
  } rows[] = {
      [DFGNN_OP_GT] = {.gathered = {2, 2, 2, 2}, .own = {2, 3, 3, 3}, 1},
      [DFGNN_OP_GAT] = {.gathered = {1, 1, 2, 1}, .own = {1, 2, 1, 3}, 0},
      [DFGNN_OP_GATV2] = {.gathered = {1, 1, 2, 1}, .own = {3, 4, 3, 3}, 1}};
  if (plan->term == EDGES_PRODUCTS)
    return products[plan->walk];
  return (row_words){.gathered = rows[problem->op].gathered[plan->walk],
                     .own = rows[problem->op].own[plan->walk],
                     .made = rows[problem->op].made,
                     .row_states = 3,
                     .edge_states = 3};
}

/* 32-bit registers that a lane's part of a row takes; `features` are those of
 * its heads, `share` those of edges. */
static int registers(const dfgnn_problem *problem, const edges_plan *plan,
                     int features, int states, int share) {
  const int size = (int)dfgnn_dtype_size(problem->dtype);
  const int words = (int)dfgnn__scalar_size(problem->dtype) / 4;
  const int unroll = plan->unroll;
  const row_words w = words_of(problem, plan);
  return w.gathered * unroll * ((features * size + 3) / 4) +
         words * ((w.own + w.made * unroll) * features +
                  (w.row_states + w.edge_states * unroll) * states +
                  (w.row_shares * states + w.edge_shares * unroll) * share);
}

/* Registers that the kernels take beside those: for products the report of
 * ptxas for sm_90 less the count above is 28 .. 52 for 16 x 32 and 16 x 64
 * halves.  Plans that are measured may count too few: to spill some registers
 * can cost less than to run half as many warps. */
enum {
  OTHER_REGISTERS = 40,
  LEAST_OTHER_REGISTERS = 16,
  OTHER_REGISTERS_ROWS = 44,
  MOST_REGISTERS = 255,
  ALL_REGISTERS = 65536
};

static int budget_of(const edges_plan *plan) {
  const int share = ALL_REGISTERS / (plan->warps * 32 * plan->blocks);
  const int other = plan->term == EDGES_ROWS ? OTHER_REGISTERS_ROWS
                    : is_plain(plan)         ? OTHER_REGISTERS
                                             : LEAST_OTHER_REGISTERS;
  return (share < MOST_REGISTERS ? share : MOST_REGISTERS) - other;
}

/* ---- shapes -------------------------------------------------------------- */

/* The same as edge_share() of edges_lanes.cuh. */
static int share_of(int features, int lanes) {
  const int share = (int)dfgnn__ceil_div(features, lanes);
  return share <= 1 ? 1 : (share + 1) / 2 * 2;
}

/* Finds the layout with head_lanes lanes a head and the fewest tiles that
 * registers allow; returns 0 if there is none.  width: the features of an edge
 * that a block stages. */
static int lay_out(edges_shape *shape, const dfgnn_problem *problem,
                   const edges_plan *plan, int width, int head_lanes,
                   int budget) {
  const int beside = plan->lanes / head_lanes;
  const int vectors = (int)dfgnn__ceil_div(
      dfgnn__ceil_div(problem->dim, shape->vector), head_lanes);
  const int most = (int)dfgnn__ceil_div(problem->heads, beside);
  const int share = share_of(width, head_lanes);
  for (int tiles = 1; tiles <= most; tiles++) {
    const int states = (int)dfgnn__ceil_div(most, tiles);
    if (registers(problem, plan, states * vectors * shape->vector, states,
                  share) > budget)
      continue;
    shape->head_lanes = head_lanes;
    shape->states = states;
    shape->vectors = states * vectors;
    shape->tile_heads = states * beside;
    shape->tiles = (int)dfgnn__ceil_div(problem->heads, shape->tile_heads);
    shape->pitch =
        plan->term == EDGES_PRODUCTS ? head_lanes * share : (width + 3) / 4 * 4;
    shape->chunk = shape->pitch <= 16 ? 32 : shape->pitch <= 32 ? 16 : 8;
    return 1;
  }
  return 0;
}

/* Is layout a better than b?  Fewer tiles are better, then fewer features a
 * lane, so that all lanes have some, then fewer sums over lanes. */
static int better(const edges_shape *a, const edges_shape *b) {
  if (a->tiles != b->tiles)
    return a->tiles < b->tiles;
  if (a->vectors != b->vectors)
    return a->vectors < b->vectors;
  return a->states < b->states;
}

static int best_shape(edges_shape *shape, const dfgnn_problem *problem,
                      const edges_plan *plan, int width, int budget) {
  edges_shape best = *shape;
  int found = 0;
  for (int lanes = 1; lanes <= plan->lanes; lanes *= 2) {
    edges_shape next = *shape;
    if (lay_out(&next, problem, plan, width, lanes, budget) &&
        (!found || better(&next, &best))) {
      best = next;
      found = 1;
    }
  }
  *shape = best;
  return found;
}

/* ---- shared memory ------------------------------------------------------- */

/* The same as edge_pitch() of edges_project.cuh. */
static int64_t apart(int64_t features) {
  return dfgnn__ceil_div(features, 32) * 32 + 4;
}

/* Bytes of a block of EDGES_PRODUCTS: each row's products with W before and
 * after the walk, features of edges, and if they are staged rows and W. */
static size_t shared_of_products(const dfgnn_problem *problem,
                                 const edges_plan *plan,
                                 const edges_shape *shape, int width) {
  const int use = edges_use(problem), backward = plan->walk == EDGES_BY_ROWS;
  const int products = backward && (use & EDGES_VALUES) ? 2 : 1;
  const int expanded = use & (backward ? EDGES_KEYS : EDGES_VALUES);
  const int64_t features = problem->heads * problem->dim;
  const int64_t head = dfgnn__ceil_div(problem->dim, 4) * 4 + 4;
  const int64_t row = products * apart(shape->tile_heads * shape->pitch) +
                      (expanded ? apart(shape->tile_heads * head) : 0) +
                      shape->chunk * shape->pitch;
  const size_t size = dfgnn_dtype_size(problem->dtype);
  const int64_t rows = (backward ? 2 : 1) * plan->warps *
                       (features + dfgnn__wide_vector(problem->dtype));
  const int64_t columns = dfgnn__ceil_div(width, 16) * 16;
  const int64_t matrix = size == 2
                             ? problem->heads * columns *
                                   (dfgnn__ceil_div(problem->dim, 16) * 16 + 8)
                             : features * (columns + 2);
  return (size_t)(plan->warps * row) * dfgnn__scalar_size(problem->dtype) +
         (shape->staged ? (size_t)(rows + matrix) * size : 0);
}

/* Bytes of a block of EDGES_ROWS: features of edges, sums of EDGES_SUMS, and W
 * if it is staged. */
static size_t shared_of_rows(const dfgnn_problem *problem,
                             const edges_plan *plan, const edges_shape *shape,
                             int width) {
  const int64_t chunks = width ? plan->warps * shape->chunk * shape->pitch : 0;
  const int64_t sums =
      plan->walk == EDGES_SUMS
          ? 32 * (int64_t)(shape->vectors * shape->vector) * (shape->slice + 1)
          : 0;
  const int64_t matrix = shape->staged
                             ? (int64_t)width * shape->tiles * shape->vectors *
                                   shape->vector * plan->lanes
                             : 0;
  return (size_t)(chunks + sums + matrix) * dfgnn__scalar_size(problem->dtype);
}

/* Stages W, and rows for products, if there is room for them; returns 0 if the
 * blocks do not fit even without. */
static int fit_shared(edges_shape *shape, const dfgnn_setting *s,
                      const edges_plan *plan, int width) {
  enum { RESERVED = 1024 }; /* bytes that the driver takes of each block */
  const size_t all = (size_t)s->device->shared_bytes + RESERVED;
  for (shape->staged = 1; shape->staged >= 0; shape->staged--) {
    shape->shared = plan->term == EDGES_PRODUCTS
                        ? shared_of_products(s->problem, plan, shape, width)
                        : shared_of_rows(s->problem, plan, shape, width);
    if ((shape->shared + RESERVED) * (size_t)plan->blocks <= all)
      return 1;
  }
  return 0;
}

/* The number of edge features of which a lane holds sums. */
static int slice_of(const edges_shape *shape, int width) {
  enum { MOST_SUMS = 64 };
  const int most = MOST_SUMS / (shape->vectors * shape->vector);
  const int slice = most < width ? most : width;
  return slice > 1 ? slice : 1;
}

int dfgnn__edges_shape(edges_shape *shape, const dfgnn_setting *setting,
                       const edges_plan *plan, int ones, int vector,
                       int packed) {
  const dfgnn_problem *problem = setting->problem;
  /* GT's columns read no features of edges. */
  const int none =
      plan->term == EDGES_PRODUCTS && plan->walk == EDGES_BY_COLUMNS;
  const int width = none ? 1 : dfgnn__edges_width(problem, ones);
  const edges_plan plain = dfgnn__edges_plain(plan);
  edges_shape usual = {.vector = vector, .packed = packed};
  *shape = usual;
  if (!best_shape(&usual, problem, &plain, width, budget_of(&plain)) &&
      !best_shape(&usual, problem, &plain, width, INT32_MAX))
    return 0;
  if (is_plain(plan))
    *shape = usual;
  else if (!best_shape(shape, problem, plan, width, budget_of(plan)) ||
           (plan->term == EDGES_PRODUCTS && shape->tiles > usual.tiles))
    return 0;
  if (shape->chunk % (plan->unroll * (32 / plan->lanes)) != 0)
    return 0;
  shape->slice = slice_of(shape, width);
  return none || fit_shared(shape, setting, plan, width);
}

dfgnn_status dfgnn__edges_shape_for(edges_shape *shape, edges_plan *plan,
                                    const edges_params *p,
                                    const dfgnn_setting *setting, int ones) {
  const dfgnn_problem *problem = setting->problem;
  const int vector = dfgnn__vector_width(problem);
  const int vectors = dfgnn__edges_vectors(p, problem, vector);
  if (dfgnn__edges_shape(shape, setting, plan, ones, vectors ? vector : 1,
                         vectors))
    return DFGNN_OK;
  *plan = dfgnn__edges_plain(plan);
  if (dfgnn__edges_shape(shape, setting, plan, ones, 1, 0))
    return DFGNN_OK;
  return dfgnn__fail(DFGNN_ERROR_UNSUPPORTED,
                     "no kernel for edge_dim %lld and unaligned tensors of "
                     "%lld heads of %lld features",
                     (long long)problem->edge_dim, (long long)problem->heads,
                     (long long)problem->dim);
}

unsigned dfgnn__edges_blocks(const dfgnn_setting *s, const edges_plan *plan,
                             int64_t units) {
  const int64_t all = dfgnn__ceil_div(units, plan->warps);
  const int64_t resident = (int64_t)s->device->units * plan->blocks;
  return (unsigned)(all < resident ? all : resident);
}

edge_constants dfgnn__edges_constants(const dfgnn_problem *problem,
                                      const edges_plan *plan,
                                      const edges_shape *shape, int ones,
                                      int mode) {
  return (edge_constants){.op = (int)problem->op,
                          .type = DFGNN_TYPE(problem->dtype),
                          .heads = (int)problem->heads,
                          .dim = (int)problem->dim,
                          .edge_dim = problem->op == DFGNN_OP_GAT ? 0
                                      : problem->edge_dim < 0
                                          ? -1
                                          : (int)problem->edge_dim,
                          .ones = ones,
                          .use = edges_use(problem),
                          .term = plan->term,
                          .mode = mode,
                          .vector = shape->vector,
                          .packed = shape->packed,
                          .lanes = plan->lanes,
                          .head_lanes = shape->head_lanes,
                          .states = shape->states,
                          .unroll = plan->unroll,
                          .warps = plan->warps,
                          .blocks = plan->blocks,
                          .staged = shape->staged};
}

/* ---- applicability ------------------------------------------------------- */

/* Can the device make products with W?  All types but f64 need tensor cores. */
static int has_products(const dfgnn_setting *s) {
  const char *arch = s->device->arch;
  return s->problem->dtype == DFGNN_F64 ||
         (strncmp(arch, "sm_", 3) == 0 && atoi(arch + 3) >= 80);
}

const char *dfgnn__edges_refusal(const dfgnn_setting *s,
                                 const edges_plan *plan) {
  const dfgnn_problem *problem = s->problem;
  const int products = plan->term == EDGES_PRODUCTS;
  const char *reason;
  edges_shape shape;
  if (products && dfgnn__edges_term(problem) != EDGES_PRODUCTS)
    return "serves only edge features that W projects";
  if (!products && dfgnn__edges_term(problem) != EDGES_ROWS)
    return "serves GT only with edges that are projected already";
  if (problem->edge_dim > 64)
    return "more than 64 features an edge";
  if (problem->dim > 1024)
    return "more than 1024 features";
  if (products && !has_products(s))
    return "needs tensor cores of sm_80 or later";
  if ((reason = dfgnn__edges_items_refusal(s, plan->item_edges)))
    return reason;
  return dfgnn__edges_shape(&shape, s, plan, 1, dfgnn__vector_width(problem), 1)
             ? NULL
             : "a block would need more registers or shared memory than there "
               "are";
}

/* ---- arguments ----------------------------------------------------------- */

dfgnn_status dfgnn__edges_fill(edges_params *p, const dfgnn_launch *launch) {
  const dfgnn_problem *problem = launch->setting.problem;
  const dfgnn_args *a = launch->args;
  attention_tensors t;
  const dfgnn_status status = dfgnn__tensors(&t, launch);
  *p = (edges_params){.schedule = dfgnn__schedule_rows(launch->setting.matrix),
                      .query = t.query,
                      .key = t.key,
                      .value = t.value,
                      .out = t.out,
                      .grad_out = t.grad_out,
                      .grad_query = t.grad_query,
                      .grad_key = t.grad_key,
                      .grad_value = t.grad_value,
                      .attr = a->edge_attr,
                      .weight = a->edge_projection,
                      .constant = a->edge_bias,
                      .bias = problem->bias ? a->bias : NULL,
                      .weights = problem->weights ? a->weights : NULL,
                      .lse = a->lse,
                      .grad_lse = a->grad_lse,
                      .dropout = dfgnn__dropout_params(problem, a),
                      .scale = a->scale,
                      .slope = a->slope,
                      .att = a->att,
                      .score_dst = a->score_dst,
                      .score_src = a->score_src,
                      .score_edge = a->score_edge,
                      .grad_score_dst = a->grad_score_dst,
                      .grad_score_src = a->grad_score_src,
                      .grad_score_edge = a->grad_score_edge};
  return status;
}

int dfgnn__edges_vectors(const edges_params *p, const dfgnn_problem *problem,
                         int vector) {
  enum { TENSORS = 8 };
  const tensor_view *const views[TENSORS] = {
      &p->query,    &p->key,        &p->value,    &p->out,
      &p->grad_out, &p->grad_query, &p->grad_key, &p->grad_value};
  const size_t bytes = dfgnn_dtype_size(problem->dtype) * (size_t)vector;
  return dfgnn__views_aligned(views, TENSORS, problem, vector) &&
         dfgnn__views_packed(views, TENSORS, problem) &&
         (problem->edge_dim >= 0 || /* the edges' rows are a tensor, too */
          ((uintptr_t)p->attr % bytes == 0 &&
           (uintptr_t)p->grad_attr % bytes == 0));
}
