/* messages.h - sums of computed messages, their gradients, and what reductions
 * find of them; a part of kernels.c */

enum {
  NONE = DFGNN_CPU_EDGES_NONE,
  GIVEN = DFGNN_CPU_EDGES_GIVEN,
  PROJECTED = DFGNN_CPU_EDGES_PROJECTED,
  RELU = DFGNN_MESSAGE_RELU,
  GATE = DFGNN_MESSAGE_GATE,
  GATE_VALUE = DFGNN_MESSAGE_GATE_VALUE
};

/* The compilers' vector extension divides in every instruction set. */
CPU_INLINE vec v_over(vec a, vec b) { return a / b; }

#include "kernels/sums/cpu/project.h"

/* ---- the message --------------------------------------------------------- */

/* The gradient of relu(sum): 0 where sum <= 0; a NaN passes it on. */
CPU_INLINE vec v_rectified(vec sum, vec grad) {
#if CPU_ISA == CPU_AVX512
  return V(maskz_mov)(V_COMPARE(sum, v_zero(), _CMP_NLE_UQ), grad);
#elif CPU_ISA == CPU_AVX2
  return V(andnot)(V(cmp)(sum, v_zero(), _CMP_LE_OQ), grad);
#else
  return v_choose((bits)(sum <= v_zero()), v_zero(), grad);
#endif
}

typedef struct sigmoid {
  vec on, off; /* sigma(z) and 1 - sigma(z) */
} sigmoid;

CPU_INLINE sigmoid v_sigmoid(vec z) {
  vec zero = v_zero(), one = v_set(1);
  vec small = v_exp(v_sub(zero, v_max(z, v_sub(zero, z))));
  vec large = v_over(one, v_add(one, small));
  small = v_mul(small, large);
  return (sigmoid){v_step(z, large, small), v_step(z, small, large)};
}

/* The terms of one edge for a vector of features: `sum` is added to the row's
 * sum; `edge`, of a backward pass, is the gradient of the edge's part of the
 * gate or sum.  In the pass COLUMNS, `sum` is also the gradient of the edge's
 * part of the value. */
typedef struct term {
  vec sum, edge;
} term;

/* x: the value of the source, with the edge's part added; gates: the sum of the
 * nodes' gates; edge: the edge's part of the gate or sum; grad: the gradient of
 * the message, of a backward pass. */
CPU_INLINE term term_of(vec x, vec gates, vec edge, vec grad, const int pass,
                        const int kind) {
  if (kind == RELU) {
    vec sum = v_add(x, edge);
    if (pass == FORWARD)
      return (term){v_max(v_zero(), sum), v_zero()}; /* a NaN stays */
    vec on = v_rectified(sum, grad);
    return (term){on, on};
  }
  sigmoid s = v_sigmoid(v_add(gates, edge));
  if (pass == FORWARD)
    return (term){v_mul(s.on, x), v_zero()};
  vec slope = v_mul(v_mul(grad, x), v_mul(s.on, s.off));
  return (term){pass == ROWS ? slope : v_mul(grad, s.on), slope};
}

/* ---- panels -------------------------------------------------------------- */

/* Gates compute far more than they load, so that wide panels save nothing.
 * Portable kernels serve machines that no other kernel serves: one width, since
 * they take long to compile. */
CPU_INLINE int widest(const int kind) {
  return CPU_ISA == CPU_PORTABLE || kind != RELU ? 1 : WIDEST;
}

/* The edges of a chunk of a row, for one piece. */
typedef struct gather {
  const sums_job *job;
  const scalar *own, *own_gate;
  const char *far, *far_gate;
  const int32_t *index;
  int64_t count, ahead, position; /* ahead: the edges that prefetch another;
                                   * position: of the first edge */
  int64_t listed; /* the edges that prefetch what a list has of another */
  const scalar *factors;   /* NULL: 1 */
  const scalar *projected; /* the piece of the first edge's projected part */
  const char *attr;
  char *grad_attr;        /* NULL: not wanted */
  int fresh;              /* the first chunk: sums hold nothing yet */
  scalar *out, *out_gate; /* NULL: results go to the sums */
  scalar *sum, *sum_gate; /* NULL: not wanted */
  scalar after;
} gather;

/* An edge's numbers in the caller's list are used once, and no hardware guesses
 * where they are. */
enum { LISTED_AHEAD = 12 };

CPU_INLINE void prefetch_edge(const gather *g, int64_t e, int64_t bytes) {
  const sums_job *job = g->job;
  int64_t id = edge_id(job, g->position + e);
  prefetch_row(g->far, g->index[e], job->far.first.node, bytes);
  prefetch_row(g->attr, id, job->attr.node, bytes);
  for (int64_t i = 0; g->grad_attr && i < bytes; i += 64)
    __builtin_prefetch(g->grad_attr + id * job->grad_attr.node + i, 1);
}

CPU_INLINE void message_panel(const gather *g, int64_t d, tail t,
                              const int width, const int cut, const int pass,
                              const int edges, const int kind) {
  const sums_job *job = g->job;
  const int gated = kind != RELU;
  const int both = pass == COLUMNS && gated;
  const int64_t bytes = job->pieces.dim * (int64_t)sizeof(scalar);
  vec sum[WIDEST], sum_gate[WIDEST], own[WIDEST], own_gate[WIDEST];
  vec after = v_set(g->after);
  CPU_EACH(i, width) {
    int last = cut && i == width - 1;
    sum[i] = sum_gate[i] = own[i] = own_gate[i] = v_zero();
    if (pass != FORWARD)
      own[i] = v_load_cut(g->own + d + i * VECTOR, t, last);
    if (gated)
      own_gate[i] = v_load_cut(g->own_gate + d + i * VECTOR, t, last);
  }
  for (int64_t e = 0; e < g->count; e++) {
    int64_t j = g->index[e];
    const scalar *far = row_at(g->far, j, job->far.first.node) + d;
    const scalar *far_gate =
        gated ? row_at(g->far_gate, j, job->far.gate.node) + d : far;
    int64_t id = edges == GIVEN ? edge_id(job, g->position + e) : 0;
    const scalar *attr = row_at(g->attr, id, job->attr.node) + d;
    vec factor = v_set(g->factors ? g->factors[e] : 1);
    if (d == 0 && e < g->ahead)
      prefetch_row(g->far, g->index[e + job->prefetch], job->far.first.node,
                   bytes);
    if (d == 0 && edges == GIVEN && e < g->listed)
      prefetch_edge(g, e + LISTED_AHEAD, bytes);
    CPU_EACH(i, width) {
      int last = cut && i == width - 1;
      vec read = v_load_cut(far + i * VECTOR, t, last);
      const scalar *projected = g->projected;
      if (edges == PROJECTED)
        projected += e * job->projection.row + d + i * VECTOR;
      vec part = edges == GIVEN       ? v_load_cut(attr + i * VECTOR, t, last)
                 : edges == PROJECTED ? v_load(projected)
                                      : v_zero();
      vec x = pass == COLUMNS ? own[i] : read;
      if (kind == GATE_VALUE)
        x = v_add(x, v_load(projected + job->projection.padded_width));
      vec gates =
          gated ? v_add(own_gate[i], v_load_cut(far_gate + i * VECTOR, t, last))
                : v_zero();
      vec grad = pass == COLUMNS ? v_mul(factor, read)
                 : pass == ROWS  ? v_mul(factor, own[i])
                                 : v_zero();
      term y = term_of(x, gates, part, grad, pass, kind);
      sum[i] =
          pass == FORWARD ? v_fma(factor, y.sum, sum[i]) : v_add(y.sum, sum[i]);
      if (both)
        sum_gate[i] = v_add(y.edge, sum_gate[i]);
      if (edges == GIVEN && pass == COLUMNS && g->grad_attr)
        v_store_cut((scalar *)(g->grad_attr + id * job->grad_attr.node) + d +
                        i * VECTOR,
                    v_mul(y.edge, after), t, last);
    }
  }
  CPU_EACH(i, width) {
    int last = cut && i == width - 1;
    int64_t at = d + i * VECTOR;
    if (g->sum)
      end_sum(g->out ? g->out + at : NULL, g->sum + at, g->fresh, sum[i], after,
              t, last);
    if (both && g->sum_gate)
      end_sum(g->out_gate ? g->out_gate + at : NULL, g->sum_gate + at, g->fresh,
              sum_gate[i], after, t, last);
  }
}

CPU_INLINE void add_messages(const sums_job *job, int64_t row, int64_t piece,
                             int64_t begin, int64_t end, void *state, int whole,
                             const int pass, const int edges, const int kind) {
  int64_t dim = job->pieces.dim, e = begin;
  tail t = v_tail(dim % VECTOR);
  const scalar *scale = job->scale;
  scalar factors[CHUNK];
  gather g = {.job = job,
              .own = row_of(job, &job->own.first, row, piece),
              .own_gate = row_of(job, &job->own.gate, row, piece),
              .far = place(job, &job->far.first, 0, piece),
              .far_gate = place(job, &job->far.gate, 0, piece),
              .attr = place(job, &job->attr, 0, piece),
              .grad_attr = place(job, &job->grad_attr, 0, piece),
              .factors = scale ? factors : NULL,
              .fresh = 1,
              .sum = job->to.base ? (scalar *)state + piece * dim : NULL,
              .sum_gate = job->to_gate.base
                              ? (scalar *)state + job->width + piece * dim
                              : NULL,
              .after = after_of(job, row)};
  scalar *out = (scalar *)place(job, &job->to, row, piece);
  scalar *out_gate = (scalar *)place(job, &job->to_gate, row, piece);
  do {
    g.position = e;
    g.index = job->indices + e;
    g.count = end - e < CHUNK ? end - e : CHUNK;
    if (edges == PROJECTED && g.count > 0)
      g.projected = project_window(job, e, &g.count) + piece * dim;
    g.ahead = edges_ahead(job, e);
    g.listed = job->edge ? job->edges - LISTED_AHEAD - e : 0;
    for (int64_t k = 0; scale && k < g.count; k++)
      factors[k] = scale[g.index[k]];
    if (whole && e + g.count == end) {
      g.out = out;
      g.out_gate = out_gate;
    }
#define PANEL_OF(d, width, cut)                                                \
  message_panel(&g, d, t, width, cut, pass, edges, kind)
    EACH_PANEL(widest(kind), dim, PANEL_OF);
#undef PANEL_OF
    g.fresh = 0;
    e += g.count;
  } while (e < end);
}

/* A fold for each pass, source of the edge's part and kind of message. */
#define EACH_KIND(FOLD, pass_name, pass)                                       \
  FOLD(pass_name##_gate_none, pass, NONE, GATE)                                \
  FOLD(pass_name##_gate_given, pass, GIVEN, GATE)                              \
  FOLD(pass_name##_gate_projected, pass, PROJECTED, GATE)                      \
  FOLD(pass_name##_gate_value, pass, PROJECTED, GATE_VALUE)
#define EACH_RELU(FOLD, pass_name, pass)                                       \
  FOLD(pass_name##_relu_given, pass, GIVEN, RELU)                              \
  FOLD(pass_name##_relu_projected, pass, PROJECTED, RELU)
#define EACH_FOLD(FOLD)                                                        \
  EACH_RELU(FOLD, forward, FORWARD)                                            \
  EACH_KIND(FOLD, forward, FORWARD)                                            \
  EACH_RELU(FOLD, columns, COLUMNS)                                            \
  EACH_KIND(FOLD, columns, COLUMNS)                                            \
  EACH_KIND(FOLD, rows, ROWS)

#define SUM(name, pass, edges, kind)                                           \
  static CPU_TARGET void sum_##name(const void *job, int64_t row,              \
                                    int64_t piece, int64_t begin, int64_t end, \
                                    void *state, int whole) {                  \
    add_messages(job, row, piece, begin, end, state, whole, pass, edges,       \
                 kind);                                                        \
  }
EACH_FOLD(SUM)

#include "kernels/sums/cpu/message_extremes.h"

/* ---- gradients of projections -------------------------------------------- */

/* Replaces an edge's projected parts by their gradients. */
CPU_INLINE void grade_piece(const sender *s, const receiver *r, int64_t dim,
                            scalar factor, int64_t number, int found,
                            const int kind) {
  int sums = !found;
  for (int64_t d = 0; d < dim; d += VECTOR) {
    int cut = dim - d < VECTOR;
    tail t = v_tail(dim % VECTOR);
    inputs in = inputs_at(s, d, t, cut, PROJECTED, kind == GATE_VALUE, kind);
    vec grad = sums ? v_mul(v_set(factor), v_load_cut(r->out + d, t, cut))
                    : gradient_at(r, d, t, cut, number, &in, found, kind);
    term y = term_of(in.x, in.gates, in.part, grad, COLUMNS, kind);
    v_store_cut((scalar *)s->part + d, y.edge, t, cut);
    if (kind == GATE_VALUE)
      v_store_cut((scalar *)s->part_value + d, y.sum, t, cut);
  }
}

CPU_INLINE void grade_window(const sums_job *job, int64_t begin, int64_t count,
                             int64_t *row, scalar *parts, const int kind) {
  const scalar *scale = job->scale;
  for (int64_t k = 0; k < count; k++) {
    int64_t e = begin + k, column = job->indices[e];
    while (dfgnn__cpu_edge(job->offsets64, job->offsets, *row + 1) <= e)
      ++*row;
    int64_t number = edge_number(job, e, *row);
    scalar factor = after_of(job, *row) * (scale ? scale[column] : 1);
    for (int64_t piece = 0; piece < job->pieces.count; piece++) {
      sender s = {0};
      set_nodes(&s, job, &job->far, column, &job->own, *row, piece, kind);
      s.part = parts + k * job->projection.row + piece * job->pieces.dim;
      s.part_value = s.part + job->projection.padded_width;
      receiver r = receiver_of(job, *row, piece);
      grade_piece(&s, &r, job->pieces.dim, factor, number, job->found, kind);
    }
  }
}

/* The row of an edge: the last that begins at or before it. */
CPU_INLINE int64_t row_of_edge(const sums_job *job, int64_t e) {
  int64_t low = 0, high = job->rows;
  while (high - low > 1) {
    int64_t middle = low + (high - low) / 2;
    if (dfgnn__cpu_edge(job->offsets64, job->offsets, middle) <= e)
      low = middle;
    else
      high = middle;
  }
  return low;
}

static CPU_TARGET void edges(const dfgnn_cpu_sums *job, int64_t begin,
                             int64_t end, char *scratch, void *sums) {
  int64_t row = begin < end ? row_of_edge(job, begin) : 0;
  for (int64_t e = begin; e < end; e += WINDOW) {
    int64_t count = end - e < WINDOW ? end - e : WINDOW;
    project(job, e, count, scratch);
    switch (job->message) {
    case DFGNN_MESSAGE_RELU:
      grade_window(job, e, count, &row, window_parts(scratch), RELU);
      break;
    case DFGNN_MESSAGE_GATE:
      grade_window(job, e, count, &row, window_parts(scratch), GATE);
      break;
    default:
      grade_window(job, e, count, &row, window_parts(scratch), GATE_VALUE);
    }
    if (job->projection.grad_attr)
      grade_fields(job, e, count, scratch);
    if (sums)
      add_parameters(job, count, scratch, sums);
  }
}
