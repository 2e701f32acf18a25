/* block.cuh - weighted sums, in which blocks take the long rows
 *
 * The first blocks of a launch take a heavy row each: every group of lanes
 * walks a part of its edges, and the block adds up the groups' sums in shared
 * memory, in the order of the edges.  The other blocks give each group of lanes
 * a row, but for the heavy ones. */
#ifndef DFGNN_SUMS_CUDA_BLOCK_CUH
#define DFGNN_SUMS_CUDA_BLOCK_CUH

#include "kernels/sums/cuda/sum.cuh"

namespace dfgnn {

/* Keeps the sums of a part of a row in shared memory; a slot is the number of
 * the part. */
template <typename T, int VEC_, int L, int C, int FACTOR, int W>
struct spmm_part_op : spmm_op<T, VEC_, L, C, FACTOR, true, W> {
  using op = spmm_op<T, VEC_, L, C, FACTOR, true, W>;
  using typename op::A;
  using typename op::total;
  static constexpr int VEC = VEC_, TILE = L * C * VEC;
  static constexpr int kParts = GATHER_PIECE_WARPS * 32 / L;
  using op::op;

  static __device__ __forceinline__ A *part(int number) {
    alignas(16) __shared__ A parts[kParts * TILE];
    return parts + number * TILE;
  }
  __device__ __forceinline__ void keep(const total (&t)[VEC], int slot,
                                       int f) const {
    A *to = part(slot) + f - int(blockIdx.y) * TILE;
    unroll<VEC>([&](int i) { to[i] = t[i].sum[0]; });
  }
  /* Writes the row whose parts the block has kept. */
  __device__ __forceinline__ void add_parts(int row, int degree,
                                            int parts) const {
    for (int at = int(threadIdx.x) * VEC; at < TILE; at += blockDim.x * VEC) {
      const int f = int(blockIdx.y) * TILE + at;
      total t[VEC] = {};
#pragma unroll 4
      for (int k = 0; k < parts; ++k)
        unroll<VEC>([&](int i) { t[i].sum[0] += part(k)[at + i]; });
      if (f < W)
        op::store(t, row, degree, f);
    }
  }
};

/* The part of a heavy row that a group of lanes takes, and the number of parts
 * that have edges. */
struct heavy_row {
  int row, degree, share;
  int64_t begin;

  __device__ __forceinline__ heavy_row(const gather_schedule &s, int number,
                                       int groups)
      : row(__ldg(s.heavy + number)), begin(s.offsets[row]) {
    degree = static_cast<int>(s.offsets[int64_t(row) + 1] - begin);
    share = (degree + groups - 1) / groups;
  }
  __device__ __forceinline__ int parts() const {
    return (degree + share - 1) / share;
  }
  __device__ __forceinline__ row_work part(int number) const {
    row_work w;
    w.row = row;
    w.slot = number;
    w.position = number * share;
    w.degree = max(0, min(share, degree - w.position));
    const int64_t first = begin + w.position;
    w.begin = uint2{unsigned(first), unsigned(uint64_t(first) >> 32)};
    return w;
  }
};

template <typename T, int VEC, int L, int C, int U, int FACTOR, int W>
using spmm_block_op = spmm_part_op<T, VEC, L, C, FACTOR, W>;

/* 20 words of a lane fit 48 registers here, which leave room for a fifth block:
 * on an H200 four of them took 1.09 to 1.14 of the time. */
template <class Op, int C, int U> constexpr int part_blocks() {
  constexpr int words = Op::kHeld + C * U * Op::VEC * Op::kSize / 4;
  return words <= 20 ? 5 : gather_blocks<Op, C, U>();
}

template <typename T, int VEC, int L, int C, int U, int FACTOR, int W>
__global__ void __launch_bounds__(
    GATHER_PIECE_WARPS * 32,
    (part_blocks<spmm_block_op<T, VEC, L, C, U, FACTOR, W>, C, U>()))
    spmm_blocks(const __grid_constant__ gather_params p) {
  using row_t = gather_row<spmm_block_op<T, VEC, L, C, U, FACTOR, W>, L, C, U>;
  const gather_schedule &s = p.schedule;
  const row_t work(p, p.schedule.group);
  const int groups = static_cast<int>(blockDim.x) >> s.group_bits;
  const int group = static_cast<int>(threadIdx.x) >> s.group_bits;
  const int number = static_cast<int>(blockIdx.x);
  const bool heavy = number < s.heavy_rows;
  typename row_t::early e;
  if (heavy) {
    e.w = heavy_row(s, number, groups).part(group);
    e.active = e.w.degree > 0;
  } else {
    const int first = (number - s.heavy_rows) * groups;
    const int unit =
        first + static_cast<int>(threadIdx.x / 32) * (32 >> s.group_bits);
    if (unit >= s.units)
      return;
    work.find_row(e, unit, s.units);
    settle_row(s, e.w);
    if (e.w.degree > s.item_edges) {
      e.w.degree = 0;
      e.active = false;
    }
  }
  work.fetch_first(e);
  work.run(e, 0, 0);
  if (!heavy)
    return;
  __syncthreads();
  const heavy_row h(s, number, groups);
  work.op.add_parts(h.row, h.degree, h.parts());
}

} // namespace dfgnn

#endif
