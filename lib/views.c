/* views.c - the views of kernels/common/variant.h, built on the host */
#include "lib/views.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/common/host_view.h"
#include "kernels/common/tiles.h"
#include "lib/base/error.h"

static int row_of_edge(dfgnn_view *view, const dfgnn_matrix *m) {
  int32_t *row = dfgnn__view_array(view, 0, (size_t)m->edges * sizeof *row);
  if (!row)
    return 0;
  view->count = m->edges;
  for (int64_t i = 0; i < m->destinations; i++)
    for (int64_t e = dfgnn__offset_at(m, i); e < dfgnn__offset_at(m, i + 1);
         e++)
      row[e] = (int32_t)i;
  return 1;
}

static int64_t degree_of(const dfgnn_matrix *m, int64_t row) {
  return dfgnn__offset_at(m, row + 1) - dfgnn__offset_at(m, row);
}

/* The keys of orders, which rise: the first is that of the largest degree. */
static int64_t degree_key(const dfgnn_matrix *m, int64_t row) {
  return m->max_degree - degree_of(m, row);
}

static int64_t place_key(const dfgnn_matrix *m, int64_t row) {
  return degree_of(m, row) ? m->indices[dfgnn__offset_at(m, row)] : m->sources;
}

/* A counting sort of the rows by a key of at most `most`. */
static int sort_rows(dfgnn_view *view, const dfgnn_matrix *m,
                     int64_t (*key)(const dfgnn_matrix *, int64_t),
                     int64_t most) {
  const int64_t n = m->destinations;
  int32_t *order = dfgnn__view_array(view, 0, (size_t)n * sizeof *order);
  int64_t *first = calloc((size_t)most + 2, sizeof *first);
  const int ok = order && first;
  view->count = n;
  for (int64_t i = 0; ok && i < n; i++)
    first[key(m, i) + 1]++;
  for (int64_t k = 0; ok && k <= most; k++)
    first[k + 1] += first[k];
  for (int64_t i = 0; ok && i < n; i++)
    order[first[key(m, i)]++] = (int32_t)i;
  free(first);
  return ok;
}

static int degree_order(dfgnn_view *view, const dfgnn_matrix *m) {
  return sort_rows(view, m, degree_key, m->max_degree);
}

static int place_order(dfgnn_view *view, const dfgnn_matrix *m) {
  return sort_rows(view, m, place_key, m->sources);
}

static int slices(dfgnn_view *view, const dfgnn_matrix *m) {
  const int64_t n = m->destinations, count = view->request.parameter;
  const int64_t width = (m->sources + count - 1) / count;
  const size_t size = m->offsets64 ? sizeof(int64_t) : sizeof(int32_t);
  char *first = dfgnn__view_array(view, 0, (size_t)(n * (count + 1)) * size);
  if (!first)
    return 0;
  view->count = n * count;
  for (int64_t i = 0; i < n; i++) {
    int64_t at = dfgnn__offset_at(m, i), end = dfgnn__offset_at(m, i + 1);
    for (int64_t k = 0; k <= count; k++) {
      for (int64_t high = k == 0 ? at : end; at < high;) {
        const int64_t middle = (at + high) / 2;
        if (k == count || m->indices[middle] < k * width)
          at = middle + 1;
        else
          high = middle;
      }
      if (m->offsets64)
        ((int64_t *)first)[k * n + i] = at;
      else
        ((int32_t *)first)[k * n + i] = (int32_t)at;
    }
  }
  return 1;
}

static int work_items(dfgnn_view *view, const dfgnn_matrix *m) {
  int64_t n = m->destinations, size = view->request.parameter;
  int64_t items = 0, heavy = 0;
  for (int64_t i = 0; i < n; i++) {
    int64_t degree = dfgnn__offset_at(m, i + 1) - dfgnn__offset_at(m, i);
    int64_t parts = degree ? (degree + size - 1) / size : 1;
    items += parts;
    heavy += parts > 1;
  }
  int32_t *row = dfgnn__view_array(view, 0, (size_t)items * sizeof *row);
  int64_t *first =
      dfgnn__view_array(view, 1, (size_t)(items + 1) * sizeof *first);
  int32_t *item_of_row =
      dfgnn__view_array(view, 2, (size_t)(n + 1) * sizeof *item_of_row);
  int32_t *heavy_row =
      dfgnn__view_array(view, 3, (size_t)heavy * sizeof *heavy_row);
  if (!row || !first || !item_of_row || !heavy_row)
    return 0;
  view->count = items;
  view->extra = heavy;
  items = heavy = 0;
  for (int64_t i = 0; i < n; i++) {
    int64_t begin = dfgnn__offset_at(m, i), end = dfgnn__offset_at(m, i + 1);
    item_of_row[i] = (int32_t)items;
    do {
      row[items] = (int32_t)i;
      first[items++] = begin;
      begin += size;
    } while (begin < end);
    if (items - item_of_row[i] > 1)
      heavy_row[heavy++] = (int32_t)i;
  }
  item_of_row[n] = (int32_t)items;
  first[items] = m->edges;
  return 1;
}

/* A counting sort of the edges by column, which keeps their order. */
static int transpose(dfgnn_view *view, const dfgnn_matrix *m) {
  size_t width = m->offsets64 ? sizeof(int64_t) : sizeof(int32_t);
  int64_t columns = m->sources;
  char *offsets = dfgnn__view_array(view, 0, (size_t)(columns + 1) * width);
  int32_t *row = dfgnn__view_array(view, 1, (size_t)m->edges * sizeof *row);
  char *edge = dfgnn__view_array(view, 2, (size_t)m->edges * width);
  int64_t *next = calloc((size_t)columns + 1, sizeof *next);
  int ok = offsets && row && edge && next;
  view->count = columns;
  view->extra = 0;
  for (int64_t e = 0; ok && e < m->edges; e++)
    next[m->indices[e] + 1]++;
  for (int64_t j = 0; ok && j <= columns; j++) {
    if (next[j] > view->extra)
      view->extra = next[j];
    if (j > 0)
      next[j] += next[j - 1];
    if (m->offsets64)
      ((int64_t *)offsets)[j] = next[j];
    else
      ((int32_t *)offsets)[j] = (int32_t)next[j];
  }
  for (int64_t i = 0; ok && i < m->destinations; i++)
    for (int64_t e = dfgnn__offset_at(m, i); e < dfgnn__offset_at(m, i + 1);
         e++) {
      int64_t k = next[m->indices[e]]++;
      row[k] = (int32_t)i;
      if (m->offsets64)
        ((int64_t *)edge)[k] = e;
      else
        ((int32_t *)edge)[k] = (int32_t)e;
    }
  free(next);
  return ok;
}

dfgnn_status dfgnn__view_build(dfgnn_view *view, const dfgnn_matrix *matrix) {
  static int (*const build[DFGNN_VIEW_KINDS])(dfgnn_view *,
                                              const dfgnn_matrix *) = {
      [DFGNN_VIEW_ROW_OF_EDGE] = row_of_edge,
      [DFGNN_VIEW_DEGREE_ORDER] = degree_order,
      [DFGNN_VIEW_PLACE_ORDER] = place_order,
      [DFGNN_VIEW_SLICES] = slices,
      [DFGNN_VIEW_WORK_ITEMS] = work_items,
      [DFGNN_VIEW_TRANSPOSE] = transpose,
  };
  dfgnn_status status = DFGNN_OK;
  if (view->request.kind == DFGNN_VIEW_TILES)
    status = dfgnn__tiles_build(view, matrix);
  else if (!build[view->request.kind](view, matrix))
    status = dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory for a graph view");
  for (int k = 0; status && k < 4; k++)
    free((void *)view->array[k]);
  return status;
}
