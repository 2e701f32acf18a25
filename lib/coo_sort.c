/* coo_sort.c - sorts an edge list in host memory by destinations, and a short
 * one by sources, too */
#include <stdlib.h>
#include <string.h>

#include "kernels/common/host_view.h"
#include "lib/base/error.h"
#include "lib/coo.h"

/* An array of 32 or of 64-bit numbers.  Loops over arrays are compiled for
 * each width, which stands in their arguments as a constant. */
#define FOR_EACH_WIDTH static inline __attribute__((always_inline))

FOR_EACH_WIDTH int64_t get(const void *array, int wide, int64_t k) {
  return wide ? ((const int64_t *)array)[k] : ((const int32_t *)array)[k];
}

FOR_EACH_WIDTH void set(void *array, int wide, int64_t k, int64_t x) {
  if (wide)
    ((int64_t *)array)[k] = x;
  else
    ((int32_t *)array)[k] = (int32_t)x;
}

/* Adds one to a number; returns what it was. */
FOR_EACH_WIDTH int64_t step(void *array, int wide, int64_t k) {
  const int64_t before = get(array, wide, k);
  set(array, wide, k, before + 1);
  return before;
}

/* The list and the matrix that it becomes.  rows and columns have two numbers
 * more than there are destinations or sources: first counts, then in [i + 1]
 * where the next edge of node i goes, and so in the end the offsets. */
typedef struct sorting {
  const dfgnn_coo *coo;
  int wide_list, wide; /* indices of the list, offsets of the matrix */
  int unsorted;
  int64_t loops, edges;
  void *rows, *indices, *order;
  void *columns, *column_rows, *column_edges; /* NULL: not wanted */
} sorting;

static dfgnn_status refuse(const dfgnn_coo *coo, int64_t e, int dst) {
  return dfgnn__fail(DFGNN_ERROR_INVALID,
                     "%s[%lld] = %lld is out of range, expected 0..%lld",
                     dst ? "destination" : "source", (long long)e,
                     (long long)get(dst ? coo->destination : coo->source,
                                    coo->index_type == DFGNN_INDEX_I64, e),
                     (long long)(dst ? coo->destinations : coo->sources) - 1);
}

static dfgnn_status refuse_order(int64_t e, int64_t i, int64_t previous) {
  return dfgnn__fail(DFGNN_ERROR_INVALID,
                     "destination[%lld] = %lld comes after %lld, but the list "
                     "was said to be sorted",
                     (long long)e, (long long)i, (long long)previous);
}

/* Checks the edges and counts those of each node, all in one pass. */
FOR_EACH_WIDTH dfgnn_status count(sorting *s, int wide_list, int wide) {
  const dfgnn_coo *coo = s->coo;
  const void *to = coo->destination, *from = coo->source;
  const uint64_t rows = (uint64_t)coo->destinations,
                 columns = (uint64_t)coo->sources;
  const int checked = !coo->trusted, no_loops = coo->self_loops;
  void *in_rows = s->rows, *in_columns = s->columns;
  int64_t previous = 0, falls = 0;
  for (int64_t e = 0; e < coo->edges; e++) {
    const int64_t i = get(to, wide_list, e), j = get(from, wide_list, e);
    if (checked && (uint64_t)i >= rows)
      return refuse(coo, e, 1);
    if (checked && (uint64_t)j >= columns)
      return refuse(coo, e, 0);
    if (i < previous && coo->sorted && checked)
      return refuse_order(e, i, previous);
    falls |= i - previous;
    previous = i;
    if (no_loops && i == j)
      continue;
    step(in_rows, wide, i + 2);
    if (in_columns)
      step(in_columns, wide, j + 2);
  }
  s->unsorted = no_loops || (falls < 0 && !(coo->sorted && coo->trusted));
  return DFGNN_OK;
}

/* Makes counts of edges in [i + 2] the begins of nodes in [i + 1], with a loop
 * more for the first ones; returns the largest degree. */
FOR_EACH_WIDTH int64_t add_up(void *numbers, int wide, int64_t nodes,
                              int64_t loops) {
  int64_t most = 0, begin = 0;
  for (int64_t i = 0; i < nodes; i++) {
    const int64_t degree = get(numbers, wide, i + 2) + (i < loops);
    set(numbers, wide, i + 1, begin);
    most = degree > most ? degree : most;
    begin += degree;
  }
  set(numbers, wide, nodes + 1, begin);
  return most;
}

FOR_EACH_WIDTH void place_rows(const sorting *s, int wide_list, int wide) {
  const dfgnn_coo *coo = s->coo;
  const void *to = coo->destination, *from = coo->source;
  const int no_loops = coo->self_loops;
  int32_t *indices = s->indices;
  void *rows = s->rows, *order = s->order;
  for (int64_t e = 0; e < coo->edges; e++) {
    const int64_t i = get(to, wide_list, e), j = get(from, wide_list, e);
    if (no_loops && i == j)
      continue;
    const int64_t k = step(rows, wide, i + 1);
    indices[k] = (int32_t)j;
    set(order, wide, k, e);
  }
  for (int64_t i = 0; i < s->loops; i++) {
    const int64_t k = step(rows, wide, i + 1);
    indices[k] = (int32_t)i;
    set(order, wide, k, coo->edges + i);
  }
}

/* The edges of a list that is sorted already. */
FOR_EACH_WIDTH void keep_rows(const sorting *s, int wide_list, int wide) {
  const dfgnn_coo *coo = s->coo;
  int32_t *indices = s->indices;
  for (int64_t e = 0; e < coo->edges; e++)
    indices[e] = (int32_t)get(coo->source, wide_list, e);
  memmove(s->rows, (char *)s->rows + (wide ? 8 : 4),
          ((size_t)coo->destinations + 1) * (wide ? 8 : 4));
}

FOR_EACH_WIDTH void place_columns(const sorting *s, int wide) {
  const void *rows = s->rows;
  const int32_t *indices = s->indices;
  void *columns = s->columns, *edges = s->column_edges;
  int32_t *column_rows = s->column_rows;
  int64_t e = 0;
  for (int64_t i = 0; i < s->coo->destinations; i++)
    for (const int64_t end = get(rows, wide, i + 1); e < end; e++) {
      const int64_t k = step(columns, wide, indices[e] + 1);
      column_rows[k] = (int32_t)i;
      set(edges, wide, k, e);
    }
}

/* ---- the four pairs of widths -------------------------------------------- */

static dfgnn_status count_edges(sorting *s) {
  if (s->wide_list)
    return s->wide ? count(s, 1, 1) : count(s, 1, 0);
  return s->wide ? count(s, 0, 1) : count(s, 0, 0);
}

static int64_t add_up_counts(const sorting *s, void *numbers, int64_t nodes) {
  return s->wide ? add_up(numbers, 1, nodes, s->loops)
                 : add_up(numbers, 0, nodes, s->loops);
}

static void place_edges(const sorting *s) {
  if (!s->unsorted)
    s->wide_list ? keep_rows(s, 1, s->wide) : keep_rows(s, 0, s->wide);
  else if (s->wide_list)
    s->wide ? place_rows(s, 1, 1) : place_rows(s, 1, 0);
  else
    s->wide ? place_rows(s, 0, 1) : place_rows(s, 0, 0);
  if (s->columns)
    s->wide ? place_columns(s, 1) : place_columns(s, 0);
}

/* ---- memory -------------------------------------------------------------- */

int64_t dfgnn__coo_loops(const dfgnn_coo *coo) {
  const int64_t nodes =
      coo->destinations < coo->sources ? coo->destinations : coo->sources;
  return coo->self_loops ? nodes : 0;
}

/* The arrays of columns, as long as the list without loops taken out. */
static int allocate_columns(sorting *s, dfgnn_view *view) {
  const size_t width = s->wide ? 8 : 4, most = (size_t)s->edges;
  const size_t numbers = ((size_t)s->coo->sources + 2) * width;
  view->request.kind = DFGNN_VIEW_TRANSPOSE;
  view->count = s->coo->sources;
  s->columns = dfgnn__view_array(view, 0, numbers);
  s->column_rows = dfgnn__view_array(view, 1, most * sizeof(int32_t));
  s->column_edges = dfgnn__view_array(view, 2, most * width);
  if (s->columns)
    memset(s->columns, 0, numbers);
  return s->columns && s->column_rows && s->column_edges;
}

static dfgnn_status out_of_memory(const sorting *s) {
  return dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory for %lld edges",
                     (long long)s->edges);
}

void dfgnn__sorted_edges_free(dfgnn_sorted_edges *sorted) {
  free(sorted->offsets);
  free(sorted->indices);
  free(sorted->order);
  for (int k = 0; k < 4; k++)
    free((void *)sorted->columns.array[k]);
}

dfgnn_status dfgnn__sort_edges(dfgnn_sorted_edges *sorted,
                               const dfgnn_coo *coo) {
  const int64_t loops = dfgnn__coo_loops(coo), most = coo->edges + loops;
  sorting s = {.coo = coo,
               .wide_list = coo->index_type == DFGNN_INDEX_I64,
               .wide = most > INT32_MAX,
               .loops = loops,
               .edges = most};
  const size_t width = s.wide ? 8 : 4, edges = (size_t)most;
  dfgnn_status status = DFGNN_OK;
  memset(sorted, 0, sizeof *sorted);
  s.rows = sorted->offsets = calloc((size_t)coo->destinations + 2, width);
  if (!s.rows || (coo->edges && most <= DFGNN_FEW_EDGES &&
                  !allocate_columns(&s, &sorted->columns)))
    status = out_of_memory(&s);
  if (!status)
    status = count_edges(&s);
  if (status)
    goto out;
  s.indices = sorted->indices = malloc(edges * sizeof(int32_t) + 1);
  if (s.unsorted)
    s.order = sorted->order = malloc(edges * width + 1);
  if (!s.indices || (s.unsorted && !s.order))
    DFGNN_GO(out_of_memory(&s));
  sorted->matrix = (dfgnn_matrix){
      .destinations = coo->destinations,
      .sources = coo->sources,
      .offsets64 = s.wide,
      .offsets = sorted->offsets,
      .indices = sorted->indices,
      .max_degree = add_up_counts(&s, s.rows, coo->destinations)};
  sorted->matrix.edges = get(s.rows, s.wide, coo->destinations + 1);
  if (s.columns)
    sorted->columns.extra = add_up_counts(&s, s.columns, coo->sources);
  place_edges(&s);
out:
  if (status)
    dfgnn__sorted_edges_free(sorted);
  return status;
}
