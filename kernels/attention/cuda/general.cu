/* general.cu - forward attention of problems with an edge bias or dropout,
 * rows whole or cut into items */
#include "kernels/attention/cuda/general.h"
#include "kernels/attention/cuda/launch.cuh"

using namespace dfgnn;

namespace {

enum { LANES, ROWS, EDGES, HEADS };

constexpr int kWarps = 4;
/* A warp with several heads spans this many vectors of an edge's row. */
constexpr int kSlots = 32;

const void *find_kernel(const dfgnn_problem *problem, int lanes, int vectors,
                        int several) {
  static general_finder *const find[] = {general_f32, general_f16,
                                         general_bf16};
  return problem->dtype > DFGNN_BF16
             ? nullptr
             : find[problem->dtype](problem->op, lanes, vectors, several);
}

int ceil_power(int64_t x) {
  int p = 1;
  while (p < x)
    p *= 2;
  return p;
}

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

/* How lanes are laid over the features; 0 if there is no instance. */
int shape_find(attend_shape *shape, const dfgnn_problem *problem,
               const int *x) {
  const int vector = static_cast<int>(16 / dfgnn_dtype_size(problem->dtype));
  const int heads = static_cast<int>(problem->heads);
  const int needed = ceil_power(ceil_div(problem->dim, vector));
  attend_shape s = {vector, x[LANES], 1, 1, x[HEADS], 1, x[LANES], heads};
  if (s.several) {
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
  if (!find_kernel(problem, s.lanes, s.vectors, s.several))
    return 0;
  *shape = s;
  return 1;
}

/* Only general_plain() takes these. */
int odd(const dfgnn_problem *problem) {
  return problem->dtype == DFGNN_F64 ||
         problem->dim %
                 static_cast<int64_t>(16 / dfgnn_dtype_size(problem->dtype)) !=
             0;
}

int general_legal(const int *x) { return x[ROWS] * x[LANES] <= 32; }

const char *general_applicable(const dfgnn_setting *s) {
  const dfgnn_problem *problem = s->problem;
  const int *x = s->parameter;
  attend_shape shape;
  if (!problem->bias && !problem->dropout)
    return "the problem has neither bias nor dropout";
  if (s->matrix->max_degree > INT32_MAX ||
      s->matrix->destinations + (x[EDGES] ? s->matrix->edges / x[EDGES] : 0) >
          INT32_MAX - 65536)
    return "a row or the number of rows exceeds 2^31";
  if (x[EDGES] && s->matrix->max_degree <= x[EDGES])
    return "no row is longer than an item";
  if (problem->dim > 1024)
    return "more than 1024 features";
  if (x[HEADS] && problem->heads == 1)
    return "one head";
  if (odd(problem))
    return x[LANES] == 32 && !x[HEADS] ? nullptr : "this width has one setting";
  return shape_find(&shape, problem, x) ? nullptr : "no instance of this width";
}

struct memory {
  char *norms, *lse, *partial, *partial_state;
  size_t bytes;
};

char *part(memory *m, char *base, int64_t count, size_t size) {
  char *at = base + m->bytes;
  m->bytes += (static_cast<size_t>(count) * size + 255) / 256 * 256;
  return at;
}

memory memory_of(const dfgnn_setting *s, void *workspace) {
  const dfgnn_problem *problem = s->problem;
  const size_t size = problem->dtype == DFGNN_F64 ? 8 : 4;
  const int64_t heads = problem->heads, edges = s->parameter[EDGES];
  char *base = static_cast<char *>(workspace);
  memory m = {};
  if (problem->op == DFGNN_OP_AGNN)
    m.norms = part(&m, base, s->matrix->sources * heads, size);
  if (problem->weights) /* in case the caller has none */
    m.lse = part(&m, base, s->matrix->destinations * heads, size);
  if (edges) { /* two results a cut: see row_of_unit() */
    const int64_t slots = s->matrix->edges / edges * 2 * heads;
    m.partial_state = part(&m, base, slots * 2, size);
    m.partial = part(&m, base, slots * problem->dim, size);
  }
  return m;
}

size_t general_workspace(const dfgnn_setting *s) {
  return memory_of(s, nullptr).bytes;
}

int general_views(const dfgnn_setting *s, dfgnn_view_request *request) {
  if (!s->parameter[EDGES])
    return 0;
  request[0] = {DFGNN_VIEW_WORK_ITEMS, s->parameter[EDGES], 0};
  return 1;
}

/* ---- attention weights --------------------------------------------------- */

struct weights_params {
  const void *lse, *offsets;
  void *weights;
  int offsets64, heads;
  int64_t rows;
};

/* A warp a row: scores in log2 units become weights. */
template <typename A>
__global__ void __launch_bounds__(256)
    finish_weights(const __grid_constant__ weights_params p) {
  const offsets_t offsets{p.offsets, p.offsets64};
  const int64_t warps = int64_t(gridDim.x) * (blockDim.x / 32);
  for (int64_t row = int64_t(blockIdx.x) * (blockDim.x / 32) + threadIdx.x / 32;
       row < p.rows; row += warps) {
    const int64_t first = offsets[row] * p.heads;
    const int64_t count = offsets[row + 1] * p.heads - first;
    A *weights = static_cast<A *>(p.weights) + first;
    for (int64_t i = threadIdx.x & 31; i < count; i += 32) {
      const A lse = static_cast<const A *>(p.lse)[row * p.heads + i % p.heads];
      weights[i] =
          lse == -A(INFINITY) ? A(0) : exp2_fast(weights[i] - lse * A(kLog2e));
    }
  }
}

dfgnn_status run_weights(const dfgnn_launch *launch, const void *lse) {
  const dfgnn_matrix *matrix = launch->setting.matrix;
  weights_params p = {};
  p.lse = lse;
  p.offsets = matrix->offsets;
  p.weights = launch->args->weights;
  p.offsets64 = matrix->offsets64;
  p.heads = static_cast<int>(launch->setting.problem->heads);
  p.rows = matrix->destinations;
  int64_t blocks = ceil_div(p.rows, 8);
  if (blocks > 65535)
    blocks = 65535;
  if (blocks == 0)
    return DFGNN_OK;
  using kernel_t = void (*)(weights_params);
  const kernel_t kernel = launch->setting.problem->dtype == DFGNN_F64
                              ? finish_weights<double>
                              : finish_weights<float>;
  return launch_kernel("finish_weights", reinterpret_cast<const void *>(kernel),
                       dim3(static_cast<unsigned>(blocks)), dim3(256), 0,
                       launch->stream, p);
}

/* ---- launch -------------------------------------------------------------- */

void fill(general_params *g, const attend_params *p,
          const dfgnn_launch *launch) {
  const dfgnn_problem *problem = launch->setting.problem;
  const dfgnn_args *args = launch->args;
  const bool gt = problem->op == DFGNN_OP_GT;
  *g = general_params{};
  g->schedule = p->schedule;
  g->layout.heads = p->heads;
  g->layout.dim = p->dim;
  g->query = p->query;
  g->far[0] = gt ? p->key : p->value;
  g->far[1] = gt ? p->value : tensor_view{};
  g->out = p->out;
  g->score_dst = args->score_dst;
  g->far_scalar =
      problem->op == DFGNN_OP_GAT ? args->score_src : p->inverse_norms;
  g->att = args->att;
  g->beta = args->beta;
  g->bias = args->bias;
  g->weights = problem->weights ? args->weights : nullptr;
  g->lse = p->lse;
  g->partial = p->partial;
  g->partial_state = p->partial_state;
  g->dropout = dropout_of(problem, args);
  g->scale = args->scale;
  g->slope = args->slope;
}

dfgnn_status run_plain(const general_params *g, const dfgnn_launch *launch) {
  const dfgnn_problem *problem = launch->setting.problem;
  const size_t size = problem->dtype == DFGNN_F64 ? 8 : 4;
  return launch_kernel(
      "general_plain", general_plain_kernel(problem->op, problem->dtype),
      dim3(static_cast<unsigned>(ceil_div(g->schedule.units, kWarps)),
           static_cast<unsigned>(g->layout.heads)),
      dim3(kWarps * 32), kWarps * size * static_cast<size_t>(g->layout.dim),
      launch->stream, *g);
}

dfgnn_status run_wide(general_params *g, const dfgnn_launch *launch,
                      const attend_shape *shape) {
  const int rows = launch->setting.parameter[ROWS];
  g->layout.group = 32 / rows;
  g->layout.tile_heads = shape->tile_heads;
  for (g->layout.head_shift = 0; 1 << g->layout.head_shift < shape->head_lanes;)
    ++g->layout.head_shift;
  return launch_kernel(
      "general",
      find_kernel(launch->setting.problem, shape->lanes, shape->vectors,
                  shape->several),
      dim3(static_cast<unsigned>(ceil_div(g->schedule.units, kWarps * rows)),
           static_cast<unsigned>(shape->tiles)),
      dim3(kWarps * 32), 0, launch->stream, *g);
}

dfgnn_status general_launch(const dfgnn_launch *launch) {
  const dfgnn_setting *s = &launch->setting;
  const dfgnn_problem *problem = s->problem;
  const memory m = memory_of(s, launch->workspace);
  const dfgnn_view *items = s->parameter[EDGES] ? launch->views[0] : nullptr;
  attend_params p;
  general_params g;
  attend_shape shape;
  dfgnn_status status = attend_fill(&p, launch);
  if (status)
    return status;
  if (items)
    attend_items(&p.schedule, items, s->matrix);
  if (p.schedule.units == 0)
    return DFGNN_OK;
  p.partial = m.partial;
  p.partial_state = m.partial_state;
  p.inverse_norms = m.norms;
  if (problem->weights && !p.lse)
    p.lse = m.lse;
  if (problem->op == DFGNN_OP_AGNN &&
      (status =
           attend_inverse_norms(m.norms, &p.value, s->matrix->sources, launch)))
    return status;
  fill(&g, &p, launch);
  const unsigned size = static_cast<unsigned>(dfgnn_dtype_size(problem->dtype));
  status = !odd(problem) && attend_aligned(&p, size) &&
                   shape_find(&shape, problem, s->parameter)
               ? run_wide(&g, launch, &shape)
               : run_plain(&g, launch);
  if (!status && items)
    status = attend_merge(&p, items, launch);
  return status || !problem->weights ? status : run_weights(launch, p.lse);
}

} // namespace

DFGNN_FAMILIES(attention_cuda_general) = {
    {"cuda.attention.fwd.general",
     "general",
     "cuda",
     DFGNN_OPS_ATTENTION,
     DFGNN_BIT(DFGNN_PASS_FORWARD),
     DFGNN_DTYPES_ALL,
     1,
     1,
     1,
     1,
     1,
     0,
     {{"lanes", 4, {4, 8, 16, 32}, {}},
      {"rows", 2, {1, 2}, {}},
      {"edges", 3, {0, 64, 256}, {"all", "64", "256"}},
      {"heads", 2, {0, 1}, {"grid", "warp"}}},
     general_legal,
     general_applicable,
     general_workspace,
     general_views,
     NULL,
     NULL,
     general_launch},
    DFGNN_FAMILIES_END};
