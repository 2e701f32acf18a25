/* tile_forward.cuh - the kernel of `dense` and `window`
 *
 * A block takes an item of a TILES view, in one head; each warp has 16 rows.
 * Chunks of 32 columns pass through shared memory.  With one stage the keys of
 * the next chunk are copied while weights and values of this one are worked
 * on, and its values during the next scores; with two stages the next chunk is
 * copied whole meanwhile.
 *
 * A bit of the mask says that a pair is an edge; other pairs have weight 0. But
 * 0 times an infinite value is NaN: rows that do not come out finite are
 * computed again, edge by edge. */
#ifndef DFGNN_ATTENTION_CUDA_TILE_FORWARD_CUH
#define DFGNN_ATTENTION_CUDA_TILE_FORWARD_CUH

#include "kernels/attention/cuda/tile_forward_math.cuh"
#include "kernels/attention/cuda/tile_forward_row.cuh"
#include "kernels/attention/cuda/tile_softmax.cuh"

namespace dfgnn {

template <class Math, int OP, int DIM, bool WIDE, int EDGES>
struct tile_forward {
  using T = typename Math::T;
  using Score = score_of<OP>;
  using Tile = tile_score<OP>;
  static constexpr bool kKey = Score::KEY, kDot = Score::SUM;
  /* Has each column a number that is computed from its staged row? */
  static constexpr bool kReduced = Score::NORM;
  static constexpr bool kOwn = kDot && Math::kQueryShared;
  static constexpr int W = TILE_WIDTH(DIM);
  static constexpr int kVector = 16 / sizeof(T), kVectors = W / kVector;
  /* The lanes of a staged row, a power of two; with 96 features some rest. */
  static constexpr int kLanes = kVectors <= 4    ? 4
                                : kVectors <= 8  ? 8
                                : kVectors <= 16 ? 16
                                                 : 32;
  static constexpr int kStride = kTileStride<T, W>;
  static constexpr int kTableBytes =
      DFGNN_TILE_COLUMNS * kStride * int(sizeof(T));
  static constexpr int kStageBytes = kKey ? 2 * kTableBytes : kTableBytes;
  static constexpr int kScalarBytes =
      kReduced ? DFGNN_TILE_COLUMNS * int(sizeof(float)) : 0;

  const tile_params &p;
  char *shared;
  int head, warp, lane, warps;

  DEVICE T *value_at(int stage) const {
    return reinterpret_cast<T *>(shared + stage * kStageBytes);
  }
  DEVICE T *key_at(int stage) const {
    return reinterpret_cast<T *>(shared + stage * kStageBytes +
                                 (kKey ? kTableBytes : 0));
  }
  DEVICE float *scalars() const {
    return reinterpret_cast<float *>(shared + p.stages * kStageBytes);
  }
  DEVICE T *own() const { /* the warp's rows */
    return reinterpret_cast<T *>(scalars() + kScalarBytes / sizeof(float)) +
           warp * 16 * kStride;
  }

  /* ---- copies ------------------------------------------------------------ */

  /* Copies rows first, first + step, ... below `last`; lane r has the node of
   * row r.  WIDE: `first` and `step` count groups of 32 / kLanes rows. */
  DEVICE void copy(T *to, const tensor_view &t, int node, int first, int last,
                   int step) const {
    const char *base =
        static_cast<const char *>(t.data) + int64_t(head) * t.head_bytes;
    if constexpr (WIDE) {
      constexpr int side = 32 / kLanes; /* rows side by side */
      const int column = lane % kLanes;
      const int bytes = column * kVector < DIM ? 16 : 0;
      int row = first * side + lane / kLanes;
      base += bytes ? column * 16 : 0;
      to += row * kStride + column * kVector;
      const int rounds =
          (last - first * side + step * side - 1) / (step * side);
#pragma unroll 4
      for (int k = 0; k < rounds; ++k) {
        const char *from =
            node_row(base, __shfl_sync(kFullMask, node, row), t.node_bytes);
        if (kLanes == kVectors || column < kVectors)
          copy_async(to, from, bytes);
        row += step * side;
        to += step * side * kStride;
      }
    } else {
#pragma unroll 1
      for (int row = first; row < last; row += step) {
        const char *from =
            node_row(base, __shfl_sync(kFullMask, node, row), t.node_bytes);
#pragma unroll
        for (int f = lane; f < W; f += 32)
          to[row * kStride + f] = f < DIM
                                      ? *reinterpret_cast<const T *>(
                                            from + int64_t(f) * t.feature_bytes)
                                      : narrow<T>(0.0f);
      }
    }
  }
  DEVICE void copy_key(int stage, int node) const {
    if constexpr (kKey)
      copy(key_at(stage), p.key, node, warp, DFGNN_TILE_COLUMNS, warps);
  }
  DEVICE void copy_value(int stage, int node) const {
    copy(value_at(stage), p.value, node, warp, DFGNN_TILE_COLUMNS, warps);
  }

  /* ---- scores ------------------------------------------------------------ */

  struct state {
    float sums[W / 8][4];
    float row[2]; /* the rows' numbers, as tile_score says */
    typename Math::template query<W> query;
    tile_softmax<Math, EDGES, 1, 4, false> softmax;
  };

  /* Computes the numbers of columns (kReduced) from the chunk's staged rows. */
  DEVICE void reduce_columns(int stage) const {
    constexpr int side = 32 / kLanes;
    const int column = lane % kLanes * kVector;
    const bool has = kLanes == kVectors || column < W;
    for (int r = warp * side; r < DFGNN_TILE_COLUMNS; r += warps * side) {
      const int row = r + lane / kLanes;
      const float x = lanes_sum<kLanes>(
          has ? reduced(value_at(stage) + row * kStride, column) : 0.0f);
      if (column == 0)
        scalars()[row] = Tile::far_number(x);
    }
  }
  /* The part of kVector features from `first` on. */
  DEVICE float reduced(const T *row, int first) const {
    float x[kVector], sum = 0.0f;
    load_staged(x, row + first);
    unroll<kVector>([&](int i) { sum += x[i] * x[i]; });
    return sum;
  }
  DEVICE void reduce_rows(state &z) const {
    const int t = lane % 4;
    unroll<2>([&](int r) {
      float x = 0.0f;
      unroll<kVectors / 4>([&](int c) {
        if constexpr (kOwn)
          x += reduced(own() + (tile_order(lane / 4) + 8 * r) * kStride,
                       (4 * c + t) * kVector);
        else
          x += Math::square(z.query, c, r);
      });
      x = lanes_sum<4>(x);
      z.row[r] = Tile::own_number(x, p.beta ? __ldg(p.beta) : 1.0f);
    });
  }

  DEVICE void scores(tile_scores &s, const state &z, int stage) const {
    if constexpr (kDot)
      Math::template scores<W>(s, z.query, own(),
                               kKey ? key_at(stage) : value_at(stage), lane);
  }

  /* Completes the scores with the numbers of rows and columns; they end in log2
   * units. */
  DEVICE void finish_scores(tile_scores &s, const state &z,
                            float column_scalar) const {
    const int t = lane % 4;
    unroll<4, 4>([&](int j, int e) {
      const int at = 8 * j + t + e % 2 * 4;
      float column = 0.0f;
      if constexpr (kReduced)
        column = scalars()[at];
      if constexpr (!Score::SUM)
        column = __shfl_sync(kFullMask, column_scalar, at);
      s[j][e] = Tile::score(s[j][e], z.row[e / 2], column, p.slope);
    });
  }

  /* ---- rows -------------------------------------------------------------- */

  DEVICE int row_of(int r) const {
    return 16 * warp + tile_order(lane / 4) + 8 * r;
  }

  /* The edges of a row are in the order of their columns, as bits are:
   * dfgnn__tile_prepare() checks it. */
  DEVICE void number_rows(state &z, const dfgnn_tile &item) const {
    unroll<2>([&](int r) {
      const int row = item.row + min(row_of(r), item.rows - 1);
      z.softmax.number[r] = offsets_t{p.offsets, p.offsets64}[row];
    });
  }

  DEVICE void begin(state &z, const dfgnn_tile &item) {
    z.softmax.begin(p);
    if constexpr (EDGES)
      number_rows(z, item);
    unroll<W / 8, 4>([&](int n, int e) { z.sums[n][e] = 0.0f; });
    unroll<2>([&](int r) {
      const int node = item.row + min(row_of(r), item.rows - 1);
      z.row[r] = p.scale * float(kLog2e);
      if constexpr (!Score::SUM)
        z.row[r] = __ldg(p.row_scalar + int64_t(node) * p.heads + head);
    });
    const int node = item.row + min(16 * warp + lane % 16, item.rows - 1);
    if constexpr (kOwn)
      copy(own(), p.query, node, 0, 16, 1);
    else if constexpr (kDot)
      load_query(z.query, item);
  }

  DEVICE void load_query(typename Math::template query<W> &q,
                         const dfgnn_tile &item) const {
    const char *base = static_cast<const char *>(p.query.data) +
                       int64_t(head) * p.query.head_bytes;
    unroll<2>([&](int r) {
      const char *from = node_row(
          base, item.row + min(row_of(r), item.rows - 1), p.query.node_bytes);
      unroll<W / 32>([&](int c) {
        const int f = 32 * c + lane % 4 * 8;
        packed<T, kVector> x;
        clear(x);
        if constexpr (WIDE) {
          if (f < DIM)
            x = load_once<kVector>(reinterpret_cast<const T *>(from) + f);
        } else {
          unroll<kVector>([&](int i) {
            if (f + i < DIM)
              x.item[i] = *reinterpret_cast<const T *>(
                  from + int64_t(f + i) * p.query.feature_bytes);
          });
        }
        q.x[c][r] = x.bits;
      });
    });
  }

  DEVICE void store(const state &z, const dfgnn_tile &item,
                    unsigned (&bad)[2]) {
    const char *base = static_cast<const char *>(p.out.data) +
                       int64_t(head) * p.out.head_bytes;
    const int t = lane % 4;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const bool live = row_of(r) < item.rows;
      const float factor = z.softmax.factor(p, r), lse = z.softmax.lse(r);
      float zero = factor * 0.0f;
      unroll<W / 8, 2>(
          [&](int n, int e) { zero = fmaf(z.sums[n][2 * r + e], 0.0f, zero); });
      bad[r] = __ballot_sync(kFullMask, live && zero != 0.0f);
      if (!live || bad[r] >> (lane & ~3) & 15)
        continue;
      const int row = item.row + row_of(r);
      T *to = reinterpret_cast<T *>(
          const_cast<char *>(node_row(base, row, p.out.node_bytes)));
      if constexpr (WIDE) {
        if (r == 0)
          Math::template store_wide<W, 0>(to, z.sums, factor, DIM, t);
        else
          Math::template store_wide<W, 2>(to, z.sums, factor, DIM, t);
      } else {
        unroll<W / 8, 2>([&](int n, int e) {
          const int f = Math::feature(n, e, t);
          if (f < DIM)
            *reinterpret_cast<T *>(reinterpret_cast<char *>(to) +
                                   int64_t(f) * p.out.feature_bytes) =
                narrow<T>(z.sums[n][2 * r + e] * factor);
        });
      }
      if (p.lse && t == 0)
        p.lse[int64_t(row) * p.heads + head] = lse;
    }
  }

  DEVICE void finish(const state &z, const dfgnn_tile &item) {
    unsigned bad[2];
    store(z, item, bad);
#pragma unroll 1
    for (int r = 0; r < 16; ++r)
      if ((r < 8 ? bad[0] : bad[1]) >> (r % 8 * 4) & 15)
        tile_slow_row<OP, T, DIM, EDGES>(
            p, item.row + 16 * warp + r / 8 * 8 + tile_order(r % 8), head,
            lane);
  }

  /* ---- items ------------------------------------------------------------- */

  DEVICE int column_at(const dfgnn_tile &item, int i) const {
    return i < item.chunks ? tile_column(p, item, i, lane) : 0;
  }
  DEVICE float scalar_at(int column) const {
    return Score::SUM
               ? 0.0f
               : __ldg(p.column_scalar + int64_t(column) * p.heads + head);
  }
  DEVICE void masks_at(unsigned (&mask)[2], const dfgnn_tile &item,
                       int i) const {
    unroll<2>([&](int r) {
      mask[r] = i < item.chunks ? tile_mask(p, p.rows, item, i, row_of(r)) : 0;
    });
  }

  DEVICE void run(const dfgnn_tile &item) {
    state z;
    const bool whole = p.stages == 2; /* chunks are copied whole */
    int column = column_at(item, 0), next = column_at(item, 1);
    unsigned mask[2];
    masks_at(mask, item, 0);
    begin(z, item);
    copy_key(0, column);
    if (kKey && !whole)
      copy_commit();
    copy_value(0, column);
    copy_commit();
    float scalar = scalar_at(column);
#pragma unroll 1
    for (int i = 0; i < item.chunks; ++i) {
      const int stage = whole ? i & 1 : 0;
      const bool more = i + 1 < item.chunks;
      const int after = column_at(item, i + 2);
      unsigned next_mask[2];
      masks_at(next_mask, item, i + 1);
      if (kKey && !whole)
        copy_wait<1>();
      else
        copy_wait<0>();
      __syncthreads();
      if (whole && more) {
        copy_key(stage ^ 1, next);
        copy_value(stage ^ 1, next);
        copy_commit();
      }
      const float next_scalar = scalar_at(next);
      if constexpr (kReduced) {
        if (i == 0)
          reduce_rows(z);
        reduce_columns(stage);
        __syncthreads();
      }
      const bool busy = __any_sync(kFullMask, mask[0] | mask[1]);
      tile_scores s;
      if (busy)
        scores(s, z, stage);
      if (kKey && !whole) {
        __syncthreads();
        if (more)
          copy_key(0, next);
        copy_commit();
      }
      float scale[2];
      if (busy) {
        finish_scores(s, z, scalar);
        z.softmax.weigh(s, mask, p, head, lane,
                        [&](int r, float factor) { scale[r] = factor; });
      }
      if (kKey && !whole) {
        copy_wait<1>();
        __syncthreads();
      }
      if (busy)
        Math::template add<W>(z.sums, s, scale, value_at(stage), lane);
      if (!whole) {
        __syncthreads();
        if (more)
          copy_value(0, next);
        copy_commit();
      }
      z.softmax.next_chunk(mask);
      next = after;
      scalar = next_scalar;
      mask[0] = next_mask[0];
      mask[1] = next_mask[1];
    }
    copy_wait<0>();
    finish(z, item);
  }
};

/* 12 warps a multiprocessor leave a thread 168 registers; 16 warps of narrow
 * tiles leave 128.  WIDE: tensors may be read and written by 16 bytes. */
template <int OP, typename T, int EXACT, int DIM, int WIDE, int EDGES>
__global__ void __launch_bounds__(TILE_WIDTH(DIM) > 64 ? 384 : 512, 1)
    tile_attend(const __grid_constant__ tile_params p) {
  extern __shared__ uint4 tile_shared[];
  ptx::let_next_begin();
  /* The shuffle tells the compiler that `warp` is the same in all lanes. */
  const int warp = __shfl_sync(kFullMask, int(threadIdx.x / 32), 0);
  const int lane = threadIdx.x & 31, head = blockIdx.y;
  const dfgnn_tile item = p.items[blockIdx.x];
  if (item.flags & DFGNN_TILE_DUPLICATES) {
#pragma unroll 1
    for (int r = 16 * warp; r < min(16 * warp + 16, item.rows); ++r)
      tile_slow_row<OP, T, DIM, EDGES>(p, item.row + r, head, lane);
    return;
  }
  tile_forward<tile_math_t<T, EXACT>, OP, DIM, WIDE != 0, EDGES> work{
      p,    reinterpret_cast<char *>(tile_shared),
      head, warp,
      lane, int(blockDim.x / 32)};
  work.run(item);
}

} // namespace dfgnn

#endif
