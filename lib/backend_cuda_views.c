/* backend_cuda_views.c - the views of a graph, built on the device */
#include <limits.h>
#include <stdint.h>

#include "kernels/common/cuda_host.h"
#include "kernels/common/device_graph.h"
#include "lib/backend_cuda.h"
#include "lib/base/error.h"

static dfgnn_status row_of_edge(dfgnn_device *device, dfgnn_view *view,
                                const dfgnn_matrix *m) {
  DFGNN_TRY(dfgnn__cuda_add_array(device, view, 0,
                                  (size_t)m->edges * sizeof(int32_t)));
  dfgnn_status status = DFGNN_OK;
  view->count = m->edges;
  DFGNN_GO(
      dfgnn__cuda_row_of_edge(&device->queue, (int32_t *)view->array[0], m));
out:
  return status;
}

static dfgnn_status order_rows(const dfgnn_queue *queue, const void *data) {
  return dfgnn__cuda_order(queue, NULL, data, 0, NULL);
}

static dfgnn_status order(dfgnn_device *device, dfgnn_view *view,
                          const dfgnn_matrix *m) {
  const int by_place = view->request.kind == DFGNN_VIEW_PLACE_ORDER;
  void *workspace = NULL;
  dfgnn_status status = DFGNN_OK;
  DFGNN_GO(dfgnn__cuda_prepare(device, DFGNN_PREPARED_ORDER, order_rows, m));
  DFGNN_GO(dfgnn__cuda_add_array(device, view, 0,
                                 (size_t)m->destinations * sizeof(int32_t)));
  DFGNN_GO(dfgnn__cuda_take(device, &workspace,
                            dfgnn__cuda_order_bytes(m, by_place)));
  view->count = m->destinations;
  DFGNN_GO(dfgnn__cuda_order(&device->queue, (int32_t *)view->array[0], m,
                             by_place, workspace));
out:
  dfgnn__cuda_drop(device, workspace);
  return status;
}

static dfgnn_status cut_rows(const dfgnn_queue *queue, const void *data) {
  return dfgnn__cuda_cut_rows(queue, NULL, data, 1);
}

static dfgnn_status slices(dfgnn_device *device, dfgnn_view *view,
                           const dfgnn_matrix *m) {
  const int64_t count = view->request.parameter;
  const size_t width = m->offsets64 ? sizeof(int64_t) : sizeof(int32_t);
  DFGNN_TRY(dfgnn__cuda_prepare(device, DFGNN_PREPARED_SLICES, cut_rows, m));
  DFGNN_TRY(dfgnn__cuda_add_array(
      device, view, 0, (size_t)(m->destinations * (count + 1)) * width));
  view->count = m->destinations * count;
  return dfgnn__cuda_cut_rows(&device->queue, (void *)view->array[0], m,
                              (int)count);
}

static dfgnn_status make_items(const dfgnn_queue *queue, const void *data) {
  const dfgnn_matrix *m = data;
  DFGNN_TRY(dfgnn__cuda_count_items(queue, NULL, NULL, NULL, m, 1, NULL));
  DFGNN_TRY(dfgnn__cuda_fill_items(queue, NULL, NULL, NULL, 1, m, 1));
  return dfgnn__cuda_pad_items(queue, &(dfgnn_pad_items){.rows = 1},
                               m->offsets64);
}

/* Makes room for the most items that there can be, so that nobody waits for
 * their number. */
static dfgnn_status pad_items(dfgnn_device *device, dfgnn_view *view,
                              const dfgnn_matrix *m) {
  const int64_t size = -view->request.parameter, n = m->destinations;
  const int64_t heavy = m->edges / (size + 1);
  dfgnn_pad_items items = {.offsets = m->offsets,
                           .rows = n,
                           .edges = m->edges,
                           .size = size,
                           .most_items = n + m->edges / size,
                           .most_heavy = heavy < n ? heavy : n};
  size_t bytes = 0;
  void *memory = NULL;
  const size_t row = /* first: the view's memory begins there */
      dfgnn__place(&bytes, (size_t)items.most_items, sizeof *items.row);
  const size_t first_edge = dfgnn__place(&bytes, (size_t)items.most_items + 1,
                                         sizeof *items.first_edge);
  const size_t first_item =
      dfgnn__place(&bytes, (size_t)n + 1, sizeof *items.first_item);
  const size_t rows =
      dfgnn__place(&bytes, (size_t)items.most_heavy, sizeof *items.heavy);
  DFGNN_TRY(dfgnn__cuda_prepare(device, DFGNN_PREPARED_ITEMS, make_items, m));
  DFGNN_TRY(dfgnn__cuda_take(device, &memory, bytes));
  items.row = (int32_t *)((char *)memory + row);
  items.first_edge = (int64_t *)((char *)memory + first_edge);
  items.first_item = (int32_t *)((char *)memory + first_item);
  items.heavy = (int32_t *)((char *)memory + rows);
  view->count = items.most_items;
  view->extra = items.most_heavy;
  view->bytes = bytes;
  view->array[0] = items.row;
  view->array[1] = items.first_edge;
  view->array[2] = items.first_item;
  view->array[3] = items.heavy;
  return dfgnn__cuda_pad_items(&device->queue, &items, m->offsets64);
}

static dfgnn_status work_items(dfgnn_device *device, dfgnn_view *view,
                               const dfgnn_matrix *m) {
  const int64_t n = m->destinations, size = view->request.parameter;
  const size_t part = ((size_t)n * sizeof(int32_t) + 511) / 256 * 256;
  void *workspace = NULL;
  int32_t items = 0, heavy = 0;
  dfgnn_status status = DFGNN_OK;
  if (dfgnn__is_padded(&view->request))
    return pad_items(device, view, m);
  if (size < 1)
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "work items of %lld edges, expected at least 1",
                       (long long)size);
  if (n + m->edges / size > INT32_MAX)
    return dfgnn__fail(DFGNN_ERROR_UNSUPPORTED,
                       "more than 2147483647 work items of %lld edges",
                       (long long)size);
  DFGNN_GO(dfgnn__cuda_prepare(device, DFGNN_PREPARED_ITEMS, make_items, m));
  DFGNN_GO(dfgnn__cuda_add_array(device, view, 2,
                                 (size_t)(n + 1) * sizeof(int32_t)));
  DFGNN_GO(dfgnn__cuda_take(device, &workspace,
                            part + dfgnn__cuda_count_items_bytes(m)));
  /* The heavy rows are listed behind their number, then copied to an array
   * of their size. */
  int32_t *count = workspace, *first_item = (int32_t *)view->array[2];
  int32_t *list = count + 1;
  DFGNN_GO(dfgnn__cuda_count_items(&device->queue, first_item, list, count, m,
                                   size, (char *)workspace + part));
  DFGNN_GO(dfgnn__copy(&device->queue, &heavy, count, sizeof heavy));
  DFGNN_GO(dfgnn__read(&device->queue, &items, first_item + n, sizeof items));
  view->count = items;
  view->extra = heavy;
  DFGNN_GO(
      dfgnn__cuda_add_array(device, view, 0, (size_t)items * sizeof(int32_t)));
  DFGNN_GO(dfgnn__cuda_add_array(device, view, 1,
                                 ((size_t)items + 1) * sizeof(int64_t)));
  DFGNN_GO(
      dfgnn__cuda_add_array(device, view, 3, (size_t)heavy * sizeof(int32_t)));
  DFGNN_GO(dfgnn__copy(&device->queue, (void *)view->array[3], list,
                       (size_t)heavy * sizeof(int32_t)));
  DFGNN_GO(dfgnn__cuda_fill_items(&device->queue, (int32_t *)view->array[0],
                                  (int64_t *)view->array[1], first_item, items,
                                  m, size));
out:
  dfgnn__cuda_drop(device, workspace);
  return status;
}

/* A matrix of at most this many edges is sorted sooner than it is found to be
 * symmetric, and the largest degree of its columns is not waited for. */
enum { FEW_TO_SORT = 1 << 16 };

/* Tries whether the matrix is its own transpose.  Graphs of a data loader are
 * alike: after one that is not symmetric, the next few are not tried. */
static dfgnn_status mirror(dfgnn_device *device, dfgnn_view *view,
                           const dfgnn_matrix *m, void *memory, int *done) {
  enum { PASSED_OVER = 8 };
  uint64_t other = 0;
  dfgnn_status status = DFGNN_OK;
  int left = atomic_load(&device->asymmetric);
  *done = 0;
  if (m->destinations != m->sources || m->edges <= FEW_TO_SORT)
    return DFGNN_OK;
  if (left > 0) {
    atomic_store(&device->asymmetric, left - 1);
    return DFGNN_OK;
  }
  DFGNN_GO(dfgnn__cuda_mirror(&device->queue, (void *)view->array[0],
                              (int32_t *)view->array[1], (void *)view->array[2],
                              memory, m));
  status = dfgnn__cuda_answer(device, &other, memory, sizeof other);
  *done = !status && !other;
  view->extra = m->max_degree;
  if (other)
    atomic_store(&device->asymmetric, PASSED_OVER);
out:
  return status;
}

static dfgnn_status sort_columns(dfgnn_device *device, dfgnn_view *view,
                                 const dfgnn_matrix *m) {
  uint64_t largest = 0;
  void *memory = NULL;
  DFGNN_TRY(
      dfgnn__cuda_take(device, &memory, 256 + dfgnn__cuda_transpose_bytes(m)));
  dfgnn_status status = DFGNN_OK;
  DFGNN_GO(dfgnn__cuda_transpose(
      &device->queue, (void *)view->array[0], (int32_t *)view->array[1],
      (void *)view->array[2], memory, m, (char *)memory + 256));
  view->extra = m->edges;
  if (m->edges > FEW_TO_SORT) {
    status = dfgnn__cuda_answer(device, &largest, memory, sizeof largest);
    view->extra = (int64_t)largest;
  }
out:
  dfgnn__cuda_drop(device, memory);
  return status;
}

static dfgnn_status transpose_either_way(const dfgnn_queue *queue,
                                         const void *data) {
  const dfgnn_matrix *m = data;
  dfgnn_status status = DFGNN_OK;
  if (m->destinations == m->sources)
    status = dfgnn__cuda_mirror(queue, NULL, NULL, NULL, NULL, m);
  return status ? status
                : dfgnn__cuda_transpose(queue, NULL, NULL, NULL, NULL, m, NULL);
}

static dfgnn_status transpose(dfgnn_device *device, dfgnn_view *view,
                              const dfgnn_matrix *m) {
  const size_t width = m->offsets64 ? sizeof(int64_t) : sizeof(int32_t);
  void *flag = NULL;
  int done = 0;
  view->count = m->sources;
  dfgnn_status status = DFGNN_OK;
  DFGNN_GO(dfgnn__cuda_prepare(device, DFGNN_PREPARED_TRANSPOSE,
                               transpose_either_way, m));
  DFGNN_GO(
      dfgnn__cuda_add_array(device, view, 0, ((size_t)m->sources + 1) * width));
  DFGNN_GO(dfgnn__cuda_add_array(device, view, 1,
                                 (size_t)m->edges * sizeof(int32_t)));
  DFGNN_GO(dfgnn__cuda_add_array(device, view, 2, (size_t)m->edges * width));
  DFGNN_GO(dfgnn__cuda_take(device, &flag, sizeof(uint64_t)));
  DFGNN_GO(mirror(device, view, m, flag, &done));
  if (!done)
    DFGNN_GO(sort_columns(device, view, m));
out:
  dfgnn__cuda_drop(device, flag);
  return status;
}

dfgnn_status dfgnn__cuda_build_view(dfgnn_device *device, dfgnn_view *view,
                                    const dfgnn_matrix *matrix,
                                    const dfgnn_signature *signature) {
  static dfgnn_status (*const build[DFGNN_VIEW_KINDS])(
      dfgnn_device *, dfgnn_view *, const dfgnn_matrix *) = {
      [DFGNN_VIEW_ROW_OF_EDGE] = row_of_edge,
      [DFGNN_VIEW_DEGREE_ORDER] = order,
      [DFGNN_VIEW_PLACE_ORDER] = order,
      [DFGNN_VIEW_SLICES] = slices,
      [DFGNN_VIEW_WORK_ITEMS] = work_items,
      [DFGNN_VIEW_TRANSPOSE] = transpose,
      [DFGNN_VIEW_TILES] = dfgnn__cuda_build_tiles,
  };
  (void)signature;
  int entered = dfgnn__cuda_enter(device);
  dfgnn_status status = build[view->request.kind](device, view, matrix);
  for (int k = 0; status && k < 4; k++) {
    if (k == 0 || !dfgnn__is_padded(&view->request))
      dfgnn__cuda_drop(device, (void *)view->array[k]);
    view->array[k] = NULL;
  }
  dfgnn__cuda_leave(entered);
  return status;
}
