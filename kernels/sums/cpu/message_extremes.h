/* message_extremes.h - extremes and moments of computed messages, and the
 * gradients that a row has for its messages; a part of messages.h
 *
 * The messages of a chunk of edges are computed for a vector of features, then
 * reduced.  That costs so much beside them that what they have of the edge is
 * asked when they are computed: `edges` is no constant here, nor `value`,
 * whether gates have a part of the value, and GATE stands for GATE_VALUE, too.
 */

/* The operands of an edge's message, from the piece's first feature on. */
typedef struct sender {
  const scalar *x, *gate_dst, *gate_src, *attr;
  const scalar *part, *part_value; /* projected */
} sender;

/* The operands of a message for one vector of features. */
typedef struct inputs {
  vec x, gates, part; /* x includes the edge's part of the value */
} inputs;

CPU_INLINE void set_nodes(sender *s, const sums_job *job,
                          const dfgnn_cpu_ends *source, int64_t column,
                          const dfgnn_cpu_ends *destination, int64_t row,
                          int64_t piece, const int kind) {
  s->x = row_of(job, &source->first, column, piece);
  if (kind == RELU)
    return;
  s->gate_src = row_of(job, &source->gate, column, piece);
  s->gate_dst = row_of(job, &destination->gate, row, piece);
}

CPU_INLINE inputs inputs_at(const sender *s, int64_t d, tail t, const int cut,
                            int edges, int value, const int kind) {
  inputs in = {v_load_cut(s->x + d, t, cut), v_zero(), v_zero()};
  if (kind != RELU)
    in.gates = v_add(v_load_cut(s->gate_dst + d, t, cut),
                     v_load_cut(s->gate_src + d, t, cut));
  if (edges == GIVEN)
    in.part = v_load_cut(s->attr + d, t, cut);
  else if (edges == PROJECTED)
    in.part = v_load_cut(s->part + d, t, cut);
  if (kind != RELU && value)
    in.x = v_add(in.x, v_load_cut(s->part_value + d, t, cut));
  return in;
}

CPU_INLINE vec message_of(const inputs *in, const int kind) {
  return term_of(in->x, in->gates, in->part, v_zero(), FORWARD, kind).sum;
}

/* The operands of a chunk's edges, to be walked feature by feature. */
typedef struct chunk {
  sender edge[CHUNK];
  int64_t count;
} chunk;

/* Lays out a chunk of the edges e .. end - 1; columns: rows are sources. */
CPU_INLINE void lay_chunk(chunk *c, const sums_job *job, int64_t row,
                          int64_t piece, int64_t e, int64_t end,
                          const int columns, int edges, int value,
                          const int kind) {
  const scalar *parts = NULL;
  c->count = end - e < CHUNK ? end - e : CHUNK;
  if (edges == PROJECTED && c->count > 0)
    parts = project_window(job, e, &c->count) + piece * job->pieces.dim;
  for (int64_t k = 0; k < c->count; k++) {
    sender *s = &c->edge[k];
    int64_t j = job->indices[e + k];
    if (columns)
      set_nodes(s, job, &job->own, row, &job->far, j, piece, kind);
    else
      set_nodes(s, job, &job->far, j, &job->own, row, piece, kind);
    if (edges == GIVEN)
      s->attr =
          (const scalar *)place(job, &job->attr, edge_id(job, e + k), piece);
    if (edges == PROJECTED)
      s->part = parts + k * job->projection.row;
    if (kind != RELU && value)
      s->part_value = s->part + job->projection.padded_width;
  }
}

/* ---- results ------------------------------------------------------------- */

/* The state of `count` messages; the first is edge `number` of its row. */
CPU_INLINE known reduce_chunk(const vec *m, int64_t count, int64_t number,
                              int what) {
  known k = {.low = m[0], .high = m[0]};
  k.arg_low = k.arg_high = v_index(number);
  if (what & LOW)
    for (int64_t e = 1; e < count; e++)
      v_take(&k.low, &k.arg_low, m[e], v_index(number + e), 1, 1);
  if (what & HIGH)
    for (int64_t e = 1; e < count; e++)
      v_take(&k.high, &k.arg_high, m[e], v_index(number + e), -1, 1);
  if (what & MOMENTS) {
    vec sum = v_zero(), square = v_zero();
    k.origin = origin_of(m[0]);
    for (int64_t e = 0; e < count; e++) {
      vec y = v_sub(m[e], k.origin);
      sum = v_add(sum, y);
      square = v_fma(y, y, square);
    }
    set_moments(&k, sum, square, count);
  }
  return k;
}

/* A row and the edges of it that a walk folds. */
typedef struct row_part {
  int64_t row, piece, begin, end;
  scalar *state; /* of the piece */
  int whole;
} row_part;

/* Reduces the messages of the edges from e on, for the features from d on. */
CPU_APART void reduce_messages(const sums_job *job, const row_part *r,
                               const vec *message, int64_t e, int64_t count,
                               int64_t d, tail t) {
  int what = job->found, cut = job->pieces.dim - d < VECTOR;
  int64_t first = dfgnn__cpu_edge(job->offsets64, job->offsets, r->row);
  known all = reduce_chunk(message, count, e - first, what);
  if (e > r->begin) {
    known old = load_known(r->state + d, job->width, t, cut, what);
    join(&old, &all, e - r->begin, count, what);
    all = old;
  }
  if (r->whole && e + count == r->end)
    emit(job, r->row, r->piece, d, (double)(r->end - r->begin), &all, t, cut,
         what);
  else
    store_known(r->state + d, &all, job->width, t, cut, what);
}

CPU_INLINE void reduce_forward(const sums_job *job, int64_t row, int64_t piece,
                               int64_t begin, int64_t end, void *state,
                               int whole, const int kind) {
  const int edges = (int)job->part;
  const int value = job->message == DFGNN_MESSAGE_GATE_VALUE;
  int64_t dim = job->pieces.dim;
  const row_part r = {row,  piece, begin, end, (scalar *)state + piece * dim,
                      whole};
  tail t = v_tail(dim % VECTOR);
  chunk c;
  vec message[CHUNK];
  if (begin == end)
    emit_empty(job, row, piece);
  for (int64_t e = begin; e < end; e += c.count) {
    lay_chunk(&c, job, row, piece, e, end, 0, edges, value, kind);
    for (int64_t d = 0; d < dim; d += VECTOR) {
      int cut = dim - d < VECTOR;
      for (int64_t k = 0; k < c.count; k++) {
        inputs in = inputs_at(&c.edge[k], d, t, cut, edges, value, kind);
        message[k] = message_of(&in, kind);
      }
      reduce_messages(job, &r, message, e, c.count, d, t);
    }
  }
}

/* ---- gradients ----------------------------------------------------------- */

/* A row's tensors from which the gradients of its messages are computed, from
 * the piece's first feature on. */
typedef struct receiver {
  const scalar *out, *least, *most, *std, *mean, *deviation;
  const int32_t *arg_min, *arg_max;
  scalar share; /* 1 / degree */
} receiver;

CPU_INLINE receiver receiver_of(const sums_job *job, int64_t row,
                                int64_t piece) {
  const dfgnn_cpu_reduced *from = &job->reduced;
#define AT(table) row_of(job, &from->table, row, piece)
  return (receiver){
      .out = AT(out),
      .least = AT(least),
      .most = AT(most),
      .std = AT(std),
      .mean = AT(mean),
      .deviation = AT(deviation),
      .arg_min = (const int32_t *)place(job, &from->arg_min, row, piece),
      .arg_max = (const int32_t *)place(job, &from->arg_max, row, piece),
      .share = (scalar)(1 / (double)degree_of(job, job->row_offsets, row))};
#undef AT
}

CPU_INLINE vec picked(const scalar *grad, const int32_t *arg, int64_t d, tail t,
                      const int cut, vec number) {
  vec found = cut ? v_index_load_tail(arg + d, t) : v_index_load(arg + d);
  return v_where_equal(found, number, v_load_cut(grad + d, t, cut));
}

/* The gradient of the message of edge `number` of a row. */
CPU_INLINE vec gradient_at(const receiver *r, int64_t d, tail t, const int cut,
                           int64_t number, const inputs *in, int found,
                           const int kind) {
  vec n = v_index(number);
  if (!(found & HIGH))
    return picked(r->out, r->arg_min, d, t, cut, n);
  if (!(found & LOW))
    return picked(r->out, r->arg_max, d, t, cut, n);
  vec share = v_set(r->share);
  vec deviation = v_load_cut(r->deviation + d, t, cut);
  vec slope = v_over(v_mul(v_load_cut(r->std + d, t, cut), share), deviation);
  vec above = v_sub(message_of(in, kind), v_load_cut(r->mean + d, t, cut));
  vec grad = v_add(picked(r->least, r->arg_min, d, t, cut, n),
                   picked(r->most, r->arg_max, d, t, cut, n));
  grad = v_fma(v_load_cut(r->out + d, t, cut), share, grad);
  return v_fma(v_step(deviation, slope, v_zero()), above, grad);
}

CPU_INLINE void reduce_backward(const sums_job *job, int64_t row, int64_t piece,
                                int64_t begin, int64_t end, void *state,
                                int whole, const int pass, const int kind) {
  const int edges = (int)job->part;
  const int value = job->message == DFGNN_MESSAGE_GATE_VALUE;
  int64_t dim = job->pieces.dim, e = begin;
  const int both = pass == COLUMNS && kind != RELU;
  tail t = v_tail(dim % VECTOR);
  scalar *sums = job->to.base ? (scalar *)state + piece * dim : NULL;
  scalar *gate_sums =
      job->to_gate.base ? (scalar *)state + job->width + piece * dim : NULL;
  scalar *out = (scalar *)place(job, &job->to, row, piece);
  scalar *out_gate = (scalar *)place(job, &job->to_gate, row, piece);
  vec one = v_set(1);
  chunk c;
  receiver receivers[CHUNK];
  int64_t numbers[CHUNK];
  do {
    lay_chunk(&c, job, row, piece, e, end, pass == COLUMNS, edges, value, kind);
    for (int64_t k = 0; k < c.count; k++) {
      int64_t i = pass == COLUMNS ? job->indices[e + k] : row;
      receivers[k] = receiver_of(job, i, piece);
      numbers[k] = edge_number(job, e + k, i);
    }
    int last = whole && e + c.count == end;
    for (int64_t d = 0; d < dim; d += VECTOR) {
      int cut = dim - d < VECTOR;
      vec sum = v_zero(), sum_gate = v_zero();
      for (int64_t k = 0; k < c.count; k++) {
        inputs in = inputs_at(&c.edge[k], d, t, cut, edges, value, kind);
        vec grad = gradient_at(&receivers[k], d, t, cut, numbers[k], &in,
                               job->found, kind);
        term y = term_of(in.x, in.gates, in.part, grad, pass, kind);
        sum = v_add(y.sum, sum);
        if (both)
          sum_gate = v_add(y.edge, sum_gate);
        if (edges == GIVEN && pass == COLUMNS && job->grad_attr.base)
          put(job, &job->grad_attr, edge_id(job, e + k), piece, d, y.edge, t,
              cut);
      }
      if (sums)
        end_sum(last ? out + d : NULL, sums + d, e == begin, sum, one, t, cut);
      if (both && gate_sums)
        end_sum(last ? out_gate + d : NULL, gate_sums + d, e == begin, sum_gate,
                one, t, cut);
    }
    e += c.count;
  } while (e < end);
}

#define REDUCED(name, pass, kind)                                              \
  static CPU_TARGET void reduce_##name(const void *job, int64_t row,           \
                                       int64_t piece, int64_t begin,           \
                                       int64_t end, void *state, int whole) {  \
    if (pass == FORWARD)                                                       \
      reduce_forward(job, row, piece, begin, end, state, whole, kind);         \
    else                                                                       \
      reduce_backward(job, row, piece, begin, end, state, whole, pass, kind);  \
  }
REDUCED(forward_relu, FORWARD, RELU)
REDUCED(columns_relu, COLUMNS, RELU)
REDUCED(forward_gate, FORWARD, GATE)
REDUCED(columns_gate, COLUMNS, GATE)
REDUCED(rows_gate, ROWS, GATE)
