/* heads_edges.h - what features of edges add to rows, for all heads at once; a
 * part of kernels.c.  See edges.h and heads.h.
 *
 * The parts of a window of edges, W e + b, are computed together: those of
 * several rows, if these are short.  Backward, their gradients take their
 * place, and those of e, W and b follow when the window is closed. */

CPU_INLINE void copy_numbers(scalar *to, const scalar *from, int64_t count) {
  memcpy(to, from, (size_t)count * sizeof *to);
}

/* ---- products of matrices ------------------------------------------------ */

/* to[r][c] = sum over k of a[r][k] b[k][c]; distances in scalars. */
typedef struct matrices {
  scalar *to;
  const scalar *a, *b;
  int64_t rows, inner, columns;
  int64_t to_row, a_row, a_inner, b_row;
  int add; /* 1: the product is added to what is in to */
} matrices;

/* Computes `rows` rows by `width` vectors of to; the last is cut to t. */
CPU_INLINE void multiply_block(const matrices *m, int64_t r, int64_t c, tail t,
                               const int rows, const int width, const int cut) {
  const scalar *a = m->a + r * m->a_row, *b = m->b + c;
  scalar *to = m->to + r * m->to_row + c;
  vec sum[8], y[4];
  CPU_EACH(i, rows * width) { sum[i] = v_zero(); }
  for (int64_t k = 0; k < m->inner; k++, a += m->a_inner, b += m->b_row) {
    CPU_EACH(i, width) {
      y[i] = cut ? v_load_tail(b + i * VECTOR, t) : v_load(b + i * VECTOR);
    }
    CPU_EACH(u, rows) {
      vec x = v_set(a[u * m->a_row]);
      CPU_EACH(i, width) {
        sum[u * width + i] = v_fma(x, y[i], sum[u * width + i]);
      }
    }
  }
  CPU_EACH(u, rows) {
    CPU_EACH(i, width) {
      scalar *at = to + u * m->to_row + i * VECTOR;
      vec x = sum[u * width + i];
      if (m->add)
        x = v_add(x, cut ? v_load_tail(at, t) : v_load(at));
      if (cut)
        v_store_tail(at, x, t);
      else
        v_store(at, x);
    }
  }
}

static CPU_TARGET void multiply_matrices(const matrices *m) {
  const tail t = v_tail(m->columns % VECTOR);
  int64_t c = 0;
#define MULTIPLY(step, high, width, cut)                                       \
  do {                                                                         \
    int64_t r = 0;                                                             \
    for (; r + high <= m->rows; r += high)                                     \
      multiply_block(m, r, c, t, high, width, cut);                            \
    for (; r < m->rows; r++)                                                   \
      multiply_block(m, r, c, t, 1, width, cut);                               \
    c += step;                                                                 \
  } while (0)
  while (c + 2 * VECTOR <= m->columns)
    MULTIPLY(2 * VECTOR, 4, 2, 0);
  while (c + VECTOR <= m->columns)
    MULTIPLY(VECTOR, 4, 1, 0);
  if (c < m->columns)
    MULTIPLY(VECTOR, 4, 1, 1);
#undef MULTIPLY
}

/* ---- windows ------------------------------------------------------------- */

typedef struct window {
  const dfgnn_cpu_edges *term; /* NULL: nothing is added */
  int64_t begin, end;          /* its edges */
  int64_t rows;                /* where the walk ends */
  int by_source;
  scalar *parts;            /* [edges, row] */
  scalar *attr, *grad_attr; /* [edges, width] */
  const scalar *attr_at;    /* the features of its edges */
} window;

/* A window for a walk of rows; columns of GT read all that they need of edges,
 * and have none. */
CPU_INLINE window window_of(const across *x, const dfgnn_cpu_job *job,
                            int64_t rows, scalar *memory) {
  const dfgnn_cpu_edges *term =
      job->by_source && job->op == DFGNN_OP_GT ? NULL : job->term;
  window w = {.term = term, .rows = rows, .by_source = job->by_source};
  if (term) {
    w.parts = memory;
    w.attr = w.parts + DFGNN_CPU_WINDOW * x->row + VECTOR;
    w.grad_attr = w.attr + DFGNN_CPU_WINDOW * term->width + VECTOR;
  }
  return w;
}

/* Edges from e of a row on: whole rows, or a piece of a long one. */
CPU_INLINE int64_t end_of_window(const window *w, const dfgnn_cpu_job *job,
                                 int64_t row, int64_t e) {
  int64_t end = e, next;
  for (; row < w->rows; end = next, row++) {
    next = dfgnn__cpu_offset(job, row + 1);
    if (next - e > DFGNN_CPU_WINDOW)
      return end > e ? end : e + DFGNN_CPU_WINDOW;
  }
  return end;
}

/* The features of edge e of a walk begin here. */
CPU_INLINE int64_t attr_of(const window *w, const dfgnn_cpu_job *job,
                           int64_t e) {
  return dfgnn__cpu_edges_row(w->term, dfgnn__cpu_number(job, e)) *
         w->term->width;
}

static CPU_TARGET void project_window(const window *w, const across *x) {
  const int64_t count = w->end - w->begin;
  const dfgnn_cpu_edges *term = w->term;
  for (int64_t i = 0; term->bias && i < count; i++)
    memcpy(w->parts + i * x->row, term->bias,
           (size_t)x->row * sizeof *w->parts);
  const matrices m = {.to = w->parts,
                      .a = w->attr_at,
                      .b = term->transposed,
                      .rows = count,
                      .inner = term->features,
                      .columns = x->row,
                      .to_row = x->row,
                      .a_row = term->width,
                      .a_inner = 1,
                      .b_row = x->row,
                      .add = term->bias != NULL};
  multiply_matrices(&m);
}

/* Computes the parts of the edges from e, of a row, on. */
static CPU_TARGET void open_window(window *w, const across *x,
                                   const dfgnn_cpu_job *job, int64_t row,
                                   int64_t e) {
  const dfgnn_cpu_edges *term = w->term;
  const scalar *attr = (const scalar *)term->attr;
  const int64_t given = job->out_dim;
  w->begin = e;
  w->end = end_of_window(w, job, row, e);
  const int64_t count = w->end - e;
  if (!term->weight) {
    if (given != x->dim)
      memset(w->parts, 0, (size_t)(count * x->row) * sizeof *w->parts);
    for (int64_t i = 0; i < count; i++)
      for (int64_t h = 0; h < x->heads; h++)
        copy_numbers(w->parts + i * x->row + h * x->dim,
                     attr + attr_of(w, job, e + i) + h * given, given);
    return;
  }
  w->attr_at = w->attr;
  if (!term->order && !job->numbers)
    w->attr_at = attr + e * term->width;
  for (int64_t i = 0; w->attr_at == w->attr && i < count; i++)
    copy_numbers(w->attr + i * term->width, attr + attr_of(w, job, e + i),
                 term->width);
  project_window(w, x);
}

/* The edges from e on that are taken together, of a row that ends at `end`;
 * their parts are in the window. */
CPU_INLINE int64_t chunk_at(const across *x, const dfgnn_cpu_job *job,
                            window *w, int64_t row, int64_t e, int64_t end) {
  int64_t last = e + x->chunk < end ? e + x->chunk : end;
  if (w->term && e >= w->end)
    open_window(w, x, job, row, e);
  return (w->term && w->end < last ? w->end : last) - e;
}

/* The parts of the edges from e on. */
CPU_INLINE scalar *parts_at(const window *w, const across *x, int64_t e) {
  return w->term ? w->parts + (e - w->begin) * x->row : NULL;
}

/* Writes the gradients of the window's features. */
CPU_INLINE void write_attr(const window *w, const across *x,
                           const dfgnn_cpu_job *job) {
  const dfgnn_cpu_edges *term = w->term;
  scalar *grad = (scalar *)term->grad_attr;
  const int64_t count = w->end - w->begin, given = job->out_dim;
  if (term->weight) {
    const matrices m = {.to = w->grad_attr,
                        .a = w->parts,
                        .b = term->weight,
                        .rows = count,
                        .inner = x->row,
                        .columns = term->features,
                        .to_row = term->width,
                        .a_row = x->row,
                        .a_inner = 1,
                        .b_row = term->features};
    multiply_matrices(&m);
  }
  for (int64_t i = 0; i < count; i++) {
    scalar *to = grad + attr_of(w, job, w->begin + i);
    if (term->weight)
      copy_numbers(to, w->grad_attr + i * term->width, term->width);
    for (int64_t h = 0; !term->weight && h < x->heads; h++)
      copy_numbers(to + h * given, w->parts + i * x->row + h * x->dim, given);
  }
}

/* Are gradients of parts wanted? */
CPU_INLINE int wants_parts(const window *w, const dfgnn_cpu_parameters *p) {
  return w->term && !w->by_source &&
         (w->term->grad_attr || p->weight || p->bias);
}

/* Writes and adds what follows from the gradients of the window's parts. */
static CPU_TARGET void close_window(const window *w, const across *x,
                                    const dfgnn_cpu_job *job,
                                    const dfgnn_cpu_parameters *p) {
  const int64_t count = w->end - w->begin;
  scalar *bias = p->bias;
  if (w->term->grad_attr)
    write_attr(w, x, job);
  if (p->weight) {
    const matrices m = {.to = p->weight,
                        .a = w->parts,
                        .b = w->attr_at,
                        .rows = x->row,
                        .inner = count,
                        .columns = w->term->features,
                        .to_row = w->term->features,
                        .a_row = 1,
                        .a_inner = x->row,
                        .b_row = w->term->width,
                        .add = 1};
    multiply_matrices(&m);
  }
  for (int64_t d = 0; bias && d < x->row; d += VECTOR) {
    vec sum = v_load(bias + d);
    for (int64_t i = 0; i < count; i++)
      sum = v_add(sum, v_load(w->parts + i * x->row + d));
    v_store(bias + d, sum);
  }
}
