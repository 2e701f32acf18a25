/* fragments.cuh - products of a warp's 16 own rows with gathered rows, all of
 * them read from memory straight into the registers of tensor cores
 *
 * Heads of up to 64 features are rows so short that a few loads of a warp bring
 * eight of them: nothing is staged, no warp waits for another.  Lane 4 g + t
 * has these scores:
 *
 *   s[j][0], s[j][1]   row g, columns 8 j + 2 t and 8 j + 2 t + 1
 *   s[j][2], s[j][3]   row g + 8, the same columns
 *
 * The features of a product are in the order of the loads, which is the same in
 * both operands; so are the features of sums.  row(i) is where the lane begins
 * to read the row of column i: far_bytes() or weighed_bytes() into it. */
#ifndef DFGNN_ATTENTION_CUDA_FRAGMENTS_CUH
#define DFGNN_ATTENTION_CUDA_FRAGMENTS_CUH

#include "kernels/common/cuda_mma.cuh"

namespace dfgnn {

/* Transposes an 8 x 8 matrix of 16-bit numbers: lane 4 g + t has columns 2 t
 * and 2 t + 1 of row g, and gets rows 2 t and 2 t + 1 of column g. */
using ptx::transpose_matrix;

/* ---- 16-bit types ---------------------------------------------------------
 *
 * A lane loads VEC features of row or column g, from 4 VEC c + VEC t on.  These
 * words are the fragment of a score as they are, and that of a sum after
 * transpose_matrix(). */
template <typename S, int EXACT, int DIM>
struct fragments : mma_operand<S, EXACT> {
  using T = S;
  static constexpr int VEC = DIM % 32 == 0 ? 8 : 4, WORDS = VEC / 2;
  static constexpr int CHUNKS = DIM / (4 * VEC), TILES = DIM / 8;
  static constexpr int PIECE = VEC; /* adjacent features of a lane's sums */

  struct own {
    unsigned x[CHUNKS][2][WORDS];
  };
  /* The gathered rows of eight columns. */
  struct far {
    unsigned x[CHUNKS][WORDS];
  };
  using weighed = far; /* sums take the rows as scores do */

  static DEVICE void load_words(unsigned (&x)[WORDS], const T *from) {
    const packed<T, VEC> y = load_packed<VEC>(from);
    if constexpr (WORDS == 4) {
      x[0] = y.bits.x;
      x[1] = y.bits.y;
      x[2] = y.bits.z;
      x[3] = y.bits.w;
    } else {
      x[0] = y.bits.x;
      x[1] = y.bits.y;
    }
  }
  /* Does load_own() multiply by its factor?  Rounded numbers would not do. */
  static constexpr bool SCALES = false;
  static DEVICE void load_own(own &a, int r, const char *row, int lane,
                              float = 1.0f) {
    const T *from = reinterpret_cast<const T *>(row) + lane % 4 * VEC;
    unroll<CHUNKS>([&](int c) { load_words(a.x[c][r], from + 4 * VEC * c); });
  }
  /* This lane's part of the product of two rows. */
  static DEVICE float dot(const own &a, const own &b, int r) {
    float sum = 0.0f;
    unroll<CHUNKS, WORDS>([&](int c, int w) {
      packed<T, 2> x, y;
      x.bits = a.x[c][r][w];
      y.bits = b.x[c][r][w];
      sum += widen(x.item[0]) * widen(y.item[0]);
      sum += widen(x.item[1]) * widen(y.item[1]);
    });
    return sum;
  }
  static DEVICE unsigned far_bytes(int lane) {
    return lane % 4 * VEC * sizeof(T);
  }
  static DEVICE unsigned weighed_bytes(int lane) { return far_bytes(lane); }
  template <class Row>
  static DEVICE void load_far(far &b, const Row &row, int j, int lane) {
    const T *from = reinterpret_cast<const T *>(row(8 * j + lane / 4));
    unroll<CHUNKS>([&](int c) { load_words(b.x[c], from + 4 * VEC * c); });
  }
  template <class Row>
  static DEVICE void load_weighed(weighed &b, const Row &row, int j, int lane) {
    load_far(b, row, j, lane);
  }

  /* s[j] = the products of the own rows and the rows of group j. */
  template <int GROUPS>
  static DEVICE void scores(float (&s)[GROUPS][4], const own &a,
                            const far (&b)[GROUPS]) {
    unroll<GROUPS>([&](int j) {
      unroll<4>([&](int i) { s[j][i] = 0.0f; });
      unroll<CHUNKS>([&](int c) {
#pragma unroll
        for (int w = 0; w < WORDS; w += 2) {
          const unsigned x[4] = {a.x[c][0][w], a.x[c][1][w], a.x[c][0][w + 1],
                                 a.x[c][1][w + 1]};
          mma_pairs<T>(s[j], x, b[j].x[c][w], b[j].x[c][w + 1]);
        }
      });
    });
  }

  /* sums += weight times the rows.  An mma truncates what it adds, so the
   * products of the groups are summed from 0, and then added to sums. */
  template <int GROUPS>
  static DEVICE void add(float (&sums)[TILES][4],
                         const float (&weight)[GROUPS][4],
                         const weighed (&b)[GROUPS]) {
    unsigned a[GROUPS / 2][4];
    unroll<GROUPS / 2, 4>([&](int k, int i) {
      a[k][i] = pack_pair<T>(weight[2 * k + i / 2][i % 2 * 2],
                             weight[2 * k + i / 2][i % 2 * 2 + 1]);
    });
    unroll<CHUNKS, WORDS>([&](int c, int w) {
      float part[4] = {};
      unroll<GROUPS / 2>([&](int k) {
        mma_pairs<T>(part, a[k], transpose_matrix(b[2 * k].x[c][w]),
                     transpose_matrix(b[2 * k + 1].x[c][w]));
      });
      unroll<4>([&](int i) { sums[c * WORDS + w][i] += part[i]; });
    });
  }

  /* Calls visit(feature, x) for the lane's pieces of row g + 8 r. */
  template <class Visit>
  static DEVICE void pieces(const float (&sums)[TILES][4], int r, int lane,
                            const Visit &visit) {
    unroll<CHUNKS>([&](int c) {
      float x[PIECE];
      unroll<PIECE>(
          [&](int i) { x[i] = sums[c * WORDS + i / 2][2 * r + i % 2]; });
      visit(4 * VEC * c + lane % 4 * VEC, x);
    });
  }
};

/* ---- float: TF32, of which EXACT takes three products ---------------------
 *
 * Scores: a lane loads features 16 c + 4 t .. + 3 of row or column g, those of
 * two products.  Sums: it loads features 8 VEC c + VEC g .. of columns 2 t and
 * 2 t + 1, which VEC products have as k slots t and t + 4. */
template <int EXACT, int DIM>
struct fragments<float, EXACT, DIM> : mma_operand<float, EXACT> {
  using T = float;
  static constexpr int VEC = DIM % 32 == 0 ? 4 : 2;
  static constexpr int PARTS = DIM / 16, CHUNKS = DIM / (8 * VEC);
  static constexpr int TILES = DIM / 8;
  static constexpr int PIECE = 4;
  static constexpr int LOW = EXACT != 0; /* are there low parts? */

  struct part {
    unsigned high, low;
    DEVICE void set(float x) {
      if constexpr (EXACT) {
        const tf32_parts p = tf32_split(x);
        high = p.high;
        low = p.low;
      } else {
        high = __float_as_uint(tf32_nearest(x));
      }
    }
    DEVICE float number() const {
      return LOW ? __uint_as_float(high) + __uint_as_float(low)
                 : __uint_as_float(high);
    }
  };
  struct own {
    part x[PARTS][2][4];
    float whole[PARTS][2][4]; /* for dot(); else the compiler drops it */
  };
  struct far {
    float4 x[PARTS];
  };
  struct weighed {
    packed<float, VEC> x[CHUNKS][2];
  };

  static constexpr bool SCALES = true;
  static DEVICE void load_own(own &a, int r, const char *row, int lane,
                              float factor = 1.0f) {
    const float4 *from = reinterpret_cast<const float4 *>(row) + lane % 4;
    unroll<PARTS>([&](int c) {
      const float4 y = __ldg(from + 4 * c);
      const float z[4] = {y.x, y.y, y.z, y.w};
      unroll<4>([&](int i) {
        a.whole[c][r][i] = z[i];
        a.x[c][r][i].set(z[i] * factor);
      });
    });
  }
  static DEVICE float dot(const own &a, const own &b, int r) {
    float sum = 0.0f;
    unroll<PARTS, 4>(
        [&](int c, int i) { sum += a.whole[c][r][i] * b.whole[c][r][i]; });
    return sum;
  }
  static DEVICE unsigned far_bytes(int lane) {
    return lane % 4 * sizeof(float4);
  }
  static DEVICE unsigned weighed_bytes(int lane) {
    return lane / 4 * VEC * sizeof(float);
  }
  template <class Row>
  static DEVICE void load_far(far &b, const Row &row, int j, int lane) {
    const float4 *from =
        reinterpret_cast<const float4 *>(row(8 * j + lane / 4));
    unroll<PARTS>([&](int c) { b.x[c] = __ldg(from + 4 * c); });
  }
  template <class Row>
  static DEVICE void load_weighed(weighed &b, const Row &row, int j, int lane) {
    unroll<2>([&](int i) {
      const float *from =
          reinterpret_cast<const float *>(row(8 * j + lane % 4 * 2 + i));
      unroll<CHUNKS>(
          [&](int c) { b.x[c][i] = load_packed<VEC>(from + 8 * VEC * c); });
    });
  }

  /* The products of high parts, and those with one low part. */
  static DEVICE void multiply_high(float (&sum)[4], const part (&a)[4],
                                   const part &b0, const part &b1) {
    const unsigned high[4] = {a[0].high, a[1].high, a[2].high, a[3].high};
    mma_tf32(sum, high, b0.high, b1.high);
  }
  static DEVICE void multiply_low(float (&sum)[4], const part (&a)[4],
                                  const part &b0, const part &b1) {
    if constexpr (EXACT) {
      const unsigned high[4] = {a[0].high, a[1].high, a[2].high, a[3].high};
      const unsigned low[4] = {a[0].low, a[1].low, a[2].low, a[3].low};
      mma_tf32(sum, low, b0.high, b1.high);
      mma_tf32(sum, high, b0.low, b1.low);
    }
  }

  template <int GROUPS>
  static DEVICE void scores(float (&s)[GROUPS][4], const own &a,
                            const far (&b)[GROUPS]) {
    part q[PARTS][2][4];
    unroll<PARTS, 2, 4>([&](int c, int i, int k) {
      q[c][i][k] = a.x[c][k % 2][2 * i + k / 2];
    });
    unroll<GROUPS>([&](int j) {
      part k[PARTS][4];
      unroll<4>([&](int i) { s[j][i] = 0.0f; });
      unroll<PARTS>([&](int c) {
        const float y[4] = {b[j].x[c].x, b[j].x[c].y, b[j].x[c].z, b[j].x[c].w};
        unroll<4>([&](int i) { k[c][i].set(y[i]); });
      });
      /* The small products first: an mma truncates what it adds. */
      unroll<PARTS, 2>([&](int c, int i) {
        multiply_low(s[j], q[c][i], k[c][2 * i], k[c][2 * i + 1]);
      });
      unroll<PARTS, 2>([&](int c, int i) {
        multiply_high(s[j], q[c][i], k[c][2 * i], k[c][2 * i + 1]);
      });
    });
  }

  template <int GROUPS>
  static DEVICE void add(float (&sums)[TILES][4],
                         const float (&weight)[GROUPS][4],
                         const weighed (&b)[GROUPS]) {
    part a[GROUPS][4];
    unroll<GROUPS, 4>(
        [&](int j, int i) { a[j][i].set(weight[j][i % 2 * 2 + i / 2]); });
    unroll<CHUNKS, VEC>([&](int c, int f) {
      float some[4] = {}, rest[4] = {};
      unroll<GROUPS>([&](int j) {
        part y[2];
        y[0].set(b[j].x[c][0].item[f]);
        y[1].set(b[j].x[c][1].item[f]);
        multiply_low(rest, a[j], y[0], y[1]);
        multiply_high(some, a[j], y[0], y[1]);
      });
      unroll<4>([&](int i) { sums[c * VEC + f][i] += some[i] + rest[i]; });
    });
  }

  template <class Visit>
  static DEVICE void pieces(const float (&sums)[TILES][4], int r, int lane,
                            const Visit &visit) {
    unroll<CHUNKS, VEC / 2>([&](int c, int k) {
      float x[PIECE]; /* features 4 k .. of the lane's 2 VEC */
      unroll<PIECE>([&](int i) {
        const int at = 4 * k + i;
        x[i] = sums[c * VEC + at % VEC][2 * r + at / VEC];
      });
      visit(8 * VEC * c + lane % 4 * 2 * VEC + 4 * k, x);
    });
  }
};

} // namespace dfgnn

#endif
