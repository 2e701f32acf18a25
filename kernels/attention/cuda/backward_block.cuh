/* backward_block.cuh - the rows of a block in a walk that gives gradients, and
 * the block's part of the parameters' gradients */
#ifndef DFGNN_ATTENTION_CUDA_BACKWARD_BLOCK_CUH
#define DFGNN_ATTENTION_CUDA_BACKWARD_BLOCK_CUH

#include "kernels/attention/cuda/backward.h"
#include "kernels/attention/cuda/walk.cuh"

namespace dfgnn {

/* Stores the part of grad_att or grad_beta that the rows of the block add,
 * summed warp by warp. */
template <class Row>
DEVICE void store_totals(const Row &row, typename Row::state &z,
                         typename Row::A *shared) {
  using A = typename Row::A;
  using map = typename Row::map;
  constexpr bool HEAD = Row::HEAD;
  constexpr int L = Row::L, C = Row::C, S = Row::S, VEC = Row::VEC;
  constexpr int HC = Row::HC, HV = Row::HV;
  const int warps = blockDim.x / 32, warp = threadIdx.x / 32;
  const int lane = lane_id();
  A mine[HC][VEC];
  if constexpr (HEAD) {
    unroll<C, VEC>([&](int c, int i) {
      mine[c][i] = z.att_total[c][i];
#pragma unroll
      for (int o = L; o < 32; o <<= 1)
        mine[c][i] += __shfl_xor_sync(kFullMask, mine[c][i], o);
    });
  } else {
    A sum = A(0);
    unroll<S>([&](int h) {
      sum += row.first_of_head() && row.has_head(h) ? z.beta_total[h] : A(0);
    });
    mine[0][0] = lanes_sum<32>(sum);
  }
  for (int turn = 0; turn < warps; ++turn) {
    if (turn == warp && lane < (HEAD ? L : 1)) {
      unroll<HC, HV>([&](int c, int i) {
        A &sum = shared[(c * L + lane) * VEC + i];
        sum = turn == 0 ? mine[c][i] : sum + mine[c][i];
      });
    }
    __syncthreads();
  }
  if (warp != 0 || lane >= (HEAD ? L : 1))
    return;
  A *totals = static_cast<A *>(row.p.totals);
  if constexpr (!HEAD) {
    totals[int64_t(blockIdx.x) * gridDim.y + blockIdx.y] = shared[0];
  } else {
    unroll<C, VEC>([&](int c, int i) {
      if (row.has(c))
        totals[(int64_t(blockIdx.x) * Row::HEADS + row.head(map::state(c))) *
                   Row::DIM +
               row.feature(c) + i] = shared[(c * L + lane) * VEC + i];
    });
  }
}

/* The body of a kernel.  p: the parameters of its rows; params: the argument of
 * Row's constructor. */
template <class Row, class Params>
DEVICE void walk_block(const Params &params, const grad_params &p) {
  __shared__ int taken;
  ptx::wait_for_previous();
  ptx::let_next_begin();
  const block_units units(p.share, p.schedule.units);
  if (units.several && !Row::TOTALS) {
    if (threadIdx.x == 0)
      taken = units.at_once;
    __syncthreads();
  }
  const Row work(params);
  typename Row::state z;
  work.begin(z);
  int ticket = units.own_ticket();
  int unit = units.first + ticket;
  while (unit < units.last) {
    work.run(z, unit, units.last);
    if (!units.several)
      break;
    if constexpr (Row::TOTALS)
      ticket += units.at_once; /* totals add up rows in a fixed order */
    else
      ticket = next_ticket(taken, units.rows);
    unit = units.unit_of(ticket);
  }
  if constexpr (Row::TOTALS) {
    __shared__ typename Row::A shared[Row::kBlockTotals];
    if (p.totals)
      store_totals(work, z, shared);
  }
}

} // namespace dfgnn

#endif
