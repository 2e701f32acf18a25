/* edges_project.cuh - products with W of all rows of a block, whose results
 * (and operands, if STAGED) lie in shared memory
 *
 * Tensor cores make them, by TF32 products that keep all digits: a 16-bit
 * number is a TF32 number, a float the sum of two.  Doubles take none. */
#ifndef DFGNN_ATTENTION_CUDA_EDGES_PROJECT_CUH
#define DFGNN_ATTENTION_CUDA_EDGES_PROJECT_CUH

#include "kernels/attention/cuda/edges_stage.cuh"

namespace dfgnn {

template <typename T> constexpr bool is_tf32 = sizeof(T) == 2;

/* N numbers of a fragment, each high + low. */
template <int N> struct fragment {
  unsigned high[N], low[N];
  template <bool EXACT> DEVICE void set(int i, float x) {
    const tf32_parts y = EXACT ? tf32_parts{__float_as_uint(x), 0} //
                               : tf32_split(x);
    high[i] = y.high;
    low[i] = y.low;
  }
};

/* d += a b; A_LOW, B_LOW: a and b have low parts. */
template <bool A_LOW, bool B_LOW>
DEVICE void mma_all(float (&d)[4], const fragment<4> &a, const fragment<2> &b) {
  if constexpr (A_LOW)
    mma_tf32(d, a.low, b.high[0], b.high[1]);
  if constexpr (B_LOW)
    mma_tf32(d, a.high, b.low[0], b.low[1]);
  mma_tf32(d, a.high, b.high[0], b.high[1]);
}

/* The number of heads of the tile that starts at `first`. */
template <int HEADS, int TILE> DEVICE int heads_of_tile(int first) {
  return HEADS % TILE == 0 ? TILE : min(TILE, HEADS - first);
}

/* Distance of rows in the results of edge_project and edge_expand: the lanes of
 * a fragment meet different banks. */
constexpr int edge_pitch(int features) {
  return ceil_div(features, 32) * 32 + 4;
}
/* Distance of heads in the results of edge_expand. */
constexpr int edge_head_pitch(int dim) { return ceil_div(dim, 4) * 4 + 4; }

/* A 16-bit number of a pair. */
template <typename T> DEVICE float half_of(unsigned pair, int upper) {
  T x;
  x.bits = static_cast<unsigned short>(upper ? pair >> 16 : pair);
  return widen(x);
}

/* to[r][h][f] = factor sum_d W[h,d,f] x[row0 + r][h][d]; r < ROWS, h of the
 * tile that starts at `first`, f < FE + ONE.  Rows are PITCH apart, heads FP.
 */
template <class K, int FP, int TILE> struct edge_project {
  using T = typename K::type;
  using A = accumulator_t<T>;
  using matrix = edge_matrix<K>;
  using Rows = edge_rows<K, K::heads>;
  static constexpr int HEADS = K::heads, DIM = K::dim, ROWS = K::warps;
  static constexpr int FE = K::edge_dim, ONE = K::ones;
  static constexpr int PITCH = edge_pitch(TILE * FP);

  static DEVICE void run(A *to, const matrix &w, const Rows &from,
                         const tensor_view &x, int row0, int rows, int first,
                         A factor) {
    const int heads = heads_of_tile<HEADS, TILE>(first);
    if constexpr (sizeof(T) == 8)
      single(to, w, from, x, row0, rows, first, heads, factor);
    else
      tensor(to, w, from, x, row0, rows, first, heads, factor);
  }

  static DEVICE void single(A *to, const matrix &w, const Rows &from,
                            const tensor_view &x, int row0, int rows, int first,
                            int heads, A factor) {
    for (int i = threadIdx.x; i < rows * heads * FP; i += blockDim.x) {
      const int f = i % FP, head = i / FP % heads, r = i / FP / heads;
      A sum = A(0);
      for (int d = 0; d < DIM && f < FE + ONE; d += 2) {
        A y[2];
        from.pair(y, x, row0, rows, 0, r, first + head, d);
        sum += w.at(first + head, d, f) * y[0];
        if (d + 1 < DIM)
          sum += w.at(first + head, d + 1, f) * y[1];
      }
      to[r * PITCH + head * FP + f] = factor * sum;
    }
  }

  static DEVICE void tensor(float *to, const matrix &w, const Rows &from,
                            const tensor_view &x, int row0, int rows, int first,
                            int heads, float factor) {
    constexpr int MT = ceil_div(FE + ONE, 16), NT = ROWS / 8;
    const int g = lane_id() / 4, t = lane_id() & 3;
    for (int unit = threadIdx.x / 32; unit < heads * MT * NT;
         unit += blockDim.x / 32) {
      const int head = first + unit / (MT * NT), f = unit / NT % MT * 16 + g;
      const int r = unit % NT * 8;
      float d[4] = {0, 0, 0, 0};
      if constexpr (matrix::PAIRS)
        pairs(d, w, from, head, f - g, r + g);
      else
        parts(d, w, from, x, row0, rows, head, f, r + g);
      unroll<4>([&](int i) {
        if (f + i / 2 * 8 < FE + ONE)
          to[(r + 2 * t + i % 2) * PITCH + (head - first) * FP + f +
             i / 2 * 8] = factor * d[i];
      });
    }
  }

  static DEVICE void pairs(float (&d)[4], const matrix &w, const Rows &from,
                           int head, int f0, int row) {
    const int t = lane_id() & 3;
#pragma unroll
    for (int k = 0; k < DIM; k += 16) {
      unsigned a[4];
      w.transposed(a, head, f0, k);
      mma_pairs<T>(d, a, from.word(row, head, k + 2 * t),
                   from.word(row, head, k + 8 + 2 * t));
    }
  }

  static DEVICE void parts(float (&d)[4], const matrix &w, const Rows &from,
                           const tensor_view &x, int row0, int rows, int head,
                           int f, int row) {
    constexpr int END = ceil_div(DIM, 8) * 8;
#pragma unroll 4
    for (int k = 2 * (lane_id() & 3); k < END; k += 8) {
      fragment<4> a;
      fragment<2> b;
      float y[2];
      unroll<4>([&](int i) {
        a.template set<is_tf32<T>>(i, w.at(head, k + i / 2, f + i % 2 * 8));
      });
      from.pair(y, x, row0, rows, 0, row, head, k);
      unroll<2>([&](int i) { b.template set<is_tf32<T>>(i, y[i]); });
      mma_all<!is_tf32<T>, !is_tf32<T>>(d, a, b);
    }
  }
};

/* to[r][h][d] = sum_f W[h,d,f] z[r][h][f], z as edge_project leaves it.  Rows
 * are PITCH apart, heads HEAD. */
template <class K, int FP, int TILE> struct edge_expand {
  using T = typename K::type;
  using A = accumulator_t<T>;
  using matrix = edge_matrix<K>;
  static constexpr int HEADS = K::heads, DIM = K::dim, ROWS = K::warps;
  static constexpr int F = K::edge_dim + K::ones;
  static constexpr int FROM = edge_pitch(TILE * FP);
  static constexpr int HEAD = edge_head_pitch(DIM);
  static constexpr int PITCH = edge_pitch(TILE * HEAD);

  static DEVICE void run(A *to, const matrix &w, const A *z, int first) {
    if constexpr (sizeof(T) == 8)
      single(to, w, z, first);
    else
      tensor(to, w, z, first);
  }

  static DEVICE void single(A *to, const matrix &w, const A *z, int first) {
    const int width = heads_of_tile<HEADS, TILE>(first) * DIM;
    for (int i = threadIdx.x; i < ROWS * width; i += blockDim.x) {
      const int r = i / width, column = i - r * width;
      const int head = column / DIM, d = column % DIM;
      A sum = A(0);
      for (int f = 0; f < F; ++f)
        sum += w.at(first + head, d, f) * z[r * FROM + head * FP + f];
      to[r * PITCH + head * HEAD + d] = sum;
    }
  }

  static DEVICE void tensor(float *to, const matrix &w, const float *z,
                            int first) {
    constexpr int MT = ceil_div(DIM, 16), NT = ROWS / 8;
    const int heads = heads_of_tile<HEADS, TILE>(first);
    const int g = lane_id() / 4, t = lane_id() & 3;
    for (int unit = threadIdx.x / 32; unit < heads * MT;
         unit += blockDim.x / 32) {
      const int head = unit / MT, d0 = unit % MT * 16;
      float d[NT][4];
      unroll<NT, 4>([&](int n, int i) { d[n][i] = 0; });
      if constexpr (matrix::PAIRS)
        pairs(d, w, z + head * FP, first + head, d0);
      else
        parts(d, w, z + head * FP, first + head, d0);
      unroll<NT, 4>([&](int n, int i) {
        if (DIM % 16 == 0 || d0 + g + i / 2 * 8 < DIM)
          to[(n * 8 + 2 * t + i % 2) * PITCH + head * HEAD + d0 + g +
             i / 2 * 8] = d[n][i];
      });
    }
  }

  /* Edge features f and f + 1 take the places t and t + 4 of a product. */
  template <int NT>
  static DEVICE void pairs(float (&d)[NT][4], const matrix &w, const float *z,
                           int head, int d0) {
    const int g = lane_id() / 4, t = lane_id() & 3;
#pragma unroll
    for (int k = 0; k < ceil_div(F, 16) * 16; k += 16) {
      unsigned a[4];
      w.straight(a, head, d0, k);
#pragma unroll
      for (int half = 0; half < 2 && k + 8 * half < F; ++half) {
        fragment<4> x;
        const int f = k + 8 * half + 2 * t;
        unroll<4>([&](int i) {
          x.template set<true>(i, half_of<T>(a[2 * half + i % 2], i / 2));
        });
        unroll<NT>([&](int n) {
          fragment<2> b;
          unroll<2>([&](int i) {
            b.template set<false>(i, f + i < F ? z[(n * 8 + g) * FROM + f + i]
                                               : 0.0f);
          });
          mma_all<false, true>(d[n], x, b);
        });
      }
    }
  }

  template <int NT>
  static DEVICE void parts(float (&d)[NT][4], const matrix &w, const float *z,
                           int head, int d0) {
    const int g = lane_id() / 4;
#pragma unroll 4
    for (int k = lane_id() & 3; k < ceil_div(F, 8) * 8; k += 8) {
      fragment<4> a;
      unroll<4>([&](int i) {
        a.template set<is_tf32<T>>(
            i, w.at(head, d0 + g + i % 2 * 8, k + i / 2 * 4));
      });
      unroll<NT>([&](int n) {
        fragment<2> b;
        unroll<2>([&](int i) {
          b.template set<false>(
              i, k + 4 * i < F ? z[(n * 8 + g) * FROM + k + 4 * i] : 0.0f);
        });
        mma_all<!is_tf32<T>, true>(d[n], a, b);
      });
    }
  }
};

} // namespace dfgnn

#endif
