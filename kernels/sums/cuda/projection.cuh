/* projection.cuh - the matrix that projects edge features, and the gradients of
 * features, matrix and offset
 *
 * A block computes the gradients of a tile of edges' parts, EDGES_TILE edges by
 * EDGES_FEATURES features in shared memory, and multiplies them from there.
 * FIELDS is the number of an edge's features; one more feature, for the offset,
 * is always 1.  WHAT has the bits of message_op: with MESSAGE_VALUE an edge has
 * two parts, whose gradients are computed one after the other. */
#ifndef DFGNN_SUMS_CUDA_PROJECTION_CUH
#define DFGNN_SUMS_CUDA_PROJECTION_CUH

#include "kernels/sums/cuda/term.cuh"

namespace dfgnn {

/* The position, heads first, of a row of all parts, whose features are in the
 * order of the layout. */
template <class P> DEVICE int64_t parameter_row(const P &p, int row) {
  const int f = row % p.width;
  return row - f + heads_first(p, f);
}

/* Writes matrix and offset as scalars, [fields + 1][parts][width], features in
 * the order of the layout. */
template <typename T>
__global__ void
message_matrix(const __grid_constant__ message_matrix_params p) {
  const int64_t k = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  const int rows = p.parts * p.width;
  if (k >= int64_t(p.fields + 1) * rows)
    return;
  const int field = static_cast<int>(k / rows);
  const int64_t i = parameter_row(p, static_cast<int>(k % rows));
  const T *matrix = static_cast<const T *>(p.matrix);
  const T *offset = static_cast<const T *>(p.offset);
  static_cast<accumulator_t<T> *>(p.to)[k] =
      field < p.fields ? widen(matrix[i * p.fields + field])
      : offset         ? widen(offset[i])
                       : accumulator_t<T>(0);
}

/* ---- a tile of gradients ------------------------------------------------- */

constexpr int kQuad = 4; /* edges of a thread, and features */

template <typename T, int WHAT, int FIELDS, int STRIDE> struct edges_tile {
  using A = accumulator_t<T>;
  static constexpr bool GATED = (WHAT & MESSAGE_GATED) != 0;
  static constexpr bool PICK = (WHAT & MESSAGE_GRADE) != 0;
  static constexpr bool MOMENTS = (WHAT & MESSAGE_MOMENTS) != 0;
  static constexpr int PARTS = WHAT & MESSAGE_VALUE ? 2 : 1;
  static constexpr int kFields = FIELDS + 1;
  const message_edges_params &p;
  A *const attr;   /* [EDGES_TILE][kFields] */
  A *const matrix; /* [kFields][EDGES_FEATURES] */
  A *const grad;   /* [EDGES_TILE][STRIDE] */

  DEVICE edges_tile(const message_edges_params &params, A *shared)
      : p(params), attr(shared), matrix(attr + EDGES_TILE * kFields),
        grad(matrix + kFields * EDGES_FEATURES) {}

  /* The first number of a row of the matrix. */
  DEVICE const A *matrix_at(int field, int which) const {
    return static_cast<const A *>(p.matrix) +
           (int64_t(field) * PARTS + which) * p.width;
  }

  DEVICE void load_matrix(int first, int which) const {
    for (int k = threadIdx.x; k < kFields * EDGES_FEATURES;
         k += EDGES_THREADS) {
      const int field = k / EDGES_FEATURES, f = first + k % EDGES_FEATURES;
      matrix[k] = f < p.width ? __ldg(matrix_at(field, which) + f) : A(0);
    }
  }

  DEVICE void load_attr(int64_t first) const {
    for (int k = threadIdx.x; k < EDGES_TILE * kFields; k += EDGES_THREADS) {
      const int field = k % kFields;
      const int64_t e = first + k / kFields;
      attr[k] = e >= p.edges ? A(0)
                : field == FIELDS
                    ? A(1)
                    : widen(static_cast<const T *>(p.attr)[e * FIELDS + field]);
    }
  }

  /* The position of feature f within a node of a tensor. */
  DEVICE int64_t place(const feature_tensor &t, int f) const {
    const int i = heads_first(p, f);
    return i / p.dim * t.head + i % p.dim * t.feature;
  }
  DEVICE A number(const feature_tensor &t, int node, int64_t at) const {
    const char *row =
        static_cast<const char *>(t.data) + int64_t(node) * t.node_bytes;
    return widen(one_number(reinterpret_cast<const T *>(row) + at));
  }
  static DEVICE T one_number(const T *x) { return load_packed<1>(x).item[0]; }

  DEVICE A factor(int row, int column) const {
    const A r =
        p.scale_dst ? __ldg(static_cast<const A *>(p.scale_dst) + row) : A(1);
    return p.scale_src ? r * __ldg(static_cast<const A *>(p.scale_src) + column)
                       : r;
  }

  /* Adds up a thread's numbers of a part: row(w, k) reads the matrix's numbers
   * of field k at the thread's features. */
  template <class Row>
  DEVICE void project(A (&part)[kQuad][kQuad], int e0, const Row &row) const {
#pragma unroll 4
    for (int k = 0; k < kFields; ++k) {
      A w[kQuad];
      row(w, k);
      unroll<kQuad>([&](int u) {
        const A x = attr[(e0 + u) * kFields + k];
        unroll<kQuad>([&](int i) { part[u][i] += x * w[i]; });
      });
    }
  }

  /* The gradient of message m at a position of a row; f: the feature, in the
   * order of the layout; grad_at: its position in a node of the gradient. */
  DEVICE A grade(int row, int position, int f, int64_t grad_at, A scale,
                 A m) const {
    if constexpr (!PICK)
      return scale * number(p.grad_out, row, grad_at);
    const int64_t at = int64_t(row) * p.width + f;
    A sum = A(0);
    if (__ldg(p.arg + at) == position)
      sum = number(MOMENTS ? p.grad_min : p.grad_out, row, grad_at);
    if constexpr (MOMENTS) {
      if (__ldg(p.arg2 + at) == position)
        sum += number(p.grad_max, row, grad_at);
      sum += __ldg(static_cast<const A *>(p.offset) + at) +
             __ldg(static_cast<const A *>(p.coefficient) + at) *
                 (m - number(p.mean, row, place(p.mean, f)));
    }
    return sum;
  }

  /* Computes the gradients of part `which`, whose matrix is loaded: a thread
   * takes four features of four edges. */
  DEVICE void compute(int64_t first_edge, int first_feature, int which) const {
    constexpr int kQuads = EDGES_FEATURES / kQuad;
    const int f0 = threadIdx.x % kQuads * kQuad;
    const int e0 = threadIdx.x / kQuads * kQuad;
    A part[PARTS][kQuad][kQuad] = {};
    project(part[0], e0, [&](A(&w)[kQuad], int k) {
      unroll<kQuad>([&](int i) { w[i] = matrix[k * EDGES_FEATURES + f0 + i]; });
    });
    if constexpr (PARTS > 1)
      project(part[1], e0, [&](A(&w)[kQuad], int k) {
        const A *other = matrix_at(k, 1 - which);
        unroll<kQuad>([&](int i) {
          w[i] = first_feature + f0 + i < p.width
                     ? __ldg(other + first_feature + f0 + i)
                     : A(0);
        });
      });
    int row[kQuad], column[kQuad], position[kQuad];
    A scale[kQuad];
    unroll<kQuad>([&](int u) {
      const int64_t e = first_edge + e0 + u;
      row[u] = column[u] = position[u] = 0;
      scale[u] = A(0);
      if (e < p.edges) {
        row[u] = __ldg(p.row_of_edge + e);
        column[u] = __ldg(p.indices + e);
        if constexpr (PICK)
          position[u] = static_cast<int>(e - p.offsets[row[u]]);
        else
          scale[u] = factor(row[u], column[u]);
      }
    });
    unroll<kQuad>([&](int i) {
      const int f = first_feature + f0 + i;
      const bool on = f < p.width;
      const int64_t x_at = place(p.value, on ? f : 0);
      const int64_t grad_at = place(p.grad_out, on ? f : 0);
      const int64_t dst_at = GATED ? place(p.gate_dst, on ? f : 0) : 0;
      const int64_t src_at = GATED ? place(p.gate_src, on ? f : 0) : 0;
      unroll<kQuad>([&](int u) {
        A y = A(0);
        if (on && first_edge + e0 + u < p.edges) {
          const A gates = GATED ? number(p.gate_dst, row[u], dst_at) +
                                      number(p.gate_src, column[u], src_at)
                                : A(0);
          A x = number(p.value, column[u], x_at), own = part[0][u][i];
          if (PARTS > 1) {
            x += which ? own : part[PARTS - 1][u][i];
            own = which ? part[PARTS - 1][u][i] : own;
          }
          const A sent =
              MOMENTS ? term_of<SUMS_FORWARD, GATED>(x, gates, own, A(0)).value
                      : A(0);
          const message_term<A> t = term_of<SUMS_COLUMNS, GATED>(
              x, gates, own,
              grade(row[u], position[u], f, grad_at, scale[u], sent));
          y = which ? t.value : t.gate;
        }
        grad[(e0 + u) * STRIDE + f0 + i] = y;
      });
    });
  }
};

/* ---- gradients of features ----------------------------------------------- */

template <typename T, int WHAT, int FIELDS>
__global__ void __launch_bounds__(EDGES_THREADS)
    message_fields(const __grid_constant__ message_edges_params p) {
  using A = accumulator_t<T>;
  constexpr int kStride = EDGES_FEATURES + 1;
  constexpr int kStep = EDGES_THREADS / EDGES_TILE;
  constexpr int kOwn = (FIELDS + kStep - 1) / kStep;
  extern __shared__ double shared[];
  using tile_t = edges_tile<T, WHAT, FIELDS, kStride>;
  const tile_t tile(p, reinterpret_cast<A *>(shared));
  const int64_t first = int64_t(blockIdx.x) * EDGES_TILE;
  const int edge = threadIdx.x % EDGES_TILE, field = threadIdx.x / EDGES_TILE;
  A sum[kOwn] = {};
  tile.load_attr(first);
  for (int k = 0; k < p.tiles * tile_t::PARTS; ++k) {
    const int which = k / p.tiles, from = k % p.tiles * EDGES_FEATURES;
    tile.load_matrix(from, which);
    __syncthreads();
    tile.compute(first, from, which);
    __syncthreads();
#pragma unroll 4
    for (int d = 0; d < EDGES_FEATURES; ++d) {
      const A y = tile.grad[edge * kStride + d];
      unroll<kOwn>([&](int k) {
        if (FIELDS % kStep == 0 || field + k * kStep < FIELDS)
          sum[k] += y * tile.matrix[(field + k * kStep) * EDGES_FEATURES + d];
      });
    }
    __syncthreads();
  }
  unroll<kOwn>([&](int k) {
    if (first + edge < p.edges && field + k * kStep < FIELDS)
      static_cast<T *>(
          p.grad_attr)[(first + edge) * FIELDS + field + k * kStep] =
          narrow<T>(sum[k]);
  });
}

/* ---- gradients of matrix and offset -------------------------------------- */

template <typename T, int WHAT, int FIELDS>
__global__ void __launch_bounds__(EDGES_THREADS)
    message_parameters(const __grid_constant__ message_edges_params p) {
  using A = accumulator_t<T>;
  constexpr int kFields = FIELDS + 1;
  constexpr int kQuads = EDGES_FEATURES / kQuad;
  constexpr int kStep = EDGES_THREADS / kQuads;
  constexpr int kOwn = (kFields + kStep - 1) / kStep;
  extern __shared__ double shared[];
  using tile_t = edges_tile<T, WHAT, FIELDS, EDGES_FEATURES>;
  const tile_t tile(p, reinterpret_cast<A *>(shared));
  const int which = blockIdx.y / p.tiles;
  const int from = blockIdx.y % p.tiles * EDGES_FEATURES;
  const int f0 = threadIdx.x % kQuads * kQuad, field = threadIdx.x / kQuads;
  A sum[kOwn][kQuad] = {};
  tile.load_matrix(from, which);
  for (int chunk = 0; chunk < p.chunks; ++chunk) {
    const int64_t first = (int64_t(blockIdx.x) * p.chunks + chunk) * EDGES_TILE;
    if (first >= p.edges)
      break;
    tile.load_attr(first);
    __syncthreads();
    tile.compute(first, from, which);
    __syncthreads();
#pragma unroll 4
    for (int e = 0; e < EDGES_TILE; ++e) {
      A y[kQuad];
      unroll<kQuad>(
          [&](int i) { y[i] = tile.grad[e * EDGES_FEATURES + f0 + i]; });
      unroll<kOwn>([&](int k) {
        const int own = field + k * kStep;
        const A x = kFields % kStep == 0 || own < kFields
                        ? tile.attr[e * kFields + own]
                        : A(0);
        unroll<kQuad>([&](int i) { sum[k][i] += x * y[i]; });
      });
    }
    __syncthreads();
  }
  unroll<kOwn>([&](int k) {
    const int own = field + k * kStep;
    unroll<kQuad>([&](int i) {
      if (own < kFields && from + f0 + i < p.width)
        static_cast<A *>(
            p.sums)[((int64_t(blockIdx.x) * kFields + own) * tile_t::PARTS +
                     which) *
                        p.width +
                    from + f0 + i] = sum[k][i];
    });
  });
}

/* Adds up the blocks' sums, in order. */
template <typename A>
__global__ void
message_parameter_sums(const __grid_constant__ message_parameters_params p) {
  const int64_t k = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  const int rows = p.parts * p.width;
  const int64_t count = int64_t(p.fields + 1) * rows;
  if (k >= count)
    return;
  const int field = static_cast<int>(k / rows);
  const int64_t i = parameter_row(p, static_cast<int>(k % rows));
  A sum = A(0);
  for (int b = 0; b < p.blocks; ++b)
    sum += static_cast<const A *>(p.sums)[b * count + k];
  if (field == p.fields) {
    if (p.grad_offset)
      static_cast<A *>(p.grad_offset)[i] = sum;
  } else if (p.grad_matrix) {
    static_cast<A *>(p.grad_matrix)[i * p.fields + field] = sum;
  }
}

} // namespace dfgnn

#endif
