/* attend_block.cuh - the walk of `block`: the first blocks of a launch take a
 * heavy row each, the others give every group of lanes a row
 *
 * The groups of a block that has a heavy row walk a part of its edges each.
 * Their softmaxes and sums stay in shared memory, and the block merges them in
 * the order of the edges. */
#ifndef DFGNN_ATTENTION_CUDA_ATTEND_BLOCK_CUH
#define DFGNN_ATTENTION_CUDA_ATTEND_BLOCK_CUH

#include "kernels/attention/cuda/attend.cuh"

namespace dfgnn {

/* A heavy row, and how many edges and parts its groups take. */
struct heavy_row {
  int row, degree, share, parts;
  const int *indices;

  DEVICE heavy_row(const row_schedule &p, int number, int groups)
      : row(__ldg(p.heavy + number)) {
    const offsets_t offsets{p.offsets, p.offsets64};
    const int64_t begin = offsets[row];
    degree = static_cast<int>(offsets[int64_t(row) + 1] - begin);
    share = ceil_div(degree, groups);
    parts = ceil_div(degree, share);
    indices = p.indices + begin;
  }
  DEVICE row_edges part(int number) const {
    const int from = number * share;
    return row_edges{row, number, max(0, min(share, degree - from)),
                     indices + from};
  }
};

/* Merges the parts of a row, for the heads of the tile. */
template <class K>
DEVICE void merge_parts(const attend_row<K> &work, int row, int parts) {
  using row_t = attend_row<K>;
  using A = typename row_t::A;
  using T = typename row_t::T;
  constexpr int HEADS = row_t::HEADS, DIM = row_t::DIM;
  const attend_params &p = work.p;
  const int first = work.first_head();
  const int heads = min(row_t::TILE, HEADS - first);
  for (int i = threadIdx.x; i < heads * DIM; i += blockDim.x) {
    const int head = first + i / DIM, f = i % DIM;
    const A *state = work.partial_state + head * 2;
    const A *sums = work.partial + head * DIM + f;
    A m = lowest<A>(), l = A(0), sum = A(0);
    for (int k = 0; k < parts; ++k)
      m = max_of(m, state[k * HEADS * 2]);
    for (int k = 0; k < parts; ++k) {
      const A factor = exp2_fast(state[k * HEADS * 2] - m);
      l += state[k * HEADS * 2 + 1] * factor;
      sum += sums[k * HEADS * DIM] * factor;
    }
    char *out = static_cast<char *>(const_cast<void *>(p.out.data)) +
                int64_t(row) * p.out.node_bytes +
                int64_t(head) * p.out.head_bytes +
                int64_t(f) * p.out.feature_bytes;
    *reinterpret_cast<T *>(out) = narrow<T>(sum * inverse_sum(l));
    if (f == 0 && p.lse)
      static_cast<A *>(p.lse)[int64_t(row) * HEADS + head] = log_sum_exp(m, l);
  }
}

template <class K>
__global__ void __launch_bounds__(512, 1)
    attend_block(const __grid_constant__ attend_params p) {
  using row_t = attend_row<K>;
  using A = typename row_t::A;
  extern __shared__ double attend_shared[]; /* states, then sums, of parts */
  ptx::wait_for_previous();
  ptx::let_next_begin();
  const row_schedule &s = p.schedule;
  const int number = static_cast<int>(blockIdx.x);
  const int groups = static_cast<int>(blockDim.x) / p.share.group;
  const bool heavy = number < s.heavy_rows;
  row_t work(p);
  work.partial_state = reinterpret_cast<A *>(attend_shared);
  work.partial = work.partial_state + groups * row_t::HEADS * 2;
  typename row_t::state z;
  typename row_t::early e;
  work.clear_buffers(z);
  if (heavy) {
    e.w = heavy_row(s, number, groups)
              .part(static_cast<int>(threadIdx.x) / p.share.group);
    e.active = e.w.degree > 0;
  } else {
    const int unit = (number - s.heavy_rows) * groups +
                     static_cast<int>(threadIdx.x / 32) * (32 / p.share.group);
    if (unit >= s.units)
      return;
    e.active = find_row(e.w, s, p.share.group, unit, s.units);
    if (e.w.degree > s.item_edges) {
      e.w.degree = 0;
      e.active = false;
    }
  }
  work.fetch_row(e);
  work.run(z, e, 0, 0);
  if (!heavy)
    return;
  __syncthreads();
  const heavy_row h(s, number, groups);
  merge_parts(work, h.row, h.parts);
}

} // namespace dfgnn

#endif
