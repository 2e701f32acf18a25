/* lane_rows.cuh - rows of the last layer's z in registers: activation, gate and
 * norm
 *
 * Lanes of a warp, 32 or fewer, take one row after the other.  They read a row
 * once and keep it in registers, a few columns in each lane, through the norm's
 * reductions. */
#ifndef DFGNN_MLP_CUDA_LANE_ROWS_CUH
#define DFGNN_MLP_CUDA_LANE_ROWS_CUH

#include "kernels/mlp/cuda/rows.cuh"

namespace dfgnn {
namespace mlp {

/* The type of rows of the last layer's z. */
template <typename T, bool STORED> struct stored_last { using type = T; };
template <typename T> struct stored_last<T, false> { using type = float; };

/* FLAGS: MLP_VECTOR, MLP_GATE, MLP_RESIDUAL, MLP_STORED_LAST; forward MLP_MAX
 * or MLP_MIN of destinations, backward which gradients there are.  WIDTH: of
 * e'.  PACKED: a lane has 16 bytes of a row where it can, so that narrow rows
 * share a warp. */
template <typename T_, int FLAGS, int LAST_, int NORM_, int WIDTH_,
          bool PACKED = false>
struct last_shape {
  using T = T_;
  using Z = typename stored_last<T, (FLAGS & MLP_STORED_LAST) != 0>::type;
  static constexpr bool VECTOR = (FLAGS & MLP_VECTOR) != 0;
  static constexpr int VEC = /* columns of a chunk */
      !VECTOR                               ? 1
      : PACKED && sizeof(T) + sizeof(Z) < 6 ? 8
                                            : 4;
  static constexpr int WIDTH = WIDTH_;
  static constexpr int LANES = /* of a row */
      !PACKED || WIDTH > 16 * VEC ? 32
      : WIDTH > 8 * VEC           ? 16
                                  : 8;
  static constexpr bool GATE = (FLAGS & MLP_GATE) != 0;
  static constexpr bool RESIDUAL = (FLAGS & MLP_RESIDUAL) != 0;
  static constexpr bool GRAD_EDGES = (FLAGS & MLP_GRAD_EDGES) != 0;
  static constexpr bool GRAD_DST = (FLAGS & MLP_GRAD_DST) != 0;
  static constexpr bool GRAD_SRC = (FLAGS & MLP_GRAD_SRC) != 0;
  static constexpr bool BIAS = (FLAGS & MLP_LAST_BIAS) != 0;
  static constexpr bool ROUND = (FLAGS & MLP_ROUND) != 0;
  static constexpr bool EXTREME = (FLAGS & (MLP_MAX | MLP_MIN)) != 0;
  static constexpr float SIGN = (FLAGS & MLP_MIN) != 0 ? -1.0f : 1.0f;
  static constexpr int LAST = LAST_;
  static constexpr int NORM = NORM_;
  /* Does the gradient with respect to z depend on z? */
  static constexpr bool CURVED =
      GATE || LAST != MLP_NONE || NORM != MLP_NORM_NONE;
  static constexpr int CHUNKS = (WIDTH + LANES * VEC - 1) / (LANES * VEC);
  /* Rows that are copied to shared memory while others are worked on: z (both
   * halves of a gate), and gradients. */
  static constexpr int COPIES =
      (GATE ? 2 : 1) + GRAD_EDGES + GRAD_DST + GRAD_SRC;
  static constexpr int COPY_BYTES = /* of a warp's rows */
      32 / LANES * COPIES * WIDTH * int(sizeof(T));
  static constexpr bool AHEAD =
      PACKED && VECTOR && CURVED && sizeof(T) == sizeof(Z) &&
      2 * MLP_ROW_WARPS * COPY_BYTES <= MLP_COPY_BYTES;
  /* A row of more than 1024 columns (fewer, where rows are not aligned) is in
   * local memory: loops over it keep short. */
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

/* Chunks lie inside rows. */
template <class S, typename T>
__device__ __forceinline__ void read_chunk(float (&x)[S::VEC], const T *row,
                                           int column) {
  read_few<T, S::VEC, S::VECTOR>(x, row, column, column + S::VEC);
}
template <class S, typename T>
__device__ __forceinline__ void write_chunk(T *row, int column,
                                            const float (&x)[S::VEC]) {
  write_few<T, S::VEC, S::VECTOR>(row, column, column + S::VEC, x);
}

/* A chunk of a row that may have been copied to shared memory. */
template <class S, typename T>
__device__ __forceinline__ void read_copy(float (&x)[S::VEC], const T *row,
                                          int column) {
  if constexpr (S::AHEAD) {
    packed<T, S::VEC> y;
    y.bits = *reinterpret_cast<const decltype(y.bits) *>(row + column);
    widen(x, y);
  } else {
    read_chunk<S>(x, row, column);
  }
}

/* Nothing waits for a number before all of the row are on their way. */
template <class S>
__device__ __forceinline__ void read_row(lane_row<S> &x,
                                         const typename S::T *row) {
  each_chunk<S>([&](int k, int column) { read_copy<S>(x.x[k], row, column); });
}

/* z of the last layer, of an edge of the launch. */
template <class S>
__device__ __forceinline__ const typename S::Z *
last_row(const mlp_streamed_params &p, int64_t edge) {
  return static_cast<const typename S::Z *>(p.last) + edge * p.last_stride;
}

/* ---- the norm ------------------------------------------------------------ */

/* The row before the norm, of the numbers z. */
template <class S>
__device__ __forceinline__ void
read_before_norm(lane_row<S> &u, const typename S::Z *z, float slope) {
  using T = typename S::T;
  each_chunk<S>([&](int k, int column) {
    read_copy<S>(u.x[k], z, column);
    if constexpr (S::GATE) {
      float v[S::VEC];
      read_copy<S>(v, z + S::WIDTH, column);
#pragma unroll
      for (int i = 0; i < S::VEC; ++i)
        u.x[k][i] = sigmoid<T>(u.x[k][i]) * activate<S::LAST, T>(v[i], slope);
    } else {
#pragma unroll
      for (int i = 0; i < S::VEC; ++i)
        u.x[k][i] = activate<S::LAST, T>(u.x[k][i], slope);
    }
  });
}

/* Norms the row but for the norm's weight and bias; returns its scale. */
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
