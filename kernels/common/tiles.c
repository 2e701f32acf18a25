/* tiles.c - the TILES view, built on the host */
#include "kernels/common/tiles.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/common/host_view.h"
#include "lib/base/error.h"

typedef struct window {
  int32_t row, rows;
  int32_t first, columns; /* dense: known from the start */
  int32_t chunk, flags;
} window;

typedef struct builder {
  const dfgnn_matrix *m;
  int rows, dense;
  window *windows;
  int64_t count, chunks;
  int32_t *place;    /* [sources]: a column's place in the window, -1: none */
  int32_t *distinct; /* [sources]: the columns of a window */
} builder;

/* ---- windows ------------------------------------------------------------- */

static void add_window(builder *b, int64_t row, int64_t end, int64_t first,
                       int64_t columns) {
  b->windows[b->count++] = (window){.row = (int32_t)row,
                                    .rows = (int32_t)(end - row),
                                    .first = (int32_t)first,
                                    .columns = (int32_t)columns};
}

/* Adds a block to the windows.  *shared: the first row of the open window of
 * small blocks, or -1. */
static void add_block(builder *b, int64_t begin, int64_t end, int64_t *shared) {
  const int64_t half = b->rows / 2, n = end - begin;
  if (n <= half) {
    if (*shared >= 0 && *shared / half == begin / half)
      b->count--;
    else
      *shared = begin;
    add_window(b, *shared, end, *shared, end - *shared);
    return;
  }
  const int64_t units = (n + 15) / 16, parts = (n + b->rows - 1) / b->rows;
  *shared = -1;
  for (int64_t k = 0; k < parts; k++) {
    int64_t row = begin + units * k / parts * 16;
    int64_t stop = begin + units * (k + 1) / parts * 16;
    add_window(b, row, stop < end ? stop : end, begin, n);
  }
}

/* A block ends before row i where no row before i has a column from i on, and
 * no row from i on a column before i.  low[i]: the least column from row i on.
 */
static int dense_windows(builder *b) {
  const dfgnn_matrix *m = b->m;
  const int64_t n = m->destinations;
  int32_t *low = malloc(((size_t)n + 1) * sizeof *low);
  int64_t begin = 0, high = -1, shared = -1;
  if (!low)
    return 0;
  low[n] = INT32_MAX;
  for (int64_t i = n - 1; i >= 0; i--) {
    low[i] = low[i + 1];
    for (int64_t e = dfgnn__offset_at(m, i); e < dfgnn__offset_at(m, i + 1);
         e++)
      low[i] = m->indices[e] < low[i] ? m->indices[e] : low[i];
  }
  for (int64_t i = 0; i < n; i++) {
    for (int64_t e = dfgnn__offset_at(m, i); e < dfgnn__offset_at(m, i + 1);
         e++)
      high = m->indices[e] > high ? m->indices[e] : high;
    if (high > i || low[i + 1] <= i)
      continue;
    add_block(b, begin, i + 1, &shared);
    begin = i + 1;
  }
  free(low);
  return 1;
}

static int64_t window_edges(const builder *b, const window *w) {
  return dfgnn__offset_at(b->m, w->row + w->rows) -
         dfgnn__offset_at(b->m, w->row);
}

static int ascending(const void *a, const void *b) {
  const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
  return x < y ? -1 : x > y;
}

/* Lists the columns of a window in b->distinct, in no order; b->place is -1
 * everywhere before and after. */
static int32_t list_columns(builder *b, const window *w) {
  const dfgnn_matrix *m = b->m;
  int32_t columns = 0;
  for (int64_t e = dfgnn__offset_at(m, w->row);
       e < dfgnn__offset_at(m, w->row + w->rows); e++) {
    int32_t j = m->indices[e];
    if (b->place[j] < 0) {
      b->place[j] = columns;
      b->distinct[columns++] = j;
    }
  }
  for (int32_t k = 0; k < columns; k++)
    b->place[b->distinct[k]] = -1;
  return columns;
}

static int find_windows(builder *b) {
  const int64_t n = b->m->destinations;
  /* There are at most 2 n / R shared windows, as each starts in its own R / 2
   * rows; a block of n > R / 2 rows has at most 3 n / R. */
  b->windows = malloc(((size_t)(5 * n / b->rows) + 3) * sizeof *b->windows);
  b->place = malloc((size_t)b->m->sources * sizeof *b->place + 1);
  b->distinct = malloc((size_t)b->m->sources * sizeof *b->distinct + 1);
  if (!b->windows || !b->place || !b->distinct)
    return 0;
  memset(b->place, 0xff, (size_t)b->m->sources * sizeof *b->place);
  if (b->dense && !dense_windows(b))
    return 0;
  for (int64_t i = 0; !b->dense && i < n; i += b->rows)
    add_window(b, i, i + b->rows < n ? i + b->rows : n, 0, 0);
  for (window *w = b->windows; w < b->windows + b->count; w++) {
    if (window_edges(b, w) == 0)
      w->first = w->columns = 0;
    else if (!b->dense)
      w->columns = list_columns(b, w);
    b->chunks += ((int64_t)w->columns + 31) / 32;
  }
  return 1;
}

/* ---- columns and masks --------------------------------------------------- */

static void fill_window(builder *b, window *w, int32_t *column,
                        uint32_t *mask) {
  const dfgnn_matrix *m = b->m;
  const int32_t columns = w->columns;
  if (b->dense)
    for (int32_t k = 0; k < columns; k++)
      b->distinct[k] = w->first + k;
  else if (columns > 0)
    qsort(b->distinct, (size_t)list_columns(b, w), sizeof *b->distinct,
          ascending);
  for (int32_t k = 0; k < columns; k++)
    b->place[b->distinct[k]] = k;
  for (int64_t k = 0; k < ((int64_t)columns + 31) / 32 * 32; k++)
    column[k] = b->distinct[k < columns ? k : columns - 1];
  for (int32_t r = 0; r < w->rows; r++)
    for (int64_t e = dfgnn__offset_at(m, w->row + r);
         e < dfgnn__offset_at(m, w->row + r + 1); e++) {
      int32_t k = b->place[m->indices[e]];
      uint32_t *word = &mask[(size_t)(k / 32) * (size_t)b->rows + (size_t)r];
      if (*word >> (k % 32) & 1)
        w->flags = DFGNN_TILE_DUPLICATES;
      *word |= (uint32_t)1 << (k % 32);
    }
  for (int32_t k = 0; k < columns; k++)
    b->place[b->distinct[k]] = -1;
  w->first = columns > 0 ? b->distinct[0] : 0;
}

static int fill_windows(builder *b, dfgnn_view *view) {
  const size_t words = (size_t)b->chunks * (size_t)b->rows;
  int32_t *column =
      dfgnn__view_array(view, 1, (size_t)b->chunks * 32 * sizeof *column);
  uint32_t *mask = dfgnn__view_array(view, 2, words * sizeof *mask);
  int32_t chunk = 0;
  if (!column || !mask)
    return 0;
  memset(mask, 0, words * sizeof *mask);
  for (window *w = b->windows; w < b->windows + b->count; w++) {
    w->chunk = chunk;
    fill_window(b, w, column + (size_t)chunk * 32,
                mask + (size_t)chunk * (size_t)b->rows);
    chunk += (int32_t)(((int64_t)w->columns + 31) / 32);
  }
  return 1;
}

/* ---- items --------------------------------------------------------------- */

/* Orders tiles by falling rank, and tiles of one rank as they were. */
static int before(const void *a, const void *b) {
  const dfgnn_tile *x = a, *y = b;
  const int32_t rank = dfgnn__tile_rank(x->chunks);
  const int32_t other = dfgnn__tile_rank(y->chunks);
  if (rank != other)
    return rank > other ? -1 : 1;
  return x->row < y->row ? -1 : x->row > y->row;
}

static int list_items(builder *b, dfgnn_view *view) {
  dfgnn_tile *item =
      dfgnn__view_array(view, 0, (size_t)b->count * sizeof *item);
  const int32_t *column = view->array[1];
  if (!item)
    return 0;
  view->count = b->count;
  for (const window *w = b->windows; w < b->windows + b->count; w++)
    *item++ =
        (dfgnn_tile){.row = w->row,
                     .rows = w->rows,
                     .chunk = w->chunk,
                     .chunks = (int32_t)(((int64_t)w->columns + 31) / 32),
                     .columns = w->columns,
                     .flags = w->flags,
                     .column = w->columns ? column[(size_t)w->chunk * 32] : 0};
  qsort((void *)view->array[0], (size_t)b->count, sizeof *item, before);
  return 1;
}

/* ---- the view ------------------------------------------------------------ */

dfgnn_status dfgnn__tiles_check(const dfgnn_view_request *request,
                                const dfgnn_matrix *matrix) {
  const int64_t p = request->parameter;
  const int rows = dfgnn__tiles_rows(p);
  if (p < 0 || p >= (int64_t)1 << 11 ||
      (rows != 16 && rows != 32 && rows != 64 && rows != 128))
    return dfgnn__fail(DFGNN_ERROR_INVALID,
                       "tiles of %d rows (parameter %lld), expected 16, 32, 64 "
                       "or 128",
                       rows, (long long)p);
  if (dfgnn__tiles_dense(p) && matrix->destinations != matrix->sources)
    return dfgnn__fail(DFGNN_ERROR_UNSUPPORTED,
                       "dense tiles need a square matrix, found %lld x %lld",
                       (long long)matrix->destinations,
                       (long long)matrix->sources);
  return DFGNN_OK;
}

dfgnn_status dfgnn__tiles_check_chunks(int64_t chunks, int rows) {
  const int64_t most = INT32_MAX / (rows > 32 ? rows : 32);
  if (chunks > most)
    return dfgnn__fail(DFGNN_ERROR_UNSUPPORTED,
                       "%lld chunks of columns in windows of %d rows, expected "
                       "at most %lld",
                       (long long)chunks, rows, (long long)most);
  return DFGNN_OK;
}

dfgnn_status dfgnn__tiles_build(dfgnn_view *view, const dfgnn_matrix *matrix) {
  const int64_t p = view->request.parameter;
  builder b = {.m = matrix,
               .rows = dfgnn__tiles_rows(p),
               .dense = dfgnn__tiles_dense(p)};
  dfgnn_status status = dfgnn__tiles_check(&view->request, matrix);
  if (status)
    return status;
  int ok = find_windows(&b);
  if (ok)
    status = dfgnn__tiles_check_chunks(b.chunks, b.rows);
  if (ok && !status)
    ok = fill_windows(&b, view) && list_items(&b, view);
  if (!ok)
    status = dfgnn__fail(DFGNN_ERROR_MEMORY, "out of memory for tiles");
  free(b.distinct);
  free(b.place);
  free(b.windows);
  return status;
}
