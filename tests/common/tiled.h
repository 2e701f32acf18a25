/* tiled.h - graphs that tiles must get right: those of shapes.h, batches of
 * blocks of all sizes, rows of many columns */
#ifndef DFGNN_TESTS_TILED_H
#define DFGNN_TESTS_TILED_H

#include "dfgnn.h"
#include "tests/common/shapes.h"

enum {
  TILED = SHAPES + 9,
  TILED_WIDE = TILED + 2 /* and graphs of several 100000 columns */
};

/* 32-bit offsets and indices; the same for a seed (shape_seed). */
dfgnn_csr tiled_make(int i);

#endif
