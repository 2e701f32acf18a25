/* layers_sm90a.cuh - layers.cuh with products of warpgroups, of 16-bit types
 *
 * A block has two warpgroups; each has 64 of its edges and all of its columns.
 * With more than two stages a step's products go on while the next step is
 * waited for. */
#ifndef DFGNN_MLP_CUDA_LAYERS_SM90A_CUH
#define DFGNN_MLP_CUDA_LAYERS_SM90A_CUH

#include "kernels/mlp/cuda/layers.cuh"
#include "kernels/mlp/cuda/wgmma.cuh"

namespace dfgnn {
namespace mlp {

template <class P> struct group_product {
  using shape = P;
  using T = typename P::T;
  static constexpr int PARTS = P::COLUMNS / 128; /* of the block's columns */
  static constexpr int FLIGHT = P::STAGES > 2 ? 1 : 0; /* groups of products */
  static constexpr int AHEAD = P::STAGES - 1 - FLIGHT; /* steps of copies */
  static_assert(sizeof(T) == 2, "operands of 16 bits");

  __device__ __forceinline__ static void multiply(float (&z)[PARTS][64],
                                                  const char *stage) {
    const char *edges = stage + int(threadIdx.x) / 128 * 64 * MLP_STEP;
    const char *columns = stage + P::EDGE_BYTES;
    ptx::wgmma_begin();
#pragma unroll
    for (int k = 0; k < MLP_STEP; k += 32)
#pragma unroll
      for (int n = 0; n < PARTS; ++n)
        wgmma<T, 0>(z[n], ptx::wgmma_rows(edges + k),
                    ptx::wgmma_rows(columns + n * 128 * MLP_STEP + k));
    ptx::wgmma_commit();
  }

  /* As warp_product's. */
  __device__ __forceinline__ static void
  rows(char *shared, const mlp_product_params &p, int64_t from, int column) {
    const int steps = (p.in + P::STEP - 1) / P::STEP;
    product_copies<P> copies;
    float z[PARTS][64] = {};
    copies.begin(p, from, column);
    for (int k = 0; k < AHEAD; ++k) {
      if (k < steps)
        copies.step(shared + k * P::STAGE_BYTES, k);
      copy_commit();
    }
    for (int k = 0; k < steps; ++k) {
      copy_wait<AHEAD - 1>();
      ptx::wgmma_publish();
      __syncthreads();
      /* all have waited for the products of the stage that is filled now */
      const int next = k + AHEAD;
      if (next < steps)
        copies.step(shared + next % P::STAGES * P::STAGE_BYTES, next);
      copy_commit();
      multiply(z, shared + k % P::STAGES * P::STAGE_BYTES);
      ptx::wgmma_wait<FLIGHT>();
    }
    ptx::wgmma_wait<0>();
    copy_wait<0>();
    __syncthreads();
    const int warp = int(threadIdx.x) / 32, lane = ptx::lane_id();
    const int row = warp * 16 + (lane >> 2);
#pragma unroll
    for (int n = 0; n < PARTS; ++n)
#pragma unroll
      for (int j = 0; j < 16; ++j)
#pragma unroll
        for (int half = 0; half < 2; ++half)
          write_sums<P>(shared, row + 8 * half,
                        n * 128 + 8 * j + 2 * (lane & 3),
                        z[n][4 * j + 2 * half], z[n][4 * j + 2 * half + 1]);
    __syncthreads();
  }
};

} // namespace mlp

/* mlp_layer of layers.cuh; shared memory has 1024 bytes more, by which the
 * stages begin at a multiple of them. */
template <typename T, int FLAGS, int COLUMNS, int STAGES, int KIND,
          int ACTIVATION>
__global__ void __launch_bounds__(256, COLUMNS == 128 ? 2 : 1)
    mlp_layer_of_groups(const mlp_product_params p) {
  using P = mlp::product<T, false, COLUMNS, STAGES>;
  extern __shared__ uint4 memory[];
  mlp::run_layer<mlp::group_product<P>, KIND, ACTIVATION,
                 (FLAGS & MLP_VECTOR) != 0>(mlp::aligned_shared(memory), p);
}

} // namespace dfgnn

#endif
