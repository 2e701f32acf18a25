/* tiles_params.h - parameters of the kernels that build the TILES view */
#ifndef DFGNN_KERNELS_TILES_PARAMS_H
#define DFGNN_KERNELS_TILES_PARAMS_H

#include <stdint.h>

#include "kernels/common/tile.h"

enum {
  DFGNN_TILES_THREADS = 256,
  DFGNN_COLUMNS_THREADS = 512,
  DFGNN_COLUMNS_STRETCH = 480, /* words that a warp counts */
  DFGNN_COLUMNS_PANEL =        /* words of columns that are marked at a time */
  DFGNN_COLUMNS_THREADS / 32 * DFGNN_COLUMNS_STRETCH,
  DFGNN_DENSE_GROUP = 8 /* lanes that read a row */
};

typedef struct dfgnn_window {
  int32_t row, rows;
  int32_t first, last; /* columns */
  int32_t columns, flags;
} dfgnn_window;

typedef struct dfgnn_tile_counts {
  uint64_t windows, chunks;
  uint64_t most; /* chunks of a window */
} dfgnn_tile_counts;

static inline int32_t dfgnn__chunks_of(int32_t columns) {
  return (int32_t)(((int64_t)columns + 31) / 32);
}

/* Items are ordered by falling rank: long ones first, so that the last wave is
 * short.  From 16 chunks on the rank is a power of two, so that most items of a
 * large matrix stay in the order of rows, and neighbours find the columns they
 * share in the cache. */
static inline int32_t dfgnn__tile_rank(int32_t chunks) {
  int32_t rank = chunks;
  if (chunks >= 16)
    for (rank = 16; rank <= chunks / 2;)
      rank *= 2;
  return rank;
}

/* Windows of `high` rows; chunks[w] becomes the number of chunks of window w.
 */
typedef struct dfgnn_count_columns {
  dfgnn_window *windows;
  int32_t *chunks;
  const void *offsets;
  const int32_t *indices;
  int64_t rows, sources;
  int32_t high, bits;
} dfgnn_count_columns;

/* Both modes fill these; chunk_end: the inclusive sums of chunks; masks are
 * zero before. */
typedef struct dfgnn_fill_columns {
  int32_t *columns;
  uint32_t *masks;
  dfgnn_window *windows;
  const int32_t *chunk_end;
  const void *offsets;
  const int32_t *indices;
  int64_t sources;
  int32_t high, bits;
} dfgnn_fill_columns;

/* high: the largest column of each row, then of all rows up to it.
 * low: minus the least column of each row, stored from the last row to the
 *      first; then the maximum over all rows from it on.
 * begin: the first row of each row's block.
 * end: the end of the block that begins at a row.
 * number: the number of windows up to a row. */
typedef struct dfgnn_dense_windows {
  int32_t *high, *low, *begin, *end, *number;
  const void *offsets;
  const int32_t *indices;
  int64_t rows;
  int32_t window_rows;
  dfgnn_window *windows;
  int32_t *chunks;
  uint64_t *count; /* of windows */
  int64_t capacity;
} dfgnn_dense_windows;

/* The items that the second step lists. */
typedef struct dfgnn_list_items {
  dfgnn_tile *item; /* window by window */
  uint32_t *key;    /* most - rank of the item */
  int32_t *order;
  const dfgnn_window *windows;
  const int32_t *chunk_end;
  int64_t count, most;
  dfgnn_tile *items; /* in their order */
} dfgnn_list_items;

#endif
