/* project.h - the projection of edge features, some edges at a time, and its
 * gradients; a part of kernels.h
 *
 * A thread's scratch holds the window's place, its features as scalars,
 * [WINDOW][padded_fields], and its projected parts, [WINDOW][row].
 * The offset is the matrix's last field, which is 1 of every edge.  Blocks of
 * ROWS_BLOCK by COLUMNS_BLOCK vectors stay in registers. */

enum { ROWS_BLOCK = 4, COLUMNS_BLOCK = CPU_ISA == CPU_AVX512 ? 4 : 2 };

CPU_INLINE scalar storage_number(const storage *p) {
#if CPU_DTYPE == CPU_F16
  return dfgnn__f16_to_float(*p);
#elif CPU_DTYPE == CPU_BF16
  return dfgnn__bf16_to_float(*p);
#else
  return *p;
#endif
}

CPU_INLINE scalar *window_parts(char *scratch) {
  return (scalar *)(scratch + DFGNN_CPU_MESSAGE_HEAD);
}

CPU_INLINE scalar *window_fields(const message_job *job, char *scratch) {
  return window_parts(scratch) + WINDOW * job->projection.row;
}

/* `rows` by `columns` vectors of the sum over `terms` of a^T b or a b: a's
 * number of row r and term k is a[r * a_row + k * a_term], and b's row of a
 * term is b + k * b_term.  add: to what `to` holds. */
CPU_INLINE void multiply_block(scalar *to, int64_t to_row, const scalar *a,
                               int64_t a_row, int64_t a_term, const scalar *b,
                               int64_t b_term, int64_t terms, const int rows,
                               const int columns, const int add) {
  vec sum[ROWS_BLOCK * COLUMNS_BLOCK];
  CPU_EACH(i, rows * columns) { sum[i] = v_zero(); }
  for (int64_t k = 0; k < terms; k++) {
    vec y[COLUMNS_BLOCK];
    CPU_EACH(c, columns) { y[c] = s_load(b + k * b_term + c * VECTOR); }
    CPU_EACH(r, rows) {
      vec x = v_set(a[r * a_row + k * a_term]);
      CPU_EACH(c, columns) {
        sum[r * columns + c] = v_fma(x, y[c], sum[r * columns + c]);
      }
    }
  }
  CPU_EACH(r, rows) {
    CPU_EACH(c, columns) {
      scalar *at = to + r * to_row + c * VECTOR;
      vec x = sum[r * columns + c];
      s_store(at, add ? v_add(s_load(at), x) : x);
    }
  }
}

CPU_INLINE void multiply_columns(scalar *to, int64_t to_row, const scalar *a,
                                 int64_t a_row, int64_t a_term, const scalar *b,
                                 int64_t b_term, int64_t terms, int64_t rows,
                                 const int columns, const int add) {
  int64_t r = 0;
  for (; r + ROWS_BLOCK <= rows; r += ROWS_BLOCK)
    multiply_block(to + r * to_row, to_row, a + r * a_row, a_row, a_term, b,
                   b_term, terms, ROWS_BLOCK, columns, add);
  for (; r < rows; r++)
    multiply_block(to + r * to_row, to_row, a + r * a_row, a_row, a_term, b,
                   b_term, terms, 1, columns, add);
}

/* All rows, and columns up to the padding. */
CPU_INLINE void multiply(scalar *to, int64_t to_row, const scalar *a,
                         int64_t a_row, int64_t a_term, const scalar *b,
                         int64_t b_term, int64_t terms, int64_t rows,
                         int64_t columns, const int add) {
  int64_t c = 0;
  for (; c + COLUMNS_BLOCK * VECTOR <= columns; c += COLUMNS_BLOCK * VECTOR)
    multiply_columns(to + c, to_row, a, a_row, a_term, b + c, b_term, terms,
                     rows, COLUMNS_BLOCK, add);
  for (; c < columns; c += VECTOR)
    multiply_columns(to + c, to_row, a, a_row, a_term, b + c, b_term, terms,
                     rows, 1, add);
}

/* Projects the walked edges begin .. begin + count - 1 into a scratch. */
static CPU_TARGET void project(const message_job *job, int64_t begin,
                               int64_t count, char *scratch) {
  const dfgnn_cpu_projection *p = &job->projection;
  const scalar *matrix = (const scalar *)p->matrix;
  scalar *fields = window_fields(job, scratch);
  for (int64_t k = 0; k < count; k++) {
    int64_t e = job->edge
                    ? dfgnn__cpu_edge(job->offsets64, job->edge, begin + k)
                    : begin + k;
    const storage *from = (const storage *)p->attr + e * p->fields;
    for (int64_t f = 0; f < p->fields; f++)
      fields[k * p->padded_fields + f] = storage_number(from + f);
    fields[k * p->padded_fields + p->fields] = 1; /* of the offset */
  }
  multiply(window_parts(scratch), p->row, fields, p->padded_fields, 1, matrix,
           p->row, p->fields + 1, count, p->row, 0);
}

/* The projected part of walked edge e, of which more follow: count becomes how
 * many there are, at most. */
CPU_INLINE const scalar *project_window(const message_job *job, int64_t e,
                                        int64_t *count) {
  const dfgnn_cpu_projection *p = &job->projection;
  char *scratch = p->scratch + (size_t)dfgnn__cpu_thread() * p->scratch_bytes;
  dfgnn_cpu_window *window = (dfgnn_cpu_window *)scratch;
  if (e < window->begin || e >= window->end) {
    /* Where windows begin sets what is summed first: it depends on nothing. */
    window->begin = e / WINDOW * WINDOW;
    int64_t left = job->edges - window->begin;
    window->end = window->begin + (left < WINDOW ? left : WINDOW);
    project(job, window->begin, window->end - window->begin, scratch);
  }
  if (window->end - e < *count)
    *count = window->end - e;
  return window_parts(scratch) + (e - window->begin) * p->row;
}

/* ---- gradients ----------------------------------------------------------- */

/* grad_attr of the window's edges, whose parts are gradients by now. */
CPU_INLINE void grade_fields(const message_job *job, int64_t begin,
                             int64_t count, char *scratch) {
  const dfgnn_cpu_projection *p = &job->projection;
  scalar *to = window_fields(job, scratch) + WINDOW * p->padded_fields;
  multiply(to, p->padded_fields, window_parts(scratch), p->row, 1,
           (const scalar *)p->by_feature, p->padded_fields,
           p->row - p->padded_width + job->width, count, p->padded_fields, 0);
  for (int64_t k = 0; k < count; k++)
    store_times((storage *)p->grad_attr + (begin + k) * p->fields,
                to + k * p->padded_fields, p->fields, 1);
}

/* Adds the window's part of the gradients of matrix and offset. */
CPU_INLINE void add_parameters(const message_job *job, int64_t count,
                               char *scratch, void *sums) {
  const dfgnn_cpu_projection *p = &job->projection;
  multiply(sums, p->row, window_fields(job, scratch), 1, p->padded_fields,
           window_parts(scratch), p->row, count, p->fields + 1, p->row, 1);
}
