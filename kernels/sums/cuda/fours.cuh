/* fours.cuh - weighted sums of bfloat16 rows on tensor cores
 *
 * A warp takes four rows and walks their edges as one list, eight a product, so
 * that rows of unlike degrees leave no lane idle.  The sum over edges is the
 * product's:
 *
 *   d[pair of features][row, parity] +=
 *       a[pair of features][edge, parity] b[edge, parity][row, parity]
 *
 * A register that is loaded holds a pair of features of one edge, which are two
 * of the k that a product adds up; b has the edge's factor where the edge is of
 * the row and the parities are alike, else 0.  So nothing has to be widened,
 * shuffled or added up by hand.  A factor is the sum of three numbers of 8
 * bits, each with a product of its own, which makes it exact.
 *
 * Zeros of b times what is not finite are NaN, in rows and features that it is
 * not of.  A warp whose sums are not finite computes them again, by hand.
 *
 * Rows of many edges and hubs are taken by blocks, as in block.cuh, whose warps
 * have one row each. */
#ifndef DFGNN_SUMS_CUDA_FOURS_CUH
#define DFGNN_SUMS_CUDA_FOURS_CUH

#include "kernels/common/cuda_mma.cuh"
#include "kernels/sums/cuda/block.cuh"

namespace dfgnn {

/* TILE features, at lane 4 g + q: of pairs of features LOADS words of BYTES
 * bytes, the g-th of every eight, for edge q of every four. */
template <int TILE, int U, bool FACTORS> struct four_rows {
  static constexpr int LOADS = TILE >= 64 ? TILE / 64 : 1;
  static constexpr int BYTES = TILE >= 64 ? 16 : 8;
  static constexpr int PRODUCTS = TILE / 32;
  static constexpr int EDGES = 4 * U; /* in flight; U loads of a lane */
  using word_t = typename word<BYTES>::type;

  const gather_params &p;
  const char *table; /* the lane's first features of node 0 */
  int64_t first[4];  /* of each row: its first edge less its `before` */
  int before[5];     /* edges of earlier rows */
  float sum[PRODUCTS][4];

  __device__ __forceinline__ four_rows(const gather_params &params)
      : p(params), table(static_cast<const char *>(p.table.data) +
                         blockIdx.y * (TILE * 2) + lane() / 4 * BYTES) {
    unroll<PRODUCTS, 4>([&](int i, int k) { sum[i][k] = 0.0f; });
    before[0] = 0;
  }
  static __device__ __forceinline__ int lane() { return threadIdx.x & 31; }

  /* Takes the row as the r-th; `degree` is 0 where there is none. */
  __device__ __forceinline__ void set_row(int r, int64_t begin, int degree) {
    first[r] = begin - before[r];
    before[r + 1] = before[r] + degree;
  }
  __device__ __forceinline__ int edges() const { return before[4]; }

  /* ---- edges ------------------------------------------------------------- */

  struct edge_of_lane {
    edge_ahead edge;
    float factor;
  };

  /* Reads the lane's edge of those from k on. */
  __device__ __forceinline__ void read(edge_ahead &a, int k) const {
    a.clear();
    if (k >= edges())
      return;
    int64_t at = first[0];
    unroll<3>([&](int r) { at = k >= before[r + 1] ? first[r + 1] : at; });
    a.template read<FACTORS>(p, at + k);
  }
  __device__ __forceinline__ float factor_of(const edge_ahead &a,
                                             bool live) const {
    float weight = live && !p.weights ? 1.0f : 0.0f, scale = 1.0f;
    if constexpr (FACTORS) {
      load_number_if(weight, static_cast<const float *>(p.weights) + a.edge(),
                     live && p.weights);
      load_number_if(scale,
                     static_cast<const float *>(p.gathered_scale) + a.index,
                     live && p.gathered_scale);
    }
    return weight * scale;
  }

  /* ---- products ---------------------------------------------------------- */

  /* The upper 8 bits of x, as the factor of features of the lane's parity; x
   * becomes the rest. */
  static __device__ __forceinline__ unsigned piece(float &x, bool odd) {
    const unsigned bits = __float_as_uint(x) & 0xffff0000u;
    x -= __uint_as_float(bits);
    return odd ? bits : bits >> 16;
  }

  /* Adds eight edges: x of edge q and y of edge q + 4, whose factors are fx and
   * fy in the row of which the lane has b, else 0. */
  __device__ __forceinline__ void multiply(const word_t (&x)[LOADS],
                                           const word_t (&y)[LOADS], float fx,
                                           float fy) {
    const bool odd = lane() & 4;
#pragma unroll
    for (int t = 0; t < (FACTORS ? 3 : 1); ++t) {
      const unsigned b0 = piece(fx, odd), b1 = piece(fy, odd);
#pragma unroll
      for (int n = 0; n < LOADS; ++n) {
        const unsigned a[4] = {x[n].x, x[n].y, y[n].x, y[n].y};
        ptx::mma_bf16(sum[PRODUCTS > 1 ? 2 * n : 0], a, b0, b1);
        if constexpr (BYTES == 16) {
          const unsigned c[4] = {x[n].z, x[n].w, y[n].z, y[n].w};
          ptx::mma_bf16(sum[2 * n + 1], c, b0, b1);
        }
      }
    }
  }

  __device__ __forceinline__ const word_t *word_at(int node, int n) const {
    return reinterpret_cast<const word_t *>(
               node_row(table, node, p.table.node_bytes)) +
           n * 8;
  }

  /* Adds EDGES edges of those that the lanes have read, from `from` on, of
   * which `left` are there. */
  __device__ __forceinline__ void step(int index, float factor, int from,
                                       int at, int low, int high) {
    const int q = lane() & 3, left = edges() - at;
    word_t x[U][LOADS];
    int node[U];
    float f[U];
    unroll<U>([&](int u) {
      node[u] = __shfl_sync(kFullMask, index, from + 4 * u + q);
    });
    unroll<U>([&](int u) {
      f[u] = FACTORS ? __shfl_sync(kFullMask, factor, from + 4 * u + q) : 1.0f;
      const int k = at + 4 * u + q;
      if (k < low || k >= high)
        f[u] = 0.0f;
    });
    if (left >= EDGES) {
      unroll<U, LOADS>([&](int u, int n) { x[u][n] = *word_at(node[u], n); });
    } else {
      unroll<U, LOADS>([&](int u, int n) {
        x[u][n] = word_t{};
        if (4 * u + q < left)
          x[u][n] = *word_at(node[u], n);
      });
    }
    unroll<U / 2>([&](int u) {
      multiply(x[2 * u], x[2 * u + 1], f[2 * u], f[2 * u + 1]);
    });
  }

  /* a: the lane's edge of the first 32. */
  __device__ __forceinline__ void walk(edge_ahead a) {
    const int r = lane() >> 3; /* the row of which the lane has b */
    int low = before[0], high = before[1];
    unroll<3>([&](int i) {
      low = r == i + 1 ? before[i + 1] : low;
      high = r == i + 1 ? before[i + 2] : high;
    });
    for (int at = 0; at < edges(); at += 32) {
      const float factor = FACTORS ? factor_of(a, at + lane() < edges()) : 1.0f;
      const int index = a.index;
      read(a, at + 32 + lane());
#pragma unroll 1
      for (int from = 0; from < 32 && at + from < edges(); from += EDGES)
        step(index, factor, from, at + from, low, high);
    }
    bool finite = true;
    unroll<PRODUCTS, 4>([&](int i, int k) {
      finite = finite && sum[i][k] - sum[i][k] == 0.0f;
    });
    if (__any_sync(kFullMask, !finite))
      add_again(lane() & 3);
  }

  /* Computes the lane's sums, of row r, without products. */
  __device__ __forceinline__ void add_again(int r) {
    int64_t begin = 0;
    int degree = 0;
    unroll<4>([&](int i) {
      begin = r == i ? first[i] + before[i] : begin;
      degree = r == i ? before[i + 1] - before[i] : degree;
    });
    unroll<PRODUCTS, 4>([&](int i, int k) { sum[i][k] = 0.0f; });
    for (int e = 0; e < degree; ++e) {
      edge_ahead a;
      a.clear();
      a.template read<FACTORS>(p, begin + e);
      const float factor = factor_of(a, true);
      unroll<LOADS>([&](int n) {
        packed<bfloat_t, BYTES / 2> x;
        x.bits = *word_at(a.index, n);
        unroll<BYTES / 2>([&](int i) {
          sum[PRODUCTS > 1 ? 2 * n + i / 4 : 0][i % 4] +=
              factor * widen(x.item[i]);
        });
      });
    }
  }

  /* ---- results ----------------------------------------------------------- */

  /* Calls to(f, x) for each word of the lane's results: numbers x from feature
   * f on. */
  template <class To>
  __device__ __forceinline__ void words(const To &to) const {
    constexpr int COUNT = BYTES / 2;
    unroll<LOADS>([&](int n) {
      float x[COUNT];
      unroll<COUNT>(
          [&](int i) { x[i] = sum[PRODUCTS > 1 ? 2 * n + i / 4 : 0][i % 4]; });
      to(int(blockIdx.y) * TILE + n * 64 + lane() / 4 * COUNT, x);
    });
  }
  __device__ __forceinline__ void store(int row, int degree) const {
    const float factor = spmm_factor<float>(p, row, degree);
    words([&](int f, float(&x)[BYTES / 2]) {
      unroll<BYTES / 2>([&](int i) { x[i] *= factor; });
      store_row<bfloat_t, BYTES / 2>(p, p.out, const_cast<void *>(p.out.data),
                                     row, f, x);
    });
  }
};

/* Writes the sums of a heavy row, or of a hub's item, of which the warps have
 * kept parts. */
template <int TILE>
__device__ __forceinline__ void add_four_parts(const gather_params &p,
                                               const float (*parts)[TILE],
                                               const heavy_part &h) {
  if (threadIdx.x >= TILE)
    return;
  float x[1] = {0.0f};
#pragma unroll
  for (int k = 0; k < GATHER_PIECE_WARPS; ++k)
    x[0] += parts[k][threadIdx.x];
  const int f = blockIdx.y * TILE + threadIdx.x;
  if (h.slot >= 0) {
    *part_of<1, float>(p, h.slot, 0, f) = x[0];
    return;
  }
  x[0] *= spmm_factor<float>(p, h.row, h.degree);
  store_row<bfloat_t, 1>(p, p.out, const_cast<void *>(p.out.data), h.row, f, x);
}

/* A lane works on the own-th row, unless it is heavy; row is -1 if there is no
 * such row or a block takes it. */
__device__ __forceinline__ row_work light_row(const gather_schedule &s,
                                              int own) {
  row_work w = {-1, -1, 0, 0, uint2{0, 0}};
  if (own >= s.units)
    return w;
  w = find_whole_row(s, own);
  settle_row(s, w);
  if (w.degree > s.item_edges) {
    w.row = -1;
    w.degree = 0;
  }
  return w;
}

/* FACTOR: FACTOR_NONE or FACTOR_EDGE. */
template <int TILE, int U, int FACTOR>
__global__ void __launch_bounds__(GATHER_PIECE_WARPS * 32, TILE > 64 ? 3
                                                           : U * TILE >= 256
                                                               ? 4
                                                               : 5)
    spmm_fours(const __grid_constant__ gather_params p) {
  using rows_t = four_rows<TILE, U, FACTOR != FACTOR_NONE>;
  __shared__ float parts[GATHER_PIECE_WARPS][TILE];
  ptx::wait_for_previous();
  ptx::let_next_begin();
  const gather_schedule &s = p.schedule;
  const heavy_block at(s);
  const int warp = threadIdx.x / 32, r = threadIdx.x & 3;
  for (int item = at.item; at.has(s, item); item += s.hub_blocks) {
    rows_t work(p);
    const heavy_part h = at.part(s, item);
    row_work w =
        at.heavy ? h.of_group(warp, GATHER_PIECE_WARPS)
                 : light_row(s, (at.light * GATHER_PIECE_WARPS + warp) * 4 + r);
    if (at.heavy && r > 0)
      w.degree = 0;
    unroll<4>([&](int i) {
      const unsigned low = __shfl_sync(kFullMask, w.begin.x, i),
                     high = __shfl_sync(kFullMask, w.begin.y, i);
      work.set_row(i, static_cast<int64_t>(uint64_t(high) << 32 | low),
                   __shfl_sync(kFullMask, w.degree, i));
    });
    edge_ahead a;
    work.read(a, work.lane());
    work.walk(a);
    if (!at.heavy) {
      if (w.row >= 0)
        work.store(w.row, w.degree);
      return;
    }
    if (r == 0)
      work.words([&](int f, float(&x)[rows_t::BYTES / 2]) {
        unroll<rows_t::BYTES / 2>(
            [&](int i) { parts[warp][f - int(blockIdx.y) * TILE + i] = x[i]; });
      });
    __syncthreads();
    add_four_parts<TILE>(p, parts, h);
    __syncthreads();
    if (!at.hub)
      return;
  }
}

} // namespace dfgnn

#endif
