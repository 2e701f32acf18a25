/* weights.cuh - the gradient of edge weights: dw_ij = r_i c_j <dO_i, x_j>, a
 * sampled product of two dense matrices
 *
 * L lanes take a run of edges, whatever their rows, and a head: C vectors of
 * VEC features a lane, U edges in flight.  Wider heads go through the features
 * more than once. */
#ifndef DFGNN_SUMS_CUDA_WEIGHTS_CUH
#define DFGNN_SUMS_CUDA_WEIGHTS_CUH

#include "kernels/common/cuda_common.cuh"
#include "kernels/sums/cuda/weights.h"

namespace dfgnn {

template <typename T, int VEC>
DEVICE const T *features_at(const feature_tensor &t, int node, int head,
                            int d) {
  const T *row = reinterpret_cast<const T *>(static_cast<const char *>(t.data) +
                                             int64_t(node) * t.node_bytes);
  return row + head * t.head + (VEC > 1 ? int64_t(d) : d * t.feature);
}

/* Lanes whose features are beyond the head get zeros. */
template <typename T, int VEC, int L, int C>
DEVICE void read_features(packed<T, VEC> (&x)[C], const weigh_params &p,
                          const feature_tensor &t, int node, int head, int d,
                          bool live) {
  unroll<C>([&](int c) {
    const int at = d + c * L * VEC;
    const bool on = live && at < p.dim;
    clear(x[c]);
    load_if<VEC>(x[c], features_at<T, VEC>(t, node, head, on ? at : 0), on);
  });
}

/* The row of an edge: the last that begins at or before it. */
DEVICE int row_of_edge(const weigh_params &p, int64_t e) {
  int low = 0, high = p.rows;
  while (high - low > 1) {
    const int middle = low + (high - low) / 2;
    if (p.offsets[middle] <= e)
      low = middle;
    else
      high = middle;
  }
  return low;
}

template <typename T, int VEC, int L, int C, int U>
__global__ void __launch_bounds__(WEIGH_THREADS)
    weigh_edges(const __grid_constant__ weigh_params p) {
  using A = accumulator_t<T>;
  constexpr int kWidth = L * C * VEC;
  const int head = blockIdx.y, d = (threadIdx.x & (L - 1)) * VEC;
  const int64_t run =
      (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) / L * WEIGH_RUN;
  const int64_t last = min(run + WEIGH_RUN, p.edges);
  int row = run < last ? row_of_edge(p, run) : 0, loaded = -1;
  int64_t end = p.offsets[int64_t(row) + 1];
  packed<T, VEC> g[C], x[U][C];
  /* Every lane takes as many steps, for lanes_sum. */
  for (int64_t e = run; e < run + WEIGH_RUN; e += U) {
    const int count =
        static_cast<int>(max(min(last - e, int64_t(U)), int64_t(0)));
    A dot[U], scale[U];
    int j[U];
    unroll<U>([&](int u) {
      j[u] = u < count ? __ldcs(p.indices + e + u) : 0;
      dot[u] = scale[u] = A(0);
    });
    for (int from = 0; from < p.dim; from += kWidth) {
      unroll<U>([&](int u) {
        read_features<T, VEC, L>(x[u], p, p.value, j[u], head, from + d,
                                 u < count);
      });
      int r = row, done = 0;
      int64_t r_end = end;
      while (done < count) { /* over the rows of these edges */
        const int stop = static_cast<int>(min(r_end - e, int64_t(count)));
        if (done < stop) {
          if (loaded != r || p.dim > kWidth)
            read_features<T, VEC, L>(g, p, p.grad, r, head, from + d, true);
          loaded = r;
          const A row_scale =
              p.row_scale ? __ldg(static_cast<const A *>(p.row_scale) + r)
                          : A(1);
#pragma unroll
          for (int u = 0; u < U; ++u) {
            if (u < done || u >= stop)
              continue;
            scale[u] = row_scale;
            unroll<C, VEC>([&](int c, int i) {
              dot[u] += widen(g[c].item[i]) * widen(x[u][c].item[i]);
            });
          }
          done = stop;
        }
        if (done < count)
          r_end = p.offsets[int64_t(++r) + 1];
      }
      if (from + kWidth >= p.dim) {
        row = r;
        end = r_end;
      }
    }
#pragma unroll
    for (int u = 0; u < U; ++u) {
      const A sum = lanes_sum<L>(dot[u]);
      if (d != 0 || u >= count)
        continue;
      A y = sum * scale[u];
      if (p.gathered_scale)
        y *= __ldg(static_cast<const A *>(p.gathered_scale) + j[u]);
      static_cast<A *>(p.to)[(e + u) * p.heads + head] = y;
    }
  }
}

} // namespace dfgnn

#endif
