/* project.h - the projection of edge features, some edges at a time, and its
 * gradients; a part of messages.h
 *
 * A thread's scratch holds a dfgnn_cpu_window, the projected parts of its
 * edges, [WINDOW][row], the edges' features as scalars,
 * [WINDOW][padded_fields], and the gradients of these features in the same
 * shape.  The offset is the last row of the matrix: every edge has a last
 * feature of 1.  Products keep blocks of ROWS_BLOCK rows by COLUMNS_BLOCK
 * vectors in registers. */

enum { ROWS_BLOCK = 4, COLUMNS_BLOCK = CPU_ISA == CPU_AVX512 ? 4 : 2 };

CPU_INLINE scalar *window_parts(char *scratch) {
  return (scalar *)(scratch + DFGNN_CPU_HEAD);
}

CPU_INLINE scalar *window_fields(const sums_job *job, char *scratch) {
  return window_parts(scratch) + WINDOW * job->projection.row;
}

/* Computes `rows` rows by `columns` vectors of the matrix product a b: the
 * number of a in row r and term k is a[r * a_row + k * a_term], and row k of b
 * begins at b + k * b_term.  add: the product is added to what `to` holds. */
CPU_INLINE void multiply_block(scalar *to, int64_t to_row, const scalar *a,
                               int64_t a_row, int64_t a_term, const scalar *b,
                               int64_t b_term, int64_t terms, const int rows,
                               const int columns, const int add) {
  vec sum[ROWS_BLOCK * COLUMNS_BLOCK];
  CPU_EACH(i, rows * columns) { sum[i] = v_zero(); }
  for (int64_t k = 0; k < terms; k++) {
    vec y[COLUMNS_BLOCK];
    CPU_EACH(c, columns) { y[c] = v_load(b + k * b_term + c * VECTOR); }
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
      v_store(at, add ? v_add(v_load(at), x) : x);
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

/* The whole product; columns is a multiple of VECTOR, by the padding. */
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
static CPU_TARGET void project(const sums_job *job, int64_t begin,
                               int64_t count, char *scratch) {
  const dfgnn_cpu_projection *p = &job->projection;
  const scalar *matrix = (const scalar *)p->matrix;
  scalar *fields = window_fields(job, scratch);
  for (int64_t k = 0; k < count; k++) {
    const scalar *from =
        (const scalar *)p->attr + edge_id(job, begin + k) * p->fields;
    for (int64_t f = 0; f < p->fields; f++)
      fields[k * p->padded_fields + f] = from[f];
    fields[k * p->padded_fields + p->fields] = 1; /* for the offset */
  }
  multiply(window_parts(scratch), p->row, fields, p->padded_fields, 1, matrix,
           p->row, p->fields + 1, count, p->row, 0);
}

/* Returns the projected parts of walked edge e and of the edges after it;
 * lowers *count to the number of them that the window has. */
CPU_INLINE const scalar *project_window(const sums_job *job, int64_t e,
                                        int64_t *count) {
  const dfgnn_cpu_projection *p = &job->projection;
  char *scratch = p->scratch + (size_t)dfgnn__cpu_thread() * p->scratch_bytes;
  dfgnn_cpu_window *window = (dfgnn_cpu_window *)scratch;
  if (e < window->begin || e >= window->end) {
    /* A chunk ends where a window ends, which sets the order of summation: so
     * windows begin at multiples of WINDOW, whichever edge asks first. */
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

/* Writes grad_attr of the window's edges; grade_window() has replaced their
 * parts by gradients. */
CPU_INLINE void grade_fields(const sums_job *job, int64_t begin, int64_t count,
                             char *scratch) {
  const dfgnn_cpu_projection *p = &job->projection;
  scalar *to = window_fields(job, scratch) + WINDOW * p->padded_fields;
  multiply(to, p->padded_fields, window_parts(scratch), p->row, 1,
           (const scalar *)p->by_feature, p->padded_fields,
           p->row - p->padded_width + job->width, count, p->padded_fields, 0);
  for (int64_t k = 0; k < count; k++)
    store_times((scalar *)p->grad_attr + (begin + k) * p->fields,
                to + k * p->padded_fields, p->fields, 1);
}

/* Adds the window's part of the gradients of matrix and offset. */
CPU_INLINE void add_parameters(const sums_job *job, int64_t count,
                               char *scratch, void *sums) {
  const dfgnn_cpu_projection *p = &job->projection;
  multiply(sums, p->row, window_fields(job, scratch), 1, p->padded_fields,
           window_parts(scratch), p->row, count, p->fields + 1, p->row, 1);
}
