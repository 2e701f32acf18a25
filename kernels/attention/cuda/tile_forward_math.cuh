/* tile_forward_math.cuh - products of a warp's 16 rows with a chunk of 32
 * columns, by storage type
 *
 * Lane 4 g + t of a warp has these scores and sums:
 *
 *   s[j][0], s[j][1]         row tile_order(g), columns 8 j + t, 8 j + t + 4
 *   s[j][2], s[j][3]         row tile_order(g) + 8, the same columns
 *   sums[n][e], e = 0, 1     row tile_order(g), feature(n, e, t)
 *   sums[n][e], e = 2, 3     row tile_order(g) + 8, the same features
 *
 * Staged rows are 4 words, modulo 32, apart: so there are no bank conflicts
 * where rows tile_order(g) are read along the features, 16 bytes a lane, nor
 * where rows t are read across them.  An mma truncates what it adds to 24 bits,
 * so the sums of a chunk start at 0, and are then added to the sums before. */
#ifndef DFGNN_ATTENTION_CUDA_TILE_FORWARD_MATH_CUH
#define DFGNN_ATTENTION_CUDA_TILE_FORWARD_MATH_CUH

#include "kernels/attention/cuda/tile_forward.h"
#include "kernels/attention/cuda/tile_softmax.cuh"
#include "kernels/common/cuda_mma.cuh"

namespace dfgnn {

template <typename T, int W>
constexpr int kTileStride = W + TILE_PAD_BYTES / int(sizeof(T));

/* An order of 0 .. 7 whose neighbours are 4 apart. */
DEVICE int tile_order(int g) { return g / 2 + g % 2 * 4; }

DEVICE void clear(tile_scores &s) {
  unroll<4, 4>([&](int j, int e) { s[j][e] = 0.0f; });
}

DEVICE void accumulate(tile_scores &s, const tile_scores &more) {
  unroll<4, 4>([&](int j, int e) { s[j][e] += more[j][e]; });
}

template <int W, int N>
DEVICE void add_scaled(float (&sums)[W / 8][4], int first,
                       const float (&chunk)[N][4], const float (&scale)[2]) {
  unroll<N, 4>([&](int n, int e) {
    sums[first + n][e] = fmaf(sums[first + n][e], scale[e / 2], chunk[n][e]);
  });
}

/* Loads N numbers of shared memory, 16 bytes at a time. */
template <typename T, int N>
DEVICE void load_staged(float (&x)[N], const T *from) {
  constexpr int VEC = 16 / sizeof(T);
#pragma unroll
  for (int k = 0; k < N; k += VEC) {
    packed<T, VEC> y;
    y.bits = *reinterpret_cast<const uint4 *>(from + k);
    unroll<VEC>([&](int i) { x[k + i] = widen(y.item[i]); });
  }
}

/* ---- float: TF32, of which SPLIT takes three products --------------------
 *
 * The k slots t and t + 4 of two mma for scores are features 4 t .. 4 t + 3 of
 * 16, so that a lane reads them at once.  The k slots for sums are columns t
 * and t + 4: the scores are the fragment as they are. */
template <bool SPLIT> struct tile_math_f32 : mma_operand<float, SPLIT> {
  using T = float;
  static constexpr bool kQueryShared = true;

  struct part {
    unsigned high, low;
    DEVICE void set(float x) {
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
    DEVICE void set(float a, float b, float c, float d) {
      x[0].set(a);
      x[1].set(b);
      x[2].set(c);
      x[3].set(d);
    }
  };

  static DEVICE void multiply(float (&sum)[4], float (&rest)[4],
                              const fragment &a, const part &b0,
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
  template <int W>
  static DEVICE void scores(tile_scores &s, const query<W> &, const T *own,
                            const T *far, int lane) {
    constexpr int STEP = kTileStride<T, W>;
    const int at = tile_order(lane / 4) * STEP + lane % 4 * 4;
    const float *own_lane = own + at, *far_lane = far + at;
    tile_scores rest;
    clear(s);
    clear(rest);
#pragma unroll 1
    for (int f = 0; f < W; f += 32) {
      tile_scores some; /* a short sum, because of the truncation */
      clear(some);
#pragma unroll
      for (int c = f; c < f + 32; c += 16) {
        const float4 a = *reinterpret_cast<const float4 *>(own_lane + c);
        const float4 b =
            *reinterpret_cast<const float4 *>(own_lane + 8 * STEP + c);
        fragment q[2];
        q[0].set(a.x, b.x, a.y, b.y);
        q[1].set(a.z, b.z, a.w, b.w);
        unroll<4>([&](int j) {
          const float4 x =
              *reinterpret_cast<const float4 *>(far_lane + 8 * j * STEP + c);
          part k[4];
          k[0].set(x.x);
          k[1].set(x.y);
          k[2].set(x.z);
          k[3].set(x.w);
          multiply(SPLIT ? some[j] : s[j], rest[j], q[0], k[0], k[1]);
          multiply(SPLIT ? some[j] : s[j], rest[j], q[1], k[2], k[3]);
        });
      }
      if constexpr (SPLIT)
        accumulate(s, some);
    }
    if constexpr (SPLIT)
      accumulate(s, rest);
  }

  template <int W>
  static DEVICE void add(float (&sums)[W / 8][4], const tile_scores &weight,
                         const float (&scale)[2], const T *far, int lane) {
    constexpr int STEP = kTileStride<T, W>;
    const int g = lane / 4, t = lane % 4;
    const float *far_lane =
        far + t * STEP + g % 2 * 2 + g / 2 % 2 * 16 + g / 4 * 4;
    fragment p[4];
    unroll<4>([&](int j) {
      p[j].set(weight[j][0], weight[j][2], weight[j][1], weight[j][3]);
    });
#pragma unroll
    for (int n = 0; n < W / 8; n += 2) {
      float chunk[2][4] = {}, rest[2][4] = {};
      unroll<4>([&](int j) {
        const float *at = far_lane + 8 * j * STEP + group(n);
        const float2 x = *reinterpret_cast<const float2 *>(at);
        const float2 y = *reinterpret_cast<const float2 *>(at + 4 * STEP);
        part b[4];
        b[0].set(x.x);
        b[1].set(y.x);
        b[2].set(x.y);
        b[3].set(y.y);
        multiply(chunk[0], rest[0], p[j], b[0], b[1]);
        multiply(chunk[1], rest[1], p[j], b[2], b[3]);
      });
      if constexpr (SPLIT)
        unroll<2, 4>([&](int i, int e) { chunk[i][e] += rest[i][e]; });
      add_scaled<W, 2>(sums, n, chunk, scale);
    }
  }

  static DEVICE int group(int n) { return n / 4 * 32 + n / 2 % 2 * 8; }
  /* The feature of sums[n][e]; n, n + 1 (n even) and e = 0, 1 are adjacent. */
  static DEVICE int feature(int n, int e, int t) {
    return group(n) + t % 2 * 16 + t / 2 * 4 + (e & 1) * 2 + n % 2;
  }
  /* FIRST: 0, or 2 for row g + 8. */
  template <int W, int FIRST>
  static DEVICE void store_wide(T *row, const float (&sums)[W / 8][4],
                                float factor, int dim, int t) {
#pragma unroll
    for (int n = 0; n < W / 8; n += 2) {
      float x[4];
      unroll<4>([&](int i) { x[i] = sums[n + i % 2][FIRST + i / 2] * factor; });
      const int f = feature(n, 0, t);
      if (f < dim)
        store_once<4>(row + f, x);
    }
  }
};

/* ---- 16-bit types ---------------------------------------------------------
 *
 * The k slots of two mma for scores are features 8 t .. 8 t + 7 of 32. */
template <typename S> struct tile_math_16 : mma_operand<S, 0> {
  using T = S;
  static constexpr bool kQueryShared = false;

  template <int W> struct query { uint4 x[W / 32][2]; };

  /* The squared norm of the lane's features in vector c of row g + 8 r. */
  template <int W> static DEVICE float square(const query<W> &q, int c, int r) {
    packed<T, 8> x;
    float sum = 0.0f;
    x.bits = q.x[c][r];
    unroll<8>([&](int i) { sum += widen(x.item[i]) * widen(x.item[i]); });
    return sum;
  }

  template <int W>
  static DEVICE void scores(tile_scores &s, const query<W> &q, const T *,
                            const T *far, int lane) {
    constexpr int STEP = kTileStride<T, W>;
    const T *far_lane = far + tile_order(lane / 4) * STEP + lane % 4 * 8;
    clear(s);
    unroll<W / 32>([&](int c) {
      const uint4 a = q.x[c][0], b = q.x[c][1];
      const unsigned lower[4] = {a.x, b.x, a.y, b.y};
      const unsigned upper[4] = {a.z, b.z, a.w, b.w};
      unroll<4>([&](int j) {
        const uint4 k =
            *reinterpret_cast<const uint4 *>(far_lane + 8 * j * STEP + 32 * c);
        mma_pairs<T>(s[j], lower, k.x, k.y);
        mma_pairs<T>(s[j], upper, k.z, k.w);
      });
    });
  }

  template <int W>
  static DEVICE void add(float (&sums)[W / 8][4], const tile_scores &weight,
                         const float (&scale)[2], const T *far, int lane) {
    constexpr int STEP = kTileStride<T, W>;
    const T *far_lane =
        far + (lane / 8 % 2 * 8 + tile_order(lane % 8)) * STEP + lane / 16 * 8;
    unsigned p[2][4];
    unroll<2, 4>([&](int k, int i) {
      p[k][i] = pack_pair<T>(weight[2 * k + i / 2][i % 2 * 2],
                             weight[2 * k + i / 2][i % 2 * 2 + 1]);
    });
#pragma unroll
    for (int n = 0; n < W / 8; n += 2) {
      float chunk[2][4] = {};
      unroll<2>([&](int k) {
        unsigned v[4];
        load_transposed(v, far_lane + 16 * k * STEP + 8 * n);
        mma_pairs<T>(chunk[0], p[k], v[0], v[1]);
        mma_pairs<T>(chunk[1], p[k], v[2], v[3]);
      });
      add_scaled<W, 2>(sums, n, chunk, scale);
    }
  }

  static DEVICE int feature(int n, int e, int t) {
    return 8 * n + 2 * t + (e & 1);
  }
  /* FIRST: 0, or 2 for row g + 8. */
  template <int W, int FIRST>
  static DEVICE void store_wide(T *row, const float (&sums)[W / 8][4],
                                float factor, int dim, int t) {
    unroll<W / 8>([&](int n) {
      const int f = feature(n, 0, t);
      if (f < dim)
        *reinterpret_cast<unsigned *>(row + f) =
            pack_pair<T>(sums[n][FIRST] * factor, sums[n][FIRST + 1] * factor);
    });
  }
};

/* EXACT: products as exact as f32's. */
template <typename T, int EXACT> struct tile_math {
  using type = tile_math_16<T>;
};
template <int EXACT> struct tile_math<float, EXACT> {
  using type = tile_math_f32<EXACT != 0>;
};
template <typename T, int EXACT>
using tile_math_t = typename tile_math<T, EXACT>::type;

} // namespace dfgnn

#endif
