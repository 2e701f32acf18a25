/* edges_row.cuh - what the walks over rows with edge features, forward and
 * backward, do alike */
#ifndef DFGNN_ATTENTION_CUDA_EDGES_ROW_CUH
#define DFGNN_ATTENTION_CUDA_EDGES_ROW_CUH

#include "kernels/attention/cuda/edges_term.cuh"
#include "kernels/common/ptx.cuh"

namespace dfgnn {

template <class K> struct edge_row : edge_term<K> {
  using term = edge_term<K>;
  using term::C, term::DROPOUT, term::GAT, term::GT, term::p, term::PRODUCTS;
  using term::S, term::SIDES, term::U, term::VEC;
  using typename term::A;
  using typename term::pack;
  using T = typename K::type;
  static constexpr int KC = GT ? C : 1, QC = GAT ? 1 : C;

  using term::term;

  /* The U edges of each side that are in flight. */
  struct flight {
    pack k[U][KC], v[U][C];
    typename term::edges y;
    int64_t edge[U];
    int j[U];
    typename term::kept_t drawn;
  };

  DEVICE void gather(flight &x, const char *keys, const char *values, int index,
                     int from, int left, int64_t begin) const {
    unroll<U>([&](int u) {
      x.edge[u] = begin + u * SIDES;
      x.j[u] = __shfl_sync(kFullMask, index, from + u * SIDES);
      if constexpr (GT)
        term::gather(x.k[u], keys, p.key, x.j[u], u * SIDES < left);
      term::gather(x.v[u], values, p.value, x.j[u], u * SIDES < left);
    });
    if constexpr (DROPOUT)
      x.drawn.draw(p.dropout, this->seed, begin - this->side(),
                   left + this->side(), this->first);
    this->load(x.y, from, x.edge, left);
  }
  DEVICE bool keeps(const flight &x, int u, int h) const {
    return !DROPOUT || x.drawn.has(u, this->side(), this->head(h), this->first);
  }

  /* Brings vectors near that the warp loads when their row has its turn. */
  DEVICE void expect(const tensor_view &t, int row) const {
    unroll<C>([&](int c) {
      if (this->side() == 0 && this->has(c))
        ptx::fetch_line(this->vector_of(t, row, c));
    });
  }
  /* Loads the row's query; queries: of the block's rows, if they are staged. */
  DEVICE void load_query(A (&q)[QC][VEC], int row, const T *queries) const {
    if constexpr (PRODUCTS && K::staged)
      this->own(q, queries + threadIdx.x / 32 * term::rows_of::PITCH);
    else if constexpr (!GAT)
      this->own(q, p.query, row);
  }
  static DEVICE A query_factor(const edges_params &p) {
    return GT ? A(p.scale) * A(kLog2e) : A(1);
  }
  /* The row's part of GAT's score, and that of an edge in flight. */
  DEVICE void load_score(A (&score)[S], int row) const {
    unroll<S>([&](int h) {
      score[h] = GAT ? this->scalar(p.score_dst, row, h) : A(0);
    });
  }
  DEVICE A sum_of_scores(A row, const flight &x, int u, int h) const {
    return row + this->scalar(p.score_src, x.j[u], h) +
           this->scalar(p.score_edge, x.edge[u], h);
  }

  /* Stores the row's vectors, with W z of the block's rows (product) if the
   * term EXPANDS; used: which heads have a weight.  scale() completes one. */
  template <bool EXPANDS, class Scale>
  DEVICE void give_row(const tensor_view &to, A (&x)[C][VEC],
                       const state_bits<S> &used, const A *product,
                       const row_edges &w, const Scale &scale) const {
    unroll<C>([&](int c) {
      /* A NaN in W times 0 is NaN: rows without weights skip the product. */
      if constexpr (PRODUCTS && EXPANDS)
        if (this->has(c) && used.has(term::state(c)))
          this->add_product(x[c], product, c);
      scale(x[c]);
      if (!term::whole(w))
        this->give_partial(p.partial, w.slot, 1, 0, c, x[c]);
      else if (term::ADDS)
        term::map::add(to, w.row, c, x[c]);
      else
        this->give(to, w.row, c, x[c]);
    });
  }
};

} // namespace dfgnn

#endif
