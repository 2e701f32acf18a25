/* direct_dropout.cuh - the weights that dropout keeps, as words like those of
 * masks
 *
 * A word of the generator serves two heads of an edge, and a warp of `direct`
 * has one head.  So the threads of a block draw for all heads of the block, a
 * few chunks of columns ahead, and leave the words in shared memory. */
#ifndef DFGNN_ATTENTION_CUDA_DIRECT_DROPOUT_CUH
#define DFGNN_ATTENTION_CUDA_DIRECT_DROPOUT_CUH

#include "kernels/attention/cuda/tile_edges.cuh"

namespace dfgnn {

/* COLUMNS: the walk is over the transpose. */
template <bool COLUMNS, int EDGES> struct block_dropout {
  static constexpr int CHUNKS = 4; /* of a draw: a task for each thread */
  static constexpr int WORDS = CHUNKS * DFGNN_TILE_MOST_ROWS;

  uint32_t *words; /* [CHUNKS][heads][rows], WORDS at most, shared */
  int rows, heads; /* of the block */
  int first_head;
  uint64_t key;
  int64_t place; /* of the first edge that follows, in the thread's row */

  /* The row that the thread draws for; the number of rows is a power of two. */
  DEVICE int row() const { return threadIdx.x & (rows - 1); }

  /* rows: of a window of the view; offsets: of the matrix that is walked. */
  template <class Params>
  DEVICE void begin(const Params &p, uint32_t *shared, int rows_of_window,
                    const offsets_t &offsets, const dfgnn_tile &item) {
    words = shared;
    rows = rows_of_window;
    heads = blockDim.x / 32 / (rows / 16);
    first_head = blockIdx.y * heads;
    key = edge_key<EDGES>(p);
    place = offsets[item.row + min(row(), item.rows - 1)];
  }

  /* Bit c: is the weight of a row's edge to column c of the chunk kept? */
  DEVICE unsigned kept(int chunk, int head, int row) const {
    return words[(chunk % CHUNKS * heads + head - first_head) * rows + row];
  }

  /* All threads of the block draw for `chunks` chunks, which begin at masks. */
  template <class Params>
  DEVICE void draw(const Params &p, const uint32_t *masks, int chunks) {
    const int pairs = (first_head + heads - 1) / 2 - first_head / 2 + 1;
    unsigned mask[CHUNKS];
    unroll<CHUNKS>([&](int c) {
      mask[c] = c < chunks ? __ldg(masks + c * rows + row()) : 0;
    });
    __syncthreads(); /* the words before are read */
    int i = threadIdx.x >> (__ffs(rows) - 1), chunk = 0;
#pragma unroll 1
    for (;; i += 2 * heads) {
      for (; i >= pairs; i -= pairs)
        ++chunk;
      if (chunk >= CHUNKS)
        break;
      draw_pair(p, mask, chunk, first_head / 2 + i);
    }
    unroll<CHUNKS>([&](int c) { place += __popc(mask[c]); });
    __syncthreads();
  }

  /* Draws for heads 2 pair and 2 pair + 1 in a chunk of the thread's row. */
  template <class Params>
  DEVICE void draw_pair(const Params &p, const unsigned (&mask)[CHUNKS],
                        int chunk, int pair) const {
    int64_t at = place;
    unsigned left = mask[0], even = 0, odd = 0;
#pragma unroll
    for (int c = 1; c < CHUNKS; ++c) {
      at += c <= chunk ? __popc(mask[c - 1]) : 0;
      left = c == chunk ? mask[c] : left;
    }
    const auto take = [&](uint64_t counter) {
      const uint64_t word = dfgnn__splitmix(counter);
      const unsigned bit = left & (0 - left);
      even |= unsigned(word >> 32) >= p.dropout.threshold ? bit : 0;
      odd |= unsigned(word) >= p.dropout.threshold ? bit : 0;
      left ^= bit;
    };
    if (COLUMNS || p.dropout.number) {
#pragma unroll 1
      for (; left; ++at) {
        const int64_t edge = edge_number<COLUMNS, EDGES>(p, at);
        take(dfgnn__dropout_counter(
            key, p.dropout.number ? p.dropout.number[edge] : edge, p.heads,
            pair));
      }
    } else {
      const uint64_t step = dfgnn__dropout_step(p.heads);
      uint64_t counter = dfgnn__dropout_counter(key, at, p.heads, pair);
#pragma unroll 1
      for (; left; counter += step)
        take(counter);
    }
    const int head = 2 * pair - first_head;
    uint32_t *to = words + (chunk * heads + head) * rows + row();
    if (head >= 0)
      to[0] = even;
    if (head + 1 < heads)
      to[rows] = odd;
  }
};

} // namespace dfgnn

#endif
