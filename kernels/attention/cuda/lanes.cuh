/* lanes.cuh - how the lanes of a warp share rows, edges and features
 *
 * A row has `group` lanes, an edge L of them, so group / L sides of a row work
 * on edges of their own.  A lane holds C vectors of VEC features.  With MULTI
 * the vectors of an edge span several heads, 2^head_shift lanes each; else they
 * are one head, blockIdx.y. */
#ifndef DFGNN_ATTENTION_CUDA_LANES_CUH
#define DFGNN_ATTENTION_CUDA_LANES_CUH

#include "kernels/attention/cuda/attend.h"
#include "kernels/common/cuda_common.cuh"

namespace dfgnn {

struct lane_layout {
  int group, heads, dim, tile_heads, head_shift;
  int exact; /* every lane of a tile has features; heads are contiguous */
};

/* Read anew wherever it is used, to hold no register in loops. */
__device__ __forceinline__ int lane_id() {
  int x;
  asm volatile("mov.u32 %0, %%laneid;" : "=r"(x));
  return x;
}

template <typename T, int VEC, int L, int C, bool MULTI> struct lane_map {
  using A = accumulator_t<T>;
  using pack = packed<T, VEC>;
  static constexpr int S = MULTI ? C : 1; /* heads of a lane */
  static constexpr int kVectorBytes = L * VEC * sizeof(T);

  const lane_layout &m;
  unsigned valid; /* bit c: vector c has features */

  __device__ __forceinline__ explicit lane_map(const lane_layout &layout)
      : m(layout) {
    const int end =
        MULTI ? min(int(blockIdx.y + 1) * m.tile_heads, m.heads) : m.heads;
    valid = 0;
#pragma unroll
    for (int c = 0; c < C; ++c)
      valid |= unsigned(head(c) < end && feature(c) < m.dim) << c;
  }

  __device__ __forceinline__ int lane_of_row() const {
    return lane_id() & (m.group - 1);
  }
  __device__ __forceinline__ int side() const { return lane_of_row() / L; }
  __device__ __forceinline__ int sides() const { return m.group / L; }
  __device__ __forceinline__ int head_step() const {
    return MULTI ? L >> m.head_shift : 0;
  }
  /* Of state h: of vector h, or of all. */
  __device__ __forceinline__ int head(int h) const {
    return MULTI ? blockIdx.y * m.tile_heads +
                       ((lane_id() & (L - 1)) >> m.head_shift) + h * head_step()
                 : blockIdx.y;
  }
  __device__ __forceinline__ int feature(int c) const {
    const int lane = lane_id() & (L - 1);
    return MULTI ? (lane & ((1 << m.head_shift) - 1)) * VEC
                 : (lane + c * L) * VEC;
  }
  __device__ __forceinline__ bool has(int c) const { return valid >> c & 1; }

  __device__ __forceinline__ const char *lane_base(const tensor_view &t) const {
    return node_row(
        node_row(static_cast<const char *>(t.data), head(0), t.head_bytes),
        feature(0), t.feature_bytes);
  }
  /* From a lane's first vector to vector c; features are contiguous. */
  __device__ __forceinline__ const char *
  vector_at(const char *at, const tensor_view &t, int c) const {
    return MULTI ? node_row(at, c * head_step(), t.head_bytes)
                 : at + c * kVectorBytes;
  }
  __device__ __forceinline__ const char *vector_of(const tensor_view &t,
                                                   int row, int c) const {
    return vector_at(node_row(lane_base(t), row, t.node_bytes), t, c);
  }

  /* Vector c of a gathered row, from its lane base.  WHOLE: nothing is masked,
   * heads are in one piece.  EAGER: not sunk to where it is used. */
  template <bool WHOLE, bool EAGER>
  __device__ __forceinline__ void gather(pack &x, const char *at,
                                         const tensor_view &t, int c,
                                         bool live) const {
    const T *from = reinterpret_cast<const T *>(WHOLE ? at + c * kVectorBytes
                                                      : vector_at(at, t, c));
    if constexpr (WHOLE && !EAGER) {
      x = load_packed<VEC>(from);
    } else {
      if constexpr (!WHOLE)
        clear(x);
      /* heads is never 0, but the compiler does not know. */
      load_if<VEC>(x, from, WHOLE ? m.heads : int(live && has(c)));
    }
  }

  /* The row's own vectors; zeros where it has none. */
  __device__ __forceinline__ void
  load_own(A (&to)[C][VEC], const tensor_view &t, int row, bool active) const {
#pragma unroll
    for (int c = 0; c < C; ++c) {
      pack x;
      clear(x);
      if (active && has(c))
        x = load_once<VEC>(reinterpret_cast<const T *>(vector_of(t, row, c)));
      widen(to[c], x);
    }
  }

  /* Sums over the lanes of an edge's head. */
  template <int N> __device__ __forceinline__ void reduce(A (&s)[N]) const {
#pragma unroll
    for (int o = L / 2; o > 0; o >>= 1) {
      if (MULTI && o >> m.head_shift)
        continue;
#pragma unroll
      for (int i = 0; i < N; ++i)
        s[i] += __shfl_xor_sync(kFullMask, s[i], o);
    }
  }

  /* Sums over the sides of a row. */
  __device__ __forceinline__ A sum_sides(A x) const {
#pragma unroll
    for (int o = L; o < 32; o <<= 1)
      if (o < m.group)
        x += __shfl_xor_sync(kFullMask, x, o);
    return x;
  }

  /* Sums vectors over the sides; each comes to store(vector, c) once a row.
   * While a lane holds more than one vector, each half of a pair of lanes keeps
   * one half of them. */
  template <class Store>
  __device__ __forceinline__ void sum_vectors(A (&x)[C][VEC],
                                              const Store &store) const {
    scatter<C>(x, L, 0, true, store);
  }

  template <int LEFT, class Store>
  __device__ __forceinline__ void scatter(A (&x)[C][VEC], int o, int first,
                                          bool writer,
                                          const Store &store) const {
    if (o >= m.group) {
#pragma unroll
      for (int i = 0; i < LEFT; ++i)
        if (writer)
          store(x[i], first + i);
      return;
    }
    if constexpr (LEFT > 1) {
      const bool upper = (lane_id() & o) != 0;
#pragma unroll
      for (int c = 0; c < LEFT / 2; ++c)
#pragma unroll
        for (int i = 0; i < VEC; ++i) {
          const A mine = upper ? x[c + LEFT / 2][i] : x[c][i];
          const A other = upper ? x[c][i] : x[c + LEFT / 2][i];
          x[c][i] = mine + __shfl_xor_sync(kFullMask, other, o);
        }
      scatter<LEFT / 2>(x, o * 2, upper ? first + LEFT / 2 : first, writer,
                        store);
    } else {
      for (; o < m.group; o <<= 1) {
        writer = writer && !(lane_id() & o);
#pragma unroll
        for (int i = 0; i < VEC; ++i)
          x[0][i] += __shfl_xor_sync(kFullMask, x[0][i], o);
      }
      if (writer)
        store(x[0], first);
    }
  }
};

} // namespace dfgnn

#endif
