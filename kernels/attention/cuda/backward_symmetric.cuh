/* backward_symmetric.cuh - both walks of backward.cuh in one: their
 * loads are in flight together */
#ifndef DFGNN_ATTENTION_CUDA_BACKWARD_SYMMETRIC_CUH
#define DFGNN_ATTENTION_CUDA_BACKWARD_SYMMETRIC_CUH

#include "kernels/attention/cuda/backward.cuh"
#include "kernels/attention/cuda/backward_symmetric.h"

namespace dfgnn {

/* The constants of the walk over columns beside one over rows. */
template <class K> struct of_columns : K { static constexpr int columns = 1; };

template <class K> struct symmetric_row : grad_row<K> {
  using rows_t = grad_row<K>;
  using columns_t = grad_row<of_columns<K>>;
  using rows_t::L, rows_t::U;
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
  __device__ __forceinline__ void edges(state &z, const row_work &w,
                                        const grad_label &x, int from,
                                        int left) const {
    int j[U];
    A weight[2][U * S], score[2][U * S];
    this->nodes(j, x.index, from);
    rows_t::template fetch<WHOLE>(z.rows, j, left);
    columns.template fetch<WHOLE>(z.columns, j, left);
    rows_t::template terms<WHOLE>(weight[0], score[0], z.rows, w, j, x, from,
                                  left);
    columns.template terms<WHOLE>(weight[1], score[1], z.columns, w, j, x, from,
                                  left);
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

template <class K>
__global__ void
__launch_bounds__(256, lane_map<K>::C *K::vector *K::unroll <= 8 ? 2 : 1)
    gradient_symmetric(const __grid_constant__ grad_both_params p) {
  walk_block<symmetric_row<K>>(p, p.rows);
}

} // namespace dfgnn

#endif
