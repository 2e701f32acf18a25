/* tile_backward.cuh - the walk of a block over an item of the TILES view
 *
 * Own rows stay in shared memory; gathered ones come in steps of 16, two in
 * flight.
 *
 * A bit of a mask says that a pair is an edge; other pairs have weight 0.  But
 * 0 times a row that is not finite is NaN, and so are the TF32 parts of
 * infinity: rows of results that are not finite are computed again along their
 * edges. */
#ifndef DFGNN_ATTENTION_CUDA_TILE_BACKWARD_CUH
#define DFGNN_ATTENTION_CUDA_TILE_BACKWARD_CUH

#include "kernels/attention/cuda/tile_backward_math.cuh"
#include "kernels/attention/cuda/tile_backward_row.cuh"

namespace dfgnn {

template <int OP, typename T, int DIM, int TERMS, bool COLUMNS>
using grad_tile_products_of =
    grad_tile_products<T, DIM, TERMS, GRAD_TILE_OWN(OP, COLUMNS),
                       GRAD_TILE_FAR(OP, COLUMNS), score_of<OP>::SUM,
                       GRAD_SUMS(OP, COLUMNS) == 1>;

template <int OP, typename T, int DIM, int TERMS, bool COLUMNS, int EDGES>
struct grad_tile_walk : grad_tile_products_of<OP, T, DIM, TERMS, COLUMNS> {
  using math = grad_tile_products_of<OP, T, DIM, TERMS, COLUMNS>;
  using math::dp, math::first_row, math::group, math::lane, math::own, math::p;
  using math::place, math::s, math::STEP, math::TILES, math::turn, math::UNITS;
  using math::VEC, math::W, math::YF, math::YO;
  using Score = score_of<OP>;
  static constexpr int OWN = GRAD_TILE_OWN(OP, COLUMNS);
  static constexpr int FAR = GRAD_TILE_FAR(OP, COLUMNS);
  static constexpr int TO = GRAD_SUMS(OP, COLUMNS), YT = TO > 0 ? TO - 1 : 0;
  static constexpr int STATS = GRAD_STATS(OP);
  static constexpr int EXTRAS = GRAD_TILE_EXTRAS(OP, COLUMNS);

  const dfgnn_tile tile;
  uint4 *far;                      /* [stages][FAR][STEP][UNITS] */
  float *extra;                    /* [stages][STEP][EXTRAS] */
  int columns, columns_ahead;      /* a chunk's columns, one a lane */
  unsigned mask[2], mask_ahead[2]; /* masks of rows g and g + 8 */
  float lse[2], delta[2], own_extra[2], inner[2], beta;
  /* EDGES: the place in the matrix of the first edge in the chunk, of rows g
   * and g + 8. */
  int64_t place_of[EDGES ? 2 : 1];
  unsigned odd; /* bit h: an edge of row g + 8 h has a dS that is not finite */
  uint64_t key;
  float sum[YT + 1][W / 8][4];

  __device__ static int head() { return blockIdx.y; }
  __device__ int steps() const { return tile.chunks * (32 / STEP); }
  __device__ int64_t pair(int node) const {
    return int64_t(node) * p.walk.heads + head();
  }

  __device__ grad_tile_walk(const grad_tile_params &params,
                            const dfgnn_tile &item, char *shared)
      : math(params), tile(item), columns(0), columns_ahead(0), odd(0),
        key(edge_key<EDGES>(params.walk)), beta(1) {
    own = reinterpret_cast<uint4 *>(shared);
    far = own + OWN * p.window * UNITS;
    extra =
        reinterpret_cast<float *>(far + GRAD_TILE_STAGES * FAR * STEP * UNITS);
  }

  /* ---- loading ----------------------------------------------------------- */

  __device__ __forceinline__ void copy_unit(uint4 *to, const tensor_view &t,
                                            int node, int u, bool there) const {
    const char *from = static_cast<const char *>(t.data);
    const int bytes = DIM * int(sizeof(T)) - 16 * u;
    there = there && bytes > 0;
    if (there)
      from =
          node_row(node_row(from, node, t.node_bytes), head(), t.head_bytes) +
          16 * u;
    copy_async(to, from, there ? 16 : 0);
  }

  __device__ void load_own() const {
    const int rows = (tile.rows + 15) / 16 * 16;
    unroll<OWN>([&](int t) {
      for (int i = threadIdx.x; i < rows * UNITS; i += blockDim.x) {
        const int r = i / UNITS, u = i % UNITS;
        copy_unit(own + t * p.window * UNITS + r * UNITS + (u ^ turn(r)),
                  p.walk.own[t], tile.row + r, u, r < tile.rows);
      }
    });
  }

  __device__ int load_columns(int chunk) const {
    return chunk < tile.chunks
               ? __ldg(p.columns + int64_t(tile.chunk + chunk) * 32 + lane())
               : 0;
  }

  /* The node of column i of a step. */
  __device__ __forceinline__ int column(int step, int i) const {
    if (p.dense)
      return tile.column + min(step * STEP + i, tile.columns - 1);
    return __shfl_sync(kFullMask, columns, (step * STEP + i) & 31);
  }

  __device__ void fetch(int step) {
    if (!p.dense && step % (32 / STEP) == 0) {
      columns = columns_ahead;
      columns_ahead = load_columns(step / (32 / STEP) + 1);
    }
    const int stage = step % GRAD_TILE_STAGES;
    uint4 *to = far + stage * FAR * STEP * UNITS;
    for (int i = threadIdx.x; i < STEP * UNITS; i += blockDim.x) {
      const int r = i / UNITS, u = i % UNITS, j = column(step, r);
      unroll<FAR>([&](int t) {
        copy_unit(to + (t * STEP + r) * UNITS + (u ^ turn(r)), p.walk.far[t], j,
                  u, true);
      });
    }
    if (EXTRAS > 0 && threadIdx.x < 32) {
      const int j = column(step, lane() % STEP);
      if (lane() < STEP)
        copy_extras(extra + (stage * STEP + lane()) * EXTRAS, j);
    }
    copy_commit();
  }

  __device__ __forceinline__ void copy_extras(float *to, int j) const {
    const float *from =
        static_cast<const float *>(COLUMNS ? p.walk.stats : p.walk.far_scalar);
    from += pair(j) * EXTRAS;
    if constexpr (EXTRAS == 4)
      copy_async(to, from, 16);
    else if constexpr (EXTRAS > 0)
      copy_few_async<4 * EXTRAS>(to, from);
  }

  __device__ void load_masks(int chunk) {
    const unsigned *from = p.masks + int64_t(tile.chunk + chunk) * p.window +
                           first_row() + group();
    unroll<2>([&](int i) {
      mask_ahead[i] = chunk < tile.chunks ? __ldg(from + 8 * i) : 0;
    });
  }

  /* ---- a step ------------------------------------------------------------ */

  /* The edges of a row are in the order of their columns, as bits are:
   * dfgnn__tile_prepare() checks it. */
  __device__ __forceinline__ int64_t number_at(int h, unsigned bit) const {
    if constexpr (EDGES != 0)
      return edge_number<COLUMNS, EDGES>(
          p.walk, place_of[h] + __popc(mask[h] & (bit - 1)));
    return 0;
  }
  __device__ void number_rows() {
    unroll<2>([&](int h) {
      const int r = min(first_row() + group() + 8 * h, tile.rows - 1);
      const row_schedule &m = p.walk.schedule;
      place_of[h] = offsets_t{m.offsets, m.offsets64}[tile.row + r];
    });
  }

  /* s and dp become dS and P, the factors of the far rows of the score and of
   * the value. */
  __device__ __forceinline__ void terms(int step) {
    const float *numbers = extra + step % GRAD_TILE_STAGES * STEP * EXTRAS;
    const int begin = step * STEP % 32; /* in the chunk */
    unsigned kept[2];
    unroll<2>([&](int h) {
      kept[h] = kept_edges<COLUMNS, EDGES>(
          p.walk, key,
          place_of[EDGES ? h : 0] + __popc(mask[h] & ((1u << begin) - 1)),
          __popc(mask[h] >> begin & ((1u << STEP) - 1)), head());
    });
    unroll<TILES, 4>([&](int n, int i) {
      const int h = i >> 1, c = 8 * n + 2 * place() + (i & 1);
      const float *x = numbers + c * EXTRAS;
      const float other = Score::KEY ? 0.0f : x[COLUMNS ? STAT_EXTRA : 0];
      const float product =
          Score::KEY ? s[n][i] * float(p.walk.scale * kLog2e) : s[n][i];
      const unsigned bit = 1u << (begin + c);
      const bool on = mask[h] & bit;
      const int64_t number = EDGES & EDGE_BIAS && on ? number_at(h, bit) : 0;
      float kept_factor = 1.0f;
      if constexpr (EDGES & EDGE_DROPOUT)
        kept_factor =
            kept[h] >> __popc(mask[h] >> begin & ((bit >> begin) - 1)) & 1
                ? float(p.walk.dropout.keep)
                : 0.0f;
      const edge_terms<float> t = terms_of<OP, float>(
          float(p.walk.slope), product, dp[n][i],
          COLUMNS ? x[STAT_LSE] : lse[h], COLUMNS ? x[STAT_DELTA] : delta[h],
          own_extra[h], other, beta,
          on ? bias_of<EDGES>(p.walk, number, head()) : 0.0f, kept_factor);
      if constexpr (!COLUMNS && (EDGES & EDGE_BIAS) != 0)
        if (on) {
          emit_edge<COLUMNS, EDGES>(p.walk, number, head(), t.score);
          odd |= unsigned(!is_finite(t.score)) << h;
        }
      float score = on ? t.score : 0.0f;
      if constexpr (!Score::KEY)
        inner[h] += on ? t.score * t.inner : 0.0f;
      if constexpr (Score::NORM)
        score *= COLUMNS ? other * own_extra[h] * beta : other;
      s[n][i] = score;
      dp[n][i] = on ? t.weight : 0.0f;
    });
  }

  __device__ __forceinline__ void compute(int step) {
    const uint4 *stage = far + step % GRAD_TILE_STAGES * FAR * STEP * UNITS;
    math::scores(stage);
    terms(step);
    if constexpr (COLUMNS)
      if (p.walk.to[YT].data)
        math::add(sum[YT], dp, stage + YF * STEP * UNITS);
    if constexpr (Score::SUM)
      if (p.walk.to[0].data)
        math::add(sum[0], s, stage);
  }

  /* ---- an item ----------------------------------------------------------- */

  __device__ void begin() {
#pragma unroll
    for (int t = 0; t <= YT; ++t)
      unroll<W / 8, 4>([&](int n, int i) { sum[t][n][i] = 0; });
    if (Score::NORM && p.walk.beta)
      beta = *static_cast<const float *>(p.walk.beta);
    unroll<2>([&](int h) {
      lse[h] = delta[h] = own_extra[h] = inner[h] = 0;
      mask[h] = 0;
    });
    if constexpr (!COLUMNS)
      own_stats();
    else if constexpr (!Score::KEY)
      unroll<2>([&](int h) {
        const int r = first_row() + group() + 8 * h;
        if (r < tile.rows)
          own_extra[h] =
              static_cast<const float *>(p.walk.own_scalar)[pair(tile.row + r)];
      });
  }

  /* Loads the lane's 16 bytes of an own row; zeros beyond it. */
  static constexpr int UNIT = 16 / sizeof(T);
  __device__ __forceinline__ packed<T, UNIT> own_unit(const tensor_view &t,
                                                      int r) const {
    packed<T, UNIT> x;
    clear(x);
    if (r < tile.rows && lane() * UNIT < DIM)
      x = load_packed<UNIT>(reinterpret_cast<const T *>(
          node_row(node_row(static_cast<const char *>(t.data), tile.row + r,
                            t.node_bytes),
                   head(), t.head_bytes) +
          lane() * 16));
    return x;
  }

  /* Finds the stats of the rows of the warp, by the sums of node_stats(). */
  __device__ __forceinline__ void own_stats() {
    constexpr int AT_ONCE = 4, SUMS = Score::NORM ? 2 : 1;
#pragma unroll
    for (int first = 0; first < 16; first += AT_ONCE) {
      float sums[SUMS][AT_ONCE];
      unroll<AT_ONCE>([&](int i) {
        const int r = first_row() + first + i;
        const packed<T, UNIT> x = own_unit(p.walk.own[YO], r),
                              y = own_unit(p.walk.out, r);
        sums[0][i] = 0;
        unroll<UNIT>(
            [&](int k) { sums[0][i] += widen(x.item[k]) * widen(y.item[k]); });
        if constexpr (Score::NORM) {
          const packed<T, UNIT> q = own_unit(p.walk.own[0], r);
          sums[1][i] = 0;
          unroll<UNIT>([&](int k) {
            sums[1][i] += widen(q.item[k]) * widen(q.item[k]);
          });
        }
      });
      unroll<AT_ONCE>([&](int i) {
        const float d = lanes_sum<32>(sums[0][i]);
        const float square =
            Score::NORM ? lanes_sum<32>(sums[SUMS - 1][i]) : 0.0f;
        if (group() == (first + i) % 8) {
          delta[(first + i) / 8] = d;
          own_extra[(first + i) / 8] =
              Score::NORM ? inverse_norm(square) : 0.0f;
        }
      });
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int r = first_row() + group() + 8 * h;
      if (r >= tile.rows)
        continue;
      const int64_t at = pair(tile.row + r);
      lse[h] = lse_of(static_cast<const float *>(p.walk.lse)[at]);
      delta[h] -= grad_lse_of<float>(p.walk.grad_lse, at);
      if constexpr (!Score::SUM)
        own_extra[h] = static_cast<const float *>(p.walk.own_scalar)[at];
      if (place() == 0)
        store_stats(static_cast<float *>(p.walk.stats) + at * STATS, h);
    }
    __syncwarp();
  }

  __device__ __forceinline__ void store_stats(float *to, int h) const {
    to[STAT_LSE] = lse[h];
    to[STAT_DELTA] = delta[h];
    if constexpr (STATS > STAT_EXTRA) {
      to[STAT_EXTRA] = own_extra[h];
      to[STAT_EXTRA + 1] = 0; /* padding, loaded with the others */
    }
  }

  __device__ void run() {
    const int count = steps();
    load_masks(0);
    if (!p.dense)
      columns_ahead = load_columns(0);
    load_own();
    if (count > 0)
      fetch(0);
    else
      copy_commit();
    begin();
    if constexpr (EDGES != 0)
      number_rows();
    for (int step = 0; step < count; ++step) {
      copy_wait<0>();
      __syncthreads(); /* the stage is loaded, and the one before is read */
      if (step + 1 < count)
        fetch(step + 1);
      if (step % (32 / STEP) == 0) {
        if constexpr (EDGES != 0) {
          place_of[0] += __popc(mask[0]);
          place_of[1] += __popc(mask[1]);
        }
        mask[0] = mask_ahead[0];
        mask[1] = mask_ahead[1];
        load_masks(step / (32 / STEP) + 1);
      }
      constexpr unsigned bits = (1u << STEP) - 1;
      if (__any_sync(kFullMask,
                     ((mask[0] | mask[1]) >> (step * STEP % 32) & bits) != 0))
        compute(step);
    }
    copy_wait<0>();
    __syncthreads();
    finish();
  }

  /* ---- results ----------------------------------------------------------- */

  /* Ends a row as grad_tile_row::finish() does.  Returns the results that must
   * be computed again.  Bit t: sum t; besides, GRAD_TILE_INNER and
   * GRAD_TILE_EDGES. */
  __device__ __forceinline__ unsigned finish_row(int h) {
    unsigned bad = is_finite(inner[h]) ? 0 : GRAD_TILE_INNER;
    bad |= odd >> h & 1 ? GRAD_TILE_EDGES : 0;
    float along = 0, factor = 1;
    if constexpr (Score::NORM) {
      if (!(own_extra[h] < inverse_norm(0.0f)))
        bad |= 1; /* see grad_tile_row::raised() */
      else
        along = inner[h] * own_extra[h] * (COLUMNS ? own_extra[h] * beta : 1);
      if (!COLUMNS)
        factor = own_extra[h] * beta;
    }
    if constexpr (Score::KEY)
      factor = float(p.walk.scale);
    unroll<TO>([&](int t) {
      math::pieces(sum[t], h, [&](int f, float(&x)[VEC]) {
        packed<T, VEC> y;
        if constexpr (Score::NORM)
          y = math::own_piece(first_row() + group() + 8 * h, f);
        unroll<VEC>([&](int i) {
          if (Score::SUM && t == 0) {
            if constexpr (Score::NORM)
              x[i] = along != 0 ? x[i] - along * widen(y.item[i]) : x[i];
            x[i] *= factor;
          }
          bad |= is_finite(x[i]) ? 0u : 1u << t;
        });
      });
    });
    return bad;
  }

  __device__ __forceinline__ void store_row(int h, unsigned wanted) {
    const int r = first_row() + group() + 8 * h;
    const int64_t at = pair(tile.row + r);
    if (place() == 0 && wanted & GRAD_TILE_INNER) {
      if (!Score::SUM && p.walk.to_scalar)
        static_cast<float *>(p.walk.to_scalar)[at] = inner[h];
      if (Score::NORM && !COLUMNS && p.row_totals)
        static_cast<float *>(p.row_totals)[at] = inner[h];
    }
#pragma unroll
    for (int t = 0; t < TO; ++t) {
      if (!p.walk.to[t].data || !(wanted >> t & 1))
        continue;
      char *to = static_cast<char *>(const_cast<void *>(p.walk.to[t].data)) +
                 int64_t(tile.row + r) * p.walk.to[t].node_bytes +
                 int64_t(head()) * p.walk.to[t].head_bytes;
      math::pieces(sum[t], h, [&](int f, float(&x)[VEC]) {
        if (f < DIM)
          store_once<VEC>(reinterpret_cast<T *>(to) + f, x);
      });
    }
  }

  __device__ void finish() {
    unsigned again[2] = {0, 0}; /* results of rows g and g + 8 */
    unroll<2>([&](int h) {
      if constexpr (!Score::KEY) {
        inner[h] += __shfl_xor_sync(kFullMask, inner[h], 1);
        inner[h] += __shfl_xor_sync(kFullMask, inner[h], 2);
      }
      const bool mine = first_row() + group() + 8 * h < tile.rows;
      unsigned bad = finish_row(h);
      bad |= __shfl_xor_sync(kFullMask, bad, 1);
      bad |= __shfl_xor_sync(kFullMask, bad, 2);
      if (mine) {
        store_row(h, ~bad);
        again[h] = bad;
      }
    });
    unroll<2>([&](int h) { slow_rows(again[h], h); });
  }

  __device__ void slow_rows(unsigned again, int h) const {
    for (unsigned left = __ballot_sync(kFullMask, again && place() == 0); left;
         left &= left - 1) {
      const int from = __ffs(left) - 1;
      grad_tile_slow_row<OP, T, DIM, COLUMNS, EDGES>(
          p, tile.row + first_row() + from / 4 + 8 * h, head(),
          __shfl_sync(kFullMask, again, from));
    }
  }

  __device__ void along_edges() {
    begin();
    for (int r = first_row(); r < min(first_row() + 16, tile.rows); ++r)
      grad_tile_slow_row<OP, T, DIM, COLUMNS, EDGES>(p, tile.row + r, head(),
                                                     ~0u);
  }
};

template <int OP, typename T, int DIM, int TERMS, int COLUMNS, int EDGES>
__global__ void __launch_bounds__(256, 1)
    grad_tile_gradient(const __grid_constant__ grad_tile_params p) {
  extern __shared__ uint4 grad_tile_shared_memory[];
  using walk_t = grad_tile_walk<OP, T, DIM, TERMS, COLUMNS != 0, EDGES>;
  const int4 *at = reinterpret_cast<const int4 *>(p.items + blockIdx.x);
  const int4 x = __ldg(at), y = __ldg(at + 1);
  const dfgnn_tile tile = {x.x, x.y, x.z, x.w, y.x, y.y, y.z, y.w};
  walk_t walk(p, tile, reinterpret_cast<char *>(grad_tile_shared_memory));
  if (tile.flags & DFGNN_TILE_DUPLICATES)
    walk.along_edges();
  else
    walk.run();
}

} // namespace dfgnn

#endif
