/* edges_lanes.cuh - how the lanes of a warp share a row whose edges have
 * features
 *
 * An edge has L lanes, so a warp works on 32 / L edges of its row at a time,
 * its sides.  A head has HL lanes; a lane holds vectors of S heads (states),
 * HV of each, and for each of its heads FPL of the F features of edges.  All
 * lanes of an edge work on TILE heads; more heads are further tiles. */
#ifndef DFGNN_ATTENTION_CUDA_EDGES_LANES_CUH
#define DFGNN_ATTENTION_CUDA_EDGES_LANES_CUH

#include "kernels/attention/cuda/edges.h"
#include "kernels/attention/cuda/lanes.cuh"
#include "kernels/attention/cuda/running_softmax.cuh"

namespace dfgnn {

/* The features of an edge that each of `lanes` lanes holds: 1, or an even
 * number, so that vectors of two load them. */
constexpr int edge_share(int features, int lanes) {
  const int share = ceil_div(features, lanes);
  return share <= 1 ? 1 : ceil_div(share, 2) * 2;
}

/* Sums N values over the lanes whose numbers differ in the bits STEP .. LAST.
 * Each step halves the values of a lane.  Returns the number of the first value
 * that is left in x[0]; first: the number of the one that x[0] has before. */
template <int N, int STEP, int LAST, typename A>
DEVICE int fold(A *x, int first) {
  if constexpr (STEP < LAST) {
    return first;
  } else if constexpr (N == 1) {
    x[0] += __shfl_xor_sync(kFullMask, x[0], STEP);
    return fold<1, STEP / 2, LAST>(x, first);
  } else {
    constexpr int HALF = (N + 1) / 2;
    const bool upper = (lane_id() & STEP) != 0;
    unroll<HALF>([&](int i) {
      const A low = x[i], high = x[N - HALF + i];
      x[i] = (upper ? high : low) +
             __shfl_xor_sync(kFullMask, upper ? low : high, STEP);
    });
    return fold<HALF, STEP / 2, LAST>(x, upper ? first + N - HALF : first);
  }
}
/* The number of values that fold() leaves a lane. */
constexpr int folded(int n, int step, int last) {
  return step < last ? n : folded((n + 1) / 2, step / 2, last);
}

/* Loads consecutive numbers of shared memory, aligned to their vectors. */
template <int N, typename A> DEVICE void load_vector(A (&x)[N], const A *at) {
  if constexpr (N % 4 == 0 && sizeof(A) == 4) {
#pragma unroll
    for (int i = 0; i < N; i += 4) {
      const float4 y = *reinterpret_cast<const float4 *>(at + i);
      x[i] = y.x, x[i + 1] = y.y, x[i + 2] = y.z, x[i + 3] = y.w;
    }
  } else if constexpr (N % 2 == 0 && sizeof(A) == 4) {
#pragma unroll
    for (int i = 0; i < N; i += 2) {
      const float2 y = *reinterpret_cast<const float2 *>(at + i);
      x[i] = y.x, x[i + 1] = y.y;
    }
  } else {
    unroll<N>([&](int i) { x[i] = at[i]; });
  }
}

/* A bit for each of S states. */
template <int S> struct state_bits {
  unsigned word[ceil_div(S, 32)];
  DEVICE void clear() {
    unroll<ceil_div(S, 32)>([&](int i) { word[i] = 0; });
  }
  DEVICE void set(int h, bool bit) { word[h / 32] |= unsigned(bit) << h % 32; }
  DEVICE bool has(int h) const { return word[h / 32] >> h % 32 & 1; }
};

/* F: the features of edges that the lanes share out. */
template <typename T_, int VEC_, int L_, int HL, int S_, int HEADS_, int DIM_,
          int PACKED_, int F>
struct edge_lanes
    : lane_layout<edge_lanes<T_, VEC_, L_, HL, S_, HEADS_, DIM_, PACKED_, F>,
                  T_, VEC_, L_, HL, S_, HEADS_, DIM_, PACKED_ != 0> {
  using layout =
      lane_layout<edge_lanes, T_, VEC_, L_, HL, S_, HEADS_, DIM_, PACKED_ != 0>;
  using layout::C, layout::DIM, layout::EXACT, layout::feature, layout::head;
  using layout::HEADS, layout::L, layout::lane_base, layout::own, layout::S;
  using layout::state, layout::VEC, layout::vector_at, layout::vector_of;
  using typename layout::A;
  using typename layout::pack;
  using typename layout::T;
  static constexpr int SIDES = 32 / L;
  static constexpr int FPL = edge_share(F, HL);
  static constexpr int FP = HL * FPL; /* pitch of an edge's features */

  int first; /* head of the tile */

  DEVICE int first_head() const { return first; }
  DEVICE int side() const { return lane_id() / L; }
  DEVICE bool has(int c) const {
    return EXACT || (this->has_head(state(c)) && feature(c) < DIM);
  }

  /* Loads a gathered row; zeros where there is none. */
  DEVICE void gather(pack (&x)[C], const char *base, const tensor_view &t,
                     int node, bool live) const {
    const char *at = node_row(base, node, t.node_bytes);
    unroll<C>([&](int c) {
      clear(x[c]);
      load_if<VEC>(x[c], vector_at(at, t, c), int(live && has(c)));
    });
  }
  /* Loads the row's own vectors from a copy in shared memory, which has all
   * heads. */
  DEVICE void own(A (&to)[C][VEC], const T *copy) const {
    unroll<C>([&](int c) {
      pack x;
      clear(x);
      if (has(c))
        x.bits = *reinterpret_cast<const typename pack::word_t *>(
            copy + head(state(c)) * DIM + feature(c));
      widen(to[c], x);
    });
  }
  DEVICE void give(const tensor_view &t, int row, int c,
                   const A (&x)[VEC]) const {
    if (has(c))
      store_once<VEC>(const_cast<T *>(vector_of(t, row, c)), x);
  }

  /* Adds to vector c of a row, where give() stores it. */
  DEVICE void add(const tensor_view &t, int row, int c,
                  const A (&x)[VEC]) const {
    if (!has(c))
      return;
    A sum[VEC];
    widen(sum, load_once<VEC>(vector_of(t, row, c)));
    unroll<VEC>([&](int i) { sum[i] += x[i]; });
    give(t, row, c, sum);
  }

  /* Stores vector c of tensor t of an item's partial result. */
  DEVICE void give_partial(void *partial, int64_t slot, int tensors, int t,
                           int c, const A (&x)[VEC]) const {
    if (!has(c))
      return;
    A *to = static_cast<A *>(partial) +
            ((slot * tensors + t) * HEADS + head(state(c))) * DIM + feature(c);
    unroll<VEC>([&](int i) { to[i] = x[i]; });
  }

  /* Sums over the sides. */
  template <int N> DEVICE void sum_sides(A (&x)[N]) const {
#pragma unroll
    for (int o = L; o < 32; o <<= 1)
      unroll<N>([&](int i) { x[i] += __shfl_xor_sync(kFullMask, x[i], o); });
  }
  template <int N, int M> DEVICE void sum_sides(A (&x)[N][M]) const {
    unroll<N>([&](int i) { sum_sides(x[i]); });
  }

  /* Merges the sides' softmax; scale(h, factor) scales the sums of state h. */
  template <class Scale>
  DEVICE void merge_sides(A (&m)[S], A (&l)[S], const Scale &scale) const {
    if constexpr (SIDES > 1) {
      unroll<S>([&](int h) {
        A top = m[h];
#pragma unroll
        for (int o = L; o < 32; o <<= 1)
          top = max_of(top, __shfl_xor_sync(kFullMask, top, o));
        const A factor = exp2_fast(m[h] - top);
        l[h] *= factor;
        scale(h, factor);
        m[h] = top;
      });
      sum_sides(l);
    }
  }

  /* Loads the lane's share of a row of features in shared memory. */
  static DEVICE void share(A (&x)[FPL], const A *row) {
    load_vector(x, row + (lane_id() & (HL - 1)) * FPL);
  }
};

/* The lanes of a kernel; F: the features of edges that they share out. */
template <class K, int F>
using edge_lanes_of =
    edge_lanes<typename K::type, K::vector, K::lanes, K::head_lanes, K::states,
               K::heads, K::dim, K::packed, F>;

/* Load and store P after dropout and dS of an edge and head. */
template <typename A>
DEVICE void edge_pair(A &weight, A &ds, const void *pairs, int64_t at) {
  if constexpr (sizeof(A) == 4) {
    const float2 x = __ldcs(static_cast<const float2 *>(pairs) + at);
    weight = x.x, ds = x.y;
  } else {
    const double2 x = __ldcs(static_cast<const double2 *>(pairs) + at);
    weight = x.x, ds = x.y;
  }
}
template <typename A>
DEVICE void edge_put_pair(A weight, A ds, void *pairs, int64_t at) {
  if constexpr (sizeof(A) == 4)
    __stcs(static_cast<float2 *>(pairs) + at, make_float2(weight, ds));
  else
    __stcs(static_cast<double2 *>(pairs) + at, make_double2(weight, ds));
}

/* A chunk of a row's edge features in a warp's shared memory, as numbers of
 * type A in rows of FP. */
template <typename T, int FE, int ONE, int FP, int CHUNK> struct edge_chunk {
  using A = accumulator_t<T>;
  A *at;

  DEVICE void clear() const {
    for (int i = lane_id(); i < CHUNK * FP; i += 32)
      at[i] = A(ONE && i % FP == FE);
    __syncwarp();
  }
  /* The first elements of a chunk, loaded before its turn comes. */
  struct early {
    T x[4];
  };
  DEVICE void fetch(early &e, const T *attr, int count) const {
    fetch(e, attr, count * FE, lane_id());
  }
  static DEVICE void fetch(early &e, const T *attr, int end, int first) {
    unroll<4>([&](int k) {
      e.x[k] = T{};
      if (first + 32 * k < end)
        e.x[k] = load_once<1>(attr + first + 32 * k).item[0];
    });
  }
  DEVICE void put(const early &e, int end, int first) const {
    unroll<4>([&](int k) {
      const int to = first + 32 * k;
      if (to < end)
        at[to / FE * FP + to % FE] = widen(e.x[k]);
    });
  }
  /* Loads the features of `count` edges from attr on, of which e has the first
   * elements; rows count .. room - 1 become zeros. */
  DEVICE void load(early &e, const T *attr, int count, int room) const {
    put(e, room * FE, lane_id());
    for (int i = lane_id() + 128; i < room * FE; i += 128) {
      fetch(e, attr, count * FE, i);
      put(e, room * FE, i);
    }
    __syncwarp();
  }
  /* Writes the gradients that took the place of the features: sums over heads.
   * begun: carry has the sums of earlier tiles of heads.  last: this tile is
   * the last, and its sums go to `to`, not to carry. */
  DEVICE void store(T *to, A *carry, int count, bool begun, bool last) const {
    __syncwarp();
    for (int i = lane_id(); i < count * FE; i += 32) {
      A x = at[i / FE * FP + i % FE];
      if (begun)
        x += carry[i];
      if (last)
        to[i] = narrow<T>(x);
      else
        carry[i] = x;
    }
    __syncwarp();
  }
};

/* The number of edges whose features a warp stages at a time. */
constexpr int edge_chunk_of(int pitch) {
  return pitch <= 16 ? 32 : pitch <= 32 ? 16 : 8;
}

} // namespace dfgnn

#endif
