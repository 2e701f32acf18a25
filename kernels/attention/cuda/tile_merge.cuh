/* tile_merge.cuh - the items of a cut window become its rows */
#ifndef DFGNN_ATTENTION_CUDA_TILE_MERGE_CUH
#define DFGNN_ATTENTION_CUDA_TILE_MERGE_CUH

#include "kernels/attention/cuda/tile_forward_row.cuh"

namespace dfgnn {

/* Turns the (m, l, sums) of a cut window's items into softmax and output; a
 * warp takes a row. */
template <int OP, typename T, int DIM, int EDGES>
__global__ void tile_merge(const __grid_constant__ tile_params p) {
  constexpr int W = TILE_WIDTH(DIM), N = W / 32;
  ptx::wait_for_previous();
  const int lane = threadIdx.x & 31, head = blockIdx.y;
  const int unit = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
  const int window = unit / p.rows, r = unit % p.rows;
  if (window >= p.cut_count || r >= p.cuts[window].rows)
    return;
  const dfgnn_tile_cut cut = p.cuts[window];
  const auto at = [&](int k) {
    return (int64_t(cut.slot + k) * p.heads + head) * p.rows + r;
  };
  float m = lowest<float>(), l = 0.0f, sum[N] = {};
  for (int k = lane; k < cut.slots; k += 32)
    m = fmaxf(m, p.partial_state[2 * at(k)]);
  m = lanes_max<32>(m);
  for (int k = 0; k < cut.slots; ++k) {
    const float scale = exp2_fast(p.partial_state[2 * at(k)] - m);
    l += p.partial_state[2 * at(k) + 1] * scale;
    unroll<N>(
        [&](int i) { sum[i] += p.partial[at(k) * W + lane + 32 * i] * scale; });
  }
  const float factor = l == 0.0f ? 0.0f : 1.0f / l;
  float zero = factor * 0.0f;
  unroll<N>([&](int i) { zero = fmaf(sum[i], 0.0f, zero); });
  const int row = cut.row + r;
  if (__any_sync(kFullMask, zero != 0.0f)) {
    tile_slow_row<OP, T, DIM, EDGES>(p, row, head, lane);
    return;
  }
  tile_store_row<T, DIM>(p, row, head, lane, sum, factor, m, l);
}

} // namespace dfgnn

#endif
