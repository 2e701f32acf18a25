/* lanes.cuh - how the lanes of a warp share rows, edges and features
 *
 * A row has `group` lanes, an edge L of them, so group / L sides of a row work
 * on edges of their own.  The lanes of an edge work on TILE heads, those from
 * blockIdx.y * TILE on: HEAD_LANES lanes a head, BESIDE heads side by side.
 * A lane holds vectors of S heads (states), HV of each: C vectors of VEC
 * features in all.
 *
 * Heads and width are constants, so that no lane masks a vector that all have.
 * With PACKED, features lie side by side and heads behind each other in every
 * tensor; without it, heads lie anywhere, and if VEC is 1, features too. */
#ifndef DFGNN_ATTENTION_CUDA_LANES_CUH
#define DFGNN_ATTENTION_CUDA_LANES_CUH

#include "kernels/attention/cuda/lanes.h"
#include "kernels/common/cuda_walk.cuh"

namespace dfgnn {

constexpr int ceil_div(int a, int b) { return (a + b - 1) / b; }
constexpr int ceil_power(int x) {
  int p = 1;
  while (p < x)
    p *= 2;
  return p;
}
constexpr int smaller(int a, int b) { return a < b ? a : b; }

/* Where the vectors of a lane lie.  Map says which head is the first of the
 * tile, first_head(). */
template <class Map, typename T_, int VEC_, int L_, int HEAD_LANES_, int S_,
          int HEADS_, int DIM_, bool PACKED_>
struct lane_layout {
  using T = T_;
  using A = accumulator_t<T>;
  using pack = packed<T, VEC_>;
  static constexpr int VEC = VEC_, L = L_, HEAD_LANES = HEAD_LANES_, S = S_;
  static constexpr int HEADS = HEADS_, DIM = DIM_;
  static constexpr bool PACKED = PACKED_;
  static constexpr int BESIDE = L / HEAD_LANES, TILE = S * BESIDE;
  static constexpr int TILES = ceil_div(HEADS, TILE);
  static constexpr int HV = ceil_div(ceil_div(DIM, VEC), HEAD_LANES);
  static constexpr int C = S * HV;
  static constexpr bool FULL_HEADS = HEADS % TILE == 0;
  /* Every lane of every tile has features in all its vectors. */
  static constexpr bool EXACT = FULL_HEADS && HEAD_LANES * HV * VEC == DIM;

  /* The state of a vector, and its place in the head. */
  static constexpr DEVICE int state(int c) {
    return HV == 1 ? c : S == 1 ? 0 : c / HV;
  }
  static constexpr DEVICE int place(int c) {
    return HV == 1 ? 0 : S == 1 ? c : c % HV;
  }
  /* The place of the lane's heads among the heads side by side, and of the lane
   * among those of a head. */
  DEVICE int place_beside() const {
    return BESIDE > 1 ? (lane_id() & (L - 1)) / HEAD_LANES : 0;
  }
  DEVICE int part() const { return lane_id() & (HEAD_LANES - 1); }
  /* The head that the lane's state h belongs to. */
  DEVICE int head(int h) const {
    return static_cast<const Map *>(this)->first_head() + place_beside() +
           h * BESIDE;
  }
  /* Has state h a head? */
  DEVICE bool has_head(int h) const { return FULL_HEADS || head(h) < HEADS; }
  /* The first feature of vector c. */
  DEVICE int feature(int c) const {
    return (part() + place(c) * HEAD_LANES) * VEC;
  }
  /* Is this the lane that writes the scalars of a head? */
  DEVICE bool first_of_head() const { return part() == 0; }

  /* The address of the lane's first vector in row 0 of a tensor. */
  DEVICE const char *lane_base(const tensor_view &t) const {
    const char *base = static_cast<const char *>(t.data);
    if (PACKED)
      return base + (head(0) * DIM + feature(0)) * int(sizeof(T));
    base = node_row(base, head(0), t.head_bytes);
    return VEC > 1 ? base + feature(0) * int(sizeof(T))
                   : node_row(base, feature(0), t.feature_bytes);
  }
  /* Vector c; at: the address of the lane's first vector. */
  DEVICE const T *vector_at(const char *at, const tensor_view &t, int c) const {
    const int heads = state(c) * BESIDE, features = place(c) * HEAD_LANES * VEC;
    if (PACKED)
      at += (heads * DIM + features) * int(sizeof(T));
    else {
      if (heads > 0)
        at = node_row(at, heads, t.head_bytes);
      at = VEC > 1 ? at + features * int(sizeof(T))
                   : node_row(at, features, t.feature_bytes);
    }
    return reinterpret_cast<const T *>(at);
  }
  DEVICE const T *vector_of(const tensor_view &t, int row, int c) const {
    return vector_at(node_row(lane_base(t), row, t.node_bytes), t, c);
  }

  /* Loads the row's own vectors; zeros where it has none. */
  DEVICE void own(A (&to)[C][VEC], const tensor_view &t, int row,
                  bool active = true) const {
    const char *at = node_row(lane_base(t), row, t.node_bytes);
    unroll<C>([&](int c) {
      pack x;
      clear(x);
      if (active && static_cast<const Map *>(this)->has(c))
        x = load_once<VEC>(vector_at(at, t, c));
      widen(to[c], x);
    });
  }

  /* Sums over the lanes of a head. */
  template <int N> DEVICE void reduce(A (&s)[N]) const {
#pragma unroll
    for (int o = HEAD_LANES / 2; o > 0; o >>= 1)
      unroll<N>([&](int i) { s[i] += __shfl_xor_sync(kFullMask, s[i], o); });
  }
};

constexpr int head_lanes(int vector, int lanes, int dim, int tile) {
  return tile > 1 ? smaller(lanes, ceil_power(ceil_div(dim, vector))) : lanes;
}
/* The layout of K for the map of type Map; lanes that a head has follow from
 * the heads of a tile. */
template <class Map, class K,
          int HL = head_lanes(K::vector, K::lanes, K::dim, K::tile)>
using row_layout =
    lane_layout<Map, typename K::type, K::vector, K::lanes, HL,
                K::tile / (K::lanes / HL), K::heads, K::dim, K::packed>;

template <class K> struct lane_map : row_layout<lane_map<K>, K>, plain_walk {
  using layout = row_layout<lane_map<K>, K>;
  using layout::C, layout::DIM, layout::EXACT, layout::feature;
  using layout::FULL_HEADS, layout::head, layout::HEAD_LANES, layout::HEADS;
  using layout::L, layout::place, layout::state, layout::TILE, layout::VEC;
  using typename layout::A;
  using typename layout::pack;
  using typename layout::T;
  static_assert(K::tile % layout::BESIDE == 0, "lanes without a head");

  const int group;
  unsigned valid; /* bit c: vector c has features */

  DEVICE explicit lane_map(int lanes_of_row) : group(lanes_of_row), valid(0) {
    if constexpr (!EXACT && C <= 32) {
      unroll<C>([&](int c) {
        valid |= unsigned(head(state(c)) < HEADS && feature(c) < DIM) << c;
      });
    }
  }

  DEVICE int first_head() const {
    return HEADS <= TILE ? 0 : blockIdx.y * TILE;
  }
  static DEVICE int lane() { return lane_id(); }
  DEVICE int lane_of_row() const { return lane() & (group - 1); }
  DEVICE int first_lane() const { return lane() & ~(group - 1); }
  DEVICE int side() const { return lane_of_row() / L; }
  DEVICE int sides() const { return group / L; }
  /* Do all lanes have vector c? */
  static constexpr DEVICE bool all_have(int c) {
    return FULL_HEADS && (place(c) + 1) * HEAD_LANES * VEC <= DIM;
  }
  DEVICE bool has(int c) const {
    if (C > 32) /* more than `valid` has bits for */
      return all_have(c) || (head(state(c)) < HEADS && feature(c) < DIM);
    return all_have(c) || valid >> c & 1;
  }

  /* Loads vector c of a gathered row; at: its lane base.  WHOLE: the edge is
   * there; where the lane has no features x must be 0 before, and stays 0.
   * EAGER: the compiler may not move the load to where x is used. */
  template <bool WHOLE, bool EAGER>
  DEVICE void gather(pack &x, const char *at, const tensor_view &t, int c,
                     bool live) const {
    const T *from = this->vector_at(at, t, c);
    if (WHOLE && !EAGER && all_have(c)) {
      x = load_packed<VEC>(from);
      return;
    }
    if (!WHOLE)
      clear(x);
    /* group is never 0, but the compiler does not know. */
    load_if<VEC>(x, from,
                 !WHOLE        ? int(live && has(c))
                 : all_have(c) ? group
                               : int(has(c)));
  }

  /* Sums over the sides of a row. */
  DEVICE A sum_sides(A x) const {
#pragma unroll
    for (int o = L; o < 32; o <<= 1)
      if (o < group)
        x += __shfl_xor_sync(kFullMask, x, o);
    return x;
  }
  DEVICE A max_sides(A x) const {
#pragma unroll
    for (int o = L; o < 32; o <<= 1)
      if (o < group)
        x = max_of(x, __shfl_xor_sync(kFullMask, x, o));
    return x;
  }

  /* Sums vectors over the sides; each comes to store(vector, c) once a row.
   * While a lane holds an even number of vectors, each half of a pair of lanes
   * keeps one half of them. */
  template <class Store>
  DEVICE void sum_vectors(A (&x)[C][VEC], const Store &store) const {
    scatter<C>(x, L, 0, store);
  }

  template <int LEFT, class Store>
  DEVICE void scatter(A (&x)[C][VEC], int o, int first,
                      const Store &store) const {
    if constexpr (LEFT % 2 == 0) {
      if (o >= group) {
        unroll<LEFT>([&](int i) { store(x[i], first + i); });
        return;
      }
      const bool upper = (lane_id() & o) != 0;
      unroll<LEFT / 2, VEC>([&](int c, int i) {
        const A mine = upper ? x[c + LEFT / 2][i] : x[c][i];
        const A other = upper ? x[c][i] : x[c + LEFT / 2][i];
        x[c][i] = mine + __shfl_xor_sync(kFullMask, other, o);
      });
      scatter<LEFT / 2>(x, o * 2, upper ? first + LEFT / 2 : first, store);
    } else {
      bool writer = true;
      for (; o < group; o <<= 1) {
        writer = writer && !(lane_id() & o);
        unroll<LEFT, VEC>([&](int c, int i) {
          x[c][i] += __shfl_xor_sync(kFullMask, x[c][i], o);
        });
      }
      unroll<LEFT>([&](int c) {
        if (writer)
          store(x[c], first + c);
      });
    }
  }
};

} // namespace dfgnn

#endif
