/* grades.h - gradients of copies, from what reductions found; a part of
 * kernels.c */

/* Bits of a loop: the gradients that reach an element. */
enum {
  SELECT = 1,      /* of min or max, or PNA's min */
  SELECT_BOTH = 2, /* of PNA's max */
  THROUGH = 4,     /* of var or std */
  SHARE = 8        /* of PNA's mean */
};

/* Each extreme has a pair, its gradient and its arg: one pair, or PNA's two. */
typedef struct back {
  const sums_job *job;
  const char *grad[2], *arg[2], *record;
  int64_t grad_node, arg_node;
  const int32_t *index, *number;
  int64_t count, ahead;
  const scalar *own;
  scalar *sum;
  scalar *out; /* NULL: the result goes to sum */
  int fresh;
} back;

CPU_INLINE void prefetch_back(const back *b, int64_t d, int64_t e,
                              const int what) {
  if (d || e >= b->ahead)
    return;
  int64_t i = b->index[e + b->job->prefetch], dim = b->job->pieces.dim;
  const int pairs = what & SELECT_BOTH ? 2 : what & SELECT ? 1 : 0;
  CPU_EACH(p, pairs) {
    prefetch_row(b->grad[p], i, b->grad_node, dim * (int64_t)sizeof(scalar));
    prefetch_row(b->arg[p], i, b->arg_node, dim * (int64_t)sizeof(int32_t));
  }
  if (what & THROUGH) {
    const int components = what & SHARE ? 3 : 2;
    CPU_EACH(c, components)
    prefetch_row(b->record + c * b->job->width * (int64_t)sizeof(scalar), i,
                 b->job->record_bytes, dim * (int64_t)sizeof(scalar));
  }
}

CPU_INLINE vec selected(const back *b, int pair, int64_t i, int64_t at,
                        vec number, vec sum, tail t, const int cut) {
  const int32_t *arg = (const int32_t *)(b->arg[pair] + i * b->arg_node) + at;
  vec found = cut ? v_index_load_tail(arg, t) : v_index_load(arg);
  vec grad = v_load_cut(row_at(b->grad[pair], i, b->grad_node) + at, t, cut);
  return v_add(sum, v_where_equal(found, number, grad));
}

CPU_INLINE void back_panel(const back *b, int64_t d, tail t, const int width,
                           const int cut, const int what) {
  const sums_job *job = b->job;
  vec sum[WIDEST], own[WIDEST];
  CPU_EACH(i, width) {
    int64_t at = d + i * VECTOR;
    sum[i] = v_zero();
    own[i] = what & THROUGH ? v_load_cut(b->own + at, t, cut) : v_zero();
  }
  for (int64_t e = 0; e < b->count; e++) {
    int64_t row = b->index[e];
    vec number = what & SELECT ? v_index(b->number[e]) : v_zero();
    const scalar *record =
        what & THROUGH
            ? (const scalar *)(b->record + row * job->record_bytes) + d
            : NULL;
    prefetch_back(b, d, e, what);
    CPU_EACH(i, width) {
      int64_t at = d + i * VECTOR;
      if (what & SELECT)
        sum[i] = selected(b, 0, row, at, number, sum[i], t, cut);
      if (what & SELECT_BOTH)
        sum[i] = selected(b, 1, row, at, number, sum[i], t, cut);
      if (what & THROUGH) {
        const scalar *r = record + i * VECTOR;
        vec x = v_sub(own[i], v_load_cut(r + job->width, t, cut));
        sum[i] = v_fma(v_load_cut(r, t, cut), x, sum[i]);
        if (what & SHARE)
          sum[i] = v_add(v_load_cut(r + 2 * job->width, t, cut), sum[i]);
      }
    }
  }
  CPU_EACH(i, width) {
    int64_t at = d + i * VECTOR;
    end_sum(b->out ? b->out + at : NULL, b->sum + at, b->fresh, sum[i],
            v_set(1), t, cut);
  }
}

/* Finds the number of each edge within its row of the graph. */
CPU_INLINE void find_numbers(int32_t *to, const sums_job *job, int64_t begin,
                             int64_t count) {
  for (int64_t e = 0; e < count; e++)
    to[e] = (int32_t)edge_number(job, begin + e, job->indices[begin + e]);
}

CPU_INLINE void fold_back(const sums_job *job, int64_t row, int64_t piece,
                          int64_t begin, int64_t end, void *state, int whole,
                          const int what) {
  int64_t dim = job->pieces.dim, e = begin;
  tail t = v_tail(dim % VECTOR);
  int32_t numbers[CHUNK];
  back b = {.job = job,
            .index = job->indices + begin,
            .number = numbers,
            .sum = (scalar *)state + piece * dim,
            .fresh = 1};
  scalar *out = (scalar *)place(job, &job->to, row, piece);
  if (what & SELECT) {
    int max = job->op == DFGNN_OP_REDUCE_MAX;
    const dfgnn_cpu_table *grad =
        what & SELECT_BOTH ? &job->reduced.least : &job->reduced.out;
    const dfgnn_cpu_table *arg =
        max ? &job->reduced.arg_max : &job->reduced.arg_min;
    b.grad[0] = place(job, grad, 0, piece);
    b.arg[0] = place(job, arg, 0, piece);
    b.grad_node = grad->node;
    b.arg_node = arg->node;
  }
  if (what & SELECT_BOTH) {
    b.grad[1] = place(job, &job->reduced.most, 0, piece);
    b.arg[1] = place(job, &job->reduced.arg_max, 0, piece);
  }
  if (what & THROUGH) {
    b.own = row_of(job, &job->own.first, row, piece);
    b.record = (const char *)record_of(job, 0, piece);
  }
  do {
    b.index = job->indices + e;
    b.count = end - e < CHUNK ? end - e : CHUNK;
    b.ahead = edges_ahead(job, e);
    b.out = whole && e + b.count == end ? out : NULL;
    if (what & SELECT)
      find_numbers(numbers, job, e, b.count);
#define PANEL_OF(d, width, cut) back_panel(&b, d, t, width, cut, what)
    EACH_PANEL(WIDEST, dim, PANEL_OF);
#undef PANEL_OF
    b.fresh = 0;
    e += b.count;
  } while (e < end);
}

#define BACK(name, what)                                                       \
  static CPU_TARGET void grade_##name(const void *job, int64_t row,            \
                                      int64_t piece, int64_t begin,            \
                                      int64_t end, void *state, int whole) {   \
    fold_back(job, row, piece, begin, end, state, whole, what);                \
  }
BACK(pick, SELECT)
BACK(spread, THROUGH)
BACK(both, SELECT | SELECT_BOTH | THROUGH | SHARE)
BACK(rest, THROUGH | SHARE)

/* ---- PNA's records ------------------------------------------------------- */

CPU_INLINE void record_row(const sums_job *job, int64_t row, int64_t piece,
                           double degree) {
  vec share = v_set((scalar)(1 / degree));
  int64_t dim = job->pieces.dim;
  tail t = v_tail(dim % VECTOR);
  scalar *to = record_of(job, row, piece);
#define LOAD(table, at, cut)                                                   \
  v_load_cut(row_of(job, &job->reduced.table, row, piece) + (at), t, cut)
#define RECORD(d, vectors, cut)                                                \
  CPU_EACH(i, vectors) {                                                       \
    int64_t at = d + i * VECTOR;                                               \
    vec grad = v_mul(LOAD(std, at, cut), share);                               \
    v_store_cut(to + at, v_quotient(grad, LOAD(deviation, at, cut)), t, cut);  \
    v_store_cut(to + job->width + at, LOAD(mean, at, cut), t, cut);            \
    v_store_cut(to + 2 * job->width + at, v_mul(LOAD(out, at, cut), share), t, \
                cut);                                                          \
  }
  EACH_PANEL(WIDEST, dim, RECORD);
#undef RECORD
#undef LOAD
}

static CPU_TARGET void record(const sums_job *job, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; i++) {
    double degree = (double)degree_of(job, job->row_offsets, i);
    for (int64_t piece = 0; degree > 0 && piece < job->pieces.count; piece++)
      record_row(job, i, piece, degree);
  }
}

/* ---- scatter ------------------------------------------------------------- */

static CPU_TARGET void scatter(const sums_job *job, const dfgnn_cpu_table *to,
                               const dfgnn_cpu_table *grad,
                               const dfgnn_cpu_table *arg, int64_t piece,
                               int64_t begin, int64_t end) {
  char *sums = place(job, to, 0, piece);
  for (int64_t i = 0; i < job->rows; i++) {
    const int32_t *column =
        job->row_indices + dfgnn__cpu_edge(job->offsets64, job->row_offsets, i);
    const int32_t *number = (const int32_t *)place(job, arg, i, piece);
    const scalar *from = row_of(job, grad, i, piece);
    for (int64_t d = begin; d < end; d++)
      if (number[d] >= 0)
        ((scalar *)(sums + column[number[d]] * to->node))[d] += from[d];
  }
}
