/* cpu_walk.c - rows as tasks, and the partial states of rows that were cut */
#include "kernels/common/cpu_walk.h"

#include <string.h>

/* ---- tensors ------------------------------------------------------------- */

dfgnn_cpu_table dfgnn__cpu_table(const dfgnn_problem *problem, const void *base,
                                 const dfgnn_strides *strides) {
  int64_t size = (int64_t)dfgnn_dtype_size(problem->dtype);
  return (dfgnn_cpu_table){(char *)base, strides->node * size,
                           strides->head * size, strides->feature * size};
}

dfgnn_cpu_table dfgnn__cpu_dense(const dfgnn_problem *problem, void *base,
                                 size_t element) {
  int64_t size = (int64_t)element;
  int ndh = problem->layout == DFGNN_LAYOUT_NDH;
  return (dfgnn_cpu_table){base, problem->heads * problem->dim * size,
                           (ndh ? 1 : problem->dim) * size,
                           (ndh ? problem->heads : 1) * size};
}

/* Do all features of a node lie together, in the order of `layout`? */
static int flat(const dfgnn_problem *problem, const dfgnn_cpu_table *t,
                int64_t size, dfgnn_layout layout) {
  int ndh = layout == DFGNN_LAYOUT_NDH;
  return (problem->heads == 1 || t->head == (ndh ? 1 : problem->dim) * size) &&
         (problem->dim == 1 || t->feature == (ndh ? problem->heads : 1) * size);
}

dfgnn_cpu_pieces dfgnn__cpu_pieces(const dfgnn_problem *problem, int by_head,
                                   const dfgnn_cpu_table *const *tables,
                                   const size_t *elements, int count) {
  int nhd = 1, ndh = 1, adjacent = 1;
  for (int i = 0; i < count; i++) {
    int64_t size = (int64_t)elements[i];
    if (!tables[i]->base)
      continue;
    nhd &= flat(problem, tables[i], size, DFGNN_LAYOUT_NHD);
    ndh &= flat(problem, tables[i], size, DFGNN_LAYOUT_NDH);
    adjacent &= problem->dim == 1 || tables[i]->feature == size;
  }
  if ((nhd || ndh) && (!by_head || problem->heads == 1))
    return (dfgnn_cpu_pieces){1, problem->heads * problem->dim, 1};
  if (adjacent)
    return (dfgnn_cpu_pieces){problem->heads, problem->dim, 1};
  return (dfgnn_cpu_pieces){problem->heads * problem->dim, 1, problem->dim};
}

/* ---- tasks --------------------------------------------------------------- */

static int64_t edge_at(const dfgnn_cpu_walk *walk, int64_t row) {
  return dfgnn__cpu_edge(walk->offsets64, walk->offsets, row);
}

dfgnn_cpu_walk dfgnn__cpu_walk(const dfgnn_matrix *matrix, int threads,
                               char *memory) {
  return (dfgnn_cpu_walk){.rows = matrix->destinations,
                          .edges = matrix->edges,
                          .offsets64 = matrix->offsets64,
                          .offsets = matrix->offsets,
                          .threads = threads,
                          .memory = memory};
}

/* The memory of a walk: a state of each thread, then the partial states. */
static char *own_state(const dfgnn_cpu_walk *walk,
                       const dfgnn_cpu_aggregate *a) {
  return walk->memory + (size_t)dfgnn__cpu_thread() * a->state_bytes;
}

static char *partial(const dfgnn_cpu_walk *walk, const dfgnn_cpu_aggregate *a,
                     int64_t slot) {
  return walk->memory + (size_t)(walk->threads + slot) * a->state_bytes;
}

static int64_t part_count(int threads, int parts, int64_t edges) {
  int64_t count = (int64_t)threads * parts;
  if (count > edges / 64)
    count = edges / 64; /* fewer edges are not worth a task */
  return count < 1 ? 1 : count;
}

int64_t dfgnn__cpu_balanced_states(const dfgnn_setting *setting, int parts) {
  int threads = setting->device->units;
  return threads + 2 * part_count(threads, parts, setting->matrix->edges);
}

/* ---- row ----------------------------------------------------------------- */

static void whole_rows(const dfgnn_cpu_walk *walk, const dfgnn_cpu_aggregate *a,
                       char *state, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; i++) {
    int64_t first = edge_at(walk, i), last = edge_at(walk, i + 1);
    for (int64_t piece = 0; piece < a->pieces; piece++)
      a->fold(a->job, i, piece, first, last, state, 1);
  }
}

/* The first row before which there are `work` edges, where each row counts as
 * two edges more. */
static int64_t row_after(const dfgnn_cpu_walk *walk, int64_t work) {
  int64_t low = 0, high = walk->rows;
  while (low < high) {
    int64_t middle = low + (high - low) / 2;
    if (edge_at(walk, middle) + 2 * middle < work)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

/* The rows of a walk as tasks: ranges of rows, or parts of equal work. */
typedef struct row_tasks {
  const dfgnn_cpu_walk *walk;
  const dfgnn_cpu_aggregate *aggregate;
  int64_t parts;
} row_tasks;

static void fold_rows(void *data, int64_t begin, int64_t end) {
  const row_tasks *t = data;
  whole_rows(t->walk, t->aggregate, own_state(t->walk, t->aggregate), begin,
             end);
}

static void fold_parts(void *data, int64_t begin, int64_t end) {
  const row_tasks *t = data;
  const int64_t work = t->walk->edges + 2 * t->walk->rows;
  const int64_t last = end == t->parts
                           ? t->walk->rows
                           : row_after(t->walk, work / t->parts * end);
  fold_rows(data, row_after(t->walk, work / t->parts * begin), last);
}

void dfgnn__cpu_walk_rows(const dfgnn_cpu_walk *walk,
                          const dfgnn_cpu_aggregate *a, dfgnn_cpu_tasks tasks,
                          int64_t rows) {
  const int threads = tasks == DFGNN_CPU_TASKS_SERIAL ? 1 : walk->threads;
  row_tasks t = {walk, a, part_count(threads, 8, walk->edges + 2 * walk->rows)};
  if (tasks == DFGNN_CPU_TASKS_EVEN)
    dfgnn__cpu_for(threads, t.parts, 1, fold_parts, &t);
  else
    dfgnn__cpu_for(threads, walk->rows, rows, fold_rows, &t);
}

/* ---- balanced ------------------------------------------------------------ */

/* The first row that begins at edge e or later. */
static int64_t row_from(const dfgnn_cpu_walk *walk, int64_t e) {
  int64_t low = 0, high = walk->rows;
  while (low < high) {
    int64_t middle = low + (high - low) / 2;
    if (edge_at(walk, middle) < e)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

/* Part p has the edges from begin(p) to begin(p + 1) - 1 and the rows that
 * begin among them; the last part has the empty rows at the end, too. */
typedef struct parts {
  const dfgnn_cpu_walk *walk;
  const dfgnn_cpu_aggregate *aggregate;
  int64_t count;
} parts;

static int64_t part_begin(const parts *p, int64_t part) {
  int64_t edges = p->walk->edges;
  return edges / p->count * part +
         (part < edges % p->count ? part : edges % p->count);
}

static int64_t part_row(const parts *p, int64_t part) {
  return part == p->count ? p->walk->rows
                          : row_from(p->walk, part_begin(p, part));
}

static void fold_part(const parts *p, int64_t part) {
  const dfgnn_cpu_walk *walk = p->walk;
  const dfgnn_cpu_aggregate *a = p->aggregate;
  int64_t begin = part_begin(p, part), end = part_begin(p, part + 1);
  int64_t row = part_row(p, part), stop = part_row(p, part + 1);
  int64_t first = row < walk->rows ? edge_at(walk, row) : walk->edges;
  if (first > begin) { /* a row that began before this part */
    int64_t last = first < end ? first : end;
    for (int64_t piece = 0; piece < a->pieces; piece++)
      a->fold(a->job, row - 1, piece, begin, last, partial(walk, a, 2 * part),
              0);
  }
  if (row >= stop)
    return;
  if (edge_at(walk, stop) > end) { /* the last row goes on */
    stop--;
    for (int64_t piece = 0; piece < a->pieces; piece++)
      a->fold(a->job, stop, piece, edge_at(walk, stop), end,
              partial(walk, a, 2 * part + 1), 0);
  }
  whole_rows(walk, a, own_state(walk, a), row, stop);
}

/* Merges the states of the row that begins in a part and goes on after it. */
static void merge_part(const parts *p, int64_t part) {
  const dfgnn_cpu_walk *walk = p->walk;
  const dfgnn_cpu_aggregate *a = p->aggregate;
  int64_t end = part_begin(p, part + 1), stop = part_row(p, part + 1);
  if (part_row(p, part) >= stop || edge_at(walk, stop) <= end)
    return;
  int64_t row = stop - 1, first = edge_at(walk, row);
  int64_t last = edge_at(walk, stop);
  char *to = partial(walk, a, 2 * part + 1);
  for (int64_t piece = 0; piece < a->pieces; piece++) {
    for (int64_t q = part + 1; q < p->count; q++) {
      int64_t begin = part_begin(p, q), next = part_begin(p, q + 1);
      if (begin >= last)
        break;
      a->merge(a->job, piece, to, partial(walk, a, 2 * q), begin - first,
               (next < last ? next : last) - begin);
    }
    a->finish(a->job, row, piece, to);
  }
}

static void fold_some(void *data, int64_t begin, int64_t end) {
  for (int64_t part = begin; part < end; part++)
    fold_part(data, part);
}

void dfgnn__cpu_walk_balanced(const dfgnn_cpu_walk *walk,
                              const dfgnn_cpu_aggregate *aggregate,
                              int parts_a_thread) {
  parts p = {walk, aggregate,
             part_count(walk->threads, parts_a_thread, walk->edges)};
  dfgnn__cpu_for(walk->threads, p.count, 1, fold_some, &p);
  for (int64_t part = 0; part < p.count; part++)
    merge_part(&p, part);
}
