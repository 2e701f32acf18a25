/* merge.cuh - sums of rows that were cut, and scales of the gradients of means
 */
#ifndef DFGNN_SPMM_CUDA_MERGE_CUH
#define DFGNN_SPMM_CUDA_MERGE_CUH

#include "kernels/spmm/cuda/spmm.cuh"

namespace dfgnn {

/* Adds up number `part` of PARTS of the `count` partial results of a row,
 * `columns` features at a time.  Each of the n slices of a block adds every
 * n-th result; then the slices' sums are added, always in the same order. */
template <typename T, int PARTS, class Slots>
__device__ __forceinline__ void
merge_row(const gather_params &p, const feature_tensor &to, int part,
          int columns, int row, int count, const Slots &slot_of) {
  using A = accumulator_t<T>;
  __shared__ exact_sum<A> sums[MERGE_THREADS];
  const int slices = MERGE_THREADS / columns;
  const int slice = threadIdx.x / columns, column = threadIdx.x % columns;
  const int degree = static_cast<int>(p.schedule.offsets[int64_t(row) + 1] -
                                      p.schedule.offsets[row]);
  for (int first = 0; first < p.width; first += columns) {
    const int f = first + column;
    exact_sum<A> sum = {A(0), A(0)};
    if (f < p.width) {
#pragma unroll 4
      for (int k = slice; k < count; k += slices)
        sum.add(*part_of<PARTS, A>(p, slot_of(k), part, f));
    }
    sums[threadIdx.x] = sum;
    __syncthreads();
    if (slice == 0 && f < p.width) {
      A all = sum.value(A(0));
      for (int s = 1; s < slices; ++s)
        all += sums[s * columns + column].value(A(0));
      const A y[1] = {all * spmm_factor<A>(p, row, degree)};
      store_row<T, 1>(p, to, const_cast<void *>(to.data), row, f, y);
    }
    __syncthreads();
  }
}

/* The slots of the partial results of a cut row's items. */
struct item_slots {
  int count, base, extra;
  __device__ __forceinline__ item_slots(const gather_schedule &s, int row)
      : count(s.row_item[row + 1] - s.row_item[row]),
        base(s.row_item[row] - row), extra(s.extra_items) {}
  __device__ __forceinline__ int64_t operator()(int k) const {
    return k == 0 ? extra + base : base + k - 1;
  }
};

template <typename T>
__global__ void merge_items(const __grid_constant__ gather_params p,
                            const int *heavy, int columns) {
  const int row = heavy[blockIdx.x];
  const item_slots slots(p.schedule, row);
  merge_row<T, 1>(p, p.out, 0, columns, row, slots.count, slots);
}

/* A block takes a share that completes a row begun in earlier shares. */
template <typename T>
__global__ void merge_shares(const __grid_constant__ gather_params p,
                             int columns) {
  const gather_schedule &s = p.schedule;
  const int unit = blockIdx.x, row = s.share_row[unit];
  if (row < 0)
    return;
  const int first = static_cast<int>((s.offsets[row] + row) / s.share);
  const int64_t own = s.offsets[int64_t(row) + 1] + row -
                      int64_t(unit) * s.share; /* of the row, in this share */
  merge_row<T, 1>(p, p.out, 0, columns, row, unit - first + (own > 0),
                  [&](int k) -> int64_t {
                    return k < unit - first ? 2 * int64_t(first + k) + 1
                                            : 2 * int64_t(unit);
                  });
}

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

} // namespace dfgnn

#endif
