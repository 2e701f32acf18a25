/* message.cuh - sums over the messages of edges */
#ifndef DFGNN_SUMS_CUDA_MESSAGE_CUH
#define DFGNN_SUMS_CUDA_MESSAGE_CUH

#include "kernels/sums/cuda/sum.cuh"
#include "kernels/sums/cuda/term.cuh"

namespace dfgnn {

template <bool ON, typename X, typename Y> struct conditional {
  using type = X;
};
template <typename X, typename Y> struct conditional<false, X, Y> {
  using type = Y;
};
template <bool ON, typename X, typename Y>
using conditional_t = typename conditional<ON, X, Y>::type;

/* The sums of an instance: that of the gates beside the first. */
constexpr int message_sums(int what) {
  return (what & MESSAGE_PASS) == SUMS_COLUMNS && what & MESSAGE_GATED ? 2 : 1;
}

/* FIELDS: the features of an edge that a matrix projects, or MESSAGE_EDGES_...;
 * WHAT: the bits of params.h. */
template <typename T, int VEC_, int L, int C, int WHAT, int FIELDS, int W>
struct message_op : row_sums<accumulator_t<T>, VEC_, C, message_sums(WHAT)> {
  using A = accumulator_t<T>;
  static constexpr int VEC = VEC_;
  static constexpr int PASS = WHAT & MESSAGE_PASS;
  static constexpr bool GATED = (WHAT & MESSAGE_GATED) != 0;
  static constexpr int GRADE = PASS == SUMS_FORWARD ? 0 : WHAT & MESSAGE_GRADE;
  static constexpr bool FORWARD = PASS == SUMS_FORWARD;
  static constexpr bool COLUMNS = PASS == SUMS_COLUMNS;
  static constexpr bool ROWS = PASS == SUMS_ROWS;
  static constexpr int PARTS = WHAT & MESSAGE_VALUE ? 2 : 1;
  static constexpr bool GIVEN = FIELDS == MESSAGE_EDGES_GIVEN;
  static constexpr bool PROJECTED = FIELDS > 0;
  static constexpr int TOGETHER = WHAT / MESSAGE_TOGETHER;
  static constexpr int SUMS = message_sums(WHAT);
  using sums = row_sums<A, VEC_, C, SUMS>;
  using total = typename sums::total;
  static constexpr int G = GATED ? C : 1, E = GIVEN ? C : 1;
  static constexpr int S = COLUMNS ? 1 : C, O = COLUMNS ? C : 1;
  using grades_t = message_grades<T, VEC, L, C, GRADE, W>;
  static constexpr int kSize = sizeof(T) * (GATED + GIVEN + !COLUMNS) +
                               (COLUMNS ? grades_t::kSize : 0) +
                               (PROJECTED ? PARTS * sizeof(A) : 0);
  static constexpr int kHeld =
      C * VEC * sizeof(A) / 4 * (SUMS + COLUMNS + GATED) +
      (ROWS ? C * VEC * grades_t::kSize / 4 : 0) + 8;
  static constexpr bool kNotes = true;

  struct nothing {};
  using read_t = typename grades_t::read;
  struct edge {
    packed<T, VEC> x[S], gate[G], attr[E];
    conditional_t<COLUMNS, read_t, nothing> grades;
  };
  struct note {
    A scale;
    int64_t id;
    unsigned first; /* the lower half of the number of its row's first edge */
  };
  struct mark {
    A scale;
    int64_t id;
    int position;
  };
  struct state : sums::state {
    A own[O][VEC], gate[G][VEC], after;
    conditional_t<ROWS, read_t, nothing> grades;
  };

  const gather_params &p;
  const lane_features<VEC, L, C, W> features;
  const lane_table<T, VEC, L, C, W> table, gate_table;
  const grades_t grades;

  DEVICE explicit message_op(const gather_params &params)
      : p(params), features(params), table(params, params.table, features),
        gate_table(params, GATED ? params.far_gate : params.table, features),
        grades(params, ROWS ? params.own : params.table) {}

  DEVICE void begin(state &z, int row, int) const {
    sums::clear_sums(z);
    z.after = A(1);
    if (PASS == SUMS_COLUMNS && p.row_scale && p.schedule.rows > 0)
      z.after = __ldg(static_cast<const A *>(p.row_scale) + row);
    unroll<C>([&](int c) {
      unroll<VEC>([&](int i) { z.own[COLUMNS ? c : 0][i] = A(0); });
      if constexpr (COLUMNS)
        if (features.has(c) && p.schedule.rows > 0)
          load_row<T, VEC>(z.own[c], p, p.own, row, features.at(c));
    });
    if constexpr (ROWS)
      grades.template load<false>(z.grades, row, p.schedule.rows > 0);
    load_gates(z.gate, row);
  }

  /* The gates of a row. */
  DEVICE void load_gates(A (&gate)[G][VEC], int row) const {
    unroll<G>([&](int c) {
      unroll<VEC>([&](int i) { gate[c][i] = A(0); });
      if constexpr (GATED)
        if (features.has(c) && p.schedule.rows > 0)
          load_row<T, VEC>(gate[c], p, p.own_gate, row, features.at(c));
    });
  }

  DEVICE note look(const edge_ahead &e, bool live) const {
    note n = {A(live ? 1 : 0), e.edge(), 0};
    if constexpr (GRADE == 0)
      load_number_if(n.scale,
                     static_cast<const A *>(p.gathered_scale) + e.index,
                     live && p.gathered_scale);
    else if constexpr (COLUMNS)
      load_number_if(n.first,
                     static_cast<const unsigned *>(p.row_offsets.array) +
                         int64_t(e.index) * (p.row_offsets.wide ? 2 : 1),
                     live);
    return n;
  }

  template <int U>
  DEVICE void pass(mark (&to)[U], const note &n, int from, int sides) const {
    unroll<U>([&](int u) {
      to[u] = {A(1), __shfl_sync(kFullMask, n.id, from + u * sides), 0};
      if constexpr (GRADE == 0)
        to[u].scale = __shfl_sync(kFullMask, n.scale, from + u * sides);
      else if constexpr (COLUMNS)
        to[u].position =
            static_cast<int>(static_cast<unsigned>(to[u].id) -
                             __shfl_sync(kFullMask, n.first, from + u * sides));
    });
  }

  template <bool WHOLE> DEVICE void load(edge &x, int j, bool live) const {
    if constexpr (COLUMNS)
      grades.template load<WHOLE>(x.grades, j, live);
    unroll<C>([&](int c) {
      if constexpr (!COLUMNS)
        table.template load<WHOLE>(x.x[c], j, c, live && features.has(c));
      if constexpr (GATED)
        gate_table.template load<WHOLE>(x.gate[c], j, c,
                                        live && features.has(c));
    });
  }

  /* The position of feature f of an edge in [E, width]. */
  DEVICE int64_t place(int64_t id, int f) const {
    return id * p.width + (VEC > 1 ? f : heads_first(p, f));
  }

  template <bool WHOLE>
  DEVICE void fetch(edge &x, int, const mark &n, bool live) const {
    if constexpr (GIVEN) {
      unroll<C>([&](int c) {
        clear(x.attr[c]);
        load_if<VEC>(x.attr[c],
                     static_cast<const T *>(p.attr) +
                         place(n.id, features.readable(c)),
                     live && features.has(c));
      });
    }
  }
  DEVICE void start(state &, const edge &, int, int) const {}

  /* The projected parts of U edges: those of the gate or sum, then those of the
   * value. */
  template <int U>
  DEVICE void project(A (&part)[U][PARTS][C][VEC], const mark (&n)[U]) const {
    if constexpr (PROJECTED) {
      const A *matrix = static_cast<const A *>(p.matrix);
      const T *attr = static_cast<const T *>(p.attr);
      A w[C][VEC];
      unroll<PARTS>([&](int s) {
        load_matrix(w, matrix + int64_t(FIELDS * PARTS + s) * p.width);
        unroll<U, C, VEC>(
            [&](int u, int c, int i) { part[u][s][c][i] = w[c][i]; });
      });
#pragma unroll 1
      for (int f = 0; f < FIELDS; f += TOGETHER) {
        packed<T, TOGETHER> x[U];
        unroll<U>([&](int u) {
          x[u] = load_packed<TOGETHER>(attr + n[u].id * FIELDS + f);
        });
        unroll<TOGETHER, PARTS>([&](int k, int s) {
          load_matrix(w, matrix + int64_t((f + k) * PARTS + s) * p.width);
          unroll<U, C, VEC>([&](int u, int c, int i) {
            part[u][s][c][i] += widen(x[u].item[k]) * w[c][i];
          });
        });
      }
    }
  }

  /* The lane's features of a row of the matrix. */
  DEVICE void load_matrix(A (&w)[C][VEC], const A *row) const {
    constexpr int N = VEC > 4 ? 4 : VEC;
    unroll<C>([&](int c) {
#pragma unroll
      for (int k = 0; k < VEC; k += N) {
        const packed<A, N> x = load_packed<N>(row + features.readable(c) + k);
        unroll<N>([&](int i) { w[c][k + i] = x.item[i]; });
      }
    });
  }

  /* The operands of one number of a message. */
  struct inputs {
    A x, gates, part;
    DEVICE A message() const {
      return term_of<SUMS_FORWARD, GATED>(x, gates, part, A(0)).value;
    }
  };
  DEVICE static inputs inputs_of(const A (&own)[O][VEC],
                                 const A (&gate)[G][VEC], const edge &x,
                                 const A (&part)[PARTS][C][VEC], int c, int i) {
    inputs in;
    if constexpr (COLUMNS)
      in.x = own[c][i];
    else
      in.x = widen(x.x[c].item[i]);
    in.gates =
        GATED ? gate[GATED ? c : 0][i] + widen(x.gate[GATED ? c : 0].item[i])
              : A(0);
    in.part = GIVEN       ? widen(x.attr[GIVEN ? c : 0].item[i])
              : PROJECTED ? part[0][c][i]
                          : A(0);
    if (PARTS > 1)
      in.x += part[PARTS - 1][c][i];
    return in;
  }

  DEVICE void add_terms(state &z, const edge &x, const mark &n, int position,
                        const A (&part)[PARTS][C][VEC]) const {
    unroll<C>([&](int c) {
      A grad_attr[VEC];
      unroll<VEC>([&](int i) {
        const inputs in = inputs_of(z.own, z.gate, x, part, c, i);
        const A sent = GRADE & MESSAGE_MOMENTS ? in.message() : A(0);
        A grad = A(0);
        if constexpr (COLUMNS)
          grad = grades_t::grade(x.grades, c, i, n.scale, n.position, sent);
        else if constexpr (ROWS)
          grad = grades_t::grade(z.grades, c, i, n.scale, position, sent);
        const message_term<A> t =
            term_of<PASS, GATED>(in.x, in.gates, in.part, grad);
        if (FORWARD)
          z.now[0][c][i] += n.scale * t.value;
        else
          z.now[0][c][i] += t.value;
        if (SUMS > 1)
          z.now[SUMS - 1][c][i] += t.gate;
        grad_attr[i] = t.gate * z.after;
      });
      if (GIVEN && COLUMNS && p.grad_attr && features.has(c))
        store_once<VEC>(static_cast<T *>(p.grad_attr) +
                            place(n.id, features.at(c)),
                        grad_attr);
    });
  }

  template <bool WHOLE>
  DEVICE void add(state &z, const edge &x, const mark &n, int position,
                  bool live) const {
    if (!WHOLE && !live)
      return;
    A part[1][PARTS][C][VEC];
    const mark one[1] = {n};
    project(part, one);
    add_terms(z, x, n, position, part[0]);
  }

  /* Edges beyond the row, which lanes did not read, are skipped. */
  template <bool WHOLE, int U>
  DEVICE void step(state &z, const edge (&x)[U], const mark (&n)[U],
                   int position, int sides, int left) const {
    A part[U][PARTS][C][VEC];
    project(part, n);
    unroll<U>([&](int u) {
      if (WHOLE || u * sides < left)
        add_terms(z, x[u], n[u], position + u * sides, part[u]);
    });
  }

  DEVICE void keep(const total (&t)[VEC], int slot, int f) const {
    sums::keep_sums(p, t, slot, f);
  }
  DEVICE void store(const total (&t)[VEC], int row, int degree, int f) const {
    sums::template store_sums<T>(p, t, row, f, spmm_factor<A>(p, row, degree));
  }
};

template <typename T, int VEC, int L, int C, int U, int WHAT, int FIELDS, int W>
__global__ void __launch_bounds__(
    GATHER_PIECE_WARPS * 32,
    (gather_blocks<message_op<T, VEC, L, C, WHAT, FIELDS, W>, C, U>()))
    message_rows(const __grid_constant__ gather_params p) {
  gather_rows<message_op<T, VEC, L, C, WHAT, FIELDS, W>, L, C, U>(p);
}

} // namespace dfgnn

#endif
