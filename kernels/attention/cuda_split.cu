/* cuda_split.cu - rows cut into items of bounded size, so that a row with many
 * edges is shared by many warps; their partial softmax results are merged by a
 * second kernel over those rows alone */
#include "kernels/attention/cuda_attend.h"
#include "kernels/common/cuda_common.cuh"

using namespace dfgnn;

namespace {

enum { LANES, UNROLL, WARPS, ROWS, EDGES, HEADS };

/* A block a row and head: each warp takes every n-th item, then the warps'
 * results merge in shared memory, always in the same order. */
template <typename T>
__global__ void merge(const __grid_constant__ attend_params p,
                      const int *heavy) {
  using A = accumulator_t<T>;
  extern __shared__ double shared[];
  const int row = heavy[blockIdx.x / p.heads];
  const int head = static_cast<int>(blockIdx.x % p.heads);
  const int first = p.row_item[row], count = p.row_item[row + 1] - first;
  const A *state = static_cast<const A *>(p.partial_state);
  const A *partial = static_cast<const A *>(p.partial);
  A *sums = reinterpret_cast<A *>(shared); /* [slices][dim] */
  const int64_t base = int64_t(first - row);
  const auto at = [&](int k) {
    const int64_t slot = k == 0 ? p.extra_items + base : base + k - 1;
    return slot * p.heads + head;
  };

  A m = lowest<A>(), l = A(0);
  const int lane = threadIdx.x & 31;
  for (int k = lane; k < count; k += 32)
    m = max_of(m, state[at(k) * 2]);
  m = lanes_max<32>(m);
  for (int k = lane; k < count; k += 32)
    l += state[at(k) * 2 + 1] * exp2_fast(state[at(k) * 2] - m);
  l = lanes_sum<32>(l);
  const A inverse = l == A(0) ? A(0) : A(1) / l;

  /* blockDim.x = width x slices, width a power of two. */
  const int width = p.span, slices = blockDim.x / width;
  const int slice = threadIdx.x / width, column = threadIdx.x & (width - 1);
  for (int f = column; f < p.dim; f += width) {
    A sum = A(0);
    for (int k = slice; k < count; k += slices)
      sum += partial[at(k) * p.dim + f] * exp2_fast(state[at(k) * 2] - m);
    sums[slice * p.dim + f] = sum;
  }
  __syncthreads();
  char *out = static_cast<char *>(const_cast<void *>(p.out.data)) +
              int64_t(row) * p.out.node_bytes +
              int64_t(head) * p.out.head_bytes;
  for (int f = threadIdx.x; f < p.dim; f += blockDim.x) {
    A sum = A(0);
    for (int i = 0; i < slices; ++i)
      sum += sums[i * p.dim + f];
    *reinterpret_cast<T *>(out + int64_t(f) * p.out.feature_bytes) =
        narrow<T>(sum * inverse);
  }
  if (threadIdx.x == 0) {
    if (p.lse)
      static_cast<A *>(p.lse)[int64_t(row) * p.heads + head] =
          l == A(0) ? -A(INFINITY) : (m + log2_fast(l)) * A(kLn2);
  }
}

dfgnn_status launch_merge(attend_params *p, const dfgnn_view *items,
                          const dfgnn_launch *launch) {
  if (items->extra == 0)
    return DFGNN_OK;
  int width = 32;
  while (width < p->dim && width < 256)
    width *= 2;
  p->span = width;
  const int64_t grid = items->extra * p->heads;
  if (grid > INT32_MAX)
    return dfgnn__fail(DFGNN_ERROR_UNSUPPORTED, "%lld rows to merge",
                       static_cast<long long>(grid));
  const int *heavy = static_cast<const int *>(items->array[3]);
  const dim3 blocks(static_cast<unsigned>(grid));
  cudaStream_t stream = static_cast<cudaStream_t>(launch->stream);
  const dfgnn_dtype dtype = launch->setting.problem->dtype;
  const size_t shared = size_t(256 / width) * size_t(p->dim) * sizeof(float);
  if (dtype == DFGNN_F32)
    merge<float><<<blocks, 256, shared, stream>>>(*p, heavy);
  else if (dtype == DFGNN_F16)
    merge<__half><<<blocks, 256, shared, stream>>>(*p, heavy);
  else
    merge<__nv_bfloat16><<<blocks, 256, shared, stream>>>(*p, heavy);
  return launch_status("merge");
}

size_t aligned_bytes(int64_t count) {
  return (static_cast<size_t>(count) * sizeof(float) + 255) / 256 * 256;
}

/* Two results a cut: see row_of_unit(). */
int64_t slots(const dfgnn_setting *s) {
  return s->matrix->edges / s->parameter[EDGES] * 2 * s->problem->heads;
}

int split_legal(const int *x) {
  return x[ROWS] * x[LANES] <= 32 && (x[ROWS] == 1 || x[EDGES] <= 128);
}

const char *split_applicable(const dfgnn_setting *s) {
  attend_shape shape;
  const int *x = s->parameter;
  if (s->matrix->destinations + s->matrix->edges / x[EDGES] > INT32_MAX - 65536)
    return "more than 2^31 items";
  if (s->matrix->max_degree <= x[EDGES])
    return "no row is longer than an item";
  if (x[HEADS] && s->problem->heads == 1)
    return "one head";
  if (!attend_shape_find(&shape, s->problem->op, s, x[LANES], x[UNROLL],
                         x[HEADS]))
    return "no instance of this width";
  return NULL;
}

size_t split_workspace(const dfgnn_setting *s) {
  return aligned_bytes(slots(s) * 2) +
         aligned_bytes(slots(s) * s->problem->dim);
}

int split_views(const dfgnn_setting *s, dfgnn_view_request *request) {
  request[0].kind = DFGNN_VIEW_WORK_ITEMS;
  request[0].parameter = s->parameter[EDGES];
  return 1;
}

dfgnn_status split_launch(const dfgnn_launch *launch) {
  const dfgnn_setting *s = &launch->setting;
  const int *x = s->parameter;
  attend_shape shape;
  attend_params p;
  dfgnn_status status = attend_fill(&p, launch);
  if (status)
    return status;
  if (!attend_shape_find(&shape, s->problem->op, s, x[LANES], x[UNROLL],
                         x[HEADS]))
    return dfgnn__fail(DFGNN_ERROR_UNSUPPORTED, "no instance of this width");
  char *workspace = static_cast<char *>(launch->workspace);
  p.partial_state = workspace;
  workspace += aligned_bytes(slots(s) * 2);
  p.partial = workspace;
  const attend_schedule schedule = {x[WARPS], x[ROWS], 1, NULL,
                                    launch->views[0]};
  status = attend_run(&p, s->problem->op, launch, &shape, &schedule);
  return status ? status : launch_merge(&p, launch->views[0], launch);
}

} // namespace

DFGNN_FAMILIES(cuda_split) = {
    {"cuda.attention.fwd.split",
     "split",
     "cuda",
     DFGNN_OPS_ATTENTION,
     DFGNN_BIT(DFGNN_PASS_FORWARD),
     DFGNN_BIT(DFGNN_F32) | DFGNN_BIT(DFGNN_F16) | DFGNN_BIT(DFGNN_BF16),
     1,
     1,
     0,
     0,
     {{"lanes", 4, {4, 8, 16, 32}, {}},
      {"unroll", 4, {1, 2, 4, 8}, {}},
      {"warps", 2, {4, 8}, {}},
      {"rows", 3, {1, 2, 4}, {}},
      {"edges", 4, {32, 128, 256, 1024}, {}},
      {"heads", 2, {0, 1}, {"grid", "warp"}}},
     split_legal,
     split_applicable,
     split_workspace,
     split_views,
     NULL,
     NULL,
     split_launch},
    DFGNN_FAMILIES_END};
