/* block.cuh - weighted sums, in which blocks take the long rows
 *
 * A block takes a heavy row: every group of lanes walks a part of its edges,
 * and the block adds up the groups' sums in shared memory, in the order of the
 * edges.  Hubs, which are longer than that, are cut into items: the first
 * blocks of a launch take them, and merge.cuh adds up their partial results.
 * The last blocks give each group of lanes a row, except the heavy ones. */
#ifndef DFGNN_SUMS_CUDA_BLOCK_CUH
#define DFGNN_SUMS_CUDA_BLOCK_CUH

#include "kernels/sums/cuda/sum.cuh"

namespace dfgnn {

/* A block takes a heavy row, or an item of a hub, whose sums go to a slot of
 * partial results. */
struct heavy_part {
  int row, slot, degree, position;
  int64_t begin;

  DEVICE heavy_part(const gather_schedule &s, const int *row_at)
      : row(0), slot(-1), degree(0), position(0), begin(0) {
    if (!row_at)
      return;
    row = __ldg(row_at);
    begin = s.offsets[row];
    degree = static_cast<int>(s.offsets[int64_t(row) + 1] - begin);
  }
  /* Item k of the hub. */
  DEVICE heavy_part item(const gather_schedule &s, int k) const {
    heavy_part h = *this;
    h.slot = static_cast<int>(item_slots(s, row)(k));
    h.position = k * s.hub_edges;
    h.degree = min(s.hub_edges, degree - h.position);
    h.begin += h.position;
    return h;
  }
  /* The share of a group of lanes, and the number of shares that have edges. */
  DEVICE int share(int groups) const { return (degree + groups - 1) / groups; }
  DEVICE int parts(int groups) const {
    return (degree + share(groups) - 1) / share(groups);
  }
  DEVICE row_work of_group(int group, int groups) const {
    row_work w;
    const int first = group * share(groups);
    w.row = row;
    w.slot = group;
    w.position = position + first;
    w.degree = max(0, min(share(groups), degree - first));
    const int64_t at = begin + first;
    w.begin = uint2{unsigned(at), unsigned(uint64_t(at) >> 32)};
    return w;
  }
};

/* A block takes items of a hub, a heavy row, or light rows. */
struct heavy_block {
  bool hub, heavy;
  int item;  /* the first of a hub's that it takes */
  int light; /* the number of a block of light rows */
  heavy_part row;

  DEVICE heavy_block(const gather_schedule &s)
      : heavy_block(s,
                    static_cast<int>(blockIdx.x) - s.hub_rows * s.hub_blocks) {}
  DEVICE heavy_block(const gather_schedule &s, int number)
      : hub(number < 0), heavy(number < s.heavy_rows),
        item(hub ? int(blockIdx.x) % s.hub_blocks : 0),
        light(number - s.heavy_rows),
        row(s, hub     ? s.hubs + blockIdx.x / s.hub_blocks
               : heavy ? s.heavy + number
                       : nullptr) {}
  /* Is there an item for it?  Heavy rows that are hubs are others'. */
  DEVICE bool has(const gather_schedule &s, int k) const {
    return hub ? k * s.hub_edges < row.degree
               : k == 0 && !(s.hub_rows > 0 && row.degree > s.hub_edges);
  }
  DEVICE heavy_part part(const gather_schedule &s, int k) const {
    return hub ? row.item(s, k) : row;
  }
};

/* Keeps the sums of a part of a row in shared memory; a slot is the number of
 * the part. */
template <typename T, int VEC_, int L, int C, int FACTOR, int W>
struct spmm_part_op : spmm_op<T, VEC_, L, C, FACTOR, W> {
  using op = spmm_op<T, VEC_, L, C, FACTOR, W>;
  using typename op::A;
  using typename op::total;
  static constexpr int VEC = VEC_, TILE = L * C * VEC;
  static constexpr int kParts = GATHER_PIECE_WARPS * 32 / L;
  using op::op;

  static DEVICE A *part(int number) {
    alignas(16) __shared__ A parts[kParts * TILE];
    return parts + number * TILE;
  }
  DEVICE void keep(const total (&t)[VEC], int slot, int f) const {
    A *to = part(slot) + f - int(blockIdx.y) * TILE;
    unroll<VEC>([&](int i) { to[i] = t[i].sum[0]; });
  }
  /* Writes the row, or the item of a hub, whose parts the block has kept. */
  DEVICE void add_parts(const heavy_part &h, int parts) const {
    for (int at = int(threadIdx.x) * VEC; at < TILE; at += blockDim.x * VEC) {
      const int f = int(blockIdx.y) * TILE + at;
      total t[VEC] = {};
#pragma unroll 4
      for (int k = 0; k < parts; ++k)
        unroll<VEC>([&](int i) { t[i].sum[0] += part(k)[at + i]; });
      if (f >= W)
        continue;
      if (h.slot >= 0)
        op::keep(t, h.slot, f);
      else
        op::store(t, h.row, h.degree, f);
    }
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
  ptx::wait_for_previous();
  ptx::let_next_begin();
  const gather_schedule &s = p.schedule;
  const row_t work(p, p.schedule.group);
  const int groups = static_cast<int>(blockDim.x) >> s.group_bits;
  const int group = static_cast<int>(threadIdx.x) >> s.group_bits;
  const heavy_block at(s);
  for (int item = at.item; at.has(s, item); item += s.hub_blocks) {
    typename row_t::early e;
    const heavy_part h = at.part(s, item);
    if (at.heavy) {
      e.w = h.of_group(group, groups);
      e.active = e.w.degree > 0;
    } else {
      const int unit = at.light * groups + static_cast<int>(threadIdx.x / 32) *
                                               (32 >> s.group_bits);
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
    if (!at.heavy)
      return;
    __syncthreads();
    work.op.add_parts(h, h.parts(groups));
    __syncthreads();
    if (!at.hub)
      return;
  }
}

} // namespace dfgnn

#endif
