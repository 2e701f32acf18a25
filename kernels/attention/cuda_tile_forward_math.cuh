/* cuda_tile_forward_math.cuh - products of a warp's 16 rows with a chunk of 32
 * columns, by storage type
 *
 * scores[j]: 16 x 8 columns, as mma leaves them: of lane 4 g + t, [0] and [1]
 * are row g, columns 8 j + 2 t and the next, [2] and [3] row g + 8.
 * sums[n]: the like of feature(n, ...).  An mma adds to 24 bits by truncation,
 * so sums of a chunk start at zero and are added to the others outside. */
#ifndef DFGNN_ATTENTION_CUDA_TILE_FORWARD_MATH_CUH
#define DFGNN_ATTENTION_CUDA_TILE_FORWARD_MATH_CUH

#include "kernels/attention/cuda_tile_forward.h"
#include "kernels/common/cuda_mma.cuh"

namespace dfgnn {

using tile_scores = float[4][4];

template <int W, int N>
__device__ __forceinline__ void add_scaled(float (&sums)[W / 8][4], int first,
                                           const float (&chunk)[N][4],
                                           const float (&scale)[2]) {
#pragma unroll
  for (int n = 0; n < N; ++n)
#pragma unroll
    for (int e = 0; e < 4; ++e)
      sums[first + n][e] = fmaf(sums[first + n][e], scale[e / 2], chunk[n][e]);
}

/* ---- float: tf32, of which SPLIT takes three products --------------------
 *
 * The scores' k slots t and t + 4 of two mma are features 4 t .. 4 t + 3 of 16,
 * so that a lane reads them at once.  The k slots of the sums, t and t + 4,
 * are columns 2 t and 2 t + 1: the scores are the fragment as they are. */
template <bool SPLIT> struct tile_math_f32 {
  using T = float;
  static constexpr bool kQueryShared = true;

  struct part {
    unsigned high, low;
    __device__ __forceinline__ void set(float x) {
      if constexpr (SPLIT) {
        const tf32_parts p = tf32_split(x);
        high = p.high;
        low = p.low;
      } else {
        high = __float_as_uint(tf32_nearest(x));
      }
    }
  };

  struct fragment { /* 16 x 8 */
    part x[4];
    __device__ __forceinline__ void set(float a, float b, float c, float d) {
      x[0].set(a);
      x[1].set(b);
      x[2].set(c);
      x[3].set(d);
    }
  };

  static __device__ __forceinline__ void
  multiply(float (&sum)[4], float (&rest)[4], const fragment &a, const part &b0,
           const part &b1) {
    const unsigned high[4] = {a.x[0].high, a.x[1].high, a.x[2].high,
                              a.x[3].high};
    if constexpr (SPLIT) {
      const unsigned low[4] = {a.x[0].low, a.x[1].low, a.x[2].low, a.x[3].low};
      mma_tf32(rest, low, b0.high, b1.high);
      mma_tf32(rest, high, b0.low, b1.low);
    }
    mma_tf32(sum, high, b0.high, b1.high);
  }

  template <int W> struct query {}; /* in shared memory */

  /* own: the warp's 16 staged rows; far: the chunk's 32. */
  template <int W, int FAR>
  static __device__ __forceinline__ void scores(tile_scores &s,
                                                const query<W> &, const T *own,
                                                const T *far, int lane) {
    constexpr int OWN = tile_strides<T, W>::kAlong;
    const int g = lane / 4, t = lane % 4;
    const float *own_lane = own + g * OWN + 4 * t;
    const float *far_lane = far + g * FAR + 4 * t;
    tile_scores rest;
#pragma unroll
    for (int j = 0; j < 4; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        s[j][e] = rest[j][e] = 0.0f;
#pragma unroll 2
    for (int c = 0; c < W / 16; ++c) {
      const float4 a = *reinterpret_cast<const float4 *>(own_lane + 16 * c);
      const float4 b =
          *reinterpret_cast<const float4 *>(own_lane + 8 * OWN + 16 * c);
      fragment q[2];
      q[0].set(a.x, b.x, a.y, b.y);
      q[1].set(a.z, b.z, a.w, b.w);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float4 x =
            *reinterpret_cast<const float4 *>(far_lane + 8 * j * FAR + 16 * c);
        part k[4];
        k[0].set(x.x);
        k[1].set(x.y);
        k[2].set(x.z);
        k[3].set(x.w);
        multiply(s[j], rest[j], q[0], k[0], k[1]);
        multiply(s[j], rest[j], q[1], k[2], k[3]);
      }
    }
    if constexpr (SPLIT)
#pragma unroll
      for (int j = 0; j < 4; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e)
          s[j][e] += rest[j][e];
  }

  template <int W>
  static __device__ __forceinline__ void
  add(float (&sums)[W / 8][4], const tile_scores &weight,
      const float (&scale)[2], const T *far, int lane) {
    constexpr int FAR = tile_strides<T, W>::kAcross;
    const int g = lane / 4, t = lane % 4;
    const float *far_lane = far + 2 * t * FAR + 2 * g;
    fragment p[4];
#pragma unroll
    for (int j = 0; j < 4; ++j)
      p[j].set(weight[j][0], weight[j][2], weight[j][1], weight[j][3]);
#pragma unroll
    for (int n = 0; n < W / 8; n += 2) {
      float chunk[2][4] = {}, rest[2][4] = {};
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float *at = far_lane + 8 * j * FAR + 8 * n;
        const float2 x = *reinterpret_cast<const float2 *>(at);
        const float2 y = *reinterpret_cast<const float2 *>(at + FAR);
        part b[4];
        b[0].set(x.x);
        b[1].set(y.x);
        b[2].set(x.y);
        b[3].set(y.y);
        multiply(chunk[0], rest[0], p[j], b[0], b[1]);
        multiply(chunk[1], rest[1], p[j], b[2], b[3]);
      }
      if constexpr (SPLIT)
#pragma unroll
        for (int i = 0; i < 2; ++i)
#pragma unroll
          for (int e = 0; e < 4; ++e)
            chunk[i][e] += rest[i][e];
      add_scaled<W, 2>(sums, n, chunk, scale);
    }
  }

  /* Of sums[n][e]: two n and two e are four adjacent ones. */
  static __device__ __forceinline__ int feature(int n, int e, int t) {
    return 16 * (n / 2) + 4 * t + 2 * (e & 1) + n % 2;
  }
  /* FIRST: 0, or 2 for row g + 8. */
  template <int W, int FIRST>
  static __device__ __forceinline__ void
  store_wide(T *row, const float (&sums)[W / 8][4], float factor, int dim,
             int t) {
#pragma unroll
    for (int n = 0; n < W / 8; n += 2) {
      float x[4];
#pragma unroll
      for (int i = 0; i < 4; ++i)
        x[i] = sums[n + i % 2][FIRST + i / 2] * factor;
      const int f = feature(n, 0, t);
      if (f < dim)
        store_once<4>(row + f, x);
    }
  }
};

/* ---- 16-bit types ---------------------------------------------------------
 *
 * The scores' k slots of two mma are features 8 t .. 8 t + 7 of 32. */
template <typename S> struct tile_math_16 {
  using T = S;
  static constexpr bool kQueryShared = false;

  template <int W> struct query { uint4 x[W / 32][2]; };

  template <int W, int FAR>
  static __device__ __forceinline__ void
  scores(tile_scores &s, const query<W> &q, const T *, const T *far, int lane) {
    const T *far_lane = far + lane / 4 * FAR + 8 * (lane % 4);
#pragma unroll
    for (int j = 0; j < 4; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        s[j][e] = 0.0f;
#pragma unroll
    for (int c = 0; c < W / 32; ++c) {
      const uint4 a = q.x[c][0], b = q.x[c][1];
      const unsigned lower[4] = {a.x, b.x, a.y, b.y};
      const unsigned upper[4] = {a.z, b.z, a.w, b.w};
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const uint4 k =
            *reinterpret_cast<const uint4 *>(far_lane + 8 * j * FAR + 32 * c);
        mma_pairs<T>(s[j], lower, k.x, k.y);
        mma_pairs<T>(s[j], upper, k.z, k.w);
      }
    }
  }

  template <int W>
  static __device__ __forceinline__ void
  add(float (&sums)[W / 8][4], const tile_scores &weight,
      const float (&scale)[2], const T *far, int lane) {
    constexpr int FAR = tile_strides<T, W>::kAcross;
    const T *far_lane = far + lane % 16 * FAR + lane / 16 * 8;
    unsigned p[2][4];
#pragma unroll
    for (int k = 0; k < 2; ++k)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        p[k][i] = pack_pair<T>(weight[2 * k + i / 2][i % 2 * 2],
                               weight[2 * k + i / 2][i % 2 * 2 + 1]);
#pragma unroll
    for (int n = 0; n < W / 8; n += 2) {
      float chunk[2][4] = {};
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        unsigned v[4];
        load_transposed(v, far_lane + 16 * k * FAR + 8 * n);
        mma_pairs<T>(chunk[0], p[k], v[0], v[1]);
        mma_pairs<T>(chunk[1], p[k], v[2], v[3]);
      }
      add_scaled<W, 2>(sums, n, chunk, scale);
    }
  }

  static __device__ __forceinline__ int feature(int n, int e, int t) {
    return 8 * n + 2 * t + (e & 1);
  }
  /* FIRST: 0, or 2 for row g + 8. */
  template <int W, int FIRST>
  static __device__ __forceinline__ void
  store_wide(T *row, const float (&sums)[W / 8][4], float factor, int dim,
             int t) {
#pragma unroll
    for (int n = 0; n < W / 8; ++n) {
      const int f = feature(n, 0, t);
      if (f < dim)
        *reinterpret_cast<unsigned *>(row + f) =
            pack_pair<T>(sums[n][FIRST] * factor, sums[n][FIRST + 1] * factor);
    }
  }
};
/* ---- GATv2's scores: no product ------------------------------------------
 *
 * att, own rows and `sign` are such that leaky(t) is the larger of t and
 * slope t: see gatv2_score. */
template <typename T, int W>
__device__ __forceinline__ void
additive_scores(tile_scores &s, const T *own, const T *far, const float *att,
                float slope, float sign, int lane) {
  constexpr int VEC = 16 / sizeof(T);
  constexpr int OWN = tile_strides<T, W>::kAlong;
  constexpr int FAR = tile_strides<T, W>::kAcross;
  const T *own_lane = own + lane / 4 * OWN,
          *far_lane = far + lane % 4 * 2 * FAR;
#pragma unroll
  for (int j = 0; j < 4; ++j)
#pragma unroll
    for (int e = 0; e < 4; ++e)
      s[j][e] = 0.0f;
#pragma unroll 1
  for (int f = 0; f < W; f += VEC) {
    float q[2][VEC], a[VEC];
#pragma unroll
    for (int i = 0; i < VEC; i += 4) {
      const float4 x = *reinterpret_cast<const float4 *>(att + f + i);
      a[i] = x.x, a[i + 1] = x.y, a[i + 2] = x.z, a[i + 3] = x.w;
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      packed<T, VEC> x;
      x.bits = *reinterpret_cast<const uint4 *>(own_lane + 8 * r * OWN + f);
#pragma unroll
      for (int i = 0; i < VEC; ++i)
        q[r][i] = widen(x.item[i]) * sign;
    }
#pragma unroll
    for (int j = 0; j < 4; ++j)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        packed<T, VEC> x;
        x.bits =
            *reinterpret_cast<const uint4 *>(far_lane + (8 * j + e) * FAR + f);
#pragma unroll
        for (int i = 0; i < VEC; ++i)
#pragma unroll
          for (int r = 0; r < 2; ++r) {
            const float y = fmaf(widen(x.item[i]), sign, q[r][i]);
            s[j][2 * r + e] += a[i] * fmaxf(y, y * slope);
          }
      }
  }
}

} // namespace dfgnn

#endif
