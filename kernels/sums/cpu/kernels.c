/* kernels.c - the inner loops of sums, reductions and messages on a CPU for one
 * instruction set and type */
#include "kernels/common/cpu_panel.h"
#include "kernels/common/cpu_select.h"
#include "kernels/sums/cpu/sums.h"

enum {
  LOW = DFGNN_CPU_LOW,
  HIGH = DFGNN_CPU_HIGH,
  MOMENTS = DFGNN_CPU_MOMENTS,
  ARGS = DFGNN_CPU_ARGS,
  FORWARD = DFGNN_CPU_FORWARD,
  COLUMNS = DFGNN_CPU_COLUMNS,
  ROWS = DFGNN_CPU_ROWS,
  CHUNK = DFGNN_CPU_CHUNK,
  WINDOW = DFGNN_CPU_WINDOW,
  WIDEST = 4 /* vectors of a panel, but for sums of copies */
};

typedef dfgnn_cpu_sums sums_job;

/* A function that stays one, however many call it: for what few rows need. */
#define CPU_APART static CPU_TARGET __attribute__((noinline))

/* ---- rows ---------------------------------------------------------------- */

/* The address of a piece of a row; NULL if the table has no base.  Most
 * problems have one piece, for which nothing is divided. */
CPU_INLINE char *place(const sums_job *job, const dfgnn_cpu_table *t,
                       int64_t row, int64_t piece) {
  int64_t at = piece ? dfgnn__cpu_piece_at(t, &job->pieces, piece) : 0;
  return t->base ? t->base + row * t->node + at : NULL;
}

CPU_INLINE const scalar *row_of(const sums_job *job, const dfgnn_cpu_table *t,
                                int64_t row, int64_t piece) {
  return (const scalar *)place(job, t, row, piece);
}

CPU_INLINE void put(const sums_job *job, const dfgnn_cpu_table *to, int64_t row,
                    int64_t piece, int64_t d, vec x, tail t, const int cut) {
  v_store_cut((scalar *)place(job, to, row, piece) + d, x, t, cut);
}

CPU_INLINE void put_index(const sums_job *job, const dfgnn_cpu_table *to,
                          int64_t row, int64_t piece, int64_t d, vec x, tail t,
                          const int cut) {
  int32_t *p = (int32_t *)place(job, to, row, piece);
  if (p && cut)
    v_index_store_tail(p + d, x, t);
  else if (p)
    v_index_store(p + d, x);
}

CPU_INLINE int64_t degree_of(const sums_job *job, const void *offsets,
                             int64_t row) {
  return dfgnn__cpu_edge(job->offsets64, offsets, row + 1) -
         dfgnn__cpu_edge(job->offsets64, offsets, row);
}

/* The graph's edge that walked edge e is. */
CPU_INLINE int64_t edge_id(const sums_job *job, int64_t e) {
  return job->edge ? dfgnn__cpu_edge(job->offsets64, job->edge, e) : e;
}

/* The number of walked edge e in its row of the graph, which is `row`. */
CPU_INLINE int64_t edge_number(const sums_job *job, int64_t e, int64_t row) {
  return edge_id(job, e) -
         dfgnn__cpu_edge(job->offsets64, job->row_offsets, row);
}

/* The edges of a chunk from e on that prefetch another. */
CPU_INLINE int64_t edges_ahead(const sums_job *job, int64_t e) {
  return job->prefetch ? job->edges - job->prefetch - e : 0;
}

/* ---- sums ---------------------------------------------------------------- */

/* The factor of a row's sums; 1 for an empty row, whose sum stays 0. */
CPU_INLINE scalar after_of(const sums_job *job, int64_t row) {
  const scalar *after = job->after;
  double degree = (double)degree_of(job, job->offsets, row);
  double factor = after && degree > 0 ? (double)after[row] : 1;
  return (scalar)(job->mean && degree > 0 ? factor / degree : factor);
}

/* Adds a chunk's sum to those before it (fresh: there are none), which keeps
 * the digits of a long sum; `out` gets the sum of a row that ends here. */
CPU_INLINE void end_sum(scalar *out, scalar *sum, int fresh, vec x, vec after,
                        tail t, const int cut) {
  if (!fresh)
    x = v_add(v_load_cut(sum, t, cut), x);
  if (out)
    v_store_cut(out, v_mul(x, after), t, cut);
  else
    v_store_cut(sum, x, t, cut);
}

static CPU_TARGET void merge_sums(const void *data, int64_t piece, void *to,
                                  const void *from, int64_t before,
                                  int64_t count) {
  const sums_job *job = data;
  int64_t first = piece * job->pieces.dim;
  (void)before, (void)count;
  if (job->to.base)
    add_to((scalar *)to + first, (const scalar *)from + first, job->pieces.dim);
  first += job->width;
  if (job->to_gate.base)
    add_to((scalar *)to + first, (const scalar *)from + first, job->pieces.dim);
}

static CPU_TARGET void finish_sums(const void *data, int64_t row, int64_t piece,
                                   void *state) {
  const sums_job *job = data;
  int64_t first = piece * job->pieces.dim;
  if (job->to.base)
    store_times((scalar *)place(job, &job->to, row, piece),
                (const scalar *)state + first, job->pieces.dim,
                after_of(job, row));
  first += job->width;
  if (job->to_gate.base)
    store_times((scalar *)place(job, &job->to_gate, row, piece),
                (const scalar *)state + first, job->pieces.dim,
                after_of(job, row));
}

#include "kernels/sums/cpu/add.h"
#include "kernels/sums/cpu/extremes.h"
#include "kernels/sums/cpu/grades.h"
#include "kernels/sums/cpu/messages.h"

/* ---- the table ----------------------------------------------------------- */

const dfgnn_cpu_sums_kernels CPU_TABLE_OF(dfgnn__cpu_sums) = {
#define SUM_AT(name, pass, edges, kind) [pass][edges][kind] = sum_##name,
    .add = add,
    .find = {[LOW] = find_min,
             [HIGH] = find_max,
             [MOMENTS] = find_moments,
             [LOW | HIGH | MOMENTS] = find_pna,
             [LOW | ARGS] = find_min_arg,
             [HIGH | ARGS] = find_max_arg,
             [LOW | HIGH | MOMENTS | ARGS] = find_pna_arg},
    .grade = {[DFGNN_CPU_PICK] = grade_pick,
              [DFGNN_CPU_SPREAD] = grade_spread,
              [DFGNN_CPU_BOTH] = grade_both,
              [DFGNN_CPU_REST] = grade_rest},
    .add_messages = {EACH_FOLD(SUM_AT)},
    .find_relu =
        {[FORWARD] = reduce_forward_relu, [COLUMNS] = reduce_columns_relu},
    .find_gates = {[FORWARD] = reduce_forward_gate,
                   [COLUMNS] = reduce_columns_gate,
                   [ROWS] = reduce_rows_gate},
    .merge_sums = merge_sums,
    .finish_sums = finish_sums,
    .merge_found = merge_found,
    .finish_found = finish_found,
    .record = record,
    .scatter = scatter,
    .edges = edges};
