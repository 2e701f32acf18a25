/* edges_lift_plans.c - see edges_lift_plans.h */
#include "kernels/attention/cuda/edges_lift_plans.h"

#include "base/error.h"

/* The plan that serves every problem. */
static lift_plan plain_of(const lift_plan *plan) {
  return (lift_plan){.lanes = 32,
                     .unroll = 1,
                     .warps = 4,
                     .blocks = 1,
                     .item_edges = plan->item_edges,
                     .walk = plan->walk};
}

static int is_plain(const lift_plan *plan) {
  return plan->lanes == 32 && plan->unroll == 1 && plan->blocks == 1;
}

int dfgnn__lift_width(const dfgnn_problem *problem) {
  if (problem->op == DFGNN_OP_GAT)
    return 0;
  return problem->edge_dim < 0 ? -1 : (int)problem->edge_dim;
}

/* ---- shapes -------------------------------------------------------------- */

/* 32-bit registers that a lane's part of a row takes. */
static int registers(const dfgnn_problem *problem, const lift_plan *plan,
                     int features, int states) {
  const int size = (int)dfgnn_dtype_size(problem->dtype);
  const int words = (int)dfgnn__scalar_size(problem->dtype) / 4;
  const int gt = problem->op == DFGNN_OP_GT, gat = problem->op == DFGNN_OP_GAT;
  const int rows_gathered = gt || plan->walk == LIFT_COLUMNS ? 2 : 1;
  const int gathered =
      rows_gathered * plan->unroll * ((features * size + 3) / 4);
  /* The vectors of the row; `lifted`: the vectors W e of the edges. */
  const int own = plan->walk == LIFT_FORWARD   ? (gat  ? 1
                                                  : gt ? 2
                                                       : 3)
                  : plan->walk == LIFT_ROWS    ? (gat  ? 2
                                                  : gt ? 3
                                                       : 4)
                  : plan->walk == LIFT_COLUMNS ? (gat ? 1 : 3)
                                               : 3;
  const int lifted = gat ? 0 : plan->unroll;
  return gathered +
         words * ((own + lifted) * features + (3 + 3 * plan->unroll) * states);
}

enum { OTHER_REGISTERS = 44, MOST_REGISTERS = 255, ALL_REGISTERS = 65536 };

static int budget_of(const lift_plan *plan) {
  const int share = ALL_REGISTERS / (plan->warps * 32 * plan->blocks);
  return (share < MOST_REGISTERS ? share : MOST_REGISTERS) - OTHER_REGISTERS;
}

/* Finds the layout of the fewest tiles of heads that registers allow; of those
 * the one with the fewest features a lane, so that all lanes have some; then
 * the one with the fewest sums over lanes. */
static int best_shape(lift_shape *shape, const dfgnn_problem *problem,
                      const lift_plan *plan, int budget) {
  lift_shape best = *shape;
  int found = 0, best_features = 0;
  for (int lanes = 1; lanes <= plan->lanes; lanes *= 2) {
    const int beside = plan->lanes / lanes;
    const int each = (int)dfgnn__ceil_div(
        dfgnn__ceil_div(problem->dim, shape->vector), lanes);
    const int most = (int)dfgnn__ceil_div(problem->heads, beside);
    for (int tiles = 1; tiles <= most; tiles++) {
      const int states = (int)dfgnn__ceil_div(most, tiles);
      const int features = states * each * shape->vector;
      if (registers(problem, plan, features, states) > budget)
        continue;
      const int count =
          (int)dfgnn__ceil_div(problem->heads, (int64_t)states * beside);
      if (!found || count < best.tiles ||
          (count == best.tiles &&
           (features < best_features ||
            (features == best_features && states < best.states)))) {
        best = *shape;
        best.head_lanes = lanes;
        best.states = states;
        best.tile_heads = states * beside;
        best.tiles = count;
        best.vectors = states * each;
        best_features = features;
        found = 1;
      }
      break;
    }
  }
  *shape = best;
  return found;
}

/* Finds the number of edge features of which a lane holds sums. */
static void slice_sums(lift_shape *shape, int width) {
  enum { MOST_SUMS = 64 };
  const int features = shape->vectors * shape->vector;
  shape->slice = MOST_SUMS / features;
  if (shape->slice > width)
    shape->slice = width;
  if (shape->slice < 1)
    shape->slice = 1;
}

static int fit_shared(lift_shape *shape, const dfgnn_setting *s,
                      const lift_plan *plan, int width) {
  enum { RESERVED = 1024 }; /* bytes that the driver takes of each block */
  const dfgnn_problem *problem = s->problem;
  const int pitch = (width + 3) / 4 * 4;
  const int chunk = pitch <= 16 ? 32 : pitch <= 32 ? 16 : 8;
  const size_t size = dfgnn__scalar_size(problem->dtype);
  const size_t all = (size_t)s->device->shared_bytes + RESERVED;
  const size_t matrix =
      (size_t)width * (size_t)(problem->heads * problem->dim) * size;
  size_t rest = width ? (size_t)(plan->warps * chunk * pitch) * size : 0;
  if (width && chunk % (plan->unroll * (32 / plan->lanes)))
    return 0;
  if (plan->walk == LIFT_SUMS) {
    slice_sums(shape, width);
    rest += 32 * size * (size_t)(shape->vectors * shape->vector) *
            (size_t)(shape->slice + 1);
  }
  for (shape->staged = 1; shape->staged >= 0; shape->staged--) {
    shape->shared = rest + (shape->staged ? matrix : 0);
    if ((shape->shared + RESERVED) * (size_t)plan->blocks <= all)
      return 1;
  }
  return 0;
}

int dfgnn__lift_shape(lift_shape *shape, const dfgnn_setting *setting,
                      const lift_plan *plan, int ones, int vector, int packed) {
  const dfgnn_problem *problem = setting->problem;
  const int given = dfgnn__lift_width(problem);
  const lift_plan plain = plain_of(plan);
  lift_shape usual = {.vector = vector, .packed = packed};
  *shape = usual;
  if (!best_shape(&usual, problem, &plain, budget_of(&plain)) &&
      !best_shape(&usual, problem, &plain, INT32_MAX))
    return 0;
  if (is_plain(plan))
    *shape = usual;
  else if (!best_shape(shape, problem, plan, budget_of(plan)) ||
           shape->tiles > usual.tiles)
    return 0;
  return fit_shared(shape, setting, plan, given > 0 ? given + ones : 0);
}

static int edge_aligned(const edges_params *p, const dfgnn_problem *problem,
                        int vector) {
  const size_t bytes = (size_t)vector * dfgnn_dtype_size(problem->dtype);
  return problem->edge_dim >= 0 || ((uintptr_t)p->attr % bytes == 0 &&
                                    (uintptr_t)p->grad_attr % bytes == 0);
}

dfgnn_status dfgnn__lift_shape_for(lift_shape *shape, lift_plan *plan,
                                   const edges_params *p,
                                   const dfgnn_setting *setting, int ones) {
  const dfgnn_problem *problem = setting->problem;
  const int vector = dfgnn__vector_width(problem);
  const int vectors = dfgnn__edges_vectors(p, problem, vector) &&
                      edge_aligned(p, problem, vector);
  if (dfgnn__lift_shape(shape, setting, plan, ones, vectors ? vector : 1,
                        vectors))
    return DFGNN_OK;
  *plan = plain_of(plan);
  if (dfgnn__lift_shape(shape, setting, plan, ones, 1, 0))
    return DFGNN_OK;
  return dfgnn__fail(DFGNN_ERROR_UNSUPPORTED,
                     "no kernel for edge features and unaligned tensors of "
                     "%lld heads of %lld features",
                     (long long)problem->heads, (long long)problem->dim);
}

const char *dfgnn__lift_refusal(const dfgnn_setting *s, const lift_plan *plan) {
  const dfgnn_problem *problem = s->problem;
  const char *reason;
  lift_shape shape;
  if (problem->op == DFGNN_OP_GT && problem->edge_dim > 0)
    return "serves GT only with edges that are projected already";
  if (problem->edge_dim > 64)
    return "more than 64 features an edge";
  if (problem->dim > 1024)
    return "more than 1024 features";
  if ((reason = dfgnn__edges_items_refusal(s, plan->item_edges)))
    return reason;
  return dfgnn__lift_shape(&shape, s, plan, 1, dfgnn__vector_width(problem), 1)
             ? NULL
             : "a block would need more registers or shared memory than there "
               "are";
}

/* ---- arguments ----------------------------------------------------------- */

dfgnn_status dfgnn__lift_fill(edges_params *p, const dfgnn_launch *launch) {
  const dfgnn_problem *problem = launch->setting.problem;
  const dfgnn_args *a = launch->args;
  const dfgnn_status status = dfgnn__edges_fill(p, launch);
  const int gt = problem->op == DFGNN_OP_GT, gat = problem->op == DFGNN_OP_GAT;
  if (!gt)
    p->key = p->grad_key = (tensor_view){0};
  if (gat)
    p->query = p->grad_query = (tensor_view){0};
  p->slope = a->slope;
  p->att = a->att;
  p->score_dst = a->score_dst;
  p->score_src = a->score_src;
  p->score_edge = a->score_edge;
  p->grad_score_dst = a->grad_score_dst;
  p->grad_score_src = a->grad_score_src;
  p->grad_score_edge = a->grad_score_edge;
  return status;
}

unsigned dfgnn__lift_blocks(const dfgnn_setting *s, const lift_plan *plan,
                            int64_t units) {
  const int64_t all = dfgnn__ceil_div(units, plan->warps);
  const int64_t resident = (int64_t)s->device->units * plan->blocks;
  return (unsigned)(all < resident ? all : resident);
}
