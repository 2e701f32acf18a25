/* backward_red.cuh - the walk over rows of cuda_backward.cuh that also
 * adds an edge's part to the gradients of its source's key and value in memory
 */
#ifndef DFGNN_ATTENTION_CUDA_BACKWARD_RED_CUH
#define DFGNN_ATTENTION_CUDA_BACKWARD_RED_CUH

#include "kernels/attention/cuda/backward.cuh"
#include "kernels/attention/cuda/backward_red.h"

namespace dfgnn {

/* Adds four floats, 16-byte aligned; in one operation from sm_90 on. */
__device__ __forceinline__ void red_add(float *to, float a, float b, float c,
                                        float d) {
#if defined __CUDA_ARCH__ && __CUDA_ARCH__ >= 900
  asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to),
               "f"(a), "f"(b), "f"(c), "f"(d)
               : "memory");
#else
  atomicAdd(to, a);
  atomicAdd(to + 1, b);
  atomicAdd(to + 2, c);
  atomicAdd(to + 3, d);
#endif
}

template <typename T, int VEC, int L, int C, int U, bool MULTI>
struct red_row
    : grad_row<DFGNN_OP_GT, T, VEC, L, C, U, MULTI, false, GRAD_PLAIN> {
  using rows_t =
      grad_row<DFGNN_OP_GT, T, VEC, L, C, U, MULTI, false, GRAD_PLAIN>;
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
  __device__ __forceinline__ void edges(state &z, const row_work &w, int index,
                                        int from, int left) const {
    int j[U];
    A weight[U * S], score[U * S];
    this->nodes(j, index, from);
    rows_t::template fetch<WHOLE>(z, j, left);
    rows_t::template terms<WHOLE>(weight, score, z, w, j, left);
    rows_t::add(z, weight, score);
#pragma unroll
    for (int u = 0; u < U; ++u)
#pragma unroll
      for (int c = 0; c < C; ++c) {
        const int n = u * S + (MULTI ? c : 0);
        if ((weight[n] == A(0) && score[n] == A(0)) ||
            (!WHOLE && !this->has(c)))
          continue;
        /* The own query is in log2 units. */
        give(r.key, j[u], c, score[n] / A(kLog2e), z.own[0][c]);
        give(r.value, j[u], c, weight[n], z.own[1][c]);
      }
  }

  __device__ __forceinline__ void give(const tensor_view &to, int node, int c,
                                       A times, const A (&x)[VEC]) const {
    if (!to.data)
      return;
    const char *lane = node_row(node_row(static_cast<const char *>(to.data),
                                         this->head(c), to.head_bytes),
                                this->feature(c), sizeof(A));
    A *at = reinterpret_cast<A *>(
        const_cast<char *>(node_row(lane, node, to.node_bytes)));
#pragma unroll
    for (int i = 0; i < VEC; i += 4)
      red_add(at + i, times * x[i], times * x[i + 1], times * x[i + 2],
              times * x[i + 3]);
  }
};

template <typename T, int VEC, int L, int C, int U, bool MULTI>
__global__ void __launch_bounds__(256, C *VEC *U <= 16 ? 2 : 1)
    gradient_red(const __grid_constant__ grad_red_params p) {
  walk_block<red_row<T, VEC, L, C, U, MULTI>>(p, p.rows);
}

/* Lanes an edge, vectors a lane, edges in flight, several heads a warp. */
#define DFGNN_GRAD_RED_WIDE(X)                                                 \
  X(32, 1, 2, 0)                                                               \
  X(32, 1, 4, 0)                                                               \
  X(16, 2, 2, 0)                                                               \
  X(16, 1, 2, 0)                                                               \
  X(16, 1, 4, 0)                                                               \
  X(8, 2, 2, 0)                                                                \
  X(8, 1, 2, 0)                                                                \
  X(32, 2, 2, 0)                                                               \
  X(32, 1, 2, 1)                                                               \
  X(16, 2, 2, 1)                                                               \
  X(16, 1, 2, 1)

/* Of 16-bit types, of which a vector holds twice as many. */
#define DFGNN_GRAD_RED_HALF(X)                                                 \
  X(16, 1, 2, 0)                                                               \
  X(16, 1, 4, 0)                                                               \
  X(8, 2, 2, 0)                                                                \
  X(8, 1, 2, 0)                                                                \
  X(32, 1, 2, 0)                                                               \
  X(16, 1, 2, 1)                                                               \
  X(8, 2, 2, 1)

struct grad_red_instance {
  int lanes, vectors, unroll, several;
  const void *kernel;
};

#define DFGNN_GRAD_RED_ROW(L, C, U, M)                                         \
  {L, C, U, M,                                                                 \
   reinterpret_cast<const void *>(                                             \
       gradient_red<T, 16 / sizeof(T), L, C, U, M != 0>)},

template <typename T>
const void *find_red(int lanes, int vectors, int unroll, int several) {
  const auto find = [=](const auto &table) -> const void * {
    for (const grad_red_instance &i : table)
      if (i.lanes == lanes && i.vectors == vectors && i.unroll == unroll &&
          i.several == several)
        return i.kernel;
    return nullptr;
  };
  if constexpr (sizeof(T) == 2) {
    static const grad_red_instance half[] = {
        DFGNN_GRAD_RED_HALF(DFGNN_GRAD_RED_ROW)};
    return find(half);
  } else {
    static const grad_red_instance wide[] = {
        DFGNN_GRAD_RED_WIDE(DFGNN_GRAD_RED_ROW)};
    return find(wide);
  }
}

} // namespace dfgnn

#endif
