/* backward_red.cuh - the walk over rows of backward.cuh that also
 * adds an edge's part to the gradients of its source's key and value in memory
 */
#ifndef DFGNN_ATTENTION_CUDA_BACKWARD_RED_CUH
#define DFGNN_ATTENTION_CUDA_BACKWARD_RED_CUH

#include "kernels/attention/cuda/backward.cuh"
#include "kernels/attention/cuda/backward_red.h"

namespace dfgnn {

/* Adds N floats, aligned to their size; in one operation from sm_90 on. */
template <int N>
__device__ __forceinline__ void red_add(float *to, const float (&x)[N]) {
#if __CUDA_ARCH__ >= 900
  if constexpr (N > 1)
    ptx::add(to, x);
  else
    atomicAdd(to, x[0]);
#else
  unroll<N>([&](int i) { atomicAdd(to + i, x[i]); });
#endif
}

template <class K> struct red_row : grad_row<K> {
  using rows_t = grad_row<K>;
  using rows_t::C;
  using rows_t::L, rows_t::U, rows_t::VEC;
  using rows_t::S;
  using typename rows_t::A;
  using typename rows_t::state;

  const grad_red_params &r;

  __device__ __forceinline__ explicit red_row(const grad_red_params &p)
      : rows_t(p.rows), r(p) {}

  __device__ __forceinline__ void run(state &z, int unit, int last) const {
    walk_rows<L, U>(*this, z, this->p.schedule, unit, last);
  }

  template <bool WHOLE>
  __device__ __forceinline__ void edges(state &z, const row_work &w,
                                        const grad_label &x, int from,
                                        int left) const {
    int j[U];
    A weight[U * S], score[U * S];
    this->nodes(j, x.index, from);
    rows_t::template fetch<WHOLE>(z, j, left);
    rows_t::template terms<WHOLE>(weight, score, z, w, j, x, from, left);
    rows_t::add(z, weight, score);
#pragma unroll
    for (int u = 0; u < U; ++u)
#pragma unroll
      for (int c = 0; c < C; ++c) {
        const int n = u * S + rows_t::map::state(c);
        if ((weight[n] == A(0) && score[n] == A(0)) || !this->has(c))
          continue;
        /* own[0] is scale log2(e) q. */
        give(r.key, j[u], c, score[n] / A(kLog2e), z.own[0][c]);
        give(r.value, j[u], c, weight[n], z.own[1][c]);
      }
  }

  __device__ __forceinline__ void give(const tensor_view &to, int node, int c,
                                       A times, const A (&x)[VEC]) const {
    if (!to.data)
      return;
    const char *lane =
        node_row(node_row(static_cast<const char *>(to.data),
                          this->head(rows_t::map::state(c)), to.head_bytes),
                 this->feature(c), VEC > 1 ? sizeof(A) : to.feature_bytes);
    A *at = reinterpret_cast<A *>(
        const_cast<char *>(node_row(lane, node, to.node_bytes)));
    constexpr int N = VEC < 4 ? VEC : 4;
#pragma unroll
    for (int i = 0; i < VEC; i += N) {
      float y[N];
      unroll<N>([&](int k) { y[k] = times * x[i + k]; });
      red_add<N>(at + i, y);
    }
  }
};

template <class K>
__global__ void
__launch_bounds__(256, lane_map<K>::C *K::vector *K::unroll <= 16 ? 2 : 1)
    gradient_red(const __grid_constant__ grad_red_params p) {
  walk_block<red_row<K>>(p, p.rows);
}

__global__ void __launch_bounds__(256)
    red_clear(const __grid_constant__ red_clear_params p) {
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < p.count;
       i += int64_t(gridDim.x) * blockDim.x) {
    const int64_t pair = i / p.dim;
    const char *row = node_row(node_row(static_cast<const char *>(p.to.data),
                                        int(pair / p.heads), p.to.node_bytes),
                               int(pair % p.heads), p.to.head_bytes);
    *reinterpret_cast<float *>(const_cast<char *>(
        node_row(row, int(i % p.dim), p.to.feature_bytes))) = 0;
  }
}

} // namespace dfgnn

#endif
