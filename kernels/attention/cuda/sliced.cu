/* sliced.cu - scores, softmax and sums as passes over one table at a
 * time, in panels of features narrow enough that the gathered panel stays in
 * the L2 cache; for tables beyond it whose rows are gathered at random.  As
 * scores are in memory, it also gives the attention weights.  One panel of all
 * features is the unfused baseline with kernels of ours. */
#include "kernels/attention/cuda/attend.h"
#include "kernels/common/cuda_common.cuh"

using namespace dfgnn;

namespace {

enum { PANEL, UNROLL, WARPS, EDGES };

/* Rows above this are shared by the warps of a block. */
constexpr int kLongRow = 2048;

template <typename A> struct softmax_params {
  const void *offsets;
  int offsets64, rows, heads;
  int64_t edges;
  const int *indices;
  A *scores;                      /* [H,E] */
  const A *score_dst, *score_src; /* GAT; else NULL */
  A slope;
  A *lse2, *lse, *weights; /* [N,H], [N,H], [E,H] */
};

template <typename A> struct softmax_sum {
  A m, l;
  __device__ __forceinline__ void add(A s) {
    const A top = max_of(m, s);
    l = l * exp2_fast(m - top) + exp2_fast(s - top);
    m = top;
  }
  __device__ __forceinline__ void merge(A m2, A l2) {
    const A top = max_of(m, m2);
    l = l * exp2_fast(m - top) + l2 * exp2_fast(m2 - top);
    m = top;
  }
  __device__ __forceinline__ void merge_warp() {
#pragma unroll
    for (int o = 16; o > 0; o >>= 1) {
      const A m2 = __shfl_xor_sync(kFullMask, m, o);
      const A l2 = __shfl_xor_sync(kFullMask, l, o);
      merge(m2, l2);
    }
  }
};

/* Every `stride`-th score of a row from `at`; GAT computes it first. */
template <typename A>
__device__ __forceinline__ void
sum_row(softmax_sum<A> &sum, const softmax_params<A> &p, int row, int head,
        int64_t begin, int degree, int at, int stride) {
  A *scores = p.scores + head * p.edges + begin;
  A dst = A(0);
  if (p.score_dst)
    dst = p.score_dst[int64_t(row) * p.heads + head];
#pragma unroll 4
  for (int i = at; i < degree; i += stride) {
    A s;
    if (p.score_dst) {
      const A t =
          dst + __ldg(p.score_src +
                      int64_t(__ldg(p.indices + begin + i)) * p.heads + head);
      s = (t > A(0) ? t : t * p.slope) * A(kLog2e);
      scores[i] = s;
    } else {
      s = scores[i];
    }
    sum.add(s);
  }
}

/* Scores far from 0 lose digits against a log-sum-exp of their size, so those
 * of such a row are replaced by their distance to the largest.  Returns what
 * was taken off.  Each thread shifts what it summed. */
template <typename A>
__device__ __forceinline__ A shift_row(const softmax_sum<A> &sum,
                                       const softmax_params<A> &p, int head,
                                       int64_t begin, int degree, int at,
                                       int stride) {
  constexpr A kFar = A(32);
  const bool far = sum.m > kFar || sum.m < -kFar;
  if (!far || sum.l == A(0) || sum.m == A(INFINITY))
    return A(0);
  A *scores = p.scores + head * p.edges + begin;
  for (int i = at; i < degree; i += stride)
    scores[i] -= sum.m;
  return sum.m;
}

/* The log-sum-exp of the scores as they are in memory now. */
template <typename A>
__device__ __forceinline__ A lse2_of(const softmax_sum<A> &sum, A shift) {
  return sum.l == A(0) ? A(0) : sum.m - shift + log2_fast(sum.l);
}

template <typename A>
__device__ __forceinline__ void finish_row(const softmax_sum<A> &sum, A shift,
                                           const softmax_params<A> &p, int row,
                                           int head) {
  const int64_t at = int64_t(row) * p.heads + head;
  /* Weights of a row of -inf are exp2(-inf - 0). */
  p.lse2[at] = lse2_of(sum, shift);
  if (p.lse)
    p.lse[at] = sum.l == A(0) ? -A(INFINITY) : lse2_of(sum, A(0)) * A(kLn2);
}

template <typename A>
__device__ __forceinline__ void weigh_row(A lse2, const softmax_params<A> &p,
                                          int head, int64_t begin, int degree,
                                          int at, int stride) {
  const A *scores = p.scores + head * p.edges + begin;
  for (int i = at; i < degree; i += stride)
    p.weights[(begin + i) * p.heads + head] = exp2_fast(scores[i] - lse2);
}

/* A warp a row and head; long rows after that by whole blocks. */
template <typename A>
__global__ void __launch_bounds__(256)
    row_softmax(const __grid_constant__ softmax_params<A> p) {
  __shared__ A m[8], l[8];
  const offsets_t offsets{p.offsets, p.offsets64};
  const int warp = threadIdx.x / 32, lane = threadIdx.x & 31;
  const int head = blockIdx.y, first = blockIdx.x * 8;
  const int row = first + warp;
  if (row < p.rows) {
    const int64_t begin = offsets[row];
    const int degree = static_cast<int>(offsets[row + 1] - begin);
    if (degree <= kLongRow) {
      softmax_sum<A> sum{lowest<A>(), A(0)};
      sum_row(sum, p, row, head, begin, degree, lane, 32);
      sum.merge_warp();
      const A shift = shift_row(sum, p, head, begin, degree, lane, 32);
      if (lane == 0)
        finish_row(sum, shift, p, row, head);
      if (p.weights)
        weigh_row(lse2_of(sum, shift), p, head, begin, degree, lane, 32);
    }
  }
  for (int i = 0; i < 8 && first + i < p.rows; ++i) {
    const int64_t begin = offsets[first + i];
    const int degree = static_cast<int>(offsets[first + i + 1] - begin);
    if (degree <= kLongRow)
      continue;
    softmax_sum<A> sum{lowest<A>(), A(0)};
    sum_row(sum, p, first + i, head, begin, degree, threadIdx.x, 256);
    sum.merge_warp();
    __syncthreads();
    if (lane == 0)
      m[warp] = sum.m, l[warp] = sum.l;
    __syncthreads();
    sum = {lowest<A>(), A(0)};
    for (int k = 0; k < 8; ++k)
      sum.merge(m[k], l[k]);
    const A shift = shift_row(sum, p, head, begin, degree, threadIdx.x, 256);
    if (threadIdx.x == 0)
      finish_row(sum, shift, p, first + i, head);
    if (p.weights)
      weigh_row(lse2_of(sum, shift), p, head, begin, degree, threadIdx.x, 256);
  }
}

template <typename A>
dfgnn_status softmax_rows(const dfgnn_launch *launch, void *scores,
                          void *lse2) {
  const dfgnn_matrix *matrix = launch->setting.matrix;
  const dfgnn_problem *problem = launch->setting.problem;
  const dfgnn_args *args = launch->args;
  const bool gat = problem->op == DFGNN_OP_GAT;
  softmax_params<A> p = {};
  p.offsets = matrix->offsets;
  p.offsets64 = matrix->offsets64;
  p.rows = static_cast<int>(matrix->destinations);
  p.heads = static_cast<int>(problem->heads);
  p.edges = matrix->edges;
  p.indices = matrix->indices;
  p.scores = static_cast<A *>(scores);
  p.score_dst = gat ? static_cast<const A *>(args->score_dst) : NULL;
  p.score_src = gat ? static_cast<const A *>(args->score_src) : NULL;
  p.slope = static_cast<A>(args->slope);
  p.lse2 = static_cast<A *>(lse2);
  p.lse = static_cast<A *>(args->lse);
  p.weights = problem->weights ? static_cast<A *>(args->weights) : NULL;
  const dim3 grid(static_cast<unsigned>((p.rows + 7) / 8),
                  static_cast<unsigned>(p.heads));
  row_softmax<A>
      <<<grid, 256, 0, static_cast<cudaStream_t>(launch->stream)>>>(p);
  return launch_status("row_softmax");
}

/* ---- the passes ---------------------------------------------------------- */

struct places {
  char *scores, *lse2, *inverse_src, *inverse_dst, *state, *partial;
  size_t bytes;
};

size_t aligned_bytes(int64_t count, size_t size) {
  return (static_cast<size_t>(count) * size + 255) / 256 * 256;
}

/* Where things lie in the workspace. */
places place(const dfgnn_setting *s, void *workspace) {
  const dfgnn_problem *problem = s->problem;
  const int64_t heads = problem->heads;
  const size_t size = problem->dtype == DFGNN_F64 ? 8 : 4;
  const int64_t slots = s->matrix->edges / s->parameter[EDGES] * 2 * heads;
  const int norms = problem->op == DFGNN_OP_AGNN;
  places at = {};
  size_t used = 0;
  const auto take = [&](int64_t count) {
    char *here = static_cast<char *>(workspace) + used;
    used += aligned_bytes(count, size);
    return here;
  };
  at.scores = take(s->matrix->edges * heads);
  at.lse2 = take(s->matrix->destinations * heads);
  at.inverse_src = take(norms ? s->matrix->sources * heads : 0);
  at.inverse_dst = take(norms ? s->matrix->destinations * heads : 0);
  at.state = take(slots * 2);
  at.partial = take(slots * problem->dim);
  at.bytes = used;
  return at;
}

/* The panel's lanes; 0 if vectors do not fit its features. */
int wide_lanes(const dfgnn_setting *s) {
  const int vector = static_cast<int>(16 / dfgnn_dtype_size(s->problem->dtype));
  const int lanes = s->parameter[PANEL] / vector;
  return s->problem->dtype != DFGNN_F64 && s->problem->dim % vector == 0 &&
                 lanes <= 32 && s->parameter[UNROLL] <= lanes
             ? lanes
             : 0;
}

const char *refusal(const dfgnn_setting *s) {
  const dfgnn_problem *problem = s->problem;
  const int *x = s->parameter;
  if (s->matrix->destinations + s->matrix->edges / x[EDGES] > INT32_MAX - 65536)
    return "more than 2^31 items";
  if (problem->heads > 65535)
    return "more than 65535 heads";
  if (problem->dim > 1024)
    return "dim above 1024";
  if (!wide_lanes(s) && (x[PANEL] != 32 || x[UNROLL] != 4))
    return "no instance of this width";
  return NULL;
}

const char *sliced_applicable(const dfgnn_setting *s) {
  if (s->parameter[PANEL] >= s->problem->dim)
    return "one panel would hold all features";
  return refusal(s);
}

const char *whole_applicable(const dfgnn_setting *s) {
  if (s->parameter[PANEL] < s->problem->dim)
    return "more features than a panel holds";
  if (s->parameter[PANEL] > 32 && s->parameter[PANEL] / 2 >= s->problem->dim)
    return "panel wider than the features";
  return refusal(s);
}

/* Panels of single elements serve all that is not aligned. */
attend_shape panel_shape(const dfgnn_setting *s, const attend_params *p) {
  const unsigned size =
      static_cast<unsigned>(dfgnn_dtype_size(s->problem->dtype));
  const int lanes = wide_lanes(s), heads = p->heads;
  if (lanes && attend_aligned(p, size))
    return {static_cast<int>(16 / size),
            lanes,
            1,
            s->parameter[UNROLL],
            0,
            1,
            lanes,
            heads};
  return {1, 32, 1, 4, 0, 1, 32, heads};
}

size_t sliced_workspace(const dfgnn_setting *s) { return place(s, NULL).bytes; }

int sliced_views(const dfgnn_setting *s, dfgnn_view_request *request) {
  request[0].kind = DFGNN_VIEW_WORK_ITEMS;
  request[0].parameter = s->parameter[EDGES];
  return 1;
}

dfgnn_status score_passes(const attend_params *p, const attend_shape *shape,
                          const places *at, const dfgnn_launch *launch) {
  const dfgnn_setting *s = &launch->setting;
  const dfgnn_problem *problem = s->problem;
  const int width = shape->lanes * shape->vector;
  panel_params panel = {};
  panel.schedule = p->schedule;
  panel.heads = p->heads;
  panel.beta = p->beta;
  panel.inverse_src = at->inverse_src;
  panel.inverse_dst = at->inverse_dst;
  panel.att_head = p->dim;
  panel.scores = at->scores;
  panel.edges = s->matrix->edges;
  panel.scale = problem->op == DFGNN_OP_AGNN ? 1.0 : p->scale;
  panel.slope = p->slope;
  const tensor_view source = problem->op == DFGNN_OP_GT ? p->key : p->value;
  for (int from = 0; from < p->dim; from += width) {
    panel.first = from == 0;
    panel.last = from + width >= p->dim;
    panel.dim = panel.last ? p->dim - from : width;
    panel.query = view_from(p->query, from);
    panel.source = view_from(source, from);
    panel.att = p->att ? static_cast<const char *>(p->att) +
                             from * dfgnn_dtype_size(problem->dtype)
                       : NULL;
    const dfgnn_status status =
        panel_run(&panel, launch, shape, s->parameter[WARPS]);
    if (status)
      return status;
  }
  return DFGNN_OK;
}

dfgnn_status sum_passes(const attend_params *whole, const attend_shape *shape,
                        const dfgnn_launch *launch) {
  const int width = shape->lanes * shape->vector;
  const attend_schedule schedule = {launch->setting.parameter[WARPS], 1,
                                    ATTEND_ONCE, NULL, launch->views[0]};
  for (int from = 0; from < whole->dim; from += width) {
    attend_params p = *whole;
    p.dim = whole->dim - from < width ? whole->dim - from : width;
    p.value = view_from(whole->value, from);
    p.out = view_from(whole->out, from);
    dfgnn_status status =
        attend_run(&p, DFGNN_SCORE_GIVEN, launch, shape, &schedule);
    if (!status)
      status = attend_merge(&p, launch->views[0], launch);
    if (status)
      return status;
  }
  return DFGNN_OK;
}

dfgnn_status sliced_launch(const dfgnn_launch *launch) {
  const dfgnn_setting *s = &launch->setting;
  const places at = place(s, launch->workspace);
  attend_params p;
  dfgnn_status status = attend_fill(&p, launch);
  if (status)
    return status;
  if (p.schedule.units == 0)
    return DFGNN_OK;
  attend_items(&p.schedule, launch->views[0], s->matrix);
  const attend_shape shape = panel_shape(s, &p);
  p.edges = s->matrix->edges;
  p.scores = at.scores;
  p.lse2 = at.lse2;
  p.partial_state = at.state;
  p.partial = at.partial;
  if (s->problem->op == DFGNN_OP_AGNN &&
      ((status = attend_inverse_norms(at.inverse_src, &p.value,
                                      s->matrix->sources, launch)) ||
       (status = attend_inverse_norms(at.inverse_dst, &p.query,
                                      s->matrix->destinations, launch))))
    return status;
  if (s->problem->op != DFGNN_OP_GAT && s->matrix->edges > 0 &&
      (status = score_passes(&p, &shape, &at, launch)))
    return status;
  status = s->problem->dtype == DFGNN_F64
               ? softmax_rows<double>(launch, at.scores, at.lse2)
               : softmax_rows<float>(launch, at.scores, at.lse2);
  p.lse = NULL;
  return status ? status : sum_passes(&p, &shape, launch);
}

} // namespace

#define PASSES(name, algorithm, applicable)                                    \
  {                                                                            \
    name, algorithm, "cuda", DFGNN_OPS_ATTENTION,                              \
        DFGNN_BIT(DFGNN_PASS_FORWARD), DFGNN_DTYPES_ALL, 1, 1, 1, 0, 0, 0,     \
        {{"panel", 4, {32, 64, 128, 256}, {}},                                 \
         {"unroll", 2, {4, 8}, {}},                                            \
         {"warps", 1, {4}, {}},                                                \
         {"edges", 2, {256, 1024}, {}}},                                       \
        NULL, applicable, sliced_workspace, sliced_views, NULL, NULL,          \
        sliced_launch                                                          \
  }

DFGNN_FAMILIES(attention_cuda_sliced) = {
    PASSES("cuda.attention.fwd.sliced", "sliced", sliced_applicable),
    PASSES("cuda.attention.fwd.unfused", "unfused", whole_applicable),
    DFGNN_FAMILIES_END};
