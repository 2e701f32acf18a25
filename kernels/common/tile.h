/* tile.h - items of the TILES view, as device code reads them
 *
 * kernels/common/tiles.h says what they mean. */
#ifndef DFGNN_KERNELS_TILE_H
#define DFGNN_KERNELS_TILE_H

#include <stdint.h>

enum {
  DFGNN_TILE_COLUMNS = 32,   /* columns of a chunk */
  DFGNN_TILE_MOST_ROWS = 128 /* R is 16, 32, 64 or 128 */
};

/* The flag of an item: a row of the window has an edge twice, so that it has
 * fewer bits than edges. */
enum { DFGNN_TILE_DUPLICATES = 1 };

/* 32 bytes, so that a kernel may read two int4. */
typedef struct dfgnn_tile {
  int32_t row, rows;     /* the window's first row, its number of rows */
  int32_t chunk, chunks; /* the item's first chunk and number of chunks */
  int32_t columns;       /* 32 * chunks less the padding at the end */
  int32_t flags;
  int32_t padding; /* 0 */
  int32_t column;  /* the first; in dense mode the others follow it; 0: none */
} dfgnn_tile;

#endif
