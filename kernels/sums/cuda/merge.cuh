/* merge.cuh - results of rows that were cut, and tables by destination that
 * gradients gather */
#ifndef DFGNN_SUMS_CUDA_MERGE_CUH
#define DFGNN_SUMS_CUDA_MERGE_CUH

#include "kernels/sums/cuda/extremes.cuh"
#include "kernels/sums/cuda/sum.cuh"

namespace dfgnn {

/* Adds up number `part` of PARTS of the `count` partial results of a row,
 * `columns` vectors of VEC features at a time.  Each of the n slices of a block
 * adds every n-th result; then the slices' sums are added, always in the same
 * order. */
template <typename T, int PARTS, int VEC, class Slots>
DEVICE void merge_row(const gather_params &p, const feature_tensor &to,
                      int part, int columns, int row, int count,
                      const Slots &slot_of) {
  using A = accumulator_t<T>;
  __shared__ exact_sum<A> sums[VEC][MERGE_THREADS];
  const int slices = MERGE_THREADS / columns;
  const int slice = threadIdx.x / columns, column = threadIdx.x % columns;
  const int degree = static_cast<int>(p.schedule.offsets[int64_t(row) + 1] -
                                      p.schedule.offsets[row]);
  for (int first = 0; first < p.width; first += columns * VEC) {
    const int f = first + column * VEC;
    exact_sum<A> sum[VEC] = {};
    if (f < p.width) {
#pragma unroll 8
      for (int k = slice; k < count; k += slices) {
        const auto x =
            load_written<VEC>(part_of<PARTS, A>(p, slot_of(k), part, f));
        unroll<VEC>([&](int i) { sum[i].add(x.item[i]); });
      }
    }
    unroll<VEC>([&](int i) { sums[i][threadIdx.x] = sum[i]; });
    __syncthreads();
    if (slice == 0 && f < p.width) {
      A y[VEC];
      unroll<VEC>([&](int i) { y[i] = sum[i].value(A(0)); });
      for (int s = 1; s < slices; ++s)
        unroll<VEC>(
            [&](int i) { y[i] += sums[i][s * columns + column].value(A(0)); });
      const A factor = spmm_factor<A>(p, row, degree);
      unroll<VEC>([&](int i) { y[i] *= factor; });
      store_row<T, VEC>(p, to, const_cast<void *>(to.data), row, f, y);
    }
    __syncthreads();
  }
}

/* A block takes a row: its sums, and those of its gates. */
template <typename T, int SUMS, int VEC>
__global__ void merge_sums(const __grid_constant__ gather_params p,
                           const int *heavy, int columns) {
  const int row = heavy[blockIdx.x];
  const item_slots slots(p.schedule, row);
  ptx::wait_for_previous();
  ptx::let_next_begin();
  unroll<SUMS>([&](int s) {
    const feature_tensor &to = s ? p.out_gate : p.out;
    if (to.data)
      merge_row<T, SUMS, VEC>(p, to, s, columns, row, slots.count, slots);
  });
}

/* ---- extremes and moments ------------------------------------------------ */

/* The result of several items; moments merge as in Chan, Golub and LeVeque
 * 1979, in double. */
template <int WHAT, typename A> struct merged {
  static constexpr bool ARG = (WHAT & REDUCE_ARG) != 0;
  extreme<true, ARG, A> least;
  extreme<false, ARG, A> most;
  double count, mean, square;

  DEVICE void begin() {
    least.begin(kNoEdge);
    most.begin(kNoEdge);
    count = mean = square = 0;
  }
  DEVICE void merge(const merged &o) {
    least.merge(o.least);
    most.merge(o.most);
    if (o.count == 0)
      return;
    if (count == 0) {
      count = o.count;
      mean = o.mean;
      square = o.square;
      return;
    }
    const double n = count + o.count, delta = o.mean - mean;
    square += o.square + delta * delta * count * (o.count / n);
    mean = (count * mean + o.count * o.mean) / n; /* infinities stay */
    count = n;
  }
  DEVICE void add(const reduced<WHAT, A> &x, int edges) {
    merged o;
    o.least = x.least;
    o.most = x.most;
    o.count = 0;
    if (WHAT & REDUCE_MOMENTS) {
      const double sum = double(x.moments.sum);
      o.count = double(edges);
      o.mean = double(x.moments.shift) + sum / o.count;
      o.square = double(x.moments.square) - sum * (sum / o.count);
      if (o.square < 0)
        o.square = 0; /* a NaN stays */
    }
    merge(o);
  }
};

/* A block takes a row: each of its n slices takes every n-th item, then the
 * slices' results merge, always in the same order. */
template <typename T, int WHAT>
__global__ void merge_found(const __grid_constant__ gather_params p,
                            const int *heavy, int columns) {
  using A = accumulator_t<T>;
  constexpr bool pna = (WHAT & REDUCE_ALL) == REDUCE_ALL;
  __shared__ merged<WHAT, A> parts[MERGE_THREADS];
  const gather_schedule &s = p.schedule;
  const int row = heavy[blockIdx.x], first = s.row_item[row];
  const int items = s.row_item[row + 1] - first, base = first - row;
  const int degree =
      static_cast<int>(s.offsets[int64_t(row) + 1] - s.offsets[row]);
  const int slices = MERGE_THREADS / columns;
  const int slice = threadIdx.x / columns, column = threadIdx.x % columns;
  ptx::wait_for_previous();
  ptx::let_next_begin();
  for (int from = 0; from < p.width; from += columns) {
    const int f = from + column;
    merged<WHAT, A> all;
    all.begin();
    if (f < p.width) {
#pragma unroll 2
      for (int k = slice; k < items; k += slices) {
        reduced<WHAT, A> x;
        x.least.begin(kNoEdge);
        x.most.begin(kNoEdge);
        x.find(p, k == 0 ? s.extra_items + base : base + k - 1, f);
        all.add(x, min(degree - k * s.item_edges, s.item_edges));
      }
    }
    parts[threadIdx.x] = all;
    __syncthreads();
    if (slice == 0 && f < p.width) {
      for (int k = 1; k < slices; ++k)
        all.merge(parts[k * columns + column]);
      if (WHAT & REDUCE_MIN) {
        const extreme<true, merged<WHAT, A>::ARG, A> x[1] = {all.least};
        store_extremes<T, 1>(p,
                             pna ? p.out_min : const_cast<void *>(p.out.data),
                             p.arg_min, row, degree, f, x);
      }
      if (WHAT & REDUCE_MAX) {
        const extreme<false, merged<WHAT, A>::ARG, A> x[1] = {all.most};
        store_extremes<T, 1>(p,
                             pna ? p.out_max : const_cast<void *>(p.out.data),
                             p.arg_max, row, degree, f, x);
      }
      if (WHAT & REDUCE_MOMENTS) {
        const A mean[1] = {A(all.mean)};
        const A variance[1] = {A(all.square / double(degree))};
        store_moments<T, 1>(p, pna, row, degree, f, mean, variance);
      }
    }
    __syncthreads();
  }
}

/* ---- tables by destination ----------------------------------------------- */

/* Writes the scales by which a mean's gradient is multiplied. */
template <typename A>
__global__ void mean_scales(A *to, const A *scale, csr_offsets offsets,
                            int rows) {
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= rows)
    return;
  const int64_t degree = offsets[i + 1] - offsets[i];
  to[i] = (scale ? scale[i] : A(1)) / A(degree > 0 ? degree : 1);
}

/* Fills PNA's tables by destination: offset = grad / degree, coefficient =
 * grad_std / (degree std), or 0 where std is 0. */
template <typename T>
__global__ void fill_tables(const __grid_constant__ gather_params p,
                            feature_tensor grad, feature_tensor grad_std,
                            feature_tensor std, int rows) {
  using A = accumulator_t<T>;
  const int64_t at = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (at >= int64_t(rows) * p.width)
    return;
  const int row = static_cast<int>(at / p.width);
  const int f = static_cast<int>(at - int64_t(row) * p.width);
  const int64_t edges = p.row_offsets[int64_t(row) + 1] - p.row_offsets[row];
  const A degree = A(edges > 0 ? edges : 1);
  A g[1], h[1], s[1];
  load_row<T, 1>(g, p, grad, row, f);
  load_row<T, 1>(h, p, grad_std, row, f);
  load_row<T, 1>(s, p, std, row, f);
  static_cast<A *>(p.offset)[at] = g[0] / degree;
  static_cast<A *>(p.coefficient)[at] =
      s[0] == A(0) ? h[0] * A(0) : h[0] / (degree * s[0]);
}

} // namespace dfgnn

#endif
