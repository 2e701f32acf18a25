/* direct_forward.cuh - the kernel of `direct`: tiles whose operands go from
 * memory into registers
 *
 * A block takes an item of a TILES view, in as many heads as it has warps for:
 * heads that lie side by side in memory are read together.  Each warp has 16
 * rows in one head and walks the chunks of 32 columns by itself.
 * tile_forward.cuh says what the bits of masks mean and why rows that are not
 * finite are computed again. */
#ifndef DFGNN_ATTENTION_CUDA_DIRECT_FORWARD_CUH
#define DFGNN_ATTENTION_CUDA_DIRECT_FORWARD_CUH

#include "kernels/attention/cuda/direct_dropout.cuh"
#include "kernels/attention/cuda/fragments.cuh"
#include "kernels/attention/cuda/tile_forward_row.cuh"
#include "kernels/attention/cuda/tile_softmax.cuh"

namespace dfgnn {

template <int OP, typename T, int EXACT, int DIM, int EDGES>
struct direct_forward {
  using math = fragments<T, EXACT, DIM>;
  static constexpr bool GT = OP == DFGNN_OP_GT;
  static constexpr int GROUPS = DFGNN_TILE_COLUMNS / 8;
  static constexpr bool DROPS = EDGES & EDGE_DROPOUT;
  using draws = block_dropout<false, EDGES>;

  const tile_params &p;
  const dfgnn_tile item;
  const int head, warp, lane;
  const bool idle; /* the warp has no rows, and draws for others */
  draws dropout;

  typename math::own query;
  const char *key, *value; /* where the lane begins to read rows of node 0 */
  float sums[math::TILES][4];
  float row[2]; /* GAT: scores of the rows; else the factor of all scores */
  tile_softmax<math, EDGES, 2, 1, true> softmax;

  DEVICE int row_of(int r) const { return 16 * warp + lane / 4 + 8 * r; }
  DEVICE int node_of(int r) const {
    return item.row + min(row_of(r), item.rows - 1);
  }
  DEVICE const char *head_of(const tensor_view &t) const {
    return static_cast<const char *>(t.data) + int64_t(head) * t.head_bytes;
  }

  /* ---- columns and masks of a chunk -------------------------------------- */

  struct chunk {
    int column; /* the lane's */
    unsigned mask[2];
    float scalar;
  };

  DEVICE chunk chunk_at(int i) const {
    chunk c = {0, {0, 0}, 0.0f};
    if (i >= item.chunks)
      return c;
    c.column = tile_column(p, item, i, lane);
    unroll<2>(
        [&](int r) { c.mask[r] = tile_mask(p, p.rows, item, i, row_of(r)); });
    if constexpr (OP == DFGNN_OP_GAT)
      c.scalar = __ldg(p.column_scalar + int64_t(c.column) * p.heads + head);
    return c;
  }

  /* ---- a chunk ----------------------------------------------------------- */

  DEVICE void scores(tile_scores &s, const chunk &at) const {
    if constexpr (GT) {
      typename math::far k[GROUPS];
      const auto key_row = [&](int i) {
        return node_row(key, __shfl_sync(kFullMask, at.column, i),
                        p.key.node_bytes);
      };
      unroll<GROUPS>([&](int j) { math::load_far(k[j], key_row, j, lane); });
      math::scores(s, query, k);
    }
    unroll<GROUPS, 4>([&](int j, int i) {
      if constexpr (GT) {
        if constexpr (!math::SCALES)
          s[j][i] *= row[i / 2];
      } else {
        const float x =
            __shfl_sync(kFullMask, at.scalar, 8 * j + lane % 4 * 2 + i % 2);
        s[j][i] = leaky(row[i / 2] + x, p.slope) * float(kLog2e);
      }
    });
  }

  DEVICE void work(const chunk &at, int i) {
    typename math::weighed v[GROUPS];
    const auto value_row = [&](int i) {
      return node_row(value, __shfl_sync(kFullMask, at.column, i),
                      p.value.node_bytes);
    };
    tile_scores s;
    unroll<GROUPS>(
        [&](int j) { math::load_weighed(v[j], value_row, j, lane); });
    scores(s, at);
    softmax.add_bias(s, at.mask, p, head, lane);
    softmax.soften(s, at.mask, lane, [&](int r, float factor) {
      unroll<math::TILES, 2>(
          [&](int n, int e) { sums[n][2 * r + e] *= factor; });
    });
    if constexpr (DROPS) {
      const unsigned kept[2] = {dropout.kept(i, head, row_of(0)),
                                dropout.kept(i, head, row_of(1))};
      softmax.drop(s, kept, lane);
    }
    math::add(sums, s, v);
  }

  /* ---- rows -------------------------------------------------------------- */

  DEVICE void begin() {
    if constexpr (GT)
      key = head_of(p.key) + math::far_bytes(lane);
    value = head_of(p.value) + math::weighed_bytes(lane);
    softmax.begin(p);
    unroll<math::TILES, 4>([&](int n, int e) { sums[n][e] = 0.0f; });
    unroll<2>([&](int r) {
      row[r] = p.scale * float(kLog2e);
      if constexpr (OP == DFGNN_OP_GAT)
        row[r] = __ldg(p.row_scalar + int64_t(node_of(r)) * p.heads + head);
      if constexpr (GT)
        math::load_own(
            query, r,
            node_row(head_of(p.query), node_of(r), p.query.node_bytes), lane,
            row[r]);
      if constexpr (EDGES & EDGE_BIAS)
        softmax.number[r] = offsets_t{p.offsets, p.offsets64}[node_of(r)];
    });
  }

  DEVICE void finish() {
    unsigned bad[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const bool live = row_of(r) < item.rows;
      const float factor = softmax.factor(p, r), lse = softmax.lse(r);
      float zero = factor * 0.0f;
      unroll<math::TILES, 2>(
          [&](int n, int e) { zero = fmaf(sums[n][2 * r + e], 0.0f, zero); });
      bad[r] = __ballot_sync(kFullMask, live && zero != 0.0f);
      if (!live || bad[r] >> (lane & ~3) & 15)
        continue;
      const int node = item.row + row_of(r);
      T *to = reinterpret_cast<T *>(
          const_cast<char *>(node_row(head_of(p.out), node, p.out.node_bytes)));
      math::pieces(sums, r, lane, [&](int f, float(&x)[math::PIECE]) {
        unroll<math::PIECE>([&](int i) { x[i] *= factor; });
        store_once<math::PIECE>(to + f, x);
      });
      if (p.lse && lane % 4 == 0)
        p.lse[int64_t(node) * p.heads + head] = lse;
    }
#pragma unroll 1
    for (int r = 0; r < 16; ++r)
      if ((r < 8 ? bad[0] : bad[1]) >> (r % 8 * 4) & 15)
        tile_slow_row<OP, T, DIM, EDGES>(p, item.row + 16 * warp + r, head,
                                         lane);
  }

  DEVICE void draw(int i) {
    dropout.draw(p, p.masks + int64_t(item.chunk + i) * p.rows,
                 min(item.chunks - i, draws::CHUNKS));
  }

  DEVICE void run() {
    chunk next = chunk_at(0);
    begin();
#pragma unroll 1
    for (int i = 0; i < item.chunks; ++i) {
      if constexpr (DROPS)
        if (i % draws::CHUNKS == 0)
          draw(i);
      const chunk at = next;
      next = chunk_at(i + 1);
      if (!idle && __any_sync(kFullMask, (at.mask[0] | at.mask[1]) != 0))
        work(at, i);
      softmax.next_chunk(at.mask);
    }
    if (!idle)
      finish();
  }
};

/* 24 warps a multiprocessor where their operands are few, else 16. */
template <int OP, typename T, int EXACT, int DIM, int EDGES>
__global__ void __launch_bounds__(256, DIM * sizeof(T) > 32 || EDGES ? 2 : 3)
    direct_attend(const __grid_constant__ tile_params p) {
  using work_t = direct_forward<OP, T, EXACT, DIM, EDGES>;
  ptx::let_next_begin();
  /* The warps of a head are a power of two. */
  const int shift = __ffs(p.rows / 16) - 1, at = threadIdx.x / 32;
  const int heads = blockDim.x / 32 >> shift, lane = threadIdx.x & 31;
  const int warp = __shfl_sync(kFullMask, at & ((1 << shift) - 1), 0);
  const int head = blockIdx.y * heads + __shfl_sync(kFullMask, at >> shift, 0);
  const dfgnn_tile item = p.items[blockIdx.x];
  const bool idle = head >= p.heads || 16 * warp >= item.rows;
  if (idle && (!work_t::DROPS || item.flags & DFGNN_TILE_DUPLICATES))
    return;
  if (item.flags & DFGNN_TILE_DUPLICATES) {
#pragma unroll 1
    for (int r = 16 * warp; r < min(16 * warp + 16, item.rows); ++r)
      tile_slow_row<OP, T, DIM, EDGES>(p, item.row + r, head, lane);
    return;
  }
  work_t work{p, item, min(head, p.heads - 1), warp, lane, idle};
  if constexpr (work_t::DROPS) {
    __shared__ uint32_t words[work_t::draws::WORDS];
    work.dropout.begin(p, words, p.rows, {p.offsets, p.offsets64}, item);
  }
  work.run();
}

} // namespace dfgnn

#endif
