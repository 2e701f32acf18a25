/* message.cuh - sums over the messages of edges */
#ifndef DFGNN_MESSAGE_CUDA_MESSAGE_CUH
#define DFGNN_MESSAGE_CUDA_MESSAGE_CUH

#include "kernels/message/cuda/term.cuh"
#include "kernels/spmm/cuda/spmm.cuh"

namespace dfgnn {

/* FIELDS: what a matrix projects of an edge, or MESSAGE_EDGES_...; WHAT: the
 * pass and more. */
template <typename T, int VEC_, int L, int C, int WHAT, int FIELDS, int W>
struct message_op {
  using A = accumulator_t<T>;
  static constexpr int VEC = VEC_;
  static constexpr int PASS = WHAT & MESSAGE_PASS;
  static constexpr bool GATED = (WHAT & MESSAGE_GATED) != 0;
  static constexpr bool GIVEN = FIELDS == MESSAGE_EDGES_GIVEN;
  static constexpr bool PROJECTED = FIELDS > 0;
  static constexpr int TOGETHER = WHAT / MESSAGE_TOGETHER;
  static constexpr int SUMS = PASS == MESSAGE_COLUMNS && GATED ? 2 : 1;
  static constexpr int G = GATED ? C : 1, E = GIVEN ? C : 1;
  static constexpr int kSize =
      sizeof(T) * (1 + GATED + GIVEN) + (PROJECTED ? sizeof(A) : 0);
  static constexpr int kHeld =
      C * VEC * sizeof(A) / 4 * (SUMS + (PASS != MESSAGE_FORWARD) + GATED) + 8;
  static constexpr bool kNotes = true;

  struct edge {
    packed<T, VEC> x[C], gate[G], attr[E];
  };
  struct note {
    A scale;
    int64_t id;
  };
  using mark = note;
  struct state {
    A now[SUMS][C][VEC], own[C][VEC], gate[G][VEC], after;
    bool folded;
  };
  struct older {
    exact_sum<A> sums[SUMS][C * VEC];
  };
  struct total {
    A sum[SUMS];
  };

  const gather_params &p;
  const message_params &m;
  const lane_features<VEC, L, C, W> features;
  const lane_table<T, VEC, L, C, W> table, gate_table;

  /* The parameters of the launch begin with those of the gather. */
  __device__ __forceinline__ explicit message_op(const gather_params &params)
      : p(params), m(reinterpret_cast<const message_params &>(params)),
        features(params), table(params, params.table, features),
        gate_table(params, GATED ? m.far_gate : params.table, features) {}

  __device__ __forceinline__ void begin(state &z, int row, int) const {
    z.folded = false;
    z.after = A(1);
    if (PASS == MESSAGE_COLUMNS && p.row_scale && p.schedule.rows > 0)
      z.after = __ldg(static_cast<const A *>(p.row_scale) + row);
#pragma unroll
    for (int c = 0; c < C; ++c) {
#pragma unroll
      for (int i = 0; i < VEC; ++i) {
#pragma unroll
        for (int s = 0; s < SUMS; ++s)
          z.now[s][c][i] = A(0);
        z.own[c][i] = z.gate[GATED ? c : 0][i] = A(0);
      }
      if (!features.has(c) || p.schedule.rows == 0)
        continue;
      if (PASS != MESSAGE_FORWARD)
        load_row<T, VEC>(z.own[c], p, m.own, row, features.at(c));
      if (GATED)
        load_row<T, VEC>(z.gate[c], p, m.own_gate, row, features.at(c));
    }
  }

  __device__ __forceinline__ note look(const edge_ahead &e, bool live) const {
    note n = {A(live ? 1 : 0), e.edge()};
    load_number_if(n.scale, static_cast<const A *>(p.gathered_scale) + e.index,
                   live && p.gathered_scale);
    return n;
  }

  template <int U>
  __device__ __forceinline__ void pass(mark (&to)[U], const note &n, int from,
                                       int sides) const {
#pragma unroll
    for (int u = 0; u < U; ++u)
      to[u] = {__shfl_sync(kFullMask, n.scale, from + u * sides),
               __shfl_sync(kFullMask, n.id, from + u * sides)};
  }

  template <bool WHOLE>
  __device__ __forceinline__ void load(edge &x, int j, bool live) const {
#pragma unroll
    for (int c = 0; c < C; ++c) {
      table.template load<WHOLE>(x.x[c], j, c, live && features.has(c));
      if constexpr (GATED)
        gate_table.template load<WHOLE>(x.gate[c], j, c,
                                        live && features.has(c));
    }
  }

  /* Where the number of an edge's feature lies in [E, width]. */
  __device__ __forceinline__ int64_t place(int64_t id, int f) const {
    return id * p.width + (VEC > 1 ? f : heads_first(p, f));
  }

  template <bool WHOLE>
  __device__ __forceinline__ void fetch(edge &x, int, const mark &n,
                                        bool live) const {
    if constexpr (GIVEN) {
#pragma unroll
      for (int c = 0; c < C; ++c) {
        clear(x.attr[c]);
        load_if<VEC>(x.attr[c],
                     static_cast<const T *>(m.attr) +
                         place(n.id, features.readable(c)),
                     live && features.has(c));
      }
    }
  }
  __device__ __forceinline__ void start(state &, const edge &, int, int) const {
  }

  /* The projected parts of U edges. */
  template <int U>
  __device__ __forceinline__ void project(A (&part)[U][C][VEC],
                                          const mark (&n)[U]) const {
    if constexpr (PROJECTED) {
      const A *matrix = static_cast<const A *>(m.matrix);
      const T *attr = static_cast<const T *>(m.attr);
      A w[C][VEC];
      load_matrix(w, matrix + FIELDS * p.width);
#pragma unroll
      for (int u = 0; u < U; ++u)
#pragma unroll
        for (int c = 0; c < C; ++c)
#pragma unroll
          for (int i = 0; i < VEC; ++i)
            part[u][c][i] = w[c][i];
#pragma unroll 1
      for (int f = 0; f < FIELDS; f += TOGETHER) {
        packed<T, TOGETHER> x[U];
#pragma unroll
        for (int u = 0; u < U; ++u)
          x[u] = load_packed<TOGETHER>(attr + n[u].id * FIELDS + f);
#pragma unroll
        for (int k = 0; k < TOGETHER; ++k) {
          load_matrix(w, matrix + (f + k) * p.width);
#pragma unroll
          for (int u = 0; u < U; ++u)
#pragma unroll
            for (int c = 0; c < C; ++c)
#pragma unroll
              for (int i = 0; i < VEC; ++i)
                part[u][c][i] += widen(x[u].item[k]) * w[c][i];
        }
      }
    }
  }

  /* The lane's features of a row of the matrix. */
  __device__ __forceinline__ void load_matrix(A (&w)[C][VEC],
                                              const A *row) const {
    constexpr int N = VEC > 4 ? 4 : VEC;
#pragma unroll
    for (int c = 0; c < C; ++c)
#pragma unroll
      for (int k = 0; k < VEC; k += N) {
        const packed<A, N> x = load_packed<N>(row + features.readable(c) + k);
#pragma unroll
        for (int i = 0; i < N; ++i)
          w[c][k + i] = x.item[i];
      }
  }

  __device__ __forceinline__ void add_terms(state &z, const edge &x,
                                            const mark &n,
                                            const A (&part)[C][VEC]) const {
#pragma unroll
    for (int c = 0; c < C; ++c) {
      A grad_attr[VEC];
#pragma unroll
      for (int i = 0; i < VEC; ++i) {
        const A read = widen(x.x[c].item[i]);
        const A gates = GATED ? z.gate[GATED ? c : 0][i] +
                                    widen(x.gate[GATED ? c : 0].item[i])
                              : A(0);
        const A y = GIVEN       ? widen(x.attr[GIVEN ? c : 0].item[i])
                    : PROJECTED ? part[c][i]
                                : A(0);
        const A grad = PASS == MESSAGE_COLUMNS ? n.scale * read
                       : PASS == MESSAGE_ROWS  ? n.scale * z.own[c][i]
                                               : A(0);
        const message_term<A> t = term_of<PASS, GATED>(
            PASS == MESSAGE_COLUMNS ? z.own[c][i] : read, gates, y, grad);
        if (PASS == MESSAGE_FORWARD)
          z.now[0][c][i] += n.scale * t.value;
        else
          z.now[0][c][i] += t.value;
        if (SUMS > 1)
          z.now[SUMS - 1][c][i] += t.gate;
        grad_attr[i] = t.gate * z.after;
      }
      if (GIVEN && PASS == MESSAGE_COLUMNS && m.grad_attr && features.has(c))
        store_once<VEC>(static_cast<T *>(m.grad_attr) +
                            place(n.id, features.at(c)),
                        grad_attr);
    }
  }

  template <bool WHOLE>
  __device__ __forceinline__ void add(state &z, const edge &x, const mark &n,
                                      int, bool live) const {
    if (!WHOLE && !live)
      return;
    A part[1][C][VEC];
    const mark one[1] = {n};
    project(part, one);
    add_terms(z, x, n, part[0]);
  }

  /* Edges beyond the row are those that lanes did not read. */
  template <bool WHOLE, int U>
  __device__ __forceinline__ void step(state &z, const edge (&x)[U],
                                       const mark (&n)[U], int, int sides,
                                       int left) const {
    A part[U][C][VEC];
    project(part, n);
#pragma unroll
    for (int u = 0; u < U; ++u)
      if (WHOLE || u * sides < left)
        add_terms(z, x[u], n[u], part[u]);
  }

  __device__ __forceinline__ void fold(state &z, older &old, int, int,
                                       int) const {
    const bool folded = z.folded;
#pragma unroll
    for (int s = 0; s < SUMS; ++s) {
      z.folded = folded;
      fold_sums<true>(z.now[s], old.sums[s], z.folded);
    }
  }

  __device__ __forceinline__ void close(total (&t)[C][VEC], const state &z,
                                        older &old, bool) const {
#pragma unroll
    for (int s = 0; s < SUMS; ++s) {
      A sums[C][VEC];
      close_sums<true>(sums, z.now[s], old.sums[s], z.folded);
#pragma unroll
      for (int c = 0; c < C; ++c)
#pragma unroll
        for (int i = 0; i < VEC; ++i)
          t[c][i].sum[s] = sums[c][i];
    }
  }

  static __device__ __forceinline__ total shuffle(const total &t, int o) {
    total other;
#pragma unroll
    for (int s = 0; s < SUMS; ++s)
      other.sum[s] = __shfl_xor_sync(kFullMask, t.sum[s], o);
    return other;
  }
  static __device__ __forceinline__ void merge(total &t, const total &other) {
#pragma unroll
    for (int s = 0; s < SUMS; ++s)
      t.sum[s] += other.sum[s];
  }

  __device__ __forceinline__ void keep(const total (&t)[VEC], int slot,
                                       int f) const {
#pragma unroll
    for (int s = 0; s < SUMS; ++s) {
      A *to = part_of<SUMS, A>(p, slot, s, f);
#pragma unroll
      for (int i = 0; i < VEC; ++i)
        to[i] = t[i].sum[s];
    }
  }

  __device__ __forceinline__ void store(const total (&t)[VEC], int row,
                                        int degree, int f) const {
    const A factor = spmm_factor<A>(p, row, degree);
#pragma unroll
    for (int s = 0; s < SUMS; ++s) {
      const feature_tensor &to = s ? m.out_gate : p.out;
      A y[VEC];
#pragma unroll
      for (int i = 0; i < VEC; ++i)
        y[i] = t[i].sum[s] * factor;
      if (to.data)
        store_row<T, VEC>(p, to, const_cast<void *>(to.data), row, f, y);
    }
  }
};

template <typename T, int VEC, int L, int C, int U, int WHAT, int FIELDS, int W>
__global__ void __launch_bounds__(
    GATHER_PIECE_WARPS * 32,
    (gather_blocks<message_op<T, VEC, L, C, WHAT, FIELDS, W>, C, U>()))
    message_rows(const __grid_constant__ message_params p) {
  gather_rows<message_op<T, VEC, L, C, WHAT, FIELDS, W>, L, C, U>(p.gather);
}

} // namespace dfgnn

#endif
