/* edges_term.cuh - what an edge's W e adds to scores, sums and gradients
 *
 * A term has, for U edges of each side that are in flight, their features
 * (edges), and of a row what products with W need (row).
 */
/* clang-format off */
/*   load()             the features of U edges
 *   key(), value()     a key's or value's feature with that of W e, where lanes
 *                      know it
 *   begin()            the row, before its walk
 *   add_keys(), add_values(), add_sums()
 *                      parts of the score (or of dP), and sums of features, that
 *                      products of whole rows with W replace W e by
 *   gradients()        puts the gradients of features in their place */
/* clang-format on */
#ifndef DFGNN_ATTENTION_CUDA_EDGES_TERM_CUH
#define DFGNN_ATTENTION_CUDA_EDGES_TERM_CUH

#include "kernels/attention/cuda/edges_project.cuh"
#include "kernels/attention/cuda/edges_walk.cuh"

namespace dfgnn {

template <class K, int TERM = K::term> struct edge_term;

/* ---- W e in the lanes ---------------------------------------------------- */

/* It serves scores that are not linear in W e (GATv2), and edges that come
 * projected.  A lane multiplies the rows of W of its own features with the
 * edge's features.  If W is staged, these lie in shared memory in the order in
 * which the lanes of an edge read them, WORD numbers each: [TILES][F][C]
 * [VEC / WORD][lanes][WORD].  In the order of W the lanes of narrow heads, DIM
 * numbers apart, would wait for each other at the same banks.  The lanes of a
 * kernel of few warps keep their part of a small W in registers. */
template <class K> struct edge_term<K, EDGES_ROWS> : edge_walk<K> {
  using walk = edge_walk<K>;
  using typename walk::A;
  using typename walk::pack;
  using walk::C, walk::F, walk::FE, walk::GIVEN, walk::MATRIX, walk::p;
  using walk::DIM, walk::HEADS, walk::PITCH, walk::SIDES, walk::U, walk::VEC;
  using walk::TILE, walk::TILES;
  using T = typename K::type;
  static constexpr int WORD = sizeof(A) > 4  ? 1
                              : VEC % 4 == 0 ? 4
                              : VEC % 2 == 0 ? 2
                                             : 1;
  static constexpr int VECTOR_SIZE = VEC * K::lanes;
  static constexpr int MATRIX_SIZE =
      MATRIX && K::staged ? TILES * F * C * VECTOR_SIZE : 0;
  /* GAT has scalars in place of W e. */
  static constexpr bool LIFTS = !walk::GAT;

  struct edges {
    A x[U][C][VEC];
  };
  struct row {};

  static constexpr bool KEPT = walk::SMALL && MATRIX_SIZE > 0 &&
                               K::slice == 0 && K::warps <= 16 / K::blocks;

  A *matrix; /* W, staged */
  A kept[KEPT ? F : 1][KEPT ? C : 1][KEPT ? VEC : 1];

  DEVICE edge_term(const edges_params &params, A *shared)
      : walk(params,
             shared + MATRIX_SIZE + threadIdx.x / 32 * walk::CHUNK_SIZE),
        matrix(shared) {
    if constexpr (MATRIX) {
      this->features.clear();
      if constexpr (K::staged)
        stage_matrix();
      __syncthreads();
      if constexpr (KEPT)
        unroll<F, C>([&](int f, int c) { staged_column(kept[f][c], f, c); });
    }
  }

  /* Each warp copies every n-th vector of its lanes; zeros where a lane has no
   * such vector. */
  DEVICE void stage_matrix() {
    const int warps = blockDim.x / 32;
#pragma unroll 1
    for (int n = threadIdx.x / 32; n < TILES * F * C; n += warps) {
      const int c = n % C, f = n / C % F;
      this->first = n / (C * F) * TILE;
      const int row = this->head(walk::state(c)) * DIM + this->feature(c);
      if (this->side() == 0)
        unroll<VEC>([&](int i) {
          matrix[n * VECTOR_SIZE + place_of(i)] =
              this->has(c) ? element(row + i, f) : A(0);
        });
    }
    this->first = 0;
  }
  /* Where number i of the lane's vector is. */
  static DEVICE int place_of(int i) {
    return (i / WORD * K::lanes + (lane_id() & (K::lanes - 1))) * WORD +
           i % WORD;
  }

  DEVICE A element(int row, int f) const {
    if (K::ones && f == FE)
      return p.constant ? widen(static_cast<const T *>(p.constant)[row]) : A(0);
    return widen(static_cast<const T *>(p.weight)[row * walk::WIDTH + f]);
  }
  /* Column f of W in the rows of vector c; zeros where the lane has no such
   * vector. */
  DEVICE void column(A (&w)[VEC], int f, int c) const {
    if constexpr (KEPT) {
      unroll<VEC>([&](int i) { w[i] = kept[f][c][i]; });
    } else if constexpr (K::staged) {
      staged_column(w, f, c);
    } else {
      const int row = this->head(walk::state(c)) * DIM + this->feature(c);
      unroll<VEC>(
          [&](int i) { w[i] = this->has(c) ? element(row + i, f) : A(0); });
    }
  }
  DEVICE void staged_column(A (&w)[VEC], int f, int c) const {
    const int tile = TILES > 1 ? this->first / TILE : 0;
    const A *from = matrix + ((tile * F + f) * C + c) * VECTOR_SIZE;
    unroll<VEC / WORD>([&](int n) {
      A part[WORD];
      load_vector(part, from + place_of(n * WORD));
      unroll<WORD>([&](int i) { w[n * WORD + i] = part[i]; });
    });
  }
  /* The address of vector c of an edge that comes as [H,D]. */
  DEVICE const T *given(int64_t edge, int c) const {
    return static_cast<const T *>(p.attr) + edge * (HEADS * DIM) +
           this->head(walk::state(c)) * DIM + this->feature(c);
  }

  /* Edge u has number edge[u] in the matrix and row from + u * SIDES in the
   * chunk. */
  DEVICE void load(edges &y, int from, const int64_t (&edge)[U],
                   int left) const {
    if constexpr (!LIFTS)
      return;
    unroll<U, C>([&](int u, int c) {
      pack z;
      clear(z);
      if (GIVEN && u * SIDES < left && this->has(c))
        z = load_once<VEC>(given(edge[u], c));
      widen(y.x[u][c], z);
    });
    if constexpr (MATRIX) {
#pragma unroll(F <= 16 ? F : 4)
      for (int f = 0; f < F; ++f) {
        A e[U];
        unroll<U>([&](int u) {
          e[u] = this->features.at[(from + u * SIDES) * PITCH + f];
        });
        unroll<C>([&](int c) {
          A w[VEC];
          column(w, f, c);
          unroll<U, VEC>([&](int u, int i) { y.x[u][c][i] += e[u] * w[i]; });
        });
      }
    }
  }

  static DEVICE A key(const edges &y, A k, int u, int c, int i) {
    return k + (walk::KEYS ? y.x[u][c][i] : A(0));
  }
  static DEVICE A value(const edges &y, A v, int u, int c, int i) {
    return v + (walk::GT && walk::VALUES ? y.x[u][c][i] : A(0));
  }

  DEVICE void begin(row &, int) const {}
  DEVICE void add_keys(A (&)[U * walk::S], const row &, const edges &,
                       int) const {}
  DEVICE void add_values(A (&)[U * walk::S], const row &, const edges &,
                         int) const {}
  DEVICE void add_sums(row &, A, const edges &, int, int) const {}
  static DEVICE void rescale(row &, int, A) {}
  DEVICE void merge_row(row &) const {}
  DEVICE void leave_row(const row &, int) const {}

  /* x: the gradients of W e. */
  DEVICE void gradients(const edges &y, const row &, const A (&)[U * walk::S],
                        const A (&)[U * walk::S], int from,
                        const int64_t (&edge)[U], int left) const {
    if constexpr (GIVEN)
      unroll<U, C>([&](int u, int c) {
        if (u * SIDES < left && this->has(c))
          store_once<VEC>(
              static_cast<T *>(p.grad_attr) +
                  (given(edge[u], c) - static_cast<const T *>(p.attr)),
              y.x[u][c]);
      });
    if constexpr (MATRIX)
      feature_gradients(y.x, from);
  }

  /* W^T times the gradients of W e. */
  DEVICE void feature_gradients(const A (&x)[U][C][VEC], int from) const {
    constexpr int LEFT = folded(U * F, K::lanes / 2, 1);
    A sum[U * F];
    unroll<F>([&](int f) {
      unroll<U>([&](int u) { sum[u * F + f] = A(0); });
      unroll<C>([&](int c) {
        A w[VEC];
        column(w, f, c);
        unroll<U, VEC>(
            [&](int u, int i) { sum[u * F + f] += x[u][c][i] * w[i]; });
      });
    });
    const int begin = fold<U * F, K::lanes / 2, 1>(sum, 0);
    __syncwarp(); /* all lanes have read the features */
    unroll<LEFT>([&](int i) {
      const int u = (begin + i) / F, f = (begin + i) % F;
      if (f < FE)
        this->features.at[(from + u * SIDES) * PITCH + f] = sum[i];
    });
  }
};

/* ---- products of whole rows ---------------------------------------------- */

/* GT alone: <q, W e> is <W^T q, e>, and sum alpha W e is W sum alpha e. */
template <class K> struct edge_term<K, EDGES_PRODUCTS> : edge_walk<K> {
  using walk = edge_walk<K>;
  using typename walk::A;
  using walk::F, walk::FE, walk::FP, walk::FPL, walk::PITCH, walk::S;
  using walk::SIDES, walk::TILE, walk::U, walk::VEC;
  using matrix = edge_matrix<K>;
  using rows_of = edge_rows<K, K::heads>;
  using project = edge_project<K, FP, TILE>;
  using expand = edge_expand<K, FP, TILE>;

  struct edges {
    A e[U][FPL];
  };
  struct row {
    A tq[S][FPL], td[S][FPL]; /* W^T q, in log2 units; W^T dO */
    A z[S][FPL];              /* sum of alpha e, or of dS e */
  };

  A *tile; /* [ROWS][PITCH]: W^T q, then z; backward: behind it W^T dO */

  DEVICE edge_term(const edges_params &params, A *tile_, A *chunk_)
      : walk(params, chunk_), tile(tile_) {}

  DEVICE A *row_of_tile(int h) const {
    return tile + int(threadIdx.x / 32) * project::PITCH +
           (this->head(h) - this->first) * FP;
  }

  DEVICE void load(edges &y, int from, const int64_t (&)[U], int) const {
    unroll<U>([&](int u) {
      this->share(y.e[u], this->features.at + (from + u * SIDES) * FP);
    });
  }

  static DEVICE A key(const edges &, A k, int, int, int) { return k; }
  static DEVICE A value(const edges &, A v, int, int, int) { return v; }

  /* tiles: 2 if W^T dO is there, too. */
  DEVICE void begin(row &z, int tiles) const {
#pragma unroll
    for (int h = 0; h < S; ++h) {
      unroll<FPL>([&](int f) { z.tq[h][f] = z.td[h][f] = z.z[h][f] = A(0); });
      if (!this->has_head(h))
        continue;
      if (walk::KEYS)
        this->share(z.tq[h], row_of_tile(h));
      if (walk::VALUES && tiles == 2)
        this->share(z.td[h], row_of_tile(h) + K::warps * project::PITCH);
    }
  }
  static DEVICE void add(A (&s)[U * S], const A (&t)[S][FPL], const edges &y,
                         int u) {
    unroll<S, FPL>([&](int h, int f) { s[u * S + h] += t[h][f] * y.e[u][f]; });
  }
  DEVICE void add_keys(A (&s)[U * S], const row &z, const edges &y,
                       int u) const {
    if constexpr (walk::KEYS)
      add(s, z.tq, y, u);
  }
  DEVICE void add_values(A (&dp)[U * S], const row &z, const edges &y,
                         int u) const {
    if constexpr (walk::VALUES)
      add(dp, z.td, y, u);
  }
  DEVICE void add_sums(row &z, A factor, const edges &y, int u, int h) const {
    unroll<FPL>([&](int f) { z.z[h][f] += factor * y.e[u][f]; });
  }
  static DEVICE void rescale(row &z, int h, A factor) {
    unroll<FPL>([&](int f) { z.z[h][f] *= factor; });
  }
  DEVICE void merge_row(row &z) const { this->sum_sides(z.z); }
  /* Leaves a head's weighted sum of e in the tile, for the block. */
  DEVICE void leave_row(const row &z, int h) const {
    if (this->side() == 0 && this->has_head(h))
      unroll<FPL>([&](int f) {
        if (this->part() * FPL + f < F)
          row_of_tile(h)[this->part() * FPL + f] = z.z[h][f];
      });
  }

  /* Adds the row's vector c of W times the weighted sum of e. */
  DEVICE void add_product(A (&acc)[VEC], const A *product, int c) const {
    A y[VEC];
    load_vector(y,
                product + int(threadIdx.x / 32) * expand::PITCH +
                    (this->head(walk::state(c)) - this->first) * expand::HEAD +
                    this->feature(c));
    unroll<VEC>([&](int i) { acc[i] += y[i]; });
  }

  /* Sums the gradients of the features over the lanes of all heads. */
  DEVICE void gradients(const edges &, const row &z, const A (&ds)[U * S],
                        const A (&weight)[U * S], int from,
                        const int64_t (&)[U], int) const {
    constexpr int LEFT = folded(U * FPL, K::lanes / 2, K::head_lanes);
    A x[U * FPL];
    unroll<U, FPL>([&](int u, int f) {
      A sum = A(0);
      unroll<S>([&](int h) {
        if (walk::KEYS) /* tq is in units of log2(e) */
          sum += ds[u * S + h] * A(kLn2) * z.tq[h][f];
        if (walk::VALUES)
          sum += weight[u * S + h] * z.td[h][f];
      });
      x[u * FPL + f] = sum;
    });
    const int begin = fold<U * FPL, K::lanes / 2, K::head_lanes>(x, 0);
    __syncwarp(); /* all lanes have read the features */
    unroll<LEFT>([&](int i) {
      const int u = (begin + i) / FPL, f = (begin + i) % FPL;
      const int column = this->part() * FPL + f;
      if (column < FE)
        this->features.at[(from + u * SIDES) * FP + column] = x[i];
    });
  }
};

/* ---- blocks -------------------------------------------------------------- */

/* Walks over the units with W e in the lanes: each warp takes every n-th.  If
 * AHEAD, the next unit's edges and rows are on their way before it needs them.
 */
template <class Work> DEVICE void walk_by_warps(const edges_params &p) {
  extern __shared__ double edges_shared[];
  Work work(p, reinterpret_cast<typename Work::A *>(edges_shared));
  typename Work::state z;
  typename Work::early e;
  const int step = gridDim.x * Work::WARPS, last = p.schedule.units - 1;
  int unit = blockIdx.x * Work::WARPS + threadIdx.x / 32;
  row_edges w = row_of_unit(p.schedule, min(unit, last));
  if constexpr (Work::AHEAD)
    work.fetch(e, w, 0);
  while (unit <= last) {
    row_edges next = w;
    unit += step;
    if constexpr (Work::AHEAD)
      next = row_of_unit(p.schedule, min(unit, last));
    for (work.first = 0; work.first < Work::HEADS; work.first += Work::TILE) {
      work.load_row(z, w.row);
      if constexpr (Work::AHEAD)
        work.expect_row(next.row);
      work.begin(z);
      work.template walk_row<Work::AHEAD>(
          e, w, [&](auto... edges) { work.step(z, edges...); });
      if (Work::AHEAD && work.first + Work::TILE >= Work::HEADS)
        work.fetch(e, next, 0);
      work.finish(z, w);
      work.store(z, nullptr, w);
    }
    w = Work::AHEAD ? next : row_of_unit(p.schedule, min(unit, last));
  }
}

/* The same with products: a block takes as many units as it has warps.  All
 * warps make W^T q (and W^T dO, if GRADS) of the rows; each walks the edges of
 * one; all make W z of the sums z (if EXPANDS), which completes a row.
 * Meanwhile q (and dO) of the next rows come. */
template <class Work> DEVICE void walk_by_blocks(const edges_params &p) {
  using A = typename Work::A;
  using rows_of = typename Work::rows_of;
  using project = typename Work::project;
  constexpr int ROWS = Work::WARPS, kTile = ROWS * project::PITCH;
  constexpr int kTiles = Work::GRADS && Work::VALUES ? 2 : 1;
  extern __shared__ double edges_shared[];
  A *tile = reinterpret_cast<A *>(edges_shared);
  A *product = tile + kTiles * kTile;
  A *chunks = product + (Work::EXPANDS ? ROWS * Work::expand::PITCH : 0);
  auto *staged =
      reinterpret_cast<typename Work::T *>(chunks + ROWS * Work::CHUNK_SIZE);
  const int warp = threadIdx.x / 32;
  const int step = gridDim.x * ROWS, units = p.schedule.units;
  const int *rows_by_unit = rows_of_units(p.schedule);
  const rows_of queries{staged, rows_by_unit};
  const rows_of grads{staged + rows_of::SIZE, rows_by_unit};
  const typename Work::matrix w{
      static_cast<const typename Work::T *>(p.weight),
      static_cast<const typename Work::T *>(p.constant),
      staged + (Work::GRADS ? 2 : 1) * rows_of::SIZE};
  const auto copy = [&](int row0) {
    queries.copy(p.query, row0, min(ROWS, units - row0), 0, Work::HEADS);
    if constexpr (Work::GRADS)
      grads.copy(p.grad_out, row0, min(ROWS, units - row0), 0, Work::HEADS);
    copy_commit();
  };
  Work work(p, tile, chunks + warp * Work::CHUNK_SIZE);
  int row0 = blockIdx.x * ROWS;
  copy(row0);
  row_edges edges = row_of_unit(p.schedule, min(row0 + warp, units - 1));
  w.stage();
  work.features.clear();
  for (int i = threadIdx.x; i < kTiles * kTile; i += ROWS * 32)
    tile[i] = A(0);
  typename Work::state z;
  typename Work::early e;
  for (; row0 < units; row0 += step) {
    const int rows = min(ROWS, units - row0);
    const row_edges now = edges;
    work.fetch(e, now, 0);
    copy_wait<0>();
    __syncthreads();
    edges = row_of_unit(p.schedule, min(row0 + warp + step, units - 1));
    for (int t = 0; t < Work::TILES; ++t) {
      work.first = t * Work::TILE;
      if (warp < rows)
        work.load_row(z, now.row, queries.staged, grads.staged);
      if (Work::KEYS)
        project::run(tile, w, queries, p.query, row0, rows, work.first,
                     A(p.scale) * A(kLog2e));
      if (Work::GRADS && Work::VALUES)
        project::run(tile + kTile, w, grads, p.grad_out, row0, rows, work.first,
                     A(1));
      __syncthreads();
      if (t == Work::TILES - 1 && row0 + step < units)
        copy(row0 + step);
      if (warp < rows) {
        work.begin(z);
        work.template walk_row<true>(
            e, now, [&](auto... edges) { work.step(z, edges...); });
        work.finish(z, now);
      }
      if (Work::EXPANDS) {
        __syncthreads();
        if (!Work::GRADS || p.grad_query.data)
          Work::expand::run(product, w, tile, work.first);
        __syncthreads();
      } else if (t + 1 < Work::TILES) {
        __syncthreads();
      }
      if (warp < rows)
        work.store(z, product, now);
    }
  }
}

template <class Work> DEVICE void walk_units(const edges_params &p) {
  if constexpr (Work::PRODUCTS)
    walk_by_blocks<Work>(p);
  else
    walk_by_warps<Work>(p);
}

} // namespace dfgnn

#endif
