/* last_rows.cuh - the way back from e' to the last layer's z, through the norm
 *
 * Lanes of a warp, 16 or 8, take one row after the other.  They read a row once
 * and keep it in registers, a few columns in each lane, through the norm's
 * reductions; rows of the next edges are copied to shared memory meanwhile. */
#ifndef DFGNN_MLP_CUDA_LAST_ROWS_CUH
#define DFGNN_MLP_CUDA_LAST_ROWS_CUH

#include "kernels/mlp/cuda/tile.cuh"

namespace dfgnn {
namespace mlp {

/* A block of edges keeps the place and the ends of each. */
struct block_edges {
  int64_t place[MLP_ROWS]; /* in the caller's list */
  int row[MLP_ROWS], source[MLP_ROWS];

  /* first: of the graph.  Threads from 0 to MLP_ROWS - 1 call it. */
  DEVICE void read(const mlp_graph &graph, int64_t first, int count) {
    const int i = int(threadIdx.x);
    if (i >= count)
      return;
    row[i] = __ldg(graph.row_of_edge + first + i);
    source[i] = __ldg(graph.indices + first + i);
    place[i] = graph.edge_order ? entry(graph.edge_order, graph.wide, first + i)
                                : first + i;
  }
};

/* WIDTH: of e', 128 at most. */
template <typename T_, int FLAGS, int NORM_, int WIDTH_> struct last_shape {
  using T = T_;
  static constexpr int VEC = 8; /* columns of a chunk */
  static constexpr int WIDTH = WIDTH_;
  static constexpr int LANES = WIDTH > 8 * VEC ? 16 : 8; /* of a row */
  static constexpr bool GRAD_EDGES = (FLAGS & MLP_GRAD_EDGES) != 0;
  static constexpr bool GRAD_DST = (FLAGS & MLP_GRAD_DST) != 0;
  static constexpr int NORM = NORM_;
  static constexpr int CHUNKS = (WIDTH + LANES * VEC - 1) / (LANES * VEC);
  /* Rows that are copied to shared memory while others are worked on: z where
   * there is a norm, and gradients. */
  static constexpr int COPIES = (NORM != MLP_NORM_NONE) + GRAD_EDGES + GRAD_DST;
  static constexpr int COPY_BYTES = /* of a warp's rows */
      32 / LANES * COPIES * WIDTH * int(sizeof(T));
};

/* A lane's numbers of a row: chunk LANES k + lane of the row is number k. */
template <class S> struct lane_row { float x[S::CHUNKS][S::VEC]; };
/* A sum over the lanes of a row; which of them a lane is. */
template <class S> DEVICE float sum_of_row(float x) {
  return lanes_sum<S::LANES>(x);
}
template <class S> DEVICE int lane_of_row() {
  return ptx::lane_id() % S::LANES;
}

/* Calls f(k, the chunk's first column) for each chunk of the lane. */
template <class S, typename F> DEVICE void each_chunk(F f) {
  constexpr int STEP = S::LANES * S::VEC;
  const int column = lane_of_row<S>() * S::VEC;
#pragma unroll
  for (int k = 0; k < S::CHUNKS; ++k)
    if ((k + 1) * STEP <= S::WIDTH || k * STEP + column < S::WIDTH)
      f(k, k * STEP + column);
}

/* Reads a row that was copied to shared memory.  Nothing waits for a number
 * before all of the row are on their way. */
template <class S>
DEVICE void read_row(lane_row<S> &x, const typename S::T *row) {
  each_chunk<S>([&](int k, int column) {
    packed<typename S::T, S::VEC> y;
    y.bits = *reinterpret_cast<const decltype(y.bits) *>(row + column);
    widen(x.x[k], y);
  });
}

/* z of the last layer, of an edge of the launch. */
template <class S>
DEVICE const typename S::T *last_row(const mlp_rows_params &p, int64_t edge) {
  return static_cast<const typename S::T *>(p.last) + edge * S::WIDTH;
}

/* Norms the row without the norm's weight and bias; returns its scale. */
template <class S> DEVICE float norm_row(lane_row<S> &u, float epsilon) {
  if constexpr (S::NORM == MLP_NORM_NONE)
    return 1.0f;
  float mean = 0.0f, squares = 0.0f;
  if constexpr (S::NORM == MLP_NORM_LAYER) {
    each_chunk<S>([&](int k, int) {
#pragma unroll
      for (int i = 0; i < S::VEC; ++i)
        mean += u.x[k][i];
    });
    mean = sum_of_row<S>(mean) / float(S::WIDTH);
  }
  each_chunk<S>([&](int k, int) {
#pragma unroll
    for (int i = 0; i < S::VEC; ++i) {
      u.x[k][i] -= mean;
      squares += u.x[k][i] * u.x[k][i];
    }
  });
  const float scale =
      1.0f / sqrtf(sum_of_row<S>(squares) / float(S::WIDTH) + epsilon);
  each_chunk<S>([&](int k, int) {
#pragma unroll
    for (int i = 0; i < S::VEC; ++i)
      u.x[k][i] *= scale;
  });
  return scale;
}

/* Numbers of the norm, `absent` if it has none. */
template <class S>
DEVICE void read_norm(lane_row<S> &x, const void *from, float absent) {
  using T = typename S::T;
  each_chunk<S>([&](int k, int column) {
#pragma unroll
    for (int i = 0; i < S::VEC; ++i)
      x.x[k][i] =
          from ? widen(static_cast<const T *>(from)[column + i]) : absent;
  });
}

/* A lane reads these rows of an edge, or their copies. */
template <class S> struct edge_inputs {
  using T = typename S::T;
  const T *z, *own, *destination;

  DEVICE static T *copy_of(char *copies, int n) {
    const int row = ptx::lane_id() / S::LANES;
    return reinterpret_cast<T *>(copies) + (row * S::COPIES + n) * S::WIDTH;
  }
  /* A lane copies what it reads. */
  DEVICE static void copy(char *copies, int n, const T *row) {
    each_chunk<S>([&](int, int column) {
      copy_async(copy_of(copies, n) + column, row + column, MLP_CHUNK);
    });
  }

  DEVICE void begin(const mlp_rows_params &p, const block_edges &e,
                    int64_t from, int i) {
    const mlp_backward_params &b = p.pass;
    if constexpr (S::NORM != MLP_NORM_NONE)
      z = last_row<S>(p, from + i);
    if constexpr (S::GRAD_EDGES)
      own = static_cast<const T *>(b.grad_edge_out) + e.place[i] * S::WIDTH;
    if constexpr (S::GRAD_DST)
      destination =
          static_cast<const T *>(b.grad_out_dst) + int64_t(e.row[i]) * S::WIDTH;
  }
  /* Calls f(row, number of its copy) for each row that there is. */
  template <typename F> DEVICE void each_row(F f) {
    int n = 0;
    if constexpr (S::NORM != MLP_NORM_NONE)
      f(z, n++);
    if constexpr (S::GRAD_EDGES)
      f(own, n++);
    if constexpr (S::GRAD_DST)
      f(destination, n++);
  }
  /* Begins to copy the rows. */
  DEVICE void send(char *copies) {
    each_row([&](const T *&row, int n) { copy(copies, n, row); });
  }
  /* Reads the copies from now on. */
  DEVICE void take(char *copies) {
    each_row([&](const T *&row, int n) { row = copy_of(copies, n); });
  }
};

/* The gradient with respect to e'; factor: of that of the destination. */
template <class S>
DEVICE void read_gradient(lane_row<S> &y, const edge_inputs<S> &rows,
                          float factor) {
  lane_row<S> destination;
  y = {};
  if constexpr (S::GRAD_EDGES)
    read_row<S>(y, rows.own);
  if constexpr (S::GRAD_DST) {
    read_row<S>(destination, rows.destination);
    each_chunk<S>([&](int k, int) {
#pragma unroll
      for (int j = 0; j < S::VEC; ++j)
        y.x[k][j] += destination.x[k][j] * factor;
    });
  }
}

/* A warp goes back through the norms of its rows. */
template <class S> struct rows_back {
  using T = typename S::T;
  lane_row<S> norm_weight;
  lane_row<S> affine[2]; /* sums of the gradients of the norm's weight, bias */

  DEVICE void begin(const mlp_rows_params &p) {
    affine[0] = affine[1] = {};
    if constexpr (S::NORM != MLP_NORM_NONE)
      read_norm<S>(norm_weight, p.norm_weight, 1.0f);
  }

  /* y, the gradient with respect to e', becomes that with respect to the value
   * before the norm. */
  DEVICE void norm(lane_row<S> &y, const lane_row<S> &normed, float scale) {
    float mean = 0.0f, along = 0.0f;
    each_chunk<S>([&](int k, int) {
#pragma unroll
      for (int j = 0; j < S::VEC; ++j) {
        affine[0].x[k][j] += y.x[k][j] * normed.x[k][j];
        affine[1].x[k][j] += y.x[k][j];
        y.x[k][j] *= norm_weight.x[k][j];
        mean += y.x[k][j];
        along += y.x[k][j] * normed.x[k][j];
      }
    });
    mean = S::NORM == MLP_NORM_LAYER ? sum_of_row<S>(mean) / float(S::WIDTH)
                                     : 0.0f;
    along = sum_of_row<S>(along) / float(S::WIDTH);
    each_chunk<S>([&](int k, int) {
#pragma unroll
      for (int j = 0; j < S::VEC; ++j)
        y.x[k][j] = scale * (y.x[k][j] - mean - normed.x[k][j] * along);
    });
  }

  /* Edge i of the block, whose first is `from` of the launch; a lane whose edge
   * is not live works on another's row, and adds and writes nothing. */
  DEVICE void row(const mlp_rows_params &p, const block_edges &e,
                  const edge_inputs<S> &rows, void *grad_z, int64_t from, int i,
                  bool live) {
    T *to = static_cast<T *>(grad_z) + (from + i) * S::WIDTH;
    lane_row<S> normed, y;
    read_gradient<S>(
        y, rows,
        mean_factor(p.pass.dst_offsets, p.pass.forward.graph.wide, e.row[i]));
    if (S::LANES < 32 && !live)
      y = {};
    if constexpr (S::NORM != MLP_NORM_NONE) {
      read_row<S>(normed, rows.z);
      const float scale = norm_row<S>(normed, p.pass.forward.epsilon);
      norm(y, normed, scale);
    }
    each_chunk<S>([&](int k, int column) {
      if (live)
        store_packed<S::VEC>(to + column, y.x[k]);
    });
  }

  /* Adds the block's warps' sums of the norm's gradients in order, those of a
   * warp's rows first.  shared: [2, WIDTH]; to: the same of the block. */
  DEVICE void end(float *shared, float *to, bool add) {
    lane_row<S>(&x)[2] = affine;
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
      for (int k = 0; k < S::CHUNKS; ++k)
#pragma unroll
        for (int j = 0; j < S::VEC; ++j)
#pragma unroll
          for (int mask = S::LANES; mask < 32; mask *= 2)
            x[n].x[k][j] += __shfl_xor_sync(kFullMask, x[n].x[k][j], mask);
    for (int w = 0; w < int(blockDim.x) / 32; ++w) {
      if (w == int(threadIdx.x) / 32 && ptx::lane_id() < S::LANES)
        each_chunk<S>([&](int k, int column) {
#pragma unroll
          for (int j = 0; j < S::VEC; ++j)
#pragma unroll
            for (int n = 0; n < 2; ++n) {
              float *at = shared + n * S::WIDTH + column + j;
              *at = x[n].x[k][j] + (w ? *at : 0.0f);
            }
        });
      __syncthreads();
    }
    for (int c = int(threadIdx.x); c < 2 * S::WIDTH; c += int(blockDim.x))
      to[c] = shared[c] + (add ? to[c] : 0.0f);
    __syncthreads();
  }
};

/* A block's warps go back through its edges, each through ROWS at a time; the
 * rows of the next are copied to `memory` meanwhile. */
template <class S>
DEVICE void walk_back_rows(rows_back<S> &work, const mlp_rows_params &p,
                           const block_edges &e, char *memory, void *grad_z,
                           int64_t from, int count) {
  constexpr int ROWS = 32 / S::LANES, STEP = MLP_ROW_WARPS * ROWS;
  const int warp = int(threadIdx.x) / 32, lane = ptx::lane_id() / S::LANES;
  char *copies = memory + warp * 2 * S::COPY_BYTES;
  int stage = 0;
  edge_inputs<S> next;
  if (warp * ROWS < count) {
    next.begin(p, e, from, min(warp * ROWS + lane, count - 1));
    next.send(copies);
  }
  copy_commit();
  for (int i = warp * ROWS; i < count; i += STEP) {
    const int mine = i + lane;
    edge_inputs<S> rows = next;
    rows.take(copies + stage * S::COPY_BYTES);
    stage ^= 1;
    if (i + STEP < count) {
      next.begin(p, e, from, min(mine + STEP, count - 1));
      next.send(copies + stage * S::COPY_BYTES);
    }
    copy_commit();
    copy_wait<1>();
    work.row(p, e, rows, grad_z, from, min(mine, count - 1), mine < count);
  }
}

} // namespace mlp

/* Blocks walk over all edges of the launch.  grad_z: with respect to the last
 * layer's z, rows like those of p.last. */
template <typename T, int FLAGS, int NORM, int WIDTH>
__global__ void __launch_bounds__(MLP_ROW_WARPS * 32)
    mlp_last_rows(const mlp_rows_params p, void *grad_z) {
  using S = mlp::last_shape<T, FLAGS, NORM, WIDTH>;
  __shared__ mlp::block_edges edges;
  __shared__ float sums[NORM != MLP_NORM_NONE ? 2 * WIDTH : 1];
  extern __shared__ uint4 memory[];
  mlp::rows_back<S> work;
  work.begin(p);
  for (int64_t from = int64_t(blockIdx.x) * MLP_ROWS; from < p.edges;
       from += int64_t(gridDim.x) * MLP_ROWS) {
    const int count = int(min(p.edges - from, int64_t(MLP_ROWS)));
    if (int(threadIdx.x) < MLP_ROWS)
      edges.read(p.pass.forward.graph, p.first + from, count);
    __syncthreads();
    mlp::walk_back_rows<S>(work, p, edges, reinterpret_cast<char *>(memory),
                           grad_z, from, count);
    __syncthreads();
  }
  if (NORM != MLP_NORM_NONE && p.pass.norm_partial)
    work.end(sums, p.pass.norm_partial + int64_t(blockIdx.x) * 2 * WIDTH,
             p.pass.add);
}

} // namespace dfgnn

#endif
