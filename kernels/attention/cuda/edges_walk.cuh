/* edges_walk.cuh - a warp's walk over the edges of a row, with their features
 * in shared memory
 *
 * All that concerns W e (K::term) is left to edge_term<>, edges_term.cuh. */
#ifndef DFGNN_ATTENTION_CUDA_EDGES_WALK_CUH
#define DFGNN_ATTENTION_CUDA_EDGES_WALK_CUH

#include "kernels/attention/cuda/edges_dropout.cuh"
#include "kernels/attention/cuda/edges_lanes.cuh"
#include "kernels/attention/cuda/schedule.cuh"
#include "kernels/attention/cuda/score.cuh"

namespace dfgnn {

/* The features of an edge, with the one of the bias of W; 0: no features. */
template <class K>
constexpr int edge_width = K::edge_dim > 0 ? K::edge_dim + K::ones : 0;
/* Those that the lanes of a head share out. */
template <class K>
constexpr int shared_width = K::term == EDGES_PRODUCTS ? edge_width<K> : 1;

template <class K> struct edge_walk : edge_lanes_of<K, shared_width<K>> {
  using map = edge_lanes_of<K, shared_width<K>>;
  using map::C, map::FP, map::FPL, map::SIDES, map::TILE, map::first;
  using T = typename K::type;
  using typename map::A;
  static constexpr int VEC = K::vector, U = K::unroll, S = K::states;
  static constexpr int HEADS = K::heads;
  static constexpr int DIM = K::dim, FE = K::edge_dim, F = edge_width<K>;
  static constexpr bool GT = K::op == DFGNN_OP_GT, GAT = K::op == DFGNN_OP_GAT;
  static constexpr bool GATV2 = K::op == DFGNN_OP_GATV2;
  static constexpr bool PRODUCTS = K::term == EDGES_PRODUCTS;
  /* Edges come as [E,H,D], or as features that W projects. */
  static constexpr bool GIVEN = FE<0, MATRIX = FE> 0;
  static constexpr bool KEYS = K::use & EDGES_KEYS;
  static constexpr bool VALUES = K::use & EDGES_VALUES;
  static constexpr bool BIAS = K::mode & EDGE_BIAS;
  static constexpr bool DROPOUT = K::mode & EDGE_DROPOUT;
  static constexpr bool WRITE = K::mode & EDGE_WRITE; /* writes grad_attr */
  static constexpr bool WEIGHTS = K::mode & EDGE_WEIGHTS;
  static constexpr bool ADDS = K::mode & EDGE_ADDS;
  static constexpr bool ITEMS = K::mode & EDGE_ITEMS;
  static constexpr int WIDTH = MATRIX ? FE : 1, WARPS = K::warps;
  static constexpr int PITCH = PRODUCTS ? FP : ceil_div(F, 4) * 4;
  static constexpr int CHUNK = MATRIX ? edge_chunk_of(PITCH) : 32;
  static constexpr int CHUNK_SIZE = MATRIX ? CHUNK * PITCH : 0;
  using chunk = edge_chunk<T, WIDTH, K::ones, PITCH, CHUNK>;
  using kept_t = edge_kept<U, SIDES, TILE, HEADS>;
  /* So little of W, C * VEC * F numbers, does a lane need. */
  static constexpr bool SMALL = map::TILES == 1 && F <= 48 / (C * VEC);

  const edges_params &p;
  chunk features; /* the warp's */
  uint64_t seed;  /* the key of the dropout generator */

  /* These loads are started before a row's walk begins. */
  struct early {
    int index;
    typename chunk::early features;
  };

  DEVICE edge_walk(const edges_params &params, A *chunk_)
      : p(params), features{chunk_},
        seed(DROPOUT ? dropout_key(params.dropout) : 0) {
    first = 0;
  }

  /* ---- loads ------------------------------------------------------------- */

  /* Loads a scalar of a node or edge and head; 0 where the lane has no such
   * head. */
  DEVICE A scalar(const void *from, int64_t node, int h) const {
    return this->has_head(h) ? __ldg(static_cast<const A *>(from) +
                                     node * HEADS + this->head(h))
                             : A(0);
  }
  DEVICE A bias_of(int64_t edge, int h, bool live) const {
    return BIAS && live && this->has_head(h)
               ? __ldcs(static_cast<const A *>(p.bias) + edge * HEADS +
                        this->head(h)) *
                     A(kLog2e)
               : A(0);
  }
  DEVICE void load_att(A (&att)[C][VEC]) const {
    unroll<C, VEC>([&](int c, int i) {
      att[c][i] = GATV2 && this->has(c)
                      ? widen(static_cast<const T *>(
                            p.att)[this->head(map::state(c)) * DIM +
                                   this->feature(c) + i])
                      : A(0);
    });
  }
  DEVICE A leaky(A t) const { return dfgnn::leaky(t, A(p.slope)); }
  DEVICE A slope_of(A t) const { return slope_at(t, A(p.slope)); }
  static DEVICE void clear_sums(A (&x)[C][VEC]) {
    unroll<C, VEC>([&](int c, int i) { x[c][i] = A(0); });
  }
  DEVICE const T *attr_of(int64_t edge) const {
    return static_cast<const T *>(p.attr) + edge * WIDTH;
  }

  /* ---- rows -------------------------------------------------------------- */

  /* Is the unit a whole row? */
  static DEVICE bool whole(const row_edges &w) { return !ITEMS || w.slot < 0; }
  /* Is this the lane that writes the scalar of a row and head? */
  DEVICE bool writes(int h) const {
    return this->side() == 0 && this->first_of_head() && this->has_head(h);
  }

  DEVICE void fetch(early &e, const row_edges &w, int at) const {
    const int count = min(CHUNK, w.degree - at);
    e.index = lane_id() < count ? __ldcs(w.indices + at + lane_id()) : 0;
    if constexpr (MATRIX)
      features.fetch(e.features, attr_of(w.indices - p.schedule.indices + at),
                     count);
  }

  /* Calls step(keys, values, indices of the chunk, the side's first edge in it,
   * edges that are left from there, its number) for U edges of each side at a
   * time.  FETCHED: e has the first chunk of the first tile. */
  template <bool FETCHED, class Step>
  DEVICE void walk_row(early &e, const row_edges &w, Step step) const {
    const int64_t begin = w.indices - p.schedule.indices;
    const char *keys = GT ? this->lane_base(p.key) : nullptr;
    const char *values = this->lane_base(p.value);
    for (int at = 0; at < w.degree; at += CHUNK) {
      const int count = min(CHUNK, w.degree - at);
      if (!FETCHED || at > 0 || first > 0)
        fetch(e, w, at);
      const int index = e.index;
      if constexpr (MATRIX)
        features.load(e.features, attr_of(begin + at), count,
                      (count + U * SIDES - 1) / (U * SIDES) * (U * SIDES));
#pragma unroll 1
      for (int i = this->side(); i - this->side() < count; i += U * SIDES)
        step(keys, values, index, i, count - i, begin + at + i);
      if constexpr (WRITE && MATRIX)
        features.store(static_cast<T *>(p.grad_attr) + (begin + at) * FE,
                       static_cast<A *>(p.carry) + (begin + at) * FE, count,
                       first > 0, first + TILE >= HEADS);
      __syncwarp();
    }
  }
};

} // namespace dfgnn

#endif
