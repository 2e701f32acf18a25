/* lane_rows.cuh - rows of the last layer's z in registers, and their norm
 *
 * Lanes of a warp, 32 or fewer, take one row after the other.  They read a row
 * once and keep it in registers, a few columns in each lane, through the norm's
 * reductions. */
#ifndef DFGNN_MLP_CUDA_LANE_ROWS_CUH
#define DFGNN_MLP_CUDA_LANE_ROWS_CUH

#include "kernels/mlp/cuda/rows.cuh"

namespace dfgnn {
namespace mlp {

/* WIDTH: of e'.  VEC: columns of a chunk, 4, or 8, with which narrow rows share
 * a warp. */
template <typename T_, int FLAGS, int NORM_, int WIDTH_, int VEC_>
struct last_shape {
  using T = T_;
  static constexpr int VEC = VEC_;
  static constexpr int WIDTH = WIDTH_;
  static constexpr int LANES = /* of a row */
      VEC == 4 || WIDTH > 16 * VEC ? 32
      : WIDTH > 8 * VEC            ? 16
                                   : 8;
  static constexpr bool RESIDUAL = (FLAGS & MLP_RESIDUAL) != 0;
  static constexpr bool GRAD_EDGES = (FLAGS & MLP_GRAD_EDGES) != 0;
  static constexpr bool GRAD_DST = (FLAGS & MLP_GRAD_DST) != 0;
  static constexpr bool BIAS = (FLAGS & MLP_LAST_BIAS) != 0;
  static constexpr int NORM = NORM_;
  static constexpr int CHUNKS = (WIDTH + LANES * VEC - 1) / (LANES * VEC);
  /* Rows that are copied to shared memory while others are worked on: z where
   * there is a norm, and gradients. */
  static constexpr int COPIES = (NORM != MLP_NORM_NONE) + GRAD_EDGES + GRAD_DST;
  static constexpr int COPY_BYTES = /* of a warp's rows */
      32 / LANES * COPIES * WIDTH * int(sizeof(T));
  static constexpr bool AHEAD =
      VEC == 8 && 2 * MLP_ROW_WARPS * COPY_BYTES <= MLP_COPY_BYTES;
  /* A row of more than 1024 columns is in local memory: loops over it keep
   * short. */
  static constexpr int UNROLLED = CHUNKS <= 8 ? CHUNKS : 1;
};

/* A lane's numbers of a row: chunk LANES k + lane of the row is number k. */
template <class S> struct lane_row { float x[S::CHUNKS][S::VEC]; };
/* A sum over the lanes of a row; which of them a lane is. */
template <class S> __device__ __forceinline__ float sum_of_row(float x) {
  return lanes_sum<S::LANES>(x);
}
template <class S> __device__ __forceinline__ int lane_of_row() {
  return ptx::lane_id() % S::LANES;
}

/* Calls f(k, the chunk's first column) for each chunk of the lane. */
template <class S, typename F> __device__ __forceinline__ void each_chunk(F f) {
  constexpr int STEP = S::LANES * S::VEC;
  const int column = lane_of_row<S>() * S::VEC;
#pragma unroll S::UNROLLED
  for (int k = 0; k < S::CHUNKS; ++k)
    if ((k + 1) * STEP <= S::WIDTH || k * STEP + column < S::WIDTH)
      f(k, k * STEP + column);
}

/* Reads a row of global memory, or one that was copied to shared memory.
 * Nothing waits for a number before all of the row are on their way. */
template <class S>
__device__ __forceinline__ void read_row(lane_row<S> &x,
                                         const typename S::T *row) {
  each_chunk<S>([&](int k, int column) {
    if constexpr (S::AHEAD) {
      packed<typename S::T, S::VEC> y;
      y.bits = *reinterpret_cast<const decltype(y.bits) *>(row + column);
      widen(x.x[k], y);
    } else {
      read_few(x.x[k], row + column);
    }
  });
}

/* z of the last layer, of an edge of the launch. */
template <class S>
__device__ __forceinline__ const typename S::T *
last_row(const mlp_rows_params &p, int64_t edge) {
  return static_cast<const typename S::T *>(p.last) + edge * S::WIDTH;
}

/* Norms the row without the norm's weight and bias; returns its scale. */
template <class S>
__device__ __forceinline__ float norm_row(lane_row<S> &u, float epsilon) {
  if constexpr (S::NORM == MLP_NORM_NONE)
    return 1.0f;
  float mean = 0.0f, squares = 0.0f;
  if constexpr (S::NORM == MLP_NORM_LAYER) {
    each_chunk<S>([&](int k, int) {
#pragma unroll
      for (int i = 0; i < S::VEC; ++i)
        mean += u.x[k][i];
    });
    mean = sum_of_row<S>(mean) / float(S::WIDTH);
  }
  each_chunk<S>([&](int k, int) {
#pragma unroll
    for (int i = 0; i < S::VEC; ++i) {
      u.x[k][i] -= mean;
      squares += u.x[k][i] * u.x[k][i];
    }
  });
  const float scale =
      1.0f / sqrtf(sum_of_row<S>(squares) / float(S::WIDTH) + epsilon);
  each_chunk<S>([&](int k, int) {
#pragma unroll
    for (int i = 0; i < S::VEC; ++i)
      u.x[k][i] *= scale;
  });
  return scale;
}

/* Numbers of the norm, `absent` if it has none. */
template <class S>
__device__ __forceinline__ void read_norm(lane_row<S> &x, const void *from,
                                          float absent) {
  using T = typename S::T;
  each_chunk<S>([&](int k, int column) {
#pragma unroll
    for (int i = 0; i < S::VEC; ++i)
      x.x[k][i] =
          from ? widen(static_cast<const T *>(from)[column + i]) : absent;
  });
}

} // namespace mlp
} // namespace dfgnn

#endif
