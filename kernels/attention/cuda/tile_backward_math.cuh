/* tile_backward_math.cuh - products of a warp's 16 own rows with a step's
 * gathered rows, both in shared memory
 *
 * Rows lie there as 16-byte units, unit u of row r at u ^ turn(r), so that
 * these loads have the fewest bank conflicts:
 *
 *   products over features (S, dP), rows of either operand
 *     f32     lane 4 g + t reads unit 4 c + t of row g, features of two
 *             products; the order of k is the same in both operands
 *     16-bit  ldmatrix
 *   products over gathered rows (sums), which are k there
 *     f32     lane 4 g + t reads unit 8 J + g of rows 2 t and 2 t + 1, for four
 *             products with output columns 32 J + 4 g + jj
 *     16-bit  ldmatrix.trans
 *
 * The accumulators of S are the A fragments of the sums as they are: k slots t
 * and t + 4 of TF32 are columns 2 t and 2 t + 1. */
#ifndef DFGNN_ATTENTION_CUDA_TILE_BACKWARD_MATH_CUH
#define DFGNN_ATTENTION_CUDA_TILE_BACKWARD_MATH_CUH

#include "kernels/attention/cuda/tile_backward.h"
#include "kernels/common/cuda_common.cuh"
#include "kernels/common/cuda_mma.cuh"

namespace dfgnn {

/* Operands of TF32 products.  TERMS 3: each number is the sum of two parts,
 * which is as exact as f32; 1: it is rounded. */
template <int TERMS, int N> struct grad_tile_parts {
  unsigned high[N], low[TERMS == 3 ? N : 1];

  __device__ __forceinline__ void set(int i, unsigned x) {
    if constexpr (TERMS == 3) {
      const tf32_parts parts = tf32_split(__uint_as_float(x));
      high[i] = parts.high;
      low[i] = parts.low;
    } else {
      high[i] = __float_as_uint(tf32_nearest(__uint_as_float(x)));
    }
  }
  __device__ __forceinline__ void set(int i, float x) {
    set(i, __float_as_uint(x));
  }
  /* Leaves it to the tensor core to truncate the high part: an instruction less
   * where numbers lie in registers as it takes them. */
  __device__ __forceinline__ void set_whole(int i, unsigned x) {
    if constexpr (TERMS == 3) {
      high[i] = x;
      low[i] = __float_as_uint(__uint_as_float(x) -
                               __uint_as_float(x & 0xffffe000u));
    } else {
      set(i, x);
    }
  }
  /* The part that a product takes; LOW: the low one, if there are 3 terms. */
  template <bool LOW> __device__ __forceinline__ unsigned at(int i) const {
    if constexpr (LOW && TERMS == 3)
      return low[i];
    else
      return high[i];
  }
};

/* OWN, FAR: the tensors of own and of gathered rows, the last of which give dP;
 * S is of the first, if SCORES.  ALONE: one sum is all that a lane holds. */
template <typename T, int DIM, int TERMS, int OWN, int FAR, bool SCORES,
          bool ALONE>
struct grad_tile_products {
  static constexpr int W = GRAD_TILE_WIDTH(DIM);
  static constexpr bool F32 = sizeof(T) == 4;
  static constexpr int YO = OWN - 1, YF = FAR - 1;
  static constexpr int UNITS = W * sizeof(T) / 16; /* units of a row */
  static constexpr int STEP = GRAD_TILE_STEP, TILES = STEP / 8;
  static constexpr int VEC = F32 ? 4 : 2; /* features in a piece of a row */

  const grad_tile_params &p;
  uint4 *own; /* [OWN][window][UNITS] */
  float s[TILES][4], dp[TILES][4];

  __device__ explicit grad_tile_products(const grad_tile_params &params)
      : p(params) {}

  __device__ static int lane() { return threadIdx.x & 31; }
  __device__ static int group() { return lane() >> 2; }
  __device__ static int place() { return lane() & 3; }
  __device__ static int first_row() { return threadIdx.x / 32 * 16; }
  __device__ static int turn(int r) {
    return UNITS % 8 == 4 ? r >> 1 & 3 : (r & 7) ^ (r & 1) << 2;
  }

  using a_parts = grad_tile_parts<TERMS, 8>; /* two fragments */
  using b_parts = grad_tile_parts<TERMS, 4>;

  /* d += fragment ka of a times numbers b0 and b1 of b.  TERM 0: the low part
   * of a; 1: the low part of b; 2: the high parts. */
  template <int TERM, class A, class B>
  __device__ static __forceinline__ void
  product(float (&d)[4], const A &a, int ka, const B &b, int b0, int b1) {
    constexpr bool LOW_A = TERM == 0, LOW_B = TERM == 1;
    const unsigned x[4] = {
        a.template at<LOW_A>(4 * ka), a.template at<LOW_A>(4 * ka + 1),
        a.template at<LOW_A>(4 * ka + 2), a.template at<LOW_A>(4 * ka + 3)};
    mma_tf32(d, x, b.template at<LOW_B>(b0), b.template at<LOW_B>(b1));
  }

  /* Loads units 4 c + t of rows g and g + 8. */
  __device__ __forceinline__ void own_parts(a_parts &a, int t, int c) const {
    const uint4 *at = own + (t * p.window + first_row() + group()) * UNITS +
                      ((4 * c) ^ (place() ^ turn(group())));
    const uint4 x = at[0], y = at[8 * UNITS];
    a.set(0, x.x);
    a.set(1, y.x);
    a.set(2, x.y);
    a.set(3, y.y);
    a.set(4, x.z);
    a.set(5, y.z);
    a.set(6, x.w);
    a.set(7, y.w);
  }
  __device__ __forceinline__ void far_parts(b_parts &b, const uint4 *stage,
                                            int t, int n, int c) const {
    const uint4 x = stage[(t * STEP + 8 * n + group()) * UNITS +
                          ((4 * c) ^ (place() ^ turn(group())))];
    b.set_whole(0, x.x);
    b.set_whole(1, x.y);
    b.set_whole(2, x.z);
    b.set_whole(3, x.w);
  }

  template <int TERM>
  __device__ static __forceinline__ void
  score_term(float (&to_s)[TILES][4], float (&to_dp)[TILES][4],
             const a_parts (&a)[OWN], const b_parts (&b)[FAR][TILES], int k) {
    unroll<TILES>([&](int n) {
      if constexpr (SCORES)
        product<TERM>(to_s[n], a[0], k, b[0][n], 2 * k, 2 * k + 1);
      product<TERM>(to_dp[n], a[YO], k, b[YF][n], 2 * k, 2 * k + 1);
    });
  }

  /* Computes S and dP. */
  __device__ __forceinline__ void scores(const uint4 *stage) {
    unroll<TILES, 4>([&](int n, int i) { s[n][i] = dp[n][i] = 0; });
    if constexpr (F32)
      scores_f32(stage);
    else
      scores_pairs(stage);
  }

  __device__ __forceinline__ void scores_pairs(const uint4 *stage) {
    const int a_row = lane() % 16, a_unit = lane() / 16 ^ turn(a_row);
    const int b_row = lane() % 8 + lane() / 16 * 8;
    const int b_unit = (lane() / 8 % 2) ^ turn(b_row);
    unroll<UNITS / 2>([&](int c) {
      unsigned a[OWN][4], b[FAR][4];
      unroll<OWN>([&](int t) {
        load_matrices(a[t], own + (t * p.window + first_row() + a_row) * UNITS +
                                ((2 * c) ^ a_unit));
      });
      unroll<FAR>([&](int t) {
        load_matrices(b[t],
                      stage + (t * STEP + b_row) * UNITS + ((2 * c) ^ b_unit));
      });
      unroll<TILES>([&](int n) {
        if constexpr (SCORES)
          mma_pairs<T>(s[n], a[0], b[0][2 * n], b[0][2 * n + 1]);
        mma_pairs<T>(dp[n], a[YO], b[YF][2 * n], b[YF][2 * n + 1]);
      });
    });
  }

  /* Tensor cores truncate what they add: products of low parts are small, and
   * have sums of their own. */
  __device__ __forceinline__ void scores_f32(const uint4 *stage) {
    float s_rest[TILES][4] = {}, dp_rest[TILES][4] = {};
    unroll<UNITS / 4>([&](int c) {
      a_parts a[OWN];
      b_parts b[FAR][TILES];
      unroll<OWN>([&](int t) { own_parts(a[t], t, c); });
      unroll<FAR, TILES>(
          [&](int t, int n) { far_parts(b[t][n], stage, t, n, c); });
      unroll<2>([&](int k) {
        if constexpr (TERMS == 3)
          score_term<0>(s_rest, dp_rest, a, b, k);
        score_term<2>(s, dp, a, b, k);
        if constexpr (TERMS == 3)
          score_term<1>(s_rest, dp_rest, a, b, k);
      });
    });
    if constexpr (TERMS == 3)
      unroll<TILES, 4>([&](int n, int i) {
        s[n][i] += s_rest[n][i];
        dp[n][i] += dp_rest[n][i];
      });
  }

  /* sum += x far. */
  __device__ __forceinline__ void add(float (&to)[W / 8][4],
                                      const float (&x)[TILES][4],
                                      const uint4 *from) const {
    if constexpr (F32)
      add_f32(to, x, from);
    else
      add_pairs(to, x, from);
  }

  /* With TERMS 3 the products of a step are summed from 0, and then added to
   * the sums, which tensor cores would truncate at every step. */
  __device__ __forceinline__ void add_f32(float (&to)[W / 8][4],
                                          const float (&x)[TILES][4],
                                          const uint4 *from) const {
    constexpr int PAIR = W % 64 == 0 && ALONE ? 2 : 1; /* times four tiles */
    grad_tile_parts<TERMS, 4> a[TILES];
    unroll<TILES>([&](int n) {
      a[n].set(0, x[n][0]);
      a[n].set(1, x[n][2]);
      a[n].set(2, x[n][1]);
      a[n].set(3, x[n][3]);
    });
#pragma unroll
    for (int j = 0; j < W / 32; j += PAIR) {
      float d[4 * PAIR][4];
      unroll<4 * PAIR, 4>([&](int i, int k) {
        d[i][k] = TERMS == 3 ? 0.0f : to[4 * j + i][k];
      });
      unroll<TILES>([&](int n) {
        add_tiles<PAIR>(d, a[n], from, 8 * n + 2 * place(), j);
      });
      unroll<4 * PAIR, 4>([&](int i, int k) {
        to[4 * j + i][k] = TERMS == 3 ? to[4 * j + i][k] + d[i][k] : d[i][k];
      });
    }
  }

  /* Adds the products of rows r and r + 1 from unit 8 j + g on. */
  template <int PAIR>
  __device__ static __forceinline__ void
  add_tiles(float (&d)[4 * PAIR][4], const grad_tile_parts<TERMS, 4> &a,
            const uint4 *from, int r, int j) {
    const uint4 *even = from + r * UNITS + (group() ^ turn(r));
    const uint4 *odd = from + (r + 1) * UNITS + (group() ^ turn(r + 1));
    grad_tile_parts<TERMS, 8> b[PAIR];
    unroll<PAIR>([&](int i) {
      const uint4 y = even[8 * (j + i)], z = odd[8 * (j + i)];
      b[i].set(0, y.x);
      b[i].set(1, z.x);
      b[i].set(2, y.y);
      b[i].set(3, z.y);
      b[i].set(4, y.z);
      b[i].set(5, z.z);
      b[i].set(6, y.w);
      b[i].set(7, z.w);
    });
    if constexpr (TERMS == 3) {
      unroll<4 * PAIR>([&](int i) {
        product<0>(d[i], a, 0, b[i / 4], i % 4 * 2, i % 4 * 2 + 1);
      });
      unroll<4 * PAIR>([&](int i) {
        product<1>(d[i], a, 0, b[i / 4], i % 4 * 2, i % 4 * 2 + 1);
      });
    }
    unroll<4 * PAIR>([&](int i) {
      product<2>(d[i], a, 0, b[i / 4], i % 4 * 2, i % 4 * 2 + 1);
    });
  }

  __device__ __forceinline__ void add_pairs(float (&to)[W / 8][4],
                                            const float (&x)[TILES][4],
                                            const uint4 *from) const {
    const unsigned a[4] = {
        pack_pair<T>(x[0][0], x[0][1]), pack_pair<T>(x[0][2], x[0][3]),
        pack_pair<T>(x[1][0], x[1][1]), pack_pair<T>(x[1][2], x[1][3])};
    const int r = lane() % 16, u = lane() / 16;
    unroll<W / 16>([&](int j) {
      unsigned b[4];
      load_transposed(b, from + r * UNITS + ((2 * j) ^ (u ^ turn(r))));
      mma_pairs<T>(to[2 * j], a, b[0], b[1]);
      mma_pairs<T>(to[2 * j + 1], a, b[2], b[3]);
    });
  }

  /* Calls visit(feature, x) for this lane's pieces of row g + 8 h. */
  template <class Visit>
  __device__ __forceinline__ void pieces(float (&from)[W / 8][4], int h,
                                         const Visit &visit) {
    if constexpr (F32) {
      unroll<W / 32, 2>([&](int j, int k) {
        float x[VEC];
        unroll<4>([&](int i) { x[i] = from[4 * j + i][2 * h + k]; });
        visit(32 * j + 8 * place() + 4 * k, x);
        unroll<4>([&](int i) { from[4 * j + i][2 * h + k] = x[i]; });
      });
    } else {
      unroll<W / 8>([&](int n) {
        float x[VEC] = {from[n][2 * h], from[n][2 * h + 1]};
        visit(8 * n + 2 * place(), x);
        from[n][2 * h] = x[0];
        from[n][2 * h + 1] = x[1];
      });
    }
  }

  __device__ __forceinline__ packed<T, VEC> own_piece(int r, int f) const {
    const int at = f * int(sizeof(T)), u = (at / 16) ^ turn(r);
    return *reinterpret_cast<const packed<T, VEC> *>(
        reinterpret_cast<const char *>(own + r * UNITS + u) + at % 16);
  }
};

} // namespace dfgnn

#endif
