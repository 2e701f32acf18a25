/* direct_backward.cuh - the kernel of `direct`'s gradients: tiles whose
 * operands go from memory into registers
 *
 * The walk is that of tile_backward.h; each warp walks the columns, 16 a step,
 * by itself. */
#ifndef DFGNN_ATTENTION_CUDA_DIRECT_BACKWARD_CUH
#define DFGNN_ATTENTION_CUDA_DIRECT_BACKWARD_CUH

#include "kernels/attention/cuda/direct_dropout.cuh"
#include "kernels/attention/cuda/fragments.cuh"
#include "kernels/attention/cuda/tile_backward_row.cuh"

namespace dfgnn {

template <int OP, typename T, int DIM, int EXACT, bool COLUMNS, int EDGES>
struct direct_gradient {
  using math = fragments<T, EXACT, DIM>;
  using Score = score_of<OP>;
  static constexpr int OWN = GRAD_TILE_TENSORS(OP), YO = OWN - 1;
  static constexpr int FAR = OWN, YF = YO;
  static constexpr int TO = GRAD_SUMS(OP, COLUMNS), YT = TO > 0 ? TO - 1 : 0;
  static constexpr int STATS = GRAD_STATS(OP);
  static constexpr int GROUPS = GRAD_TILE_STEP / 8;
  static constexpr bool DROPS = EDGES & EDGE_DROPOUT;
  using draws = block_dropout<COLUMNS, EDGES>;

  const grad_tile_params &p;
  const dfgnn_tile tile;
  const int head, warp, lane;
  const bool idle; /* the warp has no rows, and draws for others */
  draws dropout;

  typename math::own own[OWN];
  float sum[YT + 1][math::TILES][4];
  float lse[2], delta[2], own_extra[2], inner[2];
  /* Bias: the place in the matrix of the first edge in the chunk, of rows g
   * and g + 8. */
  int64_t place_of[EDGES & EDGE_BIAS ? 2 : 1];
  unsigned odd; /* bit h: an edge of row g + 8 h has a dS that is not finite */

  DEVICE int64_t pair(int node) const {
    return int64_t(node) * p.walk.heads + head;
  }
  DEVICE offsets_t offsets() const {
    return {p.walk.schedule.offsets, p.walk.schedule.offsets64};
  }
  DEVICE int row_of(int h) const { return 16 * warp + lane / 4 + 8 * h; }
  DEVICE const char *row_at(const tensor_view &t, int node,
                            unsigned bytes = 0) const {
    return node_row(static_cast<const char *>(t.data) +
                        int64_t(head) * t.head_bytes + bytes,
                    node, t.node_bytes);
  }

  /* ---- own rows ---------------------------------------------------------- */

  DEVICE void begin() {
    odd = 0;
#pragma unroll
    for (int t = 0; t <= YT; ++t)
      unroll<math::TILES, 4>([&](int n, int i) { sum[t][n][i] = 0.0f; });
    unroll<2>([&](int h) {
      const int node = tile.row + min(row_of(h), tile.rows - 1);
      lse[h] = delta[h] = own_extra[h] = inner[h] = 0.0f;
      unroll<OWN>([&](int t) {
        math::load_own(own[t], h, row_at(p.walk.own[t], node), lane);
      });
      if constexpr (!Score::SUM)
        own_extra[h] =
            static_cast<const float *>(p.walk.own_scalar)[pair(node)];
      if constexpr (!COLUMNS)
        own_stats(h, node);
      if constexpr (EDGES & EDGE_BIAS)
        place_of[h] = offsets()[node];
    });
    __syncwarp();
  }

  /* Finds lse and delta of a destination, and leaves them for columns. */
  DEVICE void own_stats(int h, int node) {
    typename math::own out;
    math::load_own(out, h, row_at(p.walk.out, node), lane);
    delta[h] = lanes_sum<4>(math::dot(own[YO], out, h)) -
               grad_lse_of<float>(p.walk.grad_lse, pair(node));
    lse[h] = lse_of(static_cast<const float *>(p.walk.lse)[pair(node)]);
    if (lane % 4 != 0 || row_of(h) >= tile.rows || idle)
      return;
    float *to = static_cast<float *>(p.walk.stats) + pair(node) * STATS;
    to[STAT_LSE] = lse[h];
    to[STAT_DELTA] = delta[h];
    if constexpr (STATS > STAT_EXTRA) {
      to[STAT_EXTRA] = own_extra[h];
      to[STAT_EXTRA + 1] = 0.0f; /* padding, loaded with the others */
    }
  }

  /* ---- a step ------------------------------------------------------------ */

  using scores = float[GROUPS][4];

  /* The scalars of the gathered nodes: [n][e] is column 8 n + 2 t + e, with t =
   * lane % 4. */
  struct extras {
    float lse[GROUPS][2], delta[GROUPS][2], other[GROUPS][2];
  };

  template <class Node>
  DEVICE void load_extras(extras &x, const Node &node) const {
    unroll<GROUPS, 2>([&](int n, int e) {
      x.lse[n][e] = x.delta[n][e] = x.other[n][e] = 0.0f;
      if constexpr (COLUMNS || !Score::SUM) {
        const int64_t at = pair(node(8 * n + lane % 4 * 2 + e));
        if constexpr (COLUMNS) {
          const packed<float, STATS> y = load_packed<STATS>(
              static_cast<const float *>(p.walk.stats) + at * STATS);
          x.lse[n][e] = y.item[STAT_LSE];
          x.delta[n][e] = y.item[STAT_DELTA];
          x.other[n][e] = STATS > STAT_EXTRA ? y.item[STATS - 2] : 0.0f;
        } else {
          x.other[n][e] =
              __ldg(static_cast<const float *>(p.walk.far_scalar) + at);
        }
      }
    });
  }

  /* s and dp become dS and P, the factors of the far rows of the score and of
   * the value.  mask: the edges of the chunk; kept: those that dropout keeps;
   * first: the first column of the step in the chunk. */
  DEVICE void terms(scores &s, scores &dp, const extras &x,
                    const unsigned (&mask)[2], const unsigned (&kept)[2],
                    int first) {
    unroll<GROUPS, 4>([&](int n, int i) {
      const int h = i >> 1, e = i & 1;
      const unsigned bit = 1u << (first + 8 * n + 2 * (lane & 3) + e);
      const bool on = mask[h] & bit;
      const float product =
          Score::KEY ? s[n][i] * float(p.walk.scale * kLog2e) : 0.0f;
      int64_t number = 0;
      if constexpr (EDGES & EDGE_BIAS)
        if (on)
          number = edge_number<COLUMNS, EDGES>(
              p.walk, place_of[h] + __popc(mask[h] & (bit - 1)));
      float factor = 1.0f;
      if constexpr (DROPS)
        factor = kept[h] & bit ? float(p.walk.dropout.keep) : 0.0f;
      const edge_terms<float> t = terms_of<OP, float>(
          float(p.walk.slope), product, dp[n][i],
          COLUMNS ? x.lse[n][e] : lse[h], COLUMNS ? x.delta[n][e] : delta[h],
          own_extra[h], x.other[n][e], 1.0f,
          on ? bias_of<EDGES>(p.walk, number, head) : 0.0f, factor);
      if constexpr (!COLUMNS && (EDGES & EDGE_BIAS) != 0)
        if (on) {
          emit_edge<COLUMNS, EDGES>(p.walk, number, head, t.score);
          odd |= unsigned(!is_finite(t.score)) << h;
        }
      if constexpr (!Score::SUM)
        inner[h] += on ? t.score * t.inner : 0.0f;
      s[n][i] = on ? t.score : 0.0f;
      dp[n][i] = on ? t.weight : 0.0f;
    });
  }

  DEVICE void step(int column, const unsigned (&mask)[2],
                   const unsigned (&kept)[2], int first) {
    typename math::far far[FAR][GROUPS];
    extras x;
    scores s, dp;
    const auto node = [&](int i) {
      return __shfl_sync(kFullMask, column, first + i);
    };
#pragma unroll
    for (int t = 0; t < FAR; ++t)
#pragma unroll
      for (int n = 0; n < GROUPS; ++n)
        math::load_far(
            far[t][n],
            [&](int i) {
              return row_at(p.walk.far[t], node(i), math::far_bytes(lane));
            },
            n, lane);
    load_extras(x, node);
    if constexpr (Score::KEY)
      math::scores(s, own[0], far[0]);
    math::scores(dp, own[YO], far[YF]);
    terms(s, dp, x, mask, kept, first);
    if constexpr (COLUMNS)
      if (p.walk.to[YT].data)
        add(sum[YT], dp, far[YF], p.walk.far[YF], node);
    if constexpr (Score::KEY)
      if (p.walk.to[0].data)
        add(sum[0], s, far[0], p.walk.far[0], node);
  }

  template <class Node>
  DEVICE void add(float (&to)[math::TILES][4], const scores &weight,
                  const typename math::far (&far)[GROUPS],
                  const tensor_view &view, const Node &node) {
    if constexpr (sizeof(T) == 2) {
      math::add(to, weight, far);
    } else { /* the rows are needed in another order: loads them from the L1 */
      typename math::weighed y[GROUPS];
#pragma unroll
      for (int n = 0; n < GROUPS; ++n)
        math::load_weighed(
            y[n],
            [&](int i) {
              return row_at(view, node(i), math::weighed_bytes(lane));
            },
            n, lane);
      math::add(to, weight, y);
    }
  }

  struct chunk {
    int column; /* the lane's */
    unsigned mask[2];
  };
  DEVICE chunk chunk_at(int i) const {
    chunk c = {0, {0, 0}};
    if (i >= tile.chunks)
      return c;
    c.column = tile_column(p, tile, i, lane);
    unroll<2>(
        [&](int h) { c.mask[h] = tile_mask(p, p.window, tile, i, row_of(h)); });
    return c;
  }

  DEVICE void draw(int i) {
    dropout.draw(p.walk, p.masks + int64_t(tile.chunk + i) * p.window,
                 min(tile.chunks - i, draws::CHUNKS));
  }

  DEVICE void run() {
    constexpr int STEP = GRAD_TILE_STEP;
    constexpr unsigned bits = (1u << STEP) - 1;
    chunk next = chunk_at(0);
    begin();
#pragma unroll 1
    for (int i = 0; i < tile.chunks; ++i) {
      if constexpr (DROPS)
        if (i % draws::CHUNKS == 0)
          draw(i);
      const chunk at = next;
      next = chunk_at(i + 1);
      if (idle)
        continue;
      unsigned kept[2] = {at.mask[0], at.mask[1]};
      if constexpr (DROPS)
        unroll<2>([&](int h) { kept[h] = dropout.kept(i, head, row_of(h)); });
#pragma unroll 1
      for (int first = 0; first < DFGNN_TILE_COLUMNS; first += STEP)
        if (__any_sync(kFullMask,
                       ((at.mask[0] | at.mask[1]) >> first & bits) != 0))
          step(at.column, at.mask, kept, first);
      if constexpr (EDGES & EDGE_BIAS) {
        place_of[0] += __popc(at.mask[0]);
        place_of[1] += __popc(at.mask[1]);
      }
    }
    if (!idle)
      finish();
  }

  /* ---- results ----------------------------------------------------------- */

  /* The results of row g + 8 h that must be computed again.  Bit t: sum t;
   * besides, GRAD_TILE_INNER and GRAD_TILE_EDGES. */
  DEVICE unsigned bad_of(int h) const {
    unsigned bad = is_finite(inner[h]) ? 0 : GRAD_TILE_INNER;
    bad |= odd >> h & 1 ? GRAD_TILE_EDGES : 0;
    unroll<TO, math::TILES, 2>([&](int t, int n, int e) {
      bad |= is_finite(sum[t][n][2 * h + e]) ? 0u : 1u << t;
    });
    bad |= __shfl_xor_sync(kFullMask, bad, 1);
    return bad | __shfl_xor_sync(kFullMask, bad, 2);
  }

  DEVICE void store_row(int h, unsigned wanted) const {
    const int node = tile.row + row_of(h);
    if (!Score::SUM && p.walk.to_scalar && lane % 4 == 0 &&
        wanted & GRAD_TILE_INNER)
      static_cast<float *>(p.walk.to_scalar)[pair(node)] = inner[h];
#pragma unroll
    for (int t = 0; t < TO; ++t) {
      if (!p.walk.to[t].data || !(wanted >> t & 1))
        continue;
      T *to =
          reinterpret_cast<T *>(const_cast<char *>(row_at(p.walk.to[t], node)));
      const float factor = Score::KEY && t == 0 ? float(p.walk.scale) : 1.0f;
      math::pieces(sum[t], h, lane, [&](int f, float(&x)[math::PIECE]) {
        unroll<math::PIECE>([&](int i) { x[i] *= factor; });
        store_once<math::PIECE>(to + f, x);
      });
    }
  }

  DEVICE void finish() {
    unsigned again[2];
    unroll<2>([&](int h) {
      inner[h] = lanes_sum<4>(inner[h]);
      again[h] = bad_of(h);
      if (row_of(h) < tile.rows)
        store_row(h, ~again[h]);
      else
        again[h] = 0;
    });
#pragma unroll 1
    for (int h = 0; h < 2; ++h)
      for (unsigned left = __ballot_sync(kFullMask, again[h] && lane % 4 == 0);
           left; left &= left - 1) {
        const int from = __ffs(left) - 1;
        slow_row(16 * warp + from / 4 + 8 * h,
                 __shfl_sync(kFullMask, again[h], from));
      }
  }

  __device__ void slow_row(int r, unsigned wanted) const {
    grad_tile_slow_row<OP, T, DIM, COLUMNS, EDGES>(p, tile.row + r, head,
                                                   wanted);
  }
  __device__ void along_edges() {
    begin();
    for (int r = 16 * warp; r < min(16 * warp + 16, tile.rows); ++r)
      slow_row(r, ~0u);
  }
};

template <int OP, typename T, int DIM, int EXACT, int COLUMNS, int EDGES>
__global__ void __launch_bounds__(256, DIM > 16 ? 1 : 2)
    direct_gradients(const __grid_constant__ grad_tile_params p) {
  using work_t = direct_gradient<OP, T, DIM, EXACT, COLUMNS != 0, EDGES>;
  const int warps = p.window / 16, place = threadIdx.x / 32;
  const int warp = __shfl_sync(kFullMask, place % warps, 0);
  const int head = blockIdx.y * (blockDim.x / 32 / warps) +
                   __shfl_sync(kFullMask, place / warps, 0);
  const int4 *at = reinterpret_cast<const int4 *>(p.items + blockIdx.x);
  const int4 x = __ldg(at), y = __ldg(at + 1);
  const dfgnn_tile tile = {x.x, x.y, x.z, x.w, y.x, y.y, y.z, y.w};
  const bool idle = 16 * warp >= tile.rows || head >= p.walk.heads;
  if (idle && (!work_t::DROPS || tile.flags & DFGNN_TILE_DUPLICATES))
    return;
  work_t walk{
      p, tile, min(head, p.walk.heads - 1), warp, int(threadIdx.x & 31), idle};
  if (tile.flags & DFGNN_TILE_DUPLICATES) {
    walk.along_edges();
    return;
  }
  if constexpr (work_t::DROPS) {
    __shared__ uint32_t words[work_t::draws::WORDS];
    walk.dropout.begin(p.walk, words, p.window, walk.offsets(), tile);
  }
  walk.run();
}

} // namespace dfgnn

#endif
