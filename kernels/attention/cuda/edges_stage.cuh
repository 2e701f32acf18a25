/* edges_stage.cuh - the operands of products with W, staged in the shared
 * memory of a block: W, once, and the rows of tensors */
#ifndef DFGNN_ATTENTION_CUDA_EDGES_STAGE_CUH
#define DFGNN_ATTENTION_CUDA_EDGES_STAGE_CUH

#include "kernels/attention/cuda/edges_lanes.cuh"
#include "kernels/common/cuda_mma.cuh"

namespace dfgnn {

/* W [HEADS*DIM,FE] with its bias as feature FE: in shared memory if STAGED,
 * else where it is.  16-bit numbers (PAIRS) are staged transposed,
 * [HEADS][ROWS][PITCH] with zeros beyond FE + ONE and DIM, so that fragments
 * come by ldmatrix; others in rows of W (edges_plans.c counts both). */
template <class K> struct edge_matrix {
  using T = typename K::type;
  using A = accumulator_t<T>;
  static constexpr int HEADS = K::heads, DIM = K::dim;
  static constexpr int FE = K::edge_dim, ONE = K::ones, F = FE + ONE;
  static constexpr bool STAGED = K::staged, PAIRS = STAGED && sizeof(T) == 2;
  static constexpr int ROWS = PAIRS ? ceil_div(F, 16) * 16 : DIM;
  static constexpr int PITCH =
      PAIRS ? ceil_div(DIM, 16) * 16 + 8 : ceil_div(F, 16) * 16 + 2;
  static constexpr int SIZE = STAGED ? HEADS * ROWS * PITCH : 0;
  const T *weight, *constant;
  T *staged;

  DEVICE T element(int row, int f) const {
    if (f < FE)
      return load_packed<1>(weight + row * FE + f).item[0];
    return ONE && f == FE ? load_packed<1>(constant + row).item[0] : T{};
  }
  /* All threads of the block call it, and meet before they read W. */
  DEVICE void stage() const {
    if constexpr (STAGED) {
#pragma unroll 8
      for (int i = threadIdx.x; i < SIZE; i += blockDim.x) {
        const int row = i / PITCH, column = i % PITCH;
        if (!PAIRS)
          staged[i] = element(row, column);
        else if (column >= DIM)
          staged[i] = T{};
        else
          staged[i] = element(row / ROWS * DIM + column, row % ROWS);
      }
    }
  }
  /* W[head,d,f]; 0 beyond DIM and F, up to multiples of 16. */
  DEVICE A at(int head, int d, int f) const {
    if (DIM % 16 != 0 && d >= DIM)
      return A(0);
    if (PAIRS)
      return widen(staged[(head * ROWS + f) * PITCH + d]);
    const int row = head * DIM + d;
    return widen(STAGED ? staged[row * PITCH + f] : element(row, f));
  }
  /* PAIRS: the fragment of W^T (rows f0 .. f0 + 15, columns d0 .. d0 + 15), and
   * that of W (rows and columns swapped). */
  DEVICE void transposed(unsigned (&a)[4], int head, int f0, int d0) const {
    const int i = lane_id() / 8, r = lane_id() & 7;
    load_matrices(a, staged + (head * ROWS + f0 + (i & 1) * 8 + r) * PITCH +
                         d0 + i / 2 * 8);
  }
  DEVICE void straight(unsigned (&a)[4], int head, int d0, int f0) const {
    const int i = lane_id() / 8, r = lane_id() & 7;
    load_transposed(a, staged + (head * ROWS + f0 + i / 2 * 8 + r) * PITCH +
                           d0 + (i & 1) * 8);
  }
};

/* The features of SHARE heads in the rows of a block's units: copied if STAGED,
 * else read where they are.  The heads are those from `head` on.  ITEMS: units
 * are items of rows. */
template <class K, int SHARE> struct edge_rows {
  using T = typename K::type;
  using A = accumulator_t<T>;
  static constexpr int VEC = K::vector, DIM = K::dim, WIDTH = SHARE * DIM;
  static constexpr int ROWS = K::warps;
  static constexpr bool PACKED = K::packed, STAGED = K::staged;
  static constexpr bool ITEMS = K::mode & EDGE_ITEMS;
  static constexpr int WORD = 16 / sizeof(T), PITCH = WIDTH + WORD;
  static constexpr int SIZE = STAGED ? ROWS * PITCH : 0;
  static constexpr bool ASYNC = STAGED && PACKED && VEC == WORD;
  T *staged;
  const int *row; /* of each unit; NULL: units are rows one after the other */

  DEVICE int row_of(int unit) const {
    return ITEMS || row ? __ldg(row + unit) : unit;
  }

  /* Begins to copy the rows of units row0 .. row0 + rows, features of `heads`
   * heads; threads wait for their parts by copy_wait(), then meet. */
  DEVICE void copy(const tensor_view &x, int row0, int rows, int head,
                   int heads) const {
    if constexpr (ASYNC) {
      constexpr int WORDS = WIDTH / WORD;
      for (int i = threadIdx.x; i < ROWS * WORDS; i += blockDim.x) {
        const int r = i / WORDS, at = i % WORDS * WORD;
        if (r < rows && at < heads * DIM)
          copy_async(staged + r * PITCH + at,
                     reinterpret_cast<const T *>(
                         node_row(static_cast<const char *>(x.data),
                                  row_of(row0 + r), x.node_bytes)) +
                         head * DIM + at,
                     16);
      }
    } else if constexpr (STAGED) {
#pragma unroll 4
      for (int i = threadIdx.x; i < ROWS * WIDTH; i += blockDim.x) {
        const int r = i / WIDTH, at = i % WIDTH;
        if (r < rows && at < heads * DIM)
          staged[r * PITCH + at] =
              *far(x, row_of(row0 + r), head + at / DIM, at % DIM);
      }
    }
  }
  DEVICE void clear() const {
    for (int i = threadIdx.x; i < SIZE; i += blockDim.x)
      staged[i] = T{};
  }

  static DEVICE const T *far(const tensor_view &x, int row, int head, int d) {
    const char *at =
        node_row(static_cast<const char *>(x.data), row, x.node_bytes);
    if (PACKED)
      return reinterpret_cast<const T *>(at) + head * DIM + d;
    return reinterpret_cast<const T *>(
        node_row(node_row(at, head, x.head_bytes), d, x.feature_bytes));
  }

  /* Features d and d + 1, d even, of a staged row of a 16-bit type, as one
   * word; any numbers for rows that do not exist. */
  DEVICE unsigned word(int r, int h, int d) const {
    if (DIM % 16 != 0 && d >= DIM)
      return 0;
    const T *at = staged + r * PITCH + h * DIM + d;
    if constexpr (DIM % 2 == 0)
      return *reinterpret_cast<const unsigned *>(at);
    else
      return at[0].bits | (d + 1 < DIM ? unsigned(at[1].bits) << 16 : 0u);
  }

  /* Features d and d + 1, d even, of unit row0 + r (r < rows) and head `head` +
   * h; zeros where there is none. */
  DEVICE void pair(A (&y)[2], const tensor_view &x, int row0, int rows,
                   int head, int r, int h, int d) const {
    y[0] = y[1] = A(0);
    if (r >= rows || (DIM % 16 != 0 && d >= DIM))
      return;
    if constexpr (STAGED && DIM % 2 == 0 && sizeof(T) < 8) {
      packed<T, 2> z;
      z.bits = *reinterpret_cast<const typename packed<T, 2>::word_t *>(
          staged + r * PITCH + h * DIM + d);
      widen(y, z);
    } else {
      unroll<2>([&](int i) {
        if (DIM % 2 == 0 || d + i < DIM)
          y[i] = widen(STAGED ? staged[r * PITCH + h * DIM + d + i]
                              : *far(x, row_of(row0 + r), head + h, d + i));
      });
    }
  }
};

} // namespace dfgnn

#endif
