/* passes.cuh - device code of the separate passes: scores of edges by
 * groups of lanes, softmax of a row by a team, weighted sum of gathered rows */
#ifndef DFGNN_ATTENTION_CUDA_PASSES_CUH
#define DFGNN_ATTENTION_CUDA_PASSES_CUH

#include "kernels/attention/cuda/passes.h"
#include "kernels/attention/cuda/score.cuh"
#include "kernels/common/cuda_common.cuh"

namespace dfgnn {

constexpr int kPassThreads = PASS_THREADS;
constexpr int kPassWarps = kPassThreads / 32;
constexpr int kScoreEdges = 2; /* in flight in a group */
constexpr int kGatherEdges = 4;
constexpr int kHeldScores = 4; /* in the registers of a lane */

template <typename A> DEVICE A ln2() { return A(kLn2); }
template <typename A> DEVICE A minus_infinity() { return A(-INFINITY); }

template <typename T, int VEC> DEVICE packed<T, VEC> empty_packed() {
  packed<T, VEC> x;
  x.bits = typename packed<T, VEC>::word_t{};
  return x;
}

template <typename T, int VEC>
DEVICE packed<T, VEC> load_operand(const dfgnn_operand &x, int64_t node,
                                   int head, int64_t vector) {
  const T *p = static_cast<const T *>(x.data) + node * x.node + head * x.head;
  return load_packed<VEC>(p + (VEC == 1 ? vector * x.feature : vector * VEC));
}

/* The score of an edge whose row's and key's squares of norms are given. */
template <typename T, int OP>
DEVICE accumulator_t<T>
finish_score(const dfgnn_passes &p, accumulator_t<T> sum,
             accumulator_t<T> key_norm, accumulator_t<T> query_norm) {
  using A = accumulator_t<T>;
  constexpr bool NORM = score_of<OP>::NORM;
  return whole_score<OP>(sum, NORM ? inverse_norm(query_norm) : A(0),
                         NORM ? inverse_norm(key_norm) : A(0),
                         NORM && p.beta ? *static_cast<const A *>(p.beta)
                                        : A(1),
                         A(p.slope), A(p.scale));
}

/* The score of an edge that is made of numbers of both nodes. */
template <typename T, int OP>
DEVICE accumulator_t<T> scalar_score(const dfgnn_passes &p, int64_t row,
                                     int64_t column, int head) {
  using A = accumulator_t<T>;
  return whole_score<OP>(
      A(0), static_cast<const A *>(p.score_dst)[row * p.heads + head],
      static_cast<const A *>(p.score_src)[column * p.heads + head], A(1),
      A(p.slope), A(p.scale));
}

/* The row of an edge's query, kept while consecutive edges share it. */
template <typename T, int OP, int VEC> struct query_cache {
  using A = accumulator_t<T>;
  static constexpr int kScoreVectors = PASS_HELD_VECTORS(VEC);
  static constexpr bool HEAD = score_of<OP>::HEAD;
  A item[kScoreVectors][VEC];
  A att[HEAD ? kScoreVectors : 1][VEC];
  int row = -1;

  DEVICE query_cache() {
    unroll<kScoreVectors, VEC>([&](int n, int i) {
      item[n][i] = 0;
      att[HEAD ? n : 0][i] = 0;
    });
  }

  DEVICE void load(const dfgnn_passes &p, int to_row, int head, int first,
                   int step, int vectors) {
    row = to_row;
    unroll<kScoreVectors>([&](int n) {
      int v = first + n * step;
      if (v < vectors)
        widen(item[n], load_operand<T, VEC>(p.query, row, head, v));
    });
  }

  DEVICE void load_att(const dfgnn_passes &p, int head, int first, int step,
                       int vectors) {
    if (!HEAD)
      return;
    const T *from = static_cast<const T *>(p.att) + int64_t(head) * p.dim;
    unroll<kScoreVectors>([&](int n) {
      int v = first + n * step;
      if (v < vectors)
        widen(att[HEAD ? n : 0], load_packed<VEC>(from + v * VEC));
    });
  }
};

/* Scores edges first .. end - 1 of one head by an aligned group of `lanes`
 * lanes.  All lanes of the warp call it with the same lanes and steps >= the
 * edges of every group.  row_of(e) is called with rising e. */
template <typename T, int OP, int VEC, typename RowOf, typename Write>
DEVICE void score_edges(const dfgnn_passes &p, int head, int64_t first,
                        int64_t end, int64_t steps, int lanes, RowOf row_of,
                        Write write) {
  using A = accumulator_t<T>;
  using Score = score_of<OP>;
  constexpr int kScoreVectors = PASS_HELD_VECTORS(VEC);
  const int lane = threadIdx.x & (lanes - 1);
  if (!Score::SUM) {
    for (int64_t e = first + lane; e < end; e += lanes)
      write(e, scalar_score<T, OP>(p, row_of(e), p.indices[e], head));
    return;
  }
  const int vectors = p.dim / VEC, part = lanes * kScoreVectors;
  const bool whole = vectors <= part;
  const dfgnn_operand &key = Score::KEY ? p.key : p.value;
  query_cache<T, OP, VEC> q;
  if (whole)
    q.load_att(p, head, lane, lanes, vectors);
  /* Rows and columns of the next edges are loaded while these are scored. */
  int next_row[kScoreEdges];
  int next_column[kScoreEdges];
  auto look_ahead = [&](int64_t step) {
    unroll<kScoreEdges>([&](int u) {
      int64_t e = first + step + u;
      bool ok = step + u < steps && e < end;
      next_column[u] = ok ? __ldg(p.indices + e) : -1;
      next_row[u] = ok ? int(row_of(e)) : -1;
    });
  };
  look_ahead(0);
  for (int64_t step = 0; step < steps; step += kScoreEdges) {
    int row[kScoreEdges];
    int column[kScoreEdges];
    A sum[kScoreEdges], key_norm[kScoreEdges], query_norm[kScoreEdges];
    unroll<kScoreEdges>([&](int u) {
      column[u] = next_column[u];
      row[u] = next_row[u];
      sum[u] = key_norm[u] = query_norm[u] = 0;
    });
    look_ahead(step + kScoreEdges);
    for (int base = lane; base < vectors + lane; base += part) {
      packed<T, VEC> k[kScoreEdges][kScoreVectors];
      unroll<kScoreEdges, kScoreVectors>([&](int u, int n) {
        int v = base + n * lanes;
        k[u][n] = column[u] >= 0 && v < vectors
                      ? load_operand<T, VEC>(key, column[u], head, v)
                      : empty_packed<T, VEC>();
      });
      if (!whole)
        q.load_att(p, head, base, lanes, vectors);
#pragma unroll
      for (int u = 0; u < kScoreEdges; u++) {
        if (row[u] >= 0 && (row[u] != q.row || !whole))
          q.load(p, row[u], head, base, lanes, vectors);
#pragma unroll
        for (int n = 0; n < kScoreVectors; n++) {
          if (base + n * lanes >= vectors)
            break;
          A x[VEC];
          widen(x, k[u][n]);
          unroll<VEC>([&](int i) {
            A y = q.item[n][i];
            sum[u] +=
                Score::term(y, x[i], q.att[Score::HEAD ? n : 0][i], A(p.slope));
            if (Score::NORM) {
              key_norm[u] += x[i] * x[i];
              query_norm[u] += y * y;
            }
          });
        }
      }
    }
    unroll<kScoreEdges>([&](int u) {
      for (int o = lanes / 2; o > 0; o /= 2) {
        sum[u] += __shfl_xor_sync(kFullMask, sum[u], o);
        if (Score::NORM) {
          key_norm[u] += __shfl_xor_sync(kFullMask, key_norm[u], o);
          query_norm[u] += __shfl_xor_sync(kFullMask, query_norm[u], o);
        }
      }
      if (lane == 0 && column[u] >= 0)
        write(first + step + u,
              finish_score<T, OP>(p, sum[u], key_norm[u], query_norm[u]));
    });
  }
}

/* The threads that work on one row: a warp, or a block of kPassWarps. */
template <typename A> struct team {
  int rank, size; /* the number of this thread, and of all threads */
  A *scratch;     /* shared, a number for each warp; NULL: the team is a warp */

  DEVICE void sync() const {
    if (scratch)
      __syncthreads();
    else
      __syncwarp();
  }
  template <typename F> DEVICE A join(A x, F f) const {
    if (!scratch)
      return x;
    __syncthreads();
    if (threadIdx.x % 32 == 0)
      scratch[threadIdx.x / 32] = x;
    __syncthreads();
    x = scratch[0];
    for (int w = 1; w < kPassWarps; w++)
      x = f(x, scratch[w]);
    return x;
  }
  DEVICE A max(A x) const {
    return join(lanes_max<32>(x), [](A a, A b) { return max_of(a, b); });
  }
  DEVICE A sum(A x) const {
    return join(lanes_sum<32>(x), [](A a, A b) { return a + b; });
  }
};

template <typename A>
DEVICE void store_weight(const dfgnn_passes &p, A *s, int64_t k, int64_t first,
                         int head, A w) {
  s[k] = w;
  if (p.weights)
    static_cast<A *>(p.weights)[(first + k) * p.heads + head] = w;
}

/* Computes the softmax of one head of a row, whose scores are the first
 * `degree` numbers of s; a warp holds them in registers if they fit. */
template <typename A>
DEVICE void softmax_row(const dfgnn_passes &p, const team<A> &t, A *s,
                        int64_t row, int64_t first, int64_t degree, int head) {
  const bool held = !t.scratch && degree <= 32 * kHeldScores;
  A x[kHeldScores];
  A most = minus_infinity<A>(), total = 0;
  if (held) {
    unroll<kHeldScores>([&](int i) {
      int k = t.rank + 32 * i;
      x[i] = k < degree ? s[k] : minus_infinity<A>();
      most = max_of(most, x[i]);
    });
  } else {
#pragma unroll 4
    for (int64_t k = t.rank; k < degree; k += t.size)
      most = max_of(most, s[k]);
  }
  most = t.max(most);
  const A maximum = most == minus_infinity<A>() ? A(0) : most;
  if (held) {
    unroll<kHeldScores>([&](int i) {
      x[i] = exp2_fast(x[i] - maximum);
      total += x[i];
    });
  } else {
#pragma unroll 4
    for (int64_t k = t.rank; k < degree; k += t.size)
      total += exp2_fast(s[k] - maximum);
  }
  total = t.sum(total);
  const A inverse = total == A(0) ? A(0) : A(1) / total;
  if (held) {
    unroll<kHeldScores>([&](int i) {
      if (t.rank + 32 * i < degree)
        store_weight(p, s, t.rank + 32 * i, first, head, x[i] * inverse);
    });
  } else {
#pragma unroll 4
    for (int64_t k = t.rank; k < degree; k += t.size)
      store_weight(p, s, k, first, head, exp2_fast(s[k] - maximum) * inverse);
  }
  if (p.lse && t.rank == 0)
    static_cast<A *>(p.lse)[row * p.heads + head] =
        total == A(0) ? minus_infinity<A>()
                      : (maximum + log2_of(total)) * ln2<A>();
  t.sync();
}

/* The first column index of a row that a thread of the team hands out. */
template <typename A>
DEVICE int first_columns_of(const dfgnn_passes &p, const team<A> &t,
                            int64_t first, int64_t degree) {
  return t.rank < degree ? __ldg(p.indices + first + t.rank) : 0;
}

/* Writes out in heads head .. head + heads - 1 of a row: the sum of gathered
 * rows by weights w[h * plane + k].  part: shared, 32 * VEC sums for each warp
 * of a block.  */
template <typename T, int VEC>
DEVICE void gather_row(const dfgnn_passes &p, const team<accumulator_t<T>> &t,
                       const accumulator_t<T> *w, int64_t plane, int64_t row,
                       int64_t first, int64_t degree, int head, int heads,
                       int first_columns, accumulator_t<T> (*part)[32 * VEC]) {
  using A = accumulator_t<T>;
  const int vectors = heads * (p.dim / VEC), lanes = pass_lanes(vectors);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int groups = 32 / lanes, group = lane / lanes;
  for (int tile = 0; tile < vectors; tile += lanes) {
    const int v = tile + (lane & (lanes - 1));
    const bool ok = v < vectors;
    const int h = ok ? v / (p.dim / VEC) : 0, d = ok ? v % (p.dim / VEC) : 0;
    const A *mine = w + h * plane;
    const int64_t stride = p.value.node;
    const T *from = static_cast<const T *>(p.value.data) +
                    (head + h) * p.value.head +
                    (VEC == 1 ? d * p.value.feature : d * VEC);
    A sum[VEC];
    unroll<VEC>([&](int i) { sum[i] = 0; });
    /* A warp reads 32 column indices at once and hands them out. */
    for (int64_t base = t.rank - lane; base < degree; base += t.size) {
      const int left = int(min(degree - base, int64_t(32)));
      const int mine_of = base == t.rank - lane ? first_columns
                          : lane < left ? __ldg(p.indices + first + base + lane)
                                        : 0;
      for (int j = 0; j * groups < left; j += kGatherEdges) {
        packed<T, VEC> x[kGatherEdges];
        A weight[kGatherEdges];
        unroll<kGatherEdges>([&](int u) {
          const int at = (j + u) * groups + group;
          const int column = __shfl_sync(kFullMask, mine_of, at & 31);
          weight[u] = 0;
          x[u] = empty_packed<T, VEC>();
          if (ok && at < left) {
            x[u] = load_packed<VEC>(from + column * stride);
            weight[u] = mine[base + at];
          }
        });
        unroll<kGatherEdges>([&](int u) {
          A y[VEC];
          widen(y, x[u]);
          unroll<VEC>([&](int i) { sum[i] += weight[u] * y[i]; });
        });
      }
    }
    unroll<VEC>([&](int i) {
      for (int o = lanes; o < 32; o *= 2)
        sum[i] += __shfl_xor_sync(kFullMask, sum[i], o);
    });
    if (t.scratch) {
      __syncthreads();
      unroll<VEC>([&](int i) { part[warp][lane * VEC + i] = sum[i]; });
      __syncthreads();
      for (int other = 1; warp == 0 && other < kPassWarps; other++)
        unroll<VEC>([&](int i) { sum[i] += part[other][lane * VEC + i]; });
    }
    if (ok && lane < lanes && (!t.scratch || warp == 0)) {
      const dfgnn_operand &out = p.out;
      T *to = static_cast<T *>(const_cast<void *>(out.data)) + row * out.node +
              (head + h) * out.head + (VEC == 1 ? d * out.feature : d * VEC);
      store_packed<VEC, T>(to, sum);
    }
  }
}

/* ---- kernels ------------------------------------------------------------- */

/* Every group of lanes takes `chunk` consecutive edges of one head; groups side
 * by side take the heads of the same edges. */
template <typename T, int OP, int VEC>
__global__ void __launch_bounds__(kPassThreads, sizeof(T) * VEC == 16 ? 3 : 1)
    edge_scores(const __grid_constant__ dfgnn_passes p, int lanes, int chunk) {
  using A = accumulator_t<T>;
  int64_t group = (int64_t(blockIdx.x) * kPassThreads + threadIdx.x) / lanes;
  int head = int(group % p.heads);
  int64_t first = group / p.heads * chunk, end = min(first + chunk, p.edges);
  A *plane = static_cast<A *>(const_cast<void *>(p.scores)) + head * p.edges;
  score_edges<T, OP, VEC>(
      p, head, first, end, chunk, lanes,
      [&](int64_t e) { return int64_t(__ldg(p.row_of_edge + e)); },
      [&](int64_t e, A s) { plane[e] = s; });
}

/* Softmax of a row's scores, the sum of its gathered rows, or both. */
template <typename T, int VEC, bool GATHER>
DEVICE void one_row(const dfgnn_passes &p, const team<accumulator_t<T>> &t,
                    int64_t row, int64_t first, int64_t degree, int what,
                    accumulator_t<T> (*part)[32 * VEC]) {
  using A = accumulator_t<T>;
  A *w = static_cast<A *>(const_cast<void *>(p.scores)) + first;
  const int columns = GATHER ? first_columns_of(p, t, first, degree) : 0;
  if (what & DFGNN_ROWS_SOFTMAX)
    for (int head = 0; head < p.heads; head++)
      softmax_row<A>(p, t, w + head * p.edges, row, first, degree, head);
  if (GATHER)
    gather_row<T, VEC>(p, t, w, p.edges, row, first, degree, 0, p.heads,
                       columns, part);
}

/* Softmax alone needs few registers. */
template <typename T, int VEC, bool GATHER>
__global__ void __launch_bounds__(kPassThreads, GATHER ? 3 : 4)
    pass_rows(const __grid_constant__ dfgnn_passes p, int what, int rows) {
  using A = accumulator_t<T>;
  __shared__ A scratch[kPassWarps];
  __shared__ A part[GATHER ? kPassWarps : 1][32 * VEC];
  const int warp = threadIdx.x / 32;
  const int64_t block = int64_t(blockIdx.x) * rows;
  offsets_t offsets = {p.offsets, p.offsets64};
  const int64_t end = min(block + rows, p.rows);
  bool heavy = false;
  for (int64_t row = block + warp; row < end; row += kPassWarps) {
    int64_t first = offsets[row], degree = offsets[row + 1] - first;
    if (degree > p.heavy) {
      heavy = true;
      continue;
    }
    team<A> t = {int(threadIdx.x % 32), 32, nullptr};
    one_row<T, VEC, GATHER>(p, t, row, first, degree, what, part);
  }
  if (!__syncthreads_or(heavy))
    return;
  team<A> t = {int(threadIdx.x), kPassThreads, scratch};
  for (int64_t row = block; row < end; row++) {
    int64_t first = offsets[row], degree = offsets[row + 1] - first;
    if (degree > p.heavy)
      one_row<T, VEC, GATHER>(p, t, row, first, degree, what, part);
  }
}

/* ---- smmf ----------------------------------------------------------------
 *
 * A block owns some rows, shares their edges evenly among its groups of lanes,
 * and keeps the scores in shared memory until the rows are summed; a block
 * whose scores take more than `shared` bytes keeps them in passes.scores. */

/* Scores the block's edges in heads head .. head + heads - 1. */
template <typename T, int OP, int VEC>
DEVICE void block_scores(const dfgnn_passes &p, const int64_t *begin, int rows,
                         int64_t first_row, int head, int heads,
                         accumulator_t<T> *s, int64_t plane, int lanes) {
  using A = accumulator_t<T>;
  const int64_t base = begin[0], edges = begin[rows] - base;
  const int groups = kPassThreads / lanes, group = threadIdx.x / lanes;
  const int pieces = heads < groups ? groups / heads : 1;
  const int64_t share = (edges + pieces - 1) / pieces;
  for (int unit = 0; unit < heads * pieces; unit += groups) {
    const int mine = unit + group, h = mine % heads;
    const int64_t first = base + mine / heads * share;
    const int64_t end =
        mine < heads * pieces ? min(first + share, base + edges) : first;
    int r = 0;
    score_edges<T, OP, VEC>(
        p, head + h, first, end, share, lanes,
        [&](int64_t e) {
          while (e >= begin[r + 1])
            r++;
          return first_row + r;
        },
        [&](int64_t e, A x) { s[h * plane + e - base] = x; });
  }
}

template <typename T, int OP, int VEC>
__global__ void __launch_bounds__(kPassThreads)
    smmf(const __grid_constant__ dfgnn_passes p, uint64_t shared, int lanes) {
  using A = accumulator_t<T>;
  extern __shared__ __align__(16) unsigned char smmf_shared[];
  __shared__ int64_t begin[SMMF_ROWS + 1];
  __shared__ A scratch[kPassWarps];
  __shared__ A part[kPassWarps][32 * VEC];
  offsets_t offsets = {p.offsets, p.offsets64};
  const int64_t first_row = int64_t(blockIdx.x) * SMMF_ROWS;
  const int rows = int(min(int64_t(SMMF_ROWS), p.rows - first_row));
  const int warp = threadIdx.x / 32;
  int64_t degree = 0;
  if (threadIdx.x <= rows) {
    begin[threadIdx.x] = offsets[first_row + threadIdx.x];
    if (threadIdx.x < rows)
      degree = offsets[first_row + threadIdx.x + 1] - begin[threadIdx.x];
  }
  const bool any_heavy = __syncthreads_or(degree > p.heavy);
  const int64_t edges = begin[rows] - begin[0];
  const int64_t room = int64_t(shared / sizeof(A));
  const bool spill = edges > room;
  A *s = reinterpret_cast<A *>(smmf_shared);
  int64_t plane = edges;
  int at_once = edges > 0 ? int(min(int64_t(p.heads), room / edges)) : p.heads;
  if (spill) {
    s = static_cast<A *>(const_cast<void *>(p.scores)) + begin[0];
    plane = p.edges;
    at_once = p.heads;
  }
  for (int head = 0; head < p.heads; head += at_once) {
    const int heads = min(at_once, p.heads - head);
    A *mine = spill ? s + head * plane : s;
    block_scores<T, OP, VEC>(p, begin, rows, first_row, head, heads, mine,
                             plane, lanes);
    __syncthreads();
    auto finish = [&](const team<A> &t, int r) {
      const int64_t first = begin[r], d = begin[r + 1] - first;
      A *w = mine + (first - begin[0]);
      const int columns = first_columns_of(p, t, first, d);
      for (int h = 0; h < heads; h++)
        softmax_row<A>(p, t, w + h * plane, first_row + r, first, d, head + h);
      gather_row<T, VEC>(p, t, w, plane, first_row + r, first, d, head, heads,
                         columns, part);
    };
    for (int r = warp; r < rows; r += kPassWarps)
      if (begin[r + 1] - begin[r] <= p.heavy)
        finish(team<A>{int(threadIdx.x % 32), 32, nullptr}, r);
    for (int r = 0; any_heavy && r < rows; r++)
      if (begin[r + 1] - begin[r] > p.heavy)
        finish(team<A>{int(threadIdx.x), kPassThreads, scratch}, r);
    __syncthreads();
  }
}

/* The most edges of a block of consecutive rows. */
template <int THREADS>
__global__ void __launch_bounds__(THREADS)
    most_edges(const __grid_constant__ most_edges_params p) {
  const offsets_t offsets{p.offsets, p.offsets64};
  unsigned long long largest = 0;
  for (int64_t block = int64_t(blockIdx.x) * THREADS + threadIdx.x;
       block * p.block < p.rows; block += int64_t(gridDim.x) * THREADS) {
    const int64_t first = block * p.block, end = min(first + p.block, p.rows);
    largest = max(largest, static_cast<unsigned long long>(offsets[end] -
                                                           offsets[first]));
  }
  for (int o = 16; o > 0; o /= 2)
    largest = max(largest, __shfl_xor_sync(kFullMask, largest, o));
  if (threadIdx.x % 32 == 0)
    atomicMax(reinterpret_cast<unsigned long long *>(p.most), largest);
}

} // namespace dfgnn
#endif
