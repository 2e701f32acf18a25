/* backward_symmetric.cuh - both walks of cuda_backward.cuh in one: their
 * loads are in flight together */
#ifndef DFGNN_ATTENTION_CUDA_BACKWARD_SYMMETRIC_CUH
#define DFGNN_ATTENTION_CUDA_BACKWARD_SYMMETRIC_CUH

#include "kernels/attention/cuda/backward.cuh"
#include "kernels/attention/cuda/backward_symmetric.h"

namespace dfgnn {

template <int OP, typename T, int VEC, int L, int C, int U, bool MULTI>
struct symmetric_row : grad_row<OP, T, VEC, L, C, U, MULTI, false, GRAD_PLAIN> {
  using rows_t = grad_row<OP, T, VEC, L, C, U, MULTI, false, GRAD_PLAIN>;
  using columns_t = grad_row<OP, T, VEC, L, C, U, MULTI, true, GRAD_PLAIN>;
  using rows_t::S;
  using typename rows_t::A;

  const columns_t columns;

  struct state {
    typename rows_t::state rows;
    typename columns_t::state columns;
  };

  __device__ __forceinline__ explicit symmetric_row(const grad_both_params &p)
      : rows_t(p.rows), columns(p.columns) {}

  __device__ __forceinline__ void begin(state &z) const {
    rows_t::begin(z.rows);
    columns.begin(z.columns);
  }

  __device__ __forceinline__ void run(state &z, int unit, int last) const {
    walk_rows<L, U>(*this, z, this->p.schedule, unit, last);
  }

  __device__ __forceinline__ void begin_row(state &z, const row_work &w,
                                            bool active) const {
    rows_t::begin_row(z.rows, w, active);
    columns.begin_row(z.columns, w, active);
  }

  template <bool WHOLE>
  __device__ __forceinline__ void edges(state &z, const row_work &w, int index,
                                        int from, int left) const {
    int j[U];
    A weight[2][U * S], score[2][U * S];
    this->nodes(j, index, from);
    rows_t::template fetch<WHOLE>(z.rows, j, left);
    columns.template fetch<WHOLE>(z.columns, j, left);
    rows_t::template terms<WHOLE>(weight[0], score[0], z.rows, w, j, left);
    columns.template terms<WHOLE>(weight[1], score[1], z.columns, w, j, left);
    rows_t::add(z.rows, weight[0], score[0]);
    columns.add(z.columns, weight[1], score[1]);
  }

  __device__ __forceinline__ void finish(state &z, const row_work &w,
                                         bool active) const {
    rows_t::finish(z.rows, w, active);
    columns.finish(z.columns, w, active);
  }

  __device__ __forceinline__ void store_totals(state &z, A *shared) const {
    rows_t::store_totals(z.rows, shared);
  }
};

template <int OP, typename T, int VEC, int L, int C, int U, bool MULTI>
__global__ void __launch_bounds__(256, C *VEC *U <= 8 ? 2 : 1)
    gradient_symmetric(const __grid_constant__ grad_both_params p) {
  walk_block<symmetric_row<OP, T, VEC, L, C, U, MULTI>>(p, p.rows);
}

/* Lanes an edge, vectors a lane, edges in flight, several heads a warp. */
#define DFGNN_GRAD_BOTH_WIDE(X)                                                \
  X(32, 1, 1, 0)                                                               \
  X(32, 1, 2, 0)                                                               \
  X(16, 2, 1, 0)                                                               \
  X(16, 1, 1, 0)                                                               \
  X(16, 1, 2, 0)                                                               \
  X(8, 2, 1, 0)                                                                \
  X(8, 1, 1, 0)                                                                \
  X(32, 2, 1, 0)                                                               \
  X(32, 1, 1, 1)                                                               \
  X(32, 1, 2, 1)                                                               \
  X(16, 2, 1, 1)                                                               \
  X(16, 1, 1, 1)

/* Of 16-bit types, of which a vector holds twice as many. */
#define DFGNN_GRAD_BOTH_HALF(X)                                                \
  X(16, 1, 1, 0)                                                               \
  X(16, 1, 2, 0)                                                               \
  X(8, 2, 1, 0)                                                                \
  X(8, 1, 1, 0)                                                                \
  X(32, 1, 1, 0)                                                               \
  X(16, 1, 1, 1)                                                               \
  X(8, 2, 1, 1)

struct grad_both_instance {
  int lanes, vectors, unroll, several;
  const void *kernel;
};

#define DFGNN_GRAD_BOTH_ROW(L, C, U, M)                                        \
  {L, C, U, M,                                                                 \
   reinterpret_cast<const void *>(                                             \
       gradient_symmetric<OP, T, 16 / sizeof(T), L, C, U, M != 0>)},

template <int OP, typename T>
const void *find_both(int lanes, int vectors, int unroll, int several) {
  const auto find = [=](const auto &table) -> const void * {
    for (const grad_both_instance &i : table)
      if (i.lanes == lanes && i.vectors == vectors && i.unroll == unroll &&
          i.several == several)
        return i.kernel;
    return nullptr;
  };
  if constexpr (sizeof(T) == 2) {
    static const grad_both_instance half[] = {
        DFGNN_GRAD_BOTH_HALF(DFGNN_GRAD_BOTH_ROW)};
    return find(half);
  } else {
    static const grad_both_instance wide[] = {
        DFGNN_GRAD_BOTH_WIDE(DFGNN_GRAD_BOTH_ROW)};
    return find(wide);
  }
}

} // namespace dfgnn

#endif
