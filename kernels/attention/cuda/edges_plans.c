/* edges_plans.c - see edges_plans.h */
#include "kernels/attention/cuda/edges_plans.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

edges_plan dfgnn__edges_plain(const edges_plan *plan) {
  return (edges_plan){.lanes = 32,
                      .unroll = 1,
                      .rows = 8,
                      .blocks = 1,
                      .backward = plan->backward,
                      .columns = plan->columns,
                      .item_edges = plan->item_edges};
}

static int is_plain(const edges_plan *plan) {
  return plan->lanes == 32 && plan->unroll == 1 && plan->rows == 8 &&
         plan->blocks == 1;
}

int dfgnn__edges_width(const dfgnn_problem *problem, int ones) {
  return (int)problem->edge_dim + ones;
}

int dfgnn__edges_use(const dfgnn_problem *problem) {
  return problem->edge_use == DFGNN_EDGE_KEYS     ? EDGES_KEYS
         : problem->edge_use == DFGNN_EDGE_VALUES ? EDGES_VALUES
                                                  : EDGES_KEYS | EDGES_VALUES;
}

/* ---- shapes -------------------------------------------------------------- */

/* The same as edge_share() of edges_lanes.cuh. */
static int share_of(int features, int lanes) {
  const int share = (int)dfgnn__ceil_div(features, lanes);
  return share <= 1 ? 1 : (share + 1) / 2 * 2;
}

/* 32-bit registers that a lane's part of a row takes; `features` are those of
 * its heads, `share` those of edges. */
static int registers(const dfgnn_problem *problem, const edges_plan *plan,
                     int features, int states, int share) {
  const int size = (int)dfgnn_dtype_size(problem->dtype);
  const int words = (int)dfgnn__scalar_size(problem->dtype) / 4;
  const int gathered = 2 * plan->unroll * ((features * size + 3) / 4);
  if (plan->columns)
    return gathered + words * (2 * features + 2 * plan->unroll * states);
  if (plan->backward)
    return gathered + words * (3 * features + 3 * states * share +
                               2 * plan->unroll * (share + states));
  return gathered + words * (2 * features + 2 * states * share +
                             plan->unroll * (share + 2 * states));
}

/* Registers that the kernels take beside those: the report of ptxas for sm_90
 * less the count above is 28 .. 52 for 16 x 32 and 16 x 64 halves.  Plans that
 * are measured may count too few: to spill some registers can cost less than to
 * run half as many warps. */
enum {
  OTHER_REGISTERS = 40,
  LEAST_OTHER_REGISTERS = 16,
  MOST_REGISTERS = 255,
  ALL_REGISTERS = 65536
};

static int budget_of(const edges_plan *plan) {
  const int share = ALL_REGISTERS / (plan->rows * 32 * plan->blocks);
  return (share < MOST_REGISTERS ? share : MOST_REGISTERS) -
         (is_plain(plan) ? OTHER_REGISTERS : LEAST_OTHER_REGISTERS);
}

/* Finds the layout with so many lanes a head and the fewest tiles that
 * registers allow; returns 0 if there is none.  *features becomes the number of
 * features of a lane. */
static int lay_out(edges_shape *shape, const dfgnn_problem *problem,
                   const edges_plan *plan, int width, int head_lanes,
                   int budget, int *features) {
  const int beside = plan->lanes / head_lanes;
  const int vectors = (int)dfgnn__ceil_div(
      dfgnn__ceil_div(problem->dim, shape->vector), head_lanes);
  const int most = (int)dfgnn__ceil_div(problem->heads, beside);
  const int share = share_of(width, head_lanes);
  for (int tiles = 1; tiles <= most; tiles++) {
    const int states = (int)dfgnn__ceil_div(most, tiles);
    *features = states * vectors * shape->vector;
    if (registers(problem, plan, *features, states, share) > budget)
      continue;
    shape->head_lanes = head_lanes;
    shape->states = states;
    shape->tile_heads = states * beside;
    shape->tiles = (int)dfgnn__ceil_div(problem->heads, shape->tile_heads);
    shape->pitch = head_lanes * share;
    shape->chunk = shape->pitch <= 16 ? 32 : shape->pitch <= 32 ? 16 : 8;
    return 1;
  }
  return 0;
}

/* Is layout a better than b?  Fewer tiles are better, then fewer features a
 * lane, so that all lanes have some, then fewer sums over lanes. */
static int better(const edges_shape *a, int a_features, const edges_shape *b,
                  int b_features) {
  if (a->tiles != b->tiles)
    return a->tiles < b->tiles;
  if (a_features != b_features)
    return a_features < b_features;
  return a->states < b->states;
}

static int best_shape(edges_shape *shape, const dfgnn_problem *problem,
                      const edges_plan *plan, int width, int budget) {
  edges_shape best = *shape;
  int found = 0, best_features = 0;
  for (int lanes = 1; lanes <= plan->lanes; lanes *= 2) {
    edges_shape next = *shape;
    int features;
    if (lay_out(&next, problem, plan, width, lanes, budget, &features) &&
        (!found || better(&next, features, &best, best_features))) {
      best = next;
      best_features = features;
      found = 1;
    }
  }
  *shape = best;
  return found;
}

/* The same as edge_pitch() of edges_project.cuh. */
static int64_t apart(int64_t features) {
  return dfgnn__ceil_div(features, 32) * 32 + 4;
}

/* Bytes of shared memory of a block: each row's products with W before and
 * after the walk, features of edges, and if they are staged rows and W. */
static size_t shared_of(const dfgnn_problem *problem, const edges_plan *plan,
                        const edges_shape *shape, int width, int staged) {
  const int use = dfgnn__edges_use(problem);
  const int products = plan->backward && (use & EDGES_VALUES) ? 2 : 1;
  const int expanded = use & (plan->backward ? EDGES_KEYS : EDGES_VALUES);
  const int64_t features = problem->heads * problem->dim;
  const int64_t head = dfgnn__ceil_div(problem->dim, 4) * 4 + 4;
  const int64_t row = products * apart(shape->tile_heads * shape->pitch) +
                      (expanded ? apart(shape->tile_heads * head) : 0) +
                      shape->chunk * shape->pitch;
  const size_t size = dfgnn_dtype_size(problem->dtype);
  const int64_t rows = (plan->backward ? 2 : 1) * plan->rows *
                       (features + dfgnn__wide_vector(problem->dtype));
  const int64_t columns = dfgnn__ceil_div(width, 16) * 16;
  const int64_t matrix = size == 2
                             ? problem->heads * columns *
                                   (dfgnn__ceil_div(problem->dim, 16) * 16 + 8)
                             : features * (columns + 2);
  return (size_t)(plan->rows * row) * dfgnn__scalar_size(problem->dtype) +
         (staged ? (size_t)(rows + matrix) * size : 0);
}

/* Stages rows and W if there is room for them; returns 0 if the blocks do not
 * fit even without. */
static int fit_shared(edges_shape *shape, const dfgnn_setting *s,
                      const edges_plan *plan, int width) {
  enum { RESERVED = 1024 }; /* bytes that the driver takes of each block */
  const size_t all = (size_t)s->device->shared_bytes + RESERVED;
  for (shape->staged = 1; shape->staged >= 0; shape->staged--) {
    shape->shared = shared_of(s->problem, plan, shape, width, shape->staged);
    if ((shape->shared + RESERVED) * (size_t)plan->blocks <= all)
      return 1;
  }
  return 0;
}

int dfgnn__edges_shape(edges_shape *shape, const dfgnn_setting *setting,
                       const edges_plan *plan, int ones, int vector,
                       int packed) {
  const dfgnn_problem *problem = setting->problem;
  const int width = plan->columns ? 1 : dfgnn__edges_width(problem, ones);
  const edges_plan plain = dfgnn__edges_plain(plan);
  edges_shape usual = {.vector = vector, .packed = packed};
  *shape = usual;
  if (!best_shape(&usual, problem, &plain, width, budget_of(&plain)) &&
      !best_shape(&usual, problem, &plain, width, INT32_MAX))
    return 0;
  if (is_plain(plan))
    *shape = usual;
  else if (!best_shape(shape, problem, plan, width, budget_of(plan)) ||
           shape->tiles > usual.tiles ||
           shape->chunk % (plan->unroll * (32 / plan->lanes)) != 0)
    return 0;
  return plan->columns || fit_shared(shape, setting, plan, width);
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
                     "no kernel for %lld features an edge and unaligned "
                     "tensors of %lld heads of %lld features",
                     (long long)problem->edge_dim, (long long)problem->heads,
                     (long long)problem->dim);
}

unsigned dfgnn__edges_blocks(const dfgnn_setting *s, const edges_plan *plan,
                             int64_t units) {
  const int64_t all = dfgnn__ceil_div(units, plan->rows);
  const int64_t resident = (int64_t)s->device->units * plan->blocks;
  return (unsigned)(all < resident ? all : resident);
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
  const int vector = dfgnn__vector_width(problem);
  const char *reason;
  edges_shape shape;
  if (problem->edge_dim <= 0)
    return "serves only edge features that W projects";
  if (problem->edge_dim > 64)
    return "more than 64 features an edge";
  if (problem->dim > 1024)
    return "more than 1024 features";
  if (!has_products(s))
    return "needs tensor cores of sm_80 or later";
  if ((reason = dfgnn__edges_items_refusal(s, plan->item_edges)))
    return reason;
  return dfgnn__edges_shape(&shape, s, plan, 1, vector, 1)
             ? NULL
             : "a block would need more registers or shared memory than there "
               "are";
}

/* ---- arguments ----------------------------------------------------------- */

dfgnn_status dfgnn__edges_fill(edges_params *p, const dfgnn_launch *launch) {
  const dfgnn_problem *problem = launch->setting.problem;
  const dfgnn_args *a = launch->args;
  const size_t size = dfgnn_dtype_size(problem->dtype);
  const struct {
    tensor_view *view;
    const char *name;
    const void *data;
    const dfgnn_strides *strides;
  } tensors[] = {
      {&p->query, "query", a->query, &a->query_strides},
      {&p->key, "key", a->key, &a->key_strides},
      {&p->value, "value", a->value, &a->value_strides},
      {&p->out, "out", a->out, &a->out_strides},
      {&p->grad_out, "grad_out", a->grad_out, &a->grad_out_strides},
      {&p->grad_query, "grad_query", a->grad_query, &a->grad_query_strides},
      {&p->grad_key, "grad_key", a->grad_key, &a->grad_key_strides},
      {&p->grad_value, "grad_value", a->grad_value, &a->grad_value_strides}};
  *p = (edges_params){.schedule = dfgnn__schedule_rows(launch->setting.matrix),
                      .attr = a->edge_attr,
                      .weight = a->edge_weight,
                      .constant = a->edge_bias,
                      .bias = problem->bias ? a->bias : NULL,
                      .weights = problem->weights ? a->weights : NULL,
                      .lse = a->lse,
                      .grad_lse = a->grad_lse,
                      .dropout = dfgnn__dropout_params(problem, a),
                      .scale = a->scale};
  for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
    const dfgnn_status status =
        dfgnn__view_tensor(tensors[i].view, tensors[i].name, tensors[i].data,
                           tensors[i].strides, size);
    if (status)
      return status;
  }
  return DFGNN_OK;
}

int dfgnn__edges_vectors(const edges_params *p, const dfgnn_problem *problem,
                         int vector) {
  const tensor_view *views[] = {&p->query,    &p->key,       &p->value,
                                &p->out,      &p->grad_out,  &p->grad_query,
                                &p->grad_key, &p->grad_value};
  const size_t size = dfgnn_dtype_size(problem->dtype);
  for (size_t i = 0; i < sizeof views / sizeof *views; i++)
    if (!dfgnn__view_aligned(views[i], problem->heads, vector, size) ||
        !dfgnn__view_packed(views[i], problem->heads, problem->dim, size))
      return 0;
  return 1;
}
